"""An editor that sends the keys of a session to a language server on stdio, and notes when they are answered.

Messages are built before the clock starts. As editors do, it sends the edit, cancels the request of the key before if
that has no answer yet, and asks for a completion at the cursor.
"""

import asyncio
import enum
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from benchmarks.corpora.sent_requests import find_position
from benchmarks.corpora.typing import Key, KeyKind, Session
from benchmarks.measures.lsp_client import Answer, LspClient, build_message

_MAX_GAP_S = 2.0  # between two keys
_PAUSE_S = 0.4  # longer ones are pauses, of which so much is waited


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


class ReplayEditor:
    """A language server process with the session's documents open."""

    def __init__(self, client: LspClient) -> None:
        """Use `start`."""
        self._client = client

    @classmethod
    async def start(cls, command: Sequence[str], session: Session) -> Self:
        """Starts the language server, waits until it is connected, and opens the documents."""
        client = await LspClient.start(command)
        await client.wait_for_server(_build_uri(-1))
        for index, text in enumerate(session.documents):
            client.open(_build_uri(index), text)
        return cls(client)

    async def play(self, session: Session, max_gap_s: float = _MAX_GAP_S) -> list[PressedKey]:
        """Sends all keys of the session. Returns those that ask, when each has an answer or is known to have none.

        Each key follows as soon as the one before is answered, and after `max_gap_s` at the latest; but of a pause
        before it, and of the time after a move, `_PAUSE_S` are waited at most. Where the cursor is, and what is
        selected, is told at once.
        """
        texts = [*session.documents]
        sent: list[tuple[float, asyncio.Future[Answer]]] = []
        has_moved = False
        for moment in session.iter_moments():
            key, before = moment.key, texts[moment.key.document]
            if key.kind is KeyKind.DELETE:
                self._tell_cursor(key.document, before, key.start, key.end)
            if key.is_edit and (key.gap_s >= _PAUSE_S or has_moved):
                await asyncio.sleep(min(key.gap_s, _PAUSE_S))
            has_moved = not key.is_edit
            if has_moved:
                self._tell_cursor(key.document, before, key.cursor, key.cursor)
                continue
            edit = self._build_edit(key, before)
            request_id, request = self._client.build_request(
                _build_uri(key.document), _find_place(moment.text, key.cursor)
            )
            cancel = build_message("$/cancelRequest", {"id": request_id - 1})
            texts[key.document] = moment.text
            is_waiting = bool(sent) and not sent[-1][1].done()
            sent_at = time.perf_counter()
            answer = self._client.send(edit + (cancel if is_waiting else b"") + request, request_id)
            sent.append((sent_at, answer))
            await asyncio.wait([answer], timeout=max_gap_s)
        answers = [await answer for _, answer in sent]
        return [
            PressedKey(sent_at, answer.ended_at, _find_outcome(answer.result))
            for (sent_at, _), answer in zip(sent, answers, strict=True)
        ]

    async def leave(self) -> None:
        """Ends the language server. Raises RuntimeError if it has failed."""
        await self._client.leave()

    def _tell_cursor(self, document: int, text: str, start: int, end: int) -> None:
        self._client.rest(_build_uri(document), _find_place(text, start), _find_place(text, end))

    def _build_edit(self, key: Key, before: str) -> bytes:
        start, end = _find_place(before, key.start), _find_place(before, key.end)
        return self._client.build_edit(_build_uri(key.document), start, end, key.text)


def _find_outcome(result: Any) -> Outcome:
    if result is None:
        return Outcome.NONE
    return Outcome.TEXT if result["items"] else Outcome.EMPTY


def _find_place(text: str, offset: int) -> tuple[int, int]:
    position = find_position(text, offset)
    return position.line, position.character


def _build_uri(document: int) -> str:
    return f"file:///replay/{document}.py"
