"""llama.cpp's server as an engine: token ids in, token ids and raw log probabilities out."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any  # parsed JSON

import aiohttp

from inference.errors import ModelError, OverloadedError, ServerError, ServerUnreachableError, quote

_GREEDY = {"temperature": 0.0, "samplers": ["top_k"], "top_k": 1, "repeat_penalty": 1.0}
_NUM_TOP = 200  # tokens of each row: in eleven of twelve choices, no more is asked for
_FORCED = 100.0  # added to a logit, it exceeds all others; log probabilities are told without it
_CONNECT_S, _SILENT_S = 5.0, 120.0


class LlamaServer:
    """A connection to a server. All calls are made in one event loop."""

    def __init__(self, url: str, key: str = "") -> None:
        self.name = f"llama.cpp's server at {url}"
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENT_S)
        self._session = aiohttp.ClientSession(url.rstrip("/") + "/", headers=headers, timeout=timeout, trust_env=True)
        self.num_slots, self.max_tokens = 1, 0

    async def open(self) -> None:
        """Asks for its limits. Raises ModelError if it is not llama.cpp's, or ServerError."""
        properties = await self._ask("props")
        settings = properties.get("default_generation_settings", {})
        if "total_slots" not in properties or "n_ctx" not in settings:
            raise ModelError(f"{self.name} does not describe its slots (/props), so it is not llama.cpp's server")
        self.num_slots, self.max_tokens = properties["total_slots"], settings["n_ctx"]

    async def close(self) -> None:
        """Closes all connections, which ends their work."""
        await self._session.close()

    async def tokenize(self, text: str) -> list[int]:
        """The server's own tokens of a text, in which nothing is a control token."""
        body = {"content": text, "add_special": False, "parse_special": False}
        return list((await self._ask("tokenize", body))["tokens"])

    async def score(self, rows: Sequence[tuple[int, ...]], slot: int) -> list[Mapping[int, float]]:
        """The most likely tokens after each row of tokens, with their log probabilities. All rows are on one slot."""
        body = {"prompt": list(map(list, rows)), "n_predict": 1, "n_probs": _NUM_TOP, "id_slot": slot, **_GREEDY}
        told: dict[int, Mapping[int, float]] = {}
        async with aclosing(self._stream(body)) as events:
            async for event in events:
                for place in event.get("completion_probabilities", ()):
                    told[event["index"]] = {each["id"]: each["logprob"] for each in place["top_logprobs"]}
        if len(told) != len(rows):
            raise ServerError(f"{self.name} has told the probabilities of {len(told)} of {len(rows)} rows")
        return [told[index] for index in range(len(rows))]

    async def answer(self, row: tuple[int, ...], among: tuple[int, ...], slot: int) -> tuple[int, float]:
        """The most likely of some tokens after a row, and its log probability."""
        bias = [[token_id, _FORCED] for token_id in among]
        body = {"prompt": list(row), "n_predict": 1, "n_probs": 1, "id_slot": slot, "logit_bias": bias, **_GREEDY}
        async with aclosing(self._stream(body)) as events:
            async for event in events:
                for place in event.get("completion_probabilities", ()):
                    if place["id"] not in among:
                        raise ServerError(f"{self.name} has chosen another token than those that it was asked about")
                    return place["id"], place["logprob"]
        raise ServerError(f"{self.name} has told no probability")

    async def read(self, row: tuple[int, ...], slot: int) -> None:
        """Has the server read a row, which it remembers."""
        async with aclosing(self._stream({"prompt": list(row), "n_predict": 0, "id_slot": slot, **_GREEDY})) as events:
            async for _ in events:
                pass

    async def generate(self, row: tuple[int, ...], max_tokens: int, slot: int) -> AsyncGenerator[int, None]:
        """The tokens that follow, one after the other; after its end token, none."""
        body = {"prompt": list(row), "n_predict": max_tokens, "id_slot": slot, "return_tokens": True, **_GREEDY}
        async with aclosing(self._stream(body)) as events:
            async for event in events:
                for token_id in event.get("tokens", ()):
                    yield token_id

    async def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        async with self._open("GET" if body is None else "POST", path, body) as response:
            result: dict[str, Any] = await response.json()
            return result

    async def _stream(self, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a completion. Closing the generator ends its work on the server."""
        async with self._open("POST", "completion", {**body, "cache_prompt": True, "stream": True}) as response:
            async for line in response.content:
                kind, _, data = line.partition(b": ")
                event = json.loads(data) if kind in (b"data", b"error") else None
                if kind == b"error" or (event and "error" in event):
                    raise ServerError(f"{self.name} has failed: {_describe(event)}")
                if event:
                    yield event

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        send = partial(self._session.request, method, path, json=body, allow_redirects=False)
        try:
            try:
                response = await send()
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):  # it has closed a connection that it kept
                response = await send()
            async with response:
                if response.status != 200:
                    error = OverloadedError if response.status in (429, 503) else ServerError
                    text = await response.text()
                    raise error(f"{self.name} answers with status {response.status}: {quote(text)}")
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ServerUnreachableError(f"{self.name} does not answer: {type(error).__name__}") from error


def _describe(event: Any) -> str:
    message = event.get("error", event).get("message") if isinstance(event, dict) else None
    return quote(str(message))
