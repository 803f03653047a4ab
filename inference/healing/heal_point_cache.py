"""Heal points of texts that differ little from earlier ones, as they do from one keystroke to the next.

Naive form: split the whole text again (2 ms for 8 kB). But an earlier text had a part that no continuation can change.
A text that begins like the earlier one has the same tokens there, and only what follows is split: up to a thousand
characters.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from inference.healing.heal_point import HealPoint, find_tail_heal_point, prepare_text
from inference.healing.text_encoder import TextEncoder

_MAX_BEGINNINGS = 64
_MAX_AGAIN = 1024  # characters to split again; before more, a later beginning is settled
_DISTANCE = 256  # characters between a new beginning and the end, which later keys may delete


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The beginning of a tenant's text. In each text that begins so, the first `num_settled` characters are settled."""

    tenant: str
    text: str
    num_settled: int
    num_settled_bytes: int
    settled_ids: tuple[int, ...]  # their tokens


class HealPointCache:
    """Finds heal points, and remembers beginnings of the texts. Not thread-safe."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._beginnings: list[_Beginning] = []  # oldest first

    def heal(self, text: str, tenant: str = "") -> HealPoint:
        """The heal point of a text. Tenants share no remembered texts."""
        text, num_unsettled_bytes = prepare_text(self._encoder, text)
        longest = next(self._iter_beginnings(text, tenant))
        if len(text) - longest.num_settled > _MAX_AGAIN:
            self._settle(text[:-_DISTANCE], tenant)
        return self._heal(text, tenant, num_unsettled_bytes)[1]

    def _iter_beginnings(self, text: str, tenant: str) -> Iterator[_Beginning]:
        """What is remembered of the beginning of the text, from the longest to nothing."""
        known = [each for each in self._beginnings if each.tenant == tenant and text.startswith(each.text)]
        yield from sorted(known, key=lambda each: each.num_settled, reverse=True)
        yield _Beginning(tenant, "", 0, 0, ())

    def _settle(self, text: str, tenant: str) -> None:
        """Remembers the text, which is the beginning of another one."""
        before, point = self._heal(text, tenant, 0)
        added = text.encode()[before.num_settled_bytes : point.num_stable_bytes].decode()
        beginning = _Beginning(
            tenant,
            text,
            before.num_settled + len(added),
            point.num_stable_bytes,
            point.kept_ids[: point.num_stable_ids],
        )
        self._beginnings = [*self._beginnings[1 - _MAX_BEGINNINGS :], beginning]

    def _heal(self, text: str, tenant: str, num_unsettled_bytes: int) -> tuple[_Beginning, HealPoint]:
        """The heal point of the text, and the beginning after which it was found."""
        for known in self._iter_beginnings(text, tenant):
            end = text[known.num_settled :]
            point = find_tail_heal_point(self._encoder, end, num_unsettled_bytes, is_beginning=not known.num_settled)
            if point is not None:
                break
        assert point is not None, "the last of them is the start of the text"
        return known, replace(
            point,
            kept_ids=known.settled_ids + point.kept_ids,
            num_stable_bytes=known.num_settled_bytes + point.num_stable_bytes,
            num_stable_ids=len(known.settled_ids) + point.num_stable_ids,
        )
