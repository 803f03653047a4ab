"""Runs a function over many items in worker processes. A worker that hangs or dies costs one item, not the run."""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Lost:
    """An item without a result: its worker process ended, or took too long and was killed."""

    reason: str


def run_in_workers(
    function: Callable[[Item], Result], items: Sequence[Item], num_workers: int, max_seconds: float
) -> Iterator[tuple[Item, Result | Lost]]:
    """Each item with its result, as they are ready. `max_seconds`: the limit for one item.

    `function` and the items are sent to the processes, so they must be picklable. An exception of `function` ends its
    worker; another one starts.
    """
    waiting = list(reversed(items))
    workers: dict[Connection, _Worker[Item, Result]] = {}
    try:
        while waiting or workers:
            while waiting and len(workers) < num_workers:
                worker = _Worker(function)
                worker.send(waiting.pop(), max_seconds)
                workers[worker.connection] = worker
            for worker in _wait_for_some(workers):
                item, result = worker.item, worker.receive()
                yield item, result
                if isinstance(result, Lost) or not waiting:
                    workers.pop(worker.connection).close()
                else:
                    worker.send(waiting.pop(), max_seconds)
    finally:
        for worker in workers.values():
            worker.close()


class _Worker(Generic[Item, Result]):
    """A process that works on one item at a time."""

    item: Item  # the one that it works on

    def __init__(self, function: Callable[[Item], Result]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, function), daemon=True)
        self._process.start()
        there.close()
        self.deadline = 0.0  # on the monotonic clock

    def send(self, item: Item, max_seconds: float) -> None:
        self.item = item
        self._max_seconds = max_seconds
        self.deadline = time.monotonic() + max_seconds
        self.connection.send(item)

    def receive(self) -> Result | Lost:
        """The result, once it is there, the process has ended or the deadline has passed."""
        if not self.connection.poll():
            return Lost(f"took more than {self._max_seconds:g} seconds")
        try:
            result: Result = self.connection.recv()
        except EOFError:
            self._process.join()
            return Lost(f"its process ended with the exit code {self._process.exitcode}")
        return result

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()


def _wait_for_some(workers: dict[Connection, _Worker[Item, Result]]) -> list[_Worker[Item, Result]]:
    """The workers that have a result or have ended or are late."""
    first_deadline = min(worker.deadline for worker in workers.values())
    ready = wait(workers, timeout=max(first_deadline - time.monotonic(), 0))
    now = time.monotonic()
    return [worker for connection, worker in workers.items() if connection in ready or worker.deadline <= now]


def _serve(connection: Connection, function: Callable[[Item], Result]) -> None:
    while True:
        try:
            item = connection.recv()
        except EOFError:  # the parent has closed its end
            return
        connection.send(function(item))
