"""Run a completion server on this machine until it is interrupted.

The server is restarted when it fails. It ends when this process ends.
"""

import argparse
import asyncio
import faulthandler
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from inference.config import EngineConfig
from inference.model_folder import find_tokenizer_file
from inference.serving.embedded import EmbeddedServer, restart_process
from inference.serving.launcher import MAX_STALL_S, RestartPolicy, ServerOptions, TritonServer, keep_running
from inference.serving.loopback import ADDRESS, is_loopback
from inference.serving.process_keeper import HAS_KEEPER, keep_process
from inference.serving.public_port import PublicPort
from inference.serving.readiness import Readiness
from inference.serving.shared_server import Registration, ServerEntry
from midtoken.access import Access
from midtoken.cli import run_until_signal
from midtoken.connection import Connection
from midtoken.endpoint import Endpoint
from midtoken.installed import require_packages
from midtoken.models import fetch_model
from midtoken.server import ServerAddress, ServerArguments
from midtoken.server_arguments import UsageError, add_server_arguments, may_be_remote, number_from

Restart = Callable[[], Awaitable[TritonServer]]

_DEFAULT_POLICY = RestartPolicy()
_PORTS = {"HTTP": 8000, "gRPC": 8001}
_OPERATOR_PORT = 8002


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    add_server_arguments(parser)
    for service, port in _PORTS.items():
        parser.add_argument(
            f"--{service.lower()}-port",
            type=number_from(0, 65_535),
            metavar="PORT",
            help=f"{service} port of Triton; 0 is any free one (default: {port})",
        )
    parser.add_argument(
        "--metrics-port",
        metavar="[ADDRESS:]PORT",
        help=f"answer /health, /ready and /metrics at this port, for operators (default: {_OPERATOR_PORT})",
    )
    parser.add_argument(
        "--openai",
        metavar="[ADDRESS:]PORT",
        help="also answer editors that speak as to OpenAI, llama-server or Ollama, at this port",
    )
    parser.add_argument(
        "--listen",
        metavar="[ADDRESS:]PORT",
        help="also answer midtoken's clients (--server) at this gRPC port, which other machines may reach",
    )
    parser.add_argument(
        "--keys",
        type=Path,
        metavar="FILE",
        help="admit only users with a key, of which this file has a line with the name and the key, to the ports of "
        "--listen and --openai and, at an address that is not loopback, to /metrics",
    )
    parser.add_argument(
        "--tls",
        type=Path,
        metavar="FILE",
        help="use TLS for these ports, with the private key and certificates in this PEM file",
    )
    parser.add_argument(
        "--confidence",
        type=_read_share,
        metavar="X",
        help="end the text of --openai where it gets less likely than this, from 0 to 1 (default: 0, send all of it)",
    )
    parser.add_argument(
        "--no-ports", action="store_true", help="open no ports but those that are named; your own editors need none"
    )
    parser.add_argument(
        "--drain",
        type=number_from(0, 600),
        default=0,
        metavar="SECONDS",
        help="go on for so long when a signal ends it, while /ready tells gateways to send nothing new (default: 0)",
    )
    parser.add_argument(
        "--until-idle", type=float, metavar="SECONDS", help="exit when no client has been connected for this time"
    )
    parser.add_argument("--entry", type=Path, help=argparse.SUPPRESS)  # the folder in which the client looks for it
    parser.add_argument(  # this argument and the next are for tests
        "--probe-interval", type=float, default=_DEFAULT_POLICY.probe_interval_s, help=argparse.SUPPRESS
    )
    parser.add_argument("--max-stall", type=float, default=MAX_STALL_S, help=argparse.SUPPRESS)


@dataclass(frozen=True, slots=True)
class _HeldPorts:
    """What stays open while a server is started again."""

    access: Access
    front: Endpoint | None
    operator: Endpoint | None


def run(options: argparse.Namespace) -> int:
    """Serves until a signal arrives or the server has been idle. Raises LaunchError."""
    run_until_signal(fetch_model(options.model, lambda text, percentage: _say(f"{text} ({percentage} %)")))
    arguments, owner = ServerArguments.from_options(options), os.getpid()
    obstacle = arguments.obstacle_to_triton
    ports = _find_ports(options, obstacle)
    entry = arguments.entry if options.entry is None else ServerEntry(options.entry)
    with ExitStack() as stack:
        held = _hold_ports(stack, options)

        def serve() -> int:
            server = replace(arguments.server_options, max_stall_s=options.max_stall, owner=owner)
            run_until_signal(_serve(options, server, obstacle, entry, held, ports))
            return 0

        return keep_process(serve, _say) if HAS_KEEPER and obstacle is not None else serve()


def _hold_ports(stack: ExitStack, options: argparse.Namespace) -> _HeldPorts:
    """Opens them. Raises UsageError or LaunchError."""
    access = Access.from_options(options, os.environ, _say)
    if options.listen is not None:
        access.find_place(options.listen, "--listen")
    front, operator = _open_front_endpoint(options, access), _open_operator_endpoint(options, access)
    for endpoint in filter(None, (front, operator)):
        stack.enter_context(endpoint.listener)
    return _HeldPorts(access, front, operator)


async def _serve(
    options: argparse.Namespace,
    server: ServerOptions,
    obstacle: str | None,
    entry: ServerEntry,
    held: _HeldPorts,
    ports: Sequence[int],
) -> None:
    """`obstacle`: why there is no Triton; None if there is one. `ports`: of Triton."""
    registration = await entry.register()
    if registration is None and options.until_idle is not None:
        return _say("another process already serves this model")
    readiness = Readiness()
    async with AsyncExitStack() as stack:
        if registration is not None:
            stack.callback(registration.close)
        public = await _open_public(stack, options, held.access)
        shown = "Serving your editors; Ctrl-C ends it."
        if held.operator is not None:
            await _open_operator_port(stack, held.operator, server if obstacle is None else None, readiness)
        if obstacle is not None:
            _say(f"serving without Triton, and so without its HTTP port: {obstacle}")
        elif ports:
            from inference.serving.ports import open_ports  # here, because aiohttp takes 15 MB

            shown = _describe(*await stack.enter_async_context(open_ports(ports, server, readiness)))
        running: TritonServer | EmbeddedServer
        if obstacle is None:
            restart: Restart = partial(TritonServer.start, server, os.environ, _say)
            running = await restart()
        else:
            running, restart = await EmbeddedServer.start(server, _say), restart_process
            stack.callback(asyncio.ensure_future(_end_if_stuck(options.max_stall)).cancel)
        if public is not None:
            public.lead_to(running.url)
        if held.front is not None:
            await _open_front(stack, held.front, running.url, options, server.model)
        _say(shown)
        readiness.url = running.url
        await _run(running, restart, registration, options, readiness.end)


def _open_operator_endpoint(options: argparse.Namespace, access: Access) -> Endpoint | None:
    """Raises UsageError or LaunchError."""
    if options.metrics_port is None and options.no_ports:
        return None
    place = options.metrics_port or str(_OPERATOR_PORT)
    is_here = is_loopback(access.find_place(place, "--metrics-port")[0].strip("[]"))  # whose programs need no key
    return Endpoint.open(place, "--metrics-port", Access(None, None) if is_here else access)


async def _open_operator_port(
    stack: AsyncExitStack, endpoint: Endpoint, triton: ServerOptions | None, readiness: Readiness
) -> None:
    from inference.serving.operator_port import open_operator_port  # here, because aiohttp takes 15 MB

    port = open_operator_port(endpoint.listener, readiness, triton, endpoint.find_refusal, endpoint.tls)
    await stack.enter_async_context(port)
    _say(f"Operators find /health, /ready and /metrics at {endpoint.url}")


def _open_front_endpoint(options: argparse.Namespace, access: Access) -> Endpoint | None:
    if options.openai is not None:
        require_packages("playground", "--openai needs")
        return Endpoint.open(options.openai, "--openai", access)
    if options.confidence is not None:
        raise UsageError("--confidence is about the port of --openai")
    if not (options.listen or options.metrics_port) and (options.keys or options.tls):
        raise UsageError("--keys and --tls are about the ports of --listen, --openai and --metrics-port")
    return None


async def _open_public(stack: AsyncExitStack, options: argparse.Namespace, access: Access) -> PublicPort | None:
    if options.listen is None:
        return None
    address, port = access.find_place(options.listen, "--listen")
    pem = None if access.certificate is None else access.certificate.pem
    public = await stack.enter_async_context(PublicPort.open(address, port, access.keys, pem))
    _say(f"Clients reach it with --server {'grpcs://' if pem else ''}{address}:{public.number}")
    return public


async def _open_front(
    stack: AsyncExitStack, endpoint: Endpoint, url: str, options: argparse.Namespace, config: EngineConfig
) -> None:
    from midtoken.front.app import FrontOptions, open_front  # here, because aiohttp takes 15 MB

    connection = Connection(ServerAddress((url,), None), None)
    stack.push_async_callback(connection.close)
    served = FrontOptions(
        Path(options.model or "default").name,
        may_be_remote(options),
        options.confidence or 0.0,
        find_tokenizer_file(config.model_dir),
    )
    await stack.enter_async_context(open_front(endpoint, connection, served))
    _say(f"Other editors find it at {endpoint.url}")


def _read_share(text: str) -> float:
    with suppress(ValueError):
        if 0 <= float(text) <= 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, not {text!r}")


def _find_ports(options: argparse.Namespace, obstacle: str | None) -> list[int]:
    """The ports to open. Raises UsageError if some were named that only Triton has."""
    named = {service: getattr(options, f"{service.lower()}_port") for service in _PORTS}
    for service, port in named.items():
        if port is not None and obstacle is not None:
            raise UsageError(f"--{service.lower()}-port is a port of Triton, which is not used: {obstacle}")
    if options.no_ports or obstacle is not None:
        return []
    return [_PORTS[service] if port is None else port for service, port in named.items()]


async def _run(
    server: TritonServer | EmbeddedServer,
    restart: Restart,
    registration: Registration | None,
    options: argparse.Namespace,
    on_end: Callable[[], None],
) -> None:
    """Returns when the server has been idle for long enough. `on_end` is called before its streams are.

    Raises LaunchError if it cannot be started again.
    """
    policy = RestartPolicy(options.probe_interval)
    watched = [asyncio.ensure_future(keep_running(server, restart, _say, policy))]
    try:
        if registration is not None:
            registration.publish(server.url)
            if options.until_idle is not None:
                watched.append(asyncio.ensure_future(registration.withdraw_when_idle(options.until_idle)))
        done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()  # raises its error, if it has one
    finally:
        on_end()
        await asyncio.sleep(options.drain)
        for each in watched:
            each.cancel()
        await asyncio.wait(watched)
        _say("the server has ended")


async def _end_if_stuck(limit_s: float) -> NoReturn:
    """Ends this process when nothing can run in it for so long; its parent or an editor starts another."""
    while True:
        faulthandler.dump_traceback_later(limit_s, exit=True)
        await asyncio.sleep(limit_s / 4)


def _describe(http: int, grpc: int) -> str:
    return f"""
Serving completions on {ADDRESS}; Ctrl-C ends it.
  HTTP     http://{ADDRESS}:{http}
  gRPC     {ADDRESS}:{grpc}
Try:
  curl -s http://{ADDRESS}:{http}/v2/models/completion/generate_stream \\
    -H 'Content-Type: application/json' \\
    -d '{{"prefix": "class Node:\\n    pass\\n\\nreturn Nod"}}'
"""


def _say(line: str) -> None:
    print(line, flush=True)
