"""What a fleet would do under the typing of many people: a replay of drawn keys against measured service times.

Each server has one core, and takes its requests one after the other. A request costs a part that is spent even if the
next key supersedes it before it is begun, and a part that ends with it. The first request of a document for a new
place, or at a server that has not seen it there, also has to read the text around the cursor; and a server remembers
only so many documents. Most of these texts are read by a prefetch, for which nobody waits but those who come after it.
What is left out: requests that share a pass, the order in which an engine takes requests of different sizes, that it
reads a long text in parts while others wait, and that a language server sends fewer keys to a slow server.
"""

import heapq
import json
import math
import random
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from statistics import mean, median

from benchmarks.corpora.typist import draw_typing
from benchmarks.measures.report import RESULTS_DIR, Figures, Value, find_percentile
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import complete
from inference.protocol.completion import CompletionRequest, Priority
from midtoken.installed import find_default_model
from models.training.corpus import iter_held_out

_NUM_SESSIONS, _NUM_KEYS = 6, 600
_MIN_FILE_TOKENS = 1_000


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """Of a request, in seconds."""

    mean_s: float  # that finds its text read
    kept_s: float  # the part of it that is spent in any case
    spread: float  # of the logarithm
    cold_s: float  # to read a text that the server does not have
    moved_s: float  # to read what is new at another place of one that it has
    num_documents: int  # that a server remembers
    prefetched_share: float = 0.0  # of the texts, those that are read before the first key at a place


class Routing(StrEnum):
    """Which server gets a request."""

    HOME = "home"  # that of the document
    TURN = "turn"  # each server in turn


@dataclass(frozen=True, slots=True)
class Scene:
    """People who type at once, and the servers that they share."""

    num_typists: int
    num_servers: int
    routing: Routing = Routing.HOME
    needs_server: float = 1.0  # the share of the keys that a language server does not answer itself
    duration_s: float = 60.0
    downs: Sequence[tuple[float, float, int]] = ()  # from when to when which server is away; it forgets everything


@dataclass(slots=True)
class Forecast:
    """What became of the requests. `waits_s`: when they were asked, and until the answer; None if superseded."""

    waits: list[tuple[float, float | None]] = field(default_factory=list)
    num_cold: int = 0

    def find_completed(self, start_s: float = 0.0, end_s: float = float("inf")) -> float:
        """The share that was answered before the next key."""
        waits = [wait for at, wait in self.waits if start_s <= at < end_s]
        return sum(wait is not None for wait in waits) / len(waits)

    def find_wait_ms(self, percent: float, start_s: float = 0.0, end_s: float = float("inf")) -> float:
        """Until an answer."""
        found = find_percentile((wait for at, wait in self.waits if start_s <= at < end_s), percent)
        return 1e3 * (found or 0.0)


@dataclass(slots=True)
class _Server:
    free_at: float = 0.0
    places: OrderedDict[tuple[int, int], int] = field(default_factory=OrderedDict)  # the number of the last visit

    def find_reading_s(self, document: tuple[int, int], place: int, times: ServiceTimes) -> float:
        known = self.places.pop(document, None)
        self.places[document] = place
        if len(self.places) > times.num_documents:
            self.places.popitem(last=False)
        return times.cold_s if known is None else times.moved_s * (known != place)


@dataclass(frozen=True, slots=True)
class _Asked:
    gap_s: float  # since the key before
    document: int
    place: int  # the number of jumps to it


def forecast(scene: Scene, times: ServiceTimes) -> Forecast:
    """Plays the scene. The same scene always has the same outcome."""
    rng, servers, found = random.Random(1), [_Server() for _ in range(scene.num_servers)], Forecast()
    typists = [_type(scene, number) for number in range(scene.num_typists)]
    for turn, (at, until, typist, asked) in enumerate(heapq.merge(*typists)):
        document = (typist, asked.document)
        up = [each for each in range(scene.num_servers) if not _is_away(scene, each, at)]
        home = min(up, key=lambda each: hash((each, *document, 7919)) & 0xFFFFFF)
        number = up[turn % len(up)] if scene.routing is Routing.TURN else home
        server = servers[number]
        if any(start <= at and number == away and server.free_at < end for start, end, away in scene.downs):
            server.places.clear()
            server.free_at = at
        reading_s = server.find_reading_s(document, asked.place, times)
        work_s = rng.lognormvariate(-(times.spread**2) / 2, times.spread) * (times.mean_s - times.kept_s)
        start = max(at, server.free_at) + times.kept_s
        is_waited_for = rng.random() >= times.prefetched_share  # otherwise the server reads it while nobody waits
        end = start + work_s + is_waited_for * reading_s
        found.num_cold += reading_s > 0
        found.waits.append((at, end - at if end <= until else None))
        server.free_at = min(end, max(start, until)) + (not is_waited_for) * reading_s
    return found


def _is_away(scene: Scene, server: int, at: float) -> bool:
    return any(start <= at < end and server == number for start, end, number in scene.downs)


def _type(scene: Scene, typist: int) -> Iterator[tuple[float, float, int, _Asked]]:
    """When a key asks, when the next one does, who types, and where; in the order of time."""
    rng, keys = random.Random(typist), _draw_keys(typist % _NUM_SESSIONS)
    at, number = rng.uniform(0, 2.0), rng.randrange(len(keys))
    last: tuple[float, _Asked] | None = None
    while at < scene.duration_s:
        key = keys[number % len(keys)]
        at, number = at + key.gap_s, number + 1
        if rng.random() < scene.needs_server:
            if last is not None:
                yield last[0], at, typist, last[1]
            last = at, key


@cache
def _draw_keys(seed: int) -> tuple[_Asked, ...]:
    keys, waited_s, places = list[_Asked](), 0.0, dict[int, int]()
    for moment in draw_typing(_NUM_KEYS, 1 + seed, _MIN_FILE_TOKENS).iter_moments():
        key = moment.key
        waited_s += key.gap_s
        if key.is_first:
            places[key.document] = places.get(key.document, 0) + 1
        if key.is_edit:
            keys.append(_Asked(waited_s, key.document, places.get(key.document, 0)))
            waited_s = 0.0
    return tuple(keys)


_NUM_COLD, _CONTEXT_CHARS = 60, 2_000
_MEMORY_BYTES = 2048 * 2**20  # `--cache-ram`, as in the load benchmark
_DOCUMENT_BYTES = 560 * 6 * 2 * 2 * 64 * 4  # tokens of a prompt and its tree; layers, keys and values, heads, floats


def plan() -> Figures:
    """The figures of docs/scaling.md."""
    load, typing, runtimes = (_read(name) for name in ("load", "keystrokes", "runtimes"))
    spread = math.log(runtimes["line_ms_p95_embedded"] / runtimes["line_ms_embedded"]) / 1.645
    cold_s = _measure_cold_s()
    num_documents = _MEMORY_BYTES // _DOCUMENT_BYTES
    prefetched = typing["prefetched_share"]
    moved_s = cold_s * (1 - _read("fleet")["reuse_embedded"] / 100) / _find_share_of_first_keys()
    times = ServiceTimes(1 / load["capacity_per_s"], 0.0, spread, cold_s, moved_s, num_documents, prefetched)
    kept = [replace(times, kept_s=each / 10_000) for each in range(0, 160, 5)]
    times = min(kept, key=lambda each: abs(_check(each, 3.0) - load["goodput_3"]))
    share = 1 - typing["typed_ahead_share"]
    figures: dict[str, Value] = {
        "forecast_request_ms": 1e3 * times.mean_s,
        "forecast_kept_ms": 1e3 * times.kept_s,
        "forecast_cold_ms": 1e3 * cold_s,
        "forecast_moved_ms": 1e3 * moved_s,
        "forecast_goodput_1": _check(times, 1.0),
        "measured_goodput_1": load["goodput_1"],
        "forecast_goodput_1_3": _check(times, 1.3),
        "measured_goodput_1_3": load["goodput_1_3"],
        "requests_per_typist_s": share / _find_mean_gap_s(),
    }
    figures["typists_per_core"] = find_most_typists(times, share)
    for request_ms in (2, 5, 20, 50):  # of another model, or of a GPU
        other = replace(times, mean_s=request_ms / 1e3, kept_s=request_ms / 1e3 * times.kept_s / times.mean_s)
        figures[f"typists_at_{request_ms}_ms"] = find_most_typists(other, share)
    num_typists = 4 * round(0.7 * float(figures["typists_per_core"] or 0))
    calm = Scene(num_typists, 4, needs_server=share)
    scenes = {
        "home": calm,
        "turn": replace(calm, routing=Routing.TURN),
        "lost": replace(calm, downs=((30.0, 999.0, 0),)),
        "cold": replace(calm, downs=((30.0, 30.0 + runtimes["ready_s_embedded"], 0),)),
        "rolling": replace(calm, downs=tuple((10.0 * each, 10.0 * each + 8.0, each) for each in (1, 2, 3, 0))),
    }
    for name, scene in scenes.items():
        found = forecast(scene, times)
        after = (30.0, 40.0) if name in ("lost", "cold") else (10.0, 60.0)
        figures[f"{name}_ms_p50"], figures[f"{name}_ms_p99"] = (found.find_wait_ms(each, *after) for each in (50, 99))
        figures[f"{name}_answered_share"] = found.find_completed(*after)
        figures[f"{name}_cold_share"] = found.num_cold / len(found.waits)
    return {**figures, "forecast_typists": num_typists}


def find_most_typists(times: ServiceTimes, needs_server: float) -> int:
    """How many one core serves: 95 of 100 requests are answered before the next key, and 95 of those in 100 ms."""
    low, high = 1, 2_000
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        found = forecast(Scene(middle, 1, needs_server=needs_server, duration_s=30.0), times)
        is_enough = found.find_completed(5.0) >= 0.95 and found.find_wait_ms(95, 5.0) <= 100
        low, high = (middle, high) if is_enough else (low, middle)
    return low


def _check(times: ServiceTimes, load: float) -> float:
    """The goodput of the load benchmark: each key is a request, and all texts are read."""
    num_editors = max(1, round(load * _find_mean_gap_s() / times.mean_s))
    found = forecast(Scene(num_editors, 1, duration_s=40.0), replace(times, cold_s=0.0, moved_s=0.0))
    return found.find_completed() * len(found.waits) * times.mean_s / 40.0


def _find_mean_gap_s() -> float:
    return mean(key.gap_s for seed in range(_NUM_SESSIONS) for key in _draw_keys(seed))


def _find_share_of_first_keys() -> float:
    """At a place, and so with text that a server has not read for it."""
    keys = [_draw_keys(seed) for seed in range(_NUM_SESSIONS)]
    return mean(len({(key.document, key.place) for key in some}) / len(some) for some in keys)


def _read(name: str) -> dict[str, float]:
    figures: dict[str, float] = json.loads((RESULTS_DIR / f"{name}.json").read_text())["figures"]
    return figures


def _measure_cold_s() -> float:
    """The median time to read a text that fills the prompt of the default model, on one core."""
    texts, times_s = [each.text for each in iter_held_out() if len(each.text) > _CONTEXT_CHARS], list[float]()
    with closing(load_engine(EngineConfig(find_default_model(), num_threads=1))) as engine:
        for text in texts[:_NUM_COLD]:
            started_at = time.process_time()  # all threads; whoever else uses the core does not count
            complete(engine, CompletionRequest(text[:_CONTEXT_CHARS], priority=Priority.PREFETCH))
            times_s.append(time.process_time() - started_at)
    return median(times_s)
