"""A server without Triton: the same adapters in this process, behind the same gRPC service.

It has no ports, no HTTP and no metrics, and listens on a socket in a private folder. Windows has no such sockets for
gRPC: there it listens on loopback, and answers clients that know a secret (`inference.serving.calls`).
"""

import asyncio
import concurrent.futures
import contextlib
import os
import sys
import threading
from asyncio import timeout
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, Self  # grpc, tritonclient and the adapters have no types

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from inference.config import EngineConfig
from inference.errors import InvalidRequestError, LaunchError, MidtokenError, quote, to_public_error
from inference.protocol.arrays import CANCEL, Array, FieldTypes, error_to_response
from inference.serving.calls import CHARACTERS, COMPLETION, LIMIT, SOCKET_SCHEME, Secret, add_tensors, read_tensors
from inference.serving.launcher import (
    DRAIN_S,
    END_S,
    Progress,
    ServerOptions,
    check_completion,
    check_heartbeats,
    is_listening,
)
from inference.serving.loopback import ADDRESS
from inference.serving.private_files import make_private_folder, open_folder
from inference.serving.process_keeper import HAS_KEEPER
from inference.serving.triton_installation import GRPC

_HAS_SOCKETS = sys.platform != "win32"  # in a folder, for gRPC


class EmbeddedServer:
    """The models of this process, and the gRPC server that answers for them."""

    def __init__(self, options: ServerOptions, adapters: Mapping[str, Any]) -> None:
        """Use `start`."""
        self.url = ""  # the `url` argument of Client
        self._options, self._adapters = options, adapters
        self._grpc = grpc.aio.server(options=(LIMIT,))
        self._resources = contextlib.ExitStack()

    @classmethod
    async def start(cls, options: ServerOptions, on_progress: Progress, uses_socket: bool = _HAS_SOCKETS) -> Self:
        """Loads the models and waits for a first completion. Raises ModelError or LaunchError."""
        on_progress(f"loading the model {options.model.model_dir}")
        folders = {name: options.model_repository / name for name in (COMPLETION, CHARACTERS)}
        loads = {name: partial(_load, folder, options.model) for name, folder in folders.items()}
        server = cls(options, {name: await _run(load) for name, load in loads.items()})
        server._listen(uses_socket)
        await server._grpc.start()
        await check_completion(server.url)
        on_progress("the first completion has arrived")
        return server

    async def probe(self) -> None:
        """Raises ServerError if a model has made no progress for `max_stall_s`."""
        await check_heartbeats(self.url, self._options.max_stall_s)

    async def wait_until_ended(self) -> None:
        """Never returns: the server ends with its process."""
        await asyncio.Event().wait()

    async def stop(self, may_drain: bool = True) -> None:
        """Stops the server. With `may_drain`, running streams get four seconds to finish, and the models are closed."""
        await self._grpc.stop(DRAIN_S if may_drain else 0)
        for adapter in self._adapters.values() if may_drain else ():
            with contextlib.suppress(TimeoutError):
                async with timeout(END_S):
                    await _run(adapter.close)
        self._resources.close()

    def _listen(self, uses_socket: bool) -> None:
        """Raises LaunchError."""
        secret, folder, name = None, self._options.state_dir, f"{self._options.socket_prefix}{GRPC}"
        make_private_folder(folder)
        try:
            if uses_socket:
                short = self._resources.enter_context(open_folder(folder))
                _remove_stale_sockets(short)
                self._grpc.add_insecure_port(f"{SOCKET_SCHEME}{short / name}")
                self.url = f"{SOCKET_SCHEME}{folder / name}"
            else:
                secret = Secret.create(f"{ADDRESS}:{self._grpc.add_insecure_port(f'{ADDRESS}:0')}")
                self.url = secret.url
        except (OSError, RuntimeError) as error:
            raise LaunchError(f"cannot listen in {folder}: {error}; choose another folder with --state-dir") from None
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Service(self._adapters, secret), self._grpc)


class _Service(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # tritonclient has no types
    """What of Triton's service clients use."""

    def __init__(self, adapters: Mapping[str, Any], secret: Secret | None) -> None:
        self._adapters, self._secret = adapters, secret

    async def ModelStreamInfer(self, messages: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802  # its own name
        await self._admit(context)
        requests = asyncio.Queue[Any]()
        reading = asyncio.create_task(self._read(messages, requests))
        try:
            while (message := await requests.get()) is not None:
                reply, is_last = _Reply(), False
                try:
                    self._take(message, reply)
                    while not is_last:
                        answer, is_last = await reply.answers.get()
                        yield answer
                finally:
                    reply.has_closed = True
                requests.task_done()
            await reading  # raises what ended it, for example a message that gRPC cannot read
        finally:
            reading.cancel()

    async def _read(self, messages: Any, requests: "asyncio.Queue[Any]") -> None:
        """Passes on the requests of a stream, each once the one before is answered, and None at the end.

        Those that cancel are taken at once.
        """
        try:
            async for message in messages:
                if any(each.name == CANCEL for each in message.inputs):
                    self._take(message, _Reply())
                else:
                    await requests.join()
                    requests.put_nowait(message)
        finally:
            requests.put_nowait(None)

    def _take(self, message: Any, reply: "_Reply") -> None:
        try:
            adapter = self._adapters.get(message.model_name)
            if adapter is None:
                raise InvalidRequestError(
                    f"unknown model {quote(message.model_name)}; known are {', '.join(self._adapters)}"
                )
            arrays = _read_inputs(message, adapter.types)
        except Exception as error:  # of a message that is not what a client of ours sends
            reply.fail(to_public_error(error, partial(print, file=sys.stderr)))
        else:
            adapter.take(arrays, reply, message.id)

    async def _admit(self, context: Any) -> None:
        if self._secret is not None:
            answer = self._secret.answer(dict(context.invocation_metadata()))
            if not answer:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the secret of this server is missing or wrong")
            await context.send_initial_metadata(answer)


def _read_inputs(message: Any, types: FieldTypes) -> dict[str, Array]:
    """The arrays of a message. Raises InvalidRequestError, which names the field: Triton checks this itself."""
    arrays, contents = dict[str, Array](), message.raw_input_contents
    if len(contents) != len(message.inputs):
        raise InvalidRequestError(f"{len(message.inputs)} inputs have {len(contents)} raw contents")
    for tensor, content in zip(message.inputs, contents, strict=True):
        expected = types[tensor.name][0] if tensor.name in types else tensor.datatype
        if tensor.datatype != expected:
            raise InvalidRequestError(f"{quote(tensor.name)} must be {expected}, not {quote(tensor.datatype)}")
        try:
            arrays |= read_tensors((tensor,), (content,))
        except Exception:  # of many kinds
            shape = list(tensor.shape)
            raise InvalidRequestError(f"{quote(tensor.name)} holds no {expected} of the shape {shape}") from None
    return arrays


async def restart_process() -> NoReturn:
    """Ends this process, for its parent to start another: a model that hangs can be ended only with its process.

    Where there is no such parent, its program is started again in its place.
    """
    if HAS_KEEPER:
        os._exit(1)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _load(folder: Path, config: EngineConfig) -> Any:
    """The adapter in a folder of the model repository, loaded: its file may import those beside it, as with Triton."""
    package = ModuleType(f"midtoken_{folder.name}")
    package.__path__ = [str(folder / "1")]
    sys.modules[package.__name__] = package
    adapter = import_module(f"{package.__name__}.model").TritonPythonModel()
    adapter.load(config)
    return adapter


async def _run(call: Callable[[], Any]) -> Any:
    """Like `asyncio.to_thread`, but the process can end while the call runs."""
    done: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            done.set_result(call())
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.shield(asyncio.wrap_future(done))


def _remove_stale_sockets(folder: Path) -> None:
    """Removes the sockets of servers that were killed."""
    for path in folder.glob(f"*{GRPC}"):
        if path.is_socket() and not is_listening(path):
            path.unlink(missing_ok=True)


class _Reply:
    """Puts the messages of one answer in a queue, from any thread. Make it in the event loop that reads them."""

    def __init__(self) -> None:
        self._loop, self.answers = asyncio.get_running_loop(), asyncio.Queue[tuple[Any, bool]]()
        self.has_closed = False  # nobody reads the answers any more

    def send(self, arrays: Mapping[str, Array], is_last: bool) -> None:
        message = service_pb2.ModelStreamInferResponse()
        answer = message.infer_response
        add_tensors(answer.outputs, answer.raw_output_contents, arrays)
        self._put(message, is_last)

    def fail(self, error: MidtokenError) -> None:
        text, _ = error_to_response(error)  # a gRPC stream transmits no more
        self._put(service_pb2.ModelStreamInferResponse(error_message=text), True)

    def is_closed(self) -> bool:
        return self.has_closed

    def _put(self, message: Any, is_last: bool) -> None:
        self._loop.call_soon_threadsafe(self.answers.put_nowait, (message, is_last))
