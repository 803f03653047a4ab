"""Asks the completion server all that one page shows of healing."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Literal

from inference.errors import ServerError, ServerUnreachableError
from inference.protocol.characters import CharacterRequest, NextByte
from inference.protocol.completion import CompletionRequest, Extent, Healing, Priority
from lsp_server.context import Context
from lsp_server.errors import to_connect_error, to_midtoken_error
from lsp_server.privacy.guard import Guard
from lsp_server.privacy.redaction import Excerpt
from midtoken.answer import Answer, complete
from midtoken.playground.link import Backend, Link
from midtoken.playground.messages import Failure, Message, Question, Waiting
from midtoken.playground.pictures import draw_healing, draw_next_byte, draw_strategy
from midtoken.text_pieces import split_tail

_MAX_TOKENS = 16  # as much of each completion as the page has room for
_NUM_TOKENIZATIONS = 3
_OTHER_STRATEGIES = (Healing.GREEDY, Healing.SINGLE, Healing.NONE)

_Part = Literal["connection", "healing", "strategy", "next_byte"]


class Asker:
    """Answers the questions of one page. A new question supersedes the one before."""

    def __init__(
        self, link: Link, guard: Guard, send: Callable[[Message], Awaitable[None]], notice_s: float = 0.3
    ) -> None:
        """If the connection takes longer than `notice_s`, the page is told that it waits."""
        self._link = link
        self._guard = guard
        self._send = send
        self._notice_s = notice_s
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
        await asyncio.to_thread(self._guard.redact, "")  # loads the rules for secrets the first time
        question = self._redact(asked)
        if question is None:
            await self._send(Failure(asked.number, "healing", "the cursor is in a secret, which is not sent"))
            return
        backend = await self._connect(question)
        if backend is None:
            return
        if await self._try(question, backend, "healing", self._ask_exact):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._try(question, backend, "strategy", self._ask_others))
                group.create_task(self._try(question, backend, "next_byte", self._ask_next_byte))

    def _redact(self, asked: Question) -> Question | None:
        """Returns the question without secrets, as the language server sends it; None if the cursor is in one."""
        context = self._guard.redact_excerpt(Excerpt("", Context(asked.prefix, asked.suffix), ""))
        return None if context is None else Question(asked.number, context.prefix, context.suffix)

    async def _connect(self, question: Question) -> Backend | None:
        opening = asyncio.ensure_future(self._link.get())
        try:
            done, _ = await asyncio.wait({opening}, timeout=self._notice_s)
            if not done:
                await self._send(Waiting(question.number))
            return await opening
        except Exception as error:  # of the operating system too
            await self._send(Failure(question.number, "connection", str(to_connect_error(error))))
            return None
        finally:
            opening.cancel()

    async def _try(
        self,
        question: Question,
        backend: Backend,
        part: _Part,
        ask: Callable[[Question, Backend], Awaitable[None]],
    ) -> bool:
        """Returns whether the part was answered; the page is told why it was not."""
        try:
            await ask(question, backend)
        except Exception as error:  # nobody awaits this task's result
            await self._send(Failure(question.number, part, str(to_midtoken_error(error))))
            if isinstance(error, ServerUnreachableError):
                await self._link.drop(backend)
            return False
        return True

    async def _ask_exact(self, question: Question, backend: Backend) -> None:
        answer = await self._complete(question, backend, Healing.EXACT)
        await self._send(draw_healing(question, answer))
        await self._send(draw_strategy(question, Healing.EXACT, answer))

    async def _ask_others(self, question: Question, backend: Backend) -> None:
        for healing in _OTHER_STRATEGIES:
            answer = await self._complete(question, backend, healing)
            await self._send(draw_strategy(question, healing, answer))

    async def _complete(self, question: Question, backend: Backend, healing: Healing) -> Answer:
        """Each strategy is a tenant, so that none gains from what another has read. Ghost text comes first."""
        request = CompletionRequest(
            question.prefix,
            suffix=question.suffix,
            max_tokens=_MAX_TOKENS,
            healing=healing,
            extent=Extent.SINGLE_LINE,
            explain=healing is Healing.EXACT,
            tenant=f"{self._page}-{healing}",
            priority=Priority.PREFETCH,
        )
        return await complete(backend, request)

    async def _ask_next_byte(self, question: Question, backend: Backend) -> None:
        before, line_end, line = question.prefix.rpartition("\n")
        piece = split_tail(line.encode(), (before + line_end).encode())
        request = CharacterRequest(piece.text, piece.context, num_members=_NUM_TOKENIZATIONS)
        started_s = time.perf_counter()
        answer = await backend.ask(request)
        if not isinstance(answer, NextByte):
            raise ServerError("the server answered a request of another kind; it may be another version of midtoken")
        await self._send(draw_next_byte(question, answer, 1e3 * (time.perf_counter() - started_s)))
