"""Run a completion server on this machine until it is interrupted.

The server is restarted when it fails. It ends when this process ends.
"""

import argparse
import asyncio
import os
from dataclasses import replace

from inference.serving.endpoint import ADDRESS, Endpoint, find_free_endpoint, reserve_endpoint
from inference.serving.launcher import MAX_STALL_S, ServerOptions, TritonServer
from inference.serving.shared_server import Registration
from inference.serving.supervisor import RestartPolicy, keep_running
from midtoken.cli import run_until_signal
from midtoken.server import ServerArguments
from midtoken.server_arguments import add_server_arguments, number_from

_DEFAULT_POLICY = RestartPolicy()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    add_server_arguments(parser)
    for port, service in ((8000, "HTTP"), (8001, "gRPC"), (8002, "metrics")):
        parser.add_argument(
            f"--{service.lower()}-port",
            type=number_from(1, 65_535),
            metavar="PORT",
            default=port,
            help=f"{service} port (default: %(default)s)",
        )
    parser.add_argument("--free-ports", action="store_true", help="use any free ports instead of these three")
    parser.add_argument(
        "--until-idle", type=float, metavar="SECONDS", help="exit when no client has been connected for this time"
    )
    parser.add_argument(  # this argument and the next are for tests
        "--probe-interval", type=float, default=_DEFAULT_POLICY.probe_interval_s, help=argparse.SUPPRESS
    )
    parser.add_argument("--max-stall", type=float, default=MAX_STALL_S, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Serves until a signal arrives or the server has been idle. Raises LaunchError."""
    run_until_signal(_serve(options))
    return 0


async def _serve(options: argparse.Namespace) -> None:
    arguments = ServerArguments.from_options(options)
    ports = options.http_port, options.grpc_port, options.metrics_port
    endpoint = find_free_endpoint() if options.free_ports else Endpoint(*ports)
    server = replace(arguments.server_options, endpoint=endpoint, max_stall_s=options.max_stall)
    registration = await arguments.entry.register()
    if registration is None and options.until_idle is not None:
        return _say("another process already serves this model")
    try:
        with reserve_endpoint(endpoint):
            await _run(server, RestartPolicy(options.probe_interval), registration, options.until_idle)
    finally:
        if registration is not None:
            registration.close()


async def _run(
    options: ServerOptions, policy: RestartPolicy, registration: Registration | None, until_idle_s: float | None
) -> None:
    """Returns when the server has been idle for `until_idle_s`. Raises LaunchError if it cannot be started again."""
    server = await _start(options)
    _say(_describe(server.endpoint))
    watched = [asyncio.ensure_future(keep_running(server, lambda: _start(options), _say, policy))]
    try:
        if registration is not None:
            registration.publish(server.endpoint)
            if until_idle_s is not None:
                watched.append(asyncio.ensure_future(registration.withdraw_when_idle(until_idle_s)))
        done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()  # raises its error, if it has one
    finally:
        for each in watched:
            each.cancel()
        await asyncio.wait(watched)
        _say("the server has ended")


async def _start(options: ServerOptions) -> TritonServer:
    return await TritonServer.start(options, os.environ, _say)


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
