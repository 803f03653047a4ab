"""What the user sees in a real Helix with the configuration in editors/helix, and in Emacs and Vim with those in
docs/other_editors.md.
"""

import json
import os
import re
import shlex
import shutil
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pexpect
import pyte
import pytest

from tests.support.lsp_editor import Script, WriteScript

pytestmark = pytest.mark.e2e

_ASKED_FOR_ATTRIBUTES = "\x1b[c"
_ATTRIBUTES = "\x1b[?62;22c"  # a VT220 with colours


def shows(text: str) -> Callable[[list[str]], bool]:
    """Returns a condition for `Terminal.wait_for`."""
    return lambda lines: any(text in line for line in lines)


class _Screen(pyte.Screen):  # type: ignore[misc]  # pyte has no types
    """Accepts what newer programs ask a terminal."""

    def report_device_status(self, mode: int, **_: Any) -> None:
        super().report_device_status(mode)

    def select_graphic_rendition(self, *attributes: int, private: bool = False) -> None:
        if not private:
            super().select_graphic_rendition(*attributes)


class Terminal:
    """A running program and its screen."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: str, size: tuple[int, int]):
        rows, columns = size
        self._screen = _Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._lines = [""] * rows
        self._process = pexpect.spawn(
            command[0], list(command[1:]), env=dict(environment), cwd=folder, dimensions=size, timeout=None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close(force=True)

    def type(self, keys: str) -> None:
        self._process.send(keys)

    @property
    def lines(self) -> list[str]:
        """The screen now."""
        if self._read():
            self._lines = [line.rstrip() for line in self._screen.display]
        return self._lines

    def wait_for(
        self, holds: Callable[[list[str]], bool], within_s: float = 30.0, keys: str = "", every_s: float = 1.0
    ) -> list[str]:
        """Waits until the screen is as it should be, and returns it. Types `keys` again and again meanwhile."""
        started_s, num_typed = time.monotonic(), 0
        while not holds(lines := self.lines):
            elapsed_s = time.monotonic() - started_s
            assert elapsed_s < within_s, "\n".join(lines)
            if keys and elapsed_s > every_s * (num_typed + 1):
                num_typed += 1
                self.type(keys)
        return lines

    def _read(self) -> bool:
        """Returns whether there was anything new."""
        try:
            output = self._process.read_nonblocking(1 << 16, timeout=0.02)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return False
        if _ASKED_FOR_ATTRIBUTES.encode() in output:
            self._process.send(_ATTRIBUTES)
        self._stream.feed(output)
        return True


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


_SETTINGS = "[editor]\nidle-timeout = 20\ncompletion-timeout = 20\n"


@contextmanager
def run_helix(folder: Path, file: Path, command: Sequence[str], language: str = "python") -> Iterator[Terminal]:
    """Opens a file in Helix with a language server command. It writes to `folder`."""
    binary = os.environ.get("MIDTOKEN_HX") or str(_ROOT / "build/editors/hx")
    if shutil.which(binary) is None:
        pytest.fail(f"{binary} is missing; `make build/editors/hx` fetches it")
    own = folder / "config" / "helix"
    own.mkdir(parents=True)
    (own / "languages.toml").write_text(_write_languages(command).replace('"python"', f'"{language}"'))
    (own / "config.toml").write_text(_SETTINGS)
    environment = dict(os.environ) | {
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TERM": "xterm-256color",
    }
    with Terminal([binary, str(file)], environment, str(_ROOT), (30, 100)) as terminal:
        yield terminal


def _write_languages(command: Sequence[str]) -> str:
    """The configuration that users copy, with another command."""
    text = (_ROOT / "editors/helix/languages.toml").read_text()
    server = tomllib.loads(text)["language-server"]["midtoken"]
    assert server["command"] == "midtoken"
    assert server["args"] == ["lsp"]
    first = text.index("command =")
    last = text.index("args =")
    rest = text[text.index("\n", last) :]
    return f"{text[:first]}command = {json.dumps(command[0])}\nargs = {json.dumps(list(command[1:]))}\n{rest}"


_CONTROL_X = "\x18"
_RULES = (
    {"ends_with": "return Nod", "texts": ["e(value)"]},
    {"ends_with": "print(Nod", "texts": ["e.value"]},
    {"ends_with": "for nod", "texts": ["e in nodes:\n    walk(node)\n"]},
)


def test_helix_inserts_the_rest_of_a_word_and_of_a_block_and_the_text_after_the_cursor_stays(
    write_script: WriteScript, tmp_path: Path
) -> None:
    script, file = write_script(*_RULES), tmp_path / "file.py"
    file.write_bytes(b"class Node:\n    pass\n\ndef first():\n")
    with run_helix(tmp_path, file, script.command) as terminal:
        terminal.wait_for(shows("file.py"))
        terminal.type("i")  # Helix asks only once, and not a language server that is still starting
        terminal.wait_for(lambda _: script.count("started") > 0, keys=_CONTROL_X)
        terminal.type(_ESCAPE)
        terminal.wait_for(shows(" NOR "))

        terminal.type("geA\rreturn Nod")
        terminal.wait_for(shows("  Node(value)"))  # the whole word
        terminal.type("\t")
        terminal.wait_for(shows("return Node(value)"))
        _save(terminal, file, b"class Node:\n    pass\n\ndef first():\nreturn Node(value)\n")

        terminal.type("%cprint()  # é😀")
        _save(terminal, file, b"print()  # \xc3\xa9\xf0\x9f\x98\x80\n")
        terminal.type("ghf(aNod")
        terminal.wait_for(shows("Node.value"))
        terminal.type("\t")
        terminal.wait_for(shows("print(Node.value)"))
        _save(terminal, file, b"print(Node.value)  # \xc3\xa9\xf0\x9f\x98\x80\n")

        terminal.type("%cfor nod")
        terminal.wait_for(shows("node in nodes: …"))  # several lines are one entry
        terminal.type("\t")
        terminal.wait_for(shows("for node in nodes:"))
        terminal.wait_for(lambda lines: _read_documentation(lines) == ["node in nodes:", "    walk(node)"])
        _save(terminal, file, b"for node in nodes:\n    walk(node)\n")


def test_helix_asks_once_for_a_model_for_other_languages_and_a_no_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    program = [sys.executable, "-m", "midtoken", "lsp", f"--state-dir={tmp_path}/state"]
    command = ["env", f"XDG_DATA_HOME={tmp_path}/data", *program]
    (file := tmp_path / "main.go").touch()
    with run_helix(tmp_path, file, command, "go") as terminal:
        terminal.wait_for(shows("Download SmolLM2-135M (270 MB"))
        terminal.type("\t\r")
        terminal.wait_for(lambda _: (tmp_path / "data/midtoken/models/default").exists())
    assert (tmp_path / "data/midtoken/models/default").read_text().strip() == "bundled"


def _read_documentation(lines: list[str]) -> list[str]:
    """What is shown beside the menu, under our name and an empty line."""
    for row, line in enumerate(lines):
        if " midtoken" in line:
            return [each[line.index("midtoken") :].rstrip() for each in lines[row + 2 : row + 4]]
    return []


def _save(terminal: Terminal, file: Path, wanted: bytes) -> None:
    terminal.type(_ESCAPE)
    terminal.wait_for(shows(" NOR "))
    terminal.type(":write\r")
    # Helix puts a new file in the old one's place. In between there is none.
    terminal.wait_for(lambda _: file.exists() and file.read_bytes() == wanted, within_s=10)
