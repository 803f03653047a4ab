"""Texts from the model's tokens to the editor: what is accepted is what the model wrote, cut where it must be.

A model writes a dictated text in tokens that cut words and code points. It passes the engine, the sink, the service's
messages, the client's arrays, the session and the item. The oracle knows only strings.
"""

import asyncio
import re
from dataclasses import dataclass
from random import Random

from lsprotocol.types import Position, Range, TextDocumentContentChangePartial, TextDocumentItem

from inference.protocol.completion import Chunks, CompletionRequest
from lsp_server.assistant import adapt
from lsp_server.backend import Connector
from lsp_server.documents import Document, num_units
from lsp_server.guard import Cleared
from lsp_server.items import Suggestion, fit_all, inline_item
from lsp_server.no_suggestion import NoSuggestion
from lsp_server.session import EditorRequest, Purpose, Session, build_editor_request
from lsp_server.settings import Settings
from tests.support.dictated import DictatedService, run_dictated
from tests.support.lsp_fakes import Said, clear
from tests.support.reliability import Found, Reliability

_NUM_SHORT, _NUM_FULL = 48, 20_000  # completions; for each, some 50 suggestions are compared
_MAX_TOKENS = 700  # of a byte each: more than any text has
_NUM_AT_ONCE = 16
_LETTERS = "abcdefghkmnopqrstuvwxyzäößéñ中文字符日本語한😀🦊\u0301"
_STOPS = ("END", "ß#", "\n\n", "##")
_NO_TEXT = (b"\xff", b"\xe4\xb8 ", b"\xf0\x9f\x98", b"\x00", b"\x1b[")
_HEADS = ("x = 1", "größe = 2", "emoji = '🦊'", "", "    y = 3")


@dataclass(frozen=True, slots=True)
class _Case:
    """A place in a document, what the model writes there, and what must be inserted."""

    prefix: str  # with \n, as the model reads it
    suffix: str
    written: bytes
    stops: tuple[str, ...]
    expected: str


def _draw_case(number: int, random: Random) -> _Case:
    head = "".join(f"{each}\n" for each in (f"#{number}", *random.choices(_HEADS, k=random.randint(0, 4))))
    in_block, opens = random.random() < 0.4, random.random() < 0.5
    line = random.choice(("value = ", "re", "größe + ä", "", "use 中", "    a 🦊"))
    prefix = head + (("def f():" + ("" if opens else "\n    ")) if in_block else line)
    lines = [_draw_line(random) for _ in range(random.randint(2, 4) if in_block else 1)]
    lines = [*dict.fromkeys(lines)]  # one that equals the line above is not suggested
    text = ("\n    " if in_block and opens else "") + "\n    ".join(lines)
    stops = tuple(random.sample(_STOPS, random.randint(1, 2))) if random.random() < 0.3 else ()
    expected, end, wanted = text, "", text + random.choice(("\nnext = 1\nmore", "\nnext", "\n\nz = 1\n"))
    if stops and random.random() < 0.8:
        at = random.randint(1, len(text))
        expected, end = text[:at], random.choice(stops)  # another one may begin in the text, and end in this one
        wanted = expected + end + wanted[at:]
    written = wanted.encode()
    if random.random() < 0.15:  # bytes that are no text
        at = random.randint(1, len(expected))
        expected, end = expected[:at], ""
        written = expected.encode() + random.choice(_NO_TEXT) + written
    return _Case(prefix, random.choice(("", "\n", "\nfoo = 1\n")), written, stops, _cut(expected + end, stops))


def _draw_line(random: Random) -> str:
    words = ["".join(random.choices(_LETTERS, k=random.choice((1, 3, 8, 30)))) for _ in range(random.randint(1, 5))]
    return "w" + random.choice((" ", " = ", ".", "  ")).join(words)


def _cut(text: str, stops: tuple[str, ...]) -> str:
    """The text up to the first stop string, without blanks at its end."""
    return re.split("|".join(map(re.escape, stops)), text)[0].rstrip() if stops else text.rstrip()


class _Editor:
    """A document, into which a text is typed as it is suggested."""

    def __init__(self, case: _Case, service: DictatedService, random: Random, found: Found) -> None:
        self._found = found
        self._case, self._line_end = case, random.choice(("\n", "\n", "\r\n"))
        self._text, self._rest = case.prefix, case.expected
        item = TextDocumentItem("file:///a.py", "python", 0, self._write(case.prefix + case.suffix))
        status = Said()
        self._connector = Connector(lambda *_: _connect(service), status)
        self._session = Session(Document(item), self._build, self._connector, status)

    async def run(self) -> None:
        """Asks, and compares, until all is typed."""
        await self._compare(may_be_shorter=True)
        if (generation := self._session._generation) is not None and generation.task is not None:
            await generation.task
        while self._rest.strip() and not self._found.problems:
            await self._compare()
            typed = self._rest[: len(self._rest) - len(self._rest[1:].lstrip())]
            at = self._find_position()
            change = TextDocumentContentChangePartial(range=Range(at, at), text=self._write(typed))
            self._session.edit([change])
            self._text, self._rest = self._text + typed, self._rest[len(typed) :]
        self._session.close()
        await self._connector.close()

    async def _build(self, _: Session, asked: EditorRequest, purpose: Purpose) -> Cleared[CompletionRequest]:
        text, stops = asked.context, self._case.stops
        request = CompletionRequest(text.prefix, text.suffix, _MAX_TOKENS, stop=stops, chunks=Chunks.LINES)
        return clear(adapt(request, purpose, asked.confidence))

    async def _compare(self, may_be_shorter: bool = False) -> None:
        position = self._find_position()
        request = build_editor_request(self._session.document, position, Settings())
        best = await self._session.complete(request)
        insertions = () if isinstance(best, NoSuggestion) else fit_all([best], request.context)
        self._found.num += 1
        wanted, suffix = self._text + self._rest, self._case.suffix
        got = self._write(self._text + suffix)
        if insertions:
            item = inline_item(insertions[0], Suggestion(request.place, request.context, insertions))
            assert item.range is not None
            assert item.range.end == position, "nothing follows in the line"
            lines = self._write(self._text).split("\n")
            kept = _cut_units(lines[-1], item.range.start.character)
            got = "\n".join([*lines[:-1], kept]) + str(item.insert_text) + self._write(suffix)
        whole = self._write(wanted + suffix)
        is_first = may_be_shorter and whole.startswith(got.removesuffix(self._write(suffix)) + self._line_end)
        if got != whole and not is_first:
            self._found.problems.append(f"{self._case} at {self._rest!r}: {got!r}, {best!r}")

    def _find_position(self) -> Position:
        lines = self._text.split("\n")
        return Position(len(lines) - 1, num_units(lines[-1]))

    def _write(self, text: str) -> str:
        return text.replace("\n", self._line_end)


def _cut_units(line: str, num: int) -> str:
    return next(line[:end] for end in range(len(line) + 1) if num_units(line[:end]) == num)


async def _connect(service: DictatedService) -> DictatedService:
    return service


def compare_texts(num: int, seed: int) -> Found:
    """Compares completions."""
    random, found = Random(seed), Found()
    cases = [_draw_case(number, random) for number in range(num)]

    def find_rest(text: bytes) -> bytes:
        case = cases[int(text[1 : text.index(b"\n")])]
        num_read = len(case.prefix.encode()) + len(case.suffix.encode()) * bool(case.suffix.strip())
        return case.written[max(len(text) - num_read, 0) :]

    async def compare() -> None:
        with run_dictated(find_rest) as service:
            for at in range(0, num, _NUM_AT_ONCE):
                editors = [_Editor(case, service, random, found) for case in cases[at : at + _NUM_AT_ONCE]]
                await asyncio.gather(*[each.run() for each in editors])

    asyncio.run(compare())
    return found


def test_what_is_accepted_is_what_the_model_wrote(reliability: Reliability) -> None:
    num, found = reliability.measure(compare_texts, _NUM_SHORT, _NUM_FULL)
    figures = {"texts_completions": num, "texts_suggestions": found.num, "texts_wrong": len(found.problems)}
    reliability.record("texts", figures, found.problems)
    assert found.num > 5 * num
