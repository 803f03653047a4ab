from pathlib import Path

import pytest

from midtoken.cli import main


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "config.json").write_text("{}")
    return ["serve", f"--model={tmp_path}", f"--state-dir={tmp_path / 'state'}"]


def test_a_port_given_twice_is_a_one_line_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--http-port=18000", "--grpc-port=18000"]) == 1
    expected = "midtoken: port 18000 is given twice; HTTP, gRPC and metrics each need a port of their own\n"
    assert capsys.readouterr().err == expected


def test_a_state_folder_that_cannot_be_created_is_a_one_line_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments[:-1], "--state-dir=/dev/null/state"]) == 1
    assert "midtoken: cannot make /dev/null/state/" in capsys.readouterr().err
