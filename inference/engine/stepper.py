"""One step of many jobs: build the steps, forward all of them in one pass, accept the chosen tokens."""

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from inference.engine.candidate import Candidate
from inference.engine.detokenizer import Detokenizer
from inference.engine.explanation import build_explanation
from inference.engine.job import Job
from inference.engine.prompts.prompt import PromptBuilder
from inference.errors import describe_failure
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Choice, LanguageModel, SampleRequest, SampleResult, SequenceCache, Step
from inference.protocol.completion import FinishReason

_log = logging.getLogger(__name__)

_PREFILL_TOKENS = 512  # prefilled per request and step; limits the delay for other requests


@dataclass(frozen=True, slots=True)
class _Turn:
    """One sequence's part in a step."""

    job: Job
    candidate: Candidate
    step: Step


class Stepper:
    """Advances many jobs together, one step at a time."""

    def __init__(self, model: LanguageModel, prompts: PromptBuilder) -> None:
        self._model = model
        self._prompts = prompts

    def step(self, jobs: Sequence[Job]) -> None:
        """Advances each job by one token, or by one piece of a long context.

        An exception fails only the job that it belongs to, and is stored in `Job.failure`.
        """
        turns = [turn for job in jobs for turn in _begin_turns(job)]
        for turn, result in self._forward(turns):
            if turn.job.failure is None:  # an earlier sequence of the job may have failed
                with turn.job.recording_failure():
                    self._finish_turn(turn, result)

    def _forward(self, turns: list[_Turn]) -> list[tuple[_Turn, SampleResult | None]]:
        """The result of each turn, from one pass over all of them.

        A failed pass leaves the caches unchanged. Each job is then tried alone, and fails if its pass fails again.
        """
        if not turns:
            return []
        try:
            return list(zip(turns, self._model.step([turn.step for turn in turns]), strict=True))
        except Exception as error:
            by_job = [list(own) for _, own in groupby(turns, key=lambda turn: id(turn.job))]
            if len(by_job) == 1:
                turns[0].job.failure = error
                return []
            _log.warning("a step of several requests failed with %s; each is tried alone", describe_failure(error))
        return [result for own in by_job for result in self._forward(own)]

    def _finish_turn(self, turn: _Turn, result: SampleResult | None) -> None:
        if result is not None:
            self._accept(turn, result)
            return
        turn.step.cache.keep(turn.step.tree, None)
        turn.job.num_prefilled += len(turn.step.tree.chain_ids)
        turn.job.counters.num_prefill_forwards += 1

    def _accept(self, turn: _Turn, result: SampleResult) -> None:
        job, candidate, step = turn.job, turn.candidate, turn.step
        job.counters.num_hot_hits += result.num_hot_hits
        job.counters.num_hot_misses += result.num_hot_misses
        if job.prompt.healed and (not candidate.token_ids or candidate.crossings[0].remaining_bytes):
            job.counters.num_healing_forwards = job.counters.num_forwards - job.counters.num_prefill_forwards
        if job.request.explain and job.explanation is None:
            job.explanation = build_explanation(self._prompts, job.prompt, step.tree, candidate.crossings, result)
        if len(result.choices) > 1:  # the first choice of several candidates, which differ from now on
            self._branch(job, candidate, step, result.choices)
            return
        [choice] = result.choices
        step.cache.keep(step.tree, choice.crossing.node)
        self._take_choice(candidate, step.tree, choice)

    def _branch(self, job: Job, first: Candidate, step: Step, choices: tuple[Choice, ...]) -> None:
        caches = [step.cache, *(step.cache.fork() for _ in choices[1:])]
        job.candidates = []
        for index, (choice, cache) in enumerate(zip(choices, caches, strict=True)):
            candidate = Candidate(index, first.tree, first.crossings, first.limits, Detokenizer(len(job.prompt.healed)))
            cache.keep(step.tree, choice.crossing.node)
            self._take_choice(candidate, step.tree, choice)
            job.candidates.append(candidate)
        job.caches = caches

    def _take_choice(self, candidate: Candidate, tree: TokenTree, choice: Choice) -> None:
        token_bytes = self._prompts.vocabulary.token_bytes
        path = tuple(tree.branch_ids[branch] for branch in tree.find_path(choice.crossing.node))
        candidate.accept_path(path, b"".join(token_bytes[token_id] for token_id in path))
        if choice.token_id in self._prompts.vocabulary.special_ids:
            candidate.finish(FinishReason.END)
        else:
            candidate.accept_token(choice.crossing, choice.token_id, token_bytes[choice.token_id])


def _begin_turns(job: Job) -> list[_Turn]:
    """A turn for each unfinished candidate, with room reserved in its cache; none if the job has failed."""
    if job.failure is not None:
        return []
    turns: list[_Turn] = []
    with job.recording_failure():
        for candidate, cache in zip(job.candidates, job.caches, strict=True):
            if not candidate.finish_reason:
                turns.append(_Turn(job, candidate, _build_step(job, candidate, cache)))
        for turn in turns:
            turn.step.cache.reserve(turn.step.tree.num_rows)
        job.counters.num_forwards += 1
    return [] if job.failure else turns


def _build_step(job: Job, candidate: Candidate, cache: SequenceCache) -> Step:
    """The sequence's tree; while a long context is prefilled, a piece of its chain."""
    sample = _build_sample_request(job, candidate)
    if candidate.token_ids:
        return Step(cache, candidate.tree, sample)
    unread = candidate.tree.chain_ids[job.num_prefilled :]
    if len(unread) > _PREFILL_TOKENS:
        return Step(cache, TokenTree(unread[:_PREFILL_TOKENS]))
    return Step(cache, dataclasses.replace(candidate.tree, chain_ids=unread), sample)


def _build_sample_request(job: Job, candidate: Candidate) -> SampleRequest:
    """The request for the next choice. The first one of a job is for all its candidates together."""
    is_first = not candidate.token_ids
    random_sources = job.random_sources if is_first else (job.random_sources[candidate.index],)
    return SampleRequest(candidate.tree, candidate.crossings, job.sampling, random_sources)
