"""The program that is watched: sessions of an editor with each runner, with Triton, and with a model of a hub.

Each session starts a language server with a completion server of its own, which goes on until the end.
"""

import asyncio
import os
import sys
import tempfile
from asyncio import timeout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.baselines.gguf_file import Precision, write_gguf
from benchmarks.measures.lsp_client import LANGUAGE_SERVER, LspClient, find_place
from inference.hosting.triton import find_obstacle
from midtoken.installed import find_default_model
from tests.support.hub import Repository, run_hub
from tests.support.servers import find_real, run_server
from tests.support.watched_run import Seen, watch

_NAME = "owner/python-6m"
_TEXT = "class Node:\n    pass\n\n\ndef make():\n    return Nod"
_SESSION_S = 100
_LIBRARIES_S = 8  # until a library sends what it has collected; onnxruntime looked a name up after 5


def watch_whole_run() -> Seen:
    """Watches this program."""
    return watch([sys.executable, "-m", "tests.support.whole_run"])


async def _complete(*options: str | Path) -> None:
    client = await LspClient.start([*LANGUAGE_SERVER, *map(str, options)])
    async with timeout(_SESSION_S):
        await client.wait_for_server("untitled:first.py")
        client.open("untitled:second.py", _TEXT)
        answer: Any = await client.complete("untitled:second.py", *find_place(_TEXT, len(_TEXT)))
        await client.leave()
    print(*options, answer["items"][0]["insertText"])


async def _run(folder: Path) -> None:
    if find_obstacle(None) is None:
        with run_server(find_real(), folder / "triton") as server:
            await _complete(f"--server={server.url}")
    await _complete()
    if find_spec("torch") is not None:
        await _complete("--dtype=bfloat16")
    if find_spec("llama_cpp") is not None:
        write_gguf(find_default_model(), folder / "python-6m.gguf", Precision.Q8_0)
        await _complete(f"--model={folder / 'python-6m.gguf'}")
    with run_hub() as hub:
        files = {path.name: path.read_bytes() for path in find_default_model().iterdir()}
        hub.repositories[_NAME] = Repository.of(files)
        os.environ["HF_ENDPOINT"] = hub.url
        await _complete(f"--model={_NAME}")
    del os.environ["HF_ENDPOINT"]
    os.environ["HF_HUB_OFFLINE"] = "1"
    await _complete(f"--model={_NAME}")
    download = await asyncio.create_subprocess_exec(*LANGUAGE_SERVER[:3], "models", "get", "owner/other")
    await download.wait()
    await asyncio.sleep(_LIBRARIES_S)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="midtoken-") as name:
        asyncio.run(_run(Path(name)))
