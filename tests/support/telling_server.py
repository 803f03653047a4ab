"""A language server that tells its status, and records how it is asked.

`python -m tests.support.telling_server RECORD` suggests `(one 😀)`, and more if a person asks. A line `status {…}` of
the document is sent as the notification `$/midtoken/status`, in which "here" stands for the document's URI, after the
seconds in "after_s". A line `silent` makes it suggest nothing until it has told that it is ready, a line `unlikely`
nothing unless a person asks, and a line `slow` the others only to who asks for the second time.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer


def build_command(record: Path) -> list[str]:
    """The command line that starts it."""
    return [sys.executable, "-m", "tests.support.telling_server", str(record)]


def main() -> None:
    server, record = LanguageServer("telling", "1"), Path(sys.argv[1])
    told: list[str] = []  # the lines
    sent: list[str] = []  # the states

    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    def _complete(params: types.InlineCompletionParams) -> types.InlineCompletionList | None:
        is_invoked = params.context.trigger_kind is types.InlineCompletionTriggerKind.Invoked
        with record.open("a") as file:
            file.write("invoked\n" if is_invoked else "automatic\n")
        lines = server.workspace.get_text_document(params.text_document.uri).lines
        if "silent\n" in lines and "ready" not in sent:
            return None
        is_late = "slow\n" in lines and record.read_text().count("invoked") == 1
        here = types.Range(params.position, params.position)
        items = [types.InlineCompletionItem(text, range=here) for text in ("(one 😀)", "(two)", "[three]")]
        return types.InlineCompletionList(items if is_invoked and not is_late else items[: "unlikely\n" not in lines])

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def _open(params: types.DidOpenTextDocumentParams) -> None:
        tell(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def _change(params: types.DidChangeTextDocumentParams) -> None:
        tell(params.text_document.uri)

    def tell(uri: str) -> None:
        lines = [line for line in server.workspace.get_text_document(uri).lines if line.endswith("}\n")]
        for line in lines:
            if line.startswith("status ") and line not in told:
                told.append(line)
                status = json.loads(line.removeprefix("status "))
                status["uri"] = status["uri"] and uri
                asyncio.get_running_loop().call_later(status.pop("after_s", 0), send, status)

    def send(status: dict[str, Any]) -> None:
        sent.append(status["state"])
        server.protocol.notify("$/midtoken/status", status)

    server.start_io()


if __name__ == "__main__":
    main()
