"""Changed requests to the HTTP application, and to the gRPC service of a host.

Each gets one answer in time. None is a defect's (status 500), an error names the field that was changed, no text of a
request is logged, and the server goes on.
"""

import asyncio
import contextlib
import io
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from inference.client.channel import COMPLETION, LIMIT, add_tensors
from inference.hosting.host import _Service
from inference.platforms import ADDRESS
from inference.protocol.arrays import request_to_arrays
from inference.protocol.completion import CompletionRequest
from tests.support.dictated import run_dictated
from tests.support.front import run_front
from tests.support.front_clients import EDITORS, read_sent
from tests.support.mutations import change_bytes, change_json
from tests.support.reliability import Reliability, describe

_NUM_SHORT, _NUM_FULL = 400, 60_000
_NUM_GRPC_SHORT, _NUM_GRPC_FULL = 300, 30_000
_HANG_S = 1.0
_CANARY = "zqcanaryzq"  # in each text
_DEFECT = "failed on this request"


@dataclass(slots=True)
class Requests:
    """What was wrong with the answers, and how long the longest took."""

    problems: list[str] = field(default_factory=list)
    longest_s: float = 0.0
    num_refused: int = 0

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Notes the time of the block."""
        began_s = time.perf_counter()
        yield
        self.longest_s = max(self.longest_s, time.perf_counter() - began_s)

    def note_http(self, status: int, text: str, changed: tuple[str, ...], sent: object) -> None:
        """Notes an answer to a request. `changed`: the names of the one field that was changed."""
        self.num_refused += status >= 400
        if (status >= 500 and status != 503) or _DEFECT in text:
            self.problems.append(f"status {status}: {text[:300]} to {str(sent)[:300]}")
        if status == 400 and changed and not any(name in text for name in (*changed, "prompt")):  # may be missing, too
            self.problems.append(f"the error does not name {changed}: {text[:300]} to {str(sent)[:300]}")

    def note_log(self, log: str) -> None:
        """Notes a text in a log."""
        if _CANARY in log:
            self.problems.append(f"a text is in the log: {log[max(log.find(_CANARY) - 500, 0) :][:1000]}")


def _plant(value: Any) -> Any:
    """The same JSON with a word in each text that is long enough to be source text."""
    if isinstance(value, dict):
        return {name: _plant(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plant(each) for each in value]
    return f"{_CANARY} = 1\n{value}" if isinstance(value, str) and len(value) > 30 and "<" not in value else value


@contextlib.contextmanager
def _watch_log(found: Requests) -> Iterator[None]:
    """What is logged or written to stderr inside the block is looked through."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    logging.getLogger().addHandler(handler)
    try:
        with contextlib.redirect_stderr(written):
            yield
    finally:
        logging.getLogger().removeHandler(handler)
        found.note_log(written.getvalue())


async def ask_front(num: int, seed: int) -> Requests:
    """Sends changed requests of editors to the port for them."""
    found, random = Requests(), Random(seed)
    editors = [(sent["path"], sent["headers"], _plant(sent["body"])) for sent in map(read_sent, EDITORS)]
    with _watch_log(found):
        async with run_front() as front:
            front.model.answer = "ms"
            for _ in range(num):
                path, headers, body = random.choice(editors)
                sent, changed = change_json(body, random) if random.random() < 0.8 else (body, ())
                data = json.dumps(sent).encode()
                if random.random() < 0.1:
                    data, changed = change_bytes(data, random), ()
                if random.random() < 0.05:
                    odd = {random.choice((*headers, "X-Session-ID", "Host")): random.choice(("é", "x" * 9000))}
                    headers, changed = headers | odd, ()
                with found.timed():
                    status, text = await front.post(path, data, headers)
                found.note_http(status, text, changed, data)
            status, _ = await front.post("/infill", {"prompt": "x"})
            if status != 200:
                found.problems.append("the port answers no more")
            front.model.streams.clear()
    return found


def _change_message(message: Any, random: Random) -> str:
    """Changes a message. Returns the name of the field that is wrong now; empty if that cannot be told."""
    at = random.randrange(len(message.inputs))
    tensor = message.inputs[at]
    name: str = tensor.name
    match random.randrange(7):
        case 0:
            tensor.name = random.choice(("x", "", "prefiX", "é"))
            return ""
        case 1:
            tensor.datatype = random.choice(("INT32", "FP32", "BYTES", "BOOL", "FP16", "x", ""))
        case 2:
            tensor.shape[:] = random.choice(([0], [-1], [2, 2], [], [1, 1], [2**40]))
        case 3:
            message.raw_input_contents[at] = random.choice((b"", b"\xff" * 7, b"\0" * 8, random.randbytes(20)))
        case 4:
            del message.raw_input_contents[at]
            return ""
        case 5:
            message.model_name = random.choice(("", "x", "characters"))
            return ""
        case _:
            message.raw_input_contents[at] = change_bytes(message.raw_input_contents[at], random)
    return name


def _draw_message(random: Random) -> Any:
    request = CompletionRequest(
        f"{_CANARY} = 1\nuse ",
        random.choice(("", "\nx = 1")),
        max_tokens=4,
        stop=random.choice(((), ("a", "b"))),
        num_candidates=random.choice((1, 2)),
        temperature=random.choice((0.0, 0.7)),
        deadline_ms=random.choice((None, 900)),
        tenant=_CANARY,
        path=random.choice(("", "a.py")),
    )
    message = service_pb2.ModelInferRequest(model_name=COMPLETION)
    add_tensors(message.inputs, message.raw_input_contents, request_to_arrays(request))
    return message


async def ask_grpc(num: int, seed: int) -> Requests:
    """Sends changed messages to the service of a host."""
    found, random, server = Requests(), Random(seed), grpc.aio.server(options=(LIMIT,))
    with _watch_log(found), run_dictated(lambda _: b"ms\nmore") as service:
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Service({COMPLETION: service.adapter}), server)
        url = f"{ADDRESS}:{server.add_insecure_port(f'{ADDRESS}:0')}"
        await server.start()
        async with grpc.aio.insecure_channel(url) as channel:
            ask = channel.stream_stream(
                "/inference.GRPCInferenceService/ModelStreamInfer",
                response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
            )
            for _ in range(num):
                message = _draw_message(random)
                changed = _change_message(message, random) if random.random() < 0.8 else ""
                data = message.SerializeToString()
                if random.random() < 0.1:
                    data, changed = change_bytes(data, random), ""
                with found.timed():
                    answers = await _read_answers(ask(iter([data])))
                _note_answers(found, answers, changed, message)
            last = await _read_answers(ask(iter([_draw_message(random).SerializeToString()])))
            if not last or last[-1].error_message:
                found.problems.append("the service answers no more")
        await server.stop(0)
    return found


async def _read_answers(call: Any) -> list[Any] | None:
    """The answers to one message; None if it is no message."""
    try:
        async with asyncio.timeout(20):
            return [each async for each in call]
    except grpc.aio.AioRpcError:
        return None


def _note_answers(found: Requests, answers: list[Any] | None, changed: str, message: Any) -> None:
    if answers is None:  # gRPC cannot read it
        if changed:
            found.problems.append(f"no answer to {str(message)[:500]}")
        return
    errors = [each.error_message for each in answers if each.error_message]
    ends = [each for each in answers if any(output.name == "stats" for output in each.infer_response.outputs)]
    found.num_refused += len(errors)
    if len(errors) + len(ends) != 1 or not (answers[-1].error_message or answers[-1] is ends[0]):
        found.problems.append(f"{len(errors)} errors and {len(ends)} ends to {str(message)[:500]}")
    if errors and (_DEFECT in errors[0] or changed not in errors[0]):
        found.problems.append(f"{errors[0][:300]} does not name {changed}: {str(message)[:500]}")


def _report(name: str, num: int, found: Requests, reliability: Reliability) -> None:
    figures: dict[str, float] = {"requests": num, "wrong": len(found.problems), "refused": found.num_refused}
    reliability.record(
        name, {f"{name}_{each}": value for each, value in figures.items()} | {f"{name}_longest_s": found.longest_s}
    )
    assert not found.problems, describe(found.problems)
    assert num / 10 < found.num_refused < num
    assert not reliability.is_full or found.longest_s < _HANG_S


async def test_changed_requests_of_editors_are_answered_or_refused_by_name(reliability: Reliability) -> None:
    num = reliability.choose(_NUM_SHORT, _NUM_FULL)
    _report("http", num, await ask_front(num, 1), reliability)


async def test_changed_messages_to_the_service_of_a_host_are_answered_or_refused_by_name(
    reliability: Reliability,
) -> None:
    num = reliability.choose(_NUM_GRPC_SHORT, _NUM_GRPC_FULL)
    _report("grpc", num, await ask_grpc(num, 1), reliability)
