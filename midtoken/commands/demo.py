"""Show the ghost text while a file is typed, with and without healing, one below the other."""

import argparse
import asyncio
import re
import statistics
import sysconfig
import time
from collections.abc import Sequence
from contextlib import nullcontext
from keyword import iskeyword
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from inference.protocol.completion import Healing
from midtoken.commands.lsp import build_language_server
from midtoken.connection import open_connection
from midtoken.server_arguments import add_connection_arguments, number_from
from midtoken.typing_trial import TypedFile

# A file of the standard library that the default model was not trained on, and its lines that are typed.
_FILE = "sched.py"
_LINES = (
    "            events = self._queue[:]",
    "        return self.enterabs(time, priority, action, argument, kwargs)",
    "            heapq.heapify(self._queue)",
    "        timefunc = self.timefunc",
)
_NUM_LINES_ABOVE = 8
_PAUSE_S = 0.12  # between two keys
_LABEL_CELLS = 19
_TITLE = f"""{{number}} of the lines of Python's {_FILE}, which the bundled model has not seen, are typed key by key. \
After the cursor ▏ is the ghost text, which an editor shows in grey: one with healing, and one without."""
_HINT = """Right: the ghost text has exactly the rest of the identifier; each key inside one counts. A key that agrees \
with the ghost text needs no request, so without healing, too, an answer from before the identifier may stay right. \
README.md has figures with a request at each cursor, and says how to set up an editor. midtoken explain \
FILE:LINE:COL shows how a completion is made. The completion server stops 15 minutes after its last use."""


class _Side:
    """A language server with one open file, with or without healing, and its answers so far."""

    def __init__(self, name: str, style: str, healing: Healing, options: argparse.Namespace) -> None:
        self.name, self.style = name, style
        self.ghost, self.times_ms, self.solved = "", list[float](), list[bool]()
        settings = {"healing": str(healing), "extent": "single_line"}
        self.file = TypedFile(build_language_server(options), settings, _FILE)
        self.file.open("", "")

    async def ask(self, before: str, after: str, rest: str) -> None:
        """Asks for the ghost text, and takes the time. `rest`: of the identifier that the cursor is in."""
        started_s = time.perf_counter()
        self.ghost = await self.file.show(before, after)
        self.times_ms.append(1e3 * (time.perf_counter() - started_s))
        if rest:
            self.solved.append(re.split(r"\W", self.ghost, maxsplit=1)[0] == rest)

    def draw(self, typed: str, num_cells: int) -> Text:
        """Returns its row."""
        return draw_row(self.name, self.times_ms[-1], typed, self.ghost, self.style, num_cells)

    def describe(self) -> str:
        """Returns a row with its score."""
        median_ms = statistics.median(self.times_ms)
        return f"{self.name:9} {sum(self.solved)} of {len(self.solved)} right, median {median_ms:.1f} ms"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument(
        "--lines",
        type=number_from(1, len(_LINES)),
        default=len(_LINES),
        metavar="N",
        help="how many lines to type (default: %(default)s, all)",
    )
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Plays the demo in a terminal."""
    asyncio.run(_play(options))
    return 0


async def _play(options: argparse.Namespace) -> None:
    console, path = Console(highlight=False), Path(sysconfig.get_path("stdlib")) / _FILE
    lines = path.read_text(encoding="utf-8").split("\n")
    async with open_connection(options):  # keeps the server that the two language servers find
        sides = [
            _Side("healed", "italic green", Healing.EXACT, options),
            _Side("unhealed", "italic red", Healing.NONE, options),
        ]
        console.print(_TITLE.format(number=options.lines), end="\n\n")
        is_shown = console.is_terminal and not console.is_dumb_terminal
        with Live(console=console, auto_refresh=False) if is_shown else nullcontext() as live:
            for line in _LINES[: options.lines]:
                await _type(line, lines, sides, console, live)
        for side in sides:
            await side.file.server.close_all()
    console.print(*(side.describe() for side in sides), sep="\n")
    console.print(f"\n{_HINT}", style="dim")


async def _type(line: str, lines: list[str], sides: Sequence[_Side], console: Console, live: Live | None) -> None:
    """Types a line. A terminal shows it at each key, and other output has the keys at which the sides differ."""
    row = lines.index(line)
    above = Text("\n".join(lines[max(0, row - _NUM_LINES_ABOVE) : row]), "dim", no_wrap=True, overflow="ellipsis")
    start, after = "\n".join([*lines[:row], ""]), "\n".join(["", *lines[row + 1 :]])
    indent = len(line) - len(line.lstrip())
    for side in sides:  # the text is read while the cursor rests there, before the first key
        await side.file.show(start + line[:indent], after)
    for column in range(indent + 1, len(line) + 1):
        for side in sides:  # one after the other: together, they would share the processor, and both would look slow
            await side.ask(start + line[:column], after, find_rest(line, column))
        rows = [side.draw(line[:column], console.width) for side in sides]
        if live is not None:
            live.update(Group(Padding(above, (0, 0, 0, _LABEL_CELLS)), *rows), refresh=True)
            await asyncio.sleep(_PAUSE_S)
        elif sides[0].ghost != sides[1].ghost:
            console.print(Group(*rows))


def draw_row(name: str, time_ms: float, typed: str, ghost: str, style: str, num_cells: int) -> Text:
    """Returns a row in which the cursor is visible: a long line loses its beginning."""
    room = num_cells - _LABEL_CELLS - 1  # for the text
    num_typed = max(room - len(ghost), room * 2 // 3)
    if len(typed) > num_typed:
        typed = f"…{typed[len(typed) - num_typed + 1 :]}"
    row = Text(f"{f'{name:9} {time_ms:5.0f} ms':{_LABEL_CELLS}}", "dim", no_wrap=True, overflow="ellipsis")
    return row.append(f"{typed}▏", "not dim bold").append(ghost, f"not dim {style}")


def find_rest(line: str, column: int) -> str:
    """Returns what follows of the identifier that the cursor is in; empty if it is in none, as in a keyword."""
    word = next((each for each in re.finditer(r"\w+", line) if each.start() < column < each.end()), None)
    return "" if word is None or iskeyword(word[0]) or not word[0].isidentifier() else line[column : word.end()]
