"""Text to token ids, one pre-token at a time, in the same way as the model's tokenizer.

The pre-tokenizer and the merges are called directly, for three reasons: this gives the boundaries
between pre-tokens, it can encode the beginning of a pre-token by itself, and text that looks like a
control token remains text.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tokenizers import Tokenizer

from inference.errors import ModelError

_BLANK_MARK = "▁"  # SentencePiece's mark for a blank
_SAMPLE = "a é\n"  # every byte-level tokenizer writes it with the same characters

# Longer pre-tokens seldom recur, so they are not cached. A full cache takes about 5 MB; at most 90 MB, if each
# pre-token has 32 characters of four bytes and each byte is a token.
_MAX_CACHED_CHARS = 32
_MAX_CACHED_PRE_TOKENS = 16_384


class PreToken(NamedTuple):  # a thousand per keystroke; takes a third of the time of a frozen dataclass
    """A run of text that the tokenizer merges by itself. `end` counts characters from the start of the text."""

    text: str
    end: int


class TextEncoder(Protocol):
    """Splits text into pre-tokens and encodes each. The ids of a text are the concatenated ids of its pre-tokens."""

    start_ids: tuple[int, ...]  # special tokens that begin every text

    def find_dummy_prefix(self, text: str) -> str:
        """The blank that the tokenizer puts before the text, or an empty string."""
        ...

    def split(self, text: str) -> list[PreToken]:
        """The pre-tokens of the text, in order. Concatenated, they are the text."""
        ...

    def encode(self, pre_token: str) -> tuple[int, ...]:
        """The ids of one whole pre-token."""
        ...

    def encode_beginning(self, beginning: bytes) -> tuple[int, ...]:
        """The ids of the first bytes of a longer pre-token, if a token ends after these bytes.

        Some tokenizers look up a whole pre-token in the vocabulary before they merge (`ignore_merges`, as in
        Llama 3). There the ids differ from those of a whole pre-token with the same bytes.
        """
        ...


def load_text_encoder(model_dir: Path) -> TextEncoder:
    """The encoder for a folder's `tokenizer.json`. Raises ModelError if exact healing does not support it."""
    path = model_dir / "tokenizer.json"
    try:
        spec = json.loads(path.read_text(encoding="utf-8"))
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the tokenizers library raises bare Exception
        raise ModelError(f"cannot read {path}: {error}") from error
    kind = spec["model"].get("type")
    if kind != "BPE":
        raise ModelError(f"{path} is a {kind} tokenizer; midtoken supports byte-level BPE and BPE with byte fallback")
    if spec["model"].get("byte_fallback"):
        return SentencePieceEncoder(tokenizer)
    return ByteLevelEncoder(tokenizer)


class ByteLevelEncoder:
    """Byte-level BPE after a pre-tokenizer, as in GPT-2, Qwen, StarCoder, DeepSeek and Llama 3."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises ModelError if the tokenizer adds blanks or does not use GPT-2's alphabet."""
        pieces = [] if tokenizer.pre_tokenizer is None else tokenizer.pre_tokenizer.pre_tokenize_str(_SAMPLE)
        if "".join(piece for piece, _ in pieces) != _to_alphabet(_SAMPLE.encode()):
            raise ModelError("not plain byte-level BPE: the tokenizer uses another byte alphabet or adds blanks")
        self._pre_tokenizer = tokenizer.pre_tokenizer
        self._whole = tokenizer.model
        self._merged = _without_lookup(tokenizer) if tokenizer.model.ignore_merges else self._whole
        self.start_ids = _find_start_ids(tokenizer)
        self.encode = _cache_short(self._encode)

    def find_dummy_prefix(self, text: str) -> str:  # noqa: ARG002  # __init__ refuses tokenizers that add blanks
        return ""

    def split(self, text: str) -> list[PreToken]:
        return [PreToken(text[start:end], end) for _, (start, end) in self._pre_tokenizer.pre_tokenize_str(text)]

    def _encode(self, pre_token: str) -> tuple[int, ...]:
        return tuple(token.id for token in self._whole.tokenize(_to_alphabet(pre_token.encode())))

    def encode_beginning(self, beginning: bytes) -> tuple[int, ...]:
        return tuple(token.id for token in self._merged.tokenize(_to_alphabet(beginning)))


class SentencePieceEncoder:
    """BPE over characters with byte fallback and blanks written as U+2581, as in Llama 2 and CodeLlama.

    Such a tokenizer merges the whole text at once. If no token has a blank after another character, no
    merge crosses the start of a run of blanks, so the pre-tokens begin at these positions.
    A U+2581 in the text itself is encoded as byte tokens. The tokenizer would turn it into a blank, and
    the completion would not continue the typed text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises ModelError if a token joins a word to the blank after it, or a byte has no token."""
        vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        joined = next((token for token in vocabulary if _BLANK_MARK in token.lstrip(_BLANK_MARK)), None)
        if joined is not None:
            raise ModelError(f"the tokenizer joins words ({joined!r}), so every keystroke could change all tokens")
        self._model = tokenizer.model
        self._byte_ids = _find_byte_ids(vocabulary)
        self._splits_blanks = _splits_blanks(tokenizer)
        self._dummy_prefix = " " if _adds_blank(tokenizer, "a") else ""
        self._dummy_prefix_before_blank = " " if _adds_blank(tokenizer, " a") else ""
        self.start_ids = _find_start_ids(tokenizer)
        self.encode = _cache_short(self._encode)

    def find_dummy_prefix(self, text: str) -> str:
        return self._dummy_prefix_before_blank if text.startswith(" ") else self._dummy_prefix

    def split(self, text: str) -> list[PreToken]:
        ends = [
            index
            for index in range(1, len(text))
            if text[index] == " " and (self._splits_blanks or text[index - 1] != " ")
        ]
        starts = [0, *ends]
        return [PreToken(text[start:end], end) for start, end in zip(starts, [*ends, len(text)], strict=True) if text]

    def _encode(self, pre_token: str) -> tuple[int, ...]:
        first, *others = pre_token.split(_BLANK_MARK)
        ids = self._merge(first)
        for part in others:
            ids += self._spell(_BLANK_MARK.encode()) + self._merge(part)
        return tuple(ids)

    def encode_beginning(self, beginning: bytes) -> tuple[int, ...]:
        whole = beginning.decode(errors="ignore")  # without an incomplete character at the end
        return (*self.encode(whole), *self._spell(beginning[len(whole.encode()) :]))

    def _merge(self, text: str) -> list[int]:
        return [token.id for token in self._model.tokenize(text.replace(" ", _BLANK_MARK))] if text else []

    def _spell(self, data: bytes) -> list[int]:
        return [self._byte_ids[byte] for byte in data]


def _cache_short(encode: Callable[[str], tuple[int, ...]]) -> Callable[[str], tuple[int, ...]]:
    """The same function, with a cache of its results for short pre-tokens."""
    encode_cached = lru_cache(_MAX_CACHED_PRE_TOKENS)(encode)

    def encode_any(pre_token: str) -> tuple[int, ...]:
        return encode_cached(pre_token) if len(pre_token) <= _MAX_CACHED_CHARS else encode(pre_token)

    return encode_any


def _without_lookup(tokenizer: Tokenizer) -> Any:  # tokenizers has no type for its models
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.model.ignore_merges = False
    return copy.model


def _find_start_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids that the tokenizer's post-processor puts before a text."""
    with_marks = tokenizer.encode("a").ids
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    for start in range(len(with_marks) - len(bare) + 1):
        if with_marks[start : start + len(bare)] == bare:
            return tuple(with_marks[:start])
    return ()


def _find_byte_ids(vocabulary: dict[str, int]) -> list[int]:
    try:
        return [vocabulary[f"<0x{byte:02X}>"] for byte in range(256)]
    except KeyError as error:
        raise ModelError(f"the tokenizer uses byte fallback but has no token {error}") from None


def _adds_blank(tokenizer: Tokenizer, text: str) -> bool:
    """True if the tokenizer puts a blank before `text`. Metaspace does not if the text begins with a blank."""
    shown = "".join(tokenizer.encode(text, add_special_tokens=False).tokens)
    return shown.startswith(_BLANK_MARK + text.replace(" ", _BLANK_MARK)[:-1])


def _splits_blanks(tokenizer: Tokenizer) -> bool:
    """True if each blank of a run is a separate pre-token."""
    if tokenizer.pre_tokenizer is None:
        return False
    return len(tokenizer.pre_tokenizer.pre_tokenize_str(f"a{_BLANK_MARK * 3}b")) > 2


def _build_alphabet() -> list[str]:
    """GPT-2's printable character for each byte."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]


_ALPHABET = _build_alphabet()


def _to_alphabet(data: bytes) -> str:
    return "".join([_ALPHABET[byte] for byte in data])
