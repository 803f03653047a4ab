"""midtoken: its engine in the contestant's own process, or its server as editors use it.

    python -m benchmarks.baselines.contestants.midtoken MODEL_DIR --threads N [--server] [--dtype D --graph-dir FOLDER]

With `--server`, `midtoken serve` starts tritonserver, and the gRPC client asks it.
"""

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.baselines.contestants.line_protocol import Complete, Line, Request, serve
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import WaitingSink
from inference.protocol.completion import Chunks, CompletionChunk, CompletionRequest, Extent
from inference.serving.client import Client


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--server", action="store_true")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--graph-dir", type=Path)
    options = parser.parse_args()
    if options.server:
        _serve_as_client(options.model_dir, options.threads)
    else:
        serve(lambda: _load_engine(options))


def _build_request(request: Request) -> CompletionRequest:
    """A line at the cursor, with exact healing, sent token by token."""
    extent, chunks = Extent.SINGLE_LINE, Chunks.TOKENS
    return CompletionRequest(request.text, request.suffix, max_tokens=request.max_tokens, extent=extent, chunks=chunks)


class _LineSink(WaitingSink):
    """Also sends the text on as it comes."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line

    def send(self, chunk: CompletionChunk) -> None:
        self._line.send(chunk.text)
        super().send(chunk)


def _load_engine(options: argparse.Namespace) -> Complete:
    engine = load_engine(
        EngineConfig(options.model_dir, dtype=options.dtype, num_threads=options.threads, graph_dir=options.graph_dir)
    )

    def complete(request: Request, line: Line) -> None:
        sink = _LineSink(line)
        engine.submit(_build_request(request), sink)
        sink.wait()

    return complete


def _serve_as_client(model_dir: Path, num_threads: int) -> None:
    with asyncio.Runner() as runner, _run_server(model_dir, num_threads) as address:

        def load() -> Complete:
            client = runner.run(_connect(address))
            return lambda request, line: runner.run(_complete(client, request, line))

        serve(load)


async def _connect(address: str) -> Client:
    client = Client(address)
    await client.probe()
    return client


async def _complete(client: Client, request: Request, line: Line) -> None:
    async for chunk in client.stream(_build_request(request)):
        line.send(chunk.text)


@contextmanager
def _run_server(model_dir: Path, num_threads: int) -> Iterator[str]:
    """Runs a server on free ports inside the block. Yields the address of its gRPC port."""
    with tempfile.TemporaryDirectory() as state_dir:
        command = [
            *(sys.executable, "-m", "midtoken", "serve", f"--state-dir={state_dir}"),
            *(f"--{service}-port=0" for service in ("http", "grpc", "metrics")),
            *(f"--model={model_dir.resolve()}", f"--threads={num_threads}"),
        ]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            yield _find_address(process.stdout)
        finally:
            process.terminate()
            process.communicate()


def _find_address(lines: Iterator[str]) -> str:
    for line in lines:
        match = re.fullmatch(r"\s*gRPC\s+(\S+)\s*", line)
        if match:
            return match[1]
    raise RuntimeError("midtoken serve has ended without naming its gRPC port")


if __name__ == "__main__":
    main()
