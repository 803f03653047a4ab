"""The language server as a process with LSP on stdin and stdout, which an editor starts."""

import asyncio
import sys
from threading import Event

from pygls.io_ import StdoutWriter, run_async

from lsp_server.backend import BackendFactory
from lsp_server.features import build_server
from lsp_server.pygls_overrides import keep_text_out_of_logs
from lsp_server.server import MidtokenServer
from lsp_server.stdin_reader import StdinReader


def serve_stdio(connect: BackendFactory) -> int:
    """Serves LSP on stdin and stdout until the editor sends `exit` or closes stdin. Returns the exit status.

    For `connect` see `build_server`.
    """
    keep_text_out_of_logs()
    return asyncio.run(_serve(build_server(connect)))


async def _serve(server: MidtokenServer) -> int:
    server.protocol.set_writer(StdoutWriter(sys.stdout.buffer))
    reader = StdinReader(sys.stdin.fileno(), server.settle)
    try:
        await run_async(Event(), reader, server.protocol, error_handler=server.report_server_error)
    except SystemExit as leaving:  # pygls raises it for `exit`: 0 after `shutdown`, else 1
        return int(leaving.code or 0)
    finally:
        await server.close_all()
    return 1  # stdin was closed without `exit`
