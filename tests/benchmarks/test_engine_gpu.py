"""The prepared run for a GPU, rehearsed on the CPU with tiny shapes."""

import pytest

from benchmarks.engine_gpu import (
    PARTS,
    TARGETS,
    count_completion_bytes,
    count_layer_weights,
    count_prefill_flops,
)
from benchmarks.measures.gpu_engine import SHAPES
from benchmarks.measures.report import iter_found


def test_the_whole_run_is_rehearsed_and_gives_all_figures() -> None:
    found = [each for measure in PARTS.values() for each in iter_found(measure(True))]
    figures = {name: value for each in found for name, value in each.figures.items()}

    assert all(figures[target.figure] is not None for target in TARGETS)
    assert figures["right_wrong_float32"] == 0


@pytest.mark.parametrize(
    ("name", "num_weights", "token_bytes"), [("1_5b", 1_543_714_304, 28_672), ("7b", 7_615_616_512, 57_344)]
)
def test_a_pass_reads_the_published_weights_and_the_keys_and_values_of_its_context(
    name: str, num_weights: int, token_bytes: int
) -> None:
    shape = SHAPES[name]
    table = shape.hidden_size * shape.vocab_size
    num_layer_weights = count_layer_weights(shape)

    assert num_layer_weights + table * (1 if shape.tie_word_embeddings else 2) + shape.hidden_size == num_weights
    step_bytes = 2 * (num_layer_weights + table + shape.hidden_size)
    assert count_completion_bytes(shape, 3, 10) == 3 * step_bytes + (10 + 11 + 12) * token_bytes
    pairs = 4 * shape.num_hidden_layers * shape.num_attention_heads * shape.head_dim * (1 + 2 + 3)
    assert count_prefill_flops(shape, 3) == 2 * 3 * num_layer_weights + pairs
