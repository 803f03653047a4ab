"""Executes jobs with the model of a server elsewhere: choices are made here, scores and tokens come from there.

A job is a task in an event loop. It asks for the scores that its first choice needs, chooses exactly, and then has the
server write on from the chosen token. What it hears is applied by the engine's thread, in the next step. What was read
is cached by the server, in the slot that a document keeps to.
"""

import asyncio
import math
import queue
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from inference.engine.candidate import Candidate
from inference.engine.job import Job, StepCosts
from inference.errors import InvalidRequestError, ModelError, OverloadedError, ServerError, quote
from inference.healing.covering import Crossing, Rule
from inference.healing.loaded_tokenizer import LoadedTokenizer
from inference.model.sampler import Choice, NumpyRow, NumpyTokens, SampleRequest, SampleResult, Sampling, choose
from inference.protocol.completion import FinishReason, Healing
from inference.remote.choice import GeneratedToken, KnownLogprobs
from inference.remote.discovery import RemoteServer
from inference.remote.event_loop import EventLoopThread
from inference.remote.http_client import ask_all
from inference.remote.server_health import ServerHealth
from trie_cache.vocabulary import Vocabulary

_MORE = (0, 2000, 2**20)  # tokens of each row, where one is drawn: as usual, and if that is too little; all of them
_NEGLIGIBLE = math.log(0.001)  # of a probability; the server's own differ by more from run to run
_NEXT = Crossing(None, b"", Rule.EXTEND)
T = TypeVar("T")


class RemoteExecutor:
    """See `Executor`."""

    cache_tokens = max_prefilled = sys.maxsize  # the server knows its own
    memory_bytes: Mapping[str, int] = {}  # likewise
    runs_together = True
    reads_ahead = False  # a server's slot has one context

    def __init__(self, health: ServerHealth, tokenizer: LoadedTokenizer, loop: EventLoopThread) -> None:
        self.runs_as = health.name
        self._health, self._tokenizer, self._loop = health, tokenizer, loop
        self._tokens = NumpyTokens(tokenizer.vocabulary, tokenizer.trie)
        self._heard: queue.SimpleQueue[tuple[Job, Callable[[], None]]] = queue.SimpleQueue()
        self._running: dict[Job, Future[None]] = {}
        self._costs: dict[Job, StepCosts] = {}  # what the engine was not told

    @property
    def max_tokens(self) -> int:
        """Of its window, if that is known."""
        return self._health.max_tokens or sys.maxsize

    @property
    def problem(self) -> str:
        self._loop.call(self._health.look)
        return self._health.problem

    @property
    def has_work(self) -> bool:
        return not self._heard.empty()

    def start(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def admit(self, job: Job) -> None:
        if job.request.healing not in (Healing.EXACT, Healing.NONE):
            raise InvalidRequestError(f"the healing {job.request.healing} masks each token, which needs the weights")

    def begin(self, job: Job) -> None:
        self._running[job] = self._loop.start(self._run(job))

    def step(self, jobs: Sequence[Job], is_shared: bool) -> Mapping[Job, StepCosts]:  # noqa: ARG002  # the servers know it
        while self.has_work:
            job, act = self._heard.get()
            if job in self._running and job.failure is None:
                with job.recording_failure():
                    act()
        return {job: self._costs.pop(job, StepCosts()) for job in jobs}

    def end(self, job: Job) -> None:
        """Ends its work on the server, too: cancelling the task closes its stream, at which the server stops."""
        self._costs.pop(job, None)
        if job in self._running:
            self._running.pop(job).cancel()

    def close(self) -> None:
        self._loop.run(self._close())
        self._loop.close()

    async def _close(self) -> None:
        await self._loop.cancel_all()
        await self._health.close()

    async def _run(self, job: Job) -> None:
        try:
            await self._complete(job)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a library's panic is no Exception, and the client waits
            await self._apply(job, partial(_raise, error))

    async def _apply(self, job: Job, act: Callable[[], T]) -> T:
        """The result of a call that the engine's thread makes in its next step. If it raises, the job has failed."""
        result = asyncio.get_running_loop().create_future()
        self._heard.put((job, lambda: self._loop.call(_set_result, result, act())))
        self._wake()
        applied: T = await result
        return applied

    async def _complete(self, job: Job) -> None:
        try:
            server = await self._health.find()
            await self._health.ask(partial(self._complete_with, server, job))
        except (ServerError, OverloadedError, ModelError) as error:
            self._health.note(error)
            raise

    async def _complete_with(self, server: RemoteServer, job: Job) -> None:
        request, prompt = job.request, job.prompt
        if len(prompt.context_ids) + request.max_tokens > server.max_tokens:  # it was not known then
            raise OverloadedError(f"{server.name} sees {server.max_tokens} tokens only; try again in a moment")
        if request.is_prefetch:
            await server.prefill(request, prompt.context_ids)
            return await self._apply(job, partial(job.finish, FinishReason.PREFILLED))
        result, costs = await self._choose(job, server)
        for candidate in await self._apply(job, partial(self._begin_decode, server, job, result, costs)):
            await self._generate(job, candidate, server)

    def _begin_decode(self, server: RemoteServer, job: Job, result: SampleResult, costs: StepCosts) -> list[Candidate]:
        """Takes the first choices. Returns the candidates that go on."""
        self._costs[job] = costs
        tree, candidates = job.prompt.tree, job.begin_decode(result, self._tokenizer)
        for candidate, choice in zip(candidates, result.choices, strict=True):
            self._check_token(choice.token_id)
            path = tree.spell_path(choice.crossing.node)
            candidate.take(path, choice if server.returns_logprobs else replace(choice, log_prob=None))
        return [candidate for candidate in candidates if not candidate.is_finished]

    async def _choose(self, job: Job, server: RemoteServer) -> tuple[SampleResult, StepCosts]:
        """The first choices, and what the server has done for them."""
        prompt, tree, request = job.prompt, job.prompt.tree, job.request
        nodes = (None, *range(len(tree.branch_ids)))
        rows = [prompt.context_ids + tree.spell_path(node) for node in nodes]
        reported, num_forwards = await server.score(request, rows), 1
        known = KnownLogprobs(prompt.covering, self._tokenizer.trie, reported.rows)
        if request.explain or request.temperature > 0 or request.num_candidates > 1:
            result, num_more = await self._draw(job, server, rows, known)
            return result, StepCosts(num_forwards=num_forwards + num_more, num_read_tokens=reported.num_read_tokens)
        while not isinstance(choice := known.choose(), Choice):
            asked = [server.find_best_token(request, rows[query.row], query.token_ids) for query in choice]
            known.answers |= dict(zip(choice, await ask_all(asked), strict=True))
            num_forwards += 1
        return SampleResult((choice,)), StepCosts(num_forwards=num_forwards, num_read_tokens=reported.num_read_tokens)

    async def _draw(
        self, job: Job, server: RemoteServer, rows: list[tuple[int, ...]], known: KnownLogprobs
    ) -> tuple[SampleResult, int]:
        """Chooses as an engine with the weights does, from so much of the rows that the rest makes no difference."""
        if not server.returns_distributions:
            needed = "sampling, several texts and explanations need whole distributions"
            raise InvalidRequestError(f"{needed}, which {server.name} does not tell")
        request, vocabulary = job.request, self._tokenizer.vocabulary
        temperature = request.temperature or 1.0
        sampling, crossings = Sampling(request.temperature, request.top_p), known.covering.crossings
        sources = tuple(map(np.random.default_rng, job.list_seeds()))
        num_more = 0
        for num_top in _MORE[2 * request.explain :]:
            if num_top:
                known.rows = (await server.score(request, rows, num_top)).rows
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

    async def _generate(self, job: Job, candidate: Candidate, server: RemoteServer) -> None:
        seed = job.request.seed
        request = replace(job.request, seed=None if seed is None else seed + candidate.index)
        prompt = (*job.prompt.context_ids, *candidate.token_ids)  # which only this changes from now on
        async with aclosing(server.generate(request, prompt)) as steps:
            async for step in steps:
                if await self._apply(job, partial(self._take, candidate, step, server)):
                    return

    def _take(self, candidate: Candidate, step: GeneratedToken | FinishReason, server: RemoteServer) -> bool:
        """Adds what a server has written. Returns whether the candidate has ended."""
        answer = candidate.answer
        if isinstance(step, FinishReason):
            answer.finish(step)
            return True
        self._check_token(step.token_id)
        candidate.take((), Choice(_NEXT, step.token_id, step.log_prob if server.returns_logprobs else None))
        return candidate.is_finished

    def _check_token(self, token_id: int) -> None:
        if not self._tokenizer.vocabulary.has(token_id):
            raise ServerError(f"the engine has chosen the token {quote(str(token_id))}, which its model does not have")


def _raise(error: BaseException) -> None:
    raise error


def _set_result(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():  # it may have been cancelled
        future.set_result(result)


class _ReportedRow(NumpyRow):
    """A row of log probabilities, in which a token that was not reported has next to none."""

    log_total = 0.0

    def __init__(self, reported: Mapping[int, float], vocabulary: Vocabulary, tokens: NumpyTokens) -> None:
        super().__init__(np.full(vocabulary.num_rows, -1e4, np.float32), tokens)
        for token_id in filter(vocabulary.has, reported):
            self.logits[token_id] = reported[token_id]
