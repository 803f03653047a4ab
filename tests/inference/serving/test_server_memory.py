"""The memory of a server is that of the process that listens, and of those it has started."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from inference.serving.server_memory import measure_memory

_MB = 1_000_000
_CHILD = "data = b'x' * 60_000_000; print('ready', flush=True); input()"


def test_the_memory_of_a_child_counts(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        before = measure_memory(f"unix:{tmp_path / 'socket'}")
        assert before is not None
        assert before > 10 * _MB
        with subprocess.Popen([sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            after = measure_memory(f"unix:{tmp_path / 'socket'}")
            child.communicate(b"\n")
        assert after is not None
        assert 55 * _MB < after - before < 80 * _MB


def test_where_nothing_listens_it_is_not_known(tmp_path: Path) -> None:
    assert measure_memory(f"unix:{tmp_path / 'socket'}") is None
    assert measure_memory("127.0.0.1:1") is None
    assert os.listdir(tmp_path) == []
