"""midtoken's server as editors use it: tritonserver, started by `midtoken serve`, and the gRPC client.

python -m benchmarks.baselines.contestants.midtoken_server MODEL_DIR --threads N
"""

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.baselines.contestants.line_protocol import Complete, Line, Request, serve
from benchmarks.baselines.contestants.midtoken_request import build_request
from inference.serving.completion_client import CompletionClient


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    with asyncio.Runner() as runner:

        def load() -> Complete:
            client = runner.run(_connect(address))
            return lambda request, line: runner.run(_complete(client, request, line))

        with _run_server(options.model_dir, options.threads) as address:
            serve(load)


async def _connect(address: str) -> CompletionClient:
    client = CompletionClient(address)
    await client.probe()
    return client


async def _complete(client: CompletionClient, request: Request, line: Line) -> None:
    async for chunk in client.stream(build_request(request)):
        line.send(chunk.text)


@contextmanager
def _run_server(model_dir: str, num_threads: int) -> Iterator[str]:
    """Runs a server on free ports inside the block. Yields the address of its gRPC port."""
    with tempfile.TemporaryDirectory() as state_dir:
        command = [
            *(sys.executable, "-m", "midtoken", "serve", "--free-ports", f"--state-dir={state_dir}"),
            *(f"--model={model_dir}", f"--threads={num_threads}"),
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
