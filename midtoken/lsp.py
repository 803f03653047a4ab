"""`midtoken lsp`: the language server on stdin and stdout."""

import argparse

from inference.client import CompletionClient
from inference.errors import LaunchError
from lsp_server.server import serve_stdio

HELP = "the language server, for editors to start"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.add_argument("--server", metavar="HOST:PORT", help="use the completion server that runs there (gRPC)")
    # Editors' generic LSP clients pass it on their own; there is no other way than stdio.
    parser.add_argument("--stdio", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Serves one editor until it ends; gives the exit status. Standard output belongs to the protocol."""
    return serve_stdio(lambda: _connect(options))


async def _connect(options: argparse.Namespace) -> CompletionClient:
    """A client whose server has answered. Raises LaunchError or ServerError."""
    if options.server is None:
        raise LaunchError("no completion server: start one with `midtoken serve` and name it with --server HOST:PORT")
    client = CompletionClient(options.server)
    try:
        await client.probe()
    except BaseException:
        await client.close()
        raise
    return client
