import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from inference.errors import LaunchError, ModelError
from inference.serving.calls import Tls
from midtoken.cli import main
from midtoken.server import ServerAddress, ServerArguments
from midtoken.server_arguments import UsageError, add_connection_arguments
from tests.support.options import parse_options

_NAMES = {"here": ["127.0.0.1", "::1"], "both": ["127.0.0.1", "192.0.2.7"], "there": ["192.0.2.7"]}


def _resolve(name: str) -> Sequence[str]:
    if name == "nowhere":
        raise OSError(-2, "Name or service not known")
    return _NAMES.get(name, [name])


def _read(*arguments: str) -> ServerAddress | None:
    return ServerAddress.from_options(parse_options(add_connection_arguments, *arguments), _resolve)


def test_without_a_server_there_is_no_address() -> None:
    assert _read() is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]", "here"])
def test_plain_text_goes_to_a_loopback_address(host: str) -> None:
    assert _read("--server", f"{host}:8001") == ServerAddress(f"{host}:8001", None)


def test_a_socket_is_used_as_it_is() -> None:
    assert _read("--server", "unix:/a/grpc:8001") == ServerAddress("unix:/a/grpc:8001", None)


@pytest.mark.parametrize("host", ["192.0.2.7", "there", "both", "0.0.0.0", "[2001:db8::1]", "[::ffff:192.0.2.7]"])
def test_another_machine_is_refused_without_tls(host: str) -> None:
    with pytest.raises(UsageError, match="is not this machine, and text would go there unencrypted: add --tls"):
        _read("--server", f"{host}:8001")


def test_another_machine_is_used_over_tls(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"certificates")
    trusted = Tls(b"certificates")
    assert _read("--server", "there:1", "--tls") == ServerAddress("there:1", Tls())
    assert _read("--server", "grpcs://there:1", "--tls-ca", str(tmp_path / "ca.pem")) == ServerAddress(
        "there:1", trusted
    )


def test_another_machine_is_used_unencrypted_where_the_user_says_so() -> None:
    assert _read("--server", "there:1", "--insecure") == ServerAddress("there:1", None, is_insecure=True)


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
        (("--server", "nowhere:1"), "the name nowhere is not known"),
        (("--server", "there:1", "--tls-ca", "/nonexistent"), "cannot read /nonexistent of --tls-ca"),
    ],
)
def test_arguments_that_cannot_be_followed_are_refused(arguments: Sequence[str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        _read(*arguments)


@pytest.mark.parametrize(
    "command",
    [("complete", "{0}:1"), ("explain", "{0}:1"), ("surprisal", "{0}"), ("next-byte", "a"), ("demo",), ("playground",)],
)
def test_every_command_refuses_another_machine(
    command: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "a.py"
    source.write_text("x = 1\n")
    assert main([*(each.format(source) for each in command), "--server", "192.0.2.7:8001"]) == 1
    assert "192.0.2.7 is not this machine" in capsys.readouterr().err


def _parse(*arguments: str) -> ServerArguments:
    return ServerArguments.from_options(parse_options(add_connection_arguments, *arguments))


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "a model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    return folder


def test_the_shared_command_serves_the_same_model_with_the_same_settings(model_dir: Path, tmp_path: Path) -> None:
    given = ("--model", str(model_dir), "--dtype", "float64", "--threads", "3", "--state-dir", str(tmp_path / "state"))
    arguments = _parse(*given)

    [_, _, _, subcommand, no_ports, until_idle, *others] = arguments.build_shared_command(900)

    assert (subcommand, no_ports, until_idle) == ("serve", "--no-ports", "--until-idle=900")
    assert _parse(*others) == arguments


def test_each_model_and_setting_has_an_entry_of_its_own(model_dir: Path, tmp_path: Path) -> None:
    options = ("--model", str(model_dir), "--state-dir", str(tmp_path))
    folders = {_parse(*options, *more).entry.folder for more in ((), ("--threads", "2"), ("--dtype", "bfloat16"))}
    assert len(folders) == 3


def test_the_layout_of_fill_in_prompts_is_taken_from_the_environment(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--model", str(model_dir), "--state-dir", str(tmp_path))
    default = _parse(*options)

    monkeypatch.setenv("MIDTOKEN_FILL_IN_LAYOUT", "psm")

    assert _parse(*options).model.fill_in_layout == "psm"
    assert _parse(*options).entry != default.entry
    monkeypatch.setenv("MIDTOKEN_FILL_IN_LAYOUT", "")
    assert _parse(*options) == default


@pytest.mark.parametrize("threads", ["0", "1000000"])
def test_a_number_of_threads_out_of_range_is_named(model_dir: Path, threads: str) -> None:
    with pytest.raises((LaunchError, ModelError), match="threads"):
        _parse("--model", str(model_dir), "--threads", threads)


def test_a_wrong_model_folder_is_one_sentence_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.py"
    file.write_text("a = b\n")
    assert main(["complete", f"{file}:1", "--model", str(tmp_path)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line == f"midtoken: {tmp_path} is not a model folder: it has no config.json"


@pytest.fixture
def arguments() -> ServerArguments:
    return _parse()


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.mark.parametrize("value", ["{tmp_path}", "", "relative", "/no/such/folder"])
def test_servers_are_found_in_the_runtime_folder_if_there_is_one(
    value: str, arguments: ServerArguments, state_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", value.format(tmp_path=tmp_path))

    assert arguments.entry.folder.parent == (tmp_path if value == "{tmp_path}" else state_home) / "midtoken"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")
def test_the_runtime_folder_of_another_user_is_not_used(
    arguments: ServerArguments, state_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "theirs"))
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)

    assert arguments.entry.folder.parent == state_home / "midtoken"


def test_a_user_without_a_home_folder_is_told_what_to_do(
    arguments: ServerArguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31)  # a user that the system does not know

    with pytest.raises(LaunchError, match="this user has no home folder: set HOME"):
        _ = arguments.entry
