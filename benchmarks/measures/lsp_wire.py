"""A language server process, and an editor that waits for each answer."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LANGUAGE_SERVER = (sys.executable, "-m", "midtoken", "lsp")
_CAPABILITIES = {"textDocument": {"inlineCompletion": {}}, "general": {"positionEncodings": ["utf-32"]}}
_INITIALIZE = {"processId": None, "rootUri": None, "capabilities": _CAPABILITIES}


@dataclass(frozen=True, slots=True)
class Offer:
    """A suggestion: the text from the cursor on, and how many characters after the cursor it replaces."""

    text: str
    num_replaced: int


class LspWire:
    """Sends requests one after the other."""

    def __init__(self, command: Sequence[str], settings: Mapping[str, Any] | None = None) -> None:
        """Starts the language server, and waits until it has answered `initialize`."""
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._num_requests = 0
        self._version = 0
        self.request("initialize", {**_INITIALIZE, "initializationOptions": settings})
        self.notify("initialized", {})

    @property
    def process_id(self) -> int:
        return self._process.pid

    def open(self, uri: str, text: str) -> None:
        """Opens a Python file."""
        document = {"uri": uri, "languageId": "python", "version": self._version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})

    def close(self, uri: str) -> None:
        """Closes a file."""
        self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    def insert(self, uri: str, line: int, character: int, text: str) -> None:
        """Inserts text at a place, in code points."""
        self._version += 1
        place = {"line": line, "character": character}
        change = {"range": {"start": place, "end": place}, "text": text}
        document = {"uri": uri, "version": self._version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})

    def complete(self, uri: str, line: int, character: int) -> list[Offer] | None:
        """Returns what is offered; None for the answer null."""
        place = {"line": line, "character": character}
        params = {"textDocument": {"uri": uri}, "position": place, "context": {"triggerKind": 2}}
        result = self.request("textDocument/inlineCompletion", params)
        if result is None:
            return None
        return [_to_offer(item, character) for item in result["items"]]

    def request(self, method: str, params: Any) -> Any:
        """Returns the result."""
        self._num_requests += 1
        self._write({"id": self._num_requests, "method": method, "params": params})
        while (message := self._read()).get("id") != self._num_requests or "method" in message:
            pass
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        return message["result"]

    def notify(self, method: str, params: Any) -> None:
        """Sends a notification."""
        self._write({"method": method, "params": params})

    def leave(self) -> None:
        """Ends the language server."""
        self.request("shutdown", None)
        self._write({"method": "exit"})
        self._process.wait()

    def _write(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None, "it is started with pipes"
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        stream = self._process.stdout
        assert stream is not None, "it is started with pipes"
        header = stream.readline()
        if not header:
            raise RuntimeError("the language server has ended")
        while stream.readline().strip():
            pass
        message: dict[str, Any] = json.loads(stream.read(int(header.removeprefix(b"Content-Length:"))))
        return message


def _to_offer(item: Mapping[str, Any], character: int) -> Offer:
    num_typed = character - item["range"]["start"]["character"]
    return Offer(item["insertText"][num_typed:], item["range"]["end"]["character"] - character)
