"""The interface to an inference server, which has the weights: log probabilities and tokens after a prompt."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import ClassVar

from inference.errors import ServerError
from inference.protocol.completion import CompletionRequest, FinishReason
from inference.remote.choice import GeneratedToken, TopLogprobs
from inference.remote.http_client import HttpClient


class RemoteServer(ABC):
    """A server with a model. All calls are made in one event loop, and raise ServerError or OverloadedError."""

    kind: ClassVar[str]
    returns_distributions: bool = False  # whether it reports whole distributions, and samples
    returns_logprobs: bool = False  # whether it reports how likely each token is that it writes; measured

    def __init__(self, http: HttpClient, model: str) -> None:
        """`model`: its name there, by which a router among several servers knows the one to ask."""
        http.name = self.name = f"{self.kind} at {http.url}"
        self._http, self._model = http, model
        self.max_tokens = 0  # of its window; known once it was identified

    @abstractmethod
    async def identify(self) -> object:
        """An identity that changes if the server restarts with another model. Raises ModelError if it is not usable."""

    @abstractmethod
    async def measure(self) -> None:
        """Finds out which fields reach the server, besides what `ServerHealth` does. Raises ModelError."""

    @abstractmethod
    async def tokenize(self, text: str) -> tuple[int, ...]:
        """The server's own tokens of a text, in which nothing is a control token."""

    @abstractmethod
    async def score(
        self, request: CompletionRequest, prompts: Sequence[tuple[int, ...]], num_top: int | None = None
    ) -> tuple[TopLogprobs, int | None]:
        """The most likely tokens after each prompt, and how many tokens of the first one were cached, if it tells.

        `num_top`: how many, or as many as the server reports. None: its default.
        """

    @abstractmethod
    async def find_best_token(
        self, request: CompletionRequest, prompt: tuple[int, ...], allowed_token_ids: tuple[int, ...]
    ) -> tuple[int, float]:
        """The most likely of the allowed tokens after a prompt, and its log probability."""

    @abstractmethod
    async def prefill(self, request: CompletionRequest, prompt: tuple[int, ...]) -> None:
        """Has the server prefill a prompt, which it caches. For a probe, any prompt will do."""

    @abstractmethod
    def generate(
        self, request: CompletionRequest, prompt: tuple[int, ...], max_tokens: int, seed: int | None = None
    ) -> AsyncGenerator[GeneratedToken | FinishReason, None]:
        """At most so many tokens that follow, one after the other; then, why none follows. `seed`: of what samples."""

    def _order(self, reported: Mapping[int, Mapping[int, float]], num_prompts: int) -> TopLogprobs:
        """What is reported of each prompt. Raises ServerError if that is not one row for each."""
        if reported.keys() != set(range(num_prompts)):
            raise ServerError(f"{self.name} has reported the probabilities of {len(reported)} of {num_prompts} prompts")
        return [reported[index] for index in range(num_prompts)]
