import socket
from pathlib import Path

import pytest

from inference.platforms import ADDRESS
from midtoken.cli import main
from tests.support.servers import write_model_files


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    write_model_files(tmp_path)
    return ["serve", "--port=0", f"--model={tmp_path}", f"--state-dir={tmp_path / 'state'}"]


def test_a_port_that_is_taken_is_a_one_line_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server((ADDRESS, 0)) as taken:
        port = taken.getsockname()[1]
        assert main([*arguments, f"--port={port}"]) == 1
    reason = f"port {port} on 127.0.0.1 cannot be used: Address already in use; choose another, or 0 for any free one"
    assert capsys.readouterr().err == f"midtoken: {reason}\n"


def test_a_state_folder_that_cannot_be_created_is_a_one_line_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--state-dir=/dev/null/state"]) == 1
    assert "midtoken: cannot make /dev/null/state" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("--confidence=1.1",), "--confidence must be a number from 0 to 1, not 1.1"),
        (("--confidence=nan",), "--confidence must be a number from 0 to 1, not nan"),
        (("--triton-binary=/bin/true",), "--triton-binary needs --runtime triton"),
        (("--runtime=triton", "--server=127.0.0.1:1"), "--runtime triton starts one: omit one of them"),
        (("--runtime=triton", "--triton-binary=/no/such"), "/no/such is not an executable file"),
    ],
)
def test_what_contradicts_the_runtime_or_is_out_of_range_is_refused(
    given: tuple[str, ...], reason: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, *given]) == 1
    assert reason in capsys.readouterr().err
