"""The async client of a server: completions, and answers of the character-level model.

Each request has a gRPC stream of its own, on which it can be cancelled. All share one channel, so make one client for
each process and event loop.
Unary calls are never used for requests, because the bundled server crashes when one is cancelled
(triton-inference-server issue 7368).
"""

import asyncio
import math
import secrets
from asyncio import timeout
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, suppress
from dataclasses import replace
from time import monotonic
from typing import Any, TypeVar  # grpc and tritonclient have no types

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from inference.client.channel import (
    CHARACTERS,
    COMPLETION,
    Channel,
    Metadata,
    OpenCall,
    add_tensors,
    is_lost,
    read_tensors,
)
from inference.client.pace import Pace
from inference.errors import OverloadedError, ServerError, ServerUnreachableError
from inference.protocol import characters
from inference.protocol.arrays import (
    CANCEL,
    HEARTBEAT,
    Array,
    chunk_from_arrays,
    description_from_arrays,
    error_from_text,
    request_to_arrays,
    to_array,
)
from inference.protocol.characters import MAX_DEADLINE_MS, CharacterAnswer, CharacterRequest
from inference.protocol.completion import CompletionChunk, CompletionRequest, Description, FinishReason, Priority

# A server that is older than one of these fields answers well without it, but sends more text or knows less.
_OPTIONAL = frozenset({"min_probability", "related", "path", "near_first"})
_UNANSWERED = (FinishReason.SUPERSEDED, FinishReason.DEADLINE, FinishReason.CANCELLED)  # without text before
_REQUIRED_INPUTS = {COMPLETION: "prefix", CHARACTERS: "text"}

_IDLE_TIMEOUT_S = 60.0  # when the server's process dies, its streams stay open and receive nothing
# The first request loads the character-level model, requests run one after the other, and one may need a forward pass
# for each byte.
_ANSWER_TIMEOUT_S = 600.0

# If the model's process dies during a request, that request is never answered, but the next one is refused at once. So
# an unanswered heartbeat is requested again, and the wait doubles each time.
_FIRST_HEARTBEAT_WAIT_S = 3.0

# After so long without any answer, a connection may be dead, and neither side knows it: a person who types on cancels
# each request before it fails. A model that is busy answers a heartbeat all the same.
_SILENT_S = 2.0

_PATIENCE_S = 3.0  # of an operator, with one answer
_MAX_STALL_S = 10.0  # without progress

# What Triton says of a model while it ends. Another server may be there already.
_ENDING = ("has no available versions", "Server is stopping")
_MAX_REPORTED_CHARS = 1000  # of the error of a server, which may be another one than ours
_CLOSE_S = 10.0  # for streams to end. Those of a busy server must, or it crashes
_SILENT_CLOSE_S = 1.0  # of a server that does not answer

_Response = TypeVar("_Response")


class Client(AbstractAsyncContextManager["Client"]):
    """A client of the server at `url`, which speaks Triton's gRPC protocol; `Channel` says what a URL may be.

    As a context manager it closes itself. Its methods raise ServerUnreachableError or ServerError; the two that ask a
    model also InvalidRequestError and OverloadedError.
    """

    def __init__(
        self,
        url: str,
        tls_ca: bytes | None = None,
        idle_timeout_s: float = _IDLE_TIMEOUT_S,
        answer_timeout_s: float = _ANSWER_TIMEOUT_S,
        key: str = "",
        silent_s: float = _SILENT_S,
    ) -> None:
        """Opens no connection yet; the first call does. Must be called in the event loop that will use the client.

        `tls_ca`: see `Channel`. `key`: with which a gateway admits this user; empty if it needs none.

        A completion without a chunk within `idle_timeout_s` fails with a ServerError, and so does a request to the
        character-level model without an answer within `answer_timeout_s`. If no request was answered for `silent_s`,
        whatever became of them, the next one first waits so long for a heartbeat.
        """
        self._idle_timeout_s, self._answer_timeout_s = idle_timeout_s, answer_timeout_s
        self._metadata: Metadata = (("authorization", f"Bearer {key}"),) if key else ()
        self.url = url  # for messages
        with self._translate_errors():
            self._channel = Channel(url, tls_ca)
        self._server = service_pb2_grpc.GRPCInferenceServiceStub(self._channel.grpc)
        self._left_out: frozenset[str] = frozenset()  # the fields of requests that the server does not know
        self._held: Any = None  # the stream of `hold`
        self._running: dict[OpenCall, Any] = {}  # and their requests
        self._endings: set[asyncio.Task[None]] = set()
        self._silent_s, self._unanswered_since = silent_s, math.inf  # the time of the first request without an answer
        self._listening: asyncio.Task[Description] | None = None
        self._pace = Pace(asyncio.get_running_loop().time)

    def hold(self) -> None:
        """Opens a stream on which nothing is sent, until `close`: a host ends when it has none for some time."""
        self._held = self._server.ModelStreamInfer(metadata=self._metadata)

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        """Yields the chunks of the completion. The last one has `is_last`.

        Closing the generator or cancelling the task that reads it cancels the completion on the server. Nothing is sent
        if that happens while the request is held back.
        """
        is_typed, is_answered = bool(request.document) and not request.is_prefetch, False
        if is_typed:
            await self._pace.wait(request.document)
        try:
            await self._check_connection()
            arrays = request_to_arrays(request)
            message = _build_request(COMPLETION, {name: arrays[name] for name in arrays if name not in self._left_out})
            # By it a gateway keeps a document at one server. The guard has made a random one of its name.
            session: Metadata = (("x-session-id", request.document),) if request.document else ()
            sent = self._stream(message, chunk_from_arrays, lambda chunk: chunk.is_last, self._idle_timeout_s, session)
            async with aclosing(sent) as chunks:
                async for chunk in chunks:
                    is_answered = is_answered or chunk.finish_reason not in _UNANSWERED
                    yield chunk
        finally:
            if is_typed:
                self._pace.note_end(request.document, is_answered)

    async def _check_connection(self) -> None:
        """Raises ServerUnreachableError if a server that has been silent answers no heartbeat either.

        The requests of somebody who types on wait for the same one.
        """
        is_listening = self._listening is not None and not self._listening.done()
        if not is_listening and monotonic() - self._unanswered_since > self._silent_s:
            self._listening, is_listening = asyncio.create_task(self.read_description(timeout_s=self._silent_s)), True
            # Perhaps no request waits for it any more when it fails.
            self._listening.add_done_callback(lambda done: done.cancelled() or done.exception())
        if is_listening and self._listening is not None:
            try:
                await asyncio.shield(self._listening)
            except ServerError as error:
                raise ServerUnreachableError(str(error)) from None

    async def ask(self, request: CharacterRequest) -> CharacterAnswer:
        """Returns the character-level model's answer. Cancelling the task cancels the request on the server."""
        deadline_ms = request.deadline_ms or min(int(1e3 * self._answer_timeout_s), MAX_DEADLINE_MS)
        request = replace(request, deadline_ms=deadline_ms)  # nobody waits any longer
        message = _build_request(CHARACTERS, characters.request_to_arrays(request))
        return await self._ask(message, characters.answer_from_arrays, self._answer_timeout_s)

    async def read_description(
        self,
        model_name: str = COMPLETION,
        timeout_s: float = _IDLE_TIMEOUT_S,
        first_wait_s: float = _FIRST_HEARTBEAT_WAIT_S,
    ) -> Description:
        """Returns what a model reports of itself; of the character-level one, only for how long it makes no progress.

        Does not wait for other requests, and does not load the character-level model. No answer within `timeout_s` is
        a ServerError. From then on, the server is not sent an optional field that it does not know.
        """
        message, wait_s = _build_control(model_name, HEARTBEAT, np.array([True])), first_wait_s
        while timeout_s > 0:
            try:
                async with timeout(min(wait_s, timeout_s)):
                    description = await self._ask(message, description_from_arrays, timeout_s)
            except TimeoutError:
                timeout_s, wait_s = timeout_s - wait_s, 2 * wait_s
            else:
                if model_name == COMPLETION:
                    self._left_out = _OPTIONAL.difference(description.inputs)
                return description
        raise ServerError(f"the model {model_name} at {self.url} does not answer")

    async def read_metrics(self) -> str:
        """Returns the metrics of the completion model, in Prometheus's text format."""
        return (await self.read_description(timeout_s=_PATIENCE_S)).metrics

    async def find_problem(self) -> str:
        """Returns why a completion would not be answered now; empty if it would.

        A busy server is ready as long as it makes progress, and also while it refuses requests as overloaded.
        """
        try:
            for name in (COMPLETION, CHARACTERS):
                stall_s = (await self.read_description(name, _PATIENCE_S)).heartbeat_ms / 1000
                if stall_s > _MAX_STALL_S:
                    return f"the model {name} has made no progress for {stall_s:.0f} s"
            async with timeout(_PATIENCE_S):  # a completion of one token, unless there was one just now
                async for _ in self.stream(CompletionRequest("a", max_tokens=1, priority=Priority.PROBE)):
                    pass
        except (TimeoutError, OverloadedError):
            return ""  # it is busy, and makes progress
        except ServerError as error:
            return str(error)
        return ""

    async def close(self) -> None:
        """Closes the connection and every stream on it."""
        if self._listening is not None:
            self._listening.cancel()
        if self._held is not None:
            self._held.cancel()
        for call in list(self._running):
            self._end(call, is_cancelled=True)
        if self._endings:
            is_silent = monotonic() - self._unanswered_since > self._silent_s
            await asyncio.wait(self._endings, timeout=_SILENT_CLOSE_S if is_silent else _CLOSE_S)
        await self._channel.close()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ask(self, message: Any, read: Callable[[Mapping[str, Array]], _Response], timeout_s: float) -> _Response:
        """Returns the only response to a request."""
        (response,) = [each async for each in self._stream(message, read, lambda _: True, timeout_s)]
        return response

    async def _stream(
        self,
        message: Any,
        read: Callable[[Mapping[str, Array]], _Response],
        is_last: Callable[[_Response], bool],
        timeout_s: float,
        metadata: Metadata = (),
    ) -> AsyncGenerator[_Response, None]:
        """Yields `read(response)` for each response, up to and including the first for which `is_last` is true.

        No response within `timeout_s` is a ServerError.
        """
        call, has_ended = OpenCall(self._server.ModelStreamInfer(metadata=self._metadata + metadata)), False
        self._running[call] = message
        try:
            with self._translate_errors():
                await self._write(call, message)
            self._unanswered_since = min(self._unanswered_since, monotonic())
            while not has_ended:
                item = read(await self._receive(call, timeout_s))
                if has_ended := is_last(item):
                    self._end(call, is_cancelled=False)
                yield item
        finally:
            self._end(call, is_cancelled=True)

    async def _write(self, call: OpenCall, message: Any) -> None:
        """Sends the request of a call. Raises RpcError."""
        try:
            await call.write(message)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.INTERNAL:
                await self._raise_reason()
            raise

    async def _raise_reason(self) -> None:
        """Raises RpcError if the server refuses calls, for example because the key is wrong.

        If a server ends a call before the message is sent, gRPC does not say why. So this call sends no message.
        """
        call = self._server.ModelStreamInfer(metadata=self._metadata)
        with suppress(TimeoutError):
            async with timeout(self._silent_s):
                with suppress(grpc.aio.InternalError):  # it has ended meanwhile; reading says why
                    await call.done_writing()
                await call.read()
        call.cancel()

    async def _receive(self, call: OpenCall, timeout_s: float) -> Mapping[str, Array]:
        """Returns the arrays of the next response. Raises the error that the server has answered with instead."""
        try:
            async with timeout(timeout_s):
                with self._translate_errors():
                    response = await call.read()
        except TimeoutError:
            raise ServerError(f"the server at {self.url} sent nothing for {timeout_s:g} s") from None
        self._unanswered_since = math.inf
        if response is grpc.aio.EOF:
            raise ServerError(f"the server at {self.url} ended its answer before the last part")
        if response.error_message:
            self._end(call, is_cancelled=False)
            if any(sign in response.error_message for sign in _ENDING):
                raise ServerUnreachableError(f"no server answers at {self.url}: it is ending")
            raise error_from_text(response.error_message[:_MAX_REPORTED_CHARS])
        answer = response.infer_response
        return read_tensors(answer.outputs, answer.raw_output_contents)

    def _end(self, call: OpenCall, is_cancelled: bool) -> None:
        """Lets a call end by itself, while its answer is used already, or another request is sent. Once is enough."""
        request = self._running.pop(call, None)
        if request is None:
            return
        cancelled = to_array((request.id,), np.object_)
        cancel = _build_control(request.model_name, CANCEL, cancelled) if is_cancelled else None
        task = asyncio.create_task(self._wait_for_end(call, cancel))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def _wait_for_end(self, call: OpenCall, cancel: Any) -> None:
        if await call.end(cancel, self._idle_timeout_s):
            self._unanswered_since = math.inf

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # the folder of its socket is not there
            raise ServerUnreachableError(f"no server answers at {self.url}: {error.strerror}") from None
        except grpc.RpcError as error:
            code, details = error.code(), (error.details() or "")[:_MAX_REPORTED_CHARS]
            if is_lost(error):
                reason = self._channel.describe_loss(details)
                raise ServerUnreachableError(f"no server answers at {self.url}: {reason}") from None
            raise ServerError(f"the server at {self.url} failed ({code.name}): {details}") from None


def _build_request(model_name: str, arrays: Mapping[str, Array]) -> Any:
    """The ModelInferRequest with these inputs. Much less work than with tritonclient's objects for them."""
    request = service_pb2.ModelInferRequest(model_name=model_name, id=secrets.token_hex(16))
    add_tensors(request.inputs, request.raw_input_contents, arrays)
    return request


def _build_control(model_name: str, name: str, value: Array) -> Any:
    """The message that asks for a heartbeat, or cancels. Triton refuses any without the model's required input."""
    return _build_request(model_name, {_REQUIRED_INPUTS[model_name]: to_array(("",), np.object_), name: value})
