"""How fast a device completes, beside the least that it must do: bytes to read, and operations.

A step of few rows is bound by memory: it reads each weight once, and the keys and values of its context. Reading a long
context is bound by arithmetic: two operations for each weight and token, and attention.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cache, partial

import torch

from benchmarks.corpora.grown_model import Shape
from benchmarks.measures.gpu_engine import Completion, Document, RandomEngine, Setting, complete_all, prepare_tokenizer
from benchmarks.measures.report import Figures, find_mean, find_percentile
from inference.engine.prompt import PromptBuilder
from inference.healing.covering import Crossing, Rule
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Part, SampleRequest, Sampling, SequenceCache
from inference.model.pytorch.sampler import build_sampler
from inference.protocol.completion import CompletionRequest, Extent, FinishReason

_NUM_BYTES = 2  # of a bfloat16
_DENSE_BF16_FLOPS = 989e12  # of an H200 SXM, by its datasheet, without sparsity

_NUM_WARM_UP = 3
_GREEDY = Sampling(temperature=0.0, top_p=1.0)
_HEALED = (b" No", b"re", b" s", b"_", b"i", b" val", b"com", b" ", b"=", b" ret", b"n", b" sel", b"th", b" de", b"x")
_WORD = "measur"  # its healing tree has five branches with the tokens of the real models
_READ_TOKENS = 512  # in one pass, as the engine reads
_PREFILL_INDEX = 1000  # other texts than those of the documents


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
    source = torch.empty(setting.sizes.num_copy_bytes, dtype=torch.uint8, device=setting.device).random_()
    target = torch.empty_like(source)
    return 2 * source.nbytes / (_find_median_us(setting, lambda: target.copy_(source)) / 1e6)


def measure_choice(setting: Setting) -> Figures:
    """`choice_us_64`: mask and choice for many rows with healed bytes, until the choices are on the host."""
    with ExitStack() as owner:
        tokenizer = load_tokenizer(prepare_tokenizer(setting.tokenizer, owner), setting.sizes.vocab_rows)
    device = torch.device(setting.device)
    sampler = build_sampler(device, torch.bfloat16, tokenizer.vocabulary, tokenizer.trie)
    shape = setting.sizes.num_sequences, setting.sizes.vocab_rows
    logits = 3 * torch.randn(shape, device=device, dtype=torch.bfloat16)
    requests = [
        SampleRequest(TokenTree((17,)), (Crossing(None, _HEALED[index % len(_HEALED)], Rule.CROSS),), [row], _GREEDY)
        for index, row in enumerate(sampler.build_rows(logits))
    ]
    return {"choice_us_64": _find_median_us(setting, lambda: sampler.choose(requests))}


def _find_median_us(setting: Setting, action: Callable[[], object]) -> float:
    """The median time of an action, until the device has done it."""
    seconds = []
    for _ in range(_NUM_WARM_UP + setting.sizes.num_repeats):
        setting.synchronize()
        began_at = time.perf_counter()
        action()
        setting.synchronize()
        seconds.append(time.perf_counter() - began_at)
    return 1e6 * (find_percentile(seconds[_NUM_WARM_UP:], 50) or 0.0)


def measure_warm(engine: RandomEngine) -> Figures:
    """`warm20_…` of a shape: a key in a document that the engine has read, until its completion is there.

    `bound_ratio_…` is that time, relative to reading the bytes of its passes at the speed of a copy.
    Keys whose completion ended early, or was known in part because the key was guessed before, are left out and
    counted. Raises RuntimeError if no key can be counted.
    """
    sizes, name = engine.setting.sizes, engine.name
    document = Document(engine)
    keys = range(_NUM_WARM_UP + sizes.num_keys)
    asked = [complete_all(engine.engine, [document.type_key(sizes.num_tokens)])[0] for _ in keys][_NUM_WARM_UP:]
    whole = [each for each in asked if _is_whole(each, sizes.num_tokens)]
    if not whole:
        raise RuntimeError(f"none of {len(asked)} completions went on for {sizes.num_tokens} tokens")
    num_bytes = [
        count_completion_bytes(engine.shape, each.stats.num_forwards, each.stats.num_context_tokens) for each in whole
    ]
    copy_bytes_per_s = _measure_copy(engine.setting)
    bound_ratios = (each.ms * copy_bytes_per_s / (1e3 * read) for each, read in zip(whole, num_bytes, strict=True))
    return {
        "copy_bytes_per_s": copy_bytes_per_s,
        f"bound_ratio_{name}": find_percentile(bound_ratios, 50),
        f"warm20_ms_{name}": find_percentile((each.ms for each in whole), 50),
        f"warm20_ms_p90_{name}": find_percentile((each.ms for each in whole), 90),
        f"warm20_model_ms_{name}": find_percentile((each.stats.model_ms for each in whole), 50),
        f"warm20_choice_ms_{name}": find_percentile((each.stats.choice_ms for each in whole), 50),
        f"warm20_bytes_{name}": find_percentile(num_bytes, 50),
        f"warm20_forwards_{name}": find_mean(each.stats.num_forwards for each in whole),
        f"warm20_left_out_{name}": len(asked) - len(whole),
    }


def _is_whole(completion: Completion, num_tokens: int) -> bool:
    """True if so many tokens were generated, each by a pass of its own; logits of the first may be remembered."""
    return completion.finish_reason is FinishReason.LENGTH and completion.stats.num_forwards >= num_tokens - 1


def measure_tree(engine: RandomEngine) -> Figures:
    """`tree_overhead_…` of a shape: a step with a healing tree beside one of a token, pass and choice."""
    model, prompts = engine.loaded.model, PromptBuilder(engine.loaded.tokenizer)
    cache = _read_text(engine, prompts)
    covering = prompts.build(CompletionRequest(f"x = {_WORD}"), 64).covering
    decode = TokenTree((17,)), (Crossing(None, b"", Rule.EXTEND),)
    kinds = {"decode": decode, "tree": (covering.tree.with_chain((17,)), covering.crossings)}

    def step(tree: TokenTree, crossings: tuple[Crossing, ...]) -> None:
        length = cache.num_tokens
        [rows] = model.forward([Part(cache, tree)])
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
    model, num_context = engine.loaded.model, engine.setting.sizes.num_context
    ids = prompts.build(CompletionRequest(engine.cut_text(num_context)), 2 * num_context).context_ids
    cache: SequenceCache = model.new_cache(2 * len(ids))
    for start in range(0, len(ids), _READ_TOKENS):
        tree = TokenTree(ids[start : start + _READ_TOKENS])
        model.forward([Part(cache, tree, wants_logits=False)])
        cache.keep(tree)
    return cache


def measure_prefill(engine: RandomEngine) -> Figures:
    """`prefill_…` of a shape: a completion of one token after a text of which nothing is remembered."""
    found = []
    for index in range(_PREFILL_INDEX, _PREFILL_INDEX + _NUM_WARM_UP + 10):
        text = f"# {index}\n{engine.cut_text(engine.setting.sizes.num_context, index)}value = q"
        request = CompletionRequest(text, max_tokens=1, extent=Extent.BLOCK, tenant=f"reader {index}")
        found += complete_all(engine.engine, [request])
    read = found[_NUM_WARM_UP:]
    flops_per_s = (1e3 * count_prefill_flops(engine.shape, each.stats.num_read_tokens) / each.ms for each in read)
    return {
        f"prefill_peak_share_{engine.name}": (find_percentile(flops_per_s, 50) or 0.0) / _DENSE_BF16_FLOPS,
        f"prefill_ms_{engine.name}": find_percentile((each.ms for each in read), 50),
        f"prefill_tokens_{engine.name}": find_percentile((each.stats.num_read_tokens for each in read), 50),
    }


def measure_scale(engine: RandomEngine) -> Figures:
    """`scale_64_…` of a shape: tokens a second of many sequences, relative to one. All documents were read before."""
    sizes, name = engine.setting.sizes, engine.name
    documents = [Document(engine, index) for index in range(sizes.num_sequences)]

    def complete(some: Iterable[Document], num_tokens: int = sizes.num_batch_tokens) -> float:
        completions = complete_all(engine.engine, [document.type_key(num_tokens) for document in some])
        num_forwards = sum(each.stats.num_forwards for each in completions)  # tokens that needed a pass
        return 1e3 * num_forwards / max(each.ms for each in completions)

    complete(documents, 1)  # reads them
    complete(documents)  # the first one is slow
    one = find_percentile((complete([document]) for document in documents[:4]), 50) or 0.0
    many = find_percentile((complete(documents) for _ in range(3)), 50) or 0.0
    return {f"scale_64_{name}": many / one, f"tokens_per_s_1_{name}": one, f"tokens_per_s_64_{name}": many}
