"""The language server as a process with LSP on stdin and stdout, which an editor starts."""

import asyncio
import gc
import os
import sys
from typing import NoReturn

from pygls.io_ import StdoutWriter

from inference.platforms import call_at_signals
from lsp_server.editor_process import wait_for_end
from lsp_server.messages import open_descriptor, serve_messages
from lsp_server.protocol import keep_text_out_of_logs
from lsp_server.server import MidtokenServer


def serve_stdio(server: MidtokenServer) -> NoReturn:
    """Serves LSP on stdin and stdout until the editor sends `exit`, closes stdin or dies, or SIGINT or SIGTERM.

    Then it ends the process. The exit status is 0 only for `exit` after `shutdown`.
    """
    keep_text_out_of_logs()
    asyncio.run(_serve(server))


async def _serve(server: MidtokenServer) -> NoReturn:
    sys.setswitchinterval(0.001)  # a thread that parses rules must not hold up a key for 5 ms at each of its steps
    gc.freeze()  # what the imports have made stays; to look at it again and again would delay keys by 10 ms
    server.protocol.set_writer(StdoutWriter(sys.stdout.buffer))
    reader = open_descriptor(sys.stdin.fileno())
    serving = asyncio.create_task(serve_messages(reader, server.protocol, server.settle))
    watching = asyncio.create_task(wait_for_end(lambda: server.editor_id))
    call_at_signals(watching.cancel, "SIGINT", "SIGTERM")
    await asyncio.wait({serving, watching}, return_when=asyncio.FIRST_COMPLETED)
    watching.cancel()
    serving.cancel()
    await server.close_all()
    status = serving.result() if serving.done() and not serving.cancelled() else 1
    os._exit(status)  # Python would take 0.2 s more to tear everything down, and editors kill a server that is slow
