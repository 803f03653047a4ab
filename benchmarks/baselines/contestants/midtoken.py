"""midtoken: its engine in the contestant's own process, or its server as editors use it.

    python -m benchmarks.baselines.contestants.midtoken MODEL_DIR --threads N [--server] [--dtype D --graph-dir FOLDER]

With `--server`, the gRPC client asks a tritonserver.
"""

import asyncio
from contextlib import AsyncExitStack

from benchmarks.baselines.contestants.line_protocol import Complete, Line, Request, parse_arguments, serve
from benchmarks.measures.triton import run_triton
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import WaitingSink
from inference.protocol.completion import Chunks, CompletionChunk, CompletionRequest, Extent
from inference.serving.client import Client


class LineSink(WaitingSink):
    """Also sends the text on as it comes."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self.line = line

    def send(self, chunk: CompletionChunk) -> None:
        self.line.send(chunk.text)
        super().send(chunk)


def main() -> None:
    options = parse_arguments(__doc__, "--server")
    config = EngineConfig(
        options.model.resolve(), dtype=options.dtype, num_threads=options.threads, graph_dir=options.graph_dir
    )
    if not options.server:
        serve(lambda: _load_engine(config))
        return
    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        try:
            serve(lambda: _load_client(config, runner, stack))
        finally:
            runner.run(stack.aclose())


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


def _load_client(config: EngineConfig, runner: asyncio.Runner, stack: AsyncExitStack) -> Complete:
    client = Client(runner.run(stack.enter_async_context(run_triton(config))))
    return lambda request, line: runner.run(_complete(client, request, line))


async def _complete(client: Client, request: Request, line: Line) -> None:
    async for chunk in client.stream(_build_request(request)):
        line.send(chunk.text)


if __name__ == "__main__":
    main()
