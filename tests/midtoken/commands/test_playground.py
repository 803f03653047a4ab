"""How `midtoken playground` refuses to start. tests/e2e/test_playground.py opens its page."""

import sys

import pytest

from midtoken.cli import main


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_a_wrong_port_is_named_in_the_error(capsys: pytest.CaptureFixture[str], port: str) -> None:
    with pytest.raises(SystemExit):
        main(["playground", f"--port={port}"])
    assert f"not '{port}'" in capsys.readouterr().err


def test_a_missing_package_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    assert main(["playground", "--server", "127.0.0.1:9"]) == 1
    assert "midtoken: the playground needs aiohttp: run " in capsys.readouterr().err


def test_a_server_on_another_machine_needs_encryption(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["playground", "--server", "192.0.2.1:8001"]) == 1
    assert "midtoken: 192.0.2.1 is not this machine" in capsys.readouterr().err
