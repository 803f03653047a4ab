"""Writes observations of metrics some time after the answer, in a thread of its own.

Each write is a round trip from the model's process to tritonserver. The seven of a request take longer than the rest of
a short answer. Counts are added up before they are written.
"""

import queue
import threading
from collections.abc import Callable, Iterable

from inference.engine.metrics import Observation

_DELAY_S = 0.25


class LateObservations:
    """Observations that were not written yet."""

    def __init__(self, write: Callable[[Observation], None]) -> None:
        """Starts the thread, the only one that calls `write`."""
        self._write = write
        self._queue: queue.SimpleQueue[Observation | None] = queue.SimpleQueue()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="midtoken-metrics", daemon=True)
        self._thread.start()

    def add(self, observations: Iterable[Observation]) -> None:
        """Writes the observations later. Thread-safe."""
        for observation in observations:
            self._queue.put(observation)

    def close(self) -> None:
        """Writes what is left and stops the thread."""
        self._is_closed.set()
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            self._is_closed.wait(_DELAY_S)
            observations = [first]
            while not self._queue.empty() and (more := self._queue.get()) is not None:
                observations.append(more)
            for observation in _add_up(observations):
                self._write(observation)
            if self._is_closed.is_set() and self._queue.empty():
                return


def _add_up(observations: Iterable[Observation]) -> list[Observation]:
    """One observation for each count, and those of distributions as they are."""
    sums: dict[Observation, float] = {}
    others = []
    for seen in observations:
        if seen.metric.buckets_ms:
            others.append(seen)
        else:
            key = Observation(seen.metric, 0, seen.outcome)
            sums[key] = sums.get(key, 0) + seen.value
    return [*(Observation(key.metric, value, key.outcome) for key, value in sums.items()), *others]
