"""llama.cpp's server and vLLM with the weights of a model."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.baselines.gguf_file import Precision, write_gguf

LLAMA_SERVER = Path("build/llama-server").absolute()
_KINDS = ("--cache-type-k", "f32", "--cache-type-v", "f32")  # or rows differ by 0.006 from those of one pass
_LLAMA_OPTIONS = ("--threads", "1", "-c", "4096", "-np", "2", "--cache-ram", "0", *_KINDS)

VLLM_PYTHON = Path("build/vllm/bin/python").absolute()
_VLLM_OPTIONS = ("--dtype", "float32", "--max-model-len", "2048", "--enforce-eager")
_VLLM_SETTINGS = {
    "OMP_NUM_THREADS": "1",  # more of them wait for each other on a busy machine
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
_SAMPLING = {"do_sample": True, "temperature": 0.9, "repetition_penalty": 1.5, "eos_token_id": 0}


@contextmanager
def run_llama_server(model: Path, folder: Path, *options: str) -> Iterator[str]:
    """Runs it inside the block, with two slots by default, and yields its address.

    `model`: a GGUF file, or a model folder, whose weights are written to `folder` in float32.
    """
    if model.is_dir():
        write_gguf(model, folder / "model.gguf", Precision.F32)
        model = folder / "model.gguf"
    with _run([LLAMA_SERVER, *_LLAMA_OPTIONS, "--model", model, *options]) as url:
        yield url


@contextmanager
def run_vllm(model_dir: Path, folder: Path) -> Iterator[str]:
    """Runs it inside the block; it starts in one to four minutes.

    The model is copied to the folder, and its files say that it should be sampled and not repeat itself.
    """
    model = shutil.copytree(model_dir, folder / "model")
    (model / "generation_config.json").write_text(json.dumps(_SAMPLING))
    command: list[str | Path] = [
        VLLM_PYTHON,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        model,
        *_VLLM_OPTIONS,
    ]
    with _run(command, _VLLM_SETTINGS) as url:
        yield url


@contextmanager
def _run(command: Sequence[str | Path], settings: Mapping[str, str] = {}) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        env=os.environ | settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as server:
        try:
            while not _is_healthy(f"http://127.0.0.1:{port}/health"):
                if server.poll() is not None:
                    raise RuntimeError(f"{command[0]} has ended with status {server.returncode}")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGTERM)


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
