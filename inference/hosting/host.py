"""A host without Triton: the models of the model repository in this process, behind the same gRPC service.

It listens on a socket in a private folder, and on a port of loopback where one is named. An editor starts it as a
process of its own, `python -m inference.hosting.host`, with the configuration in `inference.config.VARIABLE`; it ends
when no stream has been open for some time (`inference.client.local_host`). `midtoken serve` runs it in the foreground.
"""

import asyncio
import contextlib
import faulthandler
import importlib.util
import os
import sys
import threading
from asyncio import timeout
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Self  # grpc, tritonclient and the models have no types

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from inference.client.channel import CHARACTERS, COMPLETION, LIMIT, SOCKET_SCHEME, add_tensors, read_tensors
from inference.client.local_host import REFUSED, HostPlace
from inference.config import EngineConfig
from inference.errors import (
    InvalidRequestError,
    LaunchError,
    MidtokenError,
    ModelError,
    quote,
    silence_libraries,
)
from inference.platforms import ADDRESS, run_until_signal
from inference.private_files import open_folder
from inference.protocol.arrays import CANCEL, Array, FieldTypes

_MAX_STALL_S = 60.0  # after so long without progress a model has failed; one step takes seconds on a slow machine
_DRAIN_S = 4  # for running streams. Those that have not ended by then get an error
_END_S = 8  # for the models to close
_POLL_S = 0.25  # between looks at whether somebody is connected


class Host:
    """The models of this process, and the gRPC server that answers for them."""

    def __init__(self, models: Mapping[str, Any]) -> None:
        """Use `start`."""
        self._models, self._service = models, _Service(models)
        self._grpc = grpc.aio.server(options=(LIMIT,))
        self._resources = contextlib.ExitStack()

    @classmethod
    async def start(cls, config: EngineConfig, repository: Path, socket: Path, port: int | None = None) -> Self:
        """Loads the models, and then listens. The socket's folder is private. Raises ModelError or LaunchError."""
        names = (COMPLETION, CHARACTERS)
        host = cls({name: await _run(partial(_load, repository / name, config)) for name in names})
        try:
            short = host._resources.enter_context(open_folder(socket.parent))
            host._grpc.add_insecure_port(f"{SOCKET_SCHEME}{short / socket.name}")
            if port is not None:
                host._grpc.add_insecure_port(f"{ADDRESS}:{port}")
        except (OSError, RuntimeError) as error:
            raise LaunchError(f"cannot listen at {socket} or port {port}: {error}; choose others") from None
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(host._service, host._grpc)
        await host._grpc.start()
        host._resources.callback(faulthandler.cancel_dump_traceback_later)
        host._resources.callback(asyncio.ensure_future(host._end_if_stuck()).cancel)
        return host

    async def wait_until_idle(self, idle_s: float) -> None:
        """Returns when no stream has been open for so long."""
        clock = asyncio.get_running_loop().time
        idle_since = clock()
        while clock() - idle_since < idle_s:
            await asyncio.sleep(min(_POLL_S, idle_s / 4))
            if self._service.num_streams:
                idle_since = clock()

    async def stop(self) -> None:
        """Takes no new streams, gives those that run four seconds to finish, and closes the models."""
        await self._grpc.stop(_DRAIN_S)
        for model in self._models.values():
            with contextlib.suppress(TimeoutError):
                async with timeout(_END_S):
                    await _run(model.finalize)
        self._resources.close()

    async def _end_if_stuck(self, limit_s: float = _MAX_STALL_S) -> None:
        """Ends this process when nothing runs in it for so long, or a model makes no progress.

        What started it starts another: a model that hangs can be ended only with its process.
        """
        faulthandler.dump_traceback_later(limit_s, exit=True)
        while True:
            await asyncio.sleep(limit_s / 4)
            if all(each.engine.heartbeat.measure_ms() < limit_s * 1000 for each in self._models.values()):
                faulthandler.dump_traceback_later(limit_s, exit=True)


class _Service(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # tritonclient has no types
    """What of Triton's service clients use."""

    def __init__(self, models: Mapping[str, Any]) -> None:
        self._models = models
        self.num_streams = 0  # that are open now

    async def ModelStreamInfer(self, messages: Any, _context: Any) -> AsyncIterator[Any]:  # noqa: N802  # its own name
        requests = asyncio.Queue[Any]()
        reading = asyncio.create_task(self._read(messages, requests))
        self.num_streams += 1
        try:
            while (message := await requests.get()) is not None:
                reply, is_last = _Reply(), False
                try:
                    self._pass_on(message, reply)
                    while not is_last:
                        answer, is_last = await reply.answers.get()
                        yield answer
                finally:
                    reply.has_closed = True
                requests.task_done()
            await reading  # raises what ended it, for example a message that gRPC cannot read
        finally:
            self.num_streams -= 1
            reading.cancel()

    async def _read(self, messages: Any, requests: "asyncio.Queue[Any]") -> None:
        """Passes on the requests of a stream, each once the one before is answered, and None at the end.

        Those that cancel are passed on at once.
        """
        try:
            async for message in messages:
                if any(each.name == CANCEL for each in message.inputs):
                    self._pass_on(message, _Reply())
                else:
                    await requests.join()
                    requests.put_nowait(message)
        finally:
            requests.put_nowait(None)

    def _pass_on(self, message: Any, reply: "_Reply") -> None:
        model = self._models.get(message.model_name)
        if model is None:
            known = ", ".join(self._models)
            return reply.fail(InvalidRequestError(f"unknown model {quote(message.model_name)}; known are {known}"))
        model.answer(partial(_read_inputs, message, model.types), reply, message.id)


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


def _load(folder: Path, config: EngineConfig) -> Any:
    """The model in a folder of the model repository, loaded: its file may import those beside it, as with Triton."""
    path = folder / "1" / "model.py"
    spec = importlib.util.spec_from_file_location(
        f"midtoken_{folder.name}", path, submodule_search_locations=[str(path.parent)]
    )
    if spec is None or spec.loader is None or not path.is_file():
        raise LaunchError(f"the model repository has no {path}")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    model.load(config)
    return model


async def _run(call: Callable[[], Any]) -> Any:
    """Like `asyncio.to_thread`, but the process can end while the call runs."""
    done = Future[Any]()

    def run() -> None:
        try:
            done.set_result(call())
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.shield(asyncio.wrap_future(done))


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
        self._put(service_pb2.ModelStreamInferResponse(error_message=error.stream_text), True)

    def is_closed(self) -> bool:
        return self.has_closed

    def _put(self, message: Any, is_last: bool) -> None:
        self._loop.call_soon_threadsafe(self.answers.put_nowait, (message, is_last))


async def _serve(place: HostPlace, config: EngineConfig, repository: Path, idle_s: float) -> None:
    """Serves until nobody has been connected for so long. Returns at once if another process has the place."""
    with place.claim() as is_ours:
        if not is_ours:
            return print("another process already serves this model", flush=True)
        host = await Host.start(config, repository, place.socket)
        print(f"serving {config.model_dir}", flush=True)
        try:
            await host.wait_until_idle(idle_s)
            place.socket.unlink(missing_ok=True)  # who comes from now on starts another
        finally:
            await host.stop()


def main() -> int:
    """Serves for editors: `python -m inference.hosting.host SOCKET REPOSITORY IDLE_SECONDS`."""
    silence_libraries()
    socket, repository, idle_s = sys.argv[1:]
    try:
        config = EngineConfig.from_environment(os.environ)
        run_until_signal(_serve(HostPlace(Path(socket)), config, Path(repository), float(idle_s)))
    except MidtokenError as error:
        print(f"midtoken: {error}", file=sys.stderr)
        return REFUSED if isinstance(error, ModelError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
