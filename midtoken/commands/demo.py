"""Show the ghost text while a file is typed, with and without healing, side by side."""

import argparse
import asyncio
import statistics
import sysconfig
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from inference.protocol.completion import Healing
from midtoken.arguments.parser import add_connection_arguments
from midtoken.connection import open_connection
from midtoken.demo_editor import DemoEditor

# A file of the standard library that the default model was not trained on, and its lines that are typed.
_FILE = "sched.py"
_LINES = (
    "            events = self._queue[:]",
    "        return self.enterabs(time, priority, action, argument, kwargs)",
    "            heapq.heapify(self._queue)",
    "        timefunc = self.timefunc",
)
_NUM_LINES = range(1, len(_LINES) + 1)
_NUM_LINES_ABOVE = 8
_NUM_LINES_BELOW = 2
_PANEL_CELLS = 76


@dataclass(slots=True)
class _Side:
    """One of the two language servers, and its answers so far."""

    healing: Healing
    editor: DemoEditor
    ghost: str = ""
    took_ms: float = 0.0
    num_right: int = 0
    times_ms: list[float] = field(default_factory=list)

    @property
    def title(self) -> str:
        return "healed" if self.healing is Healing.EXACT else "unhealed"


@dataclass(frozen=True, slots=True)
class _Scene:
    """A file, and its line that is being typed."""

    lines: tuple[str, ...]
    row: int
    num_typed: int  # the typed characters of that line

    @property
    def remaining_text(self) -> str:
        return self.lines[self.row][self.num_typed :]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument(
        "--keys-per-second", type=_parse_pace, default=8.0, help="the typing speed (default: %(default)s)"
    )
    parser.add_argument(
        "--lines", type=int, choices=_NUM_LINES, default=len(_LINES), help="how many lines to type (default: all)"
    )
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Plays the demo in a terminal. Elsewhere, prints one line for each key."""
    asyncio.run(_play(options))
    return 0


def _parse_pace(text: str) -> float:
    pace = float(text)
    if not 0 < pace <= 1000:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 1000, not {text}")
    return pace


async def _play(options: argparse.Namespace) -> None:
    console = Console()
    lines = (Path(sysconfig.get_path("stdlib")) / _FILE).read_text(encoding="utf-8").split("\n")
    async with open_connection(options) as connection:
        with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
            path = Path(folder) / _FILE
            path.write_text("\n".join(lines), encoding="utf-8")
            sides = [
                _Side(healing, await DemoEditor.start(path, healing, connection.address.arguments))
                for healing in (Healing.EXACT, Healing.NONE)
            ]
            with Live(console=console, auto_refresh=False) as live:
                for line in _LINES[: options.lines]:
                    await _type_line(tuple(lines), lines.index(line), sides, live, options.keys_per_second)
            for side in sides:
                await side.editor.close()
    console.print(_render_summary(sides))


async def _type_line(lines: tuple[str, ...], row: int, sides: list[_Side], live: Live, keys_per_second: float) -> None:
    text = lines[row]
    start = len(text) - len(text.lstrip())
    for side in sides:
        side.editor.replace(row, start, len(text), "")
    for column in range(start, len(text)):
        for side in sides:
            side.editor.replace(row, column, column, text[column])
        scene = _Scene(lines, row, column + 1)
        await _ask_sides(scene, sides)
        if live.console.is_terminal:
            live.update(_render_scene(scene, sides), refresh=True)
            await asyncio.sleep(1 / keys_per_second)
        else:
            answers = "   ".join(f"{side.title} {side.ghost!r} {side.took_ms:.0f} ms" for side in sides)
            print(f"{text[: column + 1].strip()}▏   {answers}", flush=True)


async def _ask_sides(scene: _Scene, sides: list[_Side]) -> None:
    """Asks one side after the other. Together, they would share the processor, and both would look slow."""
    for side in sides:
        ghost, side.took_ms = await side.editor.ask(scene.row, scene.num_typed)
        side.ghost = ghost or ""
        side.times_ms.append(side.took_ms)
        side.num_right += _first_word(side.ghost) == _first_word(scene.remaining_text)


def _first_word(text: str) -> str:
    """Returns the word at the beginning of the text; empty if there is none."""
    end = next((index for index, char in enumerate(text) if not (char.isalnum() or char == "_")), len(text))
    return text[:end]


def _render_scene(scene: _Scene, sides: list[_Side]) -> Columns:
    return Columns([_render_side(scene, side) for side in sides], padding=(0, 1))


def _render_side(scene: _Scene, side: _Side) -> Panel:
    first = max(scene.row - _NUM_LINES_ABOVE, 0)
    body = Text(no_wrap=True, overflow="ellipsis")
    for row in range(first, scene.row + _NUM_LINES_BELOW + 1):
        body.append(f"{row + 1:4} ", style="dim")
        if row == scene.row:
            body.append(scene.lines[row][: scene.num_typed], style="bold")
            body.append("▏")
            body.append(side.ghost, style="italic green" if side.healing is Healing.EXACT else "italic red")
        else:
            body.append(scene.lines[row], style="dim")
        body.append("\n")
    body.rstrip()
    return Panel(body, title=side.title, subtitle=f"{side.took_ms:.0f} ms", width=_PANEL_CELLS)


def _render_summary(sides: list[_Side]) -> Group:
    table = Table(title="How often the ghost text began with the rest of the word in the file", title_style="dim")
    for name in ("", "right", "median", "slowest"):
        table.add_column(name, justify="right" if name else "left")
    for side in sides:
        num = len(side.times_ms)
        table.add_row(
            side.title,
            f"{side.num_right} of {num}",
            f"{statistics.median(side.times_ms):.0f} ms",
            f"{max(side.times_ms):.0f} ms",
        )
    hint = Text(
        "A key that agrees with the ghost text is answered without a request, in a few ms. A request takes as long on\n"
        "both sides. The completion server stops 15 minutes after its last use.\n"
        "midtoken explain FILE:LINE:COL shows how a completion is made. README.md says how to set up an editor.",
        "dim",
    )
    return Group(table, hint)
