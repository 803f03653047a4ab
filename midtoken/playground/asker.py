"""Asks the completion server all that one page shows of healing."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable

from inference.protocol.completion import CompletionRequest, Extent, Healing
from lsp_server.backend import CompletionBackend
from lsp_server.context import Context
from lsp_server.errors import to_midtoken_error
from lsp_server.privacy.guard import Guard
from midtoken.api import Completion, read_completion
from midtoken.playground.pictures import Failure, Message, Question, draw_healing, draw_strategy

_MAX_TOKENS = 16  # as much of each completion as the page has room for
_OTHER_STRATEGIES = (Healing.GREEDY, Healing.SINGLE, Healing.NONE)


class Asker:
    """Answers the questions of one page. A new question supersedes the one before."""

    def __init__(
        self, backend: CompletionBackend, guard: Guard, send: Callable[[int, Message], Awaitable[None]]
    ) -> None:
        self._backend = backend
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
        try:
            question = self._redact(asked)
            exact = await self._complete(question, Healing.EXACT)
            await self._send(question.number, draw_healing(question, exact))
            await self._send(question.number, draw_strategy(Healing.EXACT, exact))
            for healing in _OTHER_STRATEGIES:
                answer = await self._complete(question, healing)
                await self._send(question.number, draw_strategy(healing, answer))
        except Exception as error:  # nobody awaits this task's result
            await self._send(asked.number, Failure(str(to_midtoken_error(error))))

    def _redact(self, asked: Question) -> Question:
        """What is shown is what is sent."""
        context = self._guard.redact_context(Context(asked.prefix, asked.suffix))
        return Question(asked.number, context.prefix, context.suffix)

    async def _complete(self, question: Question, healing: Healing) -> Completion:
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
        return await read_completion(self._backend.stream(self._guard.clear(request, ())))
