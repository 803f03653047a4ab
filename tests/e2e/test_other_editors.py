"""The configurations in docs/other_editors.md: half a word is completed in the real editor, and saved."""

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.lsp_editor import Script, WriteScript
from tests.support.terminal import Terminal, shows

pytestmark = pytest.mark.e2e

_ROOT = Path(__file__).parents[2]
_ALE = Path("/usr/share/vim-ale")
_EGLOT = Path("/usr/share/emacs/site-lisp/elpa")
_TEXT = "class Node:\n    pass\n\n"
_ESCAPE, _CONTROL_N, _CONTROL_Y, _META_TAB, _BACKSPACE = "\x1b", "\x0e", "\x19", "\x1b\t", "\x7f"

_has_emacs = shutil.which("emacs") is not None and any(_EGLOT.glob("eglot-*"))
_has_ale = shutil.which("vim") is not None and _ALE.exists()


def _read_configuration(language: str) -> str:
    """The block of the page that users copy."""
    page = (_ROOT / "docs/other_editors.md").read_text()
    (block,) = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    return str(block)


@contextmanager
def _open(program: list[str], folder: Path, script: Script) -> Iterator[Terminal]:
    """Runs an editor in which the command `midtoken` starts the Script's language server."""
    (folder / "midtoken").write_text(
        f"#!/bin/sh\ncd {shlex.quote(str(script.folder))} && exec {shlex.join(script.command)}\n"
    )
    (folder / "midtoken").chmod(0o755)
    environment = dict(os.environ) | {
        "HOME": str(folder),
        "PATH": f"{folder}:{os.environ['PATH']}",
        "TERM": "xterm-256color",
    }
    with Terminal(program, environment, str(folder), (24, 90)) as terminal:
        yield terminal


@pytest.mark.skipif(not _has_emacs, reason="emacs-nox or elpa-eglot missing; `make test-other-editors` installs them")
def test_emacs_completes_half_a_word_with_several_lines(tmp_path: Path, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "-> Nod", "texts": ["e:\n    return Node(1)\n"]})
    file, init = tmp_path / "file.py", tmp_path / "init.el"
    file.write_text(_TEXT)
    quiet = "(setq native-comp-async-report-warnings-errors nil make-backup-files nil)\n"
    init.write_text(quiet + _read_configuration("elisp"))
    with _open(["emacs", "-nw", "-q", "-l", str(init), str(file)], tmp_path, script) as terminal:
        terminal.wait_for(shows("now managing"), within_s=60)
        terminal.type("\x1b>def first() -> Nod")
        terminal.wait_for(shows("-> Nod"))
        terminal.type(_META_TAB)
        terminal.wait_for(shows("return Node(1)"))
        terminal.type("\x18\x13")
        terminal.wait_for(lambda _: "return" in file.read_text())
    assert file.read_text().rstrip() == _TEXT + "def first() -> Node:\n    return Node(1)"


@pytest.mark.skipif(not _has_ale, reason="vim or vim-ale missing; `make test-other-editors` installs them")
def test_vim_completes_half_a_word(tmp_path: Path, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "x = Nod", "texts": ["e.first"]})
    file, init = tmp_path / "file.py", tmp_path / "vimrc"
    file.write_text(_TEXT)
    configuration = _read_configuration("vim")
    init.write_text(f"set nocompatible runtimepath+={_ALE}\nfiletype plugin on\n{configuration}")
    with _open(["vim", "-u", str(init), "-n", str(file)], tmp_path, script) as terminal:
        terminal.wait_for(shows("class Node"))
        terminal.type("Gox = No")
        terminal.wait_for(shows("Node.first"), keys=f"d{_BACKSPACE}d", every_s=3)  # ALE starts the server at a key
        terminal.type(_CONTROL_N + _CONTROL_Y + _ESCAPE)
        terminal.wait_for(lambda lines: not shows("midtoken")(lines))
        terminal.type(":w\r")
        terminal.wait_for(lambda _: "Node.first" in file.read_text())
    assert file.read_text() == _TEXT + "x = Node.first\n"
