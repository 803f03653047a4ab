"""Judges the heal point and the covering of a text, by what the `tokenizers` library makes of the finished text.

The library encodes the whole text. What the product keeps of its beginning, and the covering of the rest, must be parts
of that. Two differences are right: control tokens in a text stay text, so no text with one is judged; and a text that
is not in Unicode's composed form may be kept and healed in that form.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from inference.healing.covering import build_covering
from inference.healing.heal_point import find_heal_point
from inference.healing.loaded_tokenizer import LoadedTokenizer, load_tokenizer

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

    def spells(self, spelled: bytes, text: str) -> bool:
        """True if the bytes are the text, or a blank and the text, in the form that the tokenizer gives it."""
        if spelled in (text.encode(), b" " + text.encode()):
            return True
        form = self.compose(spelled.decode(errors="replace"))
        return form in (self.compose(text), " " + self.compose(text))

    def compose(self, text: str) -> str:
        """The text in Unicode's composed form (NFC), if the tokenizer's normalizer gives it that form."""
        normalizer = self.oracle.normalizer
        composes = normalizer is not None and normalizer.normalize_str("e\u0301").endswith("é")
        return unicodedata.normalize("NFC", text) if composes else text

    def join(self, ids: Sequence[int]) -> bytes:
        """The joined bytes of the tokens."""
        return b"".join([self.loaded.vocabulary.token_bytes[token_id] for token_id in ids])


@dataclass(frozen=True, slots=True)
class Healed:
    """What the product makes of a text before the cursor."""

    kept_ids: tuple[int, ...]
    healed: bytes  # the text after the kept tokens
    crossings: tuple[tuple[tuple[int, ...], bytes], ...]  # the path after the kept tokens, and the remaining bytes


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
    if subject.spells(spelled, text):
        return None
    return f"the tokens of a text spell {spelled[-_SHOWN:]!r}, not {text.encode()[-_SHOWN:]!r}"


def heal(subject: Subject, typed: str) -> Healed:
    """What the product makes of a text before the cursor."""
    encoder, trie = subject.loaded.encoder, subject.loaded.trie
    point = find_heal_point(encoder, typed)
    covering = build_covering(encoder, trie, point)
    tree = covering.build_tree((0,))
    paths = [tree.find_path(crossing.node) for crossing in covering.crossings]
    common_ids: tuple[int, ...] = covering.common_ids
    return Healed(
        kept_ids=point.kept_ids + common_ids,
        healed=point.healed[len(subject.join(common_ids)) :],
        crossings=tuple(
            (tuple([tree.branch_ids[branch] for branch in path]), crossing.remaining_bytes)
            for path, crossing in zip(paths, covering.crossings, strict=True)
        ),
    )


def find_cut_defect(subject: Subject, healed: Healed, typed: str, text: str, ids: tuple[int, ...]) -> str | None:
    """What is wrong with what the product made of `typed`, the beginning of `text`; None if nothing is.

    `ids`: the tokens of the whole text, by the `tokenizers` library.
    """
    if ids[: len(healed.kept_ids)] != healed.kept_ids:
        return "the kept tokens are not the first tokens of the finished text"
    begun = subject.join(healed.kept_ids) + healed.healed
    if not subject.spells(begun, typed):
        return f"the kept tokens and the healed bytes spell {begun[-_SHOWN:]!r}"
    if not subject.join(ids).startswith(begun):
        joins = not subject.compose(text).startswith(subject.compose(typed))  # "e", the cursor, a combining accent
        return None if joins else "the kept and healed bytes do not begin the finished text"
    following = ids[len(healed.kept_ids) :]
    num_crossings = sum(_crosses(subject, healed, crossing, following) for crossing in healed.crossings)
    return None if num_crossings == 1 else f"the finished text takes {num_crossings} crossings of the covering tree"


def _crosses(
    subject: Subject, healed: Healed, crossing: tuple[tuple[int, ...], bytes], following: tuple[int, ...]
) -> bool:
    """True if the tokens after the kept ones are the crossing's path, and one that spells the rest and more."""
    path, remaining = crossing
    if following[: len(path)] != path or subject.join(path) + remaining != healed.healed:
        return False
    token = subject.join(following[len(path) : len(path) + 1])
    return token.startswith(remaining) and len(token) > len(remaining)
