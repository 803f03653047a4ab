"""Serve a local page with an editor that draws what healing does at the cursor.

Only this machine can reach the page, and only with the address that is printed.
"""

import argparse
import asyncio
from functools import partial
from pathlib import Path

from inference.platforms import ADDRESS, listen, run_until_signal
from midtoken.commands.lsp import build_language_server
from midtoken.connection import open_connection
from midtoken.installed import find_playground_page, require_packages
from midtoken.server_arguments import add_connection_arguments, may_be_remote, number_from


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument(
        "--port", type=number_from(0, 65_535), default=0, help="the port of the page (default: any free one)"
    )
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Serves the page until it is interrupted. Raises UsageError, ModelError, LaunchError or ServerError."""
    require_packages("playground", "the playground needs")
    run_until_signal(_serve(options, find_playground_page()))
    return 0


async def _serve(options: argparse.Namespace, page: Path) -> None:
    from midtoken.playground import make_path, start_app  # here, because aiohttp is optional

    with listen(options.port) as listener:
        path = make_path()
        async with open_connection(options) as connection:
            build_server = partial(build_language_server, options)
            app = await start_app(path, page, connection, build_server, listener, may_be_remote(options))
            try:
                print(
                    f"The playground is at\n\n  http://{ADDRESS}:{listener.getsockname()[1]}{path}\n\nCtrl-C ends it.",
                    flush=True,
                )
                await asyncio.Event().wait()
            finally:
                await app.cleanup()
