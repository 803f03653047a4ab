from collections.abc import Mapping
from pathlib import Path

import pytest

from midtoken.checks import Mark
from midtoken.editor_checks import check_editors

_HELIX_SETTINGS = """
[language-server.ours]
command = "/home/me/.venv/bin/midtoken"
args = ["lsp"]

[[language]]
name = "python"
language-servers = ["ours", { name = "ruff", only-features = ["format"] }]

[[language]]
name = "rust"
language-servers = ["rust-analyzer"]
"""


def _make_program(folder: Path, name: str, outputs: Mapping[str, str], status: int = 0) -> None:
    """Writes a program that prints the output whose key is in its arguments."""
    folder.mkdir(exist_ok=True)
    cases = "".join(f"*{key}*) printf '%s\\n' '{output}' ;;\n" for key, output in outputs.items())
    path = folder / name
    path.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}esac\nexit {status}\n')
    path.chmod(0o755)


def _check(folder: Path) -> list[tuple[Mark, str, str]]:
    environment = {"PATH": str(folder / "bin"), "HOME": str(folder)}
    return [(check.mark, check.what, check.advice) for check in check_editors(environment, folder)]


def test_without_editors_there_is_one_note(tmp_path: Path) -> None:
    [(mark, what, advice)] = _check(tmp_path)
    assert (mark, what) == (Mark.NOTE, "no editor that is known here is on the path")
    assert advice


def _neovim(version: str, plugin: str) -> dict[str, str]:
    return {"--version": f"NVIM v{version}\nBuild type: Release", "--headless": plugin}


_LISTED = {"--version": "1.139.0\nabc", "--list": "other.midtoken@2\nmidtoken.midtoken@0.1.0"}
_NOT_LISTED = {"--version": "1.139.0", "--list": "other.midtoken@2"}


@pytest.mark.parametrize(
    ("name", "outputs", "status", "mark", "what"),
    [
        (
            "nvim",
            _neovim("0.12.1", "found"),
            0,
            Mark.GOOD,
            "Neovim 0.12.1 with the plug-in; :checkhealth midtoken says more",
        ),
        (
            "nvim",
            _neovim("1.0.0", "found"),
            0,
            Mark.GOOD,
            "Neovim 1.0.0 with the plug-in; :checkhealth midtoken says more",
        ),
        (
            "nvim",
            _neovim("0.12.0-dev", "missing"),
            0,
            Mark.NOTE,
            "Neovim 0.12.0-dev without the plug-in, or it is loaded later",
        ),
        ("nvim", _neovim("0.11.5", "found"), 0, Mark.NOTE, "Neovim 0.11.5"),
        ("code", _LISTED, 0, Mark.GOOD, "VS Code 1.139.0 (code) with the extension 0.1.0"),
        ("code-server", _LISTED, 0, Mark.GOOD, "VS Code 1.139.0 (code-server) with the extension 0.1.0"),
        ("code", _NOT_LISTED, 0, Mark.NOTE, "VS Code 1.139.0 (code) without the extension"),
        ("code", {}, 3, Mark.NOTE, "VS Code of an unknown version (code): it does not list its extensions"),
        ("hx", {"--version": "helix 25.07.1 (a05c151b)"}, 0, Mark.NOTE, "Helix 25.07.1 without midtoken"),
        (
            "emacs",
            {"--version": "GNU Emacs 30.1"},
            0,
            Mark.GOOD,
            "Emacs 30.1: any LSP client can start `midtoken lsp`; its set-up is not checked",
        ),
    ],
)
def test_an_editor_is_shown_with_its_version_and_what_it_lacks(
    name: str, outputs: Mapping[str, str], status: int, mark: Mark, what: str, tmp_path: Path
) -> None:
    _make_program(tmp_path / "bin", name, outputs, status)
    [check] = _check(tmp_path)
    assert check[:2] == (mark, what)
    assert bool(check[2]) == (mark is not Mark.GOOD)


@pytest.mark.parametrize("file", [".config/helix/languages.toml", ".helix/languages.toml"])
def test_helix_needs_a_language_that_uses_the_server(file: str, tmp_path: Path) -> None:
    _make_program(tmp_path / "bin", "hx", {"--version": "helix 25.07.1 (a05c151b)"})
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(_HELIX_SETTINGS)
    assert _check(tmp_path) == [(Mark.GOOD, f"Helix 25.07.1 with midtoken for python, in {tmp_path / file}", "")]


@pytest.mark.parametrize("text", ["[[language", 'language = 3\n"language-server" = []\n'])
def test_helix_settings_that_cannot_be_read_are_a_note(text: str, tmp_path: Path) -> None:
    _make_program(tmp_path / "bin", "hx", {"--version": "helix 25.07.1"})
    (tmp_path / ".helix").mkdir()
    (tmp_path / ".helix" / "languages.toml").write_text(text)
    [check] = _check(tmp_path)
    assert check[0] is Mark.NOTE
    assert "languages.toml cannot be read" in check[1]
