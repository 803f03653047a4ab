from collections.abc import Mapping
from pathlib import Path

import pytest

from midtoken.commands.doctor import Mark, check_editors


def _make_program(folder: Path, name: str, outputs: Mapping[str, str], status: int = 0) -> None:
    """Writes a program that prints the output whose key is in its arguments."""
    folder.mkdir(exist_ok=True)
    cases = "".join(f"*{key}*) printf '%s\\n' '{output}' ;;\n" for key, output in outputs.items())
    path = folder / name
    path.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}esac\nexit {status}\n')
    path.chmod(0o755)


def _check(folder: Path) -> list[tuple[Mark, str, str]]:
    environment = {"PATH": str(folder / "bin"), "HOME": str(folder)}
    return [(check.mark, check.what, check.advice) for check in check_editors(environment)]


def test_without_editors_there_is_one_note(tmp_path: Path) -> None:
    [(mark, what, advice)] = _check(tmp_path)
    assert (mark, what) == (Mark.NOTE, "no editor that is known here is on the path")
    assert advice


def _say(version: str, key: str = "-", answer: str = "") -> dict[str, str]:
    return {"--version": version, key: answer}


_EXTENSIONS = "other.midtoken@2\nmidtoken.midtoken@0.1.0"
_HELIX = "helix 25.07.1 (a05c151b)"
_SERVER = "Configured language servers:\n  \033[0;32m✓\033[m ours: \033[0;32m/home/me/bin/midtoken\033[m\nIndent: ✓"


@pytest.mark.parametrize(
    ("name", "outputs", "mark", "what"),
    [
        (
            "nvim",
            _say("NVIM v0.12.1\nBuild", "--headless", "the plug-in"),
            Mark.GOOD,
            "Neovim 0.12.1 (nvim) with the plug-in",
        ),
        ("nvim", _say("NVIM v0.12.0-dev", "--headless"), Mark.NOTE, "Neovim 0.12.0-dev (nvim) without midtoken"),
        (
            "code",
            _say("1.139.0\nabc", "--list", _EXTENSIONS),
            Mark.GOOD,
            "VS Code 1.139.0 (code) with midtoken.midtoken@0.1.0",
        ),
        ("code-server", _say("1.1", "--list", "a.midtoken@2"), Mark.NOTE, "VS Code 1.1 (code-server) without midtoken"),
        ("code", {}, Mark.NOTE, "VS Code of an unknown version (code) without midtoken"),
        ("hx", _say(_HELIX, "--health", _SERVER), Mark.GOOD, "Helix 25.07.1 (hx) with /home/me/bin/midtoken"),
        (
            "helix",
            _say(_HELIX, "--health", _SERVER.replace("✓", "✘")),
            Mark.NOTE,
            "Helix 25.07.1 (helix) without midtoken",
        ),
    ],
)
def test_an_editor_is_shown_with_its_version_and_what_it_lacks(
    name: str, outputs: Mapping[str, str], mark: Mark, what: str, tmp_path: Path
) -> None:
    _make_program(tmp_path / "bin", name, outputs)
    [check] = _check(tmp_path)
    assert check[:2] == (mark, what)
    assert bool(check[2]) == (mark is not Mark.GOOD)


def test_an_editor_that_fails_is_a_note(tmp_path: Path) -> None:
    _make_program(tmp_path / "bin", "code", _say("1.1", "--list", _EXTENSIONS), status=3)
    assert _check(tmp_path)[0][:2] == (Mark.NOTE, "VS Code of an unknown version (code) without midtoken")
