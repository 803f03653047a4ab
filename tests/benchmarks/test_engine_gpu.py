"""The rehearsal of each part on the CPU, and the arithmetic of the bounds."""

import dataclasses
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import torch
import transformers

from benchmarks.corpora.random_models import SHAPES, TINY, Shape, build_random_model
from benchmarks.engine_gpu import main
from benchmarks.measures.gpu.bounds import (
    count_completion_bytes,
    count_layer_weights,
    count_prefill_flops,
    count_step_weight_bytes,
    count_token_bytes,
)
from benchmarks.measures.gpu.choice import measure_choice
from benchmarks.measures.gpu.completions import Completion
from benchmarks.measures.gpu.group import REHEARSAL, build_setting
from benchmarks.measures.gpu.parts import PARTS, Part, Process, Results, run_parts
from benchmarks.measures.gpu.profiles import PROFILES, profile_part
from benchmarks.measures.gpu.right import DEFAULT_MODEL, find_differing_gaps, walk_reference
from benchmarks.measures.gpu.setting import Deadline, Figures, load_random_engine
from benchmarks.measures.gpu.targets import GPU_TARGETS, add_bounds
from benchmarks.measures.gpu.warm import is_whole
from inference.config import EngineConfig
from inference.model.pytorch.loader import load_torch_model
from inference.protocol.completion import CompletionStats, FinishReason

_SETTING = build_setting(REHEARSAL, DEFAULT_MODEL)
_ELSEWHERE = ("refusal",)  # its limit of memory would stay in this process
_TOY = Shape("toy", hidden=8, layers=2, heads=2, kv_heads=1, head_dim=4, intermediate=16, vocab_rows=32, is_tied=True)


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with ExitStack() as owner:
        yield Process(_SETTING, owner)


@pytest.mark.parametrize(("name", "published"), [("1_5b", 1_543_714_304), ("7b", 7_615_616_512)])
def test_the_weights_of_a_shape_are_those_that_are_published(name: str, published: int) -> None:
    shape = SHAPES[name]
    tables = shape.hidden * shape.vocab_rows * (1 if shape.is_tied else 2)

    assert count_layer_weights(shape) + tables + shape.hidden == published


@pytest.mark.parametrize("shape", TINY.values(), ids=lambda shape: shape.name)
def test_a_random_model_has_the_weights_that_are_counted(shape: Shape) -> None:
    model = build_random_model(shape, torch.device("cpu"), torch.bfloat16, "eager")
    num_read = sum(weight.numel() for name, weight in model.named_parameters() if "embed" not in name or shape.is_tied)

    assert count_step_weight_bytes(shape) == 2 * num_read


@pytest.mark.parametrize(("name", "num_bytes"), [("1_5b", 28_672), ("7b", 57_344)])
def test_the_keys_and_values_of_a_token_take_so_many_bytes(name: str, num_bytes: int) -> None:
    assert count_token_bytes(SHAPES[name]) == num_bytes


def test_a_completion_reads_the_weights_in_each_pass_and_a_context_that_grows() -> None:
    # A layer: queries and output 2 x 8 x 8, keys and values 2 x 8 x 4, biases 16, 3 x 8 x 16, norms 16.
    assert count_layer_weights(_TOY) == 2 * (128 + 64 + 16 + 384 + 16)
    assert count_step_weight_bytes(_TOY) == 2 * (1216 + 8 * 32 + 8)
    assert count_token_bytes(_TOY) == 2 * 2 * 2 * 4

    assert count_completion_bytes(_TOY, num_forwards=3, num_context=10) == 3 * 2960 + (10 + 11 + 12) * 32


def test_reading_counts_two_operations_for_a_weight_and_causal_attention() -> None:
    # Three tokens see 1 + 2 + 3 tokens. Of each pair, scores and values take 2 x 4 operations in each of 2 heads.
    assert count_prefill_flops(_TOY, 3) == 2 * 1216 * 3 + 2 * 2 * 6 * (2 * 4 + 2 * 4)


def test_the_bound_is_the_time_to_read_the_bytes_at_the_speed_of_a_copy() -> None:
    figures = add_bounds({"copy_bytes_per_s": 1e12, "warm20_bytes_7b": 4e9, "warm20_ms_7b": 5.0})

    assert figures["bound_ms_7b"] == pytest.approx(4.0)
    assert figures["bound_ratio_7b"] == pytest.approx(1.25)
    assert "bound_ratio_1_5b" not in figures


@pytest.mark.parametrize(
    ("reason", "num_forwards", "is_counted"),
    [
        (FinishReason.LENGTH, 20, True),
        (FinishReason.LENGTH, 19, True),  # the first token's logits were remembered
        (FinishReason.LENGTH, 3, False),  # the rest was guessed one key before
        (FinishReason.LOOP, 20, False),
    ],
)
def test_a_completion_counts_if_each_of_its_tokens_had_a_pass(
    reason: FinishReason, num_forwards: int, is_counted: bool
) -> None:
    assert is_whole(Completion(1.0, reason, CompletionStats(num_forwards=num_forwards)), 20) is is_counted


@pytest.mark.parametrize("part", [part for part in PARTS if part.name not in _ELSEWHERE], ids=lambda part: part.name)
def test_each_part_is_rehearsed_and_gives_its_figures(process: Process, part: Part) -> None:
    figures = add_bounds({"copy_bytes_per_s": 1e9} | part.measure(process, Deadline(part.budget_s)))

    wanted = {each.target.figure for each in GPU_TARGETS if each.part == part.name}
    assert wanted <= figures.keys()
    assert all(value is not None for value in figures.values())


def test_a_tokenizer_that_names_no_end_will_do(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").symlink_to((DEFAULT_MODEL / "tokenizer.json").resolve())

    setting = dataclasses.replace(_SETTING, tokenizer=tmp_path)

    assert measure_choice(setting, Deadline(10))["choice_us_64"]
    with closing(load_random_engine(setting, TINY["7b"])) as loaded:
        assert loaded.loaded.tokenizer.start_ids


@pytest.mark.parametrize("name", ["choice", "batch_1_5b", "prefill_7b"])
def test_a_profile_lists_what_ran_and_how_often(name: str) -> None:
    assert name in PROFILES

    profile = profile_part(_SETTING, name, "this device")

    assert profile.startswith(f"{name}, on this device")
    assert "# of Calls" in profile


def test_the_reference_finds_the_greedy_tokens_of_transformers() -> None:
    reference = load_torch_model(EngineConfig(DEFAULT_MODEL, dtype="float32"))
    model = transformers.AutoModelForCausalLM.from_pretrained(DEFAULT_MODEL, dtype=torch.float32)

    steps = walk_reference(reference, "import os\n\n\ndef main() -> None:\n    print(os.path.", 6)

    ids = [*steps[0].tree.chain_ids]
    for step in steps:
        path = [step.tree.branch_ids[branch] for branch in step.tree.find_path(step.node)]
        ids += [*path, step.token_id]
    num_healed = len(ids) - len(steps) + 1
    expected = model.generate(torch.tensor([ids[:num_healed]]), max_new_tokens=len(steps) - 1, do_sample=False)
    assert expected[0].tolist() == ids


def test_a_choice_that_differs_from_the_reference_is_counted_with_its_gap() -> None:
    reference = load_torch_model(EngineConfig(DEFAULT_MODEL, dtype="float32"))
    model = reference.model
    steps = walk_reference(reference, "import os\nimport sy", 4)

    wrong = [*steps[:-1], dataclasses.replace(steps[-1], token_id=steps[-1].token_id + 1)]

    assert find_differing_gaps(model, [steps]) == []
    assert find_differing_gaps(model, [wrong, steps]) == [steps[-1].gap]


def test_a_part_that_fails_leaves_a_note_and_the_other_figures() -> None:
    def fail(_process: Process, _deadline: Deadline) -> Figures:
        raise ValueError("no such weights\nmore")

    parts = [Part("bad", "group", 1, fail), Part("good", "group", 1, lambda _process, _deadline: {"answer": 42})]
    saved: list[Results] = []
    run_parts(_SETTING, parts, saved.append)

    assert saved[-1].figures["answer"] == 42
    assert saved[-1].figures.keys() == {"answer", "seconds_bad", "seconds_good"}
    assert saved[-1].notes == {"bad": "ValueError: no such weights"}
    assert saved[-1].done == ["bad", "good"]


def test_without_time_the_report_says_so_and_is_marked_as_a_rehearsal(tmp_path: Path) -> None:
    main(["--rehearse", "--limit", "0", "--output", str(tmp_path / "report.json"), "--only", "right"])

    report = json.loads((tmp_path / "report.json").read_text())
    assert report["figures"]["is_rehearsal"] is True
    notes = {row["benchmark"]: row["note"] for row in report["rows"]}
    assert notes["right"] == "no time was left"
    assert notes["warm_7b"] == "not measured"
    assert "vllm" in notes["vllm"]
    assert {row["met"] for row in report["rows"]} == {"rehearsal"}


def test_a_process_that_takes_too_long_is_stopped_and_the_report_says_so(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    main(["--rehearse", "--limit", "0.1", "--output", str(path), "--only", "right"])  # torch alone takes longer

    notes = {row["benchmark"]: row["note"] for row in json.loads(path.read_text())["rows"]}
    assert notes["right"] == "not done after 0 s"


def test_a_profile_alone_writes_no_report(tmp_path: Path) -> None:
    main(["--rehearse", "--limit", "0", "--output", str(tmp_path / "report.json"), "--profile", "choice"])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured() -> None:
    with pytest.raises(SystemExit, match="needs a GPU"):
        main([])


def test_a_request_without_memory_is_refused_and_the_engine_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    main(["--rehearse", "--only", "refusal", "--output", str(path)])

    report = json.loads(path.read_text())
    assert report["figures"]["refusal_keeps_engine"] is True
    assert report["device"].startswith("REHEARSAL")
