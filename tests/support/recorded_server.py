"""Runs the real language server on stdio with a scripted model, and records the text of the document.

`python -m tests.support.recorded_server FILE`: FILE is that of `tests.support.scripted_server`, with "record": PATH.
After each message of the editor that changed it, the text is written to PATH, as a line of JSON.
"""

import json
import sys
from pathlib import Path
from typing import NoReturn

from lsp_server.server import MidtokenServer
from lsp_server.stdio import serve_stdio
from tests.support.scripted_server import build_connect


def main() -> NoReturn:
    script = json.loads(Path(sys.argv[1]).read_text())
    server = MidtokenServer(build_connect(script))
    _record(server, Path(script["record"]))
    serve_stdio(server)


def _record(server: MidtokenServer, path: Path) -> None:
    record, last = path.open("a", buffering=1), ""
    receive = server.protocol.receive

    def receive_recorded(body: bytes) -> None:
        nonlocal last
        receive(body)
        for document in server.assistant.documents.by_uri.values():
            line = json.dumps("".join(document.text.lines) if document.text.problem is None else None)
            if line != last:
                last = line
                record.write(line + "\n")

    server.protocol.receive = receive_recorded  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
