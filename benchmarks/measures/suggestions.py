"""Suggestions of the language server in gaps: what they leave in the buffer, and whether following them asks again."""

import asyncio
import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.progress import track

from benchmarks.corpora.cuts import Gap, GapKind
from benchmarks.measures.lsp_client import LANGUAGE_SERVER, RECORDED_LANGUAGE_SERVER, LspClient, Offer
from benchmarks.measures.recorded_lsp import read_records

_INDENT = 4  # columns, of the held-out files
STYLES = ("    ", "\t", "  ")
_MAX_KEYS = 40


@dataclass(frozen=True, slots=True)
class Inserted:
    """A gap whose file is indented with `unit`, what was inserted there, and what it replaced after the cursor."""

    gap: Gap
    unit: str
    text: str
    replaced: str

    @property
    def repeats_suffix(self) -> bool:
        """See `Gap.is_repeated_by`. What is replaced is not repeated."""
        left = dataclasses.replace(self.gap, suffix=self.gap.suffix[len(self.replaced) :])
        return bool(self.text) and left.is_repeated_by(self.text)

    @property
    def is_indented_otherwise(self) -> bool:
        """True if a line has other characters of indentation than the file, or is not indented in a new block."""
        before = (self.gap.prefix + self.text).split("\n")
        first = self.gap.prefix.count("\n")
        return any(self._is_wrong(before, number) for number in range(first + 1, len(before)))

    def _is_wrong(self, lines: Sequence[str], number: int) -> bool:
        line, above = lines[number], next((line for line in reversed(lines[:number]) if line.strip()), "")
        if not line.strip():
            return False
        indent, indent_above = _find_indent(line), _find_indent(above)
        if (self.unit == "\t" and " " in indent.rstrip(" ")) or (self.unit != "\t" and "\t" in indent):
            return True
        opens_block = re.match(r"\s*(if|for|while|def|class|with|try|else|elif|except|finally)\b.*:$", above.rstrip())
        return opens_block is not None and indent != indent_above + self.unit


def indent_with(gap: Gap, unit: str) -> Gap:
    """Returns the gap in a file that is indented with `unit` for each four blanks. The cursor is where it was."""
    whole = gap.prefix + "\0" + gap.middle + "\1" + gap.suffix
    lines = [_indent_line(line, unit) for line in whole.split("\n")]
    prefix, _, rest = "\n".join(lines).partition("\0")
    middle, _, suffix = rest.partition("\1")
    return Gap(gap.kind, prefix, middle, suffix)


async def fill_gaps(address: str, gaps: Sequence[tuple[Gap, str]]) -> list[Inserted]:
    """Returns what the language server offers for each gap and the unit of its file's indentation."""
    command = [*LANGUAGE_SERVER, "--server", address]
    clients = {extent: await LspClient.start(command, {"extent": extent}) for extent in ("auto", "block")}
    filled = [
        await _fill(
            clients["block" if gap.kind is GapKind.BLOCK else "auto"], f"file:///project/{number}.py", gap, unit
        )
        for number, (gap, unit) in enumerate(track(gaps, "completing"))
    ]
    for client in clients.values():
        await client.leave()
    return filled


async def _fill(client: LspClient, uri: str, gap: Gap, unit: str) -> Inserted:
    """Asks until the answer is the same twice, since the first is only the first line of several."""
    client.open(uri, gap.prefix + gap.suffix)
    line, character = _find_cursor(gap)
    offers, before = await client.complete(uri, line, character), None
    while offers is None or (offers and offers != before):
        await asyncio.sleep(0.05)
        before, offers = offers, await client.complete(uri, line, character)
    client.close(uri)
    offer = offers[0] if offers else Offer("", 0)
    return Inserted(gap, unit, offer.text, gap.suffix[: offer.num_replaced])


async def measure_typed_ahead(address: str, gaps: Sequence[Gap], folder: Path) -> float:
    """Types what is suggested at the cursor of each gap, up to its last character.

    Returns the share of these keys that caused no request to the completion server.
    """
    record = folder / "record.json"
    client = await LspClient.start([*RECORDED_LANGUAGE_SERVER, "--server", address, "--record", str(record)])
    await client.wait_for_server("file:///project/warm_up.py")
    num_keys = sum([await _follow(client, f"file:///project/{number}.py", gap) for number, gap in enumerate(gaps)])
    await client.leave()
    is_first = [any(asked.is_about(gap.prefix, gap.suffix) for gap in gaps) for asked in read_records(record)]
    num_requests = is_first[is_first.index(True) :].count(False)  # before the first gap, the server was waited for
    print(f"{num_keys} keys followed a suggestion and caused {num_requests} requests")
    return 1 - num_requests / num_keys


async def _follow(client: LspClient, uri: str, gap: Gap) -> int:
    """Returns the number of keys."""
    client.open(uri, gap.prefix + gap.suffix)
    line, character = _find_cursor(gap)
    shown = await client.complete(uri, line, character)
    for num_keys in range(_MAX_KEYS):
        if not shown or len(shown[0].text) < 2:
            return num_keys
        key = shown[0].text[0]
        edit = client.build_edit(uri, (line, character), (line, character), key)
        line, character = (line + 1, 0) if key == "\n" else (line, character + 1)
        shown = await client.complete(uri, line, character, edit)
    return _MAX_KEYS


def _find_cursor(gap: Gap) -> tuple[int, int]:
    """The line and the character."""
    return gap.prefix.count("\n"), len(gap.prefix) - gap.prefix.rfind("\n") - 1


def _indent_line(line: str, unit: str) -> str:
    num_blanks = len(line) - len(line.lstrip(" "))
    return unit * (num_blanks // _INDENT) + line[num_blanks // _INDENT * _INDENT :]


def _find_indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
