"""What the user sees in a real Helix with the configuration in editors/helix."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.helix_editor import run_helix
from tests.support.lsp_editor import Script, WriteScript
from tests.support.terminal import Terminal

pytestmark = pytest.mark.e2e

_ESCAPE, _CONTROL_X = "\x1b", "\x18"

OpenHelix = Callable[[Script, bytes], tuple[Terminal, Path]]


@pytest.fixture
def open_helix(tmp_path: Path) -> Iterator[OpenHelix]:
    """A function that opens a Python file with this text in Helix, and waits for the Script's language server."""
    with ExitStack() as stack:

        def open_helix(script: Script, text: bytes) -> tuple[Terminal, Path]:
            file = tmp_path / "file.py"
            file.write_bytes(text)
            terminal = stack.enter_context(run_helix(tmp_path, file, script.command))
            terminal.wait_for(_shows("file.py"))
            terminal.type("i")  # Helix asks only once, and not a language server that is still starting
            terminal.wait_for(lambda _: script.count("started") > 0, keys=_CONTROL_X)
            terminal.type(_ESCAPE)
            terminal.wait_for(_shows(" NOR "))
            return terminal, file

        yield open_helix


def _shows(text: str) -> Callable[[list[str]], bool]:
    return lambda lines: any(text in line for line in lines)


def _save(terminal: Terminal, file: Path, wanted: bytes) -> None:
    terminal.type(_ESCAPE)
    terminal.wait_for(_shows(" NOR "))
    terminal.type(":write\r")
    # Helix puts a new file in the old one's place. In between there is none.
    terminal.wait_for(lambda _: _read(file) == wanted, within_s=10)


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


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
    lines = terminal.wait_for(_shows(" midtoken"))
    row = next(row for row, line in enumerate(lines) if " midtoken" in line)
    column = lines[row].index("midtoken")
    assert [line[column:].rstrip() for line in lines[row + 2 : row + 4]] == ["node in nodes:", "    walk(node)"]

    _save(terminal, file, b"for node in nodes:\n    walk(node)\n")
