"""Many sequences at once: their tokens a second, relative to those of one. All documents were read before."""

from benchmarks.measures.gpu.completions import Completion, Document, complete_all
from benchmarks.measures.gpu.setting import Deadline, Figures, RandomEngine
from benchmarks.measures.report import find_percentile
from inference.protocol.completion import FinishReason

_NUM_ALONE = 4
_NUM_ROUNDS = 3


def measure_scale(loaded: RandomEngine, deadline: Deadline) -> Figures:
    """`scale_64_…` of a shape."""
    sizes, name = loaded.setting.sizes, loaded.shape.name
    documents = [Document(loaded, sizes.num_context, index) for index in range(sizes.num_sequences)]
    complete_all(loaded.engine, [document.type_key(1) for document in documents])  # reads them
    alone, together = [], []
    complete_all(loaded.engine, [documents[0].type_key(sizes.num_batch_tokens)])  # the first one is slow
    for document in documents[:_NUM_ALONE]:
        alone.append(complete_all(loaded.engine, [document.type_key(sizes.num_batch_tokens)]))
    for number in range(1 + _NUM_ROUNDS):
        if deadline.is_over and number > 1:
            break
        together.append(
            complete_all(loaded.engine, [document.type_key(sizes.num_batch_tokens) for document in documents])
        )
    one = find_percentile(map(_find_tokens_per_s, alone), 50) or 0.0
    many = find_percentile(map(_find_tokens_per_s, together[1:]), 50) or 0.0
    ended = [each for completions in together[1:] for each in completions]
    return {
        f"scale_64_{name}": many / one,
        f"tokens_per_s_1_{name}": one,
        f"tokens_per_s_64_{name}": many,
        f"scale_sequences_{name}": sizes.num_sequences,
        f"scale_whole_share_{name}": sum(each.finish_reason is FinishReason.LENGTH for each in ended) / len(ended),
    }


def _find_tokens_per_s(completions: list[Completion]) -> float:
    """All tokens that needed a pass, by the time until the last completion has ended."""
    num_tokens = sum(each.stats.num_forwards for each in completions)
    return num_tokens / max(each.ms for each in completions) * 1e3
