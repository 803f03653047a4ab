"""The port that midtoken's clients on other machines use, in front of a server that has none of its own for them.

Whoever has a key is a tenant of the server: the key says which, never the request. Of a request, only the name of the
model and the tensors are passed on, so that nothing else of Triton's protocol can be used from other machines.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any  # grpc and tritonclient have no types

import grpc
import numpy as np
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from inference.errors import OverloadedError
from inference.protocol.arrays import CANCEL, METRICS, error_to_response, to_array
from inference.protocol.completion import Priority
from inference.serving.calls import LIMIT, Channel, Metadata, Secret, add_tensors, is_lost
from inference.serving.key_file import KeyFile
from inference.serving.loopback import listen

_SERVICE, _CALL = "inference.GRPCInferenceService", "ModelStreamInfer"
_TENANT, _PRIORITY = "tenant", "priority"
_NOT_FROM_USERS = (_TENANT, METRICS)  # inputs; an operator reads metrics at a port of its own
_END_S = 1.0  # for the last bytes of answers
_NO_KEY = "the key is missing or wrong; midtoken takes it from the file of --server-key"
_OPTIONS = (
    LIMIT,
    ("grpc.so_reuseport", 0),  # no other process may listen there, too
    # Whether a client is still there is asked each 30 s, and answered if the client asks.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients can take at most."""

    num_streams: int = 64  # of one user at once
    num_streams_of_connection: int = 8  # more wait in the client, where they delay nobody
    num_connections: int = 512  # of the 1,024 files that a process may usually open
    handshake_ms: int = 10_000


class PublicPort:
    """A gRPC server that passes requests on. Before `lead_to` it answers that there is no server yet."""

    def __init__(self, keys: KeyFile | None, limits: Limits) -> None:
        """Use `open`."""
        self._keys, self._max_streams = keys, limits.num_streams
        self._channel: Channel | None = None
        self._metadata: Metadata = ()
        self._num_streams = Counter[str]()  # by tenant
        limited = (
            ("grpc.max_concurrent_streams", limits.num_streams_of_connection),
            ("grpc.max_allowed_incoming_connections", limits.num_connections),
            ("grpc.server_handshake_timeout_ms", limits.handshake_ms),
        )
        self._grpc = grpc.aio.server(options=(*_OPTIONS, *limited))
        handler = grpc.stream_stream_rpc_method_handler(self._answer)  # of bytes
        self._grpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {_CALL: handler}),))
        self.number = 0  # of the port

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        address: str,
        port: int,
        keys: KeyFile | None,
        certificate: bytes | None,
        limits: Limits = Limits(),
    ) -> "AsyncIterator[PublicPort]":
        """Listens inside the block; on a free port for 0. Raises LaunchError.

        `keys`: None, if every client may enter. `certificate`: a private key and its certificates in PEM; None: no TLS.
        """
        found = cls(keys, limits)
        with listen(port, address.strip("[]")) as free:  # gRPC does not say why it cannot listen
            place = f"{address}:{free.getsockname()[1]}"
        if certificate is None:
            found.number = found._grpc.add_insecure_port(place)
        else:
            credentials = grpc.ssl_server_credentials([(certificate, certificate)])
            found.number = found._grpc.add_secure_port(place, credentials)
        await found._grpc.start()
        try:
            yield found
        finally:
            await found._grpc.stop(_END_S)
            if found._channel is not None:
                await found._channel.close()

    def lead_to(self, url: str) -> None:
        """Passes requests on to the server at this URL, the `url` argument of Client, and to those that replace it."""
        secret = Secret.read(url)
        self._channel = Channel(url if secret is None else secret.address, None, secret is not None)
        self._metadata = () if secret is None else secret.begin("")

    async def _answer(self, messages: Any, context: Any) -> AsyncIterator[bytes]:
        """Answers the one request of a stream."""
        tenant = await self._admit(context)
        with self._count(tenant) as is_one_too_many:
            if is_one_too_many:
                error = OverloadedError(f"{self._max_streams} requests of this user are running already")
                yield service_pb2.ModelStreamInferResponse(
                    error_message=error_to_response(error)[0]
                ).SerializeToString()
                return
            async with aclosing(self._pass_on(messages, tenant, context)) as answers:
                async for answer in answers:
                    yield answer

    async def _admit(self, context: Any) -> str | None:
        """Returns the tenant; None if there are no keys, and the request says it. Ends the stream of all others."""
        if self._keys is None:
            return None
        given = dict(context.invocation_metadata()).get("authorization", "")
        tenant = self._keys.find_tenant(given if isinstance(given, str) else "")
        if tenant is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, _NO_KEY)
        return tenant

    @contextlib.contextmanager
    def _count(self, tenant: str | None) -> Iterator[bool]:
        """Counts a stream inside the block. Yields whether the tenant has too many."""
        if tenant is None:
            yield False
            return
        self._num_streams[tenant] += 1
        try:
            yield self._num_streams[tenant] > self._max_streams
        finally:
            self._num_streams[tenant] -= 1
            self._num_streams += Counter()  # forgets those with none

    async def _pass_on(self, messages: Any, tenant: str | None, context: Any) -> AsyncGenerator[bytes, None]:
        if self._channel is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is starting")
            return
        call = self._channel.grpc.stream_stream(f"/{_SERVICE}/{_CALL}")(metadata=self._metadata)
        sending, has_ended = asyncio.ensure_future(_send(messages, tenant, call)), False
        try:
            while (answer := await call.read()) is not grpc.aio.EOF:
                yield answer
            has_ended = True
            await sending
        except (DecodeError, ValueError) as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except grpc.RpcError as error:
            has_ended = True
            code, details = error.code(), error.details()
            if is_lost(error):  # its details are about a socket here
                code, details = grpc.StatusCode.UNAVAILABLE, "the server has ended, or is being started again"
            await context.abort(code, details)
        finally:
            sending.cancel()
            if not has_ended:  # the client has gone
                call.cancel()


async def _send(messages: Any, tenant: str | None, call: Any) -> None:
    """Sends the request of a stream, and what cancels it. Raises DecodeError or ValueError for another message."""
    is_first = True
    with contextlib.suppress(grpc.RpcError, grpc.aio.InternalError, asyncio.InvalidStateError):  # reading says why
        try:
            async for message in messages:
                await call.write(_rewrite(message, tenant, is_first))
                is_first = False
        finally:
            await call.done_writing()


def _rewrite(message: bytes, tenant: str | None, is_first: bool) -> bytes:
    """Returns the request with this tenant instead of its own. Raises DecodeError or ValueError."""
    given = service_pb2.ModelInferRequest.FromString(message)
    if not is_first and all(tensor.name != CANCEL for tensor in given.inputs):
        raise ValueError("a stream has one request, and what cancels it")
    if len(given.inputs) != len(given.raw_input_contents):
        raise ValueError("each input needs its raw_input_contents")
    request = service_pb2.ModelInferRequest(model_name=given.model_name, id=given.id)
    for tensor, content in zip(given.inputs, given.raw_input_contents, strict=True):
        is_probe = tensor.name == _PRIORITY and content.endswith(Priority.PROBE.encode())  # which nobody counts
        if tenant is None or (tensor.name not in _NOT_FROM_USERS and not is_probe):
            request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            request.raw_input_contents.append(content)
    if tenant is not None:
        add_tensors(request.inputs, request.raw_input_contents, {_TENANT: to_array((tenant,), np.object_)})
    result: bytes = request.SerializeToString()
    return result
