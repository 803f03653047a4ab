"""An event loop beside the engine's thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class EventLoopThread:
    """A thread with an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="midtoken-remote", daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls a function in the loop soon. Thread-safe."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it in the loop, and waits for its result. Not to be called from the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def start(self, key: object, work: Coroutine[Any, Any, None]) -> None:
        """Runs it. To be called in the loop."""
        task = self._tasks[key] = self._loop.create_task(work)
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    def cancel(self, key: object) -> None:
        """Cancels what was started under the key, if it runs. To be called in the loop."""
        if key in self._tasks:
            self._tasks[key].cancel()

    async def cancel_all(self) -> None:
        """Cancels what was started, and waits until it has ended. To be called in the loop."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """Stops the thread."""
        self.call(self._loop.stop)
        self._thread.join()
        self._loop.close()
