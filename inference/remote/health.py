"""The inference server: which one is at an address, whether it answers, and whether it has the right model."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from inference.errors import InferenceServerUnreachableError, MidtokenError, ModelError, quote
from inference.protocol.completion import CompletionRequest, FinishReason
from inference.remote.choice import LOGPROB_TOLERANCE
from inference.remote.http_client import HttpClient, naming_malformed
from inference.remote.llama_server import LlamaServer
from inference.remote.probed_server import SglangServer, VllmServer, fetch_model_card
from inference.remote.server import RemoteServer

_log = logging.getLogger(__name__)
_TRUST_S = 1.0  # since the last answer; in a shorter time none is started again
_PATIENCE_S = 5.0  # with a server that does not say who it is
_IDLE_S = 5.0  # since the last answer; then it is not known whether it still answers
T = TypeVar("T")

Find = Callable[[HttpClient], Awaitable[RemoteServer]]

_KINDS: Mapping[str, Callable[[HttpClient, str], RemoteServer]] = {
    "llamacpp": LlamaServer,
    "vllm": VllmServer,
    "sglang": SglangServer,
}


async def detect_server(http: HttpClient) -> RemoteServer:
    """The server that answers there. Raises ModelError if it is of another kind, ServerError or OverloadedError."""
    card = await fetch_model_card(http)
    owner = str(card.get("owned_by"))
    if owner not in _KINDS:
        raise ModelError(f"{http.name} is none of {', '.join(_KINDS)}: the owner of its model{http.quote(owner)}")
    return _KINDS[owner](http, str(card.get("id")))


class ServerHealth:
    """A server, and what is known of it."""

    def __init__(
        self, http: HttpClient, sample: Sequence[tuple[str, tuple[int, ...]]], find: Find = detect_server
    ) -> None:
        """`sample`: texts, with the tokens that they must have there. `find`: says which server it is."""
        self.http, self._sample, self._find = http, sample, find
        self.max_tokens = 0  # of its window; 0 if that is not known
        self.problem = ""  # why it would not answer now; empty if nothing is known against it
        self._server: RemoteServer | None = None  # until it has been measured, and again after any failure
        self._identity: object = None
        self._checking: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[object] | None = None
        self._checked_at = -math.inf

    async def find(self) -> RemoteServer:
        """Its server. Raises as `check` does."""
        while not self._server:
            await self.check(_PATIENCE_S)
        return self._server

    async def ask(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the work, if the server has the right model. The work may fail because it has another one.

        While no event comes, the server is asked again and again who it is. Raises as `check` and the work do.
        """
        working = asyncio.ensure_future(work())
        try:
            while not working.done():
                await self.check(_PATIENCE_S)
                await asyncio.wait({working}, timeout=_TRUST_S)
            if working.exception():
                await self.check(_PATIENCE_S)
            return working.result()
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
            if self._server and now - self.http.last_response_at < _TRUST_S:
                return
            self._checking, self._checked_at = asyncio.create_task(self._check()), now
        checking = self._checking
        while not checking.done():
            left_s = max(self._checked_at, self.http.last_response_at) + patience_s - time.monotonic()
            if left_s <= 0:
                checking.cancel()  # its connection may be dead
            await asyncio.wait({checking}, timeout=left_s)
        if checking.cancelled():
            raise InferenceServerUnreachableError(f"{self.http.name} does not answer: it was silent for too long")
        checking.result()

    def look(self) -> None:
        """Finds out whether it is usable, if it was silent for a while. Nobody waits for that."""
        if time.monotonic() > self.http.last_response_at + _IDLE_S and (not self._looking or self._looking.done()):
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        try:
            await self.check(_PATIENCE_S)
        except MidtokenError as error:
            self.note(error)

    async def _check(self) -> None:
        """Asks it who it is, and measures it where that has changed."""
        try:
            with naming_malformed(self.http.name):
                known = self._identity if self._server else None
                server = self._server or await self._find(self.http)
                identity = await server.identify()
                if identity != known:
                    await server.measure()
                    await self._compare_tokens(server)
                    await self._measure(server)
        except BaseException:
            self._server = None
            raise
        self.http.shows_reports = False
        self._server, self._identity, self.max_tokens, self.problem = server, identity, server.max_tokens, ""
        self.http.last_response_at = time.monotonic()

    async def _compare_tokens(self, server: RemoteServer) -> None:
        for text, expected in self._sample:
            if await server.tokenize(text) != expected:
                raise ModelError(
                    f"{server.name} makes other tokens of {quote(text)} than the tokenizer of --model: it has "
                    "another model, or another version of it"
                )

    async def _measure(self, server: RemoteServer) -> None:
        """Asks about one row in all ways, whose answers must agree. What stands before the server may drop fields."""
        request, row = CompletionRequest(""), self._sample[0][1]
        ((reported,), _) = await server.score(request, [row])
        best, second = sorted(reported, key=reported.__getitem__, reverse=True)[:2]
        forced = await server.find_best_token(request, row, (second,))
        written = [each async for each in server.generate(request, row, 1) if not isinstance(each, FinishReason)]
        if forced[0] != second or abs(forced[1] - reported[second]) > LOGPROB_TOLERANCE:
            raise ModelError(f"{server.name} tells other log probabilities for a token alone than beside others")
        if [reported.get(each.token_id, -math.inf) >= reported[best] - LOGPROB_TOLERANCE for each in written] != [True]:
            raise ModelError(f"{server.name} does not write one token, the most likely one, if it is asked for that")
        (token,) = written
        log_prob = token.log_prob
        server.returns_logprobs = log_prob is not None and abs(log_prob - reported[token.token_id]) <= LOGPROB_TOLERANCE

    def note(self, error: MidtokenError) -> None:
        """Has it measured again before it is used, because of the error."""
        if not self.problem:  # each key of a minute has the same
            _log.warning("%s", error)
        self._server, self.problem = None, str(error)
