"""One step of many jobs: what is known already is chosen at once, the rest is forwarded in one pass.

What a pass computes becomes part of a candidate's `TokenSequence`, and choices are made from there. So it does not
matter whether a node was forwarded for this request, for an earlier one, or as a draft.
"""

import logging
from collections.abc import Iterable, Sequence
from itertools import groupby

from inference.engine.job import Candidate, EngineParts, Job
from inference.errors import describe_failure
from inference.model.language_model import Part, SampleRequest

_log = logging.getLogger(__name__)


class Stepper:
    """Advances many jobs together, one step at a time.

    An exception fails only the job that it belongs to, and is stored in `Job.failure`.
    """

    def __init__(self, parts: EngineParts) -> None:
        self._model = parts.model
        self._clock = parts.clock
        self._speed = parts.speed

    def step(self, jobs: Sequence[Job]) -> None:
        """Advances each job by at least one token, or by one piece of a long context."""
        for job in jobs:
            job.num_step_rows = 0
        self._choose_known(jobs)
        self._forward(jobs)
        self._choose_known(jobs)

    def _choose_known(self, jobs: Iterable[Job]) -> None:
        """Chooses tokens as long as all that is needed was forwarded."""
        candidates = _list_active(jobs)
        while candidates:
            asked: list[tuple[Candidate, SampleRequest]] = []
            for candidate in candidates:
                with candidate.job.recording_failure():
                    request = candidate.prepare_choice()
                    if request is not None:
                        asked.append((candidate, request))
            candidates = self._choose(asked)

    def _choose(self, asked: Sequence[tuple[Candidate, SampleRequest]]) -> list[Candidate]:
        """Chooses for these candidates. If that fails for all, each is tried alone. Returns those that may go on."""
        if not asked:
            return []
        started_at = self._clock()
        try:
            results = self._model.choose([request for _, request in asked])
        except Exception as error:
            if len(asked) > 1:
                return [candidate for each in asked for candidate in self._choose([each])]
            [(candidate, _)] = asked
            candidate.job.failure = candidate.job.failure or error
            return []
        seconds = self._clock() - started_at
        advanced: list[Candidate] = []
        for job in dict.fromkeys(candidate.job for candidate, _ in asked):
            job.costs.choice_ms += 1e3 * seconds
        for (candidate, _), result in zip(asked, results, strict=True):
            if candidate.job.failure is None:
                with candidate.job.recording_failure():
                    advanced += candidate.advance(result)
        return [candidate for candidate in advanced if candidate.job.failure is None]

    def _forward(self, jobs: Iterable[Job]) -> None:
        """Forwards what the candidates need before their next choice."""
        built: list[tuple[Candidate, Part]] = []
        for candidate in _list_active(jobs):
            with candidate.job.recording_failure():
                built.append((candidate, candidate.build_part()))
        self._run([(candidate, part) for candidate, part in built if candidate.job.failure is None])

    def _run(self, built: Sequence[tuple[Candidate, Part]]) -> None:
        """Runs one pass.

        A pass that fails leaves the caches unchanged. Each job is then tried alone, and fails if its pass fails again.
        """
        if not built:
            return
        started_at = self._clock()
        try:
            rows = self._model.forward([part for _, part in built])
        except Exception as error:
            by_job = [list(own) for _, own in groupby(built, key=lambda each: each[0].job)]
            if len(by_job) == 1:
                built[0][0].job.failure = error
                return
            _log.warning("a step of several requests failed with %s; each is tried alone", describe_failure(error))
            for own in by_job:
                self._run(own)
            return
        seconds = self._clock() - started_at
        self._speed.note(sum(part.num_new_rows for _, part in built), seconds)
        for job in dict.fromkeys(candidate.job for candidate, _ in built):
            job.costs.model_ms += 1e3 * seconds
            job.costs.num_forwards += 1
        for (candidate, part), own_rows in zip(built, rows, strict=True):
            with candidate.job.recording_failure():
                candidate.absorb(part, own_rows)


def _list_active(jobs: Iterable[Job]) -> list[Candidate]:
    return [candidate for job in jobs for candidate in job.find_active()]
