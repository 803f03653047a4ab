"""What a server is asked for, and which one is at an address."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from inference.errors import ModelError
from inference.protocol.completion import CompletionRequest, FinishReason
from inference.remote.choice import GeneratedToken, TopLogprobs
from inference.remote.http_client import HttpClient
from inference.remote.llama_server import LlamaServer
from inference.remote.probed_server import fetch_model_card
from inference.remote.sglang import SglangServer
from inference.remote.vllm import VllmServer


class RemoteServer(Protocol):
    """A server with a model. All calls are made in one event loop, and raise ServerError or OverloadedError."""

    name: str
    max_tokens: int  # of its window; known once it was identified
    returns_distributions: bool  # whether it reports whole distributions, and samples
    returns_logprobs: bool  # whether it tells how likely each token is that it writes; found out by `ServerHealth`

    async def identify(self) -> object:
        """An identity that changes if the server restarts with another model. Raises ModelError if it is not usable."""

    async def tokenize(self, text: str) -> tuple[int, ...]:
        """The server's own tokens of a text, in which nothing is a control token."""

    async def score(
        self, request: CompletionRequest, prompts: Sequence[tuple[int, ...]], num_top: int | None = None
    ) -> TopLogprobs:
        """The most likely tokens after each prompt: `num_top`, or as many as the server reports. None: its default."""

    async def find_best_token(
        self, request: CompletionRequest, prompt: tuple[int, ...], allowed_token_ids: tuple[int, ...]
    ) -> tuple[int, float]:
        """The most likely of the allowed tokens after a prompt, and its log probability."""

    async def prefill(self, request: CompletionRequest, prompt: tuple[int, ...]) -> None:
        """Has the server prefill a prompt, which it caches."""

    def generate(
        self, request: CompletionRequest, prompt: tuple[int, ...]
    ) -> AsyncGenerator[GeneratedToken | FinishReason, None]:
        """The tokens that follow, one after the other; then, why none follows."""


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
