"""Show the ghost text while a file is typed, with and without healing, one below the other."""

import argparse
import asyncio
import re
import statistics
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from inference.protocol.completion import Healing
from midtoken.commands.lsp import build_language_server
from midtoken.connection import open_connection
from midtoken.server_arguments import add_connection_arguments
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
_HINT = """How often the ghost text began with the rest of the word in the file, and how long a key took. A key that
agrees with the ghost text is answered without a request. The completion server stops 15 minutes after its last use.
midtoken explain FILE:LINE:COL shows how a completion is made. README.md says how to set up an editor."""


class _Side:
    """A language server with one open file, with or without healing, and its answers so far."""

    def __init__(self, name: str, style: str, healing: Healing, options: argparse.Namespace) -> None:
        self.name, self.style = name, style
        self.ghost, self.num_right, self.times_ms = "", 0, list[float]()
        settings = {"healing": str(healing), "extent": "single_line"}
        self.file = TypedFile(build_language_server(options), settings, _FILE)
        self.file.open("", "")

    async def ask(self, before: str, after: str, rest: str) -> None:
        """Asks for the ghost text before the `rest` of the cursor's line, and takes the time."""
        started_s = time.perf_counter()
        self.ghost = await self.file.show(before, after)
        self.times_ms.append(1e3 * (time.perf_counter() - started_s))
        self.num_right += _find_first_word(self.ghost) == _find_first_word(rest)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument("--lines", type=int, default=len(_LINES), help="how many lines to type (default: all)")
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
        with Live(console=console, auto_refresh=False) as live:
            for line in _LINES[: options.lines]:
                await _type(line, lines, sides, live)
        for side in sides:
            await side.file.server.close_all()
    for side in sides:
        times = f"median {statistics.median(side.times_ms):.1f} ms, slowest {max(side.times_ms):.0f} ms"
        console.print(f"{side.name:9}right {side.num_right} of {len(side.times_ms)}, {times}")
    console.print(_HINT, style="dim", soft_wrap=True)


async def _type(line: str, lines: list[str], sides: Sequence[_Side], live: Live) -> None:
    row = lines.index(line)
    for column in range(len(line) - len(line.lstrip()) + 1, len(line) + 1):
        before, after = "\n".join([*lines[:row], line[:column]]), "\n".join(["", *lines[row + 1 :]])
        for side in sides:  # one after the other: together, they would share the processor, and both would look slow
            await side.ask(before, after, line[column:])
        live.update(_draw(lines[max(0, row - _NUM_LINES_ABOVE) : row], line[:column], sides), refresh=True)
        await asyncio.sleep(_PAUSE_S)


def _draw(above: Sequence[str], typed: str, sides: Sequence[_Side]) -> Text:
    drawn = Text("".join(f"{each}\n" for each in above), "dim", no_wrap=True, overflow="ellipsis")
    for side in sides:
        drawn.append(f"{typed}▏", "not dim bold").append(side.ghost, f"not dim {side.style}")
        drawn.append(f"   {side.name}, {side.times_ms[-1]:.0f} ms\n")
    return drawn


def _find_first_word(text: str) -> str:
    return re.split(r"\W", text, maxsplit=1)[0]
