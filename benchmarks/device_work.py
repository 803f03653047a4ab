"""What a step asks of a GPU, counted without one: kernels that are launched, copies to it, waits for it.

A model of 28 layers, as Qwen2.5-Coder of 1.5 billion weights has, but narrow, runs on a device that computes on the CPU
and counts. Every operation of torch is taken for one kernel. Attention is run for one sequence after the other, and for
all together as by the kernel for GPUs, whose two launches in each layer are counted and not computed. Each step is one
of many sequences: a token of each, or three tokens and a healing tree of five branches.

The numbers depend on no clock and no machine.
"""

from functools import partial

import torch

from benchmarks.measures.report import Row, print_rows, write_report
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Part
from inference.model.pytorch.attention import PackedPass
from inference.model.pytorch.runner import Runner
from inference.model.pytorch.transformers_hook import ScoreRule
from tests.support.counting_device import counting, move_model, register_device, run_kernel
from tests.support.tiny_families import build_config, build_model

_NUM_LAYERS = 28
_NUM_SEQUENCES = (1, 16, 64)
_CONTEXT = TokenTree(tuple(range(20)))
_STEPS = {"token": TokenTree((3,)), "healing": TokenTree((1, 2, 3), (5, 6, 7, 8, 9), (None, 0, 1, None, 3))}


def _skip_attention(
    _packed: PackedPass, _keys: torch.Tensor, values: torch.Tensor, query: torch.Tensor, _rule: ScoreRule
) -> torch.Tensor:
    return torch.zeros(query.shape[1], query.shape[0], values.shape[2], dtype=query.dtype)


# In each layer, one launch for the shares of the keys, and one that adds them up.
_count_attention = partial(run_kernel, "attention", _skip_attention)


@torch.inference_mode()
def main() -> None:
    model = build_model(build_config("qwen2", {"num_key_value_heads": 2, "num_hidden_layers": _NUM_LAYERS}))
    device = register_device()
    move_model(model)
    runners = {"one after the other": Runner(model, device), "together": Runner(model, device, _count_attention)}
    rows = [
        _count_step(runner, way, num_sequences, step)
        for num_sequences in _NUM_SEQUENCES
        for step in _STEPS
        for way, runner in runners.items()
    ]
    print_rows("Work of one step", rows)
    figures = {
        f"{name}_{row['way'].replace(' ', '_')}_{row['step']}_{row['sequences']}": row[name]  # type: ignore[union-attr]
        for row in rows
        for name in ("launches", "copies", "waits", "launches_to_keep")
    }
    write_report("device_work", rows, figures)


def _count_step(runner: Runner, way: str, num_sequences: int, step: str) -> Row:
    caches = [runner.new_cache() for _ in range(num_sequences)]
    runner.forward([Part(cache, _CONTEXT) for cache in caches])
    for cache in caches:
        cache.keep(_CONTEXT, None)
    tree = _STEPS[step]
    with counting() as forward:
        runner.forward([Part(cache, tree) for cache in caches])
    with counting() as keep:
        for cache in caches:
            cache.copy_branches(tree)
            cache.keep(tree, 1 if tree.branch_ids else None)
    return {
        "way": way,
        "sequences": num_sequences,
        "step": step,
        "launches": forward.num_launches,
        "copies": forward.num_copies_in,
        "waits": forward.num_waits,
        "launches_to_keep": keep.num_launches,
    }


if __name__ == "__main__":
    main()
