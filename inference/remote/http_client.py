"""HTTP to the server of an engine. What goes wrong there, or before it, becomes one sentence."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, TypeVar  # Any: parsed JSON
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from inference.errors import MidtokenError, OverloadedError, ServerError, ServerUnreachableError, quote

_CONNECT_S, _SILENT_S = 5.0, 120.0
_MAX_ERROR_BYTES = 2**14
_LINE_BYTES = 2**25  # all tokens of a row, with a vocabulary of 262,144, take 21 MB
T = TypeVar("T")
_KINDS = ("application/json", "text/event-stream")
_OTHER = "something else stands there, or before it"
_REFUSED = ServerError, "refuses the key, which is in MIDTOKEN_ENGINE_KEY or the file of --engine-key"
_BUSY = OverloadedError, "is busy"
_LOST = ServerUnreachableError, "is not reached by what stands before it"
_STATUSES: Mapping[int, tuple[type[MidtokenError], str]] = {
    **dict.fromkeys((401, 403), _REFUSED),
    **dict.fromkeys((429, 503), _BUSY),
    **dict.fromkeys((502, 504), _LOST),
}
_FAILURES: tuple[tuple[type[Exception], str], ...] = (
    (aiohttp.ClientConnectorCertificateError, "its certificate is not trusted; SSL_CERT_FILE can name its authority's"),
    (aiohttp.ClientSSLError, "it speaks no TLS"),
    (aiohttp.ClientHttpProxyError, "the proxy that the environment names refuses"),
    (aiohttp.ClientConnectorDNSError, "its name is not known"),
    (aiohttp.ClientConnectorError, "nothing listens there"),
    (TimeoutError, "it was silent for too long"),
    (Exception, "it has closed the connection"),
)


class HttpClient:
    """Connections to one server. All calls are made in one event loop, and raise ServerError or OverloadedError."""

    def __init__(self, url: str, key: str = "", silent_s: float = _SILENT_S) -> None:
        """`key`: empty if it needs none. `silent_s`: the longest time between two events."""
        self.url, self.name = url, f"the server at {url}"
        self.is_quoted = True  # until text of requests is sent: a server may repeat it, and errors are logged
        self.secret, self._silent_s = secrets.token_bytes(16), silent_s  # the secret hides what the server may log
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=silent_s)
        self._session = aiohttp.ClientSession(
            url.rstrip("/") + "/",
            headers=headers,
            timeout=timeout,
            proxy=_find_proxy(url),  # not by trust_env, which takes passwords from ~/.netrc, too
        )

    async def ask(
        self, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] = {}
    ) -> dict[str, Any]:
        """The answer to a body, or to none. Raises ServerError if it is no JSON object, too."""
        async with self._open("GET" if body is None else "POST", path, body, headers) as response:
            return self._parse(await response.read())

    async def stream(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] = {}
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The events of an answer. Closing the generator ends its work on the server."""
        async with self._open("POST", path, body, headers) as response:
            told_at = time.monotonic()
            async for line in response.content:
                kind, _, data = line.partition(b": ")
                if kind not in (b"data", b"error") or data.strip() in (b"null", b"[DONE]"):
                    if time.monotonic() - told_at > self._silent_s:  # though comments keep the connection open
                        raise TimeoutError
                    continue
                event = self._parse(data)
                if kind == b"error" or "error" in event:
                    raise ServerError(f"{self.name} has failed{self.quote(_describe(event))}")
                yield event
                told_at = time.monotonic()

    def quote(self, told: str) -> str:
        """What the server has told, for the end of a message; nothing if it may be text of a request."""
        return f": {quote(told)}" if self.is_quoted else ""

    async def close(self) -> None:
        """Closes all connections, which ends their work."""
        await self._session.close()

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        send = partial(self._session.request, method, path, json=body, headers=headers, allow_redirects=False)
        send = partial(send, read_bufsize=_LINE_BYTES)
        try:
            try:
                response = await send()
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):  # it has closed a connection that it kept
                response = await send()
            async with response:
                if response.status != 200:
                    error, words = _STATUSES.get(response.status, (ServerError, "does not do what was asked"))
                    told = (await response.content.read(_MAX_ERROR_BYTES)).decode(errors="replace")
                    raise error(f"{self.name} {words} (status {response.status}){self.quote(told)}")
                if response.content_type not in _KINDS:
                    raise ServerError(
                        f"{self.name} answers in another format{self.quote(response.content_type)}; {_OTHER}"
                    )
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            words = next(words for kind, words in _FAILURES if isinstance(error, kind))
            raise ServerUnreachableError(f"{self.name} does not answer: {words}") from error

    def _parse(self, data: bytes) -> dict[str, Any]:
        try:
            result = json.loads(data)
        except ValueError:
            result = None
        if not isinstance(result, dict):
            raise ServerError(f"{self.name} sends no JSON; {_OTHER}")
        return result


def _find_proxy(url: str) -> str | None:
    """The proxy that the environment names. It must not read what is not encrypted."""
    parts = urlsplit(url)
    is_used = parts.scheme == "https" and not proxy_bypass(parts.hostname or "")
    return getproxies().get("https") if is_used else None


def _describe(event: dict[str, Any]) -> str:
    error = event.get("error", event)
    return str(error.get("message") if isinstance(error, dict) else error)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Raises ServerError if what a server has sent lacks something, or has something of another kind."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ServerError(f"{name} answers in another form than others of its kind") from error


async def ask_all(work: Iterable[Awaitable[T]]) -> list[T]:
    """The results of some work that is done at once. Where one fails, the others are ended."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
