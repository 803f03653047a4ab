"""Types lines of real files into the language server, and counts what its ghost text is worth.

A `Typist` goes through a line key by key. Where all of the ghost text is right and it has at least two characters, it
presses Tab. One that accepts words, too, takes the first word of other ghost text if that is right and has at least
three characters. Otherwise it types the next character. Each costs one key.
"""

import asyncio
import io
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest
from statistics import mean
from typing import Any, Protocol

from lsprotocol import types
from pygls.io_ import StdoutWriter

from inference.errors import ServerError
from lsp_server.backend import CompletionBackend, OnDownload
from lsp_server.documents import num_units
from lsp_server.items import Suggestion
from lsp_server.no_suggestion import Reason
from lsp_server.server import MidtokenServer
from lsp_server.settings import Settings

_MIN_CHARS_ABOVE = 1_000
_NEAR_CHARS = 16_384  # twice what is sent
_MIN_LINE_CHARS, _MAX_LINE_CHARS = 8, 120
_WORD = re.compile(r"\s*(\w+|[^\w\s]+)")
_NOT_YET = (Reason.UNKNOWN_RULES, Reason.STARTING)
_NO_ANSWER = (Reason.UNREACHABLE, Reason.BUSY, Reason.REFUSED, Reason.FAILED, Reason.OTHER_LANGUAGE)
_RETRY_S = 0.01
_PRINT_EACH = 20  # lines


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file."""

    before: str  # the text above, and the indentation
    text: str
    after: str  # its line end, and the text below


def draw_lines(texts: Sequence[str], num_lines: int, seed: int) -> list[Line]:
    """Draws different lines of the files by a seed. There may be fewer."""
    rng, found = random.Random(seed), dict[tuple[int, int], Line]()
    files = [number for number, text in enumerate(texts) if len(text) > _MIN_CHARS_ABOVE]
    for _ in range(20 * num_lines if files else 0):
        number = rng.choice(files)
        start = texts[number].rfind("\n", 0, rng.randrange(_MIN_CHARS_ABOVE, len(texts[number]))) + 1
        line = _find_line(texts[number], start)
        if _MIN_LINE_CHARS <= len(line.text) <= _MAX_LINE_CHARS and len(found) < num_lines:
            found[number, start] = line
    return [*found.values()]


def _find_line(text: str, start: int) -> Line:
    line = text[start:].partition("\n")[0]
    first = start + len(line) - len(line.lstrip())
    end = start + len(line.rstrip())
    return Line(text[max(0, first - _NEAR_CHARS) : first], text[first:end], text[end : end + _NEAR_CHARS])


class GhostText(Protocol):
    """Shows text at a cursor: the language server, or what it is compared with."""

    def open(self, before: str, after: str) -> None:
        """Opens a document with the cursor between the texts. What was shown in another one is forgotten."""

    async def show(self, before: str, after: str) -> str:
        """Returns what is shown when the document has become this. Empty: nothing."""


class TypedFile:
    """A document without a file in a language server in this process."""

    def __init__(self, server: MidtokenServer, settings: dict[str, Any], language: str) -> None:
        self.server, self._language = server, language
        self._uri = f"untitled:typed.{language}"
        server.protocol.set_writer(StdoutWriter(io.BytesIO()))  # what an editor is told is not shown
        initialize = {"id": 1, "params": {"capabilities": {}, "initializationOptions": settings}}
        for method, more in (("initialize", initialize), ("initialized", {"params": {}})):
            server.protocol.handle_message({"jsonrpc": "2.0", "method": method, **more})

    def open(self, before: str, after: str) -> None:
        """See `GhostText`."""
        document = types.TextDocumentItem(self._uri, self._language, 0, before + after)
        self.server.open(document)

    async def show(self, before: str, after: str) -> str:
        """See `GhostText`. Raises ServerError if there is no answer."""
        change = types.TextDocumentContentChangeWholeDocument(before + after)
        self.server.assistant.edit(self._uri, [change])
        line = before[before.rfind("\n") + 1 :]
        place = types.Position(before.count("\n"), num_units(line))
        while True:
            found = await self.server.assistant.suggest(self._uri, place)
            if isinstance(found, Suggestion):
                return found.insertions[0].text
            if found.reason in _NO_ANSWER:
                raise ServerError(f"the typing was stopped: {found.message or found.reason}")
            if found.reason not in _NOT_YET:
                return ""
            await asyncio.sleep(_RETRY_S)  # `suggest` may not wait, and what it asks for needs the loop


@dataclass(slots=True)
class Typist:
    """Types lines, and counts."""

    ghost: GhostText
    takes_words: bool = False
    num_chars: int = 0
    num_keys: int = 0  # that were pressed
    num_wrong: int = 0  # characters of it that were wrong, at all keys
    num_flickers: int = 0  # ghost text that changed although the key agreed with it

    async def type(self, line: Line) -> None:
        """Types a line."""
        self.ghost.open(line.before, line.after)
        at, expected = 0, ""
        while at < len(line.text):
            shown = (await self.ghost.show(line.before + line.text[:at], line.after)).rstrip()
            rest = line.text[at:]
            num_right = count_right(shown, rest + line.after)
            self.num_flickers += not shown.startswith(expected)
            self.num_wrong += len(shown) - num_right
            self.num_keys += 1
            taken = min(self._find_accepted(shown, num_right), len(rest))
            expected = shown[1:] if not taken and shown[:1] == rest[0] else ""
            at += taken or 1
        self.num_chars += len(line.text)

    @property
    def saved(self) -> float:
        """The share of keys that the ghost text has saved."""
        return 1 - self.num_keys / self.num_chars

    def _find_accepted(self, shown: str, num_right: int) -> int:
        """Returns how many characters are accepted."""
        if num_right == len(shown) >= 2:
            return num_right
        word = _WORD.match(shown) if self.takes_words else None
        return word.end() if word and 3 <= word.end() <= num_right else 0


def count_right(shown: str, truth: str) -> int:
    """Returns how many of the first characters are right."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(shown, truth, strict=False)))


@dataclass(slots=True)
class Cursors:
    """What is shown at cursors anywhere in lines."""

    ghost: GhostText
    rights: list[bool] = field(default_factory=list)  # of the texts that were shown: whether all of it is right

    async def ask(self, line: Line, at: int) -> None:
        """Asks at a cursor in a line."""
        self.ghost.open(line.before, line.after)
        shown = (await self.ghost.show(line.before + line.text[:at], line.after)).rstrip()
        self.rights += [count_right(shown, line.text[at:] + line.after) == len(shown)] if shown else []


@dataclass(slots=True)
class Trial:
    """One contender: two typists, who may accept words or not, and cursors."""

    by_tab: Typist
    by_word: Typist
    cursors: Cursors

    @classmethod
    def build(cls, backend: CompletionBackend, language: str = "python", **settings: Any) -> "Trial":
        """Returns one of the language server with these settings."""

        async def connect(_settings: Settings, _on_download: OnDownload) -> CompletionBackend:
            return backend

        settings = {"prefetch": False, "languages": ["*"]} | settings
        by_tab, by_word, asked = (TypedFile(MidtokenServer(connect), settings, language) for _ in range(3))
        return cls(Typist(by_tab), Typist(by_word, True), Cursors(asked))

    def list_figures(self) -> dict[str, float | None]:
        """What came of it, by name. None: not known."""
        rights = self.cursors.rights
        return {
            "saved": self.by_tab.saved,
            "saved_word": self.by_word.saved,
            "wrong_chars_per_key": self.by_tab.num_wrong / self.by_tab.num_keys,
            "shown_right_share": mean(rights) if rights else None,
            "flicker": self.by_tab.num_flickers + self.by_word.num_flickers,
        }


async def run_trials(trials: Sequence[Trial], typed: Sequence[Line], asked: Sequence[Line], seed: int) -> None:
    """Types lines in all trials at once, and asks at a cursor in each of other lines, one trial after the other."""
    rng = random.Random(seed)
    for number, (line, other) in enumerate(zip_longest(typed, asked)):
        if number and number % _PRINT_EACH == 0:
            print(f"typing: {number} of {max(len(typed), len(asked))}", flush=True)
        if line is not None:
            await asyncio.gather(*(typist.type(line) for each in trials for typist in (each.by_tab, each.by_word)))
        if other is not None:
            at = rng.randrange(len(other.text))
            for each in trials:
                await each.cursors.ask(other, at)
