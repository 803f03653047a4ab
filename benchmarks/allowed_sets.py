"""The time to find the allowed set of a prefix: the tokens that start with it, or with which it starts.

The other methods are those of the blog post and LightLLM's, each as its author describes it. The vocabulary has 151,643
tokens. The prefixes are the blog post's examples, and the unfinished pre-tokens before 3,000 random cursors in held-out
files of the Python standard library, split as that vocabulary's tokenizer does. Each method's sets of the examples are
compared with those of the scan.
"""

import gc
import random
import statistics
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import regex
from rich.progress import track

from benchmarks.corpora.large_tokenizer import PATTERN, read_large_vocabulary
from benchmarks.measures.report import Row, format_number, print_rows, write_report
from models.training.corpus import iter_held_out
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

Lookup = Callable[[bytes], Any]  # each method has its own type of result: ids, or a row of booleans

_NUM_ROWS = 151_936  # rows of the output head of the model with this vocabulary
_EXAMPLES = (b"test", b"ing", b" not", b"a", b" ")  # from the blog post
_NUM_TAILS = 3000
_NUM_REPEATS = 5
_METHOD_SECONDS = 0.6  # a repeat of a slow method makes as many calls as fit into this time
_NUM_KEPT = 1000  # the blog post's bound: sets of prefixes with more tokens are computed in advance


def main() -> None:
    vocabulary = read_large_vocabulary(_NUM_ROWS)
    tails = _draw_tails(_NUM_TAILS)
    methods = _build_methods(vocabulary)
    wanted = {prefix: _to_ids(methods["scan"](prefix)) for prefix in _EXAMPLES}
    rows = []
    for name, lookup in track(methods.items(), "Methods"):
        is_same = all(_to_ids(lookup(prefix)) == ids for prefix, ids in wanted.items())
        rows.append({"method": name, **_measure(lookup, tails), "same set": is_same})
    print_rows("Microseconds for one allowed set, 151,643 tokens", rows)
    cold, hot = rows[-2:]
    figures = {
        "cold_p50_us": cold["tails p50"],
        "cold_p99_us": cold["p99"],
        "hot_p99_us": hot["p99"],
        "blank_us": cold[repr(" ")],
        "equal_to_scan": all(row["same set"] for row in rows),
    }
    write_report("allowed_sets", rows, figures)


def _build_methods(vocabulary: Vocabulary) -> dict[str, Lookup]:
    """The methods by name; ours is first as it is after loading, then with room for every prefix of the benchmark."""
    trie = Trie.build(vocabulary)
    return {
        "scan": _build_scan(vocabulary),
        "Python trie, cached": _build_cached_python_trie(vocabulary),
        "LightLLM's bisect": _build_bisection(vocabulary),
        "midtoken, cold": HotPrefixCache(trie, max_recent=0).find,
        "midtoken, hot": HotPrefixCache(trie, max_recent=10_000).find,
    }


def _build_scan(vocabulary: Vocabulary) -> Lookup:
    """The blog post's first version: compares the prefix with every token."""
    tokens = [(index, text) for index, text in enumerate(vocabulary.token_bytes) if text]
    return lambda prefix: [index for index, text in tokens if text.startswith(prefix) or prefix.startswith(text)]


class _Node:
    """The blog post's second version: a node for every prefix. It collects all nodes below the prefix."""

    __slots__ = ("children", "ids")

    def __init__(self) -> None:
        self.children: dict[int, _Node] = {}
        self.ids: list[int] = []

    def add(self, text: bytes, index: int) -> None:
        node = self
        for byte in text:
            node = node.children.setdefault(byte, _Node())
        node.ids.append(index)

    def find(self, prefix: bytes) -> list[int]:
        node, allowed = self, list[int]()
        for byte in prefix:
            allowed += node.ids
            if byte not in node.children:
                return allowed
            node = node.children[byte]
        return allowed + node.collect()

    def collect(self) -> list[int]:
        found, waiting = list[int](), [self]
        while waiting:
            node = waiting.pop()
            found += node.ids
            waiting.extend(node.children.values())
        return found


def _build_cached_python_trie(vocabulary: Vocabulary) -> Lookup:
    """The blog post's last version: sets of prefixes with more than 1,000 tokens are computed in advance."""
    root = _Node()
    for index, text in enumerate(vocabulary.token_bytes):
        if text:
            root.add(text, index)
    kept: dict[bytes, list[int]] = {}
    waiting = [(b"", root)]
    while waiting:
        prefix, node = waiting.pop()
        if len(node.collect()) > _NUM_KEPT:
            kept[prefix] = root.find(prefix)
            waiting += [(prefix + bytes([byte]), child) for byte, child in node.children.items()]

    def find(prefix: bytes) -> list[int]:
        found = kept.get(prefix)
        return root.find(prefix) if found is None else found

    return find


def _build_bisection(vocabulary: Vocabulary) -> Lookup:
    """LightLLM's token healing: bisect the sorted tokens, look up every beginning, set a row of booleans."""
    pairs = sorted((text, index) for index, text in enumerate(vocabulary.token_bytes) if text)
    texts = [text for text, _ in pairs]
    order = np.array([index for _, index in pairs], np.int64)
    ids = dict(pairs)
    after = b"\xff" * max(map(len, texts))

    def find(prefix: bytes) -> npt.NDArray[np.bool_]:
        row = np.zeros(vocabulary.num_rows, np.bool_)
        beginnings = (prefix[:length] for length in range(1, len(prefix) + 1))
        row[[ids[text] for text in beginnings if text in ids]] = True
        row[order[bisect_left(texts, prefix) : bisect_right(texts, prefix + after)]] = True
        return row

    return find


def _to_ids(found: Any) -> set[int]:
    """The ids of a method's result."""
    if isinstance(found, list):
        return set(found)
    return set((np.flatnonzero(found) if found.dtype == np.bool_ else found).tolist())


def _draw_tails(count: int) -> list[bytes]:
    """Draws unfinished pre-tokens before random cursors. Each character of the files is equally likely."""
    rng = random.Random(1)
    pre_token = regex.compile(PATTERN)
    texts = [file.text for file in iter_held_out()]
    tails = []
    for text in rng.choices(texts, [len(text) for text in texts], k=count):
        cursor = rng.randrange(1, len(text) + 1)
        tails.append(pre_token.findall(text[max(cursor - 500, 0) : cursor])[-1].encode())
    return tails


def _measure(lookup: Lookup, tails: Sequence[bytes]) -> Row:
    """The times of one method in microseconds: the median for each example, and percentiles over the tails."""
    row: dict[str, str | float] = {}
    for prefix in _EXAMPLES:
        first = _time_calls(lookup, [prefix])[0]
        num_calls = int(min(max(_METHOD_SECONDS / 10 / (first / 1e6), 3), 1000))
        row[repr(prefix.decode())] = float(np.median(_time_calls(lookup, [prefix] * num_calls)))
    mean_us = float(_time_calls(lookup, tails[:20]).mean())
    tails = tails[: max(int(_METHOD_SECONDS / (mean_us / 1e6)), 20)]
    _time_calls(lookup, tails)  # fills the caches of the methods that have one
    repeats = [_time_calls(lookup, tails) for _ in range(_NUM_REPEATS)]
    p99s = [float(np.percentile(repeat, 99)) for repeat in repeats]
    row["tails p50"] = statistics.median(float(np.percentile(repeat, 50)) for repeat in repeats)
    row["p99"] = statistics.median(p99s)
    return row | {"spread of p99": f"{format_number(min(p99s))}–{format_number(max(p99s))}", "num tails": len(tails)}


def _time_calls(lookup: Lookup, prefixes: Sequence[bytes]) -> npt.NDArray[np.float64]:
    """Returns the microseconds of each call, without the garbage collector, as in timeit."""
    clock = time.perf_counter_ns
    times = np.empty(len(prefixes))
    gc.disable()
    for index, prefix in enumerate(prefixes):
        start = clock()
        lookup(prefix)
        times[index] = clock() - start
    gc.enable()
    return times / 1000


if __name__ == "__main__":
    main()
