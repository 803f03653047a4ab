"""How fast and right the engine is on one GPU: real shapes with random weights, bfloat16, no server.

    python -m benchmarks.engine_gpu [--output FOLDER] [--only PART ...] [--short]

It needs a GPU, torch and transformers, and no network. It is not part of `make bench`, which measures what everybody
has: two cores and the default model.

- `right_…`: the default model chooses the tokens that it chooses on the CPU in float32.
- `warm20_…`: a key in a document that the engine remembers, until its completion of 20 tokens is there. `bound_ratio_…`
  is that time, relative to reading the weights, keys and values of its passes at the speed of a copy.
- `tree_…`: a step with a healing tree beside one without. `choice_…`: mask and choice alone.
- `scale_64_…`: 64 sequences beside one. `prefill_…`: reading a text.

`--short` runs the parts on the CPU with tiny shapes.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path

import torch
import transformers

from benchmarks.corpora.cuts import draw_cuts
from benchmarks.corpora.grown_model import Shape
from benchmarks.measures.gpu_engine import (
    DEFAULT_MODEL,
    SHAPES,
    TINY,
    Document,
    RandomEngine,
    Setting,
    prepare_tokenizer,
    random_engine,
)
from benchmarks.measures.report import Figures, Part, Target, Value, find_mean, find_percentile, run_parts
from benchmarks.measures.right_choices import compare_engines
from inference.config import EngineConfig
from inference.engine.prompt import PromptBuilder
from inference.healing.covering import Crossing, Rule
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SampleRequest, Sampling, SequenceCache, SequenceInput
from inference.model.pytorch.sampler import build_sampler
from inference.protocol.completion import CompletionRequest, CompletionStats, Extent, FinishReason
from models.training.corpus import iter_held_out
from tests.support.sinks import CollectingSink, submit

_LARGE_TOKENIZER = Path("build/large-tokenizer")
_TOLERANCES = {"float32": 0.01, "bfloat16": 0.15}  # nats between the two best

TARGETS = (
    Target("right_wrong_float32", "other choices than on the CPU in float32, float32", at_most=0),
    Target("right_wrong_bfloat16", "other choices than on the CPU in float32, bfloat16", at_most=0),
    Target("warm20_ms_1_5b", "warm completion of 20 tokens, 1.5B, median, ms", at_most=30),
    Target("warm20_ms_7b", "warm completion of 20 tokens, 7B, median, ms", at_most=100),
    Target("bound_ratio_1_5b", "that time, relative to reading its bytes, 1.5B", at_most=1.3),
    Target("bound_ratio_7b", "that time, relative to reading its bytes, 7B", at_most=1.3),
    Target("tree_overhead_1_5b", "what the healing tree adds to a step, 1.5B", at_most=0.05),
    Target("tree_overhead_7b", "what the healing tree adds to a step, 7B", at_most=0.05),
    Target("choice_us_64", "mask and choice for 64 rows, us", at_most=20),
    Target("scale_64_1_5b", "tokens a second of 64 sequences, relative to one, 1.5B", at_least=10),
    Target("scale_64_7b", "tokens a second of 64 sequences, relative to one, 7B", at_least=10),
    Target("prefill_peak_share_7b", "reading 2,000 tokens, share of 989 TFLOP/s, 7B", at_least=0.5),
)

_NUM_BYTES = 2  # of a bfloat16
_DENSE_BF16_FLOPS = 989e12  # of an H200 SXM, by its datasheet, without sparsity

_NUM_WARM_UP = 3
_GREEDY = Sampling(temperature=0.0, top_p=1.0)
_HEALED = (b" No", b"re", b" s", b"_", b"i", b" val", b"com", b" ", b"=", b" ret", b"n", b" sel", b"th", b" de", b"x")
_WORD = "measur"  # its healing tree has five branches with the tokens of the real models
_READ_TOKENS = 512  # in one pass, as the engine reads
_PREFILL_INDEX = 1000  # other texts than those of the documents


def main() -> None:
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "the CPU"
    run_parts("engine_gpu", PARTS, TARGETS, f"{device}; {versions}")


def _find_setting(is_short: bool) -> Setting:
    if is_short:
        return TINY
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.engine_gpu needs a GPU, and torch finds none here; --short needs none")
    has_large = (_LARGE_TOKENIZER / "tokenizer.json").exists()
    return Setting("cuda", _LARGE_TOKENIZER if has_large else DEFAULT_MODEL)


def _measure_right(is_short: bool) -> Figures:
    """`right_…` for each type of numbers."""
    setting = _find_setting(is_short)
    reference = EngineConfig(DEFAULT_MODEL, dtype="float32")
    cuts = draw_cuts(iter_held_out(), setting.num_right_cuts // 2, setting.num_right_cuts // 2, seed=5)
    figures: dict[str, Value] = {"right_cuts": len(cuts)}
    for dtype, gap in _TOLERANCES.items():
        found = compare_engines(EngineConfig(DEFAULT_MODEL, setting.device, dtype), reference, cuts, gap)
        figures |= {f"right_wrong_{dtype}": len(found.wrong), f"right_close_{dtype}": found.num_tied}
        figures[f"right_largest_gap_{dtype}"] = found.greatest_gap
    return figures


def _measure_shape(shape: str, is_short: bool) -> Figures:
    setting = _find_setting(is_short)
    figures: dict[str, Value] = {"has_large_tokenizer": setting.tokenizer == _LARGE_TOKENIZER}
    with random_engine(setting, shape) as engine:
        for measure in (measure_warm, measure_tree, measure_prefill, measure_scale):
            figures |= measure(engine)
    return figures


def count_layer_weights(shape: Shape) -> int:
    """The weights of all layers, without the table of embeddings, the head and the last norm."""
    heads, kv_heads = shape.num_attention_heads, shape.num_key_value_heads
    attention = shape.hidden_size * shape.head_dim * 2 * (heads + kv_heads)
    biases = shape.head_dim * (heads + 2 * kv_heads)  # of queries, keys and values
    rest = 3 * shape.hidden_size * shape.intermediate_size + 2 * shape.hidden_size
    return shape.num_hidden_layers * (attention + biases + rest)


def count_completion_bytes(shape: Shape, num_forwards: int, num_context: int) -> int:
    """What a warm completion reads in `num_forwards` passes, each over one token more than the one before."""
    num_weights = count_layer_weights(shape) + shape.hidden_size * shape.vocab_size + shape.hidden_size
    num_read = num_forwards * num_context + num_forwards * (num_forwards - 1) // 2
    token_size = 2 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim
    return _NUM_BYTES * (num_forwards * num_weights + num_read * token_size)


def count_prefill_flops(shape: Shape, num_tokens: int) -> int:
    """The operations to read a text: two for each weight of the layers and token, and causal attention."""
    num_pairs = num_tokens * (num_tokens + 1) // 2
    width = shape.num_attention_heads * shape.head_dim
    attention = 4 * shape.num_hidden_layers * width * num_pairs  # scores, and the sum of the values
    return 2 * count_layer_weights(shape) * num_tokens + attention


@cache
def _measure_copy(setting: Setting) -> float:
    """The speed of a copy in bytes a second: bytes read and bytes written."""
    source = torch.empty(setting.num_copy_bytes, dtype=torch.uint8, device=setting.device).random_()
    target = torch.empty_like(source)
    return 2 * source.nbytes / (_find_median_us(setting, lambda: target.copy_(source)) / 1e6)


def measure_choice(setting: Setting) -> Figures:
    """`choice_us_64`: mask and choice for many rows with healed bytes, until the choices are on the host."""
    with ExitStack() as owner:
        tokenizer = load_tokenizer(prepare_tokenizer(setting.tokenizer, owner), setting.vocab_rows)
    device = torch.device(setting.device)
    sampler = build_sampler(device, torch.bfloat16, tokenizer.vocabulary, tokenizer.trie)
    shape = setting.num_sequences, setting.vocab_rows
    logits = 3 * torch.randn(shape, device=device, dtype=torch.bfloat16)
    requests = [
        SampleRequest(TokenTree((17,)), (Crossing(None, _HEALED[index % len(_HEALED)], Rule.CROSS),), [row], _GREEDY)
        for index, row in enumerate(sampler.build_rows(logits))
    ]
    return {"choice_us_64": _find_median_us(setting, lambda: sampler.choose(requests))}


def _find_median_us(setting: Setting, action: Callable[[], object]) -> float:
    """The median time of an action, until the device has done it."""
    seconds = []
    for _ in range(_NUM_WARM_UP + setting.num_repeats):
        setting.synchronize()
        began_at = time.perf_counter()
        action()
        setting.synchronize()
        seconds.append(time.perf_counter() - began_at)
    return 1e6 * (find_percentile(seconds[_NUM_WARM_UP:], 50) or 0.0)


def complete(engine: RandomEngine, requests: Iterable[CompletionRequest]) -> list[CollectingSink]:
    """Asks for all at once, and waits. Raises the error of a failed request."""
    return [sink.wait() for sink in [submit(engine.engine, request) for request in requests]]


def measure_warm(engine: RandomEngine) -> Figures:
    """`warm20_…` of a shape: a key in a document that the engine has read, until its completion is there.

    `bound_ratio_…` is that time, relative to reading the bytes of its passes at the speed of a copy.
    Keys whose completion ended early, or was known in part because the key was guessed before, are left out and
    counted. Raises RuntimeError if no key can be counted.
    """
    num_keys, num_tokens, name = engine.setting.num_keys, engine.setting.num_tokens, engine.name
    document = Document(engine)
    asked = [complete(engine, [document.type_key(num_tokens)])[0] for _ in range(_NUM_WARM_UP + num_keys)]
    whole = [
        each.stats
        for each in asked[_NUM_WARM_UP:]  # with a pass for each token; logits of the first may be remembered
        if each.finish_reason is FinishReason.LENGTH and each.stats.num_forwards >= num_tokens - 1
    ]
    if not whole:
        raise RuntimeError(f"none of {num_keys} completions went on for {num_tokens} tokens")
    num_bytes = [count_completion_bytes(engine.shape, each.num_forwards, each.num_context_tokens) for each in whole]
    copy_bytes_per_s = _measure_copy(engine.setting)
    bound_ratios = (
        each.total_ms * copy_bytes_per_s / (1e3 * read) for each, read in zip(whole, num_bytes, strict=True)
    )
    return {
        "copy_bytes_per_s": copy_bytes_per_s,
        f"bound_ratio_{name}": find_percentile(bound_ratios, 50),
        f"warm20_ms_{name}": find_percentile((each.total_ms for each in whole), 50),
        f"warm20_ms_p90_{name}": find_percentile((each.total_ms for each in whole), 90),
        f"warm20_model_ms_{name}": find_percentile((each.model_ms for each in whole), 50),
        f"warm20_choice_ms_{name}": find_percentile((each.choice_ms for each in whole), 50),
        f"warm20_bytes_{name}": find_percentile(num_bytes, 50),
        f"warm20_forwards_{name}": find_mean(each.num_forwards for each in whole),
        f"warm20_left_out_{name}": num_keys - len(whole),
    }


def measure_tree(engine: RandomEngine) -> Figures:
    """`tree_overhead_…` of a shape: a step with a healing tree beside one of a token, pass and choice."""
    model, prompts = engine.loaded.model, PromptBuilder(engine.loaded.tokenizer)
    cache = _read_text(engine, prompts)
    covering = prompts.build(CompletionRequest(f"x = {_WORD}"), 64).covering
    decode = TokenTree((17,)), (Crossing(None, b"", Rule.EXTEND),)
    kinds = {"decode": decode, "tree": (covering.tree.with_chain((17,)), covering.crossings)}

    def step(tree: TokenTree, crossings: tuple[Crossing, ...]) -> None:
        length = cache.num_tokens
        [rows] = model.forward([SequenceInput(cache, tree)])
        model.choose([SampleRequest(tree, crossings, rows, _GREEDY)])
        cache.keep(tree)
        cache.cut(length)

    us = {kind: _find_median_us(engine.setting, partial(step, *own)) for kind, own in kinds.items()}
    return {
        f"tree_overhead_{engine.name}": us["tree"] / us["decode"] - 1,
        f"decode_step_ms_{engine.name}": us["decode"] / 1e3,
        f"tree_branches_{engine.name}": len(kinds["tree"][0].branch_ids),
    }


def _read_text(engine: RandomEngine, prompts: PromptBuilder) -> SequenceCache:
    """A cache with a context, read in pieces."""
    model, num_context = engine.loaded.model, engine.setting.num_context
    ids = prompts.build(CompletionRequest(engine.cut_text(num_context)), 2 * num_context).context_ids
    cache: SequenceCache = model.new_cache(2 * len(ids))
    for start in range(0, len(ids), _READ_TOKENS):
        tree = TokenTree(ids[start : start + _READ_TOKENS])
        model.forward([SequenceInput(cache, tree, wants_logits=False)])
        cache.keep(tree)
    return cache


def measure_prefill(engine: RandomEngine) -> Figures:
    """`prefill_…` of a shape: a completion of one token after a text of which nothing is remembered."""
    read: list[CompletionStats] = []
    for index in range(_PREFILL_INDEX, _PREFILL_INDEX + _NUM_WARM_UP + 10):
        text = f"# {index}\n{engine.cut_text(engine.setting.num_context, index)}value = q"
        request = CompletionRequest(text, max_tokens=1, extent=Extent.BLOCK, tenant=f"reader {index}")
        read.append(complete(engine, [request])[0].stats)
    del read[:_NUM_WARM_UP]
    flops_per_s = (1e3 * count_prefill_flops(engine.shape, each.num_read_tokens) / each.total_ms for each in read)
    return {
        f"prefill_peak_share_{engine.name}": (find_percentile(flops_per_s, 50) or 0.0) / _DENSE_BF16_FLOPS,
        f"prefill_ms_{engine.name}": find_percentile((each.total_ms for each in read), 50),
        f"prefill_tokens_{engine.name}": find_percentile((each.num_read_tokens for each in read), 50),
    }


def measure_scale(engine: RandomEngine) -> Figures:
    """`scale_64_…` of a shape: tokens a second of many sequences, relative to one. All documents were read before."""
    setting, name = engine.setting, engine.name
    documents = [Document(engine, index) for index in range(setting.num_sequences)]

    def measure(some: Sequence[Document], num_tokens: int = setting.num_batch_tokens) -> float:
        requests = [document.type_key(num_tokens) for document in some]
        began_at = time.perf_counter()
        num_forwards = sum(each.stats.num_forwards for each in complete(engine, requests))  # tokens that needed a pass
        return num_forwards / (time.perf_counter() - began_at)

    measure(documents, 1)  # reads them
    measure(documents)  # the first one is slow
    one = find_percentile((measure([document]) for document in documents[:4]), 50) or 0.0
    many = find_percentile((measure(documents) for _ in range(3)), 50) or 0.0
    return {f"scale_64_{name}": many / one, f"tokens_per_s_1_{name}": one, f"tokens_per_s_64_{name}": many}


# What is right is measured first.
PARTS: dict[str, Part] = {
    "right": _measure_right,
    "choice": lambda is_short: measure_choice(_find_setting(is_short)),
    **{shape: partial(_measure_shape, shape) for shape in SHAPES},
}


if __name__ == "__main__":
    main()
