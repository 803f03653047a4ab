"""HTTP to the inference server. What goes wrong there, or before it, becomes one sentence."""

import hashlib
import json
import math
import re
import secrets
import time
from asyncio import timeout
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any  # parsed JSON

import aiohttp

from inference.errors import InferenceServerUnreachableError, MidtokenError, OverloadedError, ServerError, quote
from inference.remote.choice import GeneratedToken

_CONNECT_S, _ANSWER_S = 5.0, 30.0
SILENT_S = 50.0  # less than a client waits for a chunk (`inference.client.client`), so that the person learns why
_MAX_PAUSE_S = 60.0  # that a server may ask for
_MAX_ERROR_BYTES = 2**14
_MAX_BYTES = 2**20  # of an answer, and of an event
_NUM_EVENTS = 4  # at most, for each token, and beside them
_ROUNDING, _LEAST = 0.01, -1e30  # of log probabilities; a server reports the least of its numbers for none at all
_KINDS = ("application/json", "text/event-stream")
_OTHER = "something else stands there, or before it"
_REFUSED = ServerError, "refuses the key, which is in MIDTOKEN_ENGINE_KEY or the file of --engine-key"
_BUSY = OverloadedError, "is busy"
_LOST = InferenceServerUnreachableError, "is not reached by what stands before it"
_STATUSES: Mapping[int, tuple[type[MidtokenError], str]] = {
    **dict.fromkeys((401, 403), _REFUSED),
    **dict.fromkeys((429, 503), _BUSY),
    **dict.fromkeys((502, 504), _LOST),
}
_FAILURES: tuple[tuple[type[Exception], str], ...] = (
    (aiohttp.ClientConnectorCertificateError, "its certificate is not trusted; SSL_CERT_FILE can name its authority's"),
    (aiohttp.ClientSSLError, "it speaks no TLS"),
    (aiohttp.ClientConnectorDNSError, "its name is not known"),
    (aiohttp.ClientConnectorError, "nothing listens there"),
    (aiohttp.ClientResponseError, "it speaks no HTTP"),
    (TimeoutError, "it was silent for too long"),
    (Exception, "it has closed the connection"),
)


class HttpClient:
    """Connections to one server. All calls are made in one event loop, and raise ServerError or OverloadedError."""

    def __init__(self, url: str, key: str = "", answer_s: float = _ANSWER_S, silent_s: float = SILENT_S) -> None:
        """`url`: of `find_engine_url`, with the model's name, which is `model` then. `key`: empty if it needs none.

        `answer_s`: the longest time for an answer. `silent_s`: the longest time between two events.
        """
        url, _, self.model = url.partition("#")
        self.url, self.name = url, f"the server at {url}"
        self.shows_reports = True  # until text of requests is sent: a server may repeat it, and errors are logged
        self.last_response_at = -math.inf  # when the last answer or event came
        self._secret = secrets.token_bytes(16)  # it hides what the server may log
        self._answer_s, self._silent_s = answer_s, silent_s
        self._pause_until, self._pause = -math.inf, ""  # for which the server has asked, and how
        self._session = aiohttp.ClientSession(
            f"{url}/",
            headers={"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {}),
            timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_S),
            auto_decompress=False,  # a few bytes can become as many as one likes
        )

    def pseudonymize(self, *names: str) -> str:
        """A name that means nothing to those who log it, and that no one else can guess."""
        return hashlib.blake2b("\0".join(names).encode(), key=self._secret, digest_size=16).hexdigest()

    def build_session(self, tenant: str, document: str) -> dict[str, str]:
        """The header by which a gateway keeps a document at one server; none without a document."""
        return {"X-Session-ID": self.pseudonymize(tenant, document)} if document else {}

    async def ask(
        self, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] = {}
    ) -> dict[str, Any]:
        """The answer to a body, or to none. Raises ServerError if it is no JSON object, too."""
        async with self._open("GET" if body is None else "POST", path, body, headers, self._answer_s) as response:
            data = bytearray()
            async with timeout(self._answer_s):
                async for part in response.content.iter_any():
                    data += part
                    if len(data) > _MAX_BYTES:
                        raise ValueError
            answer, self.last_response_at = self._parse(data), time.monotonic()
            return answer

    async def stream(
        self,
        path: str,
        body: Mapping[str, Any],
        num_tokens: int,
        headers: Mapping[str, str] = {},
        max_bytes: int = _MAX_BYTES,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the events: at most four for each token, each of limited size. Closing it ends the server's work."""
        async with self._open("POST", path, body, headers, self._silent_s) as response:
            for _ in range(_NUM_EVENTS + _NUM_EVENTS * num_tokens):
                async with timeout(self._silent_s):  # comments keep only the connection open
                    event = await self._read_event(response.content, max_bytes)
                if event is None:
                    return
                self.last_response_at = time.monotonic()
                yield event
            raise ValueError

    async def _read_event(self, content: aiohttp.StreamReader, max_bytes: int) -> dict[str, Any] | None:
        """The next event; None at the end."""
        while line := await content.readline(max_line_length=max_bytes):
            kind, _, data = line.partition(b":")
            if kind in (b"data", b"error") and data.strip() not in (b"null", b"[DONE]"):
                event = self._parse(data)
                if kind == b"error" or "error" in event:
                    raise ServerError(f"{self.name} has failed{self.quote(_describe(event))}")
                return event
        return None

    def quote(self, reported: str) -> str:
        """What the server has reported, for the end of a message; nothing if it may be text of a request."""
        return f": {quote(reported)}" if self.shows_reports else ""

    async def close(self) -> None:
        """Closes all connections, which ends their work."""
        await self._session.close()

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str], limit_s: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer, whose head must come within `limit_s`."""
        if time.monotonic() < self._pause_until:
            raise OverloadedError(self._pause)
        send = partial(self._session.request, method, path, json=body, headers=headers, allow_redirects=False)
        try:
            async with timeout(limit_s):
                try:
                    response = await send()
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):  # a connection that it kept is closed
                    response = await send()
            async with response:
                if response.status != 200:
                    async with timeout(limit_s):
                        reported = await response.content.read(_MAX_ERROR_BYTES)
                    raise self._refuse(response, reported.decode(errors="replace"))
                if response.content_type not in _KINDS or "Content-Encoding" in response.headers:
                    kind = response.headers.get("Content-Encoding", response.content_type)
                    raise ServerError(f"{self.name} answers in another format{self.quote(kind)}; {_OTHER}")
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            words = next(words for kind, words in _FAILURES if isinstance(error, kind))
            raise InferenceServerUnreachableError(f"{self.name} does not answer: {words}") from error
        except (ValueError, aiohttp.http_exceptions.LineTooLong) as error:  # it is longer than a limit
            raise ServerError(f"{self.name} sends more than was asked for; {_OTHER}") from error

    def _refuse(self, response: aiohttp.ClientResponse, reported: str) -> MidtokenError:
        """The error for a status. Where the server names a time after which it may be asked again, it is kept."""
        error, words = _STATUSES.get(response.status, (ServerError, "does not do what was asked"))
        sentence = f"{self.name} {words} (status {response.status}){self.quote(reported)}"
        pause = response.headers.get("Retry-After", "")
        if error is OverloadedError and re.fullmatch("[0-9]{1,9}", pause):
            pause_s = min(float(pause), _MAX_PAUSE_S)
            self._pause_until, self._pause = time.monotonic() + pause_s, f"{sentence}; it asks for {pause_s:g} s"
        return error(sentence)

    def _parse(self, data: bytes | bytearray) -> dict[str, Any]:
        try:
            result = json.loads(data, parse_constant=int)  # which refuses NaN and Infinity: they are no JSON
        except (ValueError, RecursionError):
            result = None
        if not isinstance(result, dict):
            raise ServerError(f"{self.name} sends no JSON; {_OTHER}")
        return result


def _describe(event: dict[str, Any]) -> str:
    error = event.get("error", event)
    return str(error.get("message") if isinstance(error, dict) else error)


@contextmanager
def naming_malformed(name: str) -> Iterator[None]:
    """Raises ServerError if what a server has sent lacks something, or has something of another kind."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ServerError(f"{name} answers in another form than others of its kind") from error


def is_count(value: object) -> bool:
    """Whether it is a number of things, in parsed JSON, where a number may also be true, 0.5 or 1e999."""
    return type(value) is int and 0 < value < 2**31


def read_whole(value: object) -> int:
    """A whole number, in parsed JSON. Raises ValueError."""
    if type(value) is not int or abs(value) >= 2**31:
        raise ValueError("it is no whole number of 32 bits")
    return value


def read_number(value: Any) -> float:
    """A number of parsed JSON; a string such as "1" is none. Raises ValueError or OverflowError."""
    if type(value) not in (int, float):
        raise ValueError("it is no number")
    return max(float(value), _LEAST)


def read_log_prob(value: object) -> float:
    """A log probability, in parsed JSON: at most 0, as far as rounding allows. Raises as `read_number` does."""
    if (log_prob := read_number(value)) > _ROUNDING:
        raise ValueError("a probability is at most 1")
    return log_prob


def parse_token(token_id: object, log_prob: object) -> GeneratedToken:
    """A token that was written, in parsed JSON, where NaN is null. Raises as `read_number` does."""
    return GeneratedToken(read_whole(token_id), math.nan if log_prob is None else read_number(log_prob))
