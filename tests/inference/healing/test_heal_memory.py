from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.healing import heal_memory
from inference.healing.heal_memory import HealMemory
from inference.healing.heal_point import HealPoint, find_heal_point, find_tail_heal_point
from tests.support.toys import KINDS, long_texts, texts, toy_tokenizer

kinds = pytest.mark.parametrize("kind", KINDS)
_LINES = "def walk(node, depth):\n    for child in node.children:\n        yield from walk(child, depth + 1)\n\n\n"


@dataclass(frozen=True)
class _Edit:
    """Drops the last characters, then adds some."""

    num_dropped: int
    added: str


_edits = st.lists(st.builds(_Edit, st.sampled_from([0, 0, 0, 1, 1, 5, 60, 700]), texts), min_size=1, max_size=12)


def _apply(text: str, edit: _Edit) -> str:
    return text[: max(len(text) - edit.num_dropped, 0)] + edit.added


@kinds
@settings(max_examples=3 * settings().max_examples)
@given(start=texts, num_lines=st.integers(0, 60), edits=_edits)
def test_every_heal_point_is_that_of_the_text_alone(kind: str, start: str, num_lines: int, edits: list[_Edit]) -> None:
    encoder = toy_tokenizer(kind).encoder
    memory, text = HealMemory(encoder), start + _LINES * num_lines
    for edit in edits:
        text = _apply(text, edit)

        found, expected = memory.heal(text), find_heal_point(encoder, text)

        assert replace(found, num_stable_bytes=0, num_stable_ids=0) == replace(
            expected, num_stable_bytes=0, num_stable_ids=0
        )


@kinds
@pytest.mark.parametrize("name", long_texts)
def test_long_pre_tokens_that_grow_have_the_heal_points_of_the_text_alone(kind: str, name: str) -> None:
    encoder = toy_tokenizer(kind).encoder
    memory, text = HealMemory(encoder), long_texts[name]
    for end in (900, 901, 1500, 1499, 1502, 600):
        assert memory.heal(text[:end]).kept_ids == find_heal_point(encoder, text[:end]).kept_ids


def test_texts_in_turns_do_not_disturb_each_other() -> None:
    encoder = toy_tokenizer("qwen").encoder
    memory = HealMemory(encoder)
    first, second = _LINES * 30, _LINES * 20 + "import os\n" * 100
    for count in range(20):
        for text in (first, second):
            typed = text + "return"[:count]
            assert memory.heal(typed).kept_ids == find_heal_point(encoder, typed).kept_ids


@pytest.fixture
def split_lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the texts that were split."""
    lengths: list[int] = []

    def record(encoder: Any, text: str, *others: Any, **named: Any) -> HealPoint | None:
        lengths.append(len(text))
        return find_tail_heal_point(encoder, text, *others, **named)

    monkeypatch.setattr(heal_memory, "find_tail_heal_point", record)
    return lengths


def test_after_a_key_only_the_end_is_split_again(split_lengths: list[int]) -> None:
    memory, text = HealMemory(toy_tokenizer("qwen").encoder), _LINES * 100
    memory.heal(text)
    split_lengths.clear()

    for count in range(1, 20):
        memory.heal(text + "return walk(children)"[:count])

    assert max(split_lengths) < 300


def test_after_a_deletion_only_the_end_is_split_again(split_lengths: list[int]) -> None:
    memory, text = HealMemory(toy_tokenizer("qwen").encoder), _LINES * 100
    memory.heal(text)
    split_lengths.clear()

    for count in range(1, 100):
        memory.heal(text[:-count])

    assert max(split_lengths) < 1200


def test_tenants_share_nothing(split_lengths: list[int]) -> None:
    memory, text = HealMemory(toy_tokenizer("qwen").encoder), _LINES * 20
    memory.heal(text, "a")
    split_lengths.clear()

    memory.heal(text, "b")

    assert max(split_lengths) == len(text) - 512  # the first part of the whole, as for a new text


def test_only_so_many_texts_are_remembered() -> None:
    memory = HealMemory(toy_tokenizer("qwen").encoder)
    for number in range(100):
        memory.heal(f"{number} = {number}\n" * 10)

    assert len(memory._texts) == heal_memory._MAX_TEXTS
