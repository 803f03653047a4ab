"""What the user sees in a real Helix with the configuration in editors/helix."""

import json
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.lsp_editor import Script, WriteScript
from tests.support.terminal import Terminal

pytestmark = pytest.mark.e2e

_ROOT = Path(__file__).parents[2]
_ESCAPE, _CONTROL_X = "\x1b", "\x18"

OpenHelix = Callable[[Script, bytes], tuple[Terminal, Path]]


@pytest.fixture
def open_helix(tmp_path: Path) -> Iterator[OpenHelix]:
    """A function that opens a Python file with this text in Helix, and waits for the Script's language server."""
    binary = os.environ.get("MIDTOKEN_HX") or str(_ROOT / "build/editors/hx")
    if shutil.which(binary) is None:
        pytest.fail(f"{binary} is missing; `make build/editors/hx` fetches it")
    with ExitStack() as stack:

        def open_helix(script: Script, text: bytes) -> tuple[Terminal, Path]:
            settings = tmp_path / "config" / "helix"
            settings.mkdir(parents=True)
            (settings / "languages.toml").write_text(_write_languages(script.command))
            (settings / "config.toml").write_text("[editor]\nidle-timeout = 20\ncompletion-timeout = 20\n")
            file = tmp_path / "file.py"
            file.write_bytes(text)
            environment = dict(os.environ) | {
                "XDG_CONFIG_HOME": str(tmp_path / "config"),
                "XDG_CACHE_HOME": str(tmp_path / "cache"),
                "TERM": "xterm-256color",
            }
            terminal = Terminal([binary, str(file)], environment, str(_ROOT), (30, 100))
            stack.enter_context(terminal)
            terminal.wait_for(_shows("file.py"))
            terminal.type("i")  # Helix asks only once, and not a language server that is still starting
            terminal.wait_for(lambda _: script.count("started") > 0, keys=_CONTROL_X)
            terminal.type(_ESCAPE)
            terminal.wait_for(_shows(" NOR "))
            return terminal, file

        yield open_helix


def _write_languages(command: Sequence[str]) -> str:
    """The configuration that users copy, with another command."""
    text = (_ROOT / "editors/helix/languages.toml").read_text()
    server = tomllib.loads(text)["language-server"]["midtoken"]
    assert server["command"] == "midtoken"
    assert server["args"] == ["lsp"]
    first = text.index("command =")
    last = text.index("args =")
    rest = text[text.index("\n", last) :]
    return f"{text[:first]}command = {json.dumps(command[0])}\nargs = {json.dumps(list(command[1:]))}{rest}"


def _shows(text: str) -> Callable[[list[str]], bool]:
    return lambda lines: any(text in line for line in lines)


def _save(terminal: Terminal, file: Path, wanted: bytes) -> None:
    terminal.type(_ESCAPE)
    terminal.wait_for(_shows(" NOR "))
    terminal.type(":write\r")
    terminal.wait_for(lambda _: file.read_bytes() == wanted, within_s=10)


def test_the_typed_part_of_a_word_is_replaced_by_the_whole_word(
    open_helix: OpenHelix, write_script: WriteScript
) -> None:
    script = write_script({"ends_with": "return Nod", "texts": ["e(value)"]})
    terminal, file = open_helix(script, b"class Node:\n    pass\n\ndef first():\n")
    terminal.type("geA\rreturn Nod")
    terminal.wait_for(_shows("  Node(value)"))
    terminal.type("\t")
    terminal.wait_for(_shows("return Node(value)"))

    _save(terminal, file, b"class Node:\n    pass\n\ndef first():\nreturn Node(value)\n")


def test_the_text_after_the_cursor_stays(open_helix: OpenHelix, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "print(Nod", "texts": ["e.value"]})
    terminal, file = open_helix(script, b"print()  # \xc3\xa9\xf0\x9f\x98\x80\n")
    terminal.type("f(aNod")
    terminal.wait_for(_shows("Node.value"))
    terminal.type("\t")
    terminal.wait_for(_shows("print(Node.value)"))

    _save(terminal, file, b"print(Node.value)  # \xc3\xa9\xf0\x9f\x98\x80\n")


def test_several_lines_are_one_entry(open_helix: OpenHelix, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "for nod", "texts": ["e in nodes:\n    walk(node)\n"]})
    terminal, file = open_helix(script, b"\n")
    terminal.type("ifor nod")
    terminal.wait_for(_shows("node in nodes: …"))
    terminal.type("\t")
    terminal.wait_for(_shows("for node in nodes:"))

    _save(terminal, file, b"for node in nodes:\n    walk(node)\n")
