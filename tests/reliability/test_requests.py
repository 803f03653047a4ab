"""Changed requests to the HTTP application, and to the gRPC service of a host.

Each gets one answer in time. None is a defect's (status 500), an error names the field that was changed, no text of a
request is logged, and the server goes on.
"""

import asyncio
import json
import time
from random import Random
from typing import Any

import grpc
import pytest
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
from tests.support.reliability import Found, Reliability

_NUM_SHORT, _NUM_FULL = 400, 60_000
_NUM_GRPC_SHORT, _NUM_GRPC_FULL = 300, 30_000
_HANG_S = 1.0
_CANARY = "zqcanaryzq"  # in each text
_DEFECT = "failed on this request"


def _note(found: Found, error: str, names: tuple[str, ...], sent: object) -> None:
    """Notes an answer; `error` is empty if it is none. `names`: one of them must be in the error."""
    found.num += bool(error)
    if _DEFECT in error or (error and names and not any(name in error for name in names)):
        found.problems.append(f"{error[:300]} does not name {names}: {str(sent)[:500]}")


def _plant(value: Any) -> Any:
    """The same JSON with a word in each text that is long enough to be source text."""
    if isinstance(value, dict):
        return {name: _plant(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plant(each) for each in value]
    return f"{_CANARY} = 1\n{value}" if isinstance(value, str) and len(value) > 30 and "<" not in value else value


async def test_changed_requests_of_editors_are_answered_or_refused_by_name(
    reliability: Reliability, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    num, found, random = reliability.choose(_NUM_SHORT, _NUM_FULL), Found(), Random(1)
    editors = [(sent["path"], sent["headers"], _plant(sent["body"])) for sent in map(read_sent, EDITORS)]
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
            began_s = time.perf_counter()
            status, text = await front.post(path, data, headers)
            found.longest_s = max(found.longest_s, time.perf_counter() - began_s)
            is_named = status == 400 and changed
            _note(found, text * (status >= 400), (*changed, "prompt") if is_named else (), data)  # which may be missing
            if status >= 500 and status != 503:
                found.problems.append(f"status {status}: {text[:300]} to {str(data)[:300]}")
        assert (await front.post("/infill", {"prompt": "x"}))[0] == 200, "the port answers no more"
        front.model.streams.clear()
    _report("http", num, found, reliability, caplog.text + capsys.readouterr().err)


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


async def test_changed_messages_to_the_service_of_a_host_are_answered_or_refused_by_name(
    reliability: Reliability, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    num, found, random = reliability.choose(_NUM_GRPC_SHORT, _NUM_GRPC_FULL), Found(), Random(1)
    server = grpc.aio.server(options=(LIMIT,))
    with run_dictated(lambda _: b"ms\nmore") as service:
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Service({COMPLETION: service.hosted}), server)
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
                began_s = time.perf_counter()
                answers = await _read_answers(ask(iter([data])))
                found.longest_s = max(found.longest_s, time.perf_counter() - began_s)
                if answers is not None or changed:
                    _note_answers(found, answers or [], changed, message)
            _note_answers(
                found, await _read_answers(ask(iter([_draw_message(random).SerializeToString()]))) or [], "", ""
            )
        await server.stop(0)
    _report("grpc", num, found, reliability, caplog.text + capsys.readouterr().err)


async def _read_answers(call: Any) -> list[Any] | None:
    """The answers to one message; None if it is no message."""
    try:
        async with asyncio.timeout(20):
            return [each async for each in call]
    except grpc.aio.AioRpcError:
        return None


def _note_answers(found: Found, answers: list[Any], changed: str, message: object) -> None:
    """Notes answers, of which exactly the last is an error or the end of a completion."""
    errors = [each.error_message for each in answers if each.error_message]
    ends = [each for each in answers if any(output.name == "stats" for output in each.infer_response.outputs)]
    _note(found, "".join(errors), (changed,), message)
    if len(errors) + len(ends) != 1 or not (answers[-1].error_message or answers[-1] is ends[0]):
        found.problems.append(f"{len(errors)} errors and {len(ends)} ends to {str(message)[:500]}")


def _report(name: str, num: int, found: Found, reliability: Reliability, log: str) -> None:
    if _CANARY in log:
        found.problems.append(f"a text is in the log: {log[max(log.find(_CANARY) - 500, 0) :][:1000]}")
    figures = {"requests": num, "wrong": len(found.problems), "refused": found.num, "longest_s": found.longest_s}
    reliability.record(name, {f"{name}_{each}": value for each, value in figures.items()}, found.problems)
    assert num / 10 < found.num < num
    assert not reliability.is_full or found.longest_s < _HANG_S
