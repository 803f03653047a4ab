from collections import Counter

import pytest

from benchmarks.corpora.typing import KeyKind, Session
from benchmarks.corpora.typist import SizedFile, draw_session

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
    SizedFile(_CODE * 40, 3_000),
    SizedFile("# b\n" + _CODE * 4, 300),
    SizedFile(_CODE * 4, 300),
]


def _draw(seed: int = 1, num_keys: int = 3_000) -> Session:
    return draw_session(_FILES, num_keys, seed)


@pytest.mark.parametrize("seed", range(2))
def test_the_keys_turn_each_document_into_its_file(seed: int) -> None:
    session = _draw(seed)

    texts = {moment.key.document: moment.text for moment in session.iter_moments()}

    assert [texts[index] for index in range(3)] == [file.text for file in _FILES]
    assert all(len(text) < len(file.text) for text, file in zip(session.documents, _FILES, strict=True))


def test_the_first_edit_after_a_jump_and_the_one_after_an_acceptance_are_first() -> None:
    is_next_first = False
    for key in _draw().keys:
        is_next_first = is_next_first or key.kind is KeyKind.JUMP
        assert key.is_first == (is_next_first and key.is_edit)
        is_next_first = key.kind is KeyKind.ACCEPT or (is_next_first and key.kind in (KeyKind.JUMP, KeyKind.MOVE))


def test_keys_are_of_all_kinds_in_the_stated_proportions() -> None:
    session = _draw(num_keys=10_000)
    counts = Counter(key.kind for key in session.keys)
    shares = {kind: counts[kind] / len(session.keys) for kind in KeyKind}

    for kinds, low, high in (
        ((KeyKind.LETTER, KeyKind.WORD_END, KeyKind.NEWLINE, KeyKind.ACCEPT), 0.70, 0.82),
        ((KeyKind.BACKSPACE, KeyKind.DELETE), 0.09, 0.14),
        ((KeyKind.MOVE,), 0.07, 0.11),
        ((KeyKind.JUMP,), 0.02, 0.05),
        ((KeyKind.ACCEPT,), 0.02, 0.05),
    ):
        assert low < sum(shares[kind] for kind in kinds) < high, kinds
    gaps = [key.gap_s for key in session.keys if key.kind in (KeyKind.LETTER, KeyKind.WORD_END)]
    assert 0.2 < sum(gaps) / len(gaps) < 0.26
