"""The language server without an editor: messages go in as JSON, and what it writes comes out. Time is simulated."""

import asyncio
import json
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from lsp_server.backend import Connect
from lsp_server.server import MidtokenServer

_Result = TypeVar("_Result")


class BareLsp:
    """A language server, and its answers.

    In `run_simulated`, what threads do is done at once, so that the order of events depends on the test only.
    """

    def __init__(self, connect: Connect, on_answer: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
        """`on_answer`: gets each answer in the moment in which it is written."""
        self.server = MidtokenServer(connect)
        self.asked, self.answered = Counter[str](), Counter[str]()  # how often, by the id as JSON
        self._on_answer = on_answer
        self.server.assistant.guard.exclusions._now_s = lambda: 0.0
        self.server.protocol.set_writer(self)

    def receive(self, message: dict[str, Any]) -> None:
        """Gives the server a message, in the same step."""
        self.note(message)
        self.server.protocol.handle_message(json.loads(json.dumps({"jsonrpc": "2.0", **message})))

    async def settle(self) -> None:
        """Lets what the last message has started begin, and what is done be answered."""
        await asyncio.sleep(0)
        open_requests = self.server.protocol._request_futures
        while any(each.done() for name, each in open_requests.items() if json.dumps(name) in self.asked):
            await asyncio.sleep(0)

    def note(self, message: object) -> None:
        """Counts a message that an answer is due to, by its id; by null if JSON-RPC does not know such an id."""
        if isinstance(message, dict) and "method" in message and "id" in message:
            self.asked[json.dumps(message["id"] if isinstance(message["id"], int | float | str) else None)] += 1

    def forget(self) -> None:
        """Begins to count anew."""
        self.asked.clear()
        self.answered.clear()

    async def initialize(self) -> None:
        """As an editor does that draws ghost text."""
        self.receive({"id": "first", "method": "initialize", "params": INITIALIZE})
        self.receive({"method": "initialized", "params": {}})
        await self.settle()

    @property
    def wrongly_answered(self) -> dict[str, int]:
        """The requests that have no answer, and those that have several: how many more than one."""
        both = {*self.asked, *self.answered}
        return {
            each: self.answered[each] - self.asked[each] for each in both if self.answered[each] != self.asked[each]
        }

    def write(self, data: bytes) -> None:
        """The server writes a message."""
        message = json.loads(data.partition(b"\r\n\r\n")[2])
        if "method" not in message:
            self.answered[json.dumps(message["id"])] += 1
            self._on_answer(message)

    def close(self) -> None:
        """The server writes no more."""


INITIALIZE: dict[str, Any] = {
    "processId": None,
    "rootUri": None,
    "capabilities": {"textDocument": {"inlineCompletion": {}}},
}


class _Selector(selectors.DefaultSelector):
    """Waits for no time, but moves the clock."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        assert ready or timeout is not None, "all tasks wait for each other"
        self.now_s += 0.0 if ready else max(timeout or 0.0, 0.0)
        return ready


def run_simulated(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Runs a coroutine in a loop whose clock moves only while all tasks wait for it."""
    selector = _Selector()
    with asyncio.Runner(loop_factory=lambda: _Loop(selector)) as runner:
        return runner.run(coroutine)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, selector: _Selector) -> None:
        self._simulated = selector
        super().__init__(selector)

    def time(self) -> float:
        return self._simulated.now_s

    def run_in_executor(self, _: object, call: Any, *arguments: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        done = self.create_future()
        done.set_result(call(*arguments))
        return done
