import pytest

from inference.engine.stopping import LineRule
from inference.engine.ticket import Ticket
from inference.errors import InvalidRequestError
from inference.protocol.completion import CompletionRequest, Extent, Healing
from tests.support.engine_bench import build_job_builder
from tests.support.sinks import CollectingSink


def _arrive(request: CompletionRequest) -> Ticket:
    return Ticket(request, CollectingSink(), submitted_at=10.0)


def test_a_job_begins_with_one_empty_candidate() -> None:
    request = CompletionRequest("x = nam", max_tokens=5, stop=("y",), extent=Extent.SINGLE_LINE, num_candidates=3)

    job = build_job_builder().build(_arrive(request))

    [first] = job.candidates
    assert (first.index, first.text, first.finish_reason) == (0, "", None)
    assert (first.limits.max_tokens, first.limits.stops, first.limits.extent) == (5, ("y",), LineRule())
    assert first.tree.chain_ids == job.prompt.context_ids
    assert first.crossings == job.prompt.covering.crossings
    assert job.sequences == []


def test_the_counters_include_the_context_and_the_tree() -> None:
    job = build_job_builder().build(_arrive(CompletionRequest("x = nam")))

    assert job.counters.submitted_at == 10.0
    assert job.counters.num_context_tokens == len(job.prompt.context_ids)
    assert job.counters.num_tree_nodes == 1 + len(job.candidates[0].tree.branch_ids) > 1


@pytest.mark.parametrize(("window", "limit", "room"), [(100, 1024, 95), (100, 50, 50)])
def test_the_prompts_room_is_limited_by_the_window_and_the_configuration(window: int, limit: int, room: int) -> None:
    builder = build_job_builder(window, max_context_tokens=limit)
    request = CompletionRequest("name = 1\n" * 100, max_tokens=5, healing=Healing.NONE)

    job = builder.build(_arrive(request))

    assert 3 * room // 8 < len(job.prompt.context_ids) <= room


def test_max_tokens_that_leave_no_room_for_a_prompt_are_refused_with_the_numbers() -> None:
    builder = build_job_builder(100)
    builder.build(_arrive(CompletionRequest("", max_tokens=84)))

    with pytest.raises(InvalidRequestError) as caught:
        builder.build(_arrive(CompletionRequest("", max_tokens=85)))
    assert str(caught.value) == (
        "max_tokens is 85; the model sees 100 tokens in all, and 16 of them at least are for the prompt"
    )


def test_a_greedy_request_has_no_random_source() -> None:
    assert build_job_builder().build(_arrive(CompletionRequest("x", num_candidates=2))).random_sources == (None, None)


@pytest.mark.parametrize(("seed", "seeds"), [(7, (7, 8, 9)), (2**63 - 2, (2**63 - 2, 2**63 - 1, 0))])
def test_each_candidate_has_a_seed_of_its_own(seed: int, seeds: tuple[int, ...]) -> None:
    request = CompletionRequest("x", num_candidates=3, temperature=1.0, seed=seed)

    assert build_job_builder().build(_arrive(request)).random_sources == seeds
