"""The output of the commands, on a server with the bundled model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inference.client.client import Client
from inference.protocol.characters import Ask, CharacterRequest, Surprisals
from tests.support.servers import RunningServer

pytestmark = pytest.mark.e2e

_SOURCE = """class Node:
    def __init__(self, value):
        self.value = value


def make_node(value):
    node = Node(value)
    return nod
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(_SOURCE)
    return path


def _run(server: RunningServer, *arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "midtoken", *arguments, "--server", server.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, **options)


def test_complete_prints_the_completion(embedded_real_server: RunningServer, source: Path) -> None:
    assert _run(embedded_real_server, "complete", f"{source}:8").stdout == "e\n"


def test_explain_shows_the_chosen_path_and_every_strategy(embedded_real_server: RunningServer, source: Path) -> None:
    page = _run(embedded_real_server, "explain", f"{source}:8").stdout
    assert "chosen       ·node" in page
    assert all(f"\n  {healing:<10} ‘" in page for healing in ("exact", "greedy", "single", "none"))


async def test_characters_prints_the_surprisal_of_a_text_in_pieces_and_the_next_byte(
    embedded_real_server: RunningServer, source: Path
) -> None:
    text = (_SOURCE * 7).encode() + b"Hello, worl"
    source.write_bytes(text)
    first, second = map(json.loads, _run(embedded_real_server, "characters", str(source)).stdout.splitlines())
    async with Client(embedded_real_server.url) as client:
        whole = await client.ask(CharacterRequest(text, ask=Ask.SURPRISAL))
    assert isinstance(whole, Surprisals)
    assert first["surprisals"] == pytest.approx(whole.surprisals, abs=1e-3)
    assert max(range(257), key=second["probabilities"].__getitem__) == ord("d")
    assert any(each["tokens"][-1].endswith(" world") and each["ahead"] == "d" for each in second["members"])


def test_the_doctor_finds_a_server_that_completes(embedded_real_server: RunningServer, source: Path) -> None:
    done = _run(embedded_real_server, "doctor", str(source))
    lines = done.stdout.splitlines()
    (server,) = (line for line in lines if "completion server at" in line)
    (completion,) = (line for line in lines if "a completion in the middle of a token" in line)
    assert server.startswith(f"✓ completion server at {embedded_real_server.url}")
    assert completion.startswith("✓ a completion in the middle of a token: `return Nod` is completed with `e` after ")
    assert lines[-1].startswith(f"✓ {source} gets suggestions")
    assert (done.returncode, done.stderr) == (0, "")


def test_complete_warns_of_a_language_that_the_model_does_not_know(
    embedded_real_server: RunningServer, tmp_path: Path
) -> None:
    (tmp_path / "a.rs").write_text("let x = 1;")
    done = _run(embedded_real_server, "complete", f"{tmp_path}/a.rs:1")
    assert (done.returncode, "the model knows only python, so an editor shows nothing" in done.stderr) == (0, True)


def test_the_demo_is_right_more_often_with_healing(embedded_real_server: RunningServer) -> None:
    lines = _run(embedded_real_server, "demo", "--lines", "1").stdout.splitlines()
    healed, unhealed = ([line for line in lines if line.startswith(f"{side} ")] for side in ("healed", "unhealed"))
    assert int(healed[-1].split()[1]) > int(unhealed[-1].split()[1])
