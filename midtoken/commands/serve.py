"""Run a completion server on this machine until it is interrupted.

The server is restarted when it fails. It ends when this process ends.
"""

import argparse
import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass, replace
from typing import Self

from inference.serving.endpoint import ADDRESS, Endpoint, find_free_endpoint, reserve_endpoint
from inference.serving.launcher import MAX_STALL_S, ServerOptions, TritonServer
from inference.serving.shared_server import Registration, ServerEntry
from inference.serving.supervisor import RestartPolicy, keep_running
from midtoken.server import ServerArguments
from midtoken.server_arguments import add_server_arguments

_DEFAULT_POLICY = RestartPolicy()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    add_server_arguments(parser)
    parser.add_argument(
        "--http-port", type=_parse_port, metavar="PORT", default=8000, help="HTTP port (default: %(default)s)"
    )
    parser.add_argument(
        "--grpc-port", type=_parse_port, metavar="PORT", default=8001, help="gRPC port (default: %(default)s)"
    )
    parser.add_argument(
        "--metrics-port", type=_parse_port, metavar="PORT", default=8002, help="metrics port (default: %(default)s)"
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
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_serve(_Service.from_options(options)))
    return 0


@dataclass(frozen=True, slots=True)
class _Service:
    """The server to run, the entry where clients find it, and when to restart or to stop it."""

    server: ServerOptions
    entry: ServerEntry
    policy: RestartPolicy
    until_idle_s: float | None  # None: also serve without clients

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> Self:
        arguments = ServerArguments.from_options(options)
        endpoint = None if options.free_ports else Endpoint(options.http_port, options.grpc_port, options.metrics_port)
        server = replace(arguments.server_options, endpoint=endpoint, max_stall_s=options.max_stall)
        return cls(server, arguments.entry, RestartPolicy(options.probe_interval), options.until_idle)


async def _serve(service: _Service) -> None:
    _cancel_at_signals()
    registration = await service.entry.register()
    if registration is None and service.until_idle_s is not None:
        return _say("another process already serves this model")
    try:
        await _run_server(service, registration)
    finally:
        if registration is not None:
            registration.close()


def _cancel_at_signals() -> None:
    main_task = asyncio.current_task()
    assert main_task is not None, "runs inside asyncio.run"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, main_task.cancel)


async def _run_server(service: _Service, registration: Registration | None) -> None:
    endpoint = service.server.endpoint or find_free_endpoint()
    with reserve_endpoint(endpoint):
        await _run_on(replace(service, server=replace(service.server, endpoint=endpoint)), registration)


async def _run_on(service: _Service, registration: Registration | None) -> None:
    server = await TritonServer.start(service.server, os.environ, _say)
    _say(_describe(server.endpoint))
    supervision = asyncio.ensure_future(_supervise(server, service))
    try:
        if registration is not None:
            registration.publish(server.endpoint)
        await _wait_for_end(supervision, registration, service.until_idle_s)
    finally:
        supervision.cancel()
        await asyncio.wait([supervision])
        _say("the server has ended")


async def _supervise(server: TritonServer, service: _Service) -> None:
    await keep_running(server, lambda: TritonServer.start(service.server, os.environ, _say), _say, service.policy)


async def _wait_for_end(
    supervision: "asyncio.Future[None]", registration: Registration | None, until_idle_s: float | None
) -> None:
    """Returns when the server has been idle for `until_idle_s`. Raises LaunchError if it could not be restarted."""
    watched = [supervision]
    if registration is not None and until_idle_s is not None:
        watched.append(asyncio.ensure_future(registration.withdraw_when_idle(until_idle_s)))
    done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
    for each in watched[1:]:
        each.cancel()
    for each in done:
        each.result()  # raises its error, if it has one


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
