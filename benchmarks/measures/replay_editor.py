"""An editor that sends the keys of a session to a language server on stdio, and notes when they are answered.

It speaks LSP with as little work of its own as possible: messages are built before the clock starts, and answers are
not converted to objects. As editors do, it sends the edit, cancels the request of the key before if that has no answer
yet, and asks for a completion at the cursor.
"""

import asyncio
import enum
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from benchmarks.corpora.sent_requests import find_position
from benchmarks.corpora.typing import Moment, Session

_LINE_BYTES = 2**20


class Outcome(enum.Enum):
    """How a key's request ended."""

    TEXT = "text"  # there is something to suggest
    EMPTY = "empty"  # there is nothing to suggest
    NONE = "none"  # no answer: superseded or failed


@dataclass(frozen=True, slots=True)
class PressedKey:
    """A key that was sent. Times are those of `time.perf_counter`."""

    sent_at: float
    ended_at: float  # when the answer arrived; for a key without one, when it was known that there is none
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class _Answer:
    ended_at: float
    outcome: Outcome


class ReplayEditor:
    """A language server process with the session's documents open."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Use `start`."""
        self._process = process
        self._num_requests = 0
        self._waiting: dict[int, asyncio.Future[_Answer]] = {}
        self._versions: dict[int, int] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: Sequence[str], session: Session) -> Self:
        """Starts the language server, opens the documents, and waits until it is connected."""
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LINE_BYTES
        )
        editor = cls(process)
        capabilities = {
            "textDocument": {"inlineCompletion": {}},
            "general": {"positionEncodings": ["utf-32"]},
        }
        await editor._ask("initialize", {"processId": None, "rootUri": None, "capabilities": capabilities})
        editor._write(_build_message("initialized", {}))
        editor._open(-1, "")
        while (await editor._ask("textDocument/inlineCompletion", _build_position(-1, "", 0))).outcome is Outcome.NONE:
            await asyncio.sleep(0.1)
        for index, document in enumerate(session.documents):
            editor._open(index, document.text)
        return editor

    async def play(self, session: Session, max_gap_s: float | None) -> list[PressedKey]:
        """Sends all keys of the session. Returns those that ask, when each has an answer or is known to have none.

        Without `max_gap_s`, keys are sent at the times of the session, whatever the server does. Otherwise each key
        follows as soon as the one before is answered, and after `max_gap_s` at the latest.
        """
        texts = [document.text for document in session.documents]
        sent: list[tuple[float, asyncio.Future[_Answer]]] = []
        due_at = time.perf_counter()
        for moment in session.iter_moments():
            due_at += moment.key.gap_s
            if not moment.key.asks:  # nor does it edit
                continue
            messages = self._build_key(moment, texts[moment.key.document])
            texts[moment.key.document] = moment.text
            if max_gap_s is None:
                await asyncio.sleep(due_at - time.perf_counter())
            sent_at, answer = self._press(messages, sent[-1][1] if sent else None)
            sent.append((sent_at, answer))
            if max_gap_s is not None:
                await asyncio.wait([answer], timeout=max_gap_s)
        answers = [await answer for _, answer in sent]
        return [
            PressedKey(sent_at, answer.ended_at, answer.outcome)
            for (sent_at, _), answer in zip(sent, answers, strict=True)
        ]

    async def leave(self) -> None:
        """Ends the language server. Raises RuntimeError if it has failed."""
        await self._ask("shutdown", None)
        self._write(_build_message("exit", None))
        await self._reading
        if await self._process.wait() != 0:
            raise RuntimeError(f"the language server ended with status {self._process.returncode}")

    def _open(self, document: int, text: str) -> None:
        self._versions[document] = 0
        item = {"uri": _build_uri(document), "languageId": "python", "version": 0, "text": text}
        self._write(_build_message("textDocument/didOpen", {"textDocument": item}))

    def _build_key(self, moment: Moment, before: str) -> "_Messages":
        key = moment.key
        edit = b""
        if key.is_edit:
            self._versions[key.document] += 1
            identity = {"uri": _build_uri(key.document), "version": self._versions[key.document]}
            span = {"start": _find_position(before, key.start), "end": _find_position(before, key.end)}
            params = {"textDocument": identity, "contentChanges": [{"range": span, "text": key.text}]}
            edit = _build_message("textDocument/didChange", params)
        self._num_requests += 1
        position = _build_position(key.document, moment.text, key.cursor)
        request = _build_message("textDocument/inlineCompletion", position, self._num_requests)
        return _Messages(self._num_requests, edit, request)

    def _press(
        self, messages: "_Messages", before: "asyncio.Future[_Answer] | None"
    ) -> "tuple[float, asyncio.Future[_Answer]]":
        cancel = b""
        if before is not None and not before.done():
            cancel = _build_message("$/cancelRequest", {"id": messages.request_id - 1})
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._waiting[messages.request_id] = answer
        sent_at = time.perf_counter()
        self._write(messages.edit + cancel + messages.request)
        return sent_at, answer

    async def _ask(self, method: str, params: Any) -> _Answer:
        self._num_requests += 1
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._waiting[self._num_requests] = answer
        self._write(_build_message(method, params, self._num_requests))
        return await answer

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None, "it is started with pipes"
        self._process.stdin.write(data)

    async def _read(self) -> None:
        """Reads until the language server ends. Requests that have no answer by then have none."""
        stream = self._process.stdout
        assert stream is not None, "it is started with pipes"
        while header := await stream.readline():
            num_bytes = int(header.removeprefix(b"Content-Length:"))
            while (await stream.readline()).strip():
                pass
            body = await stream.readexactly(num_bytes)
            ended_at = time.perf_counter()
            message = json.loads(body)
            if "method" not in message and (answer := self._waiting.pop(message["id"], None)) is not None:
                answer.set_result(_Answer(ended_at, _find_outcome(message)))
        for answer in self._waiting.values():
            answer.set_result(_Answer(time.perf_counter(), Outcome.NONE))


@dataclass(frozen=True, slots=True)
class _Messages:
    """What a key sends: its edit, if it has one, and its request."""

    request_id: int
    edit: bytes
    request: bytes


def _find_outcome(message: dict[str, Any]) -> Outcome:
    result = message.get("result")
    if result is None:
        return Outcome.NONE
    return Outcome.TEXT if result.get("items") else Outcome.EMPTY


def _build_position(document: int, text: str, cursor: int) -> dict[str, Any]:
    return {
        "textDocument": {"uri": _build_uri(document)},
        "position": _find_position(text, cursor),
        "context": {"triggerKind": 2},
    }


def _find_position(text: str, offset: int) -> dict[str, int]:
    position = find_position(text, offset)
    return {"line": position.line, "character": position.character}


def _build_uri(document: int) -> str:
    return f"file:///replay/{document}.py"


def _build_message(method: str, params: Any, request_id: int | None = None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    if request_id is not None:
        message["id"] = request_id
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
