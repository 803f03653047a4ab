"""An engine with a model in this process: loads it, and executes jobs.

In a step, what is known is chosen at once, and the rest is forwarded in one pass.

What a pass computes becomes part of a running sequence's `TokenSequence`, and choices are made from there. So it does
not matter whether a node was forwarded for this request, for an earlier one, or as a draft.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

import numpy as np

from inference.config import EngineConfig
from inference.engine.engine import Engine, ExecutorInfo, complete
from inference.engine.fill_in import choose_fill_in
from inference.engine.job import Job
from inference.engine.prefix_cache import PrefixCache
from inference.engine.prompt import PromptBuilder
from inference.engine.running_sequence import RunningSequence
from inference.errors import MidtokenError, ModelError, as_failure, describe_failure, to_public_error
from inference.healing.loaded_tokenizer import LoadedTokenizer
from inference.model.language_model import LanguageModel, LoadedModel, SequencePart
from inference.model.loader import load_model
from inference.model.sampler import SampleRequest, SampleResult
from inference.model.sizes import choose_loaded_context_tokens
from inference.protocol.completion import CompletionRequest, FinishReason

_log = logging.getLogger(__name__)

_MAX_PREFILLS_PER_STEP = 2  # full pieces of contexts, in one step of many requests
_STEP_S = 1.0  # that a step should take at most: a key that comes meanwhile waits for its end
_MIN_TOKENS, _MAX_TOKENS = 16, 512  # of a step. A pass over fewer takes nearly as long, and says little of the speed
_PREFETCH_STEPS = 8  # instead of one
_SHARED_STEP_S = 0.03  # that a step should take while other people wait: most of them need less than that in all
_EQUAL_TOKENS = 64  # a pass over so many counts as much as all before: many short ones do not outweigh a long one

_Asked = TypeVar("_Asked")
_Result = TypeVar("_Result")


class PrefillSpeed:
    """How long contexts take to prefill. Small passes take more time for each token, so they count for less."""

    def __init__(self) -> None:
        self._seconds_per_token: float | None = None

    def note(self, num_tokens: int, seconds: float) -> None:
        """Notes a pass."""
        if num_tokens < _MIN_TOKENS:
            return
        latest = seconds / num_tokens
        before = latest if self._seconds_per_token is None else self._seconds_per_token
        self._seconds_per_token = before + (latest - before) * num_tokens / (num_tokens + _EQUAL_TOKENS)

    def estimate_s(self, num_tokens: int) -> float:
        """How many seconds it takes to prefill as many tokens, 0 if that is not known."""
        return num_tokens * (self._seconds_per_token or 0.0)

    def find_max_tokens(self, is_prefetch: bool = False, is_shared: bool = False) -> int:
        """The most tokens of a context that one step should forward. A key must not wait long for a prefetch's step.

        `is_shared`: other people wait; then a person's step is short, too.
        """
        if self._seconds_per_token is None:
            return _MIN_TOKENS
        step_s = _SHARED_STEP_S if is_shared and not is_prefetch else _STEP_S
        num_tokens = int(min(step_s / max(self._seconds_per_token, 1e-9), _MAX_TOKENS))
        return max(num_tokens // _PREFETCH_STEPS if is_prefetch else num_tokens, _MIN_TOKENS)


class LocalExecutor:
    """See `Executor`. An exception fails only the job that it belongs to."""

    problem = ""  # it has the model
    has_work = True

    def __init__(
        self,
        config: EngineConfig,
        model: LanguageModel,
        tokenizer: LoadedTokenizer,
        clock: Callable[[], float],
        runs_as: str,
    ) -> None:
        self.model = model
        self.info = ExecutorInfo(config.cache_tokens, model.runs_together, anticipates_typing=True, runs_as=runs_as)
        self._speed = PrefillSpeed()
        self._tokenizer = tokenizer
        self._clock = clock
        self._max_bytes = config.memory_mib * 2**20
        self._prefix_cache = PrefixCache(model.new_cache, self._max_bytes)
        self._running: dict[Job, list[RunningSequence]] = {}  # the first one's sequence stays cached

    @property
    def max_tokens(self) -> int:
        return self.model.max_tokens

    @property
    def max_prefilled(self) -> int:
        return _MAX_PREFILLS_PER_STEP * self._speed.find_max_tokens()

    @property
    def memory_bytes(self) -> Mapping[str, int]:
        return {**self._prefix_cache.num_bytes, "limit": self._max_bytes}

    def estimate_prefill_s(self, num_tokens: int) -> float:
        return self._speed.estimate_s(num_tokens)

    def start(self, wake: Callable[[], None]) -> None:
        """A step always has work."""

    def admit(self, job: Job) -> None:
        context_ids = job.prompt.context_ids
        job.num_to_prefill = len(context_ids) - self._prefix_cache.count_cached(job.request.tenant, context_ids)

    def begin(self, job: Job) -> None:
        seeds, is_greedy = job.list_seeds(), job.request.temperature == 0.0
        sources = tuple(None if is_greedy else np.random.default_rng(seed) for seed in seeds)
        sequence = self._prefix_cache.acquire(job.request.tenant, job.prompt.context_ids, job.max_cached_tokens)
        first = RunningSequence(job, sequence, sources, self.model.token_cost)
        self._running[job] = [first]
        first.tree = first.tree.with_chain(sequence.reuse(job.prompt.context_ids))
        job.num_to_prefill = len(first.tree.chain_ids)
        job.costs.num_cached_tokens = job.costs.num_context_tokens - job.num_to_prefill

    def step(self, jobs: Sequence[Job], is_shared: bool) -> None:
        self._choose_known(jobs)
        self._forward(jobs, is_shared)
        self._choose_known(jobs)
        self._prefix_cache.shrink()  # the logits of those that run have become more

    def end(self, job: Job) -> None:
        for running in self._running.pop(job, [])[:1]:
            self._prefix_cache.release(running.sequence)

    def close(self) -> None:
        """The model ends with the process."""

    def _list_active(self, jobs: Iterable[Job]) -> list[RunningSequence]:
        """The running sequences that have not ended; none of a job that has ended or failed."""
        running = (job for job in jobs if job.failure is None and not job.is_finished)
        return [each for job in running for each in self._running[job] if _is_active(each)]

    def _choose_known(self, jobs: Iterable[Job]) -> None:
        """Chooses tokens as long as all that is needed was forwarded."""
        sequences = self._list_active(jobs)
        while sequences:
            asked: list[tuple[RunningSequence, SampleRequest]] = []
            for running in sequences:
                with running.job.recording_failure():
                    request = running.prepare_choice()
                    if request is not None:
                        asked.append((running, request))
            sequences = self._choose(asked)

    def _choose(self, asked: Sequence[tuple[RunningSequence, SampleRequest]]) -> list[RunningSequence]:
        """Chooses for these sequences. Returns those that may go on."""
        advanced: list[RunningSequence] = []
        for chosen, results, ms in self._call(self.model.choose, asked):
            for job in dict.fromkeys(running.job for running, _ in chosen):
                job.costs.choice_ms += ms
            for (running, _), result in zip(chosen, results, strict=True):
                if running.job.failure is None:
                    with running.job.recording_failure():
                        advanced += self._advance(running, result)
        return [running for running in advanced if running.job.failure is None]

    def _advance(self, running: RunningSequence, result: SampleResult) -> list[RunningSequence]:
        """Takes choices, if they are certain. Returns the sequences that may choose again. Raises OverloadedError."""
        job = running.job
        if result.missing:
            running.missing = result.missing
            return [running]
        if job.request.is_prefetch:
            job.finish(FinishReason.PREFILLED)
            return []
        sequences = [running]
        if running.candidate is None:
            sequences = self._running[job] = running.fork(job.begin_decode(result, self._tokenizer))
        for each, choice in zip(sequences, result.choices, strict=True):
            each.accept(choice)
        return list(filter(_is_active, sequences))

    def _forward(self, jobs: Iterable[Job], is_shared: bool) -> None:
        """Forwards what the sequences need before their next choice. A pass that fails leaves the caches unchanged."""
        built: list[tuple[RunningSequence, SequencePart]] = []
        for running in self._list_active(jobs):
            with running.job.recording_failure():
                max_tokens = self._speed.find_max_tokens(running.job.request.is_prefetch, is_shared)
                built.append((running, running.build_part(max_tokens)))
        built = [(running, part) for running, part in built if running.job.failure is None]
        for forwarded, rows, ms in self._call(self.model.forward, built):
            self._speed.note(sum(part.num_new_tokens for _, part in forwarded), ms / 1e3)
            for job in dict.fromkeys(running.job for running, _ in forwarded):
                job.costs.model_ms += ms
                job.costs.num_forwards += 1
            max_bytes = self._max_bytes // max(sum(job.request.num_candidates for job in self._running), 1)  # of rows
            for (running, part), own_rows in zip(forwarded, rows, strict=True):
                with running.job.recording_failure():
                    running.absorb(part, own_rows, max_bytes)

    def _call(
        self, call: Callable[[list[_Asked]], list[_Result]], asked: Sequence[tuple[RunningSequence, _Asked]]
    ) -> Iterator[tuple[Sequence[tuple[RunningSequence, _Asked]], list[_Result], float]]:
        """Calls the model for all jobs together; if that fails, for each job alone, which may fail by itself.

        Yields what was asked together, the results and the milliseconds.
        """
        by_job = [list(own) for _, own in groupby(asked, key=lambda each: each[0].job)]
        started_at = self._clock()
        try:
            results = call([each for _, each in asked]) if asked else []
        except BaseException as error:  # which this deletes: its traceback refers to the sequences
            if len(by_job) == 1:
                asked[0][0].job.failure = asked[0][0].job.failure or as_failure(error)
                return
            _log.warning(
                "a step of several requests failed with %s; each is tried alone", describe_failure(as_failure(error))
            )
        else:
            yield asked, results, 1e3 * (self._clock() - started_at)
            return
        for own in by_job:
            yield from self._call(call, own)


def _is_active(running: RunningSequence) -> bool:
    return running.candidate is None or not running.candidate.is_finished


def load_engine(config: EngineConfig) -> Engine:
    """Returns an engine for the model in `config.model_dir`, tested with one small completion.

    Raises ModelError if the model cannot be used.
    """
    return build_engine(config, load_model(config))


def build_engine(config: EngineConfig, loaded: LoadedModel[LanguageModel]) -> Engine:
    """Returns an engine for a model that is loaded already, as `load_engine`."""
    try:
        context_tokens, fill_in = choose_loaded_context_tokens(config, loaded), choose_fill_in(config, loaded)
    except Exception as error:  # a model's code may raise anything in its first pass
        raise ModelError(f"the model cannot be used: {to_public_error(error, _log.error)}") from error
    cache_tokens = min(config.cache_tokens, loaded.cache_tokens)
    config = dataclasses.replace(config, max_context_tokens=context_tokens, cache_tokens=cache_tokens)
    engine = start_engine(config, loaded.model, PromptBuilder(loaded.tokenizer, fill_in), runs_as=loaded.runs_as)
    try:
        complete(engine, CompletionRequest("a = b", "\n", max_tokens=2))  # because the first one is slow
    except MidtokenError as error:
        engine.close()
        raise ModelError(f"the model cannot be used: {error}") from error
    return engine


def start_engine(
    config: EngineConfig,
    model: LanguageModel,
    prompts: PromptBuilder,
    clock: Callable[[], float] = time.monotonic,
    runs_as: str = "",
) -> Engine:
    """Returns an engine for a model, which is not tested. `runs_as`: see `ExecutorInfo`."""
    return Engine(config, LocalExecutor(config, model, prompts.tokenizer, clock, runs_as), prompts, clock)
