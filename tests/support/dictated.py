"""A model that writes what a test says, in tokens that cut words and code points, behind the embedded service.

What it writes is a function of the text that its sequence has, so a sequence of another request would show.
"""

import zlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from tritonclient.grpc import service_pb2

from inference.client.channel import COMPLETION, add_tensors, read_tensors
from inference.config import EngineConfig
from inference.engine.local_executor import start_engine
from inference.healing.covering import Crossing, Rule
from inference.hosting.host import _Service
from inference.model.language_model import SequencePart
from inference.model.sampler import SampledToken, SampleRequest, SampleResult
from inference.protocol.arrays import chunk_from_arrays, error_from_text, request_to_arrays
from inference.protocol.completion import CompletionChunk, CompletionRequest
from lsp_server.guard import Cleared
from tests.support.engine_bench import Clock
from tests.support.hosted_models import load_hosted_model
from tests.support.lsp_fakes import FedBackend
from tests.support.scripted_model import CountedRow, ScriptedModel
from tests.support.toys import END, ToyTokenizer, build_prompts, toy_tokenizer


class _Row(CountedRow):
    """The text of the sequence up to here."""

    text: bytes


class DictatedModel(ScriptedModel):
    """Writes `find_rest(text)` after the bytes of a sequence, in tokens that depend on these bytes."""

    def __init__(self, toy: ToyTokenizer, find_rest: Callable[[bytes], bytes]) -> None:
        super().__init__(toy, max_tokens=2048)
        self._find_rest = find_rest
        self._ids = {token: token_id for token_id, token in enumerate(toy.vocabulary.token_bytes) if token}
        self._max_bytes = max(map(len, self._ids))
        self._end_id = toy.vocabulary.special_tokens[END]

    def forward(self, parts: Sequence[SequencePart]) -> list[list[Any]]:
        super().forward(parts)
        return [self._read(part) for part in parts]

    def count_held(self) -> None:
        """Counts nothing: with a hundred thousand caches, counting them at each new one would take most of the time."""

    def _read(self, part: SequencePart) -> list[Any]:
        tree, join = part.tree, self.toy.join
        start = join((*part.cache.token_ids, *tree.chain_ids))  # type: ignore[attr-defined]
        nodes = [*([None] if tree.chain_ids else []), *range(len(part.stored), len(tree.branch_ids))]
        return [_make_row(start + join(tree.spell_path(node))) for node in nodes] if part.wants_logits else []

    def _choose(self, request: SampleRequest) -> SampleResult:
        unread = tuple(branch for branch in range(len(request.tree.branch_ids)) if request.rows[branch + 1] is None)
        if unread:
            return SampleResult((), unread)
        choices = [each for crossing in request.crossings for each in self._list_choices(request, crossing)]
        seed = zlib.crc32(request.rows[0].text)
        return SampleResult((Random(seed).choice(choices),) * len(request.random_sources))

    def _list_choices(self, request: SampleRequest, crossing: Crossing) -> list[SampledToken]:
        text = request.rows[0 if crossing.node is None else crossing.node + 1].text
        healed = crossing.remaining_bytes
        rest = healed + self._find_rest(text + healed)
        if not rest:
            return [SampledToken(crossing, self._end_id, 0.0)]
        least = 1 if crossing.rule is Rule.SPELL else len(healed) + (crossing.rule is Rule.CROSS)
        ends = range(max(least, 1), min(len(rest), self._max_bytes) + 1)
        return [SampledToken(crossing, self._ids[rest[:end]], 0.0) for end in ends if rest[:end] in self._ids]


def _make_row(text: bytes) -> _Row:
    row = _Row()
    object.__setattr__(row, "text", text)
    return row


class DictatedService(FedBackend):
    """A backend: a request becomes a message, and what the hosted and the engine answer comes back as messages."""

    def __init__(self, hosted: Any) -> None:
        super().__init__()
        self.hosted = hosted
        self._service = _Service({COMPLETION: hosted})

    async def stream(self, request: Cleared[CompletionRequest]) -> AsyncGenerator[CompletionChunk, None]:
        async for chunk in self.ask(request.value):
            yield chunk

    async def ask(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        """Yields the chunks of an answer, or raises its error."""
        message = service_pb2.ModelInferRequest(model_name=COMPLETION)
        add_tensors(message.inputs, message.raw_input_contents, request_to_arrays(request))
        async for answer in self._service.ModelStreamInfer(_one(message), None):
            if answer.error_message:
                raise error_from_text(answer.error_message)
            outputs = answer.infer_response
            yield chunk_from_arrays(read_tensors(outputs.outputs, outputs.raw_output_contents))

    async def close(self) -> None:
        """The engine goes on for others."""


async def _one(message: Any) -> AsyncGenerator[Any, None]:
    yield message


@contextmanager
def run_dictated(
    find_rest: Callable[[bytes], bytes],
    kind: str = "qwen",
    **settings: Any,
) -> Iterator[DictatedService]:
    """Runs an engine with a dictated model."""
    toy = toy_tokenizer(kind)
    model = DictatedModel(toy, find_rest)
    folder = Path("m")
    hosted = load_hosted_model(
        COMPLETION, lambda _: start_engine(EngineConfig(folder, **settings), model, build_prompts(toy), Clock())
    )
    try:
        yield DictatedService(hosted)
    finally:
        hosted.finalize()
