"""Typing is counted as the module's page says."""

import asyncio

import pytest

from benchmarks.measures.typing_trial import Line, Typist, draw_lines

_LINE = Line("", "return node", "\n")


class _Scripted:
    """Shows texts by the text before the cursor."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def open(self, _before: str, _after: str) -> None: ...

    async def show(self, before: str, _after: str) -> str:
        return self._texts.get(before, "")


def _type(texts: dict[str, str], takes_words: bool = False) -> Typist:
    typist = Typist(_Scripted(texts), takes_words)
    asyncio.run(typist.type(_LINE))
    return typist


def test_tab_takes_what_is_wholly_right_for_one_key() -> None:
    assert _type({"ret": "urn node"}).num_keys == 4


def test_tab_takes_nothing_that_is_wrong_somewhere() -> None:
    assert _type({"ret": "urn nodes"}).num_keys == len(_LINE.text)


@pytest.mark.parametrize(
    ("before", "shown", "num_keys"), [("ret", "urn nodes", 9), ("retu", "rn x", 11), ("r", "et", 10)]
)
def test_a_word_is_taken_if_it_is_right_and_has_three_characters(before: str, shown: str, num_keys: int) -> None:
    assert _type({before: shown}, takes_words=True).num_keys == num_keys


def test_wrong_characters_count_at_each_key() -> None:
    assert _type({"r": "ex", "re": "x", "ret": "urn nobody"}).num_wrong == 1 + 1 + 4


def test_a_flicker_is_a_change_at_a_key_that_agrees() -> None:
    assert _type({"r": "etu_", "re": "tu_", "ret": "rn"}).num_flickers == 1
    assert _type({"r": "eturx", "re": "turx+1"}).num_flickers == 1  # it has vanished
    assert _type({"r": "ex", "re": "go"}).num_flickers == 1


def test_drawn_lines_are_different_lines_of_the_files() -> None:
    text = "".join(f"    some_name_{number} = {number}\n" for number in range(200))
    lines = draw_lines([text, "short"], 30, seed=1)
    assert len({line.before for line in lines}) == 30
    assert all(line.before + line.text + line.after == text for line in lines)
    assert lines == draw_lines([text, "short"], 30, seed=1)
