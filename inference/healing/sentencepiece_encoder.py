"""BPE over characters with byte fallback and blanks written as U+2581, as in Llama 2, Mistral, CodeLlama and Gemma.

Such a tokenizer merges the whole text at once, or what its pre-tokenizer makes of it. Each merge joins two characters.
So if no merge joins a character to a blank after it, no token crosses the start of a run of blanks after that
character, and the text can be split there; in the same way around line ends and tabs.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate

from tokenizers import Tokenizer

from inference.errors import ModelError
from inference.healing.text_encoder import PreToken, TextEncoder
from inference.healing.tokenizer_file import BLANK_MARK, TokenizerFile, refusing_panics


class SentencePieceEncoder(TextEncoder):
    """The text encoder of a SentencePiece BPE tokenizer.

    A U+2581 in the text itself is encoded as byte tokens. The tokenizer would turn it into a blank, and
    the completion would not continue the typed text.
    """

    def __init__(self, file: TokenizerFile) -> None:
        """Raises ModelError if merges join words, or the pre-tokenizer changes the text."""
        super().__init__(file.added_texts, file.find_start_ids())
        self._pattern = _build_pattern(file.merges)
        self._model = file.tokenizer.model
        self._pieces = file.tokenizer.get_vocab(with_added_tokens=False)
        self._byte_ids = _find_byte_ids(self._pieces)
        self._unspelled = bytes(set(range(256)) - self._byte_ids.keys())
        self._pre_tokenizer = file.pre_tokenizer
        self._control_ids = file.control_ids
        self._dummy_prefix = " " if _adds_blank(file.tokenizer, "a") else ""
        self._dummy_prefix_before_blank = " " if _adds_blank(file.tokenizer, " a") else ""

    def find_dummy_prefix(self, text: str) -> str:
        return self._dummy_prefix_before_blank if text.startswith(" ") else self._dummy_prefix

    @refusing_panics
    def _split_plain(self, text: str, start: int) -> list[PreToken]:
        data = [piece.encode() for piece in self._iter_pieces(text)]
        return [PreToken(each, start + end) for each, end in zip(data, accumulate(map(len, data)), strict=True)]

    def _iter_pieces(self, text: str) -> Iterator[str]:
        if self._pre_tokenizer is None:
            yield from self._pattern.findall(text)
            return
        start = 0
        for shown, _ in self._pre_tokenizer.pre_tokenize_str(text.replace(" ", BLANK_MARK)):
            end = start + len(shown)  # it has one character for one of the text
            yield from self._pattern.findall(text[start:end])
            start = end

    def encode_beginning(self, beginning: bytes) -> tuple[int, ...]:
        whole = beginning.decode(errors="ignore")  # without an incomplete character at the end
        first, *others = whole.split(BLANK_MARK)
        ids = self._merge(first)
        for part in others:
            ids += self._spell(BLANK_MARK.encode()) + self._merge(part)
        return (*ids, *self._spell(beginning[len(whole.encode()) :]))

    @refusing_panics
    def _merge(self, text: str) -> list[int]:
        if not text:
            return []
        ids = [token.id for token in self._model.tokenize(text.replace(" ", BLANK_MARK))]
        return ids if self._control_ids.isdisjoint(ids) else self._spell(text.encode())

    def _spells(self, character: str) -> bool:
        return super()._spells(character) or (character in self._pieces and character != BLANK_MARK)

    def _spell(self, data: bytes) -> list[int]:
        """The bytes one by one. Raises InvalidRequestError for a byte without a token."""
        self._check_bytes(data)
        return [self._byte_ids[byte] for byte in data]


def _build_pattern(merges: Sequence[Sequence[str]]) -> re.Pattern[str]:
    """Matches one pre-token after the other: blanks and what follows them, or a line end or tab by itself.

    Raises ModelError if a merge joins a word to the blank after it.
    """
    joining = {left[-1]: left + right for left, right in merges if right[0] == BLANK_MARK and left[-1] != BLANK_MARK}
    word = next((product for character, product in joining.items() if character.isalnum()), None)
    if word is not None:
        raise ModelError(f"model merges join words ({word!r}), so every keystroke could change all tokens")
    merged = set().union(*(left + right for left, right in merges)) if merges else set()
    alone = "".join(character for character in "\t\n\r" if character not in merged)
    before_blank = f"|(?<=[{re.escape(''.join(joining))}]) +" if joining else ""
    alone_or = f"[{re.escape(alone)}]|" if alone else ""
    other = f"[^ {re.escape(alone)}]+{before_blank}"
    return re.compile(f"{alone_or} +(?:{other})*|(?:{other})+")


def _find_byte_ids(vocabulary: dict[str, int]) -> dict[int, int]:
    """The token of each byte that has one: `<0x41>`, or the character itself."""
    names = {chr(byte): byte for byte in range(0x80)} | {f"<0x{byte:02X}>": byte for byte in range(256)}
    return {byte: vocabulary[name] for name, byte in names.items() if name in vocabulary}


def _adds_blank(tokenizer: Tokenizer, text: str) -> bool:
    """True if the tokenizer puts a blank before `text`. Metaspace does not if the text begins with a blank."""
    shown = "".join(tokenizer.encode(text, add_special_tokens=False).tokens)
    return shown.startswith(BLANK_MARK + text.replace(" ", BLANK_MARK)[:-1])
