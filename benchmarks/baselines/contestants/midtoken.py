"""midtoken: its engine in the contestant's own process, or its server as editors use it.

    python -m benchmarks.baselines.contestants.midtoken MODEL_DIR --threads N [--server | --passes]

With `--server`, the gRPC client asks a host. With `--passes`, single passes of the runner for the CPU are
timed: five rows are a tree, as healing makes one, and long texts are read in pieces, as the engine does.
"""

import asyncio
from contextlib import AsyncExitStack

from benchmarks.baselines.contestants.line_protocol import (
    Complete,
    Line,
    Passes,
    Request,
    parse_arguments,
    serve,
    serve_passes,
)
from benchmarks.measures.host import run_host
from inference.client.client import Client
from inference.config import EngineConfig
from inference.engine.job import ChunkBuffer
from inference.engine.local_executor import load_engine
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SequencePart
from inference.model.loader import load_model
from inference.protocol.completion import Chunks, CompletionChunk, CompletionRequest, Extent

_PIECE = 512
_PARENTS = {1: (None,), 5: (None, 0, None, 2, 2)}


class LineSink(ChunkBuffer):
    """Also sends the text on as it comes."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self.line = line

    def send(self, chunk: CompletionChunk) -> None:
        self.line.send(chunk.text)
        super().send(chunk)


def main() -> None:
    options = parse_arguments(__doc__, "--server", "--passes")
    config = EngineConfig(
        options.model.resolve(), dtype=options.dtype, num_threads=options.threads, graph_dir=options.graph_dir
    )
    if options.passes:
        serve_passes(lambda: _OwnPasses(config))
    elif options.server:
        _serve_client(config)
    else:
        serve(lambda: _load_engine(config))


def _build_request(request: Request) -> CompletionRequest:
    """A line at the cursor, with exact healing, sent token by token."""
    return CompletionRequest(
        request.text, max_tokens=request.max_tokens, extent=Extent.SINGLE_LINE, chunks=Chunks.TOKENS
    )


def _load_engine(config: EngineConfig) -> Complete:
    engine = load_engine(config)

    def complete(request: Request, line: Line) -> None:
        sink = LineSink(line)
        engine.submit(_build_request(request), sink)
        sink.wait()

    return complete


def _serve_client(config: EngineConfig) -> None:
    stack = AsyncExitStack()
    with asyncio.Runner() as runner:

        async def connect() -> Client:
            return await stack.enter_async_context(Client(await stack.enter_async_context(run_host(config))))

        def load() -> Complete:
            client = runner.run(connect())
            return lambda request, line: runner.run(_complete(client, request, line))

        try:
            serve(load)
        finally:
            runner.run(stack.aclose())


async def _complete(client: Client, request: Request, line: Line) -> None:
    async for chunk in client.stream(_build_request(request)):
        line.send(chunk.text)


class _OwnPasses(Passes):
    def __init__(self, config: EngineConfig) -> None:
        self._model = load_model(config).model
        self._cache = self._model.new_cache(1)

    def read(self, token_ids: list[int]) -> None:
        self._cache = self._model.new_cache(len(token_ids))
        for start in range(0, len(token_ids), _PIECE):
            tree = TokenTree(tuple(token_ids[start : start + _PIECE]))
            self._model.forward([SequencePart(self._cache, tree, wants_logits=start + _PIECE >= len(token_ids))])
            self._cache.keep(tree)

    def cut(self, num_tokens: int) -> None:
        self._cache.cut(num_tokens)

    def forward(self, token_ids: list[int]) -> None:
        tree = TokenTree((), tuple(token_ids), _PARENTS[len(token_ids)])
        self._model.forward([SequencePart(self._cache, tree)])


if __name__ == "__main__":
    main()
