"""Asks the completion server all that one page shows of healing."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Literal, Protocol, TypeVar

from inference.errors import ServerUnreachableError
from inference.protocol.characters import CharacterAnswer, CharacterRequest, NextByte
from inference.protocol.completion import CompletionRequest, Extent, Healing
from lsp_server.backend import CompletionBackend
from lsp_server.context import Context, Excerpt
from lsp_server.errors import to_connect_error
from lsp_server.privacy.guard import Cleared, Guard
from midtoken.answer import Answer, check_kind, read_answer
from midtoken.input_text import split_line
from midtoken.playground.pictures import (
    Failure,
    Message,
    Question,
    Waiting,
    draw_healing,
    draw_next_byte,
    draw_strategy,
)

_MAX_TOKENS = 16  # as much of each completion as the page has room for
_NUM_TOKENIZATIONS = 3
_OTHER_STRATEGIES = (Healing.GREEDY, Healing.SINGLE, Healing.NONE)
_Part = Literal["connection", "healing", "strategy", "next_byte"]
_Found = TypeVar("_Found")


class Backend(CompletionBackend, Protocol):
    """Answers requests to the character-level model too: `midtoken.connection.Connection`."""

    async def ask(self, request: Cleared[CharacterRequest]) -> CharacterAnswer:
        """Returns the character-level model's answer."""


class Link:
    """The connection of all pages. It is opened when it is first needed, and again after it was lost."""

    def __init__(self, connect: Callable[[], Awaitable[Backend]]) -> None:
        """`connect` finds or starts the completion server."""
        self._connect = connect
        self._lock = asyncio.Lock()
        self._backend: Backend | None = None

    @property
    def is_open(self) -> bool:
        """False while it must be waited for."""
        return self._backend is not None

    async def get(self) -> Backend:
        """Returns the connection. Raises what `connect` raised."""
        async with self._lock:
            if self._backend is None:
                self._backend = await self._connect()
        return self._backend

    async def drop(self, backend: Backend) -> None:
        """Closes a connection that is lost. Does nothing for one dropped before."""
        if backend is self._backend:
            self._backend = None
            await backend.close()

    async def close(self) -> None:
        """Closes the connection."""
        if self._backend is not None:
            await self.drop(self._backend)


class Asker:
    """Answers the questions of one page. A new question supersedes the one before."""

    def __init__(self, link: Link, guard: Guard, send: Callable[[int, Message], Awaitable[None]]) -> None:
        self._link = link
        self._guard = guard
        self._send = send
        self._page = uuid.uuid4().hex
        self._task: asyncio.Task[None] | None = None

    def ask(self, question: Question) -> None:
        """Starts to answer, and cancels what is still asked for an older question."""
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(self._answer(question))

    async def close(self) -> None:
        """Cancels what is asked."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _answer(self, asked: Question) -> None:
        question = await self._try(asked.number, "healing", self._redact(asked))
        if question is None:
            return
        backend = await self._try(asked.number, "connection", self._connect(asked.number))
        if backend is None:
            return
        if await self._try(asked.number, "healing", self._ask_exact(question, backend), backend):
            others = self._try(asked.number, "strategy", self._ask_others(question, backend), backend)
            next_byte = self._try(asked.number, "next_byte", self._ask_next_byte(question, backend), backend)
            await asyncio.gather(others, next_byte)

    async def _redact(self, asked: Question) -> Question:
        """What is shown is what is sent."""
        context = self._guard.redactor.redact_excerpt(Excerpt(Context(asked.prefix, asked.suffix)))
        return Question(asked.number, context.prefix, context.suffix)

    async def _connect(self, number: int) -> Backend:
        if not self._link.is_open:
            await self._send(number, Waiting())
        return await self._link.get()

    async def _try(
        self, number: int, part: _Part, work: Awaitable[_Found], backend: Backend | None = None
    ) -> _Found | None:
        """Returns what is found; None if the part has failed, and the page is told why. `backend`: that is asked."""
        try:
            return await work
        except Exception as error:  # nobody awaits this task's result
            await self._send(number, Failure(part, str(to_connect_error(error))))
            if backend is not None and isinstance(error, ServerUnreachableError):
                await self._link.drop(backend)
            return None

    async def _ask_exact(self, question: Question, backend: Backend) -> Literal[True]:
        answer = await self._complete(question, backend, Healing.EXACT)
        await self._send(question.number, draw_healing(question, answer))
        await self._send(question.number, draw_strategy(Healing.EXACT, answer))
        return True

    async def _ask_others(self, question: Question, backend: Backend) -> None:
        for healing in _OTHER_STRATEGIES:
            answer = await self._complete(question, backend, healing)
            await self._send(question.number, draw_strategy(healing, answer))

    async def _complete(self, question: Question, backend: Backend, healing: Healing) -> Answer:
        """Each strategy is a tenant, so that none gains from what another has read."""
        request = CompletionRequest(
            question.prefix,
            suffix=question.suffix,
            max_tokens=_MAX_TOKENS,
            healing=healing,
            extent=Extent.SINGLE_LINE,
            explain=healing is Healing.EXACT,
            tenant=f"{self._page}-{healing}",
        )
        return await read_answer(backend.stream(self._guard.clear(request, ())))

    async def _ask_next_byte(self, question: Question, backend: Backend) -> None:
        started_s = time.perf_counter()
        request = replace(split_line(question.prefix), num_members=_NUM_TOKENIZATIONS)
        answer = check_kind(await backend.ask(self._guard.clear(request, ())), NextByte)
        took_ms = 1e3 * (time.perf_counter() - started_s)
        await self._send(question.number, draw_next_byte(question, answer, took_ms))
