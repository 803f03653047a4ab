"""Heal points of texts that differ little from earlier ones, as they do from one keystroke to the next.

Naive form: split the whole text again (2 ms for 8 kB). But an earlier text had a part that no continuation can change.
A text that begins like the earlier one has the same tokens there, and only what follows is split. Each text leaves a
*mark*: how far a later text must agree with it, and how much of it is then settled.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from inference.healing.heal_point import HealPoint, count_common, find_tail_heal_point, prepare_text
from inference.healing.text_encoder import TextEncoder

_MAX_TEXTS = 16
_MAX_MARKS = 128
_SPACING = 32  # characters between the settled parts of two marks
_MARGINS = (64, 512, 2048)  # characters to split again; fewer may not be enough to find a heal point
_DISTANCES = (2048, 512, 128)  # characters before the end at which a text gets marks too: for later keys and deletions


@dataclass(frozen=True, slots=True)
class _Mark:
    """In a text that begins with the first `num_chars` of the remembered one, the first `num_stable` are settled."""

    num_chars: int
    num_stable: int
    num_stable_bytes: int
    num_stable_ids: int


_START = _Mark(0, 0, 0, 0)


@dataclass(slots=True)
class _Remembered:
    """A tenant's text, its marks from the start on, and the tokens of the last mark's settled part."""

    tenant: str
    text: str = ""
    ids: list[int] = field(default_factory=list)
    marks: list[_Mark] = field(default_factory=lambda: [_START])


class HealPointCache:
    """Finds heal points, and remembers the texts. Not thread-safe."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._texts: list[_Remembered] = []  # least recently used first

    def heal(self, text: str, tenant: str = "") -> HealPoint:
        """The heal point of a text, which is then remembered. Tenants share no remembered texts."""
        text, num_unsettled_bytes = prepare_text(self._encoder, text)
        remembered = self._take(text, tenant)
        for distance in _DISTANCES:
            if len(text) - remembered.marks[-1].num_stable > 2 * distance:
                self._extend(remembered, text[: len(text) - distance], 0)
        return self._extend(remembered, text, num_unsettled_bytes)

    def _take(self, text: str, tenant: str) -> _Remembered:
        """The tenant's text that shares the most settled characters with `text`, without the marks beyond them."""
        best, marks = _Remembered(tenant), [_START]
        for each in [each for each in self._texts if each.tenant == tenant]:
            num_common = count_common(each.text, text)
            shared = [mark for mark in each.marks if mark.num_chars <= num_common]
            if shared[-1].num_stable >= marks[-1].num_stable:
                best, marks = each, shared
        if 2 * marks[-1].num_stable < best.marks[-1].num_stable:  # most of it would be lost
            best = replace(best, ids=best.ids[: marks[-1].num_stable_ids])
        best.marks = marks
        self._texts = [*[each for each in self._texts if each is not best][1 - _MAX_TEXTS :], best]
        return best

    def _extend(self, remembered: _Remembered, text: str, num_unsettled_bytes: int) -> HealPoint:
        """The heal point of `text`, which agrees with all marks. It becomes the remembered text."""
        for mark in _iter_starts(remembered.marks, len(text)):
            end = text[mark.num_stable :]
            point = find_tail_heal_point(self._encoder, end, num_unsettled_bytes, is_beginning=not mark.num_stable)
            if point is not None:
                break
        assert point is not None, "the last of them is the start of the text"
        own = end.encode()[: point.num_stable_bytes].decode()
        ids = remembered.ids
        ids[mark.num_stable_ids :] = point.kept_ids
        point = replace(
            point,
            kept_ids=tuple(ids),  # copied once: there may be tens of thousands
            num_stable_bytes=mark.num_stable_bytes + point.num_stable_bytes,
            num_stable_ids=mark.num_stable_ids + point.num_stable_ids,
        )
        added = _Mark(len(text), mark.num_stable + len(own), point.num_stable_bytes, point.num_stable_ids)
        del ids[point.num_stable_ids :]
        remembered.text = text
        remembered.marks = _add_mark(remembered.marks, added)
        return point


def _add_mark(marks: list[_Mark], added: _Mark) -> list[_Mark]:
    """The marks with one more. Of those before it, each but the last is at least `_SPACING` from its neighbour."""
    marks = [mark for mark in marks if mark.num_stable <= added.num_stable]
    if len(marks) > 1 and marks[-1].num_stable - marks[-2].num_stable < _SPACING:
        marks.pop()
    return [_START, *marks[1:][-_MAX_MARKS:], added]


def _iter_starts(marks: list[_Mark], num_chars: int) -> Iterator[_Mark]:
    """The marks from which a text of `num_chars` is split, nearest first; at last the start of the text."""
    for margin in _MARGINS:
        yield next((mark for mark in reversed(marks) if mark.num_stable <= num_chars - margin), _START)
    yield _START
