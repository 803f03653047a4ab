"""Serve a local page with an editor that draws what healing does at the cursor.

Only this machine can reach the page, and only with the address that is printed.
"""

import argparse
import asyncio
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from inference.serving.loopback import listen
from inference.serving.private_files import open_private
from midtoken.cli import run_until_signal
from midtoken.commands.lsp import build_language_server
from midtoken.connection import Connection, show_waiting
from midtoken.installed import find_playground_page, require_packages
from midtoken.models import fetch_model
from midtoken.server import ServerAddress, ServerArguments
from midtoken.server_arguments import add_connection_arguments, may_be_remote, number_from


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument(
        "--port", type=number_from(0, 65_535), default=0, help="the port of the page (default: any free one)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Serves the page until it is interrupted.

    Raises UsageError or LaunchError.
    """
    require_packages("playground", "the playground needs")
    if ServerAddress.from_options(options) is None:  # these raise what every page would be told otherwise
        with show_waiting() as on_download:
            asyncio.run(fetch_model(options.model, on_download))
        ServerArguments.from_options(options)
    run_until_signal(_serve(options, find_playground_page()))
    return 0


async def _serve(options: argparse.Namespace, page: Path) -> None:
    from midtoken.playground.app import Gate, start_app  # here, because aiohttp is optional
    from midtoken.playground.asker import Link

    listener = listen(options.port)
    gate = Gate(listener.getsockname()[1])
    link = Link(lambda: Connection.open(options))
    build_server, is_shown = partial(build_language_server, options), asyncio.Event()
    app = await start_app(gate, page, link, build_server, listener, is_shown.set, may_be_remote(options))
    try:
        print(f"The playground is at\n\n  {gate.url}\n\nCtrl-C ends it.", flush=True)
        if options.open:
            with write_redirect(gate.url) as address:
                await asyncio.to_thread(webbrowser.open, address)
                await is_shown.wait()
        await asyncio.Event().wait()
    finally:
        await app.cleanup()


@contextmanager
def write_redirect(url: str) -> Iterator[str]:
    """Yields the address of a page that leads to `url`. It is a file, which only this user can read.

    The arguments of a browser are not: every local user sees them in /proc.
    """
    with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:  # closed to others, too
        path = Path(folder, "playground.html")
        with open_private(path, "w") as file:
            file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={url}"><a href="{url}">{url}</a>\n')
        yield path.as_uri()
