"""The servers that have one model: which of them completes a document, and what becomes of one that is down.

A document keeps to one server, which remembers its text. While that one does not answer, the next one takes its place.
"""

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from inference.errors import InferenceServerUnreachableError, MidtokenError, ModelError, OverloadedError, quote
from inference.protocol.completion import CompletionRequest, FinishReason
from inference.remote.choice import GAP
from inference.remote.discovery import Find, RemoteServer, detect_server
from inference.remote.http_client import HttpClient, naming_malformed

_log = logging.getLogger(__name__)
_TRUST_S = 1.0  # since the last answer; in a shorter time none is started again
_PATIENCE_S = 1.0  # with a server that does not say who it is, where there is another
_LAST_PATIENCE_S = 5.0  # and where there is none
_IDLE_S = 5.0  # since the last answer; then it is not known whether it still answers
_AVOID_S = 10.0  # a server that did not answer
_SLOW_S = 5.0  # without an event of an answer, after which another server may be faster
_GRACE_S = 2.0  # at the start, once another one will do
T = TypeVar("T")


class Replica:
    """A server, and what is known of it."""

    def __init__(
        self, http: HttpClient, sample: Sequence[tuple[str, tuple[int, ...]]], find: Find = detect_server
    ) -> None:
        """`sample`: texts, with the tokens that they must have there. `find`: says which server it is."""
        self.http, self._sample, self._find = http, sample, find
        self.max_tokens = 0  # of its window; 0 if that is not known
        self.problem = ""  # why others are asked before it; empty if nothing is known against it
        self._server: RemoteServer | None = None  # until it has been measured, and again after any failure
        self._identity: object = None
        self._checking: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[object] | None = None
        self._checked_at = self.avoided_until = -math.inf

    async def find(self, patience_s: float) -> RemoteServer:
        """Its server. Raises as `check` does."""
        while not self._server:
            await self.check(patience_s)
        return self._server

    async def ask(self, work: Callable[[], Coroutine[Any, Any, T]], patience_s: float) -> T:
        """The result of the work, if the server has the right model. The work may fail because it has another one.

        While no event comes, the server is asked again and again who it is. Raises as `check` and the work do.
        """
        asked_at, working = time.monotonic(), asyncio.ensure_future(work())
        try:
            while not working.done():
                await self.check(patience_s)
                await asyncio.wait({working}, timeout=_TRUST_S)
            if working.exception():
                await self.check(patience_s)
            return working.result()
        except asyncio.CancelledError:
            if time.monotonic() - max(asked_at, self.http.streamed_at) > _SLOW_S:
                self.avoided_until = time.monotonic() + _AVOID_S
            raise
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def check(self, patience_s: float = math.inf) -> None:
        """Finds out whether it is usable, unless that is known. A request that ends does not end this for the others.

        Raises ModelError, ServerError or OverloadedError; InferenceServerUnreachableError if it is silent for longer
        than `patience_s`.
        """
        now = time.monotonic()
        if not self._checking or self._checking.done():
            if self._server and now - self.http.heard_at < _TRUST_S:
                return
            self._checking, self._checked_at = asyncio.create_task(self._check()), now
            self._checking.add_done_callback(self._note_failure)
        checking = self._checking
        while not checking.done():
            left_s = max(self._checked_at, self.http.heard_at) + patience_s - time.monotonic()
            if left_s <= 0:
                checking.cancel()  # its connection may be dead
            await asyncio.wait({checking}, timeout=left_s)
        if checking.cancelled():
            raise InferenceServerUnreachableError(f"{self.http.name} does not answer: it was silent for too long")
        checking.result()

    def _note_failure(self, checking: asyncio.Task[None]) -> None:
        if checking.cancelled() or checking.exception():
            self._server = None

    def look(self) -> None:
        """Finds out whether it is usable, if it was silent for a while. Nobody waits for that."""
        is_due = time.monotonic() > max(self.http.heard_at + _IDLE_S, self.avoided_until)
        if is_due and (not self._looking or self._looking.done()):
            self._looking = asyncio.create_task(self.find_failure(_LAST_PATIENCE_S))

    async def find_failure(self, patience_s: float = math.inf) -> MidtokenError | None:
        """Why it will not do, if so."""
        try:
            await self.check(patience_s)
        except MidtokenError as error:
            self.avoid(error)
            return error
        return None

    async def _check(self) -> None:
        with naming_malformed(self.http.name):
            server, known = self._server, self._identity
            if not server:
                server, known = await self._find(self.http), None
            identity = await server.identify()
            if identity != known:
                await self._compare_tokens(server)
                await self._measure(server)
        self.http.is_quoted = False
        self._server, self._identity, self.max_tokens, self.problem = server, identity, server.max_tokens, ""
        self.http.heard_at = time.monotonic()

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
        forced = await server.find_best_token(request, row, (second,))
        written = [step async for step in server.generate(request, row) if not isinstance(step, FinishReason)]
        if forced[0] != second or abs(forced[1] - told[second]) > GAP:
            raise ModelError(f"{server.name} tells other log probabilities for a token alone than beside others")
        if [told.get(each.token_id, -math.inf) >= told[best] - GAP for each in written] != [True]:
            raise ModelError(f"{server.name} does not write one token, the most likely one, if it is asked for that")
        (token,) = written
        server.returns_logprobs = token.log_prob is not None and abs(token.log_prob - told[token.token_id]) <= GAP

    def avoid(self, error: MidtokenError) -> None:
        """Has others asked before it for a while, because of the error, and measures it again before it is used."""
        if self.avoided_until < time.monotonic():  # each key of a minute has the same
            _log.warning("%s", error)
        self.avoided_until, self._server, self.problem = time.monotonic() + _AVOID_S, None, str(error)

    async def close(self) -> None:
        """Ends all work."""
        for task in filter(None, (self._looking, self._checking)):
            task.cancel()
            await asyncio.wait({task})
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
        """Of the smallest window; 0 if none is known."""
        return min((each.max_tokens for each in self._all if each.max_tokens), default=0)

    @property
    def problem(self) -> str:
        """Why none will do at present, as far as that is known; empty if one will."""
        return "" if any(not each.problem for each in self._all) else self._all[0].problem

    def look(self) -> None:
        """See `Replica.look`."""
        for replica in self._all:
            replica.look()

    async def open(self) -> None:
        """Checks all, but waits for none long once one will do. One that will not is checked again before it is used.

        Where none will, a busy one is enough, as llama.cpp's server is while it loads: requests are told so.
        Raises as `Replica.check`.
        """
        failures: list[MidtokenError] = []
        checks = [asyncio.ensure_future(each.find_failure()) for each in self._all]
        for check in asyncio.as_completed(checks):
            if not (failure := await check):
                await asyncio.wait(checks, timeout=_GRACE_S)
                return
            failures.append(failure)
        if not any(isinstance(error, OverloadedError) for error in failures):
            raise failures[0]

    def order(self, request: CompletionRequest) -> list[tuple[Replica, float]]:
        """All of them, in the order in which they are asked, each with the patience that it deserves."""
        now = time.monotonic()
        self.look()

        def rank(replica: Replica) -> tuple[bool, bytes]:
            name = f"{replica.http.url}\0{request.tenant}\0{request.document}".encode()
            return bool(replica.problem) or replica.avoided_until > now, hashlib.blake2b(name, digest_size=8).digest()

        patience_s = [_PATIENCE_S] * (len(self._all) - 1)
        return list(zip(sorted(self._all, key=rank), [*patience_s, _LAST_PATIENCE_S], strict=True))

    async def close(self) -> None:
        """Closes all."""
        await asyncio.gather(*(each.close() for each in self._all))
