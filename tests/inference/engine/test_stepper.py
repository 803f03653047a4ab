import dataclasses

from inference.engine.stepper import Stepper
from inference.model.language_model import Part
from inference.protocol.completion import CompletionRequest
from tests.support.engine_bench import UNBOUNDED, begin_job, build_parts
from tests.support.scripted_model import CountingCache, ScriptedModel


def test_a_chosen_path_without_keys_and_values_is_read_with_the_chosen_token() -> None:
    """As in a copy of the first tokens of a sequence: it knows the logits after the others, and no more."""
    parts = build_parts()
    job = begin_job(parts, CompletionRequest("x = nam", max_tokens=5, extent=UNBOUNDED))
    [candidate] = job.candidates
    sequence, tree = candidate.sequence, candidate.tree
    part = Part(sequence.cache, tree)
    sequence.absorb(part, parts.model.forward([part])[0])
    for node in sequence._nodes.values():
        node.stored = None
    candidate.tree = dataclasses.replace(tree, chain_ids=())

    Stepper(parts).step([job])

    [candidate] = job.candidates
    assert len(candidate.token_ids) > 2
    assert isinstance(candidate.sequence.cache, CountingCache)
    assert candidate.sequence.cache.token_ids == [*job.prompt.context_ids, *candidate.token_ids[:-1]]
    assert isinstance(parts.model, ScriptedModel)
    assert parts.model.step_sizes == [1, 1]
