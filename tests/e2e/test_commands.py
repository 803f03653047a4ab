"""What a person sees of the commands, on the real server with the default model."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import RunningServer

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


def _run(server: RunningServer, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "midtoken", *arguments, "--server", server.endpoint.grpc_url]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_complete_prints_what_follows_the_cursor(real_server: RunningServer, source: Path) -> None:
    assert _run(real_server, "complete", f"{source}:8").stdout == "e\n"


def test_complete_says_which_line_is_missing(real_server: RunningServer, source: Path) -> None:
    done = _run(real_server, "complete", f"{source}:99:1")
    assert (done.returncode, done.stderr) == (1, f"midtoken: {source} has 9 lines; there is no line 99\n")


def test_explain_shows_the_path_that_was_chosen(real_server: RunningServer, source: Path) -> None:
    page = _run(real_server, "explain", f"{source}:8").stdout
    assert "chosen       ·node" in page


def test_explain_shows_what_each_strategy_says(real_server: RunningServer, source: Path) -> None:
    page = _run(real_server, "explain", f"{source}:8").stdout
    assert all(f"│ {healing} " in page for healing in ("exact", "greedy", "single", "none"))


def test_the_demo_is_more_often_right_healed_than_unhealed(real_server: RunningServer) -> None:
    lines = _run(real_server, "demo").stdout.splitlines()
    healed, unhealed = (
        next(line for line in lines if line.startswith(f"│ {side} ")) for side in ("healed", "unhealed")
    )
    assert int(healed.split()[3]) > int(unhealed.split()[3])


def test_a_server_that_is_not_there_is_named(source: Path) -> None:
    command = [sys.executable, "-m", "midtoken", "complete", f"{source}:8", "--server", "127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.partition(": failed")[0]) == (1, "midtoken: no server answers at 127.0.0.1:9")
