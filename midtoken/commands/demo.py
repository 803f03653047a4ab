"""Show the ghost text while a file is typed, with and without healing, one below the other."""

import argparse
import asyncio
import re
import statistics
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

from lsprotocol import types
from pygls.lsp.client import LanguageClient
from rich.console import Console
from rich.live import Live
from rich.text import Text

from inference.protocol.completion import Healing
from lsp_server.status import STATUS_NOTIFICATION
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
_NUM_LINES_ABOVE = 8
_PAUSE_S = 0.12  # between two keys
_HINT = """How often the ghost text began with the rest of the word in the file, and how long a key took. A key that
agrees with the ghost text is answered without a request. The completion server stops 15 minutes after its last use.
midtoken explain FILE:LINE:COL shows how a completion is made. README.md says how to set up an editor."""


class _Side:
    """A language server with one open file, with or without healing, and its answers so far."""

    def __init__(self, name: str, style: str, healing: Healing) -> None:
        self.name, self.style, self.healing = name, style, healing
        self.ghost, self.num_right, self.times_ms = "", 0, list[float]()
        self._client = LanguageClient("midtoken-demo", "1")
        self._document = types.VersionedTextDocumentIdentifier(0, f"untitled:{_FILE}")

    async def start(self, server_arguments: Sequence[str]) -> None:
        """Starts `midtoken lsp` with a running completion server, and opens the file, which is empty."""
        for message in (types.WINDOW_LOG_MESSAGE, types.WINDOW_SHOW_MESSAGE, STATUS_NOTIFICATION):  # for a person
            self._client.feature(message)(lambda _: None)
        await self._client.start_io(sys.executable, "-m", "midtoken", "lsp", *server_arguments)
        inline = types.InlineCompletionClientCapabilities()
        general = types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind.Utf32])
        document = types.TextDocumentClientCapabilities(inline_completion=inline)
        params = types.InitializeParams(
            types.ClientCapabilities(text_document=document, general=general),
            initialization_options={"healing": str(self.healing), "extent": "single_line"},
        )
        await self._client.initialize_async(params)
        self._client.initialized(types.InitializedParams())
        item = types.TextDocumentItem(self._document.uri, "python", self._document.version, "")
        self._client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    async def ask(self, text: str, place: types.Position, rest: str) -> None:
        """Asks for the ghost text at a place of the new text, before the `rest` of its line, and takes the time."""
        self._document.version += 1
        change = types.TextDocumentContentChangeWholeDocument(text)
        self._client.text_document_did_change(types.DidChangeTextDocumentParams(self._document, [change]))
        context = types.InlineCompletionContext(types.InlineCompletionTriggerKind.Automatic)
        started_s = time.perf_counter()
        result = await self._client.text_document_inline_completion_async(
            types.InlineCompletionParams(context, types.TextDocumentIdentifier(self._document.uri), place)
        )
        self.times_ms.append(1e3 * (time.perf_counter() - started_s))
        items = result.items if isinstance(result, types.InlineCompletionList) else result
        self.ghost = _find_ghost(items[0], place) if items else ""
        self.num_right += _find_first_word(self.ghost) == _find_first_word(rest)

    async def close(self) -> None:
        """Ends the language server."""
        await self._client.shutdown_async(None)
        self._client.exit(None)
        await self._client.stop()  # type: ignore[no-untyped-call]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument("--lines", type=int, default=len(_LINES), help="how many lines to type (default: all)")
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Plays the demo in a terminal. Elsewhere, prints the ghost texts of each key."""
    asyncio.run(_play(options))
    return 0


async def _play(options: argparse.Namespace) -> None:
    console, path = Console(highlight=False), Path(sysconfig.get_path("stdlib")) / _FILE
    lines = path.read_text(encoding="utf-8").split("\n")
    sides = [_Side("healed", "italic green", Healing.EXACT), _Side("unhealed", "italic red", Healing.NONE)]
    async with open_connection(options):  # keeps the server that the two language servers find
        for side in sides:
            await side.start(build_connection_arguments(options))
        with Live(console=console, auto_refresh=False) as live:
            for line in _LINES[: options.lines]:
                await _type(line, lines, sides, live)
        for side in sides:
            await side.close()
    for side in sides:
        times = f"median {statistics.median(side.times_ms):.0f} ms, slowest {max(side.times_ms):.0f} ms"
        console.print(f"{side.name:9}right {side.num_right} of {len(side.times_ms)}, {times}")
    console.print(_HINT, style="dim", soft_wrap=True)


async def _type(line: str, lines: list[str], sides: Sequence[_Side], live: Live) -> None:
    row = lines.index(line)
    for column in range(len(line) - len(line.lstrip()) + 1, len(line) + 1):
        text, place = "\n".join([*lines[:row], line[:column], *lines[row + 1 :]]), types.Position(row, column)
        for side in sides:  # one after the other: together, they would share the processor, and both would look slow
            await side.ask(text, place, line[column:])
        if live.console.is_terminal:
            live.update(_draw(lines[max(0, row - _NUM_LINES_ABOVE) : row], line[:column], sides), refresh=True)
            await asyncio.sleep(_PAUSE_S)
        else:
            live.console.print(_draw((), line[:column], sides), end="", soft_wrap=True)


def _draw(above: Sequence[str], typed: str, sides: Sequence[_Side]) -> Text:
    drawn = Text("".join(f"{each}\n" for each in above), "dim", no_wrap=True, overflow="ellipsis")
    for side in sides:
        drawn.append(f"{typed}▏", "not dim bold").append(side.ghost, f"not dim {side.style}")
        drawn.append(f"   {side.name}, {side.times_ms[-1]:.0f} ms\n")
    return drawn


def _find_ghost(item: types.InlineCompletionItem, place: types.Position) -> str:
    """Returns what an editor draws: the inserted text without the part that is already typed."""
    num_typed = place.character - item.range.start.character if item.range else 0
    return str(item.insert_text)[num_typed:]


def _find_first_word(text: str) -> str:
    return re.split(r"\W", text, maxsplit=1)[0]
