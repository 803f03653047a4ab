"""A real Helix with the configuration in editors/helix, in a terminal."""

import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.terminal import Terminal

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
