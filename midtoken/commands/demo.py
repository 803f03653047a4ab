"""Show what is completed at each key while a file is typed, with and without healing, one below the other."""

import argparse
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from inference.platforms import IMPORT_ROOT
from inference.protocol.completion import Healing
from midtoken.answer import CONFIDENCE
from midtoken.api import Model
from midtoken.connection import open_model
from midtoken.installed import BUNDLED_MODEL_LANGUAGES
from midtoken.models import find_default_name
from midtoken.server_arguments import add_connection_arguments, number_from

_FOLDER = IMPORT_ROOT / "midtoken/samples"  # files that no model was trained on
_SAMPLES = {  # of each language: the file, and what is typed in it
    "python": (
        "inventory.py.txt",
        "        available = self.available(part)",
        "        return sorted(part for part in self.stock if self.available(part) + ordered[part] < minimum)",
    ),
    "typescript": (
        "schedule.ts",
        "          running.set(name, this.start(task).finally(() => running.delete(name)));",
        "    this.options.onChange?.(name, state);",
    ),
    "go": (
        "ledger.go",
        "\tl.entries = append(l.entries, Entry{From: from, To: to, Amount: amount, At: l.now()})",
        "\tbalance, exists := l.balances[name]",
    ),
}
_NUM_LINES = 2  # of each language
_PAUSE_S = 0.12  # between two keys
_TAB_CELLS = 4
_LABEL_CELLS = 19  # of the name and the time before a row's text
_TITLE = """Lines of files that the model has not seen are typed key by key. After the cursor ▏ is the ghost text, \
which an editor shows in grey: one with healing, and one without."""
_HINT = """This is how often the ghost text has exactly the rest of the word that is typed, and the median time. \
README.md has figures of more files, and says how to set up an editor. midtoken explain FILE:LINE:COL shows how a \
completion is made. The completion server stops 15 minutes after its last use."""


@dataclass(slots=True)
class _Side:
    """One healing strategy, and what came of it."""

    name: str
    style: str
    healing: Healing
    times_ms: list[float] = field(default_factory=list)
    solved: dict[str, list[bool]] = field(default_factory=dict)  # by language

    def __str__(self) -> str:
        rights = (f"{sum(each)} of {len(each)} in {name}" for name, each in self.solved.items())
        return f"{self.name:9} {', '.join(rights)}; {statistics.median(self.times_ms):.1f} ms"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument(
        "--lines",
        type=number_from(1, _NUM_LINES),
        default=_NUM_LINES,
        metavar="N",
        help="how many lines to type in each language that the model knows (default: %(default)s, all)",
    )
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Plays the demo in a terminal."""
    console = Console(highlight=False)
    console.print(_TITLE, end="\n\n")
    sides = [_Side("healed", "italic green", Healing.EXACT), _Side("unhealed", "italic red", Healing.NONE)]
    with open_model(options) as model:
        model.complete("", max_tokens=1)  # waits for the server before anything is drawn
        with Live(console=console, auto_refresh=False) as live:
            is_bundled = options.server is None and (options.model or find_default_name()) is None
            for language in BUNDLED_MODEL_LANGUAGES if is_bundled else _SAMPLES:
                for line in _SAMPLES[language][1 : 1 + options.lines]:
                    _type(language, line, sides, model, live)
            live.update("\n".join(map(str, sides)))
    console.print(f"\n{_HINT}", style="dim")
    return 0


def _type(language: str, line: str, sides: Sequence[_Side], model: Model, live: Live) -> None:
    """Types a line. A terminal shows it at each key."""
    above, _, below = (_FOLDER / _SAMPLES[language][0]).read_text(encoding="utf-8").partition(line)
    for column in range(len(line) - len(line.lstrip()) + 1, len(line) + 1):
        typed, rest, rows = line[:column], find_rest(line, column), Group()
        for side in sides:
            found = model.complete(above + typed, below, side.healing, extent="single_line", min_probability=CONFIDENCE)
            ghost = found.cut(CONFIDENCE)
            side.times_ms.append(found.stats.total_ms)
            if rest:
                side.solved.setdefault(language, []).append(re.split(r"\W", ghost, maxsplit=1)[0] == rest)
            shown = typed.expandtabs(_TAB_CELLS)
            rows.renderables.append(
                draw_row(side.name, side.times_ms[-1], shown, ghost, side.style, live.console.width)
            )
        live.update(rows, refresh=True)
        if live.console.is_terminal:
            time.sleep(_PAUSE_S)


def draw_row(name: str, time_ms: float, typed: str, ghost: str, style: str, num_cells: int) -> Text:
    """Returns a row in which the cursor is visible: a long line loses its beginning."""
    room = num_cells - _LABEL_CELLS - 1  # for the text
    num_typed = max(room - len(ghost), room * 2 // 3)
    if len(typed) > num_typed:
        typed = f"…{typed[len(typed) - num_typed + 1 :]}"
    row = Text(f"{f'{name:9} {time_ms:5.0f} ms':{_LABEL_CELLS}}", "dim", no_wrap=True, overflow="ellipsis")
    return row.append(f"{typed}▏", "not dim bold").append(ghost, f"not dim {style}")


def find_rest(line: str, column: int) -> str:
    """Returns what follows of the word that the cursor is in, which is no number; empty if it is in none."""
    word = next((each for each in re.finditer(r"\w+", line) if each.start() < column < each.end()), None)
    return "" if word is None or not word[0].isidentifier() else line[column : word.end()]
