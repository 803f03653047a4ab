import argparse
from collections.abc import Sequence
from pathlib import Path

import pytest

from inference.serving.calls import Tls
from midtoken.arguments.parser import add_connection_arguments
from midtoken.arguments.server_address import ServerAddress
from midtoken.cli import main
from midtoken.errors import ServerAddressError

_NAMES = {"here": ["127.0.0.1", "::1"], "both": ["127.0.0.1", "192.0.2.7"], "there": ["192.0.2.7"]}


def _resolve(name: str) -> Sequence[str]:
    if name not in _NAMES:
        raise OSError(-2, "Name or service not known")
    return _NAMES[name]


def _read(*arguments: str) -> ServerAddress | None:
    parser = argparse.ArgumentParser()
    add_connection_arguments(parser)
    return ServerAddress.from_options(parser.parse_args(arguments), _resolve)


def test_without_a_server_there_is_no_address() -> None:
    assert _read() is None


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("127.0.0.1:8001", "127.0.0.1:8001"),
        ("127.9.9.9:1", "127.9.9.9:1"),
        ("[::1]:8001", "[::1]:8001"),
        ("[::ffff:127.0.0.1]:1", "[::ffff:7f00:1]:1"),
        ("here:8001", "127.0.0.1:8001"),
    ],
)
def test_plain_text_goes_to_a_loopback_address(given: str, used: str) -> None:
    assert _read("--server", given) == ServerAddress(used, None, ("--server", given))


@pytest.mark.parametrize("host", ["192.0.2.7", "there", "both", "0.0.0.0", "[2001:db8::1]", "[::ffff:192.0.2.7]"])
def test_another_machine_is_refused_without_tls(host: str) -> None:
    with pytest.raises(ServerAddressError, match="is not this machine, and text would go there unencrypted: add --tls"):
        _read("--server", f"{host}:8001")


def test_another_machine_is_used_over_tls(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"certificates")
    assert _read("--server", "there:1", "--tls") == ServerAddress("there:1", Tls(), ("--server", "there:1", "--tls"))
    ours = _read("--server", "grpcs://there:1", "--tls-ca", str(tmp_path / "ca.pem"))
    assert ours is not None
    assert (ours.url, ours.tls) == ("there:1", Tls(b"certificates"))


@pytest.mark.parametrize("more", [("--tls",), ("--insecure",)])
def test_the_arguments_give_another_command_the_same_address(more: Sequence[str]) -> None:
    address = _read("--server", "there:1", *more)
    assert address is not None
    assert _read(*address.arguments) == address


def test_another_machine_is_used_unencrypted_where_the_user_says_so() -> None:
    assert _read("--server", "there:1", "--insecure") == ServerAddress(
        "there:1", None, ("--server", "there:1", "--insecure")
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--tls",), "--tls is about a running server"),
        (("--insecure",), "--insecure is about a running server"),
        (("--server", "there:1", "--insecure", "--tls"), "--insecure and TLS exclude each other"),
        (("--server", "grpcs://there:1", "--insecure"), "--insecure and TLS exclude each other"),
        (("--server", "here:1", "--model", "m"), "--model has no effect with --server"),
        (("--server", "here:1", "--device", "cuda"), "--device has no effect with --server"),
        (("--server", "here:1", "--triton-binary", "t"), "--triton-binary has no effect with --server"),
        (("--server", "nowhere:1"), "the name nowhere of --server is not known"),
        (("--server", "there:1", "--tls-ca", "/nonexistent"), "cannot read /nonexistent of --tls-ca"),
    ],
)
def test_arguments_that_cannot_be_followed_are_refused(arguments: Sequence[str], problem: str) -> None:
    with pytest.raises(ServerAddressError, match=problem):
        _read(*arguments)


def test_every_command_refuses_another_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "a.py"
    source.write_text("x = 1\n")
    for command in (("complete", f"{source}:1"), ("explain", f"{source}:1"), ("surprisal", str(source))):
        assert main([*command, "--server", "192.0.2.7:8001"]) == 1
        assert "192.0.2.7 is not this machine" in capsys.readouterr().err
    for demanding in (("next-byte", "a"), ("demo",)):
        assert main([*demanding, "--server", "192.0.2.7:8001"]) == 1
        assert "192.0.2.7 is not this machine" in capsys.readouterr().err
