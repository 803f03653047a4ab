"""llama.cpp's server: token ids in, token ids and raw log probabilities out.

Each of its slots has the text of a document. To prefill it takes far longer than to complete a keystroke. With more
documents than slots, a document therefore keeps its slot for a turn, in which several keystrokes are completed: four
times what its prefill took, or until it asks for nothing for half a second. Then the document that has waited longest
gets the slot that was used least recently. A request without a document counts as a document that ends with it.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any  # parsed JSON
from urllib.parse import quote

from inference.errors import ModelError, ServerError
from inference.healing.token_tree import count_common
from inference.protocol.completion import CompletionRequest, FinishReason
from inference.remote.choice import GeneratedToken, TopLogprobs
from inference.remote.http_client import HttpClient, is_count, naming_malformed, parse_token, read_log_prob, read_whole
from inference.remote.server import RemoteServer

_log = logging.getLogger(__name__)

_GREEDY = {"temperature": 0.0, "samplers": ["top_k"], "top_k": 1, "repeat_penalty": 1.0}
_ALWAYS = {"cache_prompt": True, "stream": True, "response_fields": ["stop", "stop_type", "timings/prompt_n"]}
_FORGET = {"prompt": [0], "n_predict": 0, "cache_prompt": False}
_ONCE = {"Connection": "close"}  # as the server does after a stream, but says only now
_ALL = 2**20  # tokens: more than any vocabulary has
_TEXT = "def main():\n    return "  # with which it is measured
_NUM_TOP = 100  # tokens after each prompt: in nineteen of twenty choices, no more is asked for
_PLACE_BYTES, _MAX_ROW_BYTES = 256, 2**25  # the probabilities of all tokens, with a vocabulary of 262,144, take 21 MB
_PART_S = 0.1  # of prefill; a server does not notice in between that its client has left
_MIN_PART, _MAX_PART = 64, 4096  # tokens
_FORCED = 100.0  # added to a logit, it exceeds all others; the reported log probabilities are without it
_TURN = 4.0  # times what the prefill took
_IDLE_S = 0.5  # without a request, the turn is over
_GAP_S = 0.05  # that of a request without a document, which has asked for the first token and not yet for the rest
_FORGOTTEN_S = 1.0  # without a request, a document waits no longer
_POLL_S = 0.02


@dataclass(eq=False, slots=True)
class Slot:
    """A slot, which does one thing at a time, and what it has prefilled."""

    number: int
    document: str | int | None = None  # with its tenant; an int stands for a request without a document
    tenant: str | None = None  # whose text it has
    token_ids: list[int] = field(default_factory=list)  # those that it has, or more
    headers: Mapping[str, str] = field(default_factory=dict)  # of its requests
    prefill_s: float = 0.0  # how long it took to prefill them
    taken_at: float = 0.0
    used_at: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_free(self, now: float) -> bool:
        """Whether another document may take it."""
        idle_s = _IDLE_S if isinstance(self.document, str) else _GAP_S
        is_over = now - self.taken_at > _TURN * self.prefill_s or now - self.used_at > idle_s
        return not self.lock.locked() and (self.document is None or is_over)


class Slots:
    """The slots of one server, each with a document."""

    def __init__(self, number: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._all = [Slot(each) for each in range(number)]
        self._clock = clock
        # The documents that wait, the one that has waited longest first, and when they asked.
        self._waiting: dict[str | int, float] = {}

    def find_idle(self) -> Slot:
        """A slot that does nothing now, if there is one; of several, one with little text."""
        return min(self._all, key=lambda each: (each.lock.locked(), len(each.token_ids)))

    @asynccontextmanager
    async def use(self, document: str | int, has_text: Callable[[Slot], bool] = lambda _: False) -> AsyncIterator[Slot]:
        """Waits for the document's turn, and for what its slot does. Then the slot is the document's inside the block.

        A document keeps its place among those that wait, although its requests supersede each other. An int stands for
        a request without a document, which does not. `has_text`: whether a slot is preferred, if it is free.
        """
        try:
            while (slot := self._find(document, has_text)) is None:
                await asyncio.sleep(_POLL_S)
        finally:
            if isinstance(document, int):
                self._waiting.pop(document, None)
        async with slot.lock:
            try:
                yield slot
            finally:
                slot.used_at = self._clock()

    def _find(self, document: str | int, has_text: Callable[[Slot], bool]) -> Slot | None:
        now, slot = self._clock(), next((each for each in self._all if each.document == document), None)
        if slot is None:
            waiting = self._waiting | {document: now}
            self._waiting = {each: asked_at for each, asked_at in waiting.items() if now - asked_at < _FORGOTTEN_S}
            free = [each for each in self._all if each.is_free(now)]
            if not free or next(iter(self._waiting)) != document:
                return None
            slot = min(free, key=lambda each: (not has_text(each), each.used_at))
            slot.document, slot.taken_at, slot.used_at, slot.prefill_s = document, now, now, 0.0
        self._waiting.pop(document, None)
        return slot


class LlamaServer(RemoteServer):
    """llama-server."""

    kind = "llama.cpp's server"
    returns_distributions = True

    def __init__(self, http: HttpClient, model: str) -> None:
        """See `RemoteServer`."""
        super().__init__(http, model)
        self._slots, self._num_slots = Slots(1), 1
        self._prefill_lock = asyncio.Lock()  # of the one whose long prompt is prefilled
        self._whole_id = 0  # a token that does not end inside a character, of which the server reports nothing
        self._part = 256.0  # tokens that take about `_PART_S` to prefill

    async def identify(self) -> object:
        """See `RemoteServer`."""
        properties = await self._http.ask(f"props?model={quote(self._model, safe='')}")
        settings = properties.get("default_generation_settings") or {}
        if not is_count(properties.get("total_slots")) or not is_count(settings.get("n_ctx")):
            raise ModelError(f"{self.name} does not describe its slots (/props), so it is not llama.cpp's server")
        self._num_slots, self.max_tokens = properties["total_slots"], settings["n_ctx"]
        names = ("total_slots", "model_path", "model_alias", "build_info", "media_marker")
        return [properties.get(name) for name in names]

    async def measure(self) -> None:
        """See `RemoteServer`."""
        self._whole_id = (await self.tokenize("a"))[-1]
        self._slots = Slots(self._num_slots)
        if self._num_slots > 1 and await self._clears_idle_slots():
            words = "%s clears a slot when another one is used, so all documents share one. Start it with -np %d "
            _log.warning(words + "--cache-ram 0", self.name, self._num_slots)
            self._slots = Slots(1)

    async def _clears_idle_slots(self) -> bool:
        """Whether a slot loses its text when another one is used, as it does by default (`--cache-idle-slots`)."""
        headers = _ONCE | self._http.build_session("", self.name)  # a gateway sends all to the same server
        prompt = await self.tokenize(_TEXT)
        counts = [await self._prefill(Slot(number, headers=headers), prompt) for number in (0, 0, 1, 0)]
        return counts[3] > counts[1]

    async def tokenize(self, text: str) -> tuple[int, ...]:
        """See `RemoteServer`."""
        body = {"model": self._model, "content": text, "add_special": False, "parse_special": False}
        return tuple((await self._http.ask("tokenize", body))["tokens"])

    async def score(
        self, request: CompletionRequest, prompts: Sequence[tuple[int, ...]], num_top: int | None = None
    ) -> tuple[TopLogprobs, int | None]:
        """See `RemoteServer`."""
        num_top = num_top or _NUM_TOP
        bias = [[self._whole_id, _FORCED]]  # or the server might report nothing
        body = {"prompt": [*map(list, prompts)], "n_predict": 1, "n_probs": num_top, "logit_bias": bias, **_GREEDY}
        reported: dict[int, Mapping[int, float]] = {}
        counts: list[int] = []  # of the tokens of each prompt that were prefilled now
        max_bytes = min(2**20 + num_top * _PLACE_BYTES, _MAX_ROW_BYTES)
        async with self._stream(request, body, max_bytes) as (events, num_prefilled):
            async for event in events:
                for place in event.get("completion_probabilities", ()):
                    reported[event["index"]] = {
                        read_whole(each["id"]): read_log_prob(each["logprob"]) for each in place["top_logprobs"]
                    }
                if "timings/prompt_n" in event:
                    counts.append(read_whole(event["timings/prompt_n"]))
        num_cached = len(prompts[0]) - num_prefilled - counts[0] if counts else None
        return self._order(reported, len(prompts)), num_cached

    async def find_best_token(
        self, request: CompletionRequest, prompt: tuple[int, ...], allowed_token_ids: tuple[int, ...]
    ) -> tuple[int, float]:
        """See `RemoteServer`."""
        bias = [[token_id, _FORCED] for token_id in allowed_token_ids]
        body = {"prompt": list(prompt), "n_predict": 1, "n_probs": 1, "logit_bias": bias, **_GREEDY}
        async with self._stream(request, body) as (events, _):
            async for event in events:
                for place in event.get("completion_probabilities", ()):
                    if (token_id := read_whole(place["id"])) not in allowed_token_ids:
                        raise ServerError(f"{self.name} has chosen another token than those that it was asked about")
                    return token_id, read_log_prob(place["logprob"])
        (row,), _ = await self.score(request, [prompt], _ALL)  # the best one ends inside a character
        best = max(allowed_token_ids, key=lambda each: row.get(each, -math.inf))
        if best not in row:
            raise ServerError(f"{self.name} has reported no probability")
        return best, row[best]

    async def prefill(self, request: CompletionRequest, prompt: tuple[int, ...]) -> None:
        """See `RemoteServer`. A probe sends the text that a slot has, so that it stays cached."""
        if request.is_probe:
            async with (slot := self._slots.find_idle()).lock:
                await self._prefill(slot, slot.token_ids or prompt)
            return
        async with self._stream(request, {"prompt": list(prompt), "n_predict": 0, **_GREEDY}) as (events, _):
            async for _ in events:
                pass

    async def generate(
        self, request: CompletionRequest, prompt: tuple[int, ...], max_tokens: int, seed: int | None = None
    ) -> AsyncGenerator[GeneratedToken | FinishReason, None]:
        """See `RemoteServer`."""
        sampling: dict[str, Any] = _GREEDY
        if request.temperature > 0:
            sampling = {"samplers": ["temperature", "top_p"], "temperature": request.temperature, "dynatemp_range": 0.0}
            sampling |= {"top_p": request.top_p, "seed": -1 if seed is None else seed % 2**31}
        ids, end, num_lost = list(prompt), len(prompt) + max_tokens, 0
        while True:
            for _ in range(num_lost):
                (row,), _ = await self.score(request, [tuple(ids)], 1)
                [(token_id, log_prob)] = row.items()
                ids.append(token_id)
                yield GeneratedToken(token_id, log_prob)
            num_before, num_lost = len(ids), 0
            body = {"prompt": [*ids], "n_predict": end - len(ids), "return_tokens": True, "n_probs": 1, **sampling}
            async with self._stream(request, body) as (events, _):
                async for event in events:
                    if (num_lost := _count_lost(event, len(ids) - num_before)) > 0:
                        break  # and asks for each of them
                    reported = {read_whole(place["id"]): place for place in event.get("completion_probabilities", ())}
                    for token_id in event.get("tokens", ()):
                        ids.append(token_id)
                        yield _parse_token(token_id, reported.get(token_id))
                    if event.get("stop"):
                        yield FinishReason.LENGTH if event.get("stop_type") == "limit" else FinishReason.END
                        return
                else:
                    raise ServerError(f"{self.name} has ended its answer without a reason")
            if request.temperature > 0:
                yield FinishReason.END  # the most likely one is not the one that was drawn
                return

    @asynccontextmanager
    async def _stream(
        self, request: CompletionRequest, body: Mapping[str, Any], max_bytes: int = 2**20
    ) -> AsyncIterator[tuple[AsyncGenerator[dict[str, Any], None], int]]:
        """The events of a completion, on the slot of the request's document, which may have its text already.

        With them comes how many tokens of the first prompt were prefilled before, in parts. Before another tenant uses
        a slot, its text is replaced by a single token. A request without a document takes a slot with most of its text
        first.
        """
        prompts = body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]]

        def has_text(slot: Slot) -> bool:
            is_own = not request.document and slot.tenant == request.tenant
            return is_own and 2 * count_common(slot.token_ids, prompts[0]) > len(prompts[0])

        document = f"{request.tenant}\0{request.document}" if request.document else id(request)
        async with self._slots.use(document, has_text) as slot:
            slot.headers = _ONCE | self._http.build_session(request.tenant, request.document)
            if slot.tenant != request.tenant:
                slot.tenant, slot.token_ids = None, []
                await self._http.ask(
                    "completion", {"model": self._model, **_FORGET, "id_slot": slot.number}, slot.headers
                )
                slot.tenant = request.tenant
            num_prefilled = await self._prefill_in_parts(slot, prompts[0])
            slot.token_ids = prompts[0]
            async with self._send(slot, body, len(prompts) * body["n_predict"], max_bytes) as events:
                yield events, num_prefilled

    async def _prefill_in_parts(self, slot: Slot, prompt: list[int]) -> int:
        """Has a long prompt prefilled in parts, but for the last, which comes with the request. Returns their tokens.

        One prompt at a time: several would only slow each other down.
        """
        num_prefilled = 0
        if len(prompt) - count_common(slot.token_ids, prompt) > self._part:
            async with self._prefill_lock:
                while (start := count_common(slot.token_ids, prompt)) < len(prompt) - self._part:
                    started_at, slot.token_ids = time.monotonic(), prompt[: start + int(self._part)]
                    num_prefilled += await self._prefill(slot, slot.token_ids)
                    elapsed_s = max(time.monotonic() - started_at, 1e-3)  # a coarse clock may stand still
                    slot.prefill_s += elapsed_s
                    self._part = min(max(self._part * min(_PART_S / elapsed_s, 2.0), _MIN_PART), _MAX_PART)
        return num_prefilled

    async def _prefill(self, slot: Slot, prompt: Sequence[int]) -> int:
        """Has a prompt prefilled. Returns how many of its tokens the slot did not have."""
        async with self._send(slot, {"prompt": prompt, "n_predict": 0, **_GREEDY}, 0) as events:
            counts = [read_whole(event["timings/prompt_n"]) async for event in events if "timings/prompt_n" in event]
        if not counts:
            raise ServerError(f"{self.name} does not say that a prompt is prefilled")
        return sum(counts)

    @asynccontextmanager
    async def _send(
        self, slot: Slot, body: Mapping[str, Any], num_tokens: int, max_bytes: int = 2**20
    ) -> AsyncIterator[AsyncGenerator[dict[str, Any], None]]:
        body = {"model": self._model, **body, **_ALWAYS, "id_slot": slot.number}
        with naming_malformed(self.name):
            async with aclosing(self._http.stream("completion", body, num_tokens, slot.headers, max_bytes)) as events:
                yield events


def _count_lost(event: Mapping[str, Any], num_known: int) -> int:
    """How many tokens before those of an event the server has written, and told nothing of.

    It sends no event for a token that ends inside a character, and then one with the text of both. Tokens that a draft
    model has guessed are counted before they are sent, so the number alone does not say it.
    """
    place: Mapping[str, Any] = next(iter(event.get("completion_probabilities", ())), {})
    own = next((each for each in place.get("top_logprobs") or () if each["id"] == place["id"]), None)
    is_whole = event.get("content", "").isascii() if own is None else len(own["bytes"]) == len(place["bytes"])
    num_more = read_whole(event.get("tokens_predicted", 0)) - num_known - len(event.get("tokens", ()))
    return 0 if is_whole else num_more


def _parse_token(token_id: object, place: Mapping[str, Any] | None) -> GeneratedToken:
    """A token of an event. One that a draft model has guessed is reported to be certain, and has none beside it."""
    if not place or not place.get("top_logprobs"):
        return GeneratedToken(read_whole(token_id), None)
    return parse_token(token_id, place["logprob"])
