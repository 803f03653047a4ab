"""llama.cpp's server with the weights of a model in float32."""

import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.baselines.gguf_file import Precision, write_gguf

PROGRAM = Path("build/llama-server").absolute()
_KINDS = ("--cache-type-k", "f32", "--cache-type-v", "f32")  # or rows differ by 0.006 from those of one pass
_OPTIONS = ("--threads", "1", "--host", "127.0.0.1", "-c", "4096", "-np", "2", *_KINDS)


@contextmanager
def run_llama_server(model_dir: Path, folder: Path) -> Iterator[str]:
    """Runs it with two slots inside the block, and yields its address. The weights are written to the folder."""
    path = folder / "model.gguf"
    write_gguf(model_dir, path, Precision.F32)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(PROGRAM), *_OPTIONS, "--model", str(path), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            while not _is_healthy(f"http://127.0.0.1:{port}/health"):
                if server.poll() is not None:
                    raise RuntimeError(f"{PROGRAM} has ended with status {server.returncode}")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
