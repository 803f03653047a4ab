"""Reads what `tests.support.recorded_server` records: the text that the language server has, and its answers."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from tests.support.lsp_editor import make_script
from tests.support.replay.samples import COMPLETIONS

_METHOD = "textDocument/inlineCompletion"


@dataclass(frozen=True, slots=True)
class Item:
    """A suggestion: `before` + `text` + `after` is the document with it."""

    before: str
    text: str
    replaced: str
    after: str

    @property
    def result(self) -> str:
        return self.before + self.text + self.after


@dataclass(slots=True)
class Ask:
    """A request for suggestions. `items` is None for the answer null or an error."""

    text: str
    cursor: int
    is_invoked: bool  # by the user, who wants all suggestions
    is_answered: bool = False
    items: list[Item] | None = None


class Recording:
    """What was recorded so far for the one document of a replay."""

    def __init__(self, path: Path, encoding: str) -> None:
        self.text: str | None = None
        self.asks: list[Ask] = []
        self._path = path
        self._num_read = 0
        self._encoding = encoding
        self._by_id: dict[Any, Ask] = {}

    def read(self) -> None:
        """Reads what was recorded since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._num_read)
            for line in file:
                if line.endswith(b"\n"):
                    self._num_read += len(line)
                    self._take(json.loads(line))

    @property
    def last(self) -> Ask | None:
        return self.asks[-1] if self.asks else None

    @property
    def is_idle(self) -> bool:
        """True if each request has its answer."""
        return all(ask.is_answered for ask in self._by_id.values())

    def _take(self, entry: Mapping[str, Any]) -> None:
        if entry["kind"] == "text":
            self.text = entry["text"]
        elif entry["kind"] == "ask":
            self._take_message(entry["message"], entry["text"])
        else:
            self._take_answer(entry["message"])

    def _take_message(self, message: Mapping[str, Any], text: str | None) -> None:
        if message["method"] == _METHOD and text is not None:
            params = message["params"]
            is_invoked = params.get("context", {}).get("triggerKind") == 1
            ask = Ask(text, find_offset(text, params["position"], self._encoding), is_invoked)
            self.asks.append(ask)
            self._by_id[message["id"]] = ask

    def _take_answer(self, message: Mapping[str, Any]) -> None:
        ask = self._by_id.pop(message.get("id"), None)
        if "method" in message or ask is None:
            return
        ask.is_answered = True
        result = message.get("result")
        if result is not None:
            ask.items = [_to_item(item, ask.text, self._encoding) for item in result["items"]]


def write_script(folder: Path) -> list[str]:
    """Returns the command of `tests.support.recorded_server` with the samples. It records to record.jsonl."""
    rules = [{"ends_with": ending, "texts": texts} for ending, texts in COMPLETIONS]
    script = make_script(folder, *rules, record=str(folder / "record.jsonl"))
    return [sys.executable, "-m", "tests.support.recorded_server", script.command[-1]]


def expand_tabs(line: str) -> str:
    """Replaces tabs by blanks, as editors draw them with tab stops every four columns."""
    drawn, column = "", 0
    for char in line:
        width = 4 - column % 4 if char == "\t" else cell_len(char)
        drawn += " " * width if char == "\t" else char
        column += width
    return drawn


def find_offset(text: str, position: Mapping[str, int], encoding: str) -> int:
    """Returns the offset of an LSP position, in characters of `text`. The position must be in the text."""
    lines = text.replace("\r\n", "\n\0").split("\n")  # as long as the text
    start = sum(len(line) + 1 for line in lines[: position["line"]])
    line = lines[position["line"]].removeprefix("\0")
    start += lines[position["line"]].startswith("\0")
    units = line.encode(encoding)[: position["character"] * (2 if encoding == "utf-16-le" else 1)]
    assert position["character"] * (2 if encoding == "utf-16-le" else 1) <= len(line.encode(encoding)), "past the line"
    return start + len(units.decode(encoding))


def _to_item(item: Mapping[str, Any], text: str, encoding: str) -> Item:
    first, last = (find_offset(text, item["range"][edge], encoding) for edge in ("start", "end"))
    return Item(text[:first], item["insertText"], text[first:last], text[last:])
