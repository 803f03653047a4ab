import dataclasses
from collections.abc import Sequence

from inference.engine.job import EngineParts, Job
from inference.engine.stepper import Stepper
from inference.model.language_model import Part
from inference.protocol.completion import CompletionRequest
from tests.support.engine_bench import UNBOUNDED, begin_job, build_parts
from tests.support.scripted_model import CountingCache, ScriptedModel


def _build(window: int = 512, **settings: int) -> tuple[EngineParts, ScriptedModel, Stepper]:
    parts = build_parts(window, **settings)
    assert isinstance(parts.model, ScriptedModel)
    return parts, parts.model, Stepper(parts)


def _begin(parts: EngineParts, prefix: str = "x = nam", num_candidates: int = 1) -> Job:
    return begin_job(parts, CompletionRequest(prefix, max_tokens=5, extent=UNBOUNDED, num_candidates=num_candidates))


def _find_held(job: Job) -> list[tuple[int, ...]]:
    """The tokens that each of the job's caches has kept."""
    caches = [candidate.sequence.cache for candidate in job.candidates]
    return [tuple(cache.token_ids) for cache in caches if isinstance(cache, CountingCache)]


def test_a_step_makes_one_choice_for_every_job_in_one_pass() -> None:
    """The first choice of several candidates gives each a sequence of its own."""
    parts, model, stepper = _build()
    jobs = [_begin(parts, prefix, count) for prefix, count in (("x = nam", 3), ("y", 1), ("for lin", 1))]

    stepper.step([])
    stepper.step(jobs)

    assert model.step_sizes == [3]
    assert [len({id(each.sequence) for each in job.candidates}) for job in jobs] == [3, 1, 1]
    for job in jobs:
        for index, (candidate, held) in enumerate(zip(job.candidates, _find_held(job), strict=True)):
            assert candidate.index == index
            assert held == (*job.prompt.context_ids, *candidate.token_ids[:-1])
            assert candidate.tree.chain_ids == tuple(candidate.token_ids[-1:])
    stepper.step(jobs)
    assert model.step_sizes == [3, 5]


def test_a_long_context_is_read_in_pieces_before_the_first_choice() -> None:
    parts, _, stepper = _build(4096, max_context_tokens=2000)
    job = _begin(parts, "name = 1\n" * 400 + "nam")

    held = []
    while not job.candidates[0].token_ids:
        stepper.step([job])
        held.append(_find_held(job)[0])

    assert [len(each) for each in held[:2]] == [16, 528]
    assert held[-1][: len(job.prompt.context_ids)] == job.prompt.context_ids
    assert job.num_prefill_forwards == job.costs.num_forwards - 1 == len(held) - 1


def test_a_chosen_path_without_keys_and_values_is_read_with_the_chosen_token() -> None:
    """As in a copy of the first tokens of a sequence: it knows the logits after the others, and no more."""
    parts, model, stepper = _build()
    job = _begin(parts)
    sequence, tree = job.candidates[0].sequence, job.candidates[0].tree
    part = Part(sequence.cache, tree)
    sequence.absorb(part, model.forward([part])[0])
    for node in sequence._nodes.values():
        node.stored = None
    job.candidates[0].tree = dataclasses.replace(tree, chain_ids=())

    stepper.step([job])

    [candidate] = job.candidates
    assert len(candidate.token_ids) > 2
    assert _find_held(job) == [(*job.prompt.context_ids, *candidate.token_ids[:-1])]
    assert model.step_sizes == [1, 1]


def test_a_failure_stays_with_its_job_and_the_job_steps_no_more() -> None:
    parts, model, stepper = _build()
    bad, good = _begin(parts, "bad"), _begin(parts, "x")
    failed: list[int] = []

    def fail_the_bad(parts: Sequence[Part]) -> None:
        if any(part.cache is bad.candidates[0].sequence.cache for part in parts):
            failed.append(len(parts))
            raise RuntimeError("secret")

    model.before_forward = fail_the_bad
    stepper.step([bad, good])
    stepper.step([bad, good])

    assert isinstance(bad.failure, RuntimeError)
    assert good.failure is None
    assert failed == [2, 1], "it was tried with the other, then alone, and not in the second step"
    assert good.costs.num_forwards == 2
