"""Edits, cancels and answers in random orders: no suggestion is for a text that is gone, each request has one answer.

The real language server gets messages of an editor with one document. Its model's answers come in pieces at random
moments, or fail, and the connection is lost now and then. The same seed gives the same order of events.
"""

import asyncio
import json
import logging
import zlib
from dataclasses import dataclass, field
from random import Random
from typing import Any

from inference.errors import OverloadedError, ServerUnreachableError
from tests.support.bare_lsp import BareLsp, run_simulated
from tests.support.lsp_fakes import FedBackend, FedStream
from tests.support.reliability import Found, Reliability

_NUM_SHORT, _NUM_FULL = 150, 100_000
_NUM_STEPS_TO_END = 4  # after which each request has its answer: the first texts, further ones, and what follows them
_WORDS = ("add", "node", "é", "größe", "😀", "value", "x", "total")


def _write_text(prefix: str) -> str:
    """What the model writes after a prefix: one to three lines, always the same ones."""
    random = Random(zlib.crc32(prefix.encode()))
    lines = [" ".join(random.choices(_WORDS, k=random.randint(1, 4))) for _ in range(random.randint(1, 3))]
    return "\n".join(lines)


@dataclass(slots=True)
class _Asked:
    """A request of the editor."""

    text: str
    cursor: int
    version: int


@dataclass(slots=True)
class _Play:
    """An editor with one document, and the model."""

    random: Random
    uri: str
    lsp: BareLsp
    backends: list[FedBackend]
    found: Found
    text: str = ""
    cursor: int = 0
    version: int = 0
    asked: dict[str, _Asked] = field(default_factory=dict)
    fed: dict[FedStream, str] = field(default_factory=dict)
    ended: set[FedStream] = field(default_factory=set)
    shown: str = ""  # what is left of the last suggestion

    async def run(self) -> None:
        document = {"uri": self.uri, "languageId": "plaintext", "version": 0, "text": ""}
        self._send("textDocument/didOpen", {"textDocument": document})
        await asyncio.sleep(0.3)
        for _ in range(self.random.randint(3, 12)):
            await self.lsp.settle()
            action: Any = self.random.choices(*_ACTIONS)[0]
            action(self)
            if self.random.random() < 0.3:
                await asyncio.sleep(self.random.choice((0, 0, 0, 0.05, 0.7)))
        for _ in range(_NUM_STEPS_TO_END):
            for stream in self._find_live():
                self._end(stream)
            await asyncio.sleep(0.5)
        self.found.problems += [f"{each}: {more:+} answers" for each, more in self.lsp.wrongly_answered.items()]
        if "".join(self.lsp.server.assistant.sessions[self.uri].document.lines) != self.text:
            self._note("the server has another text")
        self._send("textDocument/didClose", {"textDocument": {"uri": self.uri}})
        await asyncio.sleep(0.1)
        if left := self._find_live():
            self._note(f"{len(left)} streams are left")

    def _note(self, problem: str) -> None:
        self.found.problems.append(f"{self.uri}: {problem}")

    def check(self, answer: dict[str, Any]) -> None:
        """Notes what is wrong with an answer, in the moment in which it is written."""
        asked = self.asked.get(json.dumps(answer["id"]))
        items = (answer.get("result") or {}).get("items")
        if asked is None or not items:
            return
        self.found.num += 1
        if asked.version != self.version:
            self._note("a suggestion for a text that is gone")
        for item in items:
            self._check_item(item, asked)

    def _check_item(self, item: dict[str, Any], asked: _Asked) -> None:
        start, end = (item["range"][name]["character"] for name in ("start", "end"))
        line_at = asked.text.rfind("\n", 0, asked.cursor) + 1
        before, after = asked.text[: asked.cursor], asked.text[asked.cursor :]
        finished = before[:line_at] + _cut_units(before[line_at:], start) + item["insertText"]
        written = [stream.request.prefix + text for stream, text in self.fed.items() if stream.request.suffix == after]
        if end != _num_units(before[line_at:]) or not any(text.startswith(finished) for text in written):
            self._note(f"a suggestion that the model has not written there: {item}")
        self.shown = finished[asked.cursor :]

    def type(self) -> None:
        """Types what is suggested, or something else."""
        num = self.random.randint(1, 3)
        typed = self.shown[:num] if self.shown and self.random.random() < 0.7 else self.random.choice("ab \n😀")
        self.shown = self.shown[num:] if self.shown.startswith(typed) else ""
        self._replace(self.cursor, self.cursor, typed)

    def delete(self) -> None:
        """Deletes the character before the cursor."""
        self._replace(max(self.cursor - 1, 0), self.cursor, "")

    def move(self) -> None:
        """Replaces the whole text, and puts the cursor somewhere else."""
        self.text = "".join(self.random.choices("ab \n", k=self.random.randint(0, 12)))
        self.cursor = self.random.randint(0, len(self.text))
        self._send_edit({"text": self.text})

    def ask(self) -> None:
        """Requests a suggestion at the cursor."""
        request_id = f"{self.uri} {len(self.asked)}"
        self.asked[json.dumps(request_id)] = _Asked(self.text, self.cursor, self.version)
        context = {"triggerKind": self.random.choice((1, 2, 2, 2))}
        params = {"textDocument": {"uri": self.uri}, "position": self._find_position(self.cursor), "context": context}
        self._send("textDocument/inlineCompletion", params, request_id)

    def cancel(self) -> None:
        """Cancels one of the last requests, which may have its answer, or one that never was."""
        request_id = json.loads(self.random.choice([*list(self.asked)[-3:], '"never"']))
        self._send("$/cancelRequest", {"id": request_id})

    def feed(self) -> None:
        """The model writes a piece of a text."""
        if live := self._find_live():
            stream = self.random.choice(live)
            text = _write_text(stream.request.prefix)
            done = len(self.fed.get(stream, ""))
            piece = text[done : done + self.random.randint(1, 9)]
            self.fed[stream] = text[:done] + piece
            stream.feed(piece)

    def finish(self) -> None:
        """The model ends a text, or the answer fails."""
        if live := self._find_live():
            self._end(self.random.choice(live))

    def lose(self) -> None:
        """The connection is lost."""
        if live := self._find_live():
            self.ended.add(live[0])
            live[0].fail(ServerUnreachableError("the connection was lost"))

    def _end(self, stream: FedStream) -> None:
        self.ended.add(stream)
        if self.random.random() < 0.1:
            stream.fail(OverloadedError("64 requests are waiting already"))
            return
        text, done = _write_text(stream.request.prefix), len(self.fed.get(stream, ""))
        self.fed[stream] = text
        stream.finish(text[done:])

    def _find_live(self) -> list[FedStream]:
        streams = [stream for backend in self.backends for stream in (*backend.streams, *backend.prefetches)]
        return [each for each in streams if not each.is_cancelled and each not in self.ended]

    def _replace(self, start: int, end: int, text: str) -> None:
        span = {"start": self._find_position(start), "end": self._find_position(end)}
        self.text = self.text[:start] + text + self.text[end:]
        self.cursor = start + len(text)
        self._send_edit({"range": span, "text": text})

    def _send_edit(self, change: dict[str, Any]) -> None:
        self.version += 1
        params = {"textDocument": {"uri": self.uri, "version": self.version}, "contentChanges": [change]}
        self._send("textDocument/didChange", params)

    def _send(self, method: str, params: Any, request_id: str | None = None) -> None:
        self.lsp.receive({"method": method, "params": params} | ({} if request_id is None else {"id": request_id}))

    def _find_position(self, at: int) -> dict[str, int]:
        line_at = self.text.rfind("\n", 0, at) + 1
        return {"line": self.text.count("\n", 0, at), "character": _num_units(self.text[line_at:at])}


_ACTIONS = (
    (_Play.type, _Play.delete, _Play.move, _Play.ask, _Play.cancel, _Play.feed, _Play.finish, _Play.lose),
    (4, 1, 1, 6, 2, 5, 2, 0.1),
)


def _num_units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _cut_units(text: str, num: int) -> str:
    return text.encode("utf-16-le")[: 2 * num].decode("utf-16-le")


def play_races(num: int, seed: int) -> Found:
    """Plays schedules, and returns what was wrong."""
    logging.disable(logging.WARNING)  # of cancels for unknown requests
    try:
        return run_simulated(_play_races(num, seed))
    finally:
        logging.disable(logging.NOTSET)


async def _play_races(num: int, seed: int) -> Found:
    found, backends, plays = Found(), list[FedBackend](), list[_Play]()

    async def connect(*_: object) -> FedBackend:
        backends.append(FedBackend())
        return backends[-1]

    lsp = BareLsp(connect, lambda answer: plays[-1].check(answer) if plays else None)
    lsp.server.assistant.connector._retry_s = 0
    await lsp.initialize()
    for number in range(num):
        plays[:] = [_Play(Random(f"{seed} {number}"), f"untitled:{number}", lsp, backends, found)]
        await plays[0].run()
        for backend in backends:
            backend.streams.clear()
            backend.prefetches.clear()
        lsp.forget()
    await lsp.server.assistant.close_all()
    return found


def test_no_suggestion_is_for_a_text_that_is_gone_and_each_request_has_one_answer(reliability: Reliability) -> None:
    num, found = reliability.measure(play_races, _NUM_SHORT, _NUM_FULL)
    figures = {"races": num, "races_wrong": len(found.problems), "races_suggestions": found.num}
    reliability.record("races", figures, found.problems)
    assert found.num > num // 5
