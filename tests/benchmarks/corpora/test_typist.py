import itertools

import pytest

from benchmarks.corpora.sized_files import SizedFile
from benchmarks.corpora.typing import KeyKind, Session
from benchmarks.corpora.typist import draw_session

_CODE = (
    "def read_lines(source_file, number_of_lines):\n"
    "    for index, line in enumerate(source_file):\n"
    "        if index >= number_of_lines:\n"
    "            return None\n"
    "\n"
    "        yield line.rstrip() + 'é😀'\n"
    "\n\n"
)
_FILES = [
    SizedFile("a.py", _CODE * 40, 3_000),
    SizedFile("b.py", "# b\n" + _CODE * 4, 300),
    SizedFile("c.py", _CODE * 4, 300),
]


def _draw(seed: int = 1, num_keys: int = 3_000) -> Session:
    return draw_session(_FILES, num_keys, seed)


@pytest.mark.parametrize("seed", range(5))
def test_the_keys_turn_each_document_into_its_file(seed: int) -> None:
    session = _draw(seed)

    texts = {moment.key.document: moment.text for moment in session.iter_moments()}

    assert [texts[index] for index in range(3)] == [file.text for file in _FILES]
    assert [document.finished for document in session.documents] == [file.text for file in _FILES]


def test_parts_of_each_document_are_missing_at_first() -> None:
    for document in _draw().documents:
        assert 0.6 * len(document.finished) < len(document.text) < len(document.finished)


def test_the_same_seed_draws_the_same_keys() -> None:
    assert _draw(seed=3) == _draw(seed=3)
    assert _draw(seed=3) != _draw(seed=4)


def test_offsets_are_inside_the_text_and_the_cursor_follows_the_edit() -> None:
    texts = [document.text for document in _draw().documents]
    for key in _draw().keys:
        before = texts[key.document]
        texts[key.document] = after = key.apply(before)
        assert 0 <= key.start <= key.end <= len(before)
        assert 0 <= key.cursor <= len(after)
        assert not key.is_edit or key.cursor == key.start + len(key.text)


def test_kinds_say_what_the_keys_do() -> None:
    session, texts = _draw(), [document.text for document in _draw().documents]
    for key in session.keys:
        replaced = texts[key.document][key.start : key.end]
        texts[key.document] = key.apply(texts[key.document])
        match key.kind:
            case KeyKind.LETTER:
                assert (replaced, len(key.text)) == ("", 1)
                assert key.text == "_" or key.text.isalnum()
            case KeyKind.WORD_END:
                assert (replaced, len(key.text)) == ("", 1)
                assert not key.text.isalnum()
            case KeyKind.NEWLINE:
                assert replaced == key.text.strip() == ""
                assert key.text[0] == "\n"
            case KeyKind.ACCEPT:
                assert replaced == ""
                assert len(key.text) > 1
            case KeyKind.BACKSPACE:
                assert (len(replaced), key.text) == (1, "")
            case KeyKind.DELETE:
                assert len(replaced) > 1
                assert key.text == ""
            case KeyKind.MOVE | KeyKind.JUMP:
                assert not key.is_edit


def test_only_jumps_leave_a_document_and_each_begins_with_one() -> None:
    keys = _draw().keys

    assert keys[0].kind is KeyKind.JUMP
    for before, key in itertools.pairwise(keys):
        assert key.document == before.document or key.kind is KeyKind.JUMP


def test_a_run_of_moves_asks_once_at_its_end() -> None:
    keys = _draw().keys

    for key, following in itertools.pairwise(keys):
        if key.kind in (KeyKind.MOVE, KeyKind.JUMP):
            goes_on = following.kind is KeyKind.MOVE and following.document == key.document
            assert key.asks != goes_on
        else:
            assert key.asks
    assert sum(not key.asks for key in keys) > 50


def test_the_first_key_that_asks_after_a_jump_is_cold() -> None:
    has_jumped = False
    for key in _draw().keys:
        has_jumped = has_jumped or key.kind is KeyKind.JUMP
        assert key.is_cold == (has_jumped and key.asks)
        has_jumped = has_jumped and not key.asks


def test_each_size_gets_as_many_keys() -> None:
    keys = _draw().keys

    numbers = [sum(key.document == index for key in keys) for index in range(3)]

    assert len(keys) >= 3_000
    assert numbers[0] == pytest.approx(1_500, abs=150)
    assert numbers[1] == pytest.approx(750, abs=150)


def test_keys_are_of_all_kinds_in_the_stated_proportions() -> None:
    shares = _draw(num_keys=20_000).find_shares()

    assert (
        0.70 < sum(shares[kind] for kind in (KeyKind.LETTER, KeyKind.WORD_END, KeyKind.NEWLINE, KeyKind.ACCEPT)) < 0.82
    )
    assert 0.08 < shares[KeyKind.BACKSPACE] < 0.11
    assert 0.01 < shares[KeyKind.DELETE] < 0.03
    assert 0.07 < shares[KeyKind.MOVE] < 0.11
    assert 0.02 < shares[KeyKind.JUMP] < 0.05
    assert 0.02 < shares[KeyKind.ACCEPT] < 0.05


def test_most_keys_have_text_after_the_cursor_in_the_same_document() -> None:
    moments = list(_draw().iter_moments())

    assert sum(moment.suffix.strip() != "" for moment in moments) > 0.9 * len(moments)


def test_typed_characters_are_a_fifth_of_a_second_to_a_quarter_apart() -> None:
    gaps = [key.gap_s for key in _draw(num_keys=20_000).keys if key.kind in (KeyKind.LETTER, KeyKind.WORD_END)]

    assert 0.2 < sum(gaps) / len(gaps) < 0.26
    assert min(gaps) > 0
