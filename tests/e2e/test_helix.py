"""What the user sees in a real Helix with the configuration in editors/helix."""

import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.lsp_editor import WriteScript
from tests.support.terminal import Terminal, shows

pytestmark = pytest.mark.e2e

_ROOT = Path(__file__).parents[2]
_SETTINGS = "[editor]\nidle-timeout = 20\ncompletion-timeout = 20\n"


@contextmanager
def run_helix(folder: Path, file: Path, command: Sequence[str]) -> Iterator[Terminal]:
    """Opens a file in Helix with a language server command. It writes to `folder`."""
    binary = os.environ.get("MIDTOKEN_HX") or str(_ROOT / "build/editors/hx")
    if shutil.which(binary) is None:
        pytest.fail(f"{binary} is missing; `make build/editors/hx` fetches it")
    own = folder / "config" / "helix"
    own.mkdir(parents=True)
    (own / "languages.toml").write_text(_write_languages(command))
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


_ESCAPE, _CONTROL_X = "\x1b", "\x18"
_RULES = (
    {"ends_with": "return Nod", "texts": ["e(value)"]},
    {"ends_with": "print(Nod", "texts": ["e.value"]},
    {"ends_with": "for nod", "texts": ["e in nodes:\n    walk(node)\n"]},
)


def test_the_rest_of_a_word_and_of_a_block_is_inserted_and_the_text_after_the_cursor_stays(
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
