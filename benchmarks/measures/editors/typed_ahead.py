"""Whether keys that follow the shown suggestion need a request to the completion server."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpora.gaps import Gap
from benchmarks.measures.editors.lsp_wire import LspWire
from benchmarks.measures.typing.recorded_lsp import read_records

_RECORDED_LSP = (sys.executable, "-m", "benchmarks.measures.typing.recorded_lsp")
_MAX_KEYS = 40
_WARM_UP = "file:///project/warm_up.py"


@dataclass(frozen=True, slots=True)
class TypedAhead:
    """Keys that followed a suggestion, without its last character, and the requests that they caused."""

    num_keys: int
    num_requests: int

    @property
    def share(self) -> float:
        """The share of the keys that caused no request."""
        return 1 - self.num_requests / self.num_keys


def measure_typed_ahead(address: str, gaps: Sequence[Gap], folder: Path) -> TypedAhead:
    """Types what is suggested at the cursor of each gap, up to its last character."""
    record = folder / "record.json"
    wire, num_keys = LspWire([*_RECORDED_LSP, "--server", address, "--record", str(record)]), 0
    wire.open(_WARM_UP, "")
    while wire.complete(_WARM_UP, 0, 0) is None:  # it connects
        time.sleep(0.1)
    for number, gap in enumerate(gaps):
        num_keys += _follow(wire, f"file:///project/{number}.py", gap)
    wire.leave()
    return TypedAhead(num_keys, len(read_records(record)) - 1 - len(gaps))


def _follow(wire: LspWire, uri: str, gap: Gap) -> int:
    """Returns the number of keys."""
    wire.open(uri, gap.prefix + gap.suffix)
    line, character = gap.prefix.count("\n"), len(gap.prefix) - gap.prefix.rfind("\n") - 1
    shown = wire.complete(uri, line, character)
    for num_keys in range(_MAX_KEYS):
        if not shown or len(shown[0].text) < 2:
            return num_keys
        key = shown[0].text[0]
        wire.insert(uri, line, character, key)
        line, character = (line + 1, 0) if key == "\n" else (line, character + 1)
        shown = wire.complete(uri, line, character)
    return _MAX_KEYS
