"""The end of the language server's process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_INITIALIZE = {"id": 1, "method": "initialize", "params": {"capabilities": {}, "processId": None, "rootUri": None}}
_SHUTDOWN: dict[str, Any] = {"id": 2, "method": "shutdown"}
_EXIT: dict[str, Any] = {"method": "exit"}


def frame(message: dict[str, Any]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0"} | message).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize(
    ("messages", "status"),
    [
        ([_INITIALIZE, _SHUTDOWN, _EXIT], 0),
        ([_INITIALIZE, _EXIT], 1),
        ([_INITIALIZE], 1),
        ([], 1),
    ],
)
def test_exit_status_is_zero_only_after_shutdown(messages: list[dict[str, Any]], status: int, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"rules": [], "log": str(tmp_path / "log")}))
    command = [sys.executable, "-m", "tests.support.scripted_server", str(script)]
    ended = subprocess.run(command, cwd=_ROOT, input=b"".join(map(frame, messages)), capture_output=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (status, b"")
