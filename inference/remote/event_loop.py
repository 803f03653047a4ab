"""An event loop beside the engine's thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class EventLoopThread:
    """A thread with an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="midtoken-remote", daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls a function in the loop soon. Thread-safe."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs it in the loop. Cancelling the result cancels it. Thread-safe."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it in the loop, and waits for its result. Not to be called from the loop."""
        return self.start(work).result()

    async def cancel_all(self) -> None:
        """Cancels what was started, and waits until it has ended. To be called in the loop."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """Stops the thread."""
        self.call(self._loop.stop)
        self._thread.join()
        self._loop.close()
