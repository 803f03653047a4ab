from pathlib import Path

import pytest

from midtoken.cli import main
from tests.support.access import write_keys
from tests.support.servers import needs_triton, write_model_files


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    write_model_files(tmp_path)
    return ["serve", f"--model={tmp_path}", f"--state-dir={tmp_path / 'state'}"]


@needs_triton
def test_a_port_given_twice_is_a_one_line_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--http-port=18000", "--grpc-port=18000", "--metrics-port=0"]) == 1
    reason = "port 18000 on 127.0.0.1 cannot be used: Address already in use; choose another, or 0 for any free one"
    assert capsys.readouterr().err == f"midtoken: {reason}\n"


def test_a_state_folder_that_cannot_be_created_is_a_one_line_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments[:-1], "--state-dir=/dev/null/state"]) == 1
    assert "midtoken: cannot make /dev/null/state/" in capsys.readouterr().err


@pytest.mark.parametrize("service", ["http", "grpc"])
def test_without_triton_its_ports_are_refused_by_name(
    service: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--runtime=embedded", f"--{service}-port=18000"]) == 1
    expected = f"midtoken: --{service}-port is a port of Triton, which is not used: --runtime embedded\n"
    assert capsys.readouterr().err == expected


def test_a_tritonserver_of_an_embedded_server_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--runtime=embedded", "--triton-binary=/bin/true"]) == 1
    assert "--runtime embedded and --triton-binary exclude each other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("--metrics-port=eight", "--metrics-port must be a port, or an address and a port"),
        (
            "--metrics-port=0.0.0.0:8002",
            "--metrics-port at 0.0.0.0 needs --keys FILE and --tls FILE",
        ),
        ("--openai=eight", "--openai must be a port, or an address and a port"),
        ("--listen=[::]:8003", "--listen at [::] needs --keys FILE and --tls FILE, because other machines may"),
        ("--keys={keys}", "--keys and --tls are about the ports of --listen, --openai"),
        ("--confidence=0", "--confidence is about the port of --openai"),
    ],
)
def test_a_port_for_others_that_cannot_be_is_refused(
    argument: str, reason: str, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = argument.format(keys=write_keys(tmp_path))
    assert main([*arguments, "--runtime=embedded", given]) == 1
    assert reason in capsys.readouterr().err
