import dataclasses

from inference.model.language_model import SequenceInput
from inference.protocol.completion import CompletionRequest
from tests.support.engine_bench import UNBOUNDED, begin_job, build_executor
from tests.support.scripted_model import CountingCache, ScriptedModel


def test_a_chosen_path_without_keys_and_values_is_read_with_the_chosen_token() -> None:
    """As in a copy of the first tokens of a sequence: it knows the logits after the others, and no more."""
    executor = build_executor()
    job = begin_job(executor, CompletionRequest("x = nam", max_tokens=5, extent=UNBOUNDED))
    [running] = executor._running[job]
    sequence, tree = running.sequence, running.tree
    part = SequenceInput(sequence.cache, tree)
    sequence.absorb(part, executor.model.forward([part])[0])
    for node in sequence._nodes.values():
        node.stored = None
    running.tree = dataclasses.replace(tree, chain_ids=())

    executor.step([job], is_shared=False)

    [candidate] = job.candidates
    assert len(candidate.token_ids) > 2
    assert isinstance(sequence.cache, CountingCache)
    assert sequence.cache.token_ids == [*job.prompt.context_ids, *candidate.token_ids[:-1]]
    assert isinstance(executor.model, ScriptedModel)
    assert executor.model.step_sizes == [1, 1]
