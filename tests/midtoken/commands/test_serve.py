from pathlib import Path

import pytest

from midtoken.cli import main
from tests.support.servers import write_model_files


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    write_model_files(tmp_path)
    return ["serve", f"--model={tmp_path}", f"--state-dir={tmp_path / 'state'}"]


def test_a_port_given_twice_is_a_one_line_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--http-port=18000", "--grpc-port=18000"]) == 1
    expected = "midtoken: port 18000 on 127.0.0.1 cannot be used: Address already in use; it belongs to the user "
    assert capsys.readouterr().err.startswith(expected)


def test_a_state_folder_that_cannot_be_created_is_a_one_line_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments[:-1], "--state-dir=/dev/null/state"]) == 1
    assert "midtoken: cannot make /dev/null/state/" in capsys.readouterr().err
