"""vLLM and SGLang with random probabilities: their forms, limits and faults, each as their sources have it."""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from aiohttp import web

from inference.healing.heal_point import encode_text
from tests.support.fake_llama_server import FakeLlamaServer

_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, **dict.fromkeys(_PENALTIES, 0.0)}
_NEUTRAL["repetition_penalty"] = 1.0
_RANGES = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "top_k": (-1, 10**6),
    "repetition_penalty": (0, 2),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
_MODEL_DEFAULTS = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.3}  # in its own files


class RefusedError(Exception):
    """With status 400."""


@dataclass(slots=True)
class FakeNamedServer(FakeLlamaServer):
    """See `FakeVllmServer` and `FakeSglangServer`."""

    rows_field: ClassVar[str]  # of a body
    limit_field: ClassVar[str]  # of the tokens, among those for sampling
    owner: str = ""
    drops: Sequence[str] = ()  # fields that something before the server drops
    max_model_len: int | None = 512
    tells: str = "raw_logprobs"  # or raw_logits, or those of what is allowed: processed_logprobs
    max_top: int = 20  # likely tokens in one answer
    is_incremental: bool = False  # SGLang's --incremental-streaming-output
    is_dead: bool = False  # its worker has stopped
    headers: list[dict[str, str]] = field(default_factory=list)
    adapters: Sequence[str] = ()
    edit: tuple[str, str] = ("$^", "")  # of its events: a pattern, and what stands there instead

    async def models(self, _request: web.Request) -> web.Response:
        card = {"id": "m", "object": "model", "owned_by": self.owner, "root": "/models/M"}
        adapters = [{**card, "id": each, "root": f"/{each}", "parent": "m"} for each in self.adapters]
        return web.json_response({"data": [{**card, "max_model_len": self.max_model_len}, *adapters]})

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["add_special_tokens"] is False
        ids = encode_text(self.encoder, body["prompt"])
        return web.json_response({"tokens": [*ids, *([0] if self.extra_token else [])], "count": len(ids)})

    async def completion(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.headers.append(dict(request.headers))
        body = {name: value for name, value in body.items() if name not in self.drops}
        if self.answers:
            status, kind, text = self.answers.pop(0)
            return web.Response(status=status, content_type=kind, text=text)
        try:
            if self.is_dead:
                return web.json_response({"error": {"message": "EngineCore encountered an issue"}}, status=500)
            self.check(body)
            self._check_sampling(self.find_sampling(body))
        except RefusedError as error:
            return self.refuse({"error": {"message": str(error), "code": 400}})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            await self._write_all(response, request, body)
        except (ConnectionError, asyncio.CancelledError):
            self.num_closed += 1
            raise
        return response

    async def _write_all(self, response: web.StreamResponse, request: web.Request, body: dict[str, Any]) -> None:
        rows = self.find_rows(body)
        for number in range(self.find_sampling(body)[self.limit_field]):
            if number == self.drops_after and request.transport is not None:
                return request.transport.abort()
            await asyncio.sleep(self.delay_s)
            for index in reversed(range(len(rows))):  # in no order that one may count on
                event = self.build_event(body, index, rows[index], number)
                await response.write(f"data: {re.sub(*self.edit, json.dumps(event))}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")

    def _check_sampling(self, sampling: dict[str, Any]) -> None:
        is_greedy = sampling.get("temperature") == 0
        for name, (low, high) in _RANGES.items():
            if not low <= sampling.get(name, low) <= high and not (is_greedy and name == "top_k"):
                raise RefusedError(f"{name} must be in [{low}, {high}]")

    def refuse(self, error: dict[str, Any]) -> web.Response:
        return web.json_response(error, status=400)

    def check(self, body: dict[str, Any]) -> None:
        raise NotImplementedError

    def find_rows(self, body: dict[str, Any]) -> list[list[int]]:
        return [list(row) for row in body[self.rows_field]]

    def find_sampling(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    def build_event(self, body: dict[str, Any], index: int, row: list[int], number: int) -> dict[str, Any]:
        raise NotImplementedError

    def choose(
        self, row: Sequence[int], sampling: dict[str, Any], allowed: Sequence[int] = ()
    ) -> tuple[int, npt.NDArray[np.float64]]:
        """The next token, and the log probabilities that are told."""
        assert "logit_bias" not in sampling  # vLLM has a limit of them; what SGLang tells then is wrong
        told = self.find_log_probs(row)
        settings = {**_NEUTRAL, **_MODEL_DEFAULTS, **{name: sampling[name] for name in _NEUTRAL if name in sampling}}
        logits = told - told.min() + 1.0  # a penalty divides what is positive
        seen = np.unique(row)
        logits[seen] = logits[seen] / settings["repetition_penalty"] - settings["presence_penalty"]
        if allowed:
            logits[np.setdiff1d(np.arange(len(logits)), allowed)] = -np.inf
        chosen = int(logits.argmax())
        if settings["temperature"] != 0:
            logits[chosen] = -np.inf
            chosen = int(logits.argmax())
        if self.tells == "processed_logprobs":
            told = logits - np.logaddexp.reduce(logits)
        return chosen, told + 9.0 if self.tells == "raw_logits" else told


def _find_top(told: npt.NDArray[np.float64], count: int) -> list[int]:
    best = np.argpartition(-told, count)[:count]
    return [int(each) for each in best[np.argsort(-told[best])]]


@dataclass(slots=True)
class FakeVllmServer(FakeNamedServer):
    """Version 0.32 with the newer runner."""

    rows_field, limit_field = "prompt", "max_tokens"
    owner: str = "vllm"

    def check(self, body: dict[str, Any]) -> None:
        allowed = body.get("allowed_token_ids")
        for wrong, message in (
            (body.get("model", "m") not in ("m", *self.adapters), "The model does not exist."),
            ((body.get("logprobs") or 0) > self.max_top, f"greater than max allowed: {self.max_top}"),
            ("cache_salt" in body and body["cache_salt"] in ("", 0), "Parameter 'cache_salt' must be non-empty"),
            (allowed == [], "allowed_token_ids is not None and empty!"),
            (allowed and max(allowed) >= self.num_tokens, "allowed_token_ids contains out-of-vocab token id!"),
            (body["max_tokens"] < 1, "max_tokens must be at least 1, got 0."),
            (
                max(map(len, body["prompt"])) + body["max_tokens"] > (self.max_model_len or 0),
                "This model's maximum context length",
            ),
        ):
            if wrong:
                raise RefusedError(message)
        if allowed and len(allowed) > 1024:  # raised in the worker, which all requests need
            self.is_dead = True
            raise RefusedError(f"Too many allowed token IDs: {len(allowed)}")
        assert "logprob_token_ids" not in body  # spoils what is told to others

    def build_event(self, body: dict[str, Any], index: int, row: list[int], number: int) -> dict[str, Any]:
        chosen, told = self.choose(row, body, body.get("allowed_token_ids") or ())
        scores = None
        if body.get("logprobs") is not None:
            ids = list(dict.fromkeys([chosen, *_find_top(told, body["logprobs"])]))
            spell = "token_id:{}".format if body.get("return_tokens_as_token_ids") else "text {}".format
            top = {spell(each): max(float(told[each]), -9999.0) for each in ids}
            scores = {"tokens": [spell(chosen)], "token_logprobs": [float(told[chosen])], "top_logprobs": [top]}
        wants_ids = body.get("return_token_ids")
        choice = {
            "index": index,
            "text": "",
            "logprobs": scores,
            "finish_reason": "length" if number + 1 == body["max_tokens"] else None,
            "stop_reason": None,
            "prompt_token_ids": list(row) if wants_ids and not number else None,
            "token_ids": [chosen] if wants_ids else None,
        }
        row.append(chosen)
        return {"object": "text_completion", "model": "m", "choices": [choice]}


@dataclass(slots=True)
class FakeSglangServer(FakeNamedServer):
    """Version 0.5.23."""

    rows_field, limit_field = "input_ids", "max_new_tokens"
    owner: str = "sglang"
    num_cached: int = 3

    def refuse(self, error: dict[str, Any]) -> web.Response:
        return web.Response(text=f"data: {json.dumps(error)}\n\ndata: [DONE]\n\n", content_type="text/event-stream")

    def check(self, body: dict[str, Any]) -> None:
        named = body.get("token_ids_logprob")
        if not isinstance(body.get("cache_salt", ""), str):
            raise RefusedError("cache_salt should be a list or a string.")
        if named and len(named) != len(body["input_ids"]):
            raise RefusedError("The length of token_ids_logprob should be equal to the batch size.")

    def find_sampling(self, body: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in body["sampling_params"].items() if name not in self.drops}

    def build_event(self, body: dict[str, Any], index: int, row: list[int], number: int) -> dict[str, Any]:
        sampling, prompt = self.find_sampling(body), body["input_ids"][index]
        chosen, told = self.choose(row, sampling)
        row.append(chosen)
        is_last = number + 1 == sampling["max_new_tokens"]
        meta: dict[str, Any] = {
            "id": str(index),
            "finish_reason": {"type": "length", "length": number + 1} if is_last else None,
            "prompt_tokens": len(prompt),
            "completion_tokens": number + 1,
            "cached_tokens": self.num_cached,
        }
        if body.get("return_logprob"):
            meta["output_token_logprobs"] = [[float(told[chosen]), chosen, None]]
            if count := min(body.get("top_logprobs_num", 0), self.max_top):
                meta["output_top_logprobs"] = [[[float(told[i]), i, None] for i in _find_top(told, count)]]
            if named := body.get("token_ids_logprob"):
                meta["output_token_ids_logprobs"] = [[[float(told[i]), i, None] for i in named[index]]]
        output = row[len(prompt) :]
        event = {"index": index, "text": "", "output_ids": output[-1:] if self.is_incremental else output}
        echo = {"prompt_token_ids": prompt} if body.get("return_prompt_token_ids") else {}
        return {**event, "meta_info": meta, **echo}
