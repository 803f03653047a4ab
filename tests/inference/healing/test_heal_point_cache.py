from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.healing import heal_point_cache
from inference.healing.heal_point import find_heal_point
from inference.healing.heal_point_cache import HealPointCache
from inference.healing.text_encoder import PreToken, TextEncoder
from tests.support.toys import KINDS, long_texts, texts, toy_tokenizer

kinds = pytest.mark.parametrize("kind", KINDS)
_LINES = "def walk(node, depth):\n    for child in node.children:\n        yield from walk(child, depth + 1)\n\n\n"


# Each edits one of two texts: it drops the last characters, then adds some.
_edits = st.lists(
    st.tuples(st.booleans(), st.sampled_from([0, 0, 0, 1, 1, 5, 60, 700]), texts), min_size=1, max_size=12
)


@kinds
@given(start=texts, num_lines=st.integers(0, 40), edits=_edits)
def test_every_heal_point_is_that_of_the_text_alone(
    kind: str, start: str, num_lines: int, edits: list[tuple[bool, int, str]]
) -> None:
    encoder = toy_tokenizer(kind).encoder
    memory, edited = HealPointCache(encoder), {False: start + _LINES * num_lines, True: _LINES * 20 + "import os\n"}
    for which, num_dropped, added in edits:
        edited[which] = edited[which][: max(len(edited[which]) - num_dropped, 0)] + added
        found, expected = memory.heal(edited[which]), find_heal_point(encoder, edited[which])
        assert replace(found, num_stable_bytes=0, num_stable_ids=0) == replace(
            expected, num_stable_bytes=0, num_stable_ids=0
        )


@kinds
@pytest.mark.parametrize("name", long_texts)
def test_long_pre_tokens_that_grow_have_the_heal_points_of_the_text_alone(kind: str, name: str) -> None:
    encoder = toy_tokenizer(kind).encoder
    memory, text = HealPointCache(encoder), long_texts[name]
    for end in (900, 901, 1500, 1499, 1502, 600):
        assert memory.heal(text[:end]).kept_ids == find_heal_point(encoder, text[:end]).kept_ids


class _WatchedEncoder(TextEncoder):
    """An encoder that records the length of the longest text that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.most_chars = 0
        self._encoder = toy_tokenizer("qwen").encoder

    def _split_plain(self, text: str, start: int) -> list[PreToken]:  # noqa: ARG002  # no added texts: always 0
        self.most_chars = max(self.most_chars, len(text))
        return self._encoder.split(text)

    def encode_beginning(self, beginning: bytes) -> tuple[int, ...]:
        return self._encoder.encode_beginning(beginning)


_LONG = _LINES * 100


@pytest.mark.parametrize(
    ("tenant", "texts", "least", "most"),
    [
        ("a", [_LONG + "return walk(children)"[:count] for count in range(1, 20)], 1, 1300),
        ("a", [_LONG[:-count] for count in range(1, 100)], 1, 1600),
        ("b", [_LONG], len(_LONG) - 256, len(_LONG)),  # tenants share nothing
    ],
    ids=["keys", "deletions", "another tenant"],
)
def test_after_an_edit_only_the_end_is_split_again(tenant: str, texts: list[str], least: int, most: int) -> None:
    encoder = _WatchedEncoder()
    memory = HealPointCache(encoder)
    memory.heal(_LONG, "a")
    encoder.most_chars = 0

    for text in texts:
        memory.heal(text, tenant)

    assert least <= encoder.most_chars <= most


def test_only_so_many_texts_are_remembered() -> None:
    memory = HealPointCache(toy_tokenizer("qwen").encoder)
    for number in range(100):
        memory.heal(f"{number} = {number}\n" * 200)

    assert len(memory._beginnings) == heal_point_cache._MAX_BEGINNINGS
