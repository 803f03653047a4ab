"""Byte-level BPE after a pre-tokenizer, as in GPT-2, Qwen, StarCoder, DeepSeek, Falcon and Llama 3."""

from itertools import accumulate
from typing import Any

from tokenizers import Tokenizer

from inference.errors import ModelError
from inference.healing.added_texts import AddedTexts
from inference.healing.composition import count_unsettled_chars
from inference.healing.text_encoder import PreToken, cache_short
from inference.healing.tokenizer_file import TokenizerFile

_SAMPLE = "a é\n"  # every byte-level tokenizer writes it with the same characters
_NO_UTF8_BYTES = frozenset((0xC0, 0xC1, *range(0xF5, 0x100)))  # in no UTF-8 text


class ByteLevelEncoder:
    """The text encoder of a byte-level BPE tokenizer."""

    def __init__(self, file: TokenizerFile) -> None:
        """Raises ModelError if the pre-tokenizer does not write all bytes, or a byte has no token."""
        assert file.pre_tokenizer is not None, "byte-level BPE without a ByteLevel step is refused"
        shown = [piece for piece, _ in file.pre_tokenizer.pre_tokenize_str(_SAMPLE)]
        if "".join(shown) != _to_alphabet(_SAMPLE.encode()):
            raise ModelError(f"pre_tokenizer makes {shown} of {_SAMPLE!r}, which is not all of the text")
        self._byte_ids = _find_byte_ids(file.tokenizer)
        self._normalizer = file.normalizer
        self._pre_tokenizer = file.pre_tokenizer
        self._splitter = file.splitter
        self._added_texts = AddedTexts(file.added_texts)
        self._control_ids = file.control_ids
        self._whole = file.tokenizer.model
        self._merged = _without_lookup(file.tokenizer) if self._whole.ignore_merges else self._whole
        self._adds_blank = file.tokenizer.encode("a", add_special_tokens=False).tokens[0].startswith(_to_alphabet(b" "))
        self.start_ids = file.find_start_ids()
        self.encode = cache_short(self._encode)
        self.find_openings = self._added_texts.find_openings

    def normalize(self, text: str) -> str:
        return text if self._normalizer is None or text.isascii() else self._normalizer.normalize_str(text)

    def count_unsettled(self, text: str) -> int:
        return 0 if self._normalizer is None else count_unsettled_chars(text)

    def find_dummy_prefix(self, text: str) -> str:
        return " " if self._adds_blank and not text.startswith(" ") else ""

    def split(self, text: str) -> list[PreToken]:
        if not self._added_texts.has_any:
            return self._split_plain(text, 0)
        pre_tokens: list[PreToken] = []
        for piece in self._added_texts.split(text):
            start = pre_tokens[-1].end if pre_tokens else 0
            data = piece.encode()
            if self.is_added_text(data):
                pre_tokens.append(PreToken(data, start + len(data)))
            else:
                pre_tokens += self._split_plain(piece, start)
        return pre_tokens

    def _split_plain(self, text: str, start: int) -> list[PreToken]:
        """The pre-tokens of text between added texts; `start`: the number of bytes before it.

        The pre-tokenizer shows each with one character for each byte. A splitter shows them as they are, in half the
        time. Offsets are not used: they cannot point inside a character.
        """
        data = text.encode()
        if self._splitter is None:
            sizes = [len(shown) for shown, _ in self._pre_tokenizer.pre_tokenize_str(text)]
        else:
            sizes = [len(shown.encode()) for shown, _ in self._splitter.pre_tokenize_str(text)]
        return [
            PreToken(data[end - size : end], start + end) for size, end in zip(sizes, accumulate(sizes), strict=True)
        ]

    def is_added_text(self, pre_token: bytes) -> bool:
        return self._added_texts.find_id(pre_token) is not None

    def _encode(self, pre_token: bytes) -> tuple[int, ...]:
        added_id = self._added_texts.find_id(pre_token)
        if added_id is not None:
            return (added_id,)
        ids = tuple([token.id for token in self._whole.tokenize(_to_alphabet(pre_token))])
        return self._without_control(ids, pre_token)

    def encode_beginning(self, beginning: bytes) -> tuple[int, ...]:
        ids = tuple([token.id for token in self._merged.tokenize(_to_alphabet(beginning))])
        return self._without_control(ids, beginning)

    def _without_control(self, ids: tuple[int, ...], data: bytes) -> tuple[int, ...]:
        """The ids; or if one is a control token, which the text only looks like, the bytes one by one."""
        return ids if self._control_ids.isdisjoint(ids) else tuple([self._byte_ids[byte] for byte in data])


def _find_byte_ids(tokenizer: Tokenizer) -> dict[int, int]:
    ids = {}
    for byte in range(256):
        token_id = tokenizer.token_to_id(_ALPHABET[byte])
        if token_id is not None:
            ids[byte] = token_id
        elif byte not in _NO_UTF8_BYTES:
            raise ModelError(f"model vocab has no token {_ALPHABET[byte]!r} for the byte 0x{byte:02X}")
    return ids


def _without_lookup(tokenizer: Tokenizer) -> Any:  # tokenizers has no type for its models
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.model.ignore_merges = False
    return copy.model


def _build_alphabet() -> list[str]:
    """GPT-2's printable character for each byte."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]


_ALPHABET = _build_alphabet()


def _to_alphabet(data: bytes) -> str:
    return "".join([_ALPHABET[byte] for byte in data])
