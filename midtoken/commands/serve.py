"""Run a completion server on this machine until it is interrupted.

The server is restarted when it fails. It ends when this process ends.
"""

import argparse
import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import replace

from inference.serving.launcher import MAX_STALL_S, ServerOptions, TritonServer
from inference.serving.loopback import ADDRESS
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
            type=number_from(0, 65_535),
            metavar="PORT",
            default=port,
            help=f"{service} port, or 0 for any that is free (default: %(default)s)",
        )
    parser.add_argument("--no-ports", action="store_true", help="open none of these; your own editors need none")
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
    registration = await arguments.entry.register()
    if registration is None and options.until_idle is not None:
        return _say("another process already serves this model")
    server = replace(arguments.server_options, max_stall_s=options.max_stall)
    async with AsyncExitStack() as stack:
        if registration is not None:
            stack.callback(registration.close)
        shown = "Serving your editors; Ctrl-C ends it."
        if not options.no_ports:
            from inference.serving.ports import open_ports  # here, because aiohttp takes 15 MB

            ports = options.http_port, options.grpc_port, options.metrics_port
            shown = _describe(*await stack.enter_async_context(open_ports(ports, server)))
        await _run(server, shown, RestartPolicy(options.probe_interval), registration, options.until_idle)


async def _run(
    options: ServerOptions,
    shown: str,
    policy: RestartPolicy,
    registration: Registration | None,
    until_idle_s: float | None,
) -> None:
    """Returns when the server has been idle for `until_idle_s`. Raises LaunchError if it cannot be started again."""
    server = await _start(options)
    _say(shown)
    watched = [asyncio.ensure_future(keep_running(server, lambda: _start(options), _say, policy))]
    try:
        if registration is not None:
            registration.publish(options.url)
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


def _describe(http: int, grpc: int, metrics: int) -> str:
    return f"""
Serving completions on {ADDRESS}; Ctrl-C ends it.
  HTTP     http://{ADDRESS}:{http}
  gRPC     {ADDRESS}:{grpc}
  metrics  http://{ADDRESS}:{metrics}/metrics
Try:
  curl -s http://{ADDRESS}:{http}/v2/models/completion/generate_stream \\
    -H 'Content-Type: application/json' \\
    -d '{{"prefix": "class Node:\\n    pass\\n\\nreturn Nod"}}'
"""


def _say(line: str) -> None:
    print(line, flush=True)
