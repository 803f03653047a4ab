"""The open tail of a text: its end, which may be split into pre-tokens in several ways, depending on what follows."""

from dataclasses import dataclass
from itertools import takewhile

from inference.healing.text_encoder import PreToken, TextEncoder

# The continuations to try, one for each branch of the known pre-tokenizers' patterns: letters in
# both cases, blank and letter, digits up to a group of three, line ends with and without
# indentation, quotes, contractions and the letters that complete one ("'" and "s", "'l" and "l", "'r"
# and "e"), punctuation, wide characters and their punctuation, a combining mark, an emoji and its joiner.
_PROBES = (
    "a", "A", "aA", "Aa", " a", " A", "  a", "1", "12", "123", " 1", "\n", "\n\n", "\n a", "\r\n", " \n", "\t", "\ta",
    " ", "  ", "'", "'s", "'ll a", "s", "l", "e", '"', ".", "=", "(", " (", "_a", "/", "//", "é", "中", "。", " 中",
    "\u0301", "😀", "\u200d", "\xa0",
)  # fmt: skip
_NUM_TAIL_PRE_TOKENS = 3  # a contraction joins three ("it", "'", "s"); where more can change, the tail grows
_TAIL_GROWTH = 4


@dataclass(frozen=True, slots=True)
class OpenTail:
    """The end of a text, and how it may be split. All offsets are in bytes from its start."""

    start: int  # in the whole text
    data: bytes
    boundary_sets: frozenset[tuple[int, ...]]
    added_text_sets: frozenset[tuple[int, ...]]
    shared: tuple[int, ...]  # the boundaries that all these sets begin with


def find_open_tail(
    encoder: TextEncoder, text: str, whole: list[PreToken], is_beginning: bool = True
) -> OpenTail | None:
    """The shortest tail that decides the heal point.

    It is settled if all continuations share a boundary inside it, and if it is split in the same way as in the whole
    text, so that nothing before it matters. None if that would take more than the text, which is no beginning.
    """
    data = text.encode()
    openings = encoder.find_openings(text)
    num_pre_tokens = _NUM_TAIL_PRE_TOKENS
    while True:
        anchor = _find_anchor(whole, num_pre_tokens, data)
        if not anchor and not is_beginning:
            return None
        start = whole[anchor - 1].end if anchor else 0
        tail_text = data[start:].decode()
        if not anchor or max(openings, default=0) <= len(tail_text):
            tail = _split_tail(encoder, tail_text, start, openings)
            ends = [start + piece.end for piece in encoder.split(tail_text)]
            if not anchor or (tail.shared and ends == [piece.end for piece in whole[anchor:]]):
                return tail
        num_pre_tokens *= _TAIL_GROWTH


def _find_anchor(pre_tokens: list[PreToken], num_pre_tokens: int, data: bytes) -> int:
    """How many of the first pre-tokens are before the tail, which has about `num_pre_tokens` and begins a character."""
    anchor = _skip_blanks(pre_tokens, len(pre_tokens))
    anchor = _skip_blanks(pre_tokens, max(anchor - num_pre_tokens, 0))
    while anchor and data[pre_tokens[anchor - 1].end] & 0xC0 == 0x80:
        anchor -= 1
    return anchor


def _skip_blanks(pre_tokens: list[PreToken], anchor: int) -> int:
    while anchor and pre_tokens[anchor - 1].data.decode(errors="replace").isspace():
        anchor -= 1
    return anchor


def _split_tail(encoder: TextEncoder, text: str, start: int, openings: list[int]) -> OpenTail:
    boundary_sets: set[tuple[int, ...]] = set()
    added_text_sets: set[tuple[int, ...]] = set()
    num_bytes = len(text.encode())
    for probe in _PROBES:
        ends, open_pre_token = _find_complete_ends(encoder.split(text + probe), num_bytes)
        is_added_text = bool(openings) and open_pre_token is not None and encoder.is_added_text(open_pre_token)
        (added_text_sets if is_added_text else boundary_sets).add(ends)
    for num_chars in openings:
        added_text_sets.add(tuple([piece.end for piece in encoder.split(text[: len(text) - num_chars])]))
    sets = boundary_sets | added_text_sets
    return OpenTail(start, text.encode(), frozenset(boundary_sets), frozenset(added_text_sets), _find_shared(sets))


def _find_complete_ends(pre_tokens: list[PreToken], num_bytes: int) -> tuple[tuple[int, ...], bytes | None]:
    """The ends of the pre-tokens in the first `num_bytes`, and the one that goes beyond them if it begins before."""
    ends = tuple([piece.end for piece in pre_tokens if piece.end <= num_bytes])
    is_open = bool(num_bytes) and (not ends or ends[-1] < num_bytes)
    return ends, pre_tokens[len(ends)].data if is_open else None


def _find_shared(boundary_sets: set[tuple[int, ...]]) -> tuple[int, ...]:
    """The longest common beginning of all boundary sets, which is that of the smallest and the greatest one."""
    pairs = zip(min(boundary_sets), max(boundary_sets), strict=False)
    return tuple([end for end, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)])
