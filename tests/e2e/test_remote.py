"""Exact healing in front of a real llama.cpp server, which has the weights of the default model."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.baselines.gguf_file import Precision, write_gguf
from midtoken.installed import find_default_model
from tests.support.lsp_editor import Script, StartEditor, build_capabilities, wait_for
from tests.support.remote_cuts import find_differences, is_healthy
from tests.support.servers import find_free_endpoint, wait_until

_PROGRAM = Path("build/llama-server").absolute()
_NUM_CUTS = 40
_NOD = "class Node:\n    pass\n\n\ndef make():\n    return Nod"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not _PROGRAM.exists(), reason="make build/llama-server fetches it"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server with two slots."""
    path, port = tmp_path_factory.mktemp("gguf") / "default.gguf", find_free_endpoint().http_port
    write_gguf(find_default_model(), path, Precision.F32)
    kinds = ("--cache-type-k", "f32", "--cache-type-v", "f32")  # or rows differ by 0.006 from those of one pass
    command = [
        _PROGRAM,
        "--threads",
        "1",
        "--model",
        path,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "-c",
        "4096",
        "-np",
        "2",
        *kinds,
    ]
    with subprocess.Popen(
        [str(each) for each in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            wait_until(lambda: is_healthy(f"http://127.0.0.1:{port}"))
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def test_every_text_is_that_of_our_own_engine_with_the_same_weights(url: str) -> None:
    assert find_differences(url, _NUM_CUTS) == []


def test_a_command_heals_in_front_of_the_server(url: str, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(_NOD)
    command = ["complete", f"--engine={url}", f"--state-dir={tmp_path}", f"{tmp_path / 'file.py'}:6:15"]
    run = subprocess.run(_start(*command), capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.startswith("e")


async def test_an_editor_gets_ghost_text_from_the_server(url: str, start_editor: StartEditor, tmp_path: Path) -> None:
    command = _start("lsp", f"--engine={url}", f"--state-dir={tmp_path / 'state'}")
    script = Script(tuple(command), Path.cwd(), tmp_path / "no log")
    editor = await start_editor(script, build_capabilities(shows_progress=True))
    editor.open(_NOD)
    assert await editor.ask(5, 14) is None
    await wait_for(lambda: any(report[:2] == (None, "ready") for report in editor.reports), 60)
    assert (await editor.ghost(5, 14)).insert_text == "Node"


def test_what_llama_vim_sends_is_completed_in_front_of_the_server_and_not_by_itself(url: str, tmp_path: Path) -> None:
    body = json.loads(Path("tests/support/front_requests/llama_vim.json").read_text())["body"]
    command = _start("serve", "--runtime=embedded", f"--engine={url}", "--openai=0", f"--state-dir={tmp_path}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as front:
        assert front.stdout is not None
        try:
            address = next(line.split(" find it at ")[1].strip() for line in front.stdout if " find it at " in line)
            assert _infill(address, body) == "ms"
            assert not _infill(url, body).startswith("ms")
        finally:
            front.terminate()


def _infill(url: str, body: object) -> str:
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/infill", json.dumps(body).encode(), headers)) as answer:
        return str(json.load(answer)["content"])


def test_text_for_another_machine_is_not_sent_unencrypted(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(_NOD)
    command = ["complete", "--engine=http://192.0.2.1:8080", f"{tmp_path / 'file.py'}:6:15"]
    run = subprocess.run(_start(*command), capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, "unencrypted: use https" in run.stderr) == (1, True)


def _start(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "midtoken", *arguments]
