"""A server without Triton: the same adapters in this process, behind the same gRPC service.

It has no ports, no HTTP and no metrics, and listens on a socket in a private folder. Windows has no such sockets for
gRPC: there it listens on loopback, and answers clients that know a secret (`inference.serving.calls`). A module that
this one makes stands for what the adapters use of Triton.
"""

import asyncio
import concurrent.futures
import contextlib
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn  # grpc, tritonclient and the adapters have no types

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from inference.config import config_to_environment
from inference.errors import InvalidRequestError, LaunchError, quote, to_public_error
from inference.platforms import Self, timeout
from inference.protocol import characters, completion_arrays
from inference.protocol.arrays import HEARTBEAT_TYPES, Array, error_to_response
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
from inference.serving.triton_installation import GRPC

_INPUTS = {
    COMPLETION: completion_arrays.REQUEST_TYPES | HEARTBEAT_TYPES,
    CHARACTERS: characters.REQUEST_TYPES | HEARTBEAT_TYPES,
}

NAME = "triton_python_backend_utils"  # which exists only inside Triton's stubs
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
        os.environ.update(config_to_environment(options.model))  # from which the adapters read their settings
        sys.modules[NAME] = build_stand_in()
        folders = {name: options.model_repository / name for name in _INPUTS}
        server = cls(options, {name: await _run(partial(_load, folder)) for name, folder in folders.items()})
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
        """Stops the server. With `may_drain`, running streams get ten seconds to finish, and the models are closed."""
        await self._grpc.stop(DRAIN_S if may_drain else 0)
        for adapter in self._adapters.values() if may_drain else ():
            with contextlib.suppress(TimeoutError):
                async with timeout(END_S):
                    await _run(adapter.finalize)
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
        async for message in messages:
            try:
                async for answer in self._answer(message):
                    yield answer
            except Exception as error:  # of a message that is not what a client of ours sends
                text, _ = error_to_response(to_public_error(error, partial(print, file=sys.stderr)))
                yield service_pb2.ModelStreamInferResponse(error_message=text)

    async def _answer(self, message: Any) -> AsyncIterator[Any]:
        request, flags = _read(message), 0
        try:
            self._adapters[message.model_name].execute([request])
            while not flags:
                answer, flags = await request.answers.get()
                yield answer
        finally:
            request.cancel()

    async def _admit(self, context: Any) -> None:
        if self._secret is not None:
            answer = self._secret.answer(dict(context.invocation_metadata()))
            if not answer:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the secret of this server is missing or wrong")
            await context.send_initial_metadata(answer)


async def restart_process() -> NoReturn:
    """Starts this process's program again in its place: a model that hangs can be ended only with its process."""
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _load(folder: Path) -> Any:
    """The adapter in a folder of the model repository, as Triton loads it: its file may import those beside it."""
    package = ModuleType(f"midtoken_{folder.name}")
    package.__path__ = [str(folder / "1")]
    sys.modules[package.__name__] = package
    adapter = import_module(f"{package.__name__}.model").TritonPythonModel()
    adapter.initialize({"model_config": json.dumps({"parameters": {}})})
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


def _read(message: Any) -> "Request":
    """The request, with the inputs that its model has. Raises InvalidRequestError. Triton checks the same."""
    if (types := _INPUTS.get(message.model_name)) is None:
        raise InvalidRequestError(f"unknown model {quote(message.model_name)}; known are {', '.join(_INPUTS)}")
    for tensor in message.inputs:
        if tensor.name not in types:
            raise InvalidRequestError(f"unknown field {quote(tensor.name)}; known are {', '.join(types)}")
        if tensor.datatype != (expected := types[tensor.name][0]):
            raise InvalidRequestError(f"{tensor.name}: data-type is '{tensor.datatype}', not '{expected}'")
    return Request(message)


def _remove_stale_sockets(folder: Path) -> None:
    """Removes the sockets of servers that were killed."""
    for path in folder.glob(f"*{GRPC}"):
        if path.is_socket() and not is_listening(path):
            path.unlink(missing_ok=True)


def build_stand_in() -> ModuleType:
    """Returns the module that the adapters import by `NAME`."""
    module, say = ModuleType(NAME), partial(print, file=sys.stderr, flush=True)
    module.__dict__.update(
        TRITONSERVER_RESPONSE_COMPLETE_FINAL=1,
        Logger=SimpleNamespace(log_info=say, log_error=say),
        MetricFamily=_MetricFamily,
        Tensor=lambda name, array: (name, array),
        TritonError=_TritonError,
        InferenceResponse=_build_response,
        get_input_tensor_by_name=lambda request, name: request.inputs.get(name),
    )
    return module


class Request:
    """A request as an adapter sees it. `answers` gets its answers, each with flags; other flags than 0: the last."""

    def __init__(self, message: Any) -> None:
        """`message`: a ModelInferRequest. Must be called in the event loop that reads the answers."""
        arrays = read_tensors(message.inputs, message.raw_input_contents)
        self.inputs = {name: SimpleNamespace(as_numpy=partial(np.asarray, array)) for name, array in arrays.items()}
        self._parameters = list(message.parameters)
        self._loop, self.answers = asyncio.get_running_loop(), asyncio.Queue[tuple[Any, int]]()
        self._is_cancelled = False

    def cancel(self) -> None:
        """Nobody reads the answers any more."""
        self._is_cancelled = True

    def parameters(self) -> str:
        """The request's parameters as JSON."""
        return json.dumps(dict.fromkeys(self._parameters))

    def get_response_sender(self) -> "Request":
        """An object with the next two methods, which are thread-safe."""
        return self

    def is_cancelled(self) -> bool:
        """Whether the client has cancelled the request."""
        return self._is_cancelled

    def send(self, answer: Any, flags: int = 0) -> None:
        """Sends an answer. Flags other than 0: it is the last."""
        self._loop.call_soon_threadsafe(self.answers.put_nowait, (answer, flags))


def _build_response(tensors: Sequence[tuple[str, Array]] = (), error: "_TritonError | None" = None) -> Any:
    if error is not None:
        return service_pb2.ModelStreamInferResponse(error_message=error.message)
    response = service_pb2.ModelStreamInferResponse()
    answer = response.infer_response
    add_tensors(answer.outputs, answer.raw_output_contents, dict(tensors))
    return response


class _TritonError:
    INVALID_ARG = UNAVAILABLE = INTERNAL = ""  # a gRPC stream transmits only the message

    def __init__(self, message: str, _code: str) -> None:
        self.message = message


class _MetricFamily:
    """Metrics that nobody reads."""

    COUNTER = HISTOGRAM = ""

    def __init__(self, *_name_description_kind: str) -> None: ...

    def Metric(self, **_labels_and_buckets: Any) -> Any:  # noqa: N802  # Triton's name
        return self

    def increment(self, _value: float) -> None: ...

    observe = increment
