"""An engine whose model runs on another server: prompts, choices and endings are made here, tokens there.

A request is a task. It asks for the probabilities that its first choice needs, chooses exactly, and then has the server
write on from the chosen token. What was read is remembered by the server, in the slot that a document keeps to.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from inference.config import DEFAULT_CONTEXT_TOKENS, EngineConfig, find_engine_urls
from inference.engine.answer import Answer, build_limits
from inference.engine.explanation import build_explanation
from inference.engine.fill_in import choose_fill_in
from inference.engine.job import EngineParts, Job
from inference.engine.prompt import PromptBuilder
from inference.engine.scheduler import is_superseded
from inference.engine.sink import ChunkSink
from inference.errors import (
    InvalidRequestError,
    MidtokenError,
    ModelError,
    OverloadedError,
    ServerError,
    as_failure,
    quote,
    to_public_error,
)
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model.folder_file import read_folder_file
from inference.model.language_model import Choice, SampleRequest, Sampling
from inference.model.numpy_sampler import NumpyRow, NumpySampler
from inference.protocol.completion import CompletionRequest, FinishReason, Healing
from inference.remote.choice import KnownScores, Written
from inference.remote.discovery import Find, RemoteServer, find_server
from inference.remote.http_client import HttpClient, ask_all
from inference.remote.replicas import Replica, Replicas
from trie_cache.vocabulary import Vocabulary

_log = logging.getLogger(__name__)
_LOOK_S = 0.01  # between looks at cancels and deadlines
_BEAT_S = 0.5
_MORE = (0, 2000, 2**20)  # tokens of each row, where one is drawn: as usual, and if that is too little; all of them
_NEGLIGIBLE = math.log(0.001)  # of a probability; the server's own differ by more from run to run
T = TypeVar("T")


def load_remote_engine(config: EngineConfig, find: Find = find_server) -> "RemoteEngine":
    """The engine with the servers `config.engine_url`, for the tokenizer in `config.model_dir`. Raises ModelError."""
    tokenizer = load_tokenizer(config.model_dir)
    choice = choose_fill_in(config.fill_in_layout, config.model_dir, tokenizer.vocabulary)
    prompts = PromptBuilder(tokenizer, next(iter(choice.fill_ins), None))
    loop = EventLoopThread()
    try:
        replicas = loop.run(_open(config, tokenizer.sample, find))
    except MidtokenError as error:  # all of them mean that the engine cannot be used
        loop.close()
        raise ModelError(str(error)) from error
    return RemoteEngine(config, replicas, prompts, loop)


async def _open(config: EngineConfig, sample: Sequence[tuple[str, tuple[int, ...]]], find: Find) -> Replicas:
    """The servers. Raises ModelError or ServerError."""
    urls = find_engine_urls(config.engine_url)
    replicas = Replicas([Replica(HttpClient(url, config.engine_key), sample, find) for url in urls])
    try:
        await replicas.open()
    except BaseException:
        await replicas.close()
        raise
    return replicas


class RemoteEngine:
    """Completes text with the model of one or more servers. See `CompletionEngine`."""

    def __init__(
        self, config: EngineConfig, replicas: Replicas, prompts: PromptBuilder, loop: "EventLoopThread"
    ) -> None:
        self.runs_as = replicas.name
        self._replicas, self._loop = replicas, loop
        model: Any = replicas  # a job asks its model for no more than these have
        named = config.max_context_tokens or read_folder_file(config.model_dir).context_tokens
        self._parts = EngineParts(model, prompts, named or DEFAULT_CONTEXT_TOKENS, time.monotonic)
        self._max_jobs = config.max_waiting + config.max_sequences
        self._jobs: dict[Job, FinishReason | None] = {}  # why one has to end; used in the loop only
        self._has_warned = False  # of probabilities that are none
        self._is_closed, self._closing = False, threading.Lock()  # nothing begins after all was cancelled

    def submit(self, request: CompletionRequest, sink: ChunkSink) -> None:
        if len(self._jobs) >= self._max_jobs:
            raise OverloadedError(f"{self._max_jobs} requests wait already; try again in a moment")
        if request.healing not in (Healing.EXACT, Healing.NONE):
            raise InvalidRequestError(
                f"the healing {request.healing} masks token after token, for which weights are needed"
            )
        job = Job(request, sink, self._parts, submitted_at=time.monotonic())
        with self._closing:
            if self._is_closed:
                raise OverloadedError("the engine is shutting down")
            self._loop.call(self._start, job)

    @property
    def problem(self) -> str:
        self._loop.call(self._replicas.look)
        return self._replicas.problem

    def measure_heartbeat_ms(self) -> float:
        return self._loop.measure_lag_ms()

    def close(self) -> None:
        with self._closing:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed:
            self._loop.run(self._close())
            self._loop.close()

    async def _close(self) -> None:
        await self._loop.cancel_all()
        await self._replicas.close()

    def _start(self, job: Job) -> None:
        for other in self._jobs:
            if is_superseded(other, job):
                self._jobs[other] = FinishReason.SUPERSEDED
        self._jobs[job] = None
        self._loop.start(self._run(job))

    async def _run(self, job: Job) -> None:
        """Runs the request until it has ended, or must end. Closing its stream ends its work on the server."""
        work = asyncio.create_task(self._complete(job))
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=_LOOK_S)
                reason = self._find_end(job)
                if reason is not None and not work.done():
                    work.cancel()
                    job.end(reason, time.monotonic())
                    return
            await work
        except asyncio.CancelledError:
            work.cancel()
            if not job.is_finished:
                job.sink.fail(ServerError("the server is shutting down"))
        except BaseException as error:  # a library's panic is no Exception, and the client waits for the sink
            job.sink.fail(to_public_error(as_failure(error), _log.error))
        finally:
            del self._jobs[job]

    def _find_end(self, job: Job) -> FinishReason | None:
        if job.sink.is_cancelled():
            return FinishReason.CANCELLED
        return FinishReason.DEADLINE if job.is_late(time.monotonic()) else self._jobs[job]

    async def _complete(self, job: Job) -> None:
        """Completes it with the first server that answers. Once text was sent, no other one is asked."""
        order = self._replicas.order(job.request)
        for replica, patience_s in order:
            try:
                server = await replica.find(patience_s)  # which tells how long a prompt can be
                if not job.is_prepared:
                    job.prepare()
                return await replica.ask(partial(self._complete_with, server, job), patience_s)
            except (ServerError, OverloadedError, ModelError) as error:
                replica.avoid(error)
                if job.costs.first_chunk_ms or replica is order[-1][0]:
                    raise

    async def _complete_with(self, server: RemoteServer, job: Job) -> None:
        request = job.request
        if request.is_prefetch:
            await server.read(request, job.prompt.context_ids)
            job.end(FinishReason.READ, time.monotonic())
            return
        choices = await self._choose(job, server)
        candidates = [self._begin(job, index, choice, server) for index, choice in enumerate(choices)]
        job.candidates = cast("list[Any]", candidates)
        job.send_ready(time.monotonic())
        for candidate in candidates:
            if not candidate.answer.finish_reason:
                await self._write_on(job, candidate, server)

    def _begin(self, job: Job, index: int, choice: Choice, server: RemoteServer) -> "_Candidate":
        tree, limits = job.prompt.tree, build_limits(job.request, job.prompt.reads_suffix)
        candidate = _Candidate(Answer(limits, len(job.prompt.healed)), index, is_told=server.tells_written)
        path = tuple(tree.branch_ids[branch] for branch in tree.find_path(choice.crossing.node))
        candidate.take(self._parts.vocabulary, path, choice)
        return candidate

    async def _choose(self, job: Job, server: RemoteServer) -> tuple[Choice, ...]:
        prompt, tree, request = job.prompt, job.prompt.tree, job.request
        paths = [tuple(tree.branch_ids[each] for each in tree.find_path(node)) for node in range(len(tree.branch_ids))]
        rows = [prompt.context_ids, *(prompt.context_ids + path for path in paths)]
        told = await server.score(request, rows)
        job.costs.num_forwards, job.costs.num_read_tokens = 1, told.num_read_tokens
        known = KnownScores(prompt.covering, self._parts.prompts.tokenizer.trie, told.rows)
        if request.explain or request.temperature > 0 or request.num_candidates > 1:
            return await self._draw(job, server, rows, known)
        while not isinstance(choice := known.choose(), Choice):
            asked = [server.answer(request, rows[probe.row], probe.token_ids) for probe in choice]
            known.answers |= dict(zip(choice, await ask_all(asked), strict=True))
            job.costs.num_forwards += 1
        return (choice,)

    async def _draw(
        self, job: Job, server: RemoteServer, rows: list[tuple[int, ...]], known: KnownScores
    ) -> tuple[Choice, ...]:
        """Chooses as an engine with the weights does, from so much of the rows that the rest makes no difference."""
        if not server.tells_rows:
            needed = "sampling, several texts and explanations need whole distributions"
            raise InvalidRequestError(f"{needed}, which {server.name} does not tell")
        request, tokenizer = job.request, self._parts.prompts.tokenizer
        sampler, temperature = NumpySampler(tokenizer.vocabulary, tokenizer.trie), request.temperature or 1.0
        sampling, crossings = Sampling(request.temperature, request.top_p), known.covering.crossings
        for num_top in _MORE[2 * request.explain :]:
            if num_top:
                known.rows = (await server.score(request, rows, num_top)).rows
                job.costs.num_forwards += 1
            told = [_ToldRow(each, tokenizer.vocabulary) for each in known.rows]
            asked = SampleRequest(job.prompt.tree, crossings, told, sampling, job.random_sources, wants_scores=True)
            (result,) = sampler.choose([asked])
            if sampling.is_greedy:
                enough = min(map(known.weigh, result.choices))
            else:  # whatever was drawn, or the unlikely would be drawn too seldom
                assert result.scores is not None, "they were asked for"
                enough = float(result.scores.best_log_probs.max()) / temperature + _NEGLIGIBLE
            if known.bound_unknown(temperature) <= enough:
                break
        if request.explain:
            job.explanation = build_explanation(tokenizer, job.prompt, result)
        return result.choices

    async def _write_on(self, job: Job, candidate: "_Candidate", server: RemoteServer) -> None:
        seed = job.request.seed
        request = replace(job.request, seed=None if seed is None else seed + candidate.index)
        async with aclosing(server.generate(request, (*job.prompt.context_ids, *candidate.token_ids))) as steps:
            async for step in steps:
                if isinstance(step, FinishReason):
                    candidate.answer.finish(step)
                else:
                    candidate.add(self._parts.vocabulary, step)
                job.send_ready(time.monotonic())
                if candidate.answer.finish_reason:
                    return self._look_at(candidate.answer, server)

    def _look_at(self, answer: Answer, server: RemoteServer) -> None:
        """Logs once if a text was ended by a number that is no log probability."""
        is_likely = answer.log_prob >= answer.limits.min_log_prob
        if answer.finish_reason is FinishReason.UNLIKELY and is_likely and not self._has_warned:
            self._has_warned = True
            _log.warning("%s has told NaN, or more than 1, as a probability; the text ends before it", server.name)


class _ToldRow(NumpyRow):
    """A row of log probabilities, in which a token that was not told has next to none."""

    log_total = 0.0

    def __init__(self, told: Mapping[int, float], vocabulary: Vocabulary) -> None:
        super().__init__(np.full(vocabulary.num_rows, -1e4, np.float32))
        for token_id in filter(vocabulary.has, told):
            self.logits[token_id] = told[token_id]


class EventLoopThread:
    """A thread with an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps none
        self._beat = time.monotonic()
        self._thread = threading.Thread(target=self._loop.run_forever, name="midtoken-engine", daemon=True)
        self._thread.start()
        self.call(self._note_beat)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls a function in the loop soon. Thread-safe."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it in the loop, and waits for its result. Not to be called from the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs it. To be called from the loop."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def cancel_all(self) -> None:
        """Cancels what was started, and waits until it has ended. To be called in the loop."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def measure_lag_ms(self) -> float:
        """Milliseconds since the loop should have made progress. Thread-safe."""
        return max(1e3 * (time.monotonic() - self._beat - _BEAT_S), 0.0)

    def close(self) -> None:
        """Stops the thread."""
        self.call(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _note_beat(self) -> None:
        self._beat = time.monotonic()
        self._loop.call_later(_BEAT_S, self._note_beat)


@dataclass(slots=True, eq=False)
class _Candidate:
    """What a `Job` sends."""

    answer: Answer
    index: int = 0
    token_ids: list[int] = field(default_factory=list)
    is_told: bool = True  # whether the probabilities of all tokens were told so far

    def take(self, vocabulary: Vocabulary, path: tuple[int, ...], choice: Choice) -> None:
        """Adds the tokens of the first choice."""
        self.token_ids += path
        self.answer.skip_healed(sum(len(vocabulary.token_bytes[token_id]) for token_id in path))
        self.add(vocabulary, Written(choice.token_id, choice.log_prob))

    def add(self, vocabulary: Vocabulary, written: Written) -> None:
        token_id = written.token_id
        if not vocabulary.has(token_id):
            raise ServerError(f"the engine has chosen the token {quote(str(token_id))}, which its model does not have")
        self.token_ids.append(token_id)
        if token_id in vocabulary.special_ids:
            self.answer.finish(FinishReason.END)
        else:
            self.is_told = self.is_told and written.log_prob is not None
            self.answer.add(vocabulary.token_bytes[token_id], log_prob=written.log_prob if self.is_told else None)
