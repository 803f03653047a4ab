from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from benchmarks.baselines.contestants.kept_tokens import KeptTokens, count_common

_TOKENIZER = Tokenizer.from_file(str(Path("models/default/tokenizer.json")))
_PIECES = st.sampled_from(["\n", "\r", "\r\n", "  ", "\t", " ", ":", "):", "it's", "foo", "é", "\u2028", "\x0b", "''"])


def _encode(text: str) -> list[int]:
    return list(_TOKENIZER.encode(text).ids)


@settings(max_examples=1000)
@given(st.lists(st.tuples(st.integers(0, 5), st.lists(_PIECES, max_size=8).map("".join)), max_size=8))
@example([(0, ""), (0, "\n")])  # a second line break becomes one token with the first
@example([(0, ":\n\n"), (3, "\n:")])  # the line before the kept end is longer now
def test_kept_ids_are_those_of_the_whole_text(edits: list[tuple[int, str]]) -> None:
    kept, text = KeptTokens(_encode), "def f():\n    x = 1\n"
    for num_deleted, typed in edits:
        text = text[: max(len(text) - num_deleted, 0)] + typed

        assert kept.encode(text) == _encode(text)


def test_only_the_last_line_is_tokenized_again() -> None:
    asked: list[str] = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return _encode(text)

    kept = KeptTokens(encode)
    kept.encode("a = 1\nb = 2\nc")
    asked.clear()

    kept.encode("a = 1\nb = 2\nc = d")

    assert asked == ["c = d"]


def test_common_ids_end_at_the_first_difference() -> None:
    assert [count_common([1, 2, 3], other) for other in ([1, 2, 4], [1, 2], [1, 2, 3, 4], [], [5])] == [2, 2, 3, 0, 0]
