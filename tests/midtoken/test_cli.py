"""The `midtoken` command: its help, its subcommands, its exit status."""

import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

from midtoken.cli import main
from midtoken.commands import __path__ as _commands_path

(_FOLDER,) = map(Path, _commands_path)
_MODULES = sorted(path.stem for path in _FOLDER.glob("*.py") if path.stem != "__init__")


def _help(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "--help"])
    assert stopped.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("module", _MODULES)
def test_every_module_of_commands_is_a_subcommand_that_the_help_lists_with_its_first_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = import_module(f"midtoken.commands.{module}").__doc__ or ""
    summary = text.partition("\n")[0]
    assert summary
    assert f" {module} {summary}" in _help(capsys)
    assert summary in _help(capsys, module)


def test_without_a_command_the_help_is_printed_and_names_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    alone = " ".join(capsys.readouterr().out.split())
    assert alone == _help(capsys)
    assert "`midtoken demo` shows it at work" in alone


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"midtoken {version('midtoken')}\n"


@pytest.mark.parametrize("command", ["complete", "serve", "demo"])
def test_the_usage_is_one_line_and_options_of_the_model_and_the_server_stand_apart(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    usage, _, rest = capsys.readouterr().out.partition("\n\n")
    assert (usage.count("\n"), "[OPTION...]" in usage) == (0, True)
    assert rest.index("\noptions:\n") < rest.index("\nmodel and server:\n") < rest.index("  --model MODEL ")


def _find_imports(*arguments: str) -> set[str]:
    """Returns the modules that are loaded when the command ends."""
    script = f"""
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from midtoken.cli import main
main({list(arguments)})
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    return set(done.stderr.split())


_SLOW_TO_IMPORT = {"rich", "pygls", "lsprotocol", "matplotlib", "torch", "transformers", "tokenizers"}


@pytest.mark.parametrize(
    ("arguments", "imported", "others"),
    [
        (["--help"], "midtoken.cli", {"midtoken.commands", "numpy", "grpc", "tritonclient", "asyncio"}),
        (
            ["complete", "nowhere.py:1"],
            "midtoken.commands.complete",
            {"midtoken.commands.demo", "lsp_server.documents"},
        ),
        (["lsp", "--help"], "lsp_server.server", {"numpy", "grpc", "tritonclient", "midtoken.connection"}),
    ],
    ids=["help", "complete", "lsp"],
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], imported: str, others: set[str]) -> None:
    found = _find_imports(*arguments)
    assert imported in found
    assert found.isdisjoint(others | (_SLOW_TO_IMPORT - ({"pygls", "lsprotocol"} if "lsp" in arguments else set())))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compleet",), "invalid choice: 'compleet'"),
        (("--wrong",), "unrecognized arguments: --wrong; see midtoken --help"),
        (("complete", "a:1", "--wrong"), "unrecognized arguments: --wrong; see midtoken complete --help"),
        (("models", "get", "a", "--wrong"), "unrecognized arguments: --wrong; see midtoken models get --help"),
        (("models", "get"), "the following arguments are required: NAME; see midtoken models get --help"),
        (("serve", "--runtime=foo"), "invalid choice: 'foo' (choose from 'embedded', 'triton')"),
        *((("demo", f"--lines={lines}"), f"must be a number from 1 to 2, not '{lines}'") for lines in ("0", "-1", "x")),
        (
            ("complete", "a:1", "--healing=magic"),
            "invalid choice: 'magic' (choose from 'exact', 'greedy', 'single', 'none')",
        ),
        (("complete", "a:1", "--extent=page"), "argument --extent: invalid choice: 'page'"),
        (
            ("complete", "a:1", "--max-tokens=many"),
            "argument --max-tokens: must be a number from 1 to 4096, not 'many'",
        ),
        (("serve", "--threads=0"), "--threads: must be a number from 1 to 1024, not '0'"),
        (("serve", "--port=70000"), "--port: must be a number from 0 to 65535, not '70000'"),
        *((("playground", f"--port={port}"), f"not '{port}'") for port in ("-1", "65536", "x")),
        *(
            (("complete", "a:1", f"--server={address}"), "as in 127.0.0.1:8001")
            for address in ("localhost", "http://127.0.0.1:8001", ":8001", "127.0.0.1:", "127.0.0.1:x")
        ),
    ],
)
def test_a_wrong_argument_is_named_in_the_error(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    error = capsys.readouterr().err
    assert message in error
    assert (stopped.value.code, error.count("\n"), error.endswith(" --help\n")) == (2, 1, True)
