"""Judges the heal point and the covering of a text, by what the `tokenizers` library makes of the finished text.

The library encodes the whole text. What the product keeps of its beginning, and the covering of the rest, must be parts
of that. Two differences are right: control tokens in a text stay text, so no text with one is judged; and a text that
is not in Unicode's composed form may be kept and healed in that form.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from inference.healing.covering import Crossing, build_covering
from inference.healing.heal_point import HealPoint
from inference.healing.tokenizer import LoadedTokenizer, load_tokenizer

_SHOWN = 24

# An added token that the file does not mark as special may be a control token all the same. Tags of HTML are text.
_CONTROL = re.compile(r"<.*>|\[.*\]|\].*\[|</?\w+:|.*[|｜].*|/\w+", re.DOTALL)
_TAG = re.compile(
    r"</?(?:table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|strong|em|[biusa]|sub|sup|code"
    r"|html|body|img|span|ul|li|div|iframe|footer)>"
)


@dataclass(frozen=True, slots=True)
class Subject:
    """One tokenizer, as the product loads it, and as the `tokenizers` library does."""

    loaded: LoadedTokenizer
    oracle: Tokenizer

    def join(self, ids: Sequence[int]) -> bytes:
        """The joined bytes of the tokens."""
        return b"".join([self.loaded.vocabulary.token_bytes[token_id] for token_id in ids])


def load_subject(folder: Path) -> Subject:
    """Loads the folder's tokenizer as for a model. Raises ModelError if it is refused."""
    loaded = load_tokenizer(folder)
    oracle = Tokenizer.from_file(str(folder / "tokenizer.json"))
    oracle.no_truncation()  # truncation and padding are for training
    oracle.no_padding()
    return Subject(loaded, oracle)


def find_control_texts(oracle: Tokenizer) -> list[str]:
    """The added tokens that are control tokens, or may be. A text with one of them cannot be judged."""
    return [
        token.content
        for token in oracle.get_added_tokens_decoder().values()
        if not is_text(token.content, token.special)
    ]


def find_added_texts(oracle: Tokenizer) -> list[str]:
    """The added tokens that are ordinary text, such as runs of blanks."""
    tokens = oracle.get_added_tokens_decoder().values()
    return [token.content.replace("▁", " ") for token in tokens if is_text(token.content, token.special)]


def is_text(content: str, special: bool) -> bool:
    """True if an added token is ordinary text."""
    may_be_control = _CONTROL.fullmatch(content) and not _TAG.fullmatch(content)
    return not special and not may_be_control


def find_start_defect(subject: Subject) -> str | None:
    """What is wrong with the tokens that every text begins with; None if nothing is."""
    encoding = subject.oracle.encode("a")
    expected = tuple(encoding.ids[: encoding.special_tokens_mask.index(0)])
    if expected and subject.loaded.start_ids != expected:
        return f"texts begin with the tokens {expected}, not {subject.loaded.start_ids}"
    return None


def find_text_defect(subject: Subject, text: str, ids: Sequence[int]) -> str | None:
    """What is wrong with the bytes of a text's tokens; None if nothing is."""
    spelled = subject.join(ids)
    if _spells(spelled, text):
        return None
    return f"the tokens of a text spell {spelled[-_SHOWN:]!r}, not {text.encode()[-_SHOWN:]!r}"


def find_cut_defect(subject: Subject, point: HealPoint, typed: str, text: str, ids: tuple[int, ...]) -> str | None:
    """What is wrong with the heal point and the covering of `typed`, the beginning of `text`; None if nothing is.

    `ids`: the tokens of the whole text, by the `tokenizers` library.
    """
    if ids[: len(point.kept_ids)] != point.kept_ids:
        return "the kept tokens are not the first tokens of the finished text"
    begun = subject.join(point.kept_ids) + point.healed
    if not _spells(begun, typed):
        return f"the kept tokens and the healed bytes spell {begun[-_SHOWN:]!r}"
    if not subject.join(ids).startswith(begun):
        return None if _joins(typed, text) else "the kept and healed bytes do not begin the finished text"
    num_crossings = sum(_iter_crossed(subject, point, ids))
    return None if num_crossings == 1 else f"the finished text takes {num_crossings} crossings of the covering tree"


def _spells(spelled: bytes, text: str) -> bool:
    """True if the bytes are the text, a blank and the text, or canonically equivalent to one of them."""
    if spelled in (text.encode(), b" " + text.encode()):
        return True
    composed, expected = _compose(spelled.decode(errors="replace")), _compose(text)
    return composed in (expected, " " + expected)


def _joins(typed: str, text: str) -> bool:
    """True if the cursor is inside what the composed form joins: "e" and a combining accent."""
    return not _compose(text).startswith(_compose(typed))


def _compose(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _iter_crossed(subject: Subject, point: HealPoint, ids: tuple[int, ...]) -> Iterator[bool]:
    """For each crossing of the covering tree: whether the finished text's tokens take it."""
    covering = build_covering(subject.loaded.encoder, subject.loaded.trie, point)
    tree = covering.build_tree((0,))
    for crossing in covering.crossings:
        path = tuple([tree.branch_ids[branch] for branch in tree.find_path(crossing.node)])
        following = ids[len(point.kept_ids) :]
        if following[: len(path)] == path and subject.join(path) + crossing.remaining_bytes == point.healed:
            yield _crosses(subject, crossing, following[len(path) :])


def _crosses(subject: Subject, crossing: Crossing, following: tuple[int, ...]) -> bool:
    """True if the next token spells the remaining bytes and more."""
    token = subject.join(following[:1])
    remaining = crossing.remaining_bytes
    return token.startswith(remaining) and len(token) > len(remaining)
