"""What of the text is sent."""

import itertools

from hypothesis import example, given
from hypothesis import strategies as st
from lsprotocol.types import Position, PositionEncodingKind, TextDocumentItem

from lsp_server.context import Context, cut_context
from lsp_server.documents import Document
from lsp_server.settings import Settings

_SMALL = Settings(max_prefix_bytes=256, max_suffix_bytes=64)


def open_document(text: str) -> Document:
    return Document(TextDocumentItem("file:///a.py", "python", 0, text), PositionEncodingKind.Utf16)


@example("a😀", 0, 2, 0)
@given(st.text("ab\r\né漢😀\ud83d", max_size=400), st.integers(0, 60), st.integers(0, 30), st.integers(0, 60))
def test_it_is_the_text_around_the_cursor_within_its_bounds(text: str, line: int, character: int, anchor: int) -> None:
    document = open_document(text)
    document.anchor_line = anchor
    context = cut_context(document, Position(line, character), _SMALL)
    assert len(context.prefix.encode()) <= _SMALL.max_prefix_bytes
    assert len(context.suffix.encode()) <= _SMALL.max_suffix_bytes
    clean = text.replace("\r\n", "\n").replace("\r", "\n")
    clean = clean.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert context.prefix + context.suffix in clean


def test_a_small_document_is_sent_whole() -> None:
    assert cut_context(open_document("a\r\nbc\rd"), Position(1, 1), _SMALL) == Context("a\nb", "c\nd")


def test_a_cursor_between_the_halves_of_a_pair_stands_before_it() -> None:
    assert cut_context(open_document("a😀b"), Position(0, 2), _SMALL) == Context("a", "😀b")


def test_it_starts_and_ends_at_line_ends() -> None:
    document = open_document("0123456789\n" * 100)
    context = cut_context(document, Position(50, 5), _SMALL)
    assert context.prefix.startswith("0123456789\n")
    assert context.suffix.endswith("0123456789\n")


def test_the_start_stays_while_lines_are_typed_and_moves_in_big_blocks() -> None:
    num_lines = 1000
    document = open_document("0123456789\n" * num_lines)
    starts = []
    for line in range(100, num_lines):
        cut_context(document, Position(line, 0), _SMALL)
        starts.append(document.anchor_line)
    num_moves = sum(start != after for start, after in itertools.pairwise(starts))
    assert num_moves <= len(starts) / (256 // 4 // len("0123456789\n"))


def test_after_a_jump_the_window_is_filled_again() -> None:
    document = open_document("0123456789\n" * 1000)
    for line in (900, 100, 500):
        context = cut_context(document, Position(line, 0), _SMALL)
        assert len(context.prefix) >= _SMALL.max_prefix_bytes / 2


def test_a_line_longer_than_the_window_is_cut_at_steady_places() -> None:
    text = "".join(chr(ord("a") + number % 26) for number in range(3000))
    starts = set()
    for character in range(2000, 2064):
        prefix = cut_context(open_document(text), Position(0, character), _SMALL).prefix
        starts.add(character - len(prefix))
    assert len(starts) <= 2


def test_the_cursor_line_is_split_at_the_cursor() -> None:
    context = Context("a\nbc", "d\ne")
    assert (context.line_before, context.line_after) == ("bc", "d")
