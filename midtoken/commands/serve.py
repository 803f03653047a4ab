"""Run a completion server on this machine until it is interrupted.

The server restarts when it stops answering, and it ends with this process.
"""

import argparse
import asyncio
import contextlib
import os
import signal
from dataclasses import replace

from inference.serving.launcher import ADDRESS, Endpoint, TritonServer
from inference.serving.shared_server import Registration
from inference.serving.supervisor import Pace, keep_running
from midtoken.arguments.server import ServerArguments, add_server_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The server's and its ports'."""
    add_server_arguments(parser)
    parser.add_argument("--http-port", type=_parse_port, default=8000, help="on 127.0.0.1 (default: %(default)s)")
    parser.add_argument("--grpc-port", type=_parse_port, default=8001, help="on 127.0.0.1 (default: %(default)s)")
    parser.add_argument("--metrics-port", type=_parse_port, default=8002, help="on 127.0.0.1 (default: %(default)s)")
    parser.add_argument("--free-ports", action="store_true", help="take any free ports instead")
    parser.add_argument("--probe-interval", type=float, default=Pace().probe_interval_s, help=argparse.SUPPRESS)
    parser.add_argument(
        "--until-idle", type=float, metavar="SECONDS", help="end when no editor has used the server for so long"
    )


def run(options: argparse.Namespace) -> int:
    """Serves until a signal comes or the server is idle. Raises LaunchError."""
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_serve(options))
    return 0


async def _serve(options: argparse.Namespace) -> None:
    main_task = asyncio.current_task()
    assert main_task is not None, "runs inside asyncio.run"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, main_task.cancel)
    arguments = ServerArguments.from_options(options)
    registration = await arguments.entry.register()
    if registration is None and options.until_idle is not None:
        return _say("another process already serves this model")
    try:
        await _run_server(options, arguments, registration)
    finally:
        if registration is not None:
            registration.close()


async def _run_server(
    options: argparse.Namespace, arguments: ServerArguments, registration: Registration | None
) -> None:
    endpoint = None if options.free_ports else Endpoint(options.http_port, options.grpc_port, options.metrics_port)
    server_options = replace(arguments.server_options, endpoint=endpoint)
    server = await TritonServer.start(server_options, os.environ, _say)
    server_options = replace(server_options, endpoint=server.endpoint)
    _say(_describe(server.endpoint))
    supervision = asyncio.ensure_future(
        keep_running(
            server, lambda: TritonServer.start(server_options, os.environ, _say), _say, Pace(options.probe_interval)
        )
    )
    try:
        if registration is not None:
            registration.publish(server.endpoint)
        if registration is not None and options.until_idle is not None:
            idle = asyncio.ensure_future(registration.withdraw_when_idle(options.until_idle))
            await asyncio.wait([supervision, idle], return_when=asyncio.FIRST_COMPLETED)
            idle.cancel()
        else:
            await asyncio.wait([supervision])
        if supervision.done():
            supervision.result()  # raises what ended it
    finally:
        supervision.cancel()
        await asyncio.wait([supervision])
        _say("the server has ended")


def _parse_port(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= 65_535):
        raise argparse.ArgumentTypeError(f"a port is a number from 1 to 65535, not {text!r}")
    return int(text)


def _describe(endpoint: Endpoint) -> str:
    return f"""
Serving completions on {ADDRESS}; Ctrl-C ends it.
  HTTP     {endpoint.http_url}
  gRPC     {endpoint.grpc_url}
  metrics  {endpoint.metrics_url}
Try:
  curl -s {endpoint.http_url}/v2/models/completion/generate_stream \\
    -H 'Content-Type: application/json' \\
    -d '{{"prefix": "class Node:\\n    pass\\n\\nreturn Nod"}}'
"""


def _say(line: str) -> None:
    print(line, flush=True)
