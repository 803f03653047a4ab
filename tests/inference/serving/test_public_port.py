"""The port for clients on other machines, in front of a fake server. With real ones: tests/e2e/test_public_port.py."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any  # grpc has no types, and fields of a request have many

import grpc
import numpy as np
import pytest
import trustme
from tritonclient.grpc import service_pb2, service_pb2_grpc

from inference.errors import LaunchError, OverloadedError, ServerError, ServerUnreachableError
from inference.protocol.arrays import Array, to_array
from inference.protocol.completion import CompletionChunk, CompletionRequest
from inference.protocol.completion_arrays import chunk_to_arrays
from inference.serving.calls import CHARACTERS, COMPLETION, Tls, add_tensors
from inference.serving.client import Client
from inference.serving.key_file import KeyFile
from inference.serving.public_port import Limits, PublicPort
from tests.support.access import ANN, BOB, write_keys
from tests.support.fake_triton import Answer, FakeTriton, ModelCall, build_last_chunk, run_fake_triton, say

_LIMITS = Limits()
_PART = chunk_to_arrays(CompletionChunk("1"))
_DONE = say(build_last_chunk("done"))


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile(write_keys(tmp_path), "--keys", print)


@asynccontextmanager
async def _run(
    keys: KeyFile | None, answer: Answer = _DONE, certificate: bytes | None = None, limits: Limits = _LIMITS
) -> AsyncIterator[tuple[str, FakeTriton]]:
    """The address of a port, and the server behind it."""
    opening = PublicPort.open("127.0.0.1", 0, keys, certificate, limits)
    async with run_fake_triton(answer) as fake, opening as port:
        port.lead_to(fake.url)
        yield f"127.0.0.1:{port.number}", fake


async def _complete(url: str, key: str = "", tls: Tls | None = None, **fields: Any) -> str:
    async with Client(url, tls, key=key) as client:
        return "".join([chunk.text async for chunk in client.stream(CompletionRequest("abc", **fields))])


def _find(fake: FakeTriton, name: str) -> list[str | None]:
    """This input of each request, where it has one."""
    return [call.arrays[name].item().decode() if name in call.arrays else None for call in fake.calls]


async def test_the_key_says_whose_a_request_is_and_the_request_does_not(keys: KeyFile) -> None:
    async with _run(keys) as (url, fake):
        for key, tenant in ((ANN, ""), (ANN, "bob"), (BOB, "ann")):
            assert await _complete(url, key, tenant=tenant, document="d") == "done"
    ann, again, bob = _find(fake, "tenant")
    assert ann == again != bob
    assert _find(fake, "document") == ["d"] * 3
    assert not {"ann", "bob", "", None} & {ann, bob}


async def _send(url: str, message: Any, key: str = ANN) -> Any:
    """The answers to a request as it is, or the code of gRPC's error."""
    async with grpc.aio.insecure_channel(url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        call = stub.ModelStreamInfer(iter([message]), metadata=(("authorization", f"Bearer {key}"),))
        try:
            return [answer async for answer in call]
        except grpc.RpcError as error:
            return error.code()


def _build(model_name: str = COMPLETION, **inputs: Array) -> Any:
    request = service_pb2.ModelInferRequest(model_name=model_name)
    add_tensors(request.inputs, request.raw_input_contents, inputs)
    return request


def _text(*texts: str) -> Array:
    return to_array(texts, np.object_)


async def test_no_form_of_a_request_brings_another_tenant_along(keys: KeyFile) -> None:
    twice, other, shared, typed = (_build(tenant=_text("x"), prefix=_text("a")) for _ in range(4))
    add_tensors(twice.inputs, twice.raw_input_contents, {"tenant": _text("y")})
    other.parameters["tenant"].string_param = "x"
    shared.inputs[1].parameters["shared_memory_region"].string_param = "r"
    del shared.raw_input_contents[1]
    typed.inputs[0].contents.bytes_contents.append(b"x")
    typed.ClearField("raw_input_contents")
    characters = _build(
        CHARACTERS, tenant=_text("x"), metrics=np.array([True]), priority=_text("probe"), text=_text("a")
    )
    async with _run(keys) as (url, fake):
        await _complete(url, ANN)
        answers = [await _send(url, each) for each in (twice, other, shared, typed, characters)]
    assert [isinstance(each, list) for each in answers] == [True, True, False, False, True]
    [ann, *others] = _find(fake, "tenant")
    assert others == [ann] * 3
    assert (sorted(fake.calls[-1].arrays), fake.has_parameters) == (["tenant", "text"], False)


async def _fail_to_write(_call: Any, _message: Any) -> None:
    """What gRPC does if the server has ended the call, and it is not known yet."""
    nothing = grpc.aio.Metadata()
    raise grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, nothing, nothing, "Internal error from Core")


@pytest.mark.parametrize(
    ("replaced", "by"),
    [
        (None, None),
        ("inference.serving.client.Client._check_server", lambda _, call: call.code()),  # the call ends before
        ("grpc.aio._call.StreamStreamCall.write", _fail_to_write),
    ],
)
@pytest.mark.parametrize("key", ["", ANN[:-1], "ann", "sha256:0"])
async def test_without_a_key_of_a_user_nothing_is_passed_on_and_nothing_is_told(
    keys: KeyFile, key: str, replaced: str | None, by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if replaced is not None:
        monkeypatch.setattr(replaced, by)
    async with _run(keys) as (url, fake):
        with pytest.raises(
            ServerError, match=r"\(UNAUTHENTICATED\): the key is missing or wrong; .* --server-key"
        ) as raised:
            await _complete(url, key)
    assert (fake.num_opened, ANN in str(raised.value), "ann" in str(raised.value)) == (0, False, False)


async def test_a_user_whose_line_is_removed_gets_no_more_streams_and_the_others_do(
    tmp_path: Path, keys: KeyFile
) -> None:
    async with _run(keys, _count_slowly) as (url, _), Client(url, key=BOB) as bob:
        async with aclosing(bob.stream(CompletionRequest("a"))) as running:
            await anext(running)
            write_keys(tmp_path, f"ann {ANN}\n")
            with pytest.raises(ServerError, match="UNAUTHENTICATED"):
                await _complete(url, BOB)
            assert await anext(running)  # what runs ends by itself
        async with Client(url, key=ANN) as ann:
            assert await anext(ann.stream(CompletionRequest("a")))


async def _count_slowly(_call: ModelCall) -> AsyncGenerator[Mapping[str, Array], None]:
    while True:
        yield _PART
        await asyncio.sleep(0.01)


async def test_on_loopback_a_port_without_keys_passes_on_whose_a_request_is() -> None:
    async with _run(None) as (url, fake):
        assert await _complete(url, tenant="t") == "done"
    assert _find(fake, "tenant") == ["t"]


async def test_no_other_call_of_tritons_service_is_answered(keys: KeyFile) -> None:
    async with _run(keys) as (url, fake), grpc.aio.insecure_channel(url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for call, message in (
            (stub.ModelInfer, _build(prefix=_text("a"))),
            (stub.RepositoryIndex, service_pb2.RepositoryIndexRequest()),
        ):
            with pytest.raises(grpc.RpcError) as raised:
                await call(message, metadata=(("authorization", f"Bearer {ANN}"),))
            assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert fake.num_opened == 0


async def test_a_second_request_of_a_stream_is_refused_by_name(keys: KeyFile) -> None:
    messages = [_build(prefix=_text(str(number))) for number in range(3)]
    async with _run(keys) as (url, fake), grpc.aio.insecure_channel(url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        call = stub.ModelStreamInfer(iter(messages), metadata=(("authorization", f"Bearer {ANN}"),))
        with pytest.raises(grpc.RpcError, match="a stream has one request, and what cancels it"):
            assert len([answer async for answer in call]) == 1
    assert _find(fake, "prefix") == ["0"]


async def test_a_stream_that_the_client_leaves_is_cancelled_behind_the_port(keys: KeyFile) -> None:
    async with _run(keys, _count_slowly) as (url, fake), Client(url, key=ANN) as client:
        async with aclosing(client.stream(CompletionRequest("a"))) as chunks:
            await anext(chunks)
        async with asyncio.timeout(20):
            await fake.cancelled.wait()


async def test_an_error_of_the_server_arrives_as_it_is(keys: KeyFile) -> None:
    async with _run(keys, say("overloaded: 64 requests are waiting")) as (url, _):
        with pytest.raises(OverloadedError, match=r"^64 requests are waiting$"):
            await _complete(url, ANN)


async def test_one_user_cannot_take_all_streams(keys: KeyFile) -> None:
    async with (
        _run(keys, _count_slowly, limits=Limits(num_streams=2)) as (url, _),
        Client(url, key=ANN) as ann,
        Client(url, key=BOB) as bob,
    ):
        running = [ann.stream(CompletionRequest("a")) for _ in range(2)]
        for each in running:
            await anext(each)
        with pytest.raises(OverloadedError, match=r"^2 requests of this user are running already$"):
            await anext(ann.stream(CompletionRequest("a")))
        other = bob.stream(CompletionRequest("a"))
        await anext(other)
        for each in (*running, other):
            await each.aclose()
        async with asyncio.timeout(20):
            while True:  # until the port knows that they have ended
                try:
                    async with aclosing(ann.stream(CompletionRequest("a"))) as chunks:
                        await anext(chunks)
                    break
                except OverloadedError:
                    await asyncio.sleep(0.01)


async def test_more_streams_than_a_connection_may_have_wait_in_the_client(keys: KeyFile) -> None:
    limits = Limits(num_streams=2, num_streams_of_connection=2)
    async with _run(keys, _count_slowly, limits=limits) as (url, _), Client(url, key=ANN) as ann:
        running = [ann.stream(CompletionRequest("a")) for _ in range(2)]
        for each in running:
            await anext(each)
        waiting = asyncio.ensure_future(anext(ann.stream(CompletionRequest("a"))))
        assert not (await asyncio.wait([waiting], timeout=0.2))[0]
        for each in running:
            await each.aclose()
        await waiting


async def test_while_the_server_behind_it_is_started_again_the_port_is_held_and_says_so(keys: KeyFile) -> None:
    async with PublicPort.open("127.0.0.1", 0, keys, None) as port:
        url = f"127.0.0.1:{port.number}"
        async with Client(url, key=ANN) as client:
            with pytest.raises(ServerUnreachableError, match="the server is starting"):
                await client.probe()
            async with run_fake_triton(_count_slowly) as fake:
                port.lead_to(fake.url)
                running = client.stream(CompletionRequest("a"))
                await anext(running)
                await fake.stop()
                with pytest.raises(ServerUnreachableError, match="the server has ended, or is being started again"):
                    async for _ in running:
                        pass
                async with asyncio.timeout(10):  # a hang would be longer
                    with pytest.raises(ServerUnreachableError, match="is being started again"):
                        await client.probe()
            async with run_fake_triton(_DONE, fake.url), asyncio.timeout(20):
                while True:
                    try:
                        await client.probe()
                        break
                    except ServerUnreachableError:
                        await asyncio.sleep(0.1)


async def test_running_streams_may_end_when_the_port_is_closed(keys: KeyFile) -> None:
    is_closing = asyncio.Event()

    async def answer(_call: ModelCall) -> AsyncGenerator[Mapping[str, Array], None]:
        yield _PART
        await is_closing.wait()
        yield build_last_chunk("2")

    async with run_fake_triton(answer) as fake:
        opening = PublicPort.open("127.0.0.1", 0, keys, None)
        port = await opening.__aenter__()
        port.lead_to(fake.url)
        async with Client(f"127.0.0.1:{port.number}", key=ANN) as client:
            running = client.stream(CompletionRequest("a"))
            await anext(running)
            closing = asyncio.ensure_future(opening.__aexit__(None, None, None))
            await asyncio.sleep(0.1)
            is_closing.set()
            assert (await anext(running)).is_last
            await closing


async def test_a_port_that_is_used_is_named(keys: KeyFile) -> None:
    async with _run(keys) as (url, _):
        number = int(url.rpartition(":")[2])
        with pytest.raises(LaunchError, match=f"^port {number} on 127.0.0.1 cannot be used: Address already in use"):
            async with PublicPort.open("127.0.0.1", number, keys, None):
                pass


@pytest.mark.parametrize(
    ("name", "not_after", "is_trusted", "uses_tls", "problem"),
    [
        ("other.example", None, True, True, "its certificate is for another name than the one in --server"),
        ("127.0.0.1", datetime(2020, 1, 1, tzinfo=UTC), True, True, "its certificate has expired"),
        ("127.0.0.1", None, False, True, "its certificate is not trusted; --tls-ca names the file of its authority"),
        ("127.0.0.1", None, True, False, "the connection was closed; if the server uses TLS, add --tls"),
        (None, None, True, True, "it does not use TLS"),
    ],
)
async def test_what_is_wrong_with_a_connection_is_said_and_no_text_and_no_key_are_sent(
    keys: KeyFile,
    authority: trustme.CA,
    name: str | None,
    not_after: datetime | None,
    is_trusted: bool,
    uses_tls: bool,
    problem: str,
) -> None:
    issued = name and authority.issue_cert(name, not_after=not_after).private_key_and_cert_chain_pem.bytes()
    trusted = authority if is_trusted else trustme.CA()
    tls = Tls(trusted.cert_pem.bytes()) if uses_tls else None
    async with _run(keys, certificate=issued or None) as (url, fake):
        with pytest.raises(ServerUnreachableError, match=problem):
            await _complete(url, ANN, tls)
        assert fake.num_opened == 0


async def test_strangers_take_connections_only_for_as_long_as_a_handshake_may_take(
    keys: KeyFile, authority: trustme.CA
) -> None:
    pem, tls = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes(), authority.cert_pem.bytes()
    data = (
        b"",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        bytes(10_000),
    )
    async with _run(keys, certificate=pem, limits=Limits(num_connections=5, handshake_ms=1000)) as (url, _):
        host, _, number = url.rpartition(":")
        strangers = [await asyncio.open_connection(host, int(number)) for _ in range(25)]
        for (_, writer), each in zip(strangers, 5 * data, strict=True):
            writer.write(each)
        async with asyncio.timeout(20):
            for reader, writer in strangers:  # some are told in TLS what was wrong
                with contextlib.suppress(ConnectionError):
                    await reader.read()
                writer.close()
        assert await _complete(url, ANN, Tls(tls)) == "done"


async def test_connections_beyond_the_limit_are_closed(keys: KeyFile) -> None:
    async with _run(keys, limits=Limits(num_connections=1)) as (url, fake):
        async with Client(url, key=ANN) as ann:
            await ann.probe()
            with pytest.raises(ServerUnreachableError, match="the connection was closed"):
                await _complete(url, BOB)
        async with asyncio.timeout(20):
            while True:
                try:
                    assert await _complete(url, BOB) == "done"
                    break
                except ServerUnreachableError:
                    await asyncio.sleep(0.05)
        assert len(fake.calls) == 2


async def test_a_client_that_sends_too_much_is_refused(keys: KeyFile) -> None:
    async with _run(keys) as (url, fake):
        assert await _send(url, _build(prefix=_text(2**24 * "a"))) is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(ServerError):
            await _complete(url, 100_000 * "a")
        assert await _complete(url, ANN) == "done"
    assert fake.num_opened == 1
