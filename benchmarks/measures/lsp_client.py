"""A language server process, and an editor that speaks LSP with it.

It does as little work of its own as possible: edits and requests can be built before the clock starts, and answers are
not converted to objects.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from lsp_server.documents import num_units
from lsp_server.server import CURSOR_NOTIFICATION

LANGUAGE_SERVER = (sys.executable, "-m", "midtoken", "lsp")
RECORDED_LANGUAGE_SERVER = (sys.executable, "-m", "benchmarks.measures.recorded_lsp")
_CAPABILITIES: dict[str, Any] = {"textDocument": {"inlineCompletion": {}}}
_LINE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Answer:
    """How a request ended, and when on the clock of `time.perf_counter`."""

    ended_at: float
    result: Any  # JSON; None also for an error, and if the language server has ended


class LspClient:
    """An editor. Positions are in code points."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Use `start`."""
        self.process = process
        self._num_requests = 0
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._versions: dict[str, int] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: Sequence[str]) -> Self:
        """Starts the language server, and waits until it has answered `initialize`."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=_LINE_BYTES)
        client = cls(process)
        capabilities: dict[str, Any] = {"rootUri": None, "workspaceFolders": [], "capabilities": _CAPABILITIES}
        await client._ask("initialize", {"processId": None, **capabilities})
        client.write(build_message("initialized", {}))
        return client

    async def wait_for_server(self, uri: str) -> None:
        """Opens an empty document, and asks there until the language server is connected."""
        self.open(uri, "")
        while await self.complete(uri, 0, 0) is None:
            await asyncio.sleep(0.05)

    def open(self, uri: str, text: str) -> None:
        """Opens a Python file."""
        self._versions[uri] = 0
        document = {"uri": uri, "languageId": "python", "version": 0, "text": text}
        self.write(build_message("textDocument/didOpen", {"textDocument": document}))

    def rest(self, uri: str, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Tells the language server where the cursor is, or what is selected."""
        span = {"start": _to_position(start), "end": _to_position(end)}
        self.write(build_message(CURSOR_NOTIFICATION, {"textDocument": {"uri": uri}, "range": span}))

    def build_edit(self, uri: str, start: tuple[int, int], end: tuple[int, int], text: str) -> bytes:
        """The message that replaces the text between two places, each a line and a character."""
        self._versions[uri] += 1
        document = {"uri": uri, "version": self._versions[uri]}
        span = {"start": _to_position(start), "end": _to_position(end)}
        params = {"textDocument": document, "contentChanges": [{"range": span, "text": text}]}
        return build_message("textDocument/didChange", params)

    def build_request(self, uri: str, place: tuple[int, int]) -> tuple[int, bytes]:
        """The number of a new request for a completion, and its message."""
        params = {"textDocument": {"uri": uri}, "position": _to_position(place), "context": {"triggerKind": 2}}
        self._num_requests += 1
        return self._num_requests, build_message("textDocument/inlineCompletion", params, self._num_requests)

    def send(self, data: bytes, request_id: int) -> asyncio.Future[Answer]:
        """Sends messages, of which the last is this request."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        self.write(data)
        return answer

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None, "it is started with pipes"
        self.process.stdin.write(data)

    async def complete(self, uri: str, line: int, character: int, edit: bytes = b"") -> Any:
        """Sends the edit and asks. Returns the answer, JSON."""
        request_id, request = self.build_request(uri, (line, character))
        return (await self.send(edit + request, request_id)).result

    async def leave(self) -> None:
        """Ends the language server. Raises RuntimeError if it has failed."""
        await self._ask("shutdown", None)
        self.write(build_message("exit", None))
        await self._reading
        if await self.process.wait() != 0:
            raise RuntimeError(f"the language server ended with status {self.process.returncode}")

    async def _ask(self, method: str, params: Any) -> Any:
        self._num_requests += 1
        return (await self.send(build_message(method, params, self._num_requests), self._num_requests)).result

    async def _read(self) -> None:
        """Reads until the language server ends. Requests that have no answer by then have none."""
        stream = self.process.stdout
        assert stream is not None, "it is started with pipes"
        while header := await stream.readline():
            while (await stream.readline()).strip():
                pass
            body = await stream.readexactly(int(header.removeprefix(b"Content-Length:")))
            ended_at = time.perf_counter()
            message = json.loads(body)
            if "method" not in message and (answer := self._waiting.pop(message["id"], None)) is not None:
                answer.set_result(Answer(ended_at, message.get("result")))
        for answer in self._waiting.values():
            answer.set_result(Answer(time.perf_counter(), None))


def build_message(method: str, params: Any, request_id: int | None = None) -> bytes:
    """A request, or without a number a notification."""
    message = {"jsonrpc": "2.0", "method": method, "params": params, "id": request_id}
    body = json.dumps({name: value for name, value in message.items() if value is not None}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def _to_position(place: tuple[int, int]) -> dict[str, int]:
    return {"line": place[0], "character": place[1]}


def find_place(text: str, offset: int) -> tuple[int, int]:
    """Returns the line of a character, and the UTF-16 code units before it there. Lines end with line feeds only."""
    return text.count("\n", 0, offset), num_units(text[text.rfind("\n", 0, offset) + 1 : offset])
