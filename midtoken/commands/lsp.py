"""The language server on stdin and stdout, for editors to start.

With no `--server` it uses the one server that all editors of the user share, and starts it where none runs.
"""

import argparse
import sys

from lsp_server.stdio import serve_stdio
from midtoken.connection import Connection, add_connection_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    add_connection_arguments(parser)
    # Editors' generic LSP clients pass it on their own; there is no other way than stdio.
    parser.add_argument("--stdio", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Serves one editor until it ends; gives the exit status. Standard output belongs to the protocol."""
    return serve_stdio(lambda: Connection.open(options, _log))


def _log(line: str) -> None:
    print(f"midtoken: {line}", file=sys.stderr, flush=True)
