"""llama.cpp's server with random probabilities, which depend on the last tokens of a row only."""

import asyncio
import json
import ssl
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from aiohttp import web
from aiohttp.typedefs import Handler

from inference.healing.heal_point import encode_text
from inference.healing.text_encoder import TextEncoder
from inference.healing.token_tree import count_common

_NUM_SEEN = 3  # tokens that decide what follows
_SPELLED: dict[str, Any] = {"token": "token", "bytes": [*b"token"]}  # a row of 8,192 tokens is longer than 2**19 bytes
Answer = tuple[int, str, str]  # status, content type, text, which is sent in Latin-1


@lru_cache(64)
def _find_log_probs(seen: tuple[int, ...], num_tokens: int) -> npt.NDArray[np.float64]:
    logits = np.random.default_rng(seen).normal(0, 4, num_tokens)
    result: npt.NDArray[np.float64] = logits - np.log(np.exp(logits).sum())
    result.flags.writeable = False
    return result


@dataclass(slots=True)
class FakeLlamaServer:
    """What it does wrong, and what it was asked."""

    encoder: TextEncoder
    num_tokens: int  # of the vocabulary
    url: str = ""
    n_ctx: int = 512
    num_slots: int = 2
    delay_s: float = 0.0  # before each token
    answers: list[Answer] = field(default_factory=list)  # to the next requests for completions
    extra_token: bool = False  # its tokenizer differs
    model: str = "a.gguf"
    drops_after: int | None = None  # tokens, after which it closes the connection
    ends_after: int | None = None  # tokens, after which it ends its answer as if that were all
    asked: list[dict[str, Any]] = field(default_factory=list)  # completions
    sessions: list[str] = field(default_factory=list)  # of completions, and of what clears a slot before
    keys: list[str] = field(default_factory=list)  # with which it was asked for its properties
    is_raw: bool = True  # its log probabilities are those before a bias
    lacks: str = ""  # a field that it ignores
    remembered: dict[int, list[int]] = field(default_factory=dict)  # the last row of each slot
    clears_idle: bool = False  # what the other slots have, as llama.cpp's does by default
    num_closed: int = 0  # streams that the client has closed
    silent_s: float = 0.0  # before it answers anything
    stops_after: int | None = None  # tokens, for a limit of its own
    falls_silent_after: int | None = None  # tokens, after which it answers nothing any more
    spoils: dict[str, Any] = field(default_factory=dict)  # of its events
    misleads: dict[int, dict[str, Any]] = field(default_factory=dict)  # of the n-th token that it writes, what it tells
    changes: dict[str, Any] = field(default_factory=dict)  # of what it tells of itself and of a text
    inside: Collection[int] = ()  # tokens that end inside a character: it sends no event for them
    models_served: Sequence[str] = ("m",)  # several: it is a router

    def reset(self) -> None:
        """Does nothing wrong any more, and was asked nothing."""
        self.__init__(self.encoder, self.num_tokens, self.url)  # type: ignore[misc]

    def change(self, **faults: Any) -> None:
        """Does something wrong: its fields are changed."""
        for name, value in faults.items():
            setattr(self, name, value)

    def find_log_probs(self, row: Sequence[int]) -> npt.NDArray[np.float64]:
        """The next token's log probabilities after a row."""
        return _find_log_probs(tuple(row[-_NUM_SEEN:]), self.num_tokens)

    async def models(self, _request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": each, "owned_by": "llamacpp"} for each in self.models_served]})

    async def props(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("Authorization", ""))
        if len(self.models_served) > 1 and request.query.get("model") not in self.models_served:
            return web.json_response({"role": "router", "default_generation_settings": {"n_ctx": 0}})
        settings = {"n_ctx": self.n_ctx}
        told = {"total_slots": self.num_slots, "default_generation_settings": settings, "model_path": self.model}
        return web.json_response(told | self.changes)

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert len(self.models_served) == 1 or body["model"] in self.models_served
        ids = encode_text(self.encoder, body["content"])
        return web.json_response({"tokens": [*ids, *([0] if self.extra_token else [])]} | self.changes)

    async def completion(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert len(self.models_served) == 1 or body["model"] in self.models_served
        self.asked += [body] * body["cache_prompt"]
        self.sessions.append(request.headers.get("X-Session-ID", ""))
        body.pop(self.lacks, None)
        if self.answers:
            status, kind, text = self.answers.pop(0)
            return web.Response(status=status, content_type=kind, body=text.encode("latin-1"))
        if body["cache_prompt"] is False:
            self.remembered[body["id_slot"]] = body["prompt"]
            return web.json_response({})
        assert body["stream"]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            is_list = isinstance(body["prompt"][0], list)
            for index, row in enumerate(body["prompt"] if is_list else [body["prompt"]]):
                await self._write(response, request, body, index, list(row))
        except (ConnectionError, asyncio.CancelledError):
            self.num_closed += 1
            raise
        return response

    async def _write(
        self, response: web.StreamResponse, request: web.Request, body: dict[str, Any], index: int, row: list[int]
    ) -> None:
        random = np.random.default_rng(body["seed"] if body.get("seed", -1) >= 0 else None)
        num_new = len(row) - count_common(tuple(self.remembered.get(body["id_slot"], ())), tuple(row))
        self.remembered = {**({} if self.clears_idle else self.remembered), body["id_slot"]: row}
        num_inside = 0  # tokens since the last event
        for number in range(body["n_predict"]):
            if number == self.drops_after and request.transport is not None:
                request.transport.abort()
                return
            if number == self.ends_after:
                return
            if number == self.stops_after:
                break
            if number == self.falls_silent_after:
                self.silent_s = self.delay_s = 600.0
            await asyncio.sleep(self.delay_s)
            log_probs = self.find_log_probs(row)
            biased = log_probs.copy()
            for token_id, bias in body.get("logit_bias", ()):
                biased[token_id] += bias
            chosen = int(biased.argmax())
            if body["temperature"]:
                assert body["samplers"] == ["temperature", "top_p"]
                weights = np.exp(log_probs / body["temperature"])
                chosen = int(random.choice(self.num_tokens, p=weights / weights.sum()))
            row.append(chosen)
            if chosen in self.inside:
                num_inside += 1
                continue
            event: dict[str, Any] = {"index": index, "tokens": [chosen] if body.get("return_tokens") else []}
            event |= {"content": "é" if num_inside else "e", "tokens_predicted": number + 1}
            if num_probs := body.get("n_probs"):
                top = [
                    {"id": int(each), **_SPELLED, "logprob": float(log_probs[each])}
                    for each in np.argsort(-log_probs)[:num_probs]
                ]
                log_prob = log_probs[chosen] if self.is_raw else 0.0
                spelled = {"token": "token", "bytes": (num_inside + 1) * _SPELLED["bytes"]}
                place = {"id": chosen, **spelled, "logprob": float(log_prob), "top_logprobs": top}
                event["completion_probabilities"] = (
                    [place | self.misleads.get(number, {})] if event["tokens"] else [place]
                )
            num_inside = 0
            await response.write(f"data: {json.dumps(event | self.spoils)}\n\n".encode())
        end = {"stop": True, "stop_type": "limit", "timings/prompt_n": max(num_new, 1)}
        assert set(body["response_fields"]) == set(end)
        await response.write(f"data: {json.dumps(end)}\n\ndata: null\n\n".encode())


Fake = TypeVar("Fake", bound=FakeLlamaServer)


@contextmanager
def run_fake_llama_server(
    encoder: TextEncoder, num_tokens: int, tls: ssl.SSLContext | None = None
) -> Iterator[FakeLlamaServer]:
    """Runs it as `run_fake_server` does."""
    with run_fake_server(FakeLlamaServer(encoder, num_tokens), "/completion", tls) as fake:
        yield fake


@contextmanager
def run_fake_server(fake: Fake, path: str, tls: ssl.SSLContext | None = None) -> Iterator[Fake]:
    """Runs it on loopback, in a thread of its own. `path`: where it completes."""

    @web.middleware
    async def wait(request: web.Request, handler: Handler) -> web.StreamResponse:
        await asyncio.sleep(fake.silent_s)
        return await handler(request)

    app, loop = web.Application(middlewares=[wait]), asyncio.new_event_loop()
    app.add_routes([web.get("/props", fake.props), web.get("/v1/models", fake.models)])
    app.add_routes([web.post("/tokenize", fake.tokenize), web.post(path, fake.completion)])
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        fake.url = f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield fake
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
