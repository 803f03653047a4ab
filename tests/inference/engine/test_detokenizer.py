from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from inference.engine.candidate import Detokenizer
from tests.support.toys import texts


@st.composite
def _cut_bytes(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    """Draws a text, and its bytes cut into pieces anywhere."""
    text = draw(texts)
    data = text.encode()
    ends = sorted({0, len(data), *draw(st.lists(st.integers(0, len(data)), max_size=8))})
    return text, [data[start:end] for start, end in pairwise(ends)]


@given(cut=_cut_bytes())
def test_pieces_joined_are_the_text(cut: tuple[str, list[bytes]]) -> None:
    detokenizer = Detokenizer(0)

    assert "".join(detokenizer.add(piece) for piece in cut[1]) == cut[0]


@given(cut=_cut_bytes())
def test_no_piece_ends_in_half_a_code_point(cut: tuple[str, list[bytes]]) -> None:
    detokenizer = Detokenizer(0)
    said, given_bytes = "", b""
    for piece in cut[1]:
        said += detokenizer.add(piece)
        given_bytes += piece

        assert said == given_bytes.decode(errors="ignore")


@given(cut=_cut_bytes(), num_healed=st.integers(0, 20))
def test_the_healed_bytes_are_dropped_and_no_others(cut: tuple[str, list[bytes]], num_healed: int) -> None:
    healed = ("x" * num_healed).encode()
    detokenizer = Detokenizer(len(healed))
    pieces = [healed + cut[1][0], *cut[1][1:]] if cut[1] else [healed]

    assert "".join(detokenizer.add(piece) for piece in pieces) == cut[0]


def test_healed_bytes_can_arrive_in_pieces() -> None:
    detokenizer = Detokenizer(5)

    assert [detokenizer.add(piece) for piece in (b"ab", b"c", b"de!")] == ["", "", "!"]


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert Detokenizer(0).add(b"a\xffb") == "a�b"
