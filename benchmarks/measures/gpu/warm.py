"""A key in a document that the engine has read: the time of a whole completion, and what it must read for it.

Keys whose completion ended early, or was known in part because the key was guessed before, are left out and counted.
"""

from benchmarks.measures.gpu.bounds import count_completion_bytes
from benchmarks.measures.gpu.completions import Completion, Document, complete_all
from benchmarks.measures.gpu.setting import Deadline, Figures, RandomEngine
from benchmarks.measures.report import find_mean, find_percentile
from inference.protocol.completion import FinishReason

_NUM_WARM_UP = 3


def measure_warm(loaded: RandomEngine, deadline: Deadline) -> Figures:
    """`warm20_…` of a shape. Raises RuntimeError if no key can be counted."""
    sizes, name = loaded.setting.sizes, loaded.shape.name
    document = Document(loaded, sizes.num_context)
    found: list[Completion] = []
    for number in range(_NUM_WARM_UP + sizes.num_keys):
        if deadline.is_over and len(found) > _NUM_WARM_UP:
            break
        found += complete_all(loaded.engine, [document.type_key(sizes.num_tokens)])
        assert number == 0 or found[-1].stats.num_read_tokens < sizes.num_context / 2, "the document is remembered"
    asked = found[_NUM_WARM_UP:]
    whole = [each for each in asked if is_whole(each, sizes.num_tokens)]
    if not whole:
        raise RuntimeError(f"none of {len(asked)} completions went on for {sizes.num_tokens} tokens")
    num_bytes = [
        count_completion_bytes(loaded.shape, each.stats.num_forwards, each.stats.num_context_tokens) for each in whole
    ]
    return {
        f"warm20_ms_{name}": find_percentile((each.ms for each in whole), 50),
        f"warm20_ms_p10_{name}": find_percentile((each.ms for each in whole), 10),
        f"warm20_ms_p90_{name}": find_percentile((each.ms for each in whole), 90),
        f"warm20_model_ms_{name}": find_percentile((each.stats.model_ms for each in whole), 50),
        f"warm20_choice_ms_{name}": find_percentile((each.stats.choice_ms for each in whole), 50),
        f"warm20_prompt_ms_{name}": find_percentile((each.stats.prompt_ms for each in whole), 50),
        f"warm20_bytes_{name}": find_percentile(num_bytes, 50),
        f"warm20_forwards_{name}": find_mean(each.stats.num_forwards for each in whole),
        f"warm20_tokens_{name}": find_mean(each.stats.num_tokens for each in whole),
        f"warm20_context_{name}": find_mean(each.stats.num_context_tokens for each in whole),
        f"warm20_counted_{name}": len(whole),
        f"warm20_left_out_{name}": len(asked) - len(whole),
    }


def is_whole(completion: Completion, num_tokens: int) -> bool:
    """True if so many tokens were generated, each by a pass of its own; logits of the first may be remembered."""
    return completion.finish_reason is FinishReason.LENGTH and completion.stats.num_forwards >= num_tokens - 1
