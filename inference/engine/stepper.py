"""One step of many jobs: what is known already is chosen at once, the rest is forwarded in one pass.

What a pass computes becomes part of a candidate's `TokenSequence`, and choices are made from there. So it does not
matter whether a node was forwarded for this request, for an earlier one, or as a draft.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from inference.engine.job import Candidate, EngineParts, Job
from inference.errors import as_failure, describe_failure
from inference.model.language_model import Part, SampleRequest

_log = logging.getLogger(__name__)

_Asked = TypeVar("_Asked")
_Result = TypeVar("_Result")


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
        """Chooses for these candidates. Returns those that may go on."""
        advanced: list[Candidate] = []
        for chosen, results, ms in self._call(self._model.choose, asked):
            for job in dict.fromkeys(candidate.job for candidate, _ in chosen):
                job.costs.choice_ms += ms
            for (candidate, _), result in zip(chosen, results, strict=True):
                if candidate.job.failure is None:
                    with candidate.job.recording_failure():
                        advanced += candidate.advance(result)
        return [candidate for candidate in advanced if candidate.job.failure is None]

    def _forward(self, jobs: Iterable[Job]) -> None:
        """Forwards what the candidates need before their next choice. A pass that fails leaves the caches unchanged."""
        built: list[tuple[Candidate, Part]] = []
        for candidate in _list_active(jobs):
            with candidate.job.recording_failure():
                built.append((candidate, candidate.build_part()))
        built = [(candidate, part) for candidate, part in built if candidate.job.failure is None]
        for forwarded, rows, ms in self._call(self._model.forward, built):
            self._speed.note(sum(part.num_new_rows for _, part in forwarded), ms / 1e3)
            for job in dict.fromkeys(candidate.job for candidate, _ in forwarded):
                job.costs.model_ms += ms
                job.costs.num_forwards += 1
            for (candidate, part), own_rows in zip(forwarded, rows, strict=True):
                with candidate.job.recording_failure():
                    candidate.absorb(part, own_rows)

    def _call(
        self, call: Callable[[list[_Asked]], list[_Result]], asked: Sequence[tuple[Candidate, _Asked]]
    ) -> Iterator[tuple[Sequence[tuple[Candidate, _Asked]], list[_Result], float]]:
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


def _list_active(jobs: Iterable[Job]) -> list[Candidate]:
    return [candidate for job in jobs for candidate in job.find_active()]
