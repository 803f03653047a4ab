"""An executor in front of an inference server: choices are made here, log probabilities and tokens come from there.

A job has one task after the other in an event loop. The first asks for the log probabilities that the first choice
needs, and chooses exactly. Once the engine's thread has taken that choice, the second has the server write on from
there. What the tasks report is applied by the engine's thread, in its next step. The server caches what it has
prefilled, in the slot that a document keeps to.
"""

import asyncio
import math
import queue
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from inference.config import EngineConfig, find_engine_url
from inference.engine.candidate import Candidate
from inference.engine.engine import Engine, ExecutorInfo
from inference.engine.fill_in import list_fill_ins
from inference.engine.job import Job
from inference.engine.prompt import PromptBuilder
from inference.errors import (
    InferenceServerUnreachableError,
    InvalidRequestError,
    MidtokenError,
    ModelError,
    OverloadedError,
    ServerError,
    as_failure,
    quote,
)
from inference.healing.covering import Crossing, Rule
from inference.healing.loaded_tokenizer import LoadedTokenizer, load_tokenizer
from inference.model.sampler import NumpyRow, NumpyTokens, SampledToken, SampleRequest, SampleResult, Sampling, choose
from inference.model.sizes import MEDIUM_TOKENS, check_context_tokens
from inference.model_folder import read_folder_file
from inference.protocol.completion import FinishReason, Healing
from inference.remote.choice import GeneratedToken, KnownLogprobs
from inference.remote.health import Find, ServerHealth, detect_server
from inference.remote.http_client import HttpClient
from inference.remote.server import RemoteServer
from trie_cache.trie import Vocabulary

_NUM_TOPS = (0, 2000, 2**20)  # tokens of each row, where one is drawn: as usual, and if that is too little; all of them
_NEGLIGIBLE = math.log(0.001)  # of a probability; the server's own differ by more from run to run
_NEXT = Crossing(None, b"", Rule.EXTEND)
T = TypeVar("T")


class RemoteExecutor:
    """See `Executor`."""

    max_prefilled = sys.maxsize  # the server knows its own limit
    memory_bytes: Mapping[str, int] = {}  # the server's own

    def __init__(self, config: EngineConfig, tokenizer: LoadedTokenizer, find: Find) -> None:
        """Starts the thread of its event loop. Raises ModelError if the server cannot be used, or does not answer."""
        self._tokenizer, self._tokens = tokenizer, NumpyTokens(tokenizer.vocabulary, tokenizer.trie)
        self._events: queue.SimpleQueue[tuple[Job, Callable[[], object]]] = queue.SimpleQueue()
        self._running: dict[Job, Future[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="midtoken-remote", daemon=True)
        self._thread.start()
        try:
            self._health = self._start(_open(config, tokenizer.sample, find)).result()
        except MidtokenError as error:  # each means that the server cannot be used
            self._stop_loop()
            if isinstance(error, InferenceServerUnreachableError):  # it may be started yet
                raise
            raise ModelError(str(error)) from error
        # The server knows its own capacity, and a slot has one context.
        name = self._health.http.name
        self.info = ExecutorInfo(sys.maxsize, runs_together=True, anticipates_typing=False, runs_as=name)

    @property
    def max_tokens(self) -> int:
        """Of its window, if that is known."""
        return self._health.max_tokens or sys.maxsize

    @property
    def problem(self) -> str:
        self._loop.call_soon_threadsafe(self._health.look)
        return self._health.problem

    def estimate_prefill_s(self, num_tokens: int) -> float:  # noqa: ARG002
        return 0.0  # a slot has one context

    @property
    def has_work(self) -> bool:
        return not self._events.empty()

    def start(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def admit(self, job: Job) -> None:
        if job.request.healing not in (Healing.EXACT, Healing.NONE):
            raise InvalidRequestError(f"the healing {job.request.healing} masks each token, which needs the weights")

    def begin(self, job: Job) -> None:
        self._running[job] = self._start(self._run(job, partial(self._choose, job)))

    def step(self, jobs: Sequence[Job], is_shared: bool) -> None:  # noqa: ARG002  # the servers know it
        while self.has_work:
            job, apply = self._events.get()
            if job in self._running and job.failure is None:
                with job.recording_failure():
                    apply()

    def end(self, job: Job) -> None:
        """Ends its work on the server, too: cancelling the task closes its stream, at which the server stops."""
        if job in self._running:
            self._running.pop(job).cancel()

    def close(self) -> None:
        self._start(self._close()).result()
        self._stop_loop()

    def _start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._health.http.close()

    async def _run(self, job: Job, work: Callable[[RemoteServer], Coroutine[Any, Any, None]]) -> None:
        """Does the work with the server. What fails is reported."""
        try:
            server = await self._health.find()
            await self._health.ask(partial(work, server))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a library's panic is no Exception, and the client waits
            if isinstance(error, ServerError | OverloadedError | ModelError):
                self._health.note(error)
            self._report(job, partial(setattr, job, "failure", as_failure(error)))

    def _report(self, job: Job, apply: Callable[[], object]) -> None:
        """Has the engine's thread apply what the server has answered."""
        self._events.put((job, apply))
        self._wake()

    async def _choose(self, job: Job, server: RemoteServer) -> None:
        """Reports the first choices; of a prefetch or a probe, that it is prefilled."""
        request, prompt, tree = job.request, job.prompt, job.prompt.tree
        if len(prompt.context_ids) + request.max_tokens > server.max_tokens:  # it was not known then
            raise OverloadedError(f"{server.name} sees {server.max_tokens} tokens only; try again in a moment")
        if request.is_prefetch or request.is_probe:
            await server.prefill(request, prompt.context_ids)
            reason = FinishReason.PREFILLED if request.is_prefetch else FinishReason.LENGTH
            return self._report(job, partial(job.finish, reason))
        rows = [prompt.context_ids + tree.spell_path(node) for node in (None, *range(len(tree.branch_ids)))]
        (reported, num_cached), num_forwards = await server.score(request, rows), 1
        known = KnownLogprobs(prompt.covering, self._tokenizer.trie, reported)
        if request.explain or request.temperature > 0 or request.num_candidates > 1:
            result, num_more = await self._draw(job, server, rows, known)
            num_forwards += num_more
        else:
            while not isinstance(choice := known.choose(), SampledToken):
                asked = [server.find_best_token(request, rows[query.row], query.token_ids) for query in choice]
                known.answers |= dict(zip(choice, await asyncio.gather(*asked), strict=True))
                num_forwards += 1
            result = SampleResult((choice,))
        if not server.returns_logprobs:
            result = replace(result, choices=tuple(replace(each, log_prob=None) for each in result.choices))
        self._report(job, partial(self._begin_decode, job, result, num_forwards, num_cached))

    def _begin_decode(self, job: Job, result: SampleResult, num_forwards: int, num_cached: int | None) -> None:
        """Takes the first choices, and has the server write on from those of candidates that have not ended."""
        job.costs.num_forwards = num_forwards
        if num_cached is not None:
            job.costs.num_cached_tokens = min(max(num_cached, 0), job.costs.num_context_tokens)
        candidates = job.begin_decode(result, self._tokenizer)
        for candidate, choice in zip(candidates, result.choices, strict=True):
            self._check_token(choice.token_id)
            candidate.accept(job.prompt.tree.spell_path(choice.crossing.node), choice)
        if unfinished := [each for each in candidates if not each.is_finished]:
            self._running[job] = self._start(self._run(job, partial(self._generate, job, unfinished)))

    async def _draw(
        self, job: Job, server: RemoteServer, rows: list[tuple[int, ...]], known: KnownLogprobs
    ) -> tuple[SampleResult, int]:
        """Chooses as an executor with the weights does, from so much of the rows that the rest makes no difference."""
        if not server.returns_distributions:
            needed = "sampling, several texts and explanations need whole distributions"
            raise InvalidRequestError(f"{needed}, which {server.name} does not tell")
        request, vocabulary = job.request, self._tokenizer.vocabulary
        temperature = request.temperature or 1.0
        sampling, crossings = Sampling(request.temperature, request.top_p), known.covering.crossings
        sources = tuple(map(np.random.default_rng, job.list_seeds()))
        num_more = 0
        for num_top in _NUM_TOPS[2 * request.explain :]:
            if num_top:
                known.rows, _ = await server.score(request, rows, num_top)
                num_more += 1
            reported = [_ReportedRow(each, vocabulary, self._tokens) for each in known.rows]
            asked = SampleRequest(job.prompt.tree, crossings, reported, sampling, sources, wants_scores=True)
            result = choose(asked)
            if sampling.is_greedy:
                enough = min(map(known.weigh, result.choices))
            else:  # whatever was drawn, or the unlikely would be drawn too seldom
                assert result.scores is not None, "they were asked for"
                enough = float(result.scores.best_log_probs.max()) / temperature + _NEGLIGIBLE
            if known.bound_unknown(temperature) <= enough:
                break
        return result, num_more

    async def _generate(self, job: Job, candidates: Sequence[Candidate], server: RemoteServer) -> None:
        """Reports what the server writes. The engine's thread ends a candidate, which is noticed at the next token."""
        seeds = job.list_seeds()
        for candidate in candidates:
            prompt = (*job.prompt.context_ids, *candidate.token_ids)
            num_left = job.request.max_tokens - candidate.text.num_new  # the prompt ends with the others
            async with aclosing(server.generate(job.request, prompt, num_left, seeds[candidate.index])) as tokens:
                async for token in tokens:
                    if candidate.is_finished:
                        break
                    if isinstance(token, GeneratedToken) and not server.returns_logprobs:
                        token = GeneratedToken(token.token_id, None)
                    self._report(job, partial(self._accept, candidate, token))

    def _accept(self, candidate: Candidate, token: GeneratedToken | FinishReason) -> None:
        if candidate.is_finished:
            return
        if isinstance(token, FinishReason):
            candidate.text.finish(token)
        else:
            self._check_token(token.token_id)
            candidate.accept((), SampledToken(_NEXT, token.token_id, token.log_prob))

    def _check_token(self, token_id: int) -> None:
        if not self._tokenizer.vocabulary.has(token_id):
            name = self._health.http.name
            raise ServerError(f"{name} has chosen the token {quote(str(token_id))}, which its model does not have")


class _ReportedRow(NumpyRow):
    """A row of log probabilities, in which a token that was not reported has next to none."""

    def __init__(self, reported: Mapping[int, float], vocabulary: Vocabulary, tokens: NumpyTokens) -> None:
        super().__init__(np.full(vocabulary.num_rows, -1e4, np.float32), tokens)
        self._log_total = 0.0
        for token_id in filter(vocabulary.has, reported):
            self.logits[token_id] = reported[token_id]


def load_remote_engine(config: EngineConfig, find: Find = detect_server) -> Engine:
    """An engine for the server `config.engine_url`, with the tokenizer in `config.model_dir`. Raises ModelError."""
    tokenizer = load_tokenizer(config.model_dir)
    fill_ins, _ = list_fill_ins(config.fill_in_layout, config.model_dir, tokenizer.vocabulary)
    prompts = PromptBuilder(tokenizer, next(iter(fill_ins), None))
    context_tokens = config.max_context_tokens or read_folder_file(config.model_dir).context_tokens or MEDIUM_TOKENS
    executor = RemoteExecutor(config, tokenizer, find)
    return Engine(replace(config, max_context_tokens=context_tokens), executor, prompts)


async def _open(config: EngineConfig, sample: Sequence[tuple[str, tuple[int, ...]]], find: Find) -> ServerHealth:
    """The server. Raises ModelError or ServerError."""
    health = ServerHealth(HttpClient(find_engine_url(config.engine_url), config.engine_key), sample, find)
    try:
        with suppress(OverloadedError):  # as llama.cpp's server is while it loads: requests get an error then
            await health.check()
        check_context_tokens(config, health.max_tokens or sys.maxsize)
    except BaseException:
        await health.http.close()
        raise
    return health
