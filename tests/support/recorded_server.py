"""Runs the real language server on stdio with a scripted model, and records what it and the editor say to each other.

`python -m tests.support.recorded_server FILE`: FILE is that of `tests.support.scripted_server`, with "record": PATH.

A line of JSON is written to PATH for each of:

- `text`: the text of a document, as the language server has it after a message of the editor changed it
- `ask`: a request or notification of the editor, with the text of its document at that time
- `answer`: a message of the language server
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from pygls.io_ import StdoutWriter

from lsp_server.errors import OutOfStepError
from lsp_server.features import build_server
from lsp_server.protocol import MidtokenProtocol, keep_text_out_of_logs
from lsp_server.server import MidtokenServer
from lsp_server.stdio import open_descriptor, serve_messages
from tests.support.scripted_server import build_connect


def main() -> NoReturn:
    script = json.loads(Path(sys.argv[1]).read_text())
    keep_text_out_of_logs()
    asyncio.run(_serve(build_server(build_connect(script)), Path(script["record"])))


async def _serve(server: MidtokenServer, path: Path) -> NoReturn:
    with path.open("a") as record:
        server.protocol.set_writer(_RecordingWriter(StdoutWriter(sys.stdout.buffer), record))
        protocol = cast(MidtokenProtocol, _RecordingProtocol(server, record))
        status = await serve_messages(open_descriptor(sys.stdin.fileno()), protocol, server.settle)
        await server.close_all()
    os._exit(status)


class _RecordingProtocol:
    """Records what the editor sends, and the texts after it."""

    def __init__(self, server: MidtokenServer, record: TextIO) -> None:
        self._server = server
        self._record = record
        self._texts: dict[str, str | None] = {}

    @property
    def exit_status(self) -> int | None:
        return self._server.protocol.exit_status

    def receive(self, body: bytes) -> None:
        message = json.loads(body)
        if "method" in message:
            uri = _find_uri(message.get("params"))
            _write(self._record, "ask", {"message": message, "text": self._texts.get(uri or "")})
        self._server.protocol.receive(body)
        for session in self._server.sessions.values():
            document = session.document
            try:
                text = document.text
            except OutOfStepError:
                text = None
            if document.uri not in self._texts or self._texts[document.uri] != text:
                self._texts[document.uri] = text
                _write(self._record, "text", {"uri": document.uri, "text": text})


class _RecordingWriter:
    """Records what the language server sends."""

    def __init__(self, writer: StdoutWriter, record: TextIO) -> None:
        self._writer = writer
        self._record = record

    def write(self, data: bytes) -> None:
        _write(self._record, "answer", {"message": json.loads(data.partition(b"\r\n\r\n")[2])})
        self._writer.write(data)

    def close(self) -> None:
        self._writer.close()  # type: ignore[no-untyped-call]  # pygls


def _write(record: TextIO, kind: str, values: dict[str, Any]) -> None:
    record.write(json.dumps({"kind": kind, **values}) + "\n")
    record.flush()


def _find_uri(params: Any) -> str | None:
    document = params.get("textDocument") if isinstance(params, dict) else None
    return document.get("uri") if isinstance(document, dict) else None


if __name__ == "__main__":
    main()
