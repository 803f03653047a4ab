"""Oracles for the character-level model: slow, and simple enough to be obviously right.

They follow the definitions, with whole token strings and sums of probabilities. Nothing is narrowed, pruned or shared.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, product

import numpy as np
import numpy.typing as npt

from inference.characters.state import State
from inference.healing.vocabulary_file import BYTE_LEVEL_ALPHABET
from tests.support.character_toys import TokenIds, TokenModel
from tests.support.toys import NARROW_ALPHABET, SENTENCEPIECE_KINDS, ToyTokenizer
from trie_cache.trie import Trie

END = 256


def logsumexp(log_probs: list[float]) -> float:
    """Returns the logarithm of the sum of probabilities, given as logarithms."""
    return float(np.logaddexp.reduce(log_probs)) if log_probs else -np.inf


@dataclass(frozen=True)
class EveryString:
    """The probabilities of bytes under a token model, over all token strings (Vieira et al. 2025, eq. 7 to 13)."""

    model: TokenModel
    trie: Trie
    start_ids: TokenIds

    @cached_property
    def _tokens(self) -> list[tuple[int, int, bytes]]:
        """Rank, id and bytes of each token."""
        ids = self.trie.order.tolist()
        return [(rank, token_id, self.trie.spell(token_id)) for rank, token_id in enumerate(ids)]

    def iter_members(self, text: bytes) -> Iterator[tuple[TokenIds, float]]:
        """Yields the covering of the text, each member with its log probability."""
        waiting: list[tuple[TokenIds, bytes, float]] = [((), b"", 0.0)]
        while waiting:
            ids, spelled, log_prob = waiting.pop()
            if len(spelled) >= len(text):
                yield ids, log_prob
                continue
            log_probs = self.model.find_log_probs(self.start_ids + ids)
            for rank, token_id, token in self._tokens:
                longer = spelled + token
                if longer.startswith(text) or text.startswith(longer):
                    waiting.append(((*ids, token_id), longer, log_prob + float(log_probs[rank])))

    def log_prefix(self, text: bytes) -> float:
        """Returns the log probability that a text begins with `text`."""
        return logsumexp([log_prob for _, log_prob in self.iter_members(text)])

    def log_whole(self, text: bytes) -> float:
        """Returns the log probability that `text` is the whole text."""
        ended = [
            log_prob + float(self.model.find_log_probs(self.start_ids + ids)[-1])
            for ids, log_prob in self.iter_members(text)
            if sum(len(self.trie.spell(token_id)) for token_id in ids) == len(text)
        ]
        return logsumexp(ended)

    def find_next(self, text: bytes) -> npt.NDArray[np.float64]:
        """[257]: log probabilities of the next byte and of the end, as ratios to the probability of the prefix."""
        first_bytes = {token[0] for _, _, token in self._tokens}
        found = np.full(257, -np.inf)
        for byte in first_bytes:
            found[byte] = self.log_prefix(text + bytes([byte]))
        found[END] = self.log_whole(text)
        return found - self.log_prefix(text)


def find_all_texts(model: TokenModel, trie: Trie, start_ids: TokenIds, num_tokens_at_most: int) -> dict[bytes, float]:
    """Returns the probability of every text of a model with such short strings, by enumerating all of them."""
    found: dict[bytes, float] = {}
    for length in range(num_tokens_at_most - len(start_ids) + 1):
        for ids in product(trie.order.tolist(), repeat=length):
            log_prob = 0.0
            for place, token_id in enumerate(ids):
                log_prob += float(model.find_log_probs(start_ids + ids[:place])[trie.rank[token_id]])
            log_prob += float(model.find_log_probs(start_ids + ids)[-1])
            text = b"".join(map(trie.spell, ids))
            found[text] = found.get(text, 0.0) + float(np.exp(log_prob))
    return found


_CONTINUATIONS = [
    "".join(letters) for length in range(4) for letters in product(NARROW_ALPHABET, repeat=length)
] + ["\r", "b", "B", "é", ".", "\t", "2", "/", "中", "\u0301", "aA", "Ab"]  # fmt: skip


class CanonicalStrings:
    """The probabilities of bytes under a token model, over the canonical covering.

    A member is the canonical tokens up to some offset in the text's last pre-token, and one more token that goes beyond
    the text and is arbitrary. Pre-token boundaries are found by trying continuations. Merges are applied one by one.
    """

    def __init__(self, toy: ToyTokenizer, model: TokenModel, start_ids: TokenIds) -> None:
        self._toy, self._model, self._start_ids = toy, model, start_ids
        self._spec = json.loads(toy.tokenizer.to_str())["model"]
        self._rank = {tuple(pair): rank for rank, pair in enumerate(self._spec["merges"])}
        self._is_sentencepiece = toy.kind in SENTENCEPIECE_KINDS

    def find_paths(self, data: bytes) -> dict[TokenIds, bytes]:
        """Returns the tokens before the last one, with their remaining bytes. `data` includes the dummy prefix."""
        whole = data.decode(errors="ignore")
        unfinished = data[len(whole.encode()) :]
        paths: dict[TokenIds, bytes] = {}
        for ends in self._find_boundary_sets(whole):
            pieces = [whole[start:end] for start, end in pairwise((0, *ends))]
            complete = tuple(token_id for piece in pieces for token_id in self._encode(piece))
            last = whole[ends[-1] if ends else 0 :]
            paths |= self._find_open(complete, last.encode() + unfinished)
            paths |= self._find_open(complete + self._encode(last), unfinished)
        return paths

    def find_masses(self, data: bytes) -> npt.NDArray[np.float64]:
        """[257]: log probability of the members, by the next byte after the text or its end."""
        found: list[list[float]] = [[] for _ in range(257)]
        for path, remaining_bytes in self.find_paths(data).items():
            for place, log_prob in self.iter_leaving(path, remaining_bytes):
                found[place].append(log_prob)
        return np.array([logsumexp(masses) for masses in found])

    def iter_leaving(self, path: TokenIds, remaining_bytes: bytes) -> Iterator[tuple[int, float]]:
        """Yields for each string with one token more than the path: the next byte or END, and its log probability."""
        log_path = self._weigh(path)
        log_probs = self._model.find_log_probs(self._start_ids + path)
        for rank, token_id in enumerate(self._toy.trie.order.tolist()):
            token = self._toy.trie.spell(token_id)
            if token.startswith(remaining_bytes) and len(token) > len(remaining_bytes):
                yield token[len(remaining_bytes)], log_path + float(log_probs[rank])
        if not remaining_bytes:
            yield END, log_path + float(log_probs[-1])

    def find_next(self, data: bytes) -> npt.NDArray[np.float64]:
        """[257]: log probabilities of the next byte and of the end, over the members that continue in valid UTF-8."""
        masses = self.find_masses(data)
        for byte in range(256):
            if not can_be_text(data + bytes([byte])):
                masses[byte] = -np.inf
        if not is_text(data):
            masses[END] = -np.inf
        return masses - logsumexp(list(masses))

    def _weigh(self, path: TokenIds) -> float:
        log_prob = 0.0
        for place, token_id in enumerate(path):
            log_probs = self._model.find_log_probs(self._start_ids + path[:place])
            log_prob += float(log_probs[self._toy.trie.rank[token_id]])
        return log_prob

    def _find_boundary_sets(self, text: str) -> set[tuple[int, ...]]:
        splits = [self._toy.encoder.split(text + more) for more in _CONTINUATIONS]
        num_chars = {len(text[:end].encode()): end for end in range(len(text) + 1)}
        return {tuple(num_chars[piece.end] for piece in pieces if piece.end in num_chars) for pieces in splits}

    def _find_open(self, complete: TokenIds, beginning: bytes) -> dict[TokenIds, bytes]:
        """Returns the paths that can continue in a pre-token with this beginning."""
        found = {}
        for end in range(len(beginning) + 1):
            remaining_bytes = beginning[end:]
            tokens = self._toy.vocabulary.token_bytes
            if any(token.startswith(remaining_bytes) and len(token) > len(remaining_bytes) for token in tokens):
                found[complete + self.merge(beginning[:end])] = remaining_bytes
        return found

    def _encode(self, piece: str) -> TokenIds:
        """Encodes a whole pre-token. Llama 3 looks it up before merging."""
        if self._spec.get("ignore_merges"):
            whole = [index for index, token in enumerate(self._toy.vocabulary.token_bytes) if token == piece.encode()]
            if whole and piece:
                return (whole[0],)
        return self.merge(piece.encode())

    def merge(self, data: bytes) -> TokenIds:
        """Applies the merge with the lowest rank at its first place, until none is possible."""
        pieces = self._find_letters(data)
        while True:
            ranks = [self._rank.get(pair, len(self._rank)) for pair in pairwise(pieces)]
            best = min(ranks, default=len(self._rank))
            if best == len(self._rank):
                return tuple(self._spec["vocab"][piece] for piece in pieces)
            place = ranks.index(best)
            pieces[place : place + 2] = ["".join(pieces[place : place + 2])]

    def _find_letters(self, data: bytes) -> list[str]:
        if not self._is_sentencepiece:
            return [BYTE_LEVEL_ALPHABET[byte] for byte in data]
        whole = data.decode(errors="ignore")
        letters = []
        for letter in whole.replace(" ", "▁"):
            known = letter in self._spec["vocab"]
            letters += [letter] if known else [f"<0x{byte:02X}>" for byte in letter.encode()]
        return letters + [f"<0x{byte:02X}>" for byte in data[len(whole.encode()) :]]


def assert_same(ours: State, other: State) -> None:
    """Asserts that two states of a text predict the same and have the same mass and probability."""
    for name in ("next_log_probs", "log_mass", "log_probability"):
        np.testing.assert_allclose(getattr(ours, name), getattr(other, name), rtol=0, atol=1e-9)


def walk_three_ways(start: State, text: bytes, cuts: Sequence[int], find_other: Callable[[int], bytes]) -> list[State]:
    """The states of a text, and asserts that they are the same at once, byte by byte, and from a kept state.

    A kept state has also been advanced by `find_other`, for its place in the text, which is dropped.
    """
    states = list(accumulate(text, lambda state, byte: state.advance(bytes([byte])), initial=start))
    for ours, other in zip([start, *start.walk(text)], states, strict=True):
        assert_same(ours, other)
    for cut in cuts:
        kept = states[min(cut, len(text))]
        kept.advance(find_other(cut))
        assert_same(kept.advance(text[cut:]), states[-1])
    return states


def is_text(data: bytes) -> bool:
    """True for complete UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def can_be_text(data: bytes) -> bool:
    """True if up to three more bytes make it complete UTF-8."""
    if is_text(data):
        return True
    endings = [bytes([first, *[0x80] * count]) for first in (0x80, 0x90, 0xA0, 0xBF) for count in range(3)]
    return any(is_text(data + more) for more in endings)
