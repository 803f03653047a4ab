"""Run a completion server on this machine until it is interrupted.

It is in this process, or tritonserver takes its place. In this process it also answers HTTP, on a port of loopback.
What starts it starts it again after a failure: systemd, Docker, or you.
"""

import argparse
import asyncio
import os
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from inference.client.local_host import HostPlace
from inference.platforms import ADDRESS, listen, run_until_signal
from midtoken.connection import Connection, ServerAddress, ServerArguments
from midtoken.installed import require_packages
from midtoken.models import fetch_model
from midtoken.server_arguments import UsageError, add_connection_arguments, may_be_remote, number_from

_EMBEDDED, _TRITON = "embedded", "triton"
_PORT, _TRITON_GRPC_PORT = 8012, 8001
_say = partial(print, flush=True)
_SERVING = f"""
Serving completions; Ctrl-C ends it.
  HTTP     http://{ADDRESS}:{{port}}
  gRPC     {{address.url}}
Try:
  curl -s http://{ADDRESS}:{{port}}/v2/models/completion/generate_stream \\
    -H 'Content-Type: application/json' \\
    -d '{{{{"prefix": "class Node:\\n    pass\\n\\nreturn Nod"}}}}'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    add_connection_arguments(parser)
    parser.add_argument(
        "--runtime",
        choices=(_EMBEDDED, _TRITON),
        default=_EMBEDDED,
        help="what runs the model: this process, or tritonserver, which takes its place (default: %(default)s)",
    )
    parser.add_argument(
        "--triton-binary", type=Path, metavar="PATH", help="use this tritonserver instead of the installed one"
    )
    parser.add_argument(
        "--port",
        type=number_from(0, 65_535),
        metavar="PORT",
        help=f"the port of HTTP on {ADDRESS}; 0 is any free one (default: {_PORT}; for Triton's own HTTP: none)",
    )
    parser.add_argument(
        "--grpc-port",
        type=number_from(1, 65_535),
        metavar="PORT",
        help=f"the port of gRPC on {ADDRESS} (default: none; Triton: {_TRITON_GRPC_PORT})",
    )
    parser.add_argument(
        "--confidence",
        type=float,
        default=0.0,
        metavar="X",
        help="end texts over HTTP where they get less likely than this, from 0 to 1 (default: 0, send all of them)",
    )
    parser.add_argument(
        "--drain",
        type=number_from(0, 600),
        default=0,
        metavar="SECONDS",
        help="go on for so long when a signal ends it, while /ready tells gateways to send nothing new (default: 0)",
    )


def run(options: argparse.Namespace) -> int:
    """Serves until a signal arrives. Raises UsageError, ModelError or LaunchError."""
    require_packages("local", "a completion server cannot run here without")
    if options.triton_binary is not None and options.runtime != _TRITON:
        raise UsageError("--triton-binary needs --runtime triton")
    if not 0 <= options.confidence <= 1:
        raise UsageError(f"--confidence must be a number from 0 to 1, not {options.confidence}")
    if options.runtime == _TRITON:
        _run_triton(options)
    run_until_signal(_serve(options))
    return 0


def _run_triton(options: argparse.Namespace) -> None:
    from inference.hosting.triton import become_triton  # here, because it is not what most people run

    if options.server is not None:
        raise UsageError("--server names a server that runs, and --runtime triton starts one: omit one of them")
    asyncio.run(fetch_model(options.model, _show_download))
    found = ServerArguments.from_options(options)
    grpc_port = _TRITON_GRPC_PORT if options.grpc_port is None else options.grpc_port
    _say(
        f"becoming tritonserver, with gRPC at {ADDRESS}:{grpc_port}; who shares /dev/shm with it can read its requests"
    )
    folder, ports = found.state_dir / _TRITON, (grpc_port, options.port)
    become_triton(found.config, found.model_repository, folder, options.triton_binary, ports)


async def _serve(options: argparse.Namespace) -> None:
    from midtoken.http.app import App  # here, because aiohttp takes 15 MB

    async with AsyncExitStack() as stack:
        listener = stack.enter_context(listen(_PORT if options.port is None else options.port))
        address, model_dir = ServerAddress.from_options(options), None
        if address is None:
            await fetch_model(options.model, _show_download)
            found = await asyncio.to_thread(ServerArguments.from_options, options)
            address, model_dir = await _start_host(stack, found, options.grpc_port), found.config.model_dir
        connection = Connection(address)
        stack.push_async_callback(connection.close)
        name = Path(options.model or "default").name
        app = App(connection, name, model_dir, is_remote=may_be_remote(options), confidence=options.confidence)
        await stack.enter_async_context(app.serve(listener))
        _say(_SERVING.format(port=listener.getsockname()[1], address=address))
        try:
            await asyncio.Event().wait()
        finally:
            app.is_ending = True
            await asyncio.sleep(options.drain)


async def _start_host(stack: AsyncExitStack, found: ServerArguments, grpc_port: int | None) -> ServerAddress:
    """Starts it where editors of this user find it, unless they have one already. Raises ModelError or LaunchError."""
    from inference.hosting.host import Host  # here, because `--server` needs none

    place = found.place
    if not stack.enter_context(place.claim()):
        place = HostPlace(place.socket.with_stem(f"{place.socket.stem}-{os.getpid()}"))
    _say(f"loading the model {found.config.model_dir}")
    host = await Host.start(found.config, found.model_repository, place.socket, grpc_port)
    stack.push_async_callback(host.stop)
    stack.callback(place.socket.unlink, missing_ok=True)
    return ServerAddress(place.url)


def _show_download(text: str, percentage: int) -> None:
    _say(f"{text} ({percentage} %)")
