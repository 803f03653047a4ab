"""Reading a text of which nothing is remembered, relative to the peak of the device.

The time is that of a completion of one token, from the request to its end, so it has healing, prompt and choice too.
"""

from benchmarks.corpora.repository_text import cut_text
from benchmarks.measures.gpu.bounds import DENSE_BF16_FLOPS, count_prefill_flops
from benchmarks.measures.gpu.completions import complete_all
from benchmarks.measures.gpu.setting import Deadline, Figures, RandomEngine
from benchmarks.measures.report import find_percentile
from inference.protocol.completion import CompletionRequest, Extent

_NUM_WARM_UP = 2
_FIRST_INDEX = 1000  # other texts than those of the documents
_NUM_TOKENS = 2000


def measure_prefill(loaded: RandomEngine, deadline: Deadline) -> Figures:
    """`prefill_…` of a shape."""
    sizes, name, parts = loaded.setting.sizes, loaded.shape.name, loaded.loaded
    found, num_tokens = [], min(_NUM_TOKENS, sizes.num_context)
    for number in range(_NUM_WARM_UP + min(sizes.num_repeats, 12)):
        if deadline.is_over and number > _NUM_WARM_UP:
            break
        text = f"# {number}\n" + cut_text(
            parts.tokenizer.encoder, parts.tokenizer.vocabulary, num_tokens, _FIRST_INDEX + number
        )
        request = CompletionRequest(text + "value = q", max_tokens=1, extent=Extent.BLOCK, tenant=f"reader {number}")
        found += complete_all(loaded.engine, [request])
    read = found[_NUM_WARM_UP:]
    flops_per_s = [count_prefill_flops(loaded.shape, each.stats.num_read_tokens) / each.ms * 1e3 for each in read]
    speed = find_percentile(flops_per_s, 50) or 0.0
    return {
        f"prefill_peak_share_{name}": speed / DENSE_BF16_FLOPS,
        f"prefill_tflops_{name}": speed / 1e12,
        f"prefill_ms_{name}": find_percentile((each.ms for each in read), 50),
        f"prefill_model_ms_{name}": find_percentile((each.stats.model_ms for each in read), 50),
        f"prefill_tokens_{name}": find_percentile((each.stats.num_read_tokens for each in read), 50),
        f"prefill_passes_{name}": find_percentile((each.stats.num_forwards for each in read), 50),
    }
