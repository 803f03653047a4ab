"""midtoken's engine in the contestant's own process.

python -m benchmarks.baselines.contestants.midtoken_engine MODEL_DIR --threads N
"""

import argparse
from pathlib import Path

from benchmarks.baselines.contestants.line_protocol import Complete, Line, Request, serve
from benchmarks.baselines.contestants.midtoken_request import build_request
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import WaitingSink
from inference.protocol.completion import CompletionChunk


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    serve(lambda: _load(options.model_dir, options.threads))


class _LineSink(WaitingSink):
    """Also sends the text on as it comes."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line

    def send(self, chunk: CompletionChunk) -> None:
        self._line.send(chunk.text)
        super().send(chunk)


def _load(model_dir: Path, num_threads: int) -> Complete:
    engine = load_engine(EngineConfig(model_dir, num_threads=num_threads))

    def complete(request: Request, line: Line) -> None:
        sink = _LineSink(line)
        engine.submit(build_request(request), sink)
        sink.wait()

    return complete


if __name__ == "__main__":
    main()
