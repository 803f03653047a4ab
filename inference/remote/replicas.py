"""The servers that have one model: which of them completes a document, and what becomes of one that is down.

A document keeps to one server, which remembers its text. While that one does not answer, the next one takes its place.
"""

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, cast

import numpy as np

from inference.errors import MidtokenError, ModelError, OverloadedError, ServerUnreachableError, quote
from inference.protocol.completion import CompletionRequest, FinishReason
from inference.remote.choice import GAP
from inference.remote.discovery import Find, RemoteServer, find_server
from inference.remote.http_client import HttpClient, ask_all, reading

_log = logging.getLogger(__name__)
_TRUST_S = 1.0  # since the last answer; in a shorter time none is started again
_AVOID_S = 10.0  # a server that did not answer
_SLOW_S = 5.0  # without an answer, after which another server may be faster
_LOADING_S, _LOOK_S = 300.0, 1.0  # at the start, while one is busy
_GRACE_S = 2.0  # at the start, once another one will do
T = TypeVar("T")


class Replica:
    """A server, and what is known of it."""

    def __init__(
        self, http: HttpClient, sample: Sequence[tuple[str, tuple[int, ...]]], find: Find = find_server
    ) -> None:
        """`sample`: texts, with the tokens that they must have there. `find`: says which server it is."""
        self.http, self._sample, self._find = http, sample, find
        self.max_tokens = 0  # of its window; 0 if that is not known
        self._server: RemoteServer | None = None  # until it has been measured, and again after any failure
        self._identity: object = None
        self._checking: asyncio.Task[None] | None = None
        self._answered_at = self._checked_at = self.avoided_until = -math.inf

    async def find(self, patience_s: float) -> RemoteServer:
        """Its server. Raises as `check` does."""
        while not self._server:
            await self.check(patience_s)
        return self._server

    async def ask(self, work: Callable[[], Awaitable[T]], patience_s: float) -> T:
        """The result of the work, if the server has the right model. The work may fail because it has another one."""

        async def do_work() -> T:
            try:
                return await work()
            except MidtokenError:
                await self.check()
                raise

        asked_at = time.monotonic()
        try:
            result, _ = await ask_all([do_work(), self.check(patience_s)])
        except asyncio.CancelledError:
            if time.monotonic() - asked_at > _SLOW_S:
                self.avoided_until = time.monotonic() + _AVOID_S
            raise
        self._answered_at = time.monotonic()
        return cast("T", result)

    async def check(self, patience_s: float = math.inf) -> None:
        """Finds out whether it will do, unless that is known. A request that ends does not end this for the others.

        Raises ModelError, ServerError or OverloadedError; ServerUnreachableError if it takes longer than `patience_s`.
        """
        now = time.monotonic()
        if self._server and now - self._answered_at < _TRUST_S:
            return
        if not self._checking or self._checking.done():
            self._checking, self._checked_at = asyncio.create_task(self._check()), now
            self._checking.add_done_callback(lambda task: task.cancelled() or task.exception())
        checking = self._checking
        await asyncio.wait({checking}, timeout=self._checked_at + patience_s - now)
        if not checking.done():
            raise ServerUnreachableError(f"{self.http.name} does not answer: it was silent for too long")
        checking.result()

    async def find_failure(self) -> MidtokenError | None:
        """Why it will not do, if so."""
        try:
            await self.check()
        except MidtokenError as error:
            self.avoid(error)
            return error
        return None

    async def _check(self) -> None:
        with reading(self.http.name):
            server, known = self._server, self._identity
            if not server:
                server, known = await self._find(self.http), None
            identity = await server.identify()
            if identity != known:
                await self._compare_tokens(server)
                await self._measure(server)
        self.http.is_quoted = False
        self._server, self._identity, self.max_tokens = server, identity, server.max_tokens
        self._answered_at = time.monotonic()

    async def _compare_tokens(self, server: RemoteServer) -> None:
        for text, expected in self._sample:
            if await server.tokenize(text) != expected:
                raise ModelError(
                    f"{server.name} makes other tokens of {quote(text)} than the tokenizer of --model: it has "
                    "another model, or another version of it"
                )

    async def _measure(self, server: RemoteServer) -> None:
        """Asks about one row in all ways, whose answers must agree. What stands before the server may drop fields."""
        request, row = CompletionRequest("", max_tokens=1), self._sample[0][1]
        (told,) = (await server.score(request, [row])).rows
        best, second = sorted(told, key=told.__getitem__, reverse=True)[:2]
        forced = await server.answer(request, row, (second,))
        written = [step async for step in server.generate(request, row) if not isinstance(step, FinishReason)]
        if forced[0] != second or abs(forced[1] - told[second]) > GAP:
            raise ModelError(f"{server.name} tells other log probabilities for a token alone than beside others")
        if [told.get(each, -math.inf) >= told[best] - GAP for each in written] != [True]:
            raise ModelError(f"{server.name} does not write one token, the most likely one, if it is asked for that")

    def avoid(self, error: MidtokenError) -> None:
        """Has others asked before it for a while, because of the error, and measures it again before it is used."""
        if self.avoided_until < time.monotonic():  # each key of a minute has the same
            _log.warning("%s", error)
        self.avoided_until, self._server = time.monotonic() + _AVOID_S, None

    async def close(self) -> None:
        """Ends all work."""
        if self._checking:
            self._checking.cancel()
            await asyncio.wait({self._checking})
        await self.http.close()


class Replicas:
    """All servers of an engine."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._all = replicas

    @property
    def name(self) -> str:
        """Of all of them."""
        return " and ".join(each.http.name for each in self._all)

    @property
    def max_tokens(self) -> int:
        """Of the smallest window."""
        return min((each.max_tokens for each in self._all if each.max_tokens), default=0)

    def new_random_source(self, seed: int | None) -> np.random.Generator:
        """As a `LanguageModel` does."""
        return np.random.default_rng(seed)

    async def open(self) -> None:
        """Checks all, but waits for none long once one will do. One that will not is checked again before it is used.

        Where none will and one is busy, it waits: llama.cpp's server is busy while it loads. Raises as `Replica.check`.
        """
        started_at = time.monotonic()
        while True:
            failures: list[MidtokenError] = []
            checks = [asyncio.ensure_future(each.find_failure()) for each in self._all]
            for check in asyncio.as_completed(checks):
                if not (failure := await check):
                    await asyncio.wait(checks, timeout=_GRACE_S)
                    return
                failures.append(failure)
            is_busy = any(isinstance(error, OverloadedError) for error in failures)
            if not is_busy or time.monotonic() - started_at > _LOADING_S:
                raise failures[0]
            await asyncio.sleep(_LOOK_S)

    def order(self, request: CompletionRequest) -> list[Replica]:
        """All of them, in the order in which they are asked."""
        now = time.monotonic()

        def rank(replica: Replica) -> tuple[bool, bytes]:
            name = f"{replica.http.url}\0{request.tenant}\0{request.document}".encode()
            return replica.avoided_until > now, hashlib.blake2b(name, digest_size=8).digest()

        return sorted(self._all, key=rank)

    async def close(self) -> None:
        """Closes all."""
        await asyncio.gather(*(each.close() for each in self._all))
