"""The servers that have one model: which of them completes a document, and what becomes of one that is down.

A document keeps to one server, which remembers its text. While that one does not answer, the next one takes its place.
"""

import hashlib
import logging
import math
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from inference.errors import MidtokenError, ModelError, OverloadedError, ServerError, quote
from inference.protocol.completion import CompletionRequest
from inference.remote.choice import Scores

_log = logging.getLogger(__name__)
_TRUST_S = 1.0  # since the last answer; in a shorter time none is started again
_AVOID_S = 10.0  # a server that did not answer
_GAP = 0.05  # nats, between two answers about one row


class RemoteServer(Protocol):
    """A server with a model. All calls are made in one event loop, and raise ServerError or OverloadedError."""

    name: str
    max_tokens: int  # of its window; known once it was identified

    async def identify(self) -> object:
        """What is another thing when it was started again with another model. Raises ModelError if it will not do."""

    async def tokenize(self, text: str) -> tuple[int, ...]:
        """The server's own tokens of a text, in which nothing is a control token."""

    async def score(self, request: CompletionRequest, rows: Sequence[tuple[int, ...]]) -> Scores:
        """The most likely tokens after each row of tokens."""

    async def answer(
        self, request: CompletionRequest, row: tuple[int, ...], among: tuple[int, ...]
    ) -> tuple[int, float]:
        """The most likely of some tokens after a row, and its log probability."""

    async def read(self, request: CompletionRequest, row: tuple[int, ...]) -> None:
        """Has the server read a row, which it remembers."""

    def generate(self, request: CompletionRequest, row: tuple[int, ...]) -> AsyncGenerator[int, None]:
        """The tokens that follow, one after the other; after its end token, none."""

    async def close(self) -> None:
        """Closes all connections, which ends their work."""


class Replica:
    """A server, and what is known of it."""

    def __init__(self, server: RemoteServer, sample: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """`sample`: texts, with the tokens that they must have there."""
        self.server, self._sample = server, sample
        self._identity: object = None
        self._answered_at = self.avoided_until = float("-inf")

    async def check(self) -> None:
        """Finds out whether it will do, unless that is known. Raises ModelError, ServerError or OverloadedError."""
        if time.monotonic() - self._answered_at >= _TRUST_S:
            identity = await self.server.identify()
            if identity != self._identity:
                await self._compare_tokens()
                await self._measure()
                self._identity = identity
        self._answered_at = time.monotonic()

    async def _compare_tokens(self) -> None:
        for text, expected in self._sample:
            if await self.server.tokenize(text) != expected:
                raise ModelError(
                    f"{self.server.name} makes other tokens of {quote(text)} than the tokenizer of --model: it has "
                    "another model, or another version of it"
                )

    async def _measure(self) -> None:
        """Asks about one row in all ways, whose answers must agree. What stands before the server may drop fields."""
        server, request, row = self.server, CompletionRequest("", max_tokens=1), self._sample[0][1]
        try:
            (told,) = (await server.score(request, [row])).rows
            best, second = sorted(told, key=told.__getitem__, reverse=True)[:2]
            forced = await server.answer(request, row, (second,))
            written = [token_id async for token_id in server.generate(request, row)]
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{server.name} does not tell the most likely tokens as others of its kind do") from error
        if forced[0] != second or abs(forced[1] - told[second]) > _GAP:
            raise ModelError(f"{server.name} tells other log probabilities for a token alone than beside others")
        if [told.get(each, -math.inf) >= told[best] - _GAP for each in written] != [True]:
            raise ModelError(f"{server.name} does not write one token, the most likely one, if it is asked for that")

    def avoid(self, error: MidtokenError) -> None:
        """Has others asked before it for a while, because of the error."""
        _log.warning("%s", error)
        self.avoided_until = time.monotonic() + _AVOID_S


class Replicas:
    """All servers of an engine."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._all = replicas
        self.name = " and ".join(each.server.name for each in replicas)

    @property
    def max_tokens(self) -> int:
        """Of the smallest window."""
        return min((each.server.max_tokens for each in self._all if each.server.max_tokens), default=0)

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
            name = f"{replica.server.name}\0{request.tenant}\0{request.document}".encode()
            return replica.avoided_until > now, hashlib.blake2b(name, digest_size=8).digest()

        return sorted(self._all, key=rank)

    async def close(self) -> None:
        """Closes all."""
        for each in self._all:
            await each.server.close()
