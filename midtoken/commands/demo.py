"""Show the ghost text while a file is typed, with and without healing, side by side."""

import argparse
import asyncio
import re
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient
from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from inference.platforms import Self
from inference.protocol.completion import Healing
from midtoken.connection import open_connection
from midtoken.server_arguments import add_connection_arguments, build_connection_arguments

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


@dataclass(frozen=True, slots=True)
class _Scene:
    """A file, and its line that is being typed."""

    lines: tuple[str, ...]
    row: int
    num_typed: int  # the typed characters of that line


class _Side:
    """A language server with one open file, with or without healing, and its answers so far."""

    def __init__(self, client: LanguageClient, path: Path, healing: Healing) -> None:
        """Use `start`."""
        self._client = client
        self._uri = path.as_uri()
        self._version = 0
        is_healed = healing is Healing.EXACT
        self.title, self.style = ("healed", "italic green") if is_healed else ("unhealed", "italic red")
        self.ghost = ""
        self.num_right = 0
        self.times_ms: list[float] = []

    @classmethod
    async def start(cls, path: Path, healing: Healing, server_arguments: Sequence[str]) -> Self:
        """Starts `midtoken lsp` with a running completion server, and opens the file."""
        client = LanguageClient("midtoken-demo", "1")
        client.feature(types.WINDOW_LOG_MESSAGE)(_ignore)
        client.feature(types.WINDOW_SHOW_MESSAGE)(_ignore)
        await client.start_io(sys.executable, "-m", "midtoken", "lsp", *server_arguments)
        inline = types.InlineCompletionClientCapabilities()
        general = types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind.Utf32])
        capabilities = types.ClientCapabilities(
            text_document=types.TextDocumentClientCapabilities(inline_completion=inline), general=general
        )
        options: dict[str, Any] = {"healing": str(healing), "extent": "single_line"}
        await client.initialize_async(types.InitializeParams(capabilities=capabilities, initialization_options=options))
        client.initialized(types.InitializedParams())
        side = cls(client, path, healing)
        item = types.TextDocumentItem(side._uri, "python", 0, path.read_text(encoding="utf-8"))
        client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return side

    def replace(self, line: int, start: int, end: int, text: str) -> None:
        """Replaces characters `start` to `end` of a line."""
        self._version += 1
        span = types.Range(types.Position(line, start), types.Position(line, end))
        document = types.VersionedTextDocumentIdentifier(self._version, self._uri)
        change = types.TextDocumentContentChangePartial(range=span, text=text)
        self._client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    async def ask(self, scene: _Scene) -> None:
        """Asks for the ghost text at the end of what is typed, and takes the time."""
        params = types.InlineCompletionParams(
            context=types.InlineCompletionContext(types.InlineCompletionTriggerKind.Automatic),
            text_document=types.TextDocumentIdentifier(self._uri),
            position=types.Position(scene.row, scene.num_typed),
        )
        started_at = time.perf_counter()
        result = await self._client.text_document_inline_completion_async(params)
        self.times_ms.append(1e3 * (time.perf_counter() - started_at))
        items = result.items if isinstance(result, types.InlineCompletionList) else result
        self.ghost = _find_text_after_cursor(items[0], scene.num_typed) if items else ""
        self.num_right += _first_word(self.ghost) == _first_word(scene.lines[scene.row][scene.num_typed :])

    async def close(self) -> None:
        """Ends the language server."""
        await self._client.shutdown_async(None)
        self._client.exit(None)
        await self._client.stop()  # type: ignore[no-untyped-call]


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
    async with open_connection(options):  # keeps the server that the two language servers find
        arguments = build_connection_arguments(options)
        with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
            path = Path(folder) / _FILE
            path.write_text("\n".join(lines), encoding="utf-8")
            sides = [await _Side.start(path, healing, arguments) for healing in (Healing.EXACT, Healing.NONE)]
            with Live(console=console, auto_refresh=False) as live:
                for line in _LINES[: options.lines]:
                    await _type_line(tuple(lines), lines.index(line), sides, live, options.keys_per_second)
            for side in sides:
                await side.close()
    console.print(_render_summary(sides))


async def _type_line(lines: tuple[str, ...], row: int, sides: list[_Side], live: Live, keys_per_second: float) -> None:
    text = lines[row]
    start = len(text) - len(text.lstrip())
    for side in sides:
        side.replace(row, start, len(text), "")
    for column in range(start, len(text)):
        for side in sides:
            side.replace(row, column, column, text[column])
        scene = _Scene(lines, row, column + 1)
        for side in sides:  # one after the other: together, they would share the processor, and both would look slow
            await side.ask(scene)
        if live.console.is_terminal:
            live.update(Columns([_render_side(scene, side) for side in sides], padding=(0, 1)), refresh=True)
            await asyncio.sleep(1 / keys_per_second)
        else:
            answers = "   ".join(f"{side.title} {side.ghost!r} {side.times_ms[-1]:.0f} ms" for side in sides)
            print(f"{text[: column + 1].strip()}▏   {answers}", flush=True)


def _first_word(text: str) -> str:
    """Returns the word at the beginning of the text; empty if there is none."""
    return re.split(r"\W", text, maxsplit=1)[0]


def _render_side(scene: _Scene, side: _Side) -> Panel:
    first = max(scene.row - _NUM_LINES_ABOVE, 0)
    body = Text(no_wrap=True, overflow="ellipsis")
    for row in range(first, scene.row + _NUM_LINES_BELOW + 1):
        body.append(f"{row + 1:4} ", style="dim")
        if row == scene.row:
            body.append(scene.lines[row][: scene.num_typed], style="bold")
            body.append("▏")
            body.append(side.ghost, style=side.style)
        else:
            body.append(scene.lines[row], style="dim")
        body.append("\n")
    body.rstrip()
    return Panel(body, title=side.title, subtitle=f"{side.times_ms[-1]:.0f} ms", width=_PANEL_CELLS)


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


def _ignore(_message: types.LogMessageParams | types.ShowMessageParams) -> None:
    """Ignores a message that an editor would show, because it would disturb the drawing."""


def _find_text_after_cursor(item: types.InlineCompletionItem, character: int) -> str:
    """Returns what an editor draws: the inserted text without the part that is already typed."""
    text = item.insert_text if isinstance(item.insert_text, str) else item.insert_text.value
    typed = character - item.range.start.character if item.range else 0
    return text[typed:]
