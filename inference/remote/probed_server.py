"""vLLM and SGLang, which are given token ids. Their limits are found out by probing them.

A query asks for the most likely tokens after a prompt, for the best of some named ones, or for what follows. A class
for each kind of server turns a query into a request, and the response into deltas.
"""

import asyncio
import math
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, ClassVar  # parsed JSON

from inference.errors import (
    InferenceServerUnreachableError,
    InvalidRequestError,
    ModelError,
    ServerError,
    name_some,
    quote,
)
from inference.protocol.completion import CompletionRequest, FinishReason
from inference.remote.choice import LOGPROB_TOLERANCE, GeneratedToken, TopLogprobs
from inference.remote.http_client import HttpClient, is_count, naming_malformed, parse_token, read_number, read_whole
from inference.remote.server import RemoteServer

# Each field is sent, since a server takes what is absent from the model's files or from its own settings.
_GREEDY: Mapping[str, float] = {
    "temperature": 0,
    "top_p": 1,
    "top_k": -1,
    "min_p": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
}
# Refused where they arrive. With temperature 0, no server looks at the others.
_WRONG = {"temperature": -1, "repetition_penalty": -1, "presence_penalty": 3, "frequency_penalty": 3}
_NUM_TOPS = (200, 20, 5)  # tokens of each prompt: the first number that the server allows; vLLM's own limit is 20
_MAX_NAMED = 1024  # tokens in one request: more of them stop the newer runner of vLLM
_TEXT = "def main():\n    return "  # with which it is measured
_ENDS = {"stop": FinishReason.END, "length": FinishReason.LENGTH}
_NOBODY = CompletionRequest("")
_TOKEN_ID = "token_id:"  # before a token's number, as vLLM reports it


@dataclass(frozen=True, slots=True)
class PromptQuery:
    """What follows each prompt, and what is reported of the token that comes first there."""

    prompts: Sequence[tuple[int, ...]]
    max_tokens: int = 1
    num_top: int = 0  # of the most likely tokens
    allowed_token_ids: tuple[int, ...] = ()  # the best of these only
    sampling: Mapping[str, float] = field(default_factory=lambda: _GREEDY)
    salt: object = None  # instead of the tenant's
    wants_echo: bool = False  # the prompt as the server has understood it, which is as long as the prompt

    @property
    def wants_scores(self) -> bool:
        """True if log probabilities are asked for."""
        return bool(self.num_top or self.allowed_token_ids)


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """Some tokens that follow a prompt."""

    prompt_index: int
    written: Sequence[GeneratedToken]
    log_probs: Mapping[int, float]  # of tokens in the first one's place, by their ids
    end: str | None  # why nothing follows
    echo: Sequence[int] | None  # the prompt as the server has understood it
    is_cumulative: bool = False  # False: of the tokens, it has those that are new
    num_cached: int | None = None  # cached tokens of the prompt, if the server tells


class ProbedServer(RemoteServer):
    """A server of which only a query shows what it understands."""

    has_adapters: ClassVar[bool] = False  # whether a model's name may be that of an adapter (LoRA)
    measured_s: float = 600.0  # what it lets through may have changed since, and nothing says when it was started

    def __init__(self, http: HttpClient, model: str) -> None:
        """See `RemoteServer`."""
        super().__init__(http, model)
        self._num_top, self._has_salts = 0, False

    @abstractmethod
    def _build(self, query: PromptQuery) -> tuple[str, dict[str, Any]]:
        """The path and the body of a request."""

    @abstractmethod
    def _parse(self, event: dict[str, Any]) -> list[OutputDelta]:
        """What an event reports. May raise what follows from a field that is absent or of another kind."""

    async def identify(self) -> object:
        """See `RemoteServer`."""
        card = await fetch_model_card(self._http)
        if card.get("parent") and not self.has_adapters:
            raise ModelError(f"{self.name} has {quote(str(card.get('id')))} as an adapter; only those of vLLM are used")
        if not is_count(card.get("max_model_len")):
            raise ModelError(f"{self.name} does not tell how many tokens its model sees (/v1/models)")
        self._model, self.max_tokens = str(card.get("id")), card["max_model_len"]
        return [self._model, card.get("root"), self.max_tokens, time.monotonic() // self.measured_s]

    async def tokenize(self, text: str) -> tuple[int, ...]:
        """See `RemoteServer`."""
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        reported = await self._http.ask("tokenize", body)
        return tuple(reported.get("tokens", ()))

    async def score(
        self, request: CompletionRequest, prompts: Sequence[tuple[int, ...]], num_top: int | None = None
    ) -> tuple[TopLogprobs, int | None]:
        """See `RemoteServer`."""
        query = PromptQuery(prompts, num_top=min(num_top or self._num_top, self._num_top))
        reported = {each.prompt_index: each for each in await self._gather(request, query)}
        rows = self._order({index: each.log_probs for index, each in reported.items()}, len(prompts))
        for delta in reported.values():
            first = delta.log_probs.get(delta.written[0].token_id, -math.inf)
            if first < max(delta.log_probs.values(), default=math.inf) - LOGPROB_TOLERANCE:
                raise ServerError(f"{self.name} chooses another token than the likeliest: it samples in its own way")
        return rows, reported[0].num_cached

    async def find_best_token(
        self, request: CompletionRequest, prompt: tuple[int, ...], allowed_token_ids: tuple[int, ...]
    ) -> tuple[int, float]:
        """See `RemoteServer`."""
        parts = [
            allowed_token_ids[start : start + _MAX_NAMED] for start in range(0, len(allowed_token_ids), _MAX_NAMED)
        ]
        answers = await asyncio.gather(
            *(self._gather(request, PromptQuery([prompt], allowed_token_ids=part)) for part in parts)
        )
        reported = {
            token_id: value for deltas in answers for delta in deltas for token_id, value in delta.log_probs.items()
        }
        if not all(answers) or not reported or not reported.keys() <= set(allowed_token_ids):
            raise ServerError(f"{self.name} tells of other tokens than those that it was asked about, or of none")
        return max(reported.items(), key=lambda each: each[1])

    async def prefill(self, request: CompletionRequest, prompt: tuple[int, ...]) -> None:
        """See `RemoteServer`."""
        await self._gather(request, PromptQuery([prompt]))

    async def generate(
        self,
        request: CompletionRequest,
        prompt: tuple[int, ...],
        max_tokens: int,
        seed: int | None = None,  # noqa: ARG002  # it does not sample
    ) -> AsyncGenerator[GeneratedToken | FinishReason, None]:
        """See `RemoteServer`."""
        num_reported = 0
        async with aclosing(self._ask(request, PromptQuery([prompt], max_tokens, 1))) as deltas:
            async for delta in deltas:
                for written in delta.written[num_reported if delta.is_cumulative else 0 :]:
                    num_reported += 1
                    yield written
                if (end := str(delta.end)) in _ENDS:
                    yield _ENDS[end]
                    return
        raise ServerError(f"{self.name} has ended its answer without a reason")

    async def _gather(self, request: CompletionRequest, query: PromptQuery) -> list[OutputDelta]:
        deltas = [delta async for delta in self._ask(request, query) if delta.written]
        for delta in deltas:
            reported = delta.log_probs.values()
            if max(reported, default=0) > LOGPROB_TOLERANCE or sum(map(math.exp, reported)) > 1 + LOGPROB_TOLERANCE:
                raise ServerError(f"{self.name} tells other numbers than log probabilities (--logprobs-mode)")
        return deltas

    async def _ask(self, request: CompletionRequest, query: PromptQuery) -> AsyncGenerator[OutputDelta, None]:
        """Closing the generator ends its work on the server."""
        num_tokens, (path, body) = len(query.prompts) * query.max_tokens, self._build(query)
        salt = self._find_salt(request) if query.salt is None else query.salt
        body |= {"stream": True, "cache_salt": salt} if salt is not None else {"stream": True}
        headers = self._http.build_session(request.tenant, request.document)
        async with aclosing(self._http.stream(path, body, num_tokens, headers)) as events:
            async for event in events:
                with naming_malformed(self.name):
                    deltas = self._parse(event)
                for delta in deltas:
                    yield delta

    def _find_salt(self, request: CompletionRequest) -> str | None:
        """What keeps a tenant's text, as far as it is remembered, from others."""
        if not request.tenant:
            return None
        if not self._has_salts:
            raise InvalidRequestError(f"{self.name} does not get the salts that keep tenants apart (cache_salt)")
        return self._http.pseudonymize(request.tenant)

    async def measure(self) -> None:
        """See `RemoteServer`."""
        prompt = await self.tokenize(_TEXT)
        allowed = [each for each in _NUM_TOPS if not await self._refuses(PromptQuery([prompt], num_top=each))]
        self._num_top = max(allowed, default=1)
        deltas = await self._gather(_NOBODY, PromptQuery([prompt], wants_echo=True))
        if [tuple(delta.echo or ()) for delta in deltas] != [prompt]:
            raise ModelError(f"{self.name} does not confirm the token ids that it was sent")
        for name, wrong in _WRONG.items():
            if not await self._refuses(PromptQuery([prompt], sampling={**_GREEDY, name: wrong})):
                raise ModelError(f"{self.name} does not get the field {name}, or does not understand it")
        self._has_salts = await self._refuses(PromptQuery([prompt], salt=0))

    async def _refuses(self, query: PromptQuery) -> bool:
        """True if a field with a wrong value is refused. What does not know it, or drops it, lets it pass."""
        try:
            await self._gather(_NOBODY, query)
        except InferenceServerUnreachableError:
            raise
        except ServerError:
            return True
        return False


class VllmServer(ProbedServer):
    """Named tokens are all that it may choose. Its log probabilities are those before that.

    It could report those of named tokens, too (`logprob_token_ids`), but one of its runners then reports wrong ones to
    the requests beside (vllm#51789).
    """

    kind = "vLLM"
    has_adapters = True

    def _build(self, query: PromptQuery) -> tuple[str, dict[str, Any]]:
        body = {"model": self._model, "prompt": list(map(list, query.prompts)), "max_tokens": query.max_tokens}
        if query.allowed_token_ids:
            body["allowed_token_ids"] = list(query.allowed_token_ids)
        if query.wants_scores:
            body |= {"logprobs": query.num_top, "return_tokens_as_token_ids": True}
        return "v1/completions", {**body, **query.sampling, "return_token_ids": query.wants_echo}

    def _parse(self, event: dict[str, Any]) -> list[OutputDelta]:
        return [self._parse_choice(choice) for choice in event["choices"]]

    def _parse_choice(self, choice: dict[str, Any]) -> OutputDelta:
        scores = choice["logprobs"] or {"tokens": (), "token_logprobs": (), "top_logprobs": ()}
        written = [*map(parse_token, map(_read_id, scores["tokens"]), scores["token_logprobs"])]
        written = written or [GeneratedToken(read_whole(token_id), None) for token_id in choice.get("token_ids") or ()]
        top: dict[str, object] = next(iter(scores["top_logprobs"]), {})
        log_probs = {_read_id(token): read_number(value) for token, value in top.items()}
        prompt, echo = read_whole(choice["index"]), choice.get("prompt_token_ids")
        return OutputDelta(prompt, written, log_probs, choice["finish_reason"], echo)


def _read_id(token: str) -> int:
    return int(token.removeprefix(_TOKEN_ID))


class SglangServer(ProbedServer):
    """It reports the log probabilities of named tokens, whatever it chooses.

    A bias would change what it reports, so none is sent. Nobody has run it with a real server.
    """

    kind = "SGLang"

    def _build(self, query: PromptQuery) -> tuple[str, dict[str, Any]]:
        body: dict[str, Any] = {
            "model": self._model,  # for a router
            "input_ids": list(map(list, query.prompts)),
            "sampling_params": {"max_new_tokens": query.max_tokens, **query.sampling},
            "return_prompt_token_ids": query.wants_echo,
        }
        if query.wants_scores:
            body |= {"return_logprob": True, "top_logprobs_num": query.num_top}
        if query.allowed_token_ids:
            body["token_ids_logprob"] = [list(query.allowed_token_ids)]
        return "generate", body

    def _parse(self, event: dict[str, Any]) -> list[OutputDelta]:
        meta, token_ids = event["meta_info"], [*map(read_whole, event["output_ids"])]
        places = meta.get("output_token_ids_logprobs") or meta.get("output_top_logprobs") or [()]
        log_probs = {read_whole(token_id): read_number(value) for value, token_id, _ in places[0] or ()}
        end, is_cumulative = meta["finish_reason"], len(token_ids) == read_whole(meta["completion_tokens"])
        echo = event.get("prompt_token_ids")
        prompt, written = (
            read_whole(event.get("index", 0)),
            _parse_tokens(token_ids, meta.get("output_token_logprobs") or ()),
        )
        num_cached = read_whole(meta["cached_tokens"]) if "cached_tokens" in meta else None
        return [OutputDelta(prompt, written, log_probs, end and end["type"], echo, is_cumulative, num_cached)]


def _parse_tokens(token_ids: list[int], places: Sequence[tuple[object, object, object]]) -> list[GeneratedToken]:
    """The tokens of an event. Of tokens and places, each may be all so far, or those that are new."""
    reported = [parse_token(token_id, value) for value, token_id, _ in places][-len(token_ids) or len(places) :]
    written = [*(GeneratedToken(each, None) for each in token_ids[: len(token_ids) - len(reported)]), *reported]
    if [each.token_id for each in written] != token_ids:
        raise ValueError("the log probabilities are those of other tokens")
    return written


async def fetch_model_card(http: HttpClient) -> Mapping[str, Any]:
    """How a server describes the model that is named, or its only one. What an adapter lacks is that of its model.

    Raises ServerError, or ModelError if it has none, or several and none of them is named.
    """
    cards = (await http.ask("v1/models")).get("data")
    if not isinstance(cards, list) or not cards or not all(isinstance(each, dict) for each in cards):
        raise ModelError(f"{http.name} names no model (/v1/models)")
    wanted, is_needed = http.model.removesuffix("?"), bool(http.model) and not http.model.endswith("?")
    ways = (str, _shorten) if wanted else ()
    found = [[each for each in cards if way(wanted) in map(way, _list_names(each))] for way in ways]
    if not is_needed:
        found.append(cards)
    several = next((some for some in found if some), [])
    if len({str(each.get("root") or each.get("id")) for each in several}) != 1:
        names = name_some([quote(str(each.get("id"))) for each in cards])
        which = f"no model {quote(wanted)}" if is_needed and not several else "several models"
        raise ModelError(f"{http.name} has {which}: it has {names}; name one with --engine {http.url}#NAME")
    card: dict[str, Any] = several[0]
    parent: dict[str, Any] = next((each for each in cards if each.get("id") == card.get("parent")), {})
    return {**parent, **{name: value for name, value in card.items() if value is not None}}


def _list_names(card: Mapping[str, Any]) -> list[str]:
    aliases = card.get("aliases")
    names = [card.get("id"), card.get("root"), *(aliases if isinstance(aliases, list) else ())]
    return [each for each in names if isinstance(each, str)]


def _shorten(name: str) -> str:
    """The name without folders, owner, commit and ending, in which a setting and a server may differ."""
    return name.partition("@")[0].rstrip("/").rpartition("/")[2].removesuffix(".gguf").lower()
