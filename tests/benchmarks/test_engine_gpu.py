"""The prepared run for a GPU, rehearsed on the CPU with tiny shapes."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
import transformers

from benchmarks.corpora.random_models import SHAPES
from benchmarks.engine_gpu import TARGETS, Report, main
from benchmarks.measures.gpu_engine import Figures, Setting
from benchmarks.measures.gpu_right import DEFAULT_MODEL, find_differing_gaps, walk_reference
from benchmarks.measures.gpu_speed import count_completion_bytes, count_layer_weights, count_prefill_flops
from inference.config import EngineConfig
from inference.model.pytorch.loader import load_torch_model


def test_the_whole_run_is_rehearsed_and_gives_all_figures(tmp_path: Path) -> None:
    main(["--rehearse", "--output", str(tmp_path / "report.json")])

    report = json.loads((tmp_path / "report.json").read_text())
    assert {row["note"] for row in report["rows"]} == {""}
    assert all(report["figures"][target.figure] is not None for target in TARGETS)
    assert report["figures"]["right_wrong_float32"] == 0
    assert report["figures"]["is_rehearsal"] is True
    assert report["device"].startswith("REHEARSAL")
    assert {row["met"] for row in report["rows"]} == {"rehearsal"}


def test_a_part_that_fails_leaves_a_note_and_the_other_figures(tmp_path: Path) -> None:
    def fail() -> Figures:
        raise ValueError("no memory")

    report = Report(Setting("cpu", DEFAULT_MODEL, is_rehearsal=True), tmp_path / "report.json", "commit")
    report.add("warm_7b", fail)
    report.add("choice", lambda: {"choice_us_64": 1.0})

    rows = json.loads((tmp_path / "report.json").read_text())["rows"]
    found = {row["benchmark"]: (row["measured"], row["note"]) for row in rows}
    assert found["warm_7b"] == (None, "ValueError: no memory")
    assert found["choice"] == (1.0, "")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured() -> None:
    with pytest.raises(SystemExit, match="needs a GPU"):
        main([])


@pytest.mark.parametrize(
    ("name", "num_weights", "token_bytes"), [("1_5b", 1_543_714_304, 28_672), ("7b", 7_615_616_512, 57_344)]
)
def test_a_pass_reads_the_published_weights_and_the_keys_and_values_of_its_context(
    name: str, num_weights: int, token_bytes: int
) -> None:
    shape = SHAPES[name]
    table = shape.hidden * shape.vocab_rows
    num_layer_weights = count_layer_weights(shape)

    assert num_layer_weights + table * (1 if shape.is_tied else 2) + shape.hidden == num_weights
    step_bytes = 2 * (num_layer_weights + table + shape.hidden)
    assert count_completion_bytes(shape, 3, 10) == 3 * step_bytes + (10 + 11 + 12) * token_bytes
    pairs = 4 * shape.layers * shape.heads * shape.head_dim * (1 + 2 + 3)
    assert count_prefill_flops(shape, 3) == 2 * 3 * num_layer_weights + pairs


def test_the_reference_finds_the_greedy_tokens_of_transformers_and_another_choice_is_counted_with_its_gap() -> None:
    reference = load_torch_model(EngineConfig(DEFAULT_MODEL, dtype="float32"))
    model = transformers.AutoModelForCausalLM.from_pretrained(DEFAULT_MODEL, dtype=torch.float32)

    steps = walk_reference(reference, "import os\n\n\ndef main() -> None:\n    print(os.path.", 6)

    ids = [*steps[0].tree.chain_ids]
    for step in steps:
        ids += [*(step.tree.branch_ids[branch] for branch in step.tree.find_path(step.node)), step.token_id]
    num_healed = len(ids) - len(steps) + 1
    expected = model.generate(torch.tensor([ids[:num_healed]]), max_new_tokens=len(steps) - 1, do_sample=False)
    assert expected[0].tolist() == ids
    wrong = [*steps[:-1], dataclasses.replace(steps[-1], token_id=steps[-1].token_id + 1)]
    assert find_differing_gaps(reference.model, [steps]) == []
    assert find_differing_gaps(reference.model, [wrong, steps]) == [steps[-1].gap]
