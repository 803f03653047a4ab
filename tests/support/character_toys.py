"""Token models without weights, readers for them, small vocabularies, and tokenizers with random merges."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from inference.characters.model import CharacterModel
from inference.characters.token_string import TokenString
from inference.healing.text_encoder import PreToken, TextEncoder
from tests.support.toys import SENTENCEPIECE_KINDS, ToyTokenizer, narrow_tokenizer, wrap
from trie_cache.trie import Trie, Vocabulary

LogProbs = npt.NDArray[np.float64]  # [num_tokens of the trie + 1], by rank; the last is the end of the text
TokenIds = tuple[int, ...]

_Json = Any  # what json.loads gives

START = 0  # the start token of the small vocabularies; it has no text


class TokenModel(Protocol):
    """A language model over tokens."""

    def find_log_probs(self, token_ids: TokenIds) -> LogProbs:
        """Returns the log probabilities of the next token. `token_ids` include the start ids."""
        ...


@dataclass(frozen=True)
class RandomModel:
    """A model with a random distribution, drawn from the seed, after every token string or after its last tokens."""

    num_tokens: int  # of the trie
    seed: int = 0
    sharpness: float = 2.0  # 0: uniform; 2: clear preferences; 30: nearly certain
    share_impossible: float = 0.0  # of the tokens, after each string; the end of the text is always possible
    num_tokens_seen: int | None = None  # how many tokens the model looks back; None: all
    num_tokens_at_most: int | None = None  # after so many tokens the text ends with certainty

    def find_log_probs(self, token_ids: TokenIds) -> LogProbs:
        if self.num_tokens_at_most is not None and len(token_ids) >= self.num_tokens_at_most:
            return np.append(np.full(self.num_tokens, -np.inf), 0.0)
        return _draw_log_probs(self, token_ids if self.num_tokens_seen is None else token_ids[-self.num_tokens_seen :])


@lru_cache(maxsize=4096)
def _draw_log_probs(model: RandomModel, seen: TokenIds) -> LogProbs:
    rng = np.random.default_rng([model.seed, len(seen), *seen])
    scores = model.sharpness * rng.standard_normal(model.num_tokens + 1)
    scores[:-1][rng.random(model.num_tokens) < model.share_impossible] = -np.inf
    log_probs: LogProbs = scores - np.logaddexp.reduce(scores)
    log_probs.flags.writeable = False
    return log_probs


class CorpusModel:
    """A model of some texts, each in one tokenization and with a weight. Nothing else is possible."""

    def __init__(self, trie: Trie, start_ids: TokenIds, weights: Mapping[TokenIds, float]) -> None:
        self._counts: dict[TokenIds, LogProbs] = defaultdict(lambda: np.zeros(trie.num_tokens + 1))
        for token_ids, weight in weights.items():
            for place, token_id in enumerate(token_ids):
                self._counts[start_ids + token_ids[:place]][trie.rank[token_id]] += weight
            self._counts[start_ids + token_ids][-1] += weight

    def find_log_probs(self, token_ids: TokenIds) -> LogProbs:
        if token_ids not in self._counts:  # an impossible string: no test may depend on its values
            return np.full_like(next(iter(self._counts.values())), np.nan)
        counts = self._counts[token_ids]
        with np.errstate(divide="ignore"):
            log_probs: LogProbs = np.log(counts) - np.log(counts.sum())
        return log_probs


class ToyReader:
    """A reader that uses a token model, one string at a time in float64, and counts its passes and rows."""

    def __init__(self, model: TokenModel, max_tokens: int = 10_000) -> None:
        self.max_tokens = max_tokens
        self.num_passes = 0
        self.strings: WeakSet[TokenString] = WeakSet()  # the strings that were read and still exist
        self._model = model

    @property
    def num_rows_held(self) -> int:
        """How many strings have a row of log probabilities."""
        return sum(string.log_probs is not None for string in self.strings)

    def read(self, strings: Sequence[TokenString]) -> None:
        assert len(set(strings)) == len(strings), "a string is asked for twice"
        self.num_passes += 1
        for string in strings:
            assert 0 < string.num_tokens <= self.max_tokens, f"{string.num_tokens} tokens do not fit"
            log_probs = self._model.find_log_probs(spell_out(string))
            if np.isnan(log_probs).any():
                log_probs = np.full_like(log_probs, -np.inf)
            string.log_probs, string.log_end = log_probs[:-1].copy(), float(log_probs[-1])
            self.strings.add(string)


def spell_out(string: TokenString) -> TokenIds:
    """Returns all tokens of the string."""
    parts = []
    ancestor: TokenString | None = string
    while ancestor is not None:
        assert ancestor.token_ids, "a string adds a token at least"
        parts.append(ancestor.token_ids)
        ancestor = ancestor.parent
    return tuple(token_id for part in reversed(parts) for token_id in part)


class ByteEncoder(TextEncoder):
    """An encoder without merges: each byte is a token, and each text is one pre-token."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(start_ids=(START,))
        self._ids = {text[0]: index for index, text in enumerate(vocabulary.token_bytes) if len(text) == 1}

    def _split_plain(self, text: str, start: int) -> list[PreToken]:
        return [PreToken(text.encode(), start + len(text.encode()))] if text else []

    def encode_beginning(self, beginning: bytes) -> TokenIds:
        return tuple(self._ids[byte] for byte in beginning)


@dataclass(frozen=True)
class SmallVocabulary:
    """A few tokens over a few bytes. Some tokens have the same bytes."""

    alphabet: bytes
    vocabulary: Vocabulary

    @cached_property
    def trie(self) -> Trie:
        """The trie of its tokens."""
        return Trie.build(self.vocabulary)

    def open_model(self, model: TokenModel, max_tokens: int = 10_000) -> CharacterModel:
        """Returns a character-level model over a token model."""
        encoder = ByteEncoder(self.vocabulary)
        return CharacterModel(encoder, self.trie, (START,), lambda: ToyReader(model, max_tokens))


_ALPHABETS = (b"ab", b"a b", b"\x00\xff", b"abcd", "aé".encode(), b"\xe2\x82")


@st.composite
def small_vocabularies(draw: st.DrawFn, max_tokens: int = 6) -> SmallVocabulary:
    """Draws vocabularies: all single bytes of a small alphabet, and up to `max_tokens` strings of them."""
    alphabet = draw(st.sampled_from(_ALPHABETS))
    texts = st.lists(st.sampled_from(sorted(set(alphabet))), min_size=1, max_size=4).map(bytes)
    tokens = [bytes([byte]) for byte in sorted(set(alphabet))] + draw(st.lists(texts, max_size=max_tokens))
    order = draw(st.permutations(tokens))
    specials = {"<start>": START, "<end>": len(order) + 1}
    vocabulary = Vocabulary.from_tokens(dict(enumerate(order, 1)), specials, [len(order) + 1], len(order) + 3)
    return SmallVocabulary(alphabet, vocabulary)


@st.composite
def random_models(draw: st.DrawFn, /, trie: Trie, **changes: object) -> RandomModel:
    """Draws models: flat ones, peaked ones, and some with many impossible tokens."""
    choices = {
        "seed": draw(st.integers(0, 2**32 - 1)),
        "sharpness": draw(st.sampled_from([0.0, 1.0, 3.0, 10.0])),
        "share_impossible": draw(st.sampled_from([0.0, 0.0, 0.3])),
        "num_tokens_seen": draw(st.sampled_from([None, 2])),
    } | changes
    return RandomModel(trie.num_tokens, **choices)  # type: ignore[arg-type]


@cache
def _plain_spec(kind: str) -> _Json:
    """Returns the tokenizer of that kind without its merges."""
    spec = json.loads(narrow_tokenizer(kind).tokenizer.to_str())
    model = spec["model"]
    products = {"".join(merge) for merge in model["merges"]}
    added = {token["content"] for token in spec["added_tokens"]}
    keep = [piece for piece in model["vocab"] if piece in added or (piece not in products and _is_bare(piece))]
    model["vocab"] = {piece: index for index, piece in enumerate(sorted(keep, key=model["vocab"].__getitem__))}
    model["merges"] = []
    return spec


def _is_bare(piece: str) -> bool:
    return len(piece) == 1 or (len(piece) == 6 and piece.startswith("<0x"))


_LETTERS = {True: "▁▁as1'\n", False: "ĠĠas1'ĊÃ©"}  # the letters of merges, for SentencePiece or not


@st.composite
def merged_tokenizers(draw: st.DrawFn, kind: str, max_merges: int = 12) -> ToyTokenizer:
    """Draws tokenizers of that kind with random merges, which no text was used to train."""
    spec = json.loads(json.dumps(_plain_spec(kind)))
    vocab, is_sentencepiece = spec["model"]["vocab"], kind in SENTENCEPIECE_KINDS
    pieces = [letter for letter in dict.fromkeys(_LETTERS[is_sentencepiece]) if letter in vocab]
    for _ in range(draw(st.integers(0, max_merges))):
        pair = [draw(st.sampled_from(pieces)), draw(st.sampled_from(pieces))]
        product = "".join(pair)
        joins_words = is_sentencepiece and "▁" in product.lstrip("▁")
        if product not in vocab and len(product) <= 5 and not joins_words:
            spec["model"]["merges"].append(pair)
            vocab[product] = len(vocab)
            pieces.append(product)
    if kind == "llama3":  # whole pre-tokens that no merges produce
        for word in draw(st.lists(st.text("as1", min_size=2, max_size=4), max_size=3)):
            vocab.setdefault(word, len(vocab))
    return wrap(kind, spec)


def merge_by_hand(kind: str, *merges: str, words: Sequence[str] = ()) -> ToyTokenizer:
    """Returns a tokenizer of that kind with only these merges, such as `a b`, in the order of their ranks.

    `words` are tokens that no merges produce: whole pre-tokens, for a kind that looks these up first.
    """
    spec = json.loads(json.dumps(_plain_spec(kind)))
    vocab = spec["model"]["vocab"]
    spec["model"]["merges"] = [merge.split() for merge in merges]
    for pair in spec["model"]["merges"]:
        vocab["".join(pair)] = len(vocab)
    for word in words:
        vocab[word] = len(vocab)
    return wrap(kind, spec)


def open_toy(toy: ToyTokenizer, model: TokenModel, max_tokens: int = 10_000) -> CharacterModel:
    """Returns a character-level model over a token model and a toy tokenizer."""
    return CharacterModel(toy.encoder, toy.trie, find_start_ids(toy), lambda: ToyReader(model, max_tokens))


def find_start_ids(toy: ToyTokenizer) -> TokenIds:
    """Returns the start ids of every text: the tokenizer's start token, or its end token."""
    return toy.encoder.start_ids or tuple(toy.vocabulary.end_ids)


def train_on(toy: ToyTokenizer, weights: Mapping[str, float]) -> CorpusModel:
    """Returns a model of these texts in their canonical tokenization, and nothing else."""
    return CorpusModel(toy.trie, find_start_ids(toy), {toy.encode(text): weight for text, weight in weights.items()})
