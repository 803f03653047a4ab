"""Run the language server on stdin and stdout. Editors start it.

Without `--server`, it uses the completion server that all editors of the user share, and starts it if necessary.
"""

import argparse
import sys

from lsp_server.stdio import serve_stdio
from midtoken.connection import Connection, add_connection_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    add_connection_arguments(parser)
    # Some LSP clients pass it. stdio is the only transport.
    parser.add_argument("--stdio", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Serves one editor until it disconnects. Only LSP messages are written to standard output."""
    return serve_stdio(lambda: Connection.open(options, _log))


def _log(line: str) -> None:
    print(f"midtoken: {line}", file=sys.stderr, flush=True)
