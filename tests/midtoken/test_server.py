import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from inference.errors import LaunchError
from inference.serving.calls import Tls
from midtoken.cli import main
from midtoken.server import ServerAddress, ServerArguments
from midtoken.server_arguments import UsageError, add_connection_arguments, may_be_remote
from tests.support.options import parse_options
from tests.support.playground import MISSING
from tests.support.servers import write_model_files

_NAMES = {"here": ["127.0.0.1", "::1"], "both": ["127.0.0.1", "192.0.2.7"], "there": ["192.0.2.7"]}


def _resolve(name: str) -> Sequence[str]:
    if name == "nowhere":
        raise OSError(-2, "Name or service not known")
    return _NAMES.get(name, [name])


def _read(*arguments: str) -> ServerAddress | None:
    return ServerAddress.from_options(parse_options(add_connection_arguments, *arguments), _resolve)


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        ((), None),
        *(
            (("--server", f"{host}:8001"), ServerAddress((f"{host}:8001",), None))
            for host in ("127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]", "here", "unix:/a/grpc")
        ),
        (("--server", "there:1", "--tls"), ServerAddress(("there:1",), Tls())),
        (("--server", "grpcs://there:1", "--tls-ca", "{ca}"), ServerAddress(("there:1",), Tls(b"certificates"))),
        (("--server", "there:1", "--insecure"), ServerAddress(("there:1",), None, is_insecure=True)),
        (
            ("--server", "grpcs://there:1,both:2", "--server-key", "{key}"),
            ServerAddress(("there:1", "both:2"), Tls(), key="s3cret"),
        ),
        (
            ("--server", "here:1,[::1]:2", "--server-key", "{key}"),
            ServerAddress(("here:1", "[::1]:2"), None, key="s3cret"),
        ),
        (("--server", "unix:/a,b/grpc", "--server-key", "{key}"), ServerAddress(("unix:/a,b/grpc",), None)),
    ],
)
def test_text_goes_to_this_machine_over_tls_or_where_the_user_says_so(
    arguments: Sequence[str], address: ServerAddress | None, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_bytes(b"certificates")
    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_text("s3cret\n")
    found = _read(*(each.format(ca=tmp_path / "ca.pem", key=tmp_path / "key") for each in arguments))
    assert found == address
    assert "s3cret" not in repr(found)


def test_a_key_from_the_environment_goes_over_tls_or_to_this_machine_whatever_else_is_allowed() -> None:
    given = {"MIDTOKEN_SERVER_KEY": "s3cret\n"}
    for server in ("grpcs://there:1", "here:1"):
        options = parse_options(add_connection_arguments, "--server", server)
        found = ServerAddress.from_options(options, _resolve, given)
        assert found is not None
        assert found.key == "s3cret"
    options = parse_options(add_connection_arguments, "--server", "here:1,there:1", "--insecure")
    with pytest.raises(UsageError, match="there is not this machine, and your key would go there unencrypted"):
        ServerAddress.from_options(options, _resolve, given)


@pytest.mark.parametrize("key", ["two words", "é", "a\nb", "\x7f", ""])
def test_a_key_that_no_header_can_have_is_refused_and_not_quoted(key: str, tmp_path: Path) -> None:
    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_text(key)
    with pytest.raises(UsageError, match=r"key for --server-key must be one word of printable ASCII") as raised:
        _read("--server", "grpcs://there:1", "--server-key", str(tmp_path / "key"))
    assert not key or key not in str(raised.value).partition("must be")[0].replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        *(
            (("--server", f"{host}:1"), "is not this machine, and text would go there unencrypted: add --tls")
            for host in ("192.0.2.7", "there", "both", "0.0.0.0", "[2001:db8::1]", "[::ffff:192.0.2.7]")
        ),
        (("--tls",), "--tls is about a running server"),
        (("--insecure",), "--insecure is about a running server"),
        (("--server-key", "k"), "--server-key is about a running server"),
        (("--server", "here:1,there:1"), "there is not this machine"),
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
    [
        *(("complete", "{0}:1"), ("explain", "{0}:1"), ("surprisal", "{0}"), ("next-byte", "a"), ("demo",)),
        pytest.param(("playground",), marks=pytest.mark.skipif(MISSING is not None, reason=str(MISSING))),
    ],
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
    write_model_files(folder)
    return folder


def test_the_shared_command_serves_the_same_model_with_the_same_settings(model_dir: Path, tmp_path: Path) -> None:
    given = ("--model", str(model_dir), "--dtype", "float64", "--threads", "3", "--state-dir", str(tmp_path / "state"))
    arguments = _parse(*given, "--context", "2048", "--cache-ram", "0")

    [_, _, _, subcommand, no_ports, until_idle, entry, *others] = arguments.build_shared_command(900)

    assert (subcommand, no_ports, until_idle) == ("serve", "--no-ports", "--until-idle=900")
    assert entry == f"--entry={arguments.entry.folder}"
    assert _parse(*others) == arguments


_OTHERS = ((), ("--threads", "2"), ("--dtype", "bfloat16"), ("--context", "2048"), ("--cache-ram", "512"))


def test_each_model_and_setting_has_an_entry_of_its_own(model_dir: Path, tmp_path: Path) -> None:
    options = ("--model", str(model_dir), "--state-dir", str(tmp_path))
    folders = {_parse(*options, *more).entry.folder for more in _OTHERS}
    assert len(folders) == len(_OTHERS)


@pytest.mark.parametrize(
    ("engine", "url"), [("http://127.0.0.1:80", "http://127.0.0.1:80#{}?"), ("[::1]:80#ann/b", "http://[::1]:80#ann/b")]
)
def test_an_engine_is_asked_for_the_model_that_is_named_also_by_the_shared_server(
    model_dir: Path, engine: str, url: str
) -> None:
    arguments = _parse("--model", str(model_dir), "--engine", engine)
    assert arguments.model.engine_url == url.format(model_dir)
    assert f"--engine={arguments.model.engine_url}" in arguments.build_shared_command(1)
    assert _parse("--model", str(model_dir), "--engine", arguments.model.engine_url).model == arguments.model


def test_a_context_is_a_number_or_auto(capsys: pytest.CaptureFixture[str]) -> None:
    contexts = [
        parse_options(add_connection_arguments, *each).context
        for each in ((), ("--context", "auto"), ("--context", "4096"))
    ]
    assert contexts == [None, None, 4096]
    for refused in ("0", "1.5", "-1", "many", "99999999999"):
        with pytest.raises(SystemExit):
            parse_options(add_connection_arguments, "--context", refused)
        assert "argument --context: must be a number from" in capsys.readouterr().err


def test_the_layout_of_fill_in_prompts_is_taken_from_the_environment(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for layout in ("psm", ""):
        monkeypatch.setenv("MIDTOKEN_FILL_IN_LAYOUT", layout)
        found.append(_parse("--model", str(model_dir), "--state-dir", str(tmp_path)))
    monkeypatch.delenv("MIDTOKEN_FILL_IN_LAYOUT")
    assert found[1] == _parse("--model", str(model_dir), "--state-dir", str(tmp_path))
    assert (found[0].model.fill_in_layout, found[0].entry == found[1].entry) == ("psm", False)


@pytest.mark.parametrize(
    ("value", "owner", "is_used"),
    [("{0}", 0, True), ("{0}", 65534, False), ("", 0, False), ("relative", 0, False), ("/no/such/folder", 0, False)],
    ids=["the user's", "another user's", "empty", "relative", "missing"],
)
def test_servers_are_found_in_the_runtime_folder_if_the_user_has_one(
    value: str, owner: int, is_used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, state = tmp_path / "runtime", tmp_path / "state"
    runtime.mkdir()
    if owner and os.getuid():
        pytest.skip("only root can make a folder of another user")
    if owner:
        os.chown(runtime, owner, owner)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("XDG_RUNTIME_DIR", value.format(runtime))
    assert _parse().entry.folder.parent == (runtime if is_used else state) / "midtoken"


def test_a_user_without_a_home_folder_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = _parse()
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31)  # a user that the system does not know
    with pytest.raises(LaunchError, match="this user has no home folder: set HOME"):
        _ = arguments.entry


@pytest.mark.parametrize(
    ("arguments", "is_remote"),
    [
        ((), False),
        (("--server=127.0.0.1:8001",), True),
        (("--server=unix:/run/user/1/midtoken.sock",), True),
        (("--server=grpcs://example.org:8001",), True),
        (("--model=-a model",), False),
        (("--engine=http://127.0.0.1:8080",), False),
        (("--engine=HTTPS://example.org",), True),
        (("--engine=http://127.0.0.1:8080, https://example.org",), True),
    ],
)
def test_a_server_that_may_be_on_another_machine_is_known_by_its_options(
    arguments: tuple[str, ...], is_remote: bool
) -> None:
    assert may_be_remote(parse_options(add_connection_arguments, *arguments)) == is_remote
