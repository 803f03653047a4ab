"""One step of many jobs: what is known already is chosen at once, the rest is forwarded in one pass.

What a pass computes becomes part of the job's `ReadSequence`, and choices are made from there. So it does not matter
whether a node was read for this request, for an earlier one, or as a draft.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from inference.engine.candidate import Candidate, Detokenizer
from inference.engine.drafts import Drafter
from inference.engine.explanation import build_explanation
from inference.engine.job import Job
from inference.engine.prompt import PromptBuilder
from inference.engine.read_sequence import ReadSequence
from inference.engine.stopping import LineRule
from inference.errors import describe_failure
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Choice, LanguageModel, Part, SampleRequest, SampleResult
from inference.protocol.completion import FinishReason

_log = logging.getLogger(__name__)

_PREFILL_TOKENS = 512  # prefilled per request and step; limits the delay for other requests


@dataclass(frozen=True, slots=True)
class _Turn:
    """One sequence's part in a step."""

    job: Job
    candidate: Candidate
    sequence: ReadSequence


@dataclass(frozen=True, slots=True)
class _Reading(_Turn):
    """A turn that needs a pass."""

    part: Part


@dataclass(frozen=True, slots=True)
class _Choosing(_Turn):
    """A turn whose next token can be chosen."""

    rows: list[Any]  # of LogitRow, or None for nodes that were not read


class Stepper:
    """Advances many jobs together, one step at a time."""

    def __init__(
        self, model: LanguageModel, prompts: PromptBuilder, clock: Callable[[], float], drafter: Drafter | None = None
    ) -> None:
        """`drafter`: proposes guesses; None for no drafts."""
        self._model = model
        self._prompts = prompts
        self._clock = clock
        self._drafter = drafter

    def step(self, jobs: Sequence[Job]) -> None:
        """Advances each job by at least one token, or by one piece of a long context.

        An exception fails only the job that it belongs to, and is stored in `Job.failure`.
        """
        readings = [reading for turn in self._choose_known(jobs) for reading in self._begin_reading(turn)]
        for reading, rows in self._forward([reading for reading in readings if reading.job.failure is None]):
            with reading.job.recording_failure():
                self._absorb(reading, rows)
        self._choose_known(jobs)

    def _choose_known(self, jobs: Sequence[Job]) -> list[_Turn]:
        """Chooses tokens as long as all that is needed was read. Returns the turns that need a pass."""
        waiting: list[_Turn] = []
        turns = [turn for job in jobs for turn in _list_turns(job)]
        while turns:
            choosing: list[_Choosing] = []
            for turn in turns:
                with turn.job.recording_failure():
                    rows = _find_rows(turn)
                    if rows is None:
                        waiting.append(turn)
                    else:
                        choosing.append(_Choosing(turn.job, turn.candidate, turn.sequence, rows))
            turns = []
            for chosen, result in self._choose(choosing):
                if chosen.job.failure is None:
                    with chosen.job.recording_failure():
                        turns += self._accept(chosen, result)
            turns = [turn for turn in turns if turn.job.failure is None]
        return waiting

    def _begin_reading(self, turn: _Turn) -> list[_Reading]:
        """The next pass of a sequence, with room reserved in its cache; none if the job has failed."""
        job, candidate, sequence = turn.job, turn.candidate, turn.sequence
        if job.failure is not None:
            return []
        unread = candidate.tree.chain_ids
        with job.recording_failure():
            if len(unread) > _PREFILL_TOKENS:
                part = Part(sequence.cache, TokenTree(unread[:_PREFILL_TOKENS]), wants_logits=False)
            elif unread:
                part = Part(sequence.cache, self._add_draft(turn))
            else:
                part = sequence.build_part(candidate.tree, candidate.needed)
            sequence.cache.reserve(part.tree.num_rows)
        return [] if job.failure else [_Reading(job, candidate, sequence, part)]

    def _add_draft(self, turn: _Turn) -> TokenTree:
        """The candidate's tree, with a guess of what follows if it is a generated token."""
        candidate, sequence = turn.candidate, turn.sequence
        tree = candidate.tree
        if self._drafter is None or not candidate.token_ids or tree.branch_ids:
            return tree
        draft = self._drafter.propose([*sequence.token_ids, *tree.chain_ids])
        room = turn.job.max_cached_tokens - sequence.num_tokens - len(tree.chain_ids)
        if draft is None or room <= 0:
            return tree
        guessed = self._cut_draft(draft.token_ids[:room], candidate)
        candidate.draft = draft
        turn.job.counters.num_drafted += len(guessed)
        return TokenTree(tree.chain_ids, guessed, (None, *range(len(guessed) - 1)))

    def _cut_draft(self, token_ids: tuple[int, ...], candidate: Candidate) -> tuple[int, ...]:
        """The guessed tokens up to the end of the line, if the candidate ends there."""
        if not isinstance(candidate.limits.extent, LineRule):
            return token_ids
        token_bytes = self._prompts.vocabulary.token_bytes
        ends = [count for count, token_id in enumerate(token_ids, 1) if b"\n" in token_bytes[token_id]]
        return token_ids[: ends[0]] if ends else token_ids

    def _choose(self, turns: list[_Choosing]) -> list[tuple[_Choosing, SampleResult]]:
        """The result of each turn. If choosing for all fails, each turn is tried alone."""
        if not turns:
            return []
        started_at = self._clock()
        try:
            results = self._model.choose([_build_sample_request(turn) for turn in turns])
        except Exception as error:
            if len(turns) == 1:
                turns[0].job.failure = turns[0].job.failure or error
                return []
            return [result for turn in turns for result in self._choose([turn])]
        seconds = self._clock() - started_at
        for job in _list_jobs(turns):
            job.counters.choice_s += seconds
        return list(zip(turns, results, strict=True))

    def _forward(self, turns: list[_Reading]) -> list[tuple[_Reading, list[Any]]]:
        """The rows of each turn, from one pass over all of them.

        A failed pass leaves the caches unchanged. Each job is then tried alone, and fails if its pass fails again.
        """
        if not turns:
            return []
        started_at = self._clock()
        try:
            rows = self._model.forward([turn.part for turn in turns])
        except Exception as error:
            by_job = [list(own) for _, own in groupby(turns, key=lambda turn: id(turn.job))]
            if len(by_job) == 1:
                turns[0].job.failure = error
                return []
            _log.warning("a step of several requests failed with %s; each is tried alone", describe_failure(error))
            return [result for own in by_job for result in self._forward(own)]
        seconds = self._clock() - started_at
        for job in _list_jobs(turns):
            job.counters.model_s += seconds
            job.counters.num_forwards += 1
        return list(zip(turns, rows, strict=True))

    def _absorb(self, turn: _Reading, rows: list[Any]) -> None:
        candidate, part, counters = turn.candidate, turn.part, turn.job.counters
        turn.sequence.absorb(part, rows)
        candidate.tree = candidate.tree.with_chain(candidate.tree.chain_ids[len(part.tree.chain_ids) :])
        if not candidate.token_ids:
            counters.num_read_tokens += len(part.tree.chain_ids)
            counters.num_first_rows += part.num_new_rows
        counters.num_rows += part.num_new_rows
        counters.num_prefill_forwards += not part.wants_logits

    def _accept(self, turn: _Choosing, result: SampleResult) -> list[_Turn]:
        """Takes the choices, if they are certain. Returns the turns that may go on."""
        job, candidate = turn.job, turn.candidate
        if result.unread:
            candidate.needed = result.unread
            return [turn]
        job.counters.num_hot_hits += result.num_hot_hits
        job.counters.num_hot_misses += result.num_hot_misses
        if job.prompt.healed and (not candidate.token_ids or candidate.crossings[0].remaining_bytes):
            job.counters.num_healing_forwards = job.counters.num_forwards - job.counters.num_prefill_forwards
        if job.request.explain and job.explanation is None:
            job.explanation = build_explanation(self._prompts, job.prompt, candidate.tree, candidate.crossings, result)
        if len(result.choices) > 1:  # the first choice of several candidates, which differ from now on
            self._branch(job, candidate, turn.sequence, result.choices)
            return list(_list_turns(job))
        [choice] = result.choices
        self._take_choice(candidate, turn.sequence, choice)
        self._follow_draft(job, candidate, choice.token_id)
        return [] if candidate.finish_reason else [turn]

    def _branch(self, job: Job, first: Candidate, sequence: ReadSequence, choices: tuple[Choice, ...]) -> None:
        sequences = [sequence, *(sequence.fork() for _ in choices[1:])]
        job.candidates = []
        for index, (choice, own) in enumerate(zip(choices, sequences, strict=True)):
            candidate = Candidate(index, first.tree, first.crossings, first.limits, Detokenizer(len(job.prompt.healed)))
            self._take_choice(candidate, own, choice)
            job.candidates.append(candidate)
        job.sequences = sequences

    def _follow_draft(self, job: Job, candidate: Candidate, token_id: int) -> None:
        """Compares the token that was chosen with the guess."""
        draft = candidate.draft
        if draft is None or self._drafter is None:
            return
        is_right = draft.follow(token_id)
        job.counters.num_accepted += is_right
        if not is_right or candidate.finish_reason:
            self._drafter.learn(draft)
            candidate.draft = None

    def _take_choice(self, candidate: Candidate, sequence: ReadSequence, choice: Choice) -> None:
        token_bytes = self._prompts.vocabulary.token_bytes
        tree = candidate.tree
        path = tuple(tree.branch_ids[branch] for branch in tree.find_path(choice.crossing.node))
        unknown = sequence.append_known(path)
        candidate.accept_path(path, b"".join(token_bytes[token_id] for token_id in path))
        if choice.token_id in self._prompts.vocabulary.special_ids:
            candidate.finish(FinishReason.END)
        else:
            candidate.accept_token(choice.crossing, choice.token_id, token_bytes[choice.token_id])
            if unknown:  # the chosen token follows a path whose keys and values are not stored
                candidate.tree = TokenTree((*unknown, choice.token_id))


def _list_turns(job: Job) -> list[_Turn]:
    """A turn for each candidate that has not ended; none if the job has failed."""
    if job.failure is not None:
        return []
    pairs = zip(job.candidates, job.sequences, strict=True)
    return [_Turn(job, candidate, sequence) for candidate, sequence in pairs if not candidate.finish_reason]


def _list_jobs(turns: Sequence[_Turn]) -> list[Job]:
    return list({id(turn.job): turn.job for turn in turns}.values())


def _find_rows(turn: _Turn) -> list[Any] | None:
    """The rows from which the next token is chosen, as far as they were read; None if some must be read first."""
    candidate, sequence = turn.candidate, turn.sequence
    unread = sequence.append_known(candidate.tree.chain_ids)
    rows: list[Any] = []
    if not unread:
        rows = sequence.find_rows(candidate.tree)
        if rows[0] is None:  # the logits at the end were dropped
            unread = (sequence.token_ids[-1],)
            sequence.cut(sequence.num_tokens - 1)
    candidate.tree = candidate.tree.with_chain(unread)
    candidate.needed = tuple([branch for branch in candidate.needed if unread or rows[branch + 1] is None])
    return None if unread or candidate.needed else rows


def _build_sample_request(turn: _Choosing) -> SampleRequest:
    """The request for the next choice. The first one of a job is for all its candidates together."""
    job, candidate = turn.job, turn.candidate
    is_first = not candidate.token_ids
    return SampleRequest(
        candidate.tree,
        candidate.crossings,
        turn.rows,
        job.sampling,
        job.random_sources if is_first else (job.random_sources[candidate.index],),
        wants_scores=is_first and job.request.explain,
    )
