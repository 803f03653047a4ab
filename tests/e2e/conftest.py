"""What the end-to-end tests share: the language server as a subprocess, and editors that speak to it."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Script:
    """A language server whose model answers by rules."""

    command: Sequence[str]  # starts it on stdio
    folder: Path  # in this folder
    log: Path

    @property
    def events(self) -> list[dict[str, str]]:
        """What the model was asked so far: `event`, `prefix`, `suffix`."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def count(self, event: str) -> int:
        """How often something happened: started, finished, cancelled, closed."""
        return sum(entry["event"] == event for entry in self.events)


@pytest.fixture
def write_script(tmp_path: Path) -> Any:
    """A function from rules to the Script that follows them."""

    def write(*rules: dict[str, Any], **options: Any) -> Script:
        path, log = tmp_path / "script.json", tmp_path / "model.log"
        path.write_text(json.dumps({"rules": rules, "log": str(log), **options}))
        return Script((sys.executable, "-m", "tests.lsp_server.scripted_server", str(path)), _ROOT, log)

    return write
