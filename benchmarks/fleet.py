"""Many servers as one: four midtokens behind the gateway of deploy/, and four llama-servers behind one midtoken.

    python -m benchmarks.fleet [--output PATH] [--only PART ...]

Six typists play 2,000 recorded keys in 40 documents to a single server, and then through the real HAProxy to four, with
TLS and keys. Each waits for the answer to a key, and asks again when its stream fails.

- affinity_share: the share of the keys that went to the server of most keys of their document. reuse_points_lost: of
  the context tokens that a server remembered from the key before, in percent, how many fewer than with the single
  server.
- failover_s: each server in turn is killed (SIGKILL) while it answers, and started again. The longest time from then,
  or from a later key, until a key was answered whose stream had failed. killed_streams: how many had.
- lost_requests: while one server after the other is ended (SIGTERM) and started again, requests that failed before
  their first text. cut_requests: those that failed after it.
- wrong_texts: in all of that, texts that are not those of the single server; of a stream that failed, what had come.
  The model computes in float32: with weights of eight bits, what a pass forwards together changes the numbers a little.
- reconnect_s: the gateway is killed, and started again, under 500 clients, each with a connection of its own, which
  ask until they are answered.
- gateway_ms_p50: what the gateway adds to the answer to a key, the median of differences in turn. gateway_cpu_ms: what
  a request costs its processor.

These end with `_embedded` and `_triton`, the two runtimes, and with `_engines`, where four llama-servers stand behind
deploy/engines.cfg; without an ending, they are the worst of the two runtimes. Servers, gateway and typists share two
cores, so no time here is that of a fleet.

`forecast_…` are figures of `benchmarks.measures.fleet_forecast`, which docs/scaling.md explains.
"""

import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar  # Any: what is sent to a coroutine

import psutil

from benchmarks.baselines.servers import run_llama_server
from benchmarks.measures.fleet_forecast import plan
from benchmarks.measures.fleet_typists import (
    PlayedKey,
    count_wrong,
    find_affinity,
    find_document,
    find_failover_s,
    find_reuse,
    play,
    record_typists,
)
from benchmarks.measures.report import Figures, Target, Value, run_parts
from inference.errors import MidtokenError
from inference.protocol.completion import CompletionChunk, CompletionRequest
from inference.serving.calls import Tls
from inference.serving.client import Client
from inference.serving.loopback import ADDRESS
from midtoken.installed import find_default_model
from tests.support.gateway import DEPLOY, Certificates, Gateway, HaProxy, run_gateway
from tests.support.servers import EMBEDDED, TRITON, find_processes, find_real, pick_free_endpoint, wait_until

_Found = TypeVar("_Found")

_NUM_SERVERS, _NUM_CLIENTS, _NUM_PAIRS = 4, 500, 150
_START_S, _WARM_S, _DOWN_S, _LOG_S, _SETTLE_S, _DRAIN_S = 180.0, 3.0, 2.0, 30.0, 3.0, 5
_RUNTIMES = {"embedded": EMBEDDED, "triton": TRITON}
_WORST = {"affinity_share": min, "reuse_points_lost": max, "failover_s": max, "wrong_texts": max, "lost_requests": max,
          "reconnect_s": max, "gateway_ms_p50": max}  # fmt: skip
_SLOTS = ("-c", "32768", "-np", "16")  # for those of the documents that are typed at once
_NUM_ENGINE_KEYS = 240  # of the 2,000: with two cores, a llama-server takes seconds for a text

_TARGETS = (
    Target("affinity_share", "keys at the home of their document", at_least=0.99),
    Target("affinity_share_engines", "the same, with llama-servers", at_least=0.99),
    Target("reuse_points_lost", "reuse lost to a single server, points", at_most=2),
    Target("reuse_points_lost_engines", "the same, with llama-servers", at_most=2),
    Target("failover_s", "until answers are back after a server was killed, s", at_most=5),
    Target("failover_s_engines", "the same, with llama-servers", at_most=5),
    Target("wrong_texts", "texts that differ from a single server's", at_most=0),
    Target("wrong_texts_engines", "the same, with llama-servers", at_most=0),
    Target("lost_requests", "requests lost in a rolling restart that had not begun", at_most=0),
    Target("reconnect_s", "until 500 clients are back after the gateway was killed, s", at_most=30),
)


def main() -> None:
    found: dict[str, Value] = {}
    parts: dict[str, Callable[[], Figures]] = {name: partial(_prove, name, found) for name in _RUNTIMES}
    run_parts("fleet", {**parts, "engines": _prove_engines, "planning": plan}, _TARGETS)


def _prove(name: str, found: dict[str, Value]) -> Figures:
    with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
        figures = asyncio.run(_measure(Path(folder), _RUNTIMES[name]))
    found |= {f"{key}_{name}": value for key, value in figures.items()}
    for key, choose in _WORST.items():
        found[key] = choose(
            float(found[each] or 0) for each in found if each in {f"{key}_{name}" for name in _RUNTIMES}
        )
    return found


@dataclass(slots=True)
class Member:
    """A midtoken, which can be ended and started again at the same port."""

    folder: Path
    arguments: Sequence[str]
    port: int
    operator_port: int
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Returns when it has made a first completion."""
        self.folder.mkdir(exist_ok=True)
        log = self.folder / "serve.txt"
        with log.open("w") as output:
            ports = (f"--listen={ADDRESS}:{self.port}", f"--metrics-port={self.operator_port}", f"--drain={_DRAIN_S}")
            command = find_real().command(self.folder, *self.arguments, *ports)
            self.process = process = subprocess.Popen(command, stdout=output, stderr=output)
        wait_until(lambda: "Serving" in log.read_text() or process.poll() is not None, _START_S)
        assert process.poll() is None, log.read_text()

    def kill(self) -> None:
        """Ends all of its processes at once."""
        for pid in find_processes(self.folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait(60)

    def end(self) -> None:
        """Asks it to end, and waits for that."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(60)


@dataclass(slots=True)
class Fleet:
    """Servers, the gateway in front of them, and a client for each typist."""

    members: Sequence[Member]
    gateway: Gateway
    certificates: Certificates
    keys: Sequence[str]  # of users
    clients: dict[str, Client] = field(default_factory=dict)
    latest: tuple[str, str] = ("", "")  # the document whose answer has begun last

    async def stream(self, request: CompletionRequest, trace_id: str) -> AsyncGenerator[CompletionChunk, None]:
        """Through the gateway. The id is in the gateway's log."""
        user = request.tenant
        if user not in self.clients:
            self.clients[user] = self.connect(self.gateway.grpc_port, self.keys[len(self.clients)])
        client = self.clients[user]
        traced = replace(request, traceparent=f"00-{trace_id}-{trace_id[:16]}-01")
        async for chunk in client._send(traced):
            self.latest = find_document(request)
            yield chunk

    def connect(self, port: int, key: str) -> Client:
        """Returns a client of the gateway, or of a server."""
        return Client(f"{ADDRESS}:{port}", Tls(self.certificates.authority.read_bytes()), key=key)

    async def find_servers(self, keys: Sequence[PlayedKey]) -> dict[str, str]:
        """Which server each key went to, by the id of its trace. A line of the log follows the end of a stream."""
        servers, ids = dict[str, str](), {key.trace_id for key in keys}
        async with asyncio.timeout(_LOG_S):
            while not ids <= servers.keys():
                await asyncio.sleep(0.1)
                servers = {str(line["trace"]): str(line["server"]) for line in _read_lines(self.gateway.haproxy)}
        return servers


def _read_lines(haproxy: HaProxy) -> Iterator[dict[str, object]]:
    return (json.loads(line) for line in haproxy.log.splitlines() if line.startswith("{"))


@asynccontextmanager
async def _run_fleet(folder: Path, arguments: Sequence[str], number: int) -> AsyncIterator[Fleet]:
    """Runs so many servers behind a gateway inside the block."""
    folder.mkdir()
    certificates, keys = Certificates.create(folder), [f"key-{user:03}-of-the-benchmark" for user in range(20)]
    key_file = folder / "keys"
    key_file.touch(0o600)
    key_file.write_text("".join(f"user{number} {key}\n" for number, key in enumerate(keys)))
    arguments = [*arguments, f"--tls={certificates.server}", f"--keys={key_file}"]
    members = [_plan_member(folder / f"server-{each}", arguments) for each in range(number)]
    lines = [
        f"    server s{index} {ADDRESS}:{each.port} alpn h2 check port {each.operator_port} no-check-ssl"
        for index, each in enumerate(members)
    ]
    servers = "\n".join(["backend grpc from servers", *lines, "backend http from servers\n"])
    async with AsyncExitStack() as stack:
        for member in members:
            stack.callback(member.kill)
            await asyncio.to_thread(member.start)
        settings = {"MIDTOKEN_KEY_REQUESTS": "100000"}
        fleet = Fleet(
            members, stack.enter_context(run_gateway(folder, servers, certificates, settings)), certificates, keys
        )
        await _wait_for_servers(fleet, number)
        yield fleet
        for client in fleet.clients.values():
            await client.close()


def _plan_member(folder: Path, arguments: Sequence[str]) -> Member:
    ports = pick_free_endpoint()
    return Member(folder, [*arguments, "--no-ports"], ports.grpc_port, ports.metrics_port)


async def _wait_for_servers(fleet: Fleet, number: int) -> None:
    async with asyncio.timeout(60):
        while fleet.gateway.haproxy.count_used("grpc") != number:
            await asyncio.sleep(0.1)


async def _measure(folder: Path, runtime: str) -> Figures:
    scripts, arguments = record_typists(), [runtime, "--dtype=float32"]
    async with _run_fleet(folder / "one", arguments, 1) as fleet:
        alone = await play(scripts, fleet.stream)
        added_ms = await _measure_gateway(fleet, scripts[0])
    async with _run_fleet(folder / "four", arguments, _NUM_SERVERS) as fleet:
        haproxy = psutil.Process(fleet.gateway.haproxy.pid)
        before = sum(haproxy.cpu_times()[:2])
        calm = await play(scripts, fleet.stream)
        cpu_ms = 1e3 * (sum(haproxy.cpu_times()[:2]) - before) / len(calm)
        servers = await fleet.find_servers(calm)
        homes = {key.document: servers[key.trace_id] for key in calm}
        killed, killed_at = await _play_beside(scripts, fleet, _kill_in_turn(fleet, homes))
        rolled, _ = await _play_beside(scripts, fleet, _restart_in_turn(fleet))
        reconnect_s = await _measure_reconnection(fleet)
    _tell("killed", killed)
    _tell("rolled", rolled)
    played = [*calm, *killed, *rolled]
    expected = alone * (len(played) // len(alone))
    for key, right in zip(played, expected, strict=True):
        if key.text != right.text or not all(map(right.text.startswith, key.cut)):
            print(f"{key.document}: {key.text!r}, cut {key.cut}, instead of {right.text!r}")
    return {
        "affinity_share": find_affinity(calm, servers),
        "reuse_points_lost": find_reuse(alone) - find_reuse(calm),
        "reuse": find_reuse(calm),
        "failover_s": find_failover_s(killed, killed_at),
        "killed_streams": sum(len(key.cut) for key in killed),
        "lost_requests": sum(not text for key in rolled for text in key.cut),
        "cut_requests": sum(bool(text) for key in rolled for text in key.cut),
        "wrong_texts": count_wrong(played, expected),
        "reconnect_s": reconnect_s,
        "gateway_ms_p50": added_ms,
        "gateway_cpu_ms": cpu_ms,
    }


async def _play_beside(
    scripts: Sequence[Sequence[CompletionRequest]], fleet: Fleet, work: Coroutine[Any, Any, _Found]
) -> tuple[list[PlayedKey], _Found]:
    """Plays until the work is done, at least once. Returns what was played, and what the work found."""
    task = asyncio.create_task(work)
    played = await play(scripts, fleet.stream)
    while not task.done():
        played += await play(scripts, fleet.stream)
    return played, await task


def _tell(what: str, keys: Sequence[PlayedKey]) -> None:
    """Prints what went wrong, and how often."""
    for error, number in Counter(re.sub(r"\d{4,}", "…", each) for key in keys for each in key.errors).items():
        print(f"{what}: {number} × {error}")


async def _measure_gateway(fleet: Fleet, script: Sequence[CompletionRequest]) -> float:
    """What the gateway adds to an answer, in milliseconds; every answer is one that the server has made before."""
    ports = (fleet.members[0].port, fleet.gateway.grpc_port)
    clients, differences = [fleet.connect(port, fleet.keys[-1]) for port in ports], list[float]()
    for number, request in enumerate(script[:_NUM_PAIRS]):
        times = dict[int, float]()
        for each in (0, 1) if number % 2 else (1, 0):
            await _complete(clients[each], request)
            started_at = time.perf_counter()
            await _complete(clients[each], request)
            times[each] = time.perf_counter() - started_at
        differences.append(times[1] - times[0])
    for client in clients:
        await client.close()
    return 1e3 * statistics.median(differences)


async def _complete(client: Client, request: CompletionRequest) -> str:
    return "".join([chunk.text async for chunk in client._send(request)])


async def _kill_in_turn(fleet: Fleet, homes: dict[tuple[str, str], str]) -> list[float]:
    """Kills each server when an answer of it has begun, and starts it again. Returns when."""
    killed_at = []
    for number, member in enumerate(fleet.members):
        await asyncio.sleep(_WARM_S)
        while homes.get(fleet.latest) != f"grpc/s{number}":
            await asyncio.sleep(0)
        killed_at.append(time.perf_counter())
        member.kill()
        await asyncio.sleep(_DOWN_S)
        await asyncio.to_thread(member.start)
        await _wait_for_servers(fleet, _NUM_SERVERS)
    return killed_at


async def _restart_in_turn(fleet: Fleet) -> None:
    for member in fleet.members:
        await asyncio.to_thread(member.end)
        await asyncio.to_thread(member.start)
        await _wait_for_servers(fleet, _NUM_SERVERS)


async def _measure_reconnection(fleet: Fleet) -> float:
    """How long after the gateway was killed all clients have an answer again."""
    clients = [
        fleet.connect(fleet.gateway.grpc_port, fleet.keys[each % len(fleet.keys)]) for each in range(_NUM_CLIENTS)
    ]
    await asyncio.gather(*map(_insist, clients))
    fleet.gateway.haproxy.kill()
    killed_at = time.perf_counter()
    waiting = [asyncio.create_task(_insist(client)) for client in clients]
    await asyncio.to_thread(fleet.gateway.haproxy.start)
    await asyncio.gather(*waiting)
    elapsed_s = time.perf_counter() - killed_at
    await asyncio.gather(*(client.close() for client in clients))
    return elapsed_s


async def _insist(client: Client) -> None:
    """Asks until there is an answer."""
    while True:
        with suppress(MidtokenError):
            await _complete(client, CompletionRequest("x = ", max_tokens=1))
            return
        await asyncio.sleep(0.2)


def _prove_engines() -> Figures:
    with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
        return {f"{key}_engines": value for key, value in asyncio.run(_measure_engines(Path(folder))).items()}


async def _measure_engines(folder: Path) -> Figures:
    scripts = [script[: _NUM_ENGINE_KEYS // 6] for script in record_typists()]
    with _run_engines(folder / "a", 1) as [url]:
        async with _run_fleet(folder / "one", [EMBEDDED, f"--engine={url}"], 1) as fleet:
            alone = await play(scripts, fleet.stream)
    with _run_engines(folder / "b", _NUM_SERVERS) as urls, _run_before_engines(folder, urls) as haproxy:
        url = f"http://{haproxy.settings['MIDTOKEN_ENGINES_PORT']}"
        async with _run_fleet(folder / "four", [EMBEDDED, f"--engine={url}"], 1) as fleet:
            calm = await play(scripts, fleet.stream)
            await asyncio.sleep(_SETTLE_S)
            homes = defaultdict[object, Counter[object]](Counter)
            for line in _read_lines(haproxy):
                homes[line["session"]][line["server"]] += 1
            homes.pop("-", None)  # what is asked for no document
            killing = asyncio.create_task(_kill_engine(fleet, urls[0]))
            killed = await play(scripts, fleet.stream)
            killed_at = await killing
    _tell("killed engine", killed)
    return {
        "affinity_share": sum(max(each.values()) for each in homes.values()) / sum(map(Counter.total, homes.values())),
        "reuse_points_lost": find_reuse(alone) - find_reuse(calm),
        "reuse": find_reuse(calm),
        "failover_s": find_failover_s(killed, [killed_at]),
        "killed_streams": sum(len(key.cut) for key in killed),
        "wrong_texts": count_wrong([*calm, *killed], [*alone, *alone]),
    }


@contextmanager
def _run_engines(folder: Path, number: int) -> Iterator[list[str]]:
    with ExitStack() as stack:
        folders = [folder / str(each) for each in range(number)]
        for each in folders:
            each.mkdir(parents=True)
        yield [stack.enter_context(run_llama_server(find_default_model(), each, *_SLOTS)) for each in folders]


@contextmanager
def _run_before_engines(folder: Path, urls: Sequence[str]) -> Iterator[HaProxy]:
    """Runs HAProxy with deploy/engines.cfg, which has other servers, and logs the sessions."""
    text, _, _ = (DEPLOY / "engines.cfg").read_text().partition("    server one")
    text = text.replace("'{", '\'{"session":"%[var(txn.session)]",')
    text = text.replace(
        "default_backend", "http-request set-var(txn.session) req.hdr(x-session-id)\n    default_backend"
    )
    lines = [f"    server s{number} {url.rpartition('/')[2]}\n" for number, url in enumerate(urls)]
    (folder / "engines.cfg").write_text(text + "".join(lines))
    ports = pick_free_endpoint()
    places = {"MIDTOKEN_ENGINES_PORT": ports.http_port, "MIDTOKEN_ENGINES_OPERATOR": ports.metrics_port}
    settings = {name: f"{ADDRESS}:{port}" for name, port in places.items()}
    haproxy = HaProxy([folder / "engines.cfg"], settings, folder / "engines.log", ports.metrics_port)
    with ExitStack() as stack:
        stack.callback(haproxy.kill)
        haproxy.start()
        yield haproxy


async def _kill_engine(fleet: Fleet, url: str) -> float:
    await asyncio.sleep(_WARM_S)
    before = fleet.latest
    while fleet.latest == before:  # an answer has begun, perhaps of this one
        await asyncio.sleep(0)
    for pid in find_processes(Path(f"--port {url.rpartition(':')[2]}")):
        os.kill(pid, signal.SIGKILL)
    return time.perf_counter()


if __name__ == "__main__":
    main()
