"""Small trained tokenizers of every supported kind, and texts to test them with."""

import json
import textwrap
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from inference.engine.fill_in import FillIn, FimMarkers, Layout
from inference.engine.prompt import PromptBuilder
from inference.healing.loaded_tokenizer import LoadedTokenizer, build_text_encoder
from inference.healing.text_encoder import TextEncoder
from inference.healing.token_tree import TokenTree
from inference.healing.tokenizer_file import parse_tokenizer_file
from inference.healing.vocabulary_file import BYTE_LEVEL_ALPHABET
from trie_cache.trie import Trie, Vocabulary

_Json = Any  # what json.loads gives

END = "<|endoftext|>"
BEGIN = "<|begin_of_text|>"  # the start token of the Llama 3 kind
NARROW_ALPHABET = "as1' \n"
FIM_NAMES = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
NUM_PADDING_ROWS = 7

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_QWEN = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|", 1)
_O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + _CONTRACTIONS + "?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + _CONTRACTIONS + "?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

BYTE_LEVEL_KINDS = ("qwen", "gpt2", "llama3", "o200k")
SENTENCEPIECE_KINDS = ("llama2", "metaspace", "metaspace-bare", "metaspace-split")
KINDS = BYTE_LEVEL_KINDS + SENTENCEPIECE_KINDS


@dataclass(frozen=True)
class ToyTokenizer:
    """A trained tokenizer, and the product's objects for it."""

    kind: str
    tokenizer: Tokenizer
    plain: Tokenizer  # the oracle: without special tokens, so that text which looks like one is text
    encoder: TextEncoder
    vocabulary: Vocabulary
    trie: Trie
    ids: Mapping[int, int] = field(default_factory=dict)  # the oracle's id of an added token -> that of the file

    @property
    def num_rows(self) -> int:
        """The number of rows of a model's output head for it, including padding."""
        return self.vocabulary.num_rows

    def join(self, token_ids: Sequence[int]) -> bytes:
        """Returns the joined bytes of the tokens."""
        return b"".join(self.vocabulary.token_bytes[token_id] for token_id in token_ids)

    def encode(self, text: str) -> tuple[int, ...]:
        """Encodes a whole text with the `tokenizers` library itself, which drops what the vocabulary cannot spell."""
        ids = self.plain.encode(self.encoder.replace_unspelled(text), add_special_tokens=False).ids
        return tuple([self.ids.get(token_id, token_id) for token_id in ids])


@cache
def toy_tokenizer(kind: str, num_tokens: int = 640) -> ToyTokenizer:
    """Returns a tokenizer of that kind, trained on a part of the standard library."""
    return wrap(kind, train(kind, training_texts(), num_tokens))


@cache
def narrow_tokenizer(kind: str) -> ToyTokenizer:
    """Returns a tokenizer of that kind with few tokens, each of at most three characters of NARROW_ALPHABET."""
    random = Random(7)
    words = ["".join(random.choices("aas1'", k=random.randint(1, 5))) for _ in range(60)]
    gaps = [" ", " ", " ", "  ", "   ", "\n", "\n\n", "\n  ", " \n", "'s ", "1\n"]
    text = "".join(random.choice(words) + random.choice(gaps) for _ in range(3000))
    return wrap(kind, train(kind, [text], 256 + 40, max_token_length=3))


def wrap(kind: str, spec: _Json) -> ToyTokenizer:
    """Builds the product's objects for a `tokenizer.json`."""
    plain = Tokenizer.from_str(json.dumps({**spec, "added_tokens": [], "post_processor": None}))
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    encoder = build_text_encoder(parse_tokenizer_file(spec))
    vocabulary = _read_vocabulary(spec)
    return ToyTokenizer(kind, tokenizer, plain, encoder, vocabulary, Trie.build(vocabulary))


def training_texts() -> list[str]:
    """Returns code, and a little other text."""
    sources = [Path(str(module.__file__)).read_text(encoding="utf-8") for module in (textwrap, tokenize)]
    return [*sources, "café naïve Straße 中文字符 日本語 12345 2024 don't they're we'll\r\n\tx\r\n" * 20]


def train(kind: str, texts: list[str], num_tokens: int, max_token_length: int = 16) -> _Json:
    """Trains a tokenizer of that kind. Returns its `tokenizer.json`."""
    if kind in SENTENCEPIECE_KINDS:
        return _train_sentencepiece(kind, texts, num_tokens, max_token_length)
    return _train_byte_level(kind, texts, num_tokens, max_token_length)


def _train_byte_level(kind: str, texts: list[str], num_tokens: int, max_token_length: int) -> _Json:
    tokenizer = Tokenizer(models.BPE())
    pattern = {"qwen": _QWEN, "llama3": _LLAMA3, "o200k": _O200K}.get(kind)
    if pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=num_tokens,
        max_token_length=max_token_length,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[END, *FIM_NAMES, BEGIN],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if kind == "llama3":
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, 4)])
    spec = json.loads(tokenizer.to_str())
    if kind == "llama3":
        _add_unmerged_words(spec, tokenizer, texts)
    return spec


def _add_unmerged_words(spec: _Json, tokenizer: Tokenizer, texts: list[str]) -> None:
    """Adds whole pre-tokens that no merges produce. Only the look-up before merging finds them."""
    words = {word for text in texts for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)}
    unmerged = sorted(word for word in words if 2 <= len(word) <= 6 and word not in spec["model"]["vocab"])
    for word in unmerged[:: max(len(unmerged) // 40, 1)]:
        spec["model"]["vocab"][word] = len(spec["model"]["vocab"])
    spec["model"]["ignore_merges"] = True


def _train_sentencepiece(kind: str, texts: list[str], num_tokens: int, max_token_length: int) -> _Json:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("▁*[^▁]*"), "isolated")
    specials = ["<unk>", END, *FIM_NAMES]
    trainer = trainers.BpeTrainer(
        vocab_size=num_tokens - 256,
        max_token_length=max_token_length,
        limit_alphabet=110,
        special_tokens=specials,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    spec = json.loads(tokenizer.to_str())
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    words = [word for word in spec["model"]["vocab"] if word not in specials]
    spec["model"]["vocab"] = {piece: index for index, piece in enumerate([*specials, *pieces, *words])}
    spec["model"] |= {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    spec["normalizer"] = spec["pre_tokenizer"] = None
    if kind == "llama2":
        spec["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]}
    else:
        scheme = "never" if kind == "metaspace-bare" else "first"
        spec["pre_tokenizer"] = {
            "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": kind == "metaspace-split"
        }  # fmt: skip
    spec["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ],
    }
    return spec


def _read_vocabulary(spec: _Json) -> Vocabulary:
    """Reads the bytes of the tokens in the simplest way, without the product's own reader."""
    specials = {added["content"]: added["id"] for added in spec["added_tokens"]}
    unmap = {character: byte for byte, character in enumerate(BYTE_LEVEL_ALPHABET)}
    tokens = {}
    for piece, token_id in spec["model"]["vocab"].items():
        if spec["model"]["byte_fallback"]:
            is_byte = len(piece) == 6 and piece.startswith("<0x")
            tokens[token_id] = bytes([int(piece[3:5], 16)]) if is_byte else piece.replace("▁", " ").encode()
        elif token_id not in specials.values():
            tokens[token_id] = bytes(unmap[character] for character in piece)
    num_rows = max(*tokens, *specials.values()) + 1 + NUM_PADDING_ROWS
    return Vocabulary.from_tokens(tokens, specials, end_ids=[specials[END]], num_rows=num_rows)


@st.composite
def token_trees(draw: st.DrawFn) -> TokenTree:
    """Draws a chain of up to four tokens with up to six branches. Every token id is 0."""
    num_branches = draw(st.integers(0, 6))
    parents = [draw(st.sampled_from([None, *range(index)])) for index in range(num_branches)]
    return TokenTree((0,) * draw(st.integers(1, 4)), (0,) * num_branches, tuple(parents))


def build_prompts(toy: ToyTokenizer, layout: Layout = Layout.PSM) -> PromptBuilder:
    """Builds a PromptBuilder as `load_engine` does for a trained model, with the toy's own vocabulary."""
    markers = FimMarkers(*(toy.vocabulary.special_tokens[name] for name in (FIM_NAMES[0], FIM_NAMES[2], FIM_NAMES[1])))
    return PromptBuilder(load_toy(toy), FillIn(markers, layout))


def load_toy(toy: ToyTokenizer) -> LoadedTokenizer:
    """The toy as the product's tokenizer of a model."""
    start_ids = toy.encoder.start_ids or (toy.vocabulary.special_tokens[END],)
    return LoadedTokenizer(toy.encoder, toy.vocabulary, toy.trie, start_ids)


_PIECES = (
    "a", "b", "Z", "é", "e\u0301", "\u0301", "ß", "中", "文字", "日本", "한", "ا", "न", "😀",
    "\U0001f469\u200d\U0001f4bb", "\u200d", "\xa0", "\u3000", " ", "  ", "    ", "\t", "\t\t", "\n", "\n\n", "\r\n",
    "\r", " \n", "\n    ", "\n\t", "\x00", "\x0b", "\u2028", "'", '"', "'s", "'S", "'ll", "'re", "'t", "'d", "''",
    '"""', "`", "1", "12", "123", "\u0663", "\xb2", "_", "__", "-", "->", "=", "==", "(", "((", ")", "):", "[]", "{",
    "/", "//", "\\", "#", "# ", ".", "...", ",", ";", "!", "▁", "\ufffd", "\ue000", "<|endoftext|>", "<|fim_prefix|>",
    "<|fim_suffix|>", "<|fim_", "|>", "<0x41>", "<s>", "<unk>", "Ġ", "Ċ", "def ", "return ", "self", " self.",
    "import os\n", "num_padded", "_num_p", "add", "don't", "they'", "ABCdef", "HTTPServer", "x = 1\n",
    "class Node:\n    def next(self) -> ", "Nod",
)  # fmt: skip

_ADDED_PIECES = (  # added tokens, and what composes
    "return", "self.", "ü", "foo bar", "foo", "<b>", "</table>", "\n", "  ", "    ", " " * 7, "\t\t",
    "a\u030a", "=\u0338", "가", "\u1100\u1161", "123456789012345678", "für", "½",
)  # fmt: skip

_pieces = st.one_of(st.sampled_from(_PIECES), st.sampled_from(_ADDED_PIECES), st.text(max_size=3))
texts = st.lists(_pieces, max_size=10).map("".join)
"""Texts made of what tokenizers disagree about, and some that nobody thought of."""


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, str]:
    """Draws a text, split at any character."""
    text = draw(texts)
    cut = draw(st.integers(0, len(text)))
    return text[:cut], text[cut:]


long_texts = {
    "blanks": "x = 1\n" + " " * 3000,
    "letters": "x = " + "".join(Random(1).choices("abcde", k=3000)),
    "wide letters": "# " + "中文字符日本語" * 300,
    "minified": "var a;" + "a=b(c,d);if(e){f()}" * 150,
    "line ends": "x" + "\n" * 3000,
    "a ruler": "# " + "=" * 3000,
}
"""Texts that end in a very long pre-token, for one kind of tokenizer or another."""
