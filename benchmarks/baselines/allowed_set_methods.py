"""Methods to find the allowed set of a prefix: the tokens that start with it, or with which it starts.

Each method is implemented as its author describes it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import llguidance
import llguidance.numpy
import marisa_trie
import numpy as np
import numpy.typing as npt

from trie_cache.hot_prefixes import AllowedSet, HotPrefixCache, build_allowed_set
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

Lookup = Callable[[bytes], Any]  # each method has its own type of result: ids, a row of booleans, packed bits


@dataclass(frozen=True, slots=True)
class Method:
    """One method to find allowed sets."""

    name: str
    build: Callable[[Vocabulary], Lookup]
    to_ids: Callable[[Any], Iterable[int]]  # converts a result to ids, so that results can be compared


def _build_scan(vocabulary: Vocabulary) -> Lookup:
    """The blog post's first version: compares the prefix with every token."""
    tokens = [(index, text) for index, text in enumerate(vocabulary.token_bytes) if text]

    def find(prefix: bytes) -> list[int]:
        allowed = []
        for index, text in tokens:
            if text.startswith(prefix) or prefix.startswith(text):
                allowed.append(index)
        return allowed

    return find


class _Node:
    __slots__ = ("children", "ids")

    def __init__(self) -> None:
        self.children: dict[int, _Node] = {}
        self.ids: list[int] = []


class _PythonTrie:
    """The blog post's second version: a node for every prefix. It collects all nodes below the prefix."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.root = _Node()
        for index, text in enumerate(vocabulary.token_bytes):
            if text:
                node = self.root
                for byte in text:
                    if byte not in node.children:
                        node.children[byte] = _Node()
                    node = node.children[byte]
                node.ids.append(index)

    def find(self, prefix: bytes) -> list[int]:
        node = self.root
        allowed: list[int] = []
        for byte in prefix:
            if byte not in node.children:
                return allowed + node.ids
            allowed += node.ids
            node = node.children[byte]
        return allowed + _collect(node)


def _collect(node: _Node) -> list[int]:
    found: list[int] = []
    waiting = [node]
    while waiting:
        node = waiting.pop()
        found += node.ids
        waiting.extend(node.children.values())
    return found


def _build_cached_python_trie(vocabulary: Vocabulary) -> Lookup:
    """The blog post's last version: sets of prefixes with more than 1,000 tokens are computed in advance."""
    trie = _PythonTrie(vocabulary)
    kept: dict[bytes, list[int]] = {}
    waiting = [(b"", trie.root)]
    while waiting:
        prefix, node = waiting.pop()
        if len(_collect(node)) > 1000:
            kept[prefix] = trie.find(prefix)
            waiting += [(prefix + bytes([byte]), child) for byte, child in node.children.items()]

    def find(prefix: bytes) -> list[int]:
        found = kept.get(prefix)
        return trie.find(prefix) if found is None else found

    return find


def _build_marisa(vocabulary: Vocabulary) -> Lookup:
    """marisa-trie stores text, so each byte is stored as a Latin-1 character."""
    texts = {text.decode("latin-1"): index for index, text in enumerate(vocabulary.token_bytes) if text}
    trie = marisa_trie.Trie(texts)
    ids = [0] * len(trie)
    for text, index in texts.items():
        if text != "\0":  # marisa-trie stores this text but cannot look it up
            ids[trie[text]] = index

    def find(prefix: bytes) -> list[int]:
        text = prefix.decode("latin-1")
        found = [ids[key] for _, key in trie.items(text)]
        return found + [ids[trie[beginning]] for beginning in trie.prefixes(text) if beginning != text]

    return find


def _build_lightllm(vocabulary: Vocabulary) -> Lookup:
    """LightLLM's token healing: bisect the sorted tokens, look up every beginning, set a row of booleans."""
    pairs = sorted((text, index) for index, text in enumerate(vocabulary.token_bytes) if text)
    texts = [text for text, _ in pairs]
    order = np.array([index for _, index in pairs], np.int64)
    ids = dict(pairs)
    after = b"\xff" * max(map(len, texts))
    num_rows = vocabulary.num_rows

    def find(prefix: bytes) -> npt.NDArray[np.bool_]:
        row = np.zeros(num_rows, np.bool_)
        beginnings = (prefix[:length] for length in range(1, len(prefix) + 1))
        row[[ids[text] for text in beginnings if text in ids]] = True
        row[order[bisect_left(texts, prefix) : bisect_right(texts, prefix + after)]] = True
        return row

    return find


class _ByteTokenizer:
    """A tokenizer for llguidance, which requires one. Its encoding is never used here."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = [text or b"\xff<special>" for text in vocabulary.token_bytes]
        self.special_token_ids = [index for index, text in enumerate(vocabulary.token_bytes) if not text]
        self.eos_token_id = self.special_token_ids[0]
        self.bos_token_id = None
        self._single = {text: index for index, text in enumerate(vocabulary.token_bytes) if len(text) == 1}

    def __call__(self, text: bytes) -> list[int]:
        return [self._single[bytes([byte])] for byte in text]


class _Llguidance:
    """llguidance with the regular expression `prefix.*`."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        wrapper = llguidance.TokenizerWrapper(_ByteTokenizer(vocabulary))
        self._tokenizer = llguidance.LLTokenizer(wrapper, n_vocab=vocabulary.num_rows)
        self._num_rows = vocabulary.num_rows
        self._matchers: dict[bytes, llguidance.LLMatcher] = {}

    def find_new(self, prefix: bytes) -> npt.NDArray[np.int32]:
        """Uses a new matcher."""
        return self._fill(self._build_matcher(prefix))

    def find_kept(self, prefix: bytes) -> npt.NDArray[np.int32]:
        """Uses the matcher that was made at the first lookup of the prefix."""
        if prefix not in self._matchers:
            self._matchers[prefix] = self._build_matcher(prefix)
        return self._fill(self._matchers[prefix])

    def _build_matcher(self, prefix: bytes) -> llguidance.LLMatcher:
        literal = "".join(f"\\x{{{ord(char):x}}}" for char in prefix.decode())
        return llguidance.LLMatcher(self._tokenizer, llguidance.LLMatcher.grammar_from_regex(f"{literal}(?s:.*)"))

    def _fill(self, matcher: llguidance.LLMatcher) -> npt.NDArray[np.int32]:
        mask: npt.NDArray[np.int32] = llguidance.numpy.allocate_token_bitmask(1, self._num_rows)
        llguidance.numpy.fill_next_token_bitmask(matcher, mask)
        return mask.reshape(-1)


def _build_ours_uncached(vocabulary: Vocabulary) -> Lookup:
    trie = Trie.build(vocabulary)
    return lambda prefix: build_allowed_set(trie, prefix)


def _build_ours_cold(vocabulary: Vocabulary) -> Lookup:
    """The state after loading: only hot prefixes are cached."""
    return HotPrefixCache(Trie.build(vocabulary), max_recent=0).allowed


def _build_ours_hot(vocabulary: Vocabulary) -> Lookup:
    """Has room for every prefix of the benchmark, so that each is cached after its first lookup."""
    return HotPrefixCache(Trie.build(vocabulary), max_recent=10_000).allowed


def _ids_of_bits(mask: npt.NDArray[np.int32]) -> Iterable[int]:
    found: list[int] = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
    return found


def _ids_of_row(row: npt.NDArray[np.bool_]) -> Iterable[int]:
    found: list[int] = np.flatnonzero(row).tolist()
    return found


def ids_of_allowed_set(allowed: AllowedSet) -> Iterable[int]:
    """Returns the ids of a set."""
    ids: list[int] = allowed.ids.tolist()
    return ids


_METHODS = (
    Method("scan", _build_scan, list),
    Method("Python trie", lambda vocabulary: _PythonTrie(vocabulary).find, list),
    Method("Python trie, cached", _build_cached_python_trie, list),
    Method("marisa-trie", _build_marisa, list),
    Method("LightLLM's bisect", _build_lightllm, _ids_of_row),
    Method("llguidance, new", lambda vocabulary: _Llguidance(vocabulary).find_new, _ids_of_bits),
    Method("llguidance, kept", lambda vocabulary: _Llguidance(vocabulary).find_kept, _ids_of_bits),
    Method("midtoken, no cache", _build_ours_uncached, ids_of_allowed_set),
    Method("midtoken, cold", _build_ours_cold, ids_of_allowed_set),
    Method("midtoken, hot", _build_ours_hot, ids_of_allowed_set),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _METHODS}
