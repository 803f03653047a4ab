"""Runs the real language server on stdio with a scripted model, and records what it and the editor say to each other.

`python -m tests.support.recorded_server FILE`: FILE is that of `tests.support.scripted_server`, with "record": PATH.

A line of JSON is written to PATH for each of:

- `text`: the text of a document, as the language server has it after a message of the editor changed it
- `ask`: a request or notification of the editor, with the text of its document at that time
- `answer`: a message of the language server
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from lsp_server.features import build_server
from lsp_server.server import MidtokenServer
from lsp_server.stdio import serve_stdio
from tests.support.scripted_server import build_connect


def main() -> NoReturn:
    script = json.loads(Path(sys.argv[1]).read_text())
    server = build_server(build_connect(script))
    _record(server, Path(script["record"]))
    serve_stdio(server)


def _record(server: MidtokenServer, path: Path) -> None:
    record = path.open("a", buffering=1)
    texts: dict[str, str | None] = {}
    receive, set_writer = server.protocol.receive, server.protocol.set_writer

    def write(kind: str, **values: Any) -> None:
        record.write(json.dumps({"kind": kind, **values}) + "\n")

    def receive_recorded(body: bytes) -> None:
        message = json.loads(body)
        if "method" in message:
            document = (message.get("params") or {}).get("textDocument", {})
            write("ask", message=message, text=texts.get(document.get("uri")))
        receive(body)
        for uri, session in server.sessions.items():
            text = "".join(session.document.lines) if session.document.problem is None else None
            if uri not in texts or texts[uri] != text:
                texts[uri] = text
                write("text", uri=uri, text=text)

    def set_recorded(writer: Any) -> None:
        def write_recorded(data: bytes) -> None:
            write("answer", message=json.loads(data.partition(b"\r\n\r\n")[2]))
            writer.write(data)

        set_writer(SimpleNamespace(write=write_recorded, close=writer.close))

    server.protocol.receive = receive_recorded  # type: ignore[method-assign]
    server.protocol.set_writer = set_recorded  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    main()
