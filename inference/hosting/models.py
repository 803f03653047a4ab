"""The models of the model repository: named arrays come in, and parts of an answer go out as named arrays.

Each folder of the repository has one. Triton calls `initialize`, `execute` and `finalize`, which
convert between its objects and arrays; the host (`inference.hosting.host`) calls `load`, `answer` and
`finalize` itself.

A request is passed on at once, and another thread sends its answer. Every request ends in exactly one last part or
error; without it, its stream would never close. A heartbeat request is answered at once.

A request is cancelled by another one, which names its id, and its answer ends. A client that has gone has closed its
stream: nothing more is sent there once that is known, because tritonserver 2.51 crashes if it is at the wrong moment.
"""

import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol  # Triton's objects have no types
from weakref import WeakValueDictionary

import inference
from inference.characters.token_string import PassWatch
from inference.characters.worker import Answerer, CharacterWorker
from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.metrics import Metrics, Outcome, find_outcome
from inference.errors import (
    MidtokenError,
    ModelError,
    silence_libraries,
    to_public_error,
)
from inference.hosting.triton import TritonReply, end_with_parent, read_inputs
from inference.model_folder import read_folder_file
from inference.protocol import characters
from inference.protocol.arrays import (
    CANCEL,
    COMMON_TYPES,
    HEARTBEAT,
    REQUEST_TYPES,
    Array,
    FieldTypes,
    chunk_to_arrays,
    description_to_arrays,
    request_from_arrays,
    to_text,
)
from inference.protocol.completion import (
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    Description,
    FinishReason,
)

_log = logging.getLogger(__name__)

# Between two times that tritonserver is asked whether the client of one request has gone. This takes 0.05 ms of the
# model's time: with sixty requests, a tenth of it. A request that was dropped meanwhile takes part in a step or two.
_PAUSE_S = 0.03
_SWITCH_S = 0.0005  # for which a thread that reads messages may hold up the engine's, each time that a pass has ended
_FRESH_S = 2.0  # a completion that is not older says as much as a probe
_NICENESS = 10  # the processor is for completions first


class Reply(Protocol):
    """Where the answer to one request goes. Its methods are thread-safe."""

    def send(self, arrays: Mapping[str, Array], is_last: bool) -> None:
        """Sends a part of the answer. A last one without arrays only ends it."""

    def fail(self, error: MidtokenError) -> None:
        """Sends the error that ends the answer."""

    def is_closed(self) -> bool:
        """Whether the client has closed the stream. With Triton, each call is a round trip to the server."""


class Sink:
    """Sends the answer to one request. Calls after the end are ignored.

    Once the engine has the request, only the engine's thread calls this, but for `cancel`.
    """

    def __init__(
        self, reply: Reply, write: Callable[[Any], dict[str, Array]], note_end: Callable[[Any, Any, float], object]
    ) -> None:
        self.request: Any = None  # once it is read
        self._reply, self._write, self._note_end = reply, write, note_end
        self._is_ended, self._is_cancelled, self._is_closed = False, False, False
        self._began_at = time.monotonic()
        self._asks_at = self._began_at + _PAUSE_S

    def send(self, part: Any) -> None:
        """Sends a part of the answer: a chunk of a completion, or all of another answer."""
        if not isinstance(part, CompletionChunk) or part.is_last:
            self.end(self._write(part), part)
        elif not self._is_ended and not self._is_closed:
            self._reply.send(self._write(part), is_last=False)

    def fail(self, error: MidtokenError) -> None:
        """Sends the error that ends the answer."""
        self._end(partial(self._reply.fail, error), error)

    def end(self, arrays: Mapping[str, Array], part: Any = None) -> None:
        """Sends the last arrays. `part`: what they are made of; None if nobody is to note it."""
        self._end(partial(self._reply.send, arrays, is_last=True), part)

    def cancel(self) -> None:
        """Has the engine end the answer. Thread-safe."""
        self._is_cancelled = True

    def is_cancelled(self) -> bool:
        """Whether the client has cancelled the request or gone. After the end, Triton must not be asked."""
        if time.monotonic() >= self._asks_at and not self._is_ended:
            self._is_closed = self._reply.is_closed()
            self._asks_at = time.monotonic() + _PAUSE_S
        return self._is_cancelled or self._is_closed

    def _end(self, send: Callable[[], None], end: Any) -> None:
        if not self._is_ended:
            self._is_ended = True
            if self._is_closed:
                self._reply.send({}, is_last=True)
            else:
                send()
            if end is not None:
                self._note_end(self.request, end, time.monotonic() - self._began_at)


class HostedModel:
    """A model that a server has loaded."""

    engine: Any  # with `submit`, `heartbeat` and `close`; `load` makes it

    def __init__(
        self,
        name: str,
        types: FieldTypes,
        read: Callable[[Mapping[str, Array]], Any],
        write: Callable[[Any], dict[str, Array]],
        load_engine: Callable[[EngineConfig], Any],
    ) -> None:
        """`name`: in the log. `types`: of the inputs.

        `read` makes a request of its arrays, `write` arrays of a part of the answer.
        """
        silence_libraries()  # of the process that the server runs it in
        self.types = types | COMMON_TYPES
        self._sinks = WeakValueDictionary[str, Sink]()  # of the requests that have an id, while they run
        self._name, self._read, self._write, self._load_engine = name, read, write, load_engine

    def load(self, config: EngineConfig) -> None:
        """Makes the engine. Raises ModelError."""
        say(f"{self._name}: inference is {inference.__file__}")
        sys.setswitchinterval(_SWITCH_S)
        self.engine = self._load_engine(config)

    def answer(self, read_arrays: Callable[[], Mapping[str, Array]], reply: Reply, request_id: str = "") -> None:
        """Answers a heartbeat request, cancels, or passes any other to the engine.

        `read_arrays`: returns the arrays of the request, or raises InvalidRequestError.
        """
        sink = Sink(reply, self._write, self.note_end)
        try:
            arrays = read_arrays()
            if HEARTBEAT in arrays:
                description = replace(self.describe(), heartbeat_ms=self.engine.heartbeat.measure_ms())
                return sink.end(description_to_arrays(description))
            if CANCEL in arrays:
                for each in arrays[CANCEL].reshape(-1).tolist():
                    if cancelled := self._sinks.get(to_text(CANCEL, each)):
                        cancelled.cancel()
                return sink.end({})
            sink.request = self._read(arrays)
            if request_id:
                self._sinks[request_id] = sink
            self.submit(sink.request, sink)
        except Exception as error:  # without an end, the stream would stay open
            sink.fail(to_public_error(error, say))

    def describe(self) -> Description:
        """What is reported with a heartbeat."""
        return Description(inputs=())

    def submit(self, request: Any, sink: Sink) -> None:
        """Passes a request to the engine. Raises MidtokenError."""
        self.engine.submit(request, sink)

    def note_end(self, request: Any, end: Any, duration_s: float) -> None:
        """Gets each request that has ended, with the last part of its answer or the error.

        `request`: None if it could not be read.
        """

    def initialize(self, _args: dict[str, str]) -> None:
        """Triton loads the model. Raises ModelError if the environment has no valid configuration."""
        self.triton = importlib.import_module("triton_python_backend_utils")  # which exists only inside its stubs
        threading.Thread(target=end_with_parent, daemon=True).start()
        self.load(EngineConfig.from_environment(os.environ))

    def execute(self, requests: Iterable[Any]) -> None:
        """Triton has requests."""
        for request in requests:
            read_arrays = partial(read_inputs, request, self.triton.get_input_tensor_by_name, self.types)
            self.answer(read_arrays, TritonReply(self.triton, request.get_response_sender()), request.request_id())

    def finalize(self) -> None:
        """Fails the unfinished requests and stops the engine."""
        self.engine.close()


def _load_engine(config: EngineConfig) -> Engine:
    if config.engine_url:
        from inference.remote.executor import load_remote_engine

        return load_remote_engine(config)
    from inference.engine.local_executor import load_engine  # here, because it loads the runners

    return load_engine(config)


class CompletionModel(HostedModel):
    """The completion model. The engine's thread sends the chunks; each request that has ended is counted in metrics."""

    engine: Engine

    def __init__(self, load_engine: Callable[[EngineConfig], Any] = _load_engine) -> None:
        """`load_engine`: makes the engine."""
        super().__init__("completion", REQUEST_TYPES, request_from_arrays, chunk_to_arrays, load_engine)

    def load(self, config: EngineConfig) -> None:
        """See `HostedModel`."""
        super().load(config)
        self._languages = read_folder_file(config.model_dir).languages
        self._metrics = Metrics(self.engine)
        self._completed_at = -_FRESH_S
        say(f"completion: the model runs as {self.engine.runs_as}, {self.engine.context_tokens} tokens of context")

    def describe(self) -> Description:
        """What the model knows, how it runs, its metrics, and what is wrong with its engine."""
        engine = self.engine
        return Description(
            self._languages,
            engine.runs_as,
            engine.problem,
            repository_format=engine.repository_format,
            context_tokens=engine.context_tokens,
            metrics=self._metrics.write(),
        )

    def submit(self, request: CompletionRequest, sink: Sink) -> None:
        """See `HostedModel`. A probe is answered at once if a completion has just succeeded."""
        if request.is_probe and time.monotonic() - self._completed_at < _FRESH_S:
            chunk = CompletionChunk("", finish_reason=FinishReason.LENGTH, stats=CompletionStats())
            sink.end(chunk_to_arrays(chunk))
        else:
            super().submit(request, sink)

    def note_end(self, request: CompletionRequest | None, end: Any, duration_s: float) -> None:
        """Counts a request."""
        if find_outcome(end) is Outcome.COMPLETED:
            self._completed_at = time.monotonic()
        if request is None or not request.is_probe:
            self._metrics.add(end, duration_s)


def _load_answerer(config: EngineConfig, watch: PassWatch) -> Answerer:
    if config.engine_url:
        raise ModelError("the character-level model needs the weights, and they are on another server (--engine)")
    from inference.characters.service import CharacterService, load_character_model  # here: it loads the runners

    return CharacterService(load_character_model(config, watch), config.memory_mib * 2**20).answer


class CharacterModel(HostedModel):
    """The character-level model. Its worker's thread loads it at the first request, and sends the answers."""

    def __init__(self, load: Callable[[EngineConfig, PassWatch], Answerer] = _load_answerer) -> None:
        super().__init__(
            "characters",
            characters.REQUEST_TYPES,
            characters.request_from_arrays,
            characters.answer_to_arrays,
            lambda config: CharacterWorker(lambda watch: load(config, watch)),
        )

    def initialize(self, args: dict[str, str]) -> None:
        """As every model, but with less of the processor: this process has no other model."""
        os.nice(_NICENESS)
        super().initialize(args)


def say(line: str) -> None:
    """Writes a line to the log of the server."""
    print(line, file=sys.stderr, flush=True)
