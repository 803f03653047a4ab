"""Text to token ids, one pre-token at a time, in the same way as the model's tokenizer.

The pre-tokenizer and the merges are called directly, for three reasons: this gives the boundaries
between pre-tokens, it can encode the beginning of a pre-token by itself, and text that looks like a
control token remains text.
"""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, takewhile
from typing import Any, NamedTuple, TypeVar

from tokenizers import Tokenizer

from inference.errors import InvalidRequestError, ModelError
from inference.healing.tokenizer_file import TokenizerFile, refusing_panics
from inference.healing.vocabulary_file import BYTE_LEVEL_ALPHABET, AddedToken

# Longer pre-tokens seldom recur, so they are not cached. A full cache takes about 5 MB; at most 90 MB, if each
# pre-token has 128 bytes and each byte is a token.
_MAX_CACHED_BYTES = 128
_MAX_CACHED_PRE_TOKENS = 16_384

_SAMPLE = "a é\n"  # every byte-level tokenizer writes it with the same characters
_REPLACEMENTS = "\ufffd ?"  # for a character that no tokens spell: the first of these that some do
_JAMO = range(0x1160, 0x1200)  # Hangul vowels and final consonants, which join the character before them


class PreToken(NamedTuple):  # a thousand per keystroke; takes a third of the time of a frozen dataclass
    """A run of text that the tokenizer merges by itself, as UTF-8. `end` counts bytes from the start of the text.

    Some tokenizers split inside a character (Falcon: digits are separated after `¼` has become two bytes, one of which
    counts as a digit).
    """

    data: bytes
    end: int


class AddedTexts:
    """Added tokens that are ordinary text: a tokenizer finds them before it splits the rest into pre-tokens.

    At each position the longest one is found. A text may end with the beginning of one: `foo <ta` before `ble>`. Then
    no token boundary after the beginning is certain.
    """

    def __init__(self, groups: Sequence[Sequence[AddedToken]]) -> None:
        """`groups`: first those that are found first; the others are found in what remains."""
        contents = [[token.content for token in group] for group in groups]
        self._patterns = [_build_pattern(group) for group in contents]
        self.contents = frozenset(content for group in contents for content in group)
        self.ids = {token.content.encode(): token.token_id for group in groups for token in group}
        self._beginnings = {content[:end] for group in contents for content in group for end in range(1, len(content))}
        self._max_chars = max([len(content) for group in contents for content in group], default=0)

    def split(self, text: str) -> list[str]:
        """The added texts and what is between them, in order; joined, they are the text."""
        pieces = [text]
        for pattern in self._patterns:
            parts = [[piece] if piece in self.contents else pattern.split(piece) for piece in pieces]
            pieces = [part for each in parts for part in each if part]
        return pieces

    def find_openings(self, text: str) -> list[int]:
        """Where an added token that extends past the end of `text` may begin, in characters before the end.

        The end itself is one of these places, unless there are no added tokens.
        """
        if not self.ids:
            return []
        lengths = range(1, min(self._max_chars, len(text) + 1))
        hidden = self._find_hidden(text)
        return [0, *(length for length in lengths if text[-length:] in self._beginnings and length not in hidden)]

    def _find_hidden(self, text: str) -> set[int]:
        """The positions inside added texts, where none can begin: whatever follows, the one around them is found first.

        Not if there are two groups, because an added text of the first one may then begin inside one of the second.
        """
        hidden: set[int] = set()
        num_chars_after = 0
        for piece in reversed(self.split(text) if len(self._patterns) == 1 else []):
            if num_chars_after >= self._max_chars:
                break
            if piece in self.contents:
                hidden.update(range(num_chars_after + 1, num_chars_after + len(piece)))
            num_chars_after += len(piece)
        return hidden


def _build_refusal(text: str, at: int, name: str) -> InvalidRequestError:
    byte = ord(text[at]) - 0xDC00  # if it is a lone one
    shown = f"the byte 0x{byte:02X}" if 0x80 <= byte <= 0xFF else f"U+{ord(text[at]):04X}"
    return InvalidRequestError(
        f"the model's vocabulary cannot spell {shown}, character {len(text) - at} from the end of the {name}"
    )


def _build_pattern(contents: list[str]) -> re.Pattern[str]:
    """Matches the longest of the contents that begins at a position."""
    return re.compile(f"({'|'.join(map(re.escape, sorted(contents, key=len, reverse=True)))})")


class TextEncoder(ABC):
    """Splits text into pre-tokens and encodes each. The ids of a text are the concatenated ids of its pre-tokens."""

    def __init__(self, added: Sequence[Sequence[AddedToken]] = (), start_ids: tuple[int, ...] = ()) -> None:
        """`added`: the groups of added texts."""
        self.start_ids = start_ids  # special tokens that begin every text
        self._unspelled = b""  # the bytes that have no token
        self.encode = cache_short(self._encode, _MAX_CACHED_PRE_TOKENS)  # pre-token -> the ids of one whole pre-token
        self._added_texts = AddedTexts(added)
        self.find_openings = self._added_texts.find_openings

    def normalize(self, text: str) -> str:
        """The text as the tokenizer normalizes it, e.g. in NFC. The ids are those of the normalized text."""
        return text

    def count_unsettled(self, text: str) -> int:  # noqa: ARG002  # without a normalizer, all is settled
        """How many characters at the end of the text a normalizer may change if more text follows."""
        return 0

    def find_unspelled(self, text: str) -> list[int]:
        """The indices of the characters that no tokens spell, which `encode` refuses; most vocabularies spell all.

        A byte that is not UTF-8 is a lone surrogate, as `surrogateescape` has it.
        """
        data = text.encode(errors="surrogateescape") if self._unspelled else b""
        if len(data.translate(None, self._unspelled)) == len(data):
            return []
        found: list[int] = []
        start = 0
        for piece in self._added_texts.split(text):
            if piece not in self._added_texts.contents:
                found += [at for at, character in enumerate(piece, start) if not self._spells(character)]
            start += len(piece)
        return found

    def replace_unspelled(self, text: str) -> str:
        """The text with U+FFFD, or a blank, for each character that no tokens spell."""
        characters = list(text) if (found := self.find_unspelled(text)) else [text]
        for at in found:
            characters[at] = next(filter(self._spells, _REPLACEMENTS), "")
        return "".join(characters)

    def check_end(self, text: str, num_bytes: int, name: str) -> None:
        """Raises InvalidRequestError if no tokens spell the last `num_bytes` of the text. `name`: what the text is."""
        found = self.find_unspelled(text)
        if found and len(text[found[-1] + 1 :].encode(errors="surrogateescape")) < num_bytes:
            raise _build_refusal(text, found[-1], name)

    def _check_bytes(self, data: bytes) -> None:
        """Raises InvalidRequestError if one of the bytes of a pre-token has no token."""
        if data.translate(None, self._unspelled) != data:
            text = data.decode(errors="surrogateescape")
            lacking = [at for at, each in enumerate(text) if not TextEncoder._spells(self, each)]
            raise _build_refusal(text, lacking[-1], "text")

    def _spells(self, character: str) -> bool:
        """True if there are tokens for the character, which is no added text."""
        return not set(character.encode(errors="surrogateescape")).intersection(self._unspelled)

    def find_dummy_prefix(self, text: str) -> str:  # noqa: ARG002  # most tokenizers add none
        """The blank that the tokenizer puts before the text, or an empty string."""
        return ""

    def split(self, text: str) -> list[PreToken]:
        """The pre-tokens of the text, in order. Concatenated, they are the text."""
        pre_tokens: list[PreToken] = []
        for piece in self._added_texts.split(text):
            start = pre_tokens[-1].end if pre_tokens else 0
            data = piece.encode()
            if self.is_added_text(data):
                pre_tokens.append(PreToken(data, start + len(data)))
            else:
                pre_tokens += self._split_plain(piece, start)
        return pre_tokens

    def is_added_text(self, pre_token: bytes) -> bool:
        """True for an added token that is ordinary text. It is one token, and found before all other pre-tokens."""
        return pre_token in self._added_texts.ids

    def _encode(self, pre_token: bytes) -> tuple[int, ...]:
        added_id = self._added_texts.ids.get(pre_token)
        return self._encode_whole(pre_token) if added_id is None else (added_id,)

    def _encode_whole(self, pre_token: bytes) -> tuple[int, ...]:
        """The ids of a pre-token that is no added text."""
        return self.encode_beginning(pre_token)

    @abstractmethod
    def _split_plain(self, text: str, start: int) -> list[PreToken]:
        """The pre-tokens of text between added texts; `start`: the number of bytes before it."""

    @abstractmethod
    def encode_beginning(self, beginning: bytes) -> tuple[int, ...]:
        """The ids of the first bytes of a longer pre-token, if a token ends after these bytes.

        Some tokenizers look up a whole pre-token in the vocabulary before they merge (`ignore_merges`, as in
        Llama 3). There the ids differ from those of a whole pre-token with the same bytes.
        """


class ByteLevelEncoder(TextEncoder):
    """Byte-level BPE after a pre-tokenizer, as in GPT-2, Qwen, StarCoder, DeepSeek, Falcon and Llama 3."""

    def __init__(self, file: TokenizerFile) -> None:
        """Raises ModelError if the pre-tokenizer does not write all bytes."""
        super().__init__(file.added_texts, file.find_start_ids())
        assert file.pre_tokenizer is not None, "byte-level BPE without a ByteLevel step is refused"
        shown = [piece for piece, _ in file.pre_tokenizer.pre_tokenize_str(_SAMPLE)]
        if "".join(shown) != _to_alphabet(_SAMPLE.encode()):
            raise ModelError(f"pre_tokenizer makes {shown} of {_SAMPLE!r}, which is not all of the text")
        self._file = file
        self._pre_tokenizer = file.pre_tokenizer
        self._byte_ids = _find_byte_ids(file)
        self._unspelled = bytes(set(range(256)) - self._byte_ids.keys())
        self._whole = file.tokenizer.model
        self._merged = _without_lookup(file.tokenizer) if self._whole.ignore_merges else self._whole
        self._adds_blank = file.tokenizer.encode("a", add_special_tokens=False).tokens[0].startswith(_to_alphabet(b" "))

    @refusing_panics
    def normalize(self, text: str) -> str:
        return text if self._file.normalizer is None or text.isascii() else self._file.normalizer.normalize_str(text)

    def count_unsettled(self, text: str) -> int:
        """NFC may still compose the last base and its marks with what follows."""
        marks = takewhile(lambda each: unicodedata.category(each)[0] == "M" or ord(each) in _JAMO, reversed(text))
        return 0 if self._file.normalizer is None else min(sum(1 for _ in marks) + 1, len(text))

    def find_dummy_prefix(self, text: str) -> str:
        return " " if self._adds_blank and not text.startswith(" ") else ""

    @refusing_panics
    def _split_plain(self, text: str, start: int) -> list[PreToken]:
        """The pre-tokenizer shows each with one character for each byte. A splitter shows them as they are, in half the
        time. Offsets are not used: they cannot point inside a character.
        """
        data, splitter = text.encode(), self._file.splitter
        pieces = (self._pre_tokenizer if splitter is None else splitter).pre_tokenize_str(text)
        sizes = [len(shown if splitter is None else shown.encode()) for shown, _ in pieces]
        return [
            PreToken(data[end - size : end], start + end) for size, end in zip(sizes, accumulate(sizes), strict=True)
        ]

    def _encode_whole(self, pre_token: bytes) -> tuple[int, ...]:
        return self._tokenize(self._whole, pre_token)

    def encode_beginning(self, beginning: bytes) -> tuple[int, ...]:
        return self._tokenize(self._merged, beginning)

    @refusing_panics
    def _tokenize(self, model: Any, data: bytes) -> tuple[int, ...]:  # tokenizers has no type for its models
        """The ids; or if one is a control token, which the text only looks like, the bytes one by one.

        Raises InvalidRequestError for a byte without a token, which the library would drop.
        """
        self._check_bytes(data)
        ids = tuple([token.id for token in model.tokenize(_to_alphabet(data))])
        return ids if self._file.control_ids.isdisjoint(ids) else tuple([self._byte_ids[byte] for byte in data])


_Found = TypeVar("_Found")


def cache_short(find: Callable[[bytes], _Found], max_cached: int) -> Callable[[bytes], _Found]:
    """The same function, with a cache of its results for short texts."""
    find_cached = lru_cache(max_cached)(find)
    return lambda data: (find_cached if len(data) <= _MAX_CACHED_BYTES else find)(data)


def _find_byte_ids(file: TokenizerFile) -> dict[int, int]:
    """The tokens of the bytes that have one. What a vocabulary was trained on may not have all of them."""
    found = {byte: file.spec["model"]["vocab"].get(shown) for byte, shown in enumerate(BYTE_LEVEL_ALPHABET)}
    return {byte: token_id for byte, token_id in found.items() if token_id not in (None, *file.control_ids)}


def _without_lookup(tokenizer: Tokenizer) -> Any:  # tokenizers has no type for its models
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.model.ignore_merges = False
    return copy.model


def _to_alphabet(data: bytes) -> str:
    return "".join([BYTE_LEVEL_ALPHABET[byte] for byte in data])
