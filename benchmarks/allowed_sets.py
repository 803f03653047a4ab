"""The time and memory for finding the allowed set of a prefix, and whether the set is right.

The vocabulary has 151,643 tokens. The prefixes are the blog post's examples, and the unfinished pre-tokens before 3,000
random cursors in held-out files of the Python standard library, split as that vocabulary's tokenizer does.
"""

import argparse
import gc
import itertools
import multiprocessing
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import regex
from rich.progress import track

from benchmarks.baselines.allowed_set_methods import METHODS, Lookup, ids_of_allowed_set
from benchmarks.corpora.large_tokenizer import read_large_vocabulary
from benchmarks.measures.report import Row, format_number, print_rows, write_report
from models.training.corpus import iter_held_out
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NUM_ROWS = 151_936  # rows of the output head of the model with this vocabulary
_EXAMPLES = (b"test", b"ing", b" not", b"a", b" ")  # from the blog post
_PRE_TOKEN = regex.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NUM_TAILS = 3000
_NUM_REPEATS = 5
_NUM_BUILDS = 3
_METHOD_SECONDS = 0.6  # a repeat of a slow method makes as many calls as fit into this time
_NUM_SCANNED = 150  # prefixes that are also compared with the plain scan, which takes 50 ms each


@dataclass(frozen=True, slots=True)
class _Timing:
    """The times of one method, in microseconds."""

    examples: tuple[float, ...]  # median for each of _EXAMPLES
    p50: float  # over the tails; the median of the repeats
    p99: float
    p99_spread: str  # least and greatest of the repeats
    num_tails: int


@dataclass(frozen=True, slots=True)
class _Cost:
    """The cost of building a method, including reading the vocabulary, measured in its own process."""

    build_s: float
    build_spread: str
    memory_mb: float  # the growth of the process
    peak_mb: float


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    vocabulary = read_large_vocabulary(_NUM_ROWS)
    tails = _draw_tails(_NUM_TAILS)
    wanted = {prefix: _scan(vocabulary, prefix) for prefix in _EXAMPLES}
    rows, timings, costs = [], {}, {}
    for name in track(METHODS, "Methods"):
        costs[name] = _measure_cost(name)
        lookup = METHODS[name].build(vocabulary)
        timings[name] = _measure(lookup, tails)
        same = all(set(METHODS[name].to_ids(lookup(prefix))) == ids for prefix, ids in wanted.items())
        rows.append(_to_row(name, timings[name], costs[name], same))
    trie = Trie.build(vocabulary)
    worst = _find_worst(trie)
    print_rows("Microseconds for one allowed set, 151,643 tokens", [_shorten(row) for row in rows])
    num_compared, is_equal = _compare_with_scan(vocabulary, trie)
    cold = timings["midtoken, cold"]
    figures = {
        "build_s": costs["midtoken, cold"].build_s,
        "memory_mb": costs["midtoken, cold"].memory_mb,
        "equal_to_scan": is_equal,
        "num_prefixes_compared": num_compared,
        "cold_p50_us": cold.p50,
        "cold_p99_us": cold.p99,
        "hot_p99_us": timings["midtoken, hot"].p99,
        "worst_prefix_us": worst,
        "blank_us": cold.examples[_EXAMPLES.index(b" ")],
    }
    print_rows("midtoken", [{"figure": name, "value": value} for name, value in figures.items()])
    print(write_report("allowed_sets", rows, figures, _draw(timings)))


def _draw_tails(count: int) -> list[bytes]:
    """Draws unfinished pre-tokens before random cursors. Each character of the files is equally likely."""
    rng = random.Random(1)
    texts = [file.text for file in iter_held_out()]
    tails = []
    for text in rng.choices(texts, [len(text) for text in texts], k=count):
        cursor = rng.randrange(1, len(text) + 1)
        pieces = _PRE_TOKEN.findall(text[max(cursor - 500, 0) : cursor])
        tails.append(pieces[-1].encode())
    return tails


def _measure(lookup: Lookup, tails: Sequence[bytes]) -> _Timing:
    examples = []
    for prefix in _EXAMPLES:
        first = _time_calls(lookup, [prefix])[0]
        num_calls = int(min(max(_METHOD_SECONDS / 10 / (first / 1e6), 3), 1000))
        examples.append(float(np.median(_time_calls(lookup, [prefix] * num_calls))))
    mean_us = float(_time_calls(lookup, tails[:20]).mean())
    tails = tails[: max(int(_METHOD_SECONDS / (mean_us / 1e6)), 20)]
    _time_calls(lookup, tails)  # fills the caches of the methods that have one
    repeats = [_time_calls(lookup, tails) for _ in range(_NUM_REPEATS)]
    p99s = [float(np.percentile(repeat, 99)) for repeat in repeats]
    return _Timing(
        examples=tuple(examples),
        p50=statistics.median(float(np.percentile(repeat, 50)) for repeat in repeats),
        p99=statistics.median(p99s),
        p99_spread=f"{format_number(min(p99s))}–{format_number(max(p99s))}",
        num_tails=len(tails),
    )


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


def _measure_cost(name: str) -> _Cost:
    context = multiprocessing.get_context("spawn")
    measured = []
    for _ in range(_NUM_BUILDS):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_send_cost, args=(name, sender))
        child.start()
        sender.close()  # so that `recv` raises if the child fails
        measured.append(receiver.recv())
        child.join()
    builds, held, peaks = zip(*measured, strict=True)
    return _Cost(
        build_s=statistics.median(builds),
        build_spread=f"{min(builds):.2f}–{max(builds):.2f}",
        memory_mb=statistics.median(held),
        peak_mb=statistics.median(peaks),
    )


def _send_cost(name: str, sender: Connection) -> None:
    build = METHODS[name].build
    before = _read_memory_mb("VmRSS")
    start = time.perf_counter()
    lookup = build(read_large_vocabulary(_NUM_ROWS))
    seconds = time.perf_counter() - start
    gc.collect()
    sender.send((seconds, _read_memory_mb("VmRSS") - before, _read_memory_mb("VmHWM") - before))
    del lookup


def _read_memory_mb(field: str) -> float:
    [kilobytes] = regex.findall(rf"{field}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(kilobytes) / 1024


def _find_worst(trie: Trie) -> float:
    """Returns the microseconds of the slowest stored prefix, by the median of each prefix's repeats."""
    prefixes = [prefix for prefix, _ in trie.iter_prefixes()]
    lookup = HotPrefixCache(trie, max_recent=0).allowed
    repeats = [_time_calls(lookup, prefixes) for _ in track(range(_NUM_REPEATS), f"{len(prefixes):,} prefixes")]
    return float(np.median(repeats, axis=0).max())


def _scan(vocabulary: Vocabulary, prefix: bytes) -> set[int]:
    """Returns the allowed set by the blog post's rule, applied to every token."""
    tokens = enumerate(vocabulary.token_bytes)
    return {index for index, text in tokens if text and (text.startswith(prefix) or prefix.startswith(text))}


def _compare_with_scan(vocabulary: Vocabulary, trie: Trie) -> tuple[int, bool]:
    """Returns how many prefixes were compared, and whether the ids were right for all of them.

    A scan for every prefix would take hours, so the two loops are swapped: each token is added to the sets of all its
    prefixes. For some prefixes, the result is compared with the scan itself.
    """
    extensions: dict[bytes, list[int]] = {}
    ids_of: dict[bytes, list[int]] = {}
    for index, text in enumerate(vocabulary.token_bytes):
        if text:
            ids_of.setdefault(text, []).append(index)
            for length in range(1, len(text) + 1):
                extensions.setdefault(text[:length], []).append(index)
    scanned = {*random.Random(1).sample(sorted(extensions), _NUM_SCANNED), *_EXAMPLES}
    cache = HotPrefixCache(trie)
    is_equal = True
    for prefix, extending in track(extensions.items(), "Comparing with the scan"):
        beginnings = (prefix[:length] for length in range(1, len(prefix)))
        wanted = {*extending, *itertools.chain.from_iterable(ids_of.get(text, ()) for text in beginnings)}
        found = list(ids_of_allowed_set(cache.allowed(prefix)))
        is_equal &= len(found) == len(wanted) and set(found) == wanted
        if prefix in scanned:
            is_equal &= wanted == _scan(vocabulary, prefix)
    return len(extensions), is_equal


def _to_row(name: str, timing: _Timing, cost: _Cost, same: bool) -> Row:
    examples = {repr(prefix.decode()): value for prefix, value in zip(_EXAMPLES, timing.examples, strict=True)}
    return {
        "method": name,
        **examples,
        "tails p50": timing.p50,
        "p99": timing.p99,
        "spread of p99": timing.p99_spread,
        "num tails": timing.num_tails,
        "build s": cost.build_s,
        "spread of build s": cost.build_spread,
        "MB": cost.memory_mb,
        "peak MB": cost.peak_mb,
        "same set": same,
    }


def _shorten(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("num tails", "spread of build s", "peak MB")}


def _draw(timings: dict[str, _Timing]) -> "Figure":
    from matplotlib.figure import Figure  # here, so that processes that measure memory do not load it

    figure = Figure(figsize=(8, 4))
    axes = figure.add_subplot()
    names = list(reversed(timings))
    series = (
        ("median cursor", "o", [timings[name].p50 for name in names]),
        ("99th percentile", "D", [timings[name].p99 for name in names]),
        ("a blank, 53,021 tokens", "|", [timings[name].examples[-1] for name in names]),
    )
    for label, marker, values in series:
        axes.plot(values, names, marker, label=label, markersize=7 if marker != "|" else 13, markeredgewidth=1.8)
    axes.set_xscale("log")
    axes.set_xlabel("µs for one allowed set (151,643 tokens)")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
