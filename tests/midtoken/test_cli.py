"""The `midtoken` command: its help, its subcommands, its exit status."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from midtoken.cli import main
from midtoken.commands import __path__ as _commands_path

_SUBCOMMANDS = (
    "demo",
    "complete",
    "explain",
    "playground",
    "surprisal",
    "next-byte",
    "models",
    "doctor",
    "lsp",
    "serve",
)


def _help(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "--help"])
    assert stopped.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", _SUBCOMMANDS)
def test_the_help_lists_each_subcommand_with_the_first_line_of_its_module(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    module = import_module(f"midtoken.commands.{name.replace('-', '_')}")
    summary = (module.__doc__ or "").partition("\n")[0]
    assert summary
    assert f" {name} {summary}" in _help(capsys)
    assert summary in _help(capsys, name)


def test_every_module_of_commands_is_a_subcommand() -> None:
    (folder,) = map(Path, _commands_path)
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert modules == {name.replace("-", "_") for name in _SUBCOMMANDS}


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


def test_the_help_imports_no_subcommand_and_no_slow_package() -> None:
    imports = _find_imports("--help")
    assert "midtoken.cli" in imports
    assert imports.isdisjoint({"midtoken.commands", "numpy", "grpc", "tritonclient", "asyncio", *_SLOW_TO_IMPORT})


def test_complete_imports_only_what_it_needs() -> None:
    imports = _find_imports("complete", "nowhere.py:1")
    assert "midtoken.commands.complete" in imports
    assert imports.isdisjoint({*_SLOW_TO_IMPORT, "midtoken.commands.demo", "lsp_server.documents"})


def test_the_language_server_imports_nothing_for_its_connection() -> None:
    imports = _find_imports("lsp", "--help")
    assert "lsp_server.stdio" in imports
    assert imports.isdisjoint({"numpy", "grpc", "tritonclient", "midtoken.connection", "rich"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compleet",), "invalid choice: 'compleet'"),
        (
            ("complete", "a:1", "--healing=magic"),
            "invalid choice: 'magic' (choose from 'exact', 'greedy', 'single', 'none')",
        ),
        (("complete", "a:1", "--extent=page"), "argument --extent: invalid choice: 'page'"),
        (("complete", "a:1", "--max-tokens=many"), "argument --max-tokens: invalid int value: 'many'"),
        (("next-byte",), "one of the arguments TEXT --at is required"),
        (("next-byte", "a", "--at", "b:1:1"), "not allowed with argument TEXT"),
        (("next-byte", "a", "--top", "0"), "must be a number from 1 to 64, not '0'"),
        (("serve", "--http-port=70000"), "--http-port: must be a number from 0 to 65535, not '70000'"),
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
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err


def test_our_own_error_is_one_line_and_exit_status_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["complete", "nowhere.py:1:1", "--server", "127.0.0.1:9"]) == 1
    assert capsys.readouterr().err == "midtoken: cannot read nowhere.py: No such file or directory\n"


def test_an_interrupt_while_a_subcommand_is_imported_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("midtoken.cli.import_module", interrupt)
    assert main(["complete", "app.py:1"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("content", ["", "raise SystemError('theirs is broken')"])
def test_another_package_with_the_name_of_ours_is_named(content: str, tmp_path: Path) -> None:
    theirs = tmp_path / "inference" / "__init__.py"
    theirs.parent.mkdir()
    theirs.write_text(content)
    done = subprocess.run([sys.executable, "-m", "midtoken", "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"midtoken: the package `inference` at {theirs} is not midtoken's, but another one")
    assert "in a virtual environment of its own" in done.stderr
