"""The servers that have one model: which of them completes a document, and what becomes of one that is down.

A document keeps to one server, which remembers its text. While that one does not answer, the next one takes its place.
"""

import hashlib
import logging
import math
import time
from collections.abc import Sequence

import numpy as np

from inference.errors import MidtokenError, ModelError, OverloadedError, ServerError, quote
from inference.protocol.completion import CompletionRequest
from inference.remote.choice import GAP
from inference.remote.discovery import Find, RemoteServer, find_server
from inference.remote.http_client import HttpClient

_log = logging.getLogger(__name__)
_TRUST_S = 1.0  # since the last answer; in a shorter time none is started again
_AVOID_S = 10.0  # a server that did not answer


class Replica:
    """A server, and what is known of it."""

    def __init__(
        self, http: HttpClient, sample: Sequence[tuple[str, tuple[int, ...]]], find: Find = find_server
    ) -> None:
        """`sample`: texts, with the tokens that they must have there. `find`: says which server it is."""
        self.http, self._sample, self._find = http, sample, find
        self._server: RemoteServer | None = None  # until it is known of which kind it is
        self._identity: object = None
        self._answered_at = self.avoided_until = float("-inf")

    @property
    def max_tokens(self) -> int:
        """Of its window; 0 if that is not known."""
        return self._server.max_tokens if self._server else 0

    async def find(self) -> RemoteServer:
        """Its server. Raises ModelError, ServerError or OverloadedError."""
        if not self._server:
            server = await self._find(self.http)
            await server.identify()
            self._server = server
        return self._server

    async def check(self) -> None:
        """Finds out whether it will do, unless that is known. Raises ModelError, ServerError or OverloadedError."""
        if time.monotonic() - self._answered_at >= _TRUST_S:
            server = await self.find()
            identity = await server.identify()
            if identity != self._identity:
                await self._compare_tokens(server)
                await self._measure(server)
                self._identity = identity
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
        try:
            (told,) = (await server.score(request, [row])).rows
            best, second = sorted(told, key=told.__getitem__, reverse=True)[:2]
            forced = await server.answer(request, row, (second,))
            written = [token_id async for token_id in server.generate(request, row)]
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{server.name} does not tell the most likely tokens as others of its kind do") from error
        if forced[0] != second or abs(forced[1] - told[second]) > GAP:
            raise ModelError(f"{server.name} tells other log probabilities for a token alone than beside others")
        if [told.get(each, -math.inf) >= told[best] - GAP for each in written] != [True]:
            raise ModelError(f"{server.name} does not write one token, the most likely one, if it is asked for that")

    def avoid(self, error: MidtokenError) -> None:
        """Has others asked before it for a while, because of the error."""
        _log.warning("%s", error)
        self.avoided_until = time.monotonic() + _AVOID_S


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
        """Checks all. One that is down is checked again before it is used. Raises as `Replica.check` if all are."""
        failures = []
        for each in self._all:
            try:
                await each.check()
            except (ServerError, OverloadedError) as error:
                each.avoid(error)
                failures.append(error)
        if len(failures) == len(self._all):
            raise failures[0]

    def order(self, request: CompletionRequest) -> list[Replica]:
        """All of them, in the order in which they are asked."""
        now = time.monotonic()

        def rank(replica: Replica) -> tuple[bool, bytes]:
            name = f"{replica.http.url}\0{request.tenant}\0{request.document}".encode()
            return replica.avoided_until > now, hashlib.blake2b(name, digest_size=8).digest()

        return sorted(self._all, key=rank)

    async def close(self) -> None:
        """Closes all."""
        for each in self._all:
            await each.http.close()
