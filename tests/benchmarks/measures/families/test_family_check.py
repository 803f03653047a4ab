"""The judge of model folders must find what the product's own check would let pass."""

import dataclasses
from pathlib import Path

import pytest
import torch
import transformers

from benchmarks.corpora.families.tiny_config import MAX_TOKENS, ROPE_TOKENS, Changes, merge
from benchmarks.corpora.families.tiny_families import build_changes, build_config
from benchmarks.corpora.families.tiny_folder import write_folder
from benchmarks.corpora.families.tiny_variants import list_tiny_models
from benchmarks.measures.families.family_check import (
    FamilyResult,
    Outcome,
    check_folder,
    judge_answers,
    judge_refusal,
    run_product,
)
from inference.config import EngineConfig
from inference.errors import ModelError
from inference.model.language_model import LoadedModel
from inference.model.pytorch.loader import build_torch_model, load_torch_model
from inference.model.pytorch.pool import SequenceCache
from inference.model.pytorch.runner import Runner, TorchModel
from inference.model.pytorch.transformers_hook import ATTENTION_NAME, register_attention


def _load_unchecked(config: EngineConfig) -> LoadedModel[TorchModel]:
    """Loads a model as the product does, without any check of its layers."""
    register_attention()
    model = transformers.AutoModelForCausalLM.from_pretrained(config.model_dir, attn_implementation=ATTENTION_NAME)
    runner = Runner(model, torch.device("cpu"))
    return build_torch_model(config, runner)


def _write(folder: Path, family: str, changes: Changes | None = None) -> Path:
    write_folder(folder, build_config(family, merge(build_changes(family), changes or {})))
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("llama"), "llama")


def test_a_supported_family_is_right(llama: Path) -> None:
    result = check_folder(llama, "llama", load_torch_model)

    assert result.outcome is Outcome.RIGHT
    assert result.num_answers > 80
    assert 0 < (result.difference or 0) < 1e-4  # rounding


@pytest.mark.parametrize("family", ["llama4_text", "bloom", "mamba", "lfm2", "codegen", "roberta"])
def test_a_family_that_cannot_be_run_is_wrong_without_the_check_of_its_layers(family: str, tmp_path: Path) -> None:
    result = check_folder(_write(tmp_path, family), family, _load_unchecked)

    assert result.outcome is Outcome.WRONG


def test_scaled_rope_that_a_long_neighbour_changes_is_wrong(tmp_path: Path) -> None:
    def load_without_limit(config: EngineConfig) -> LoadedModel[TorchModel]:
        loaded = _load_unchecked(config)
        loaded.model.runner.max_tokens = MAX_TOKENS
        return loaded

    model = next(model for model in list_tiny_models("phi3") if model.variant == "longrope RoPE")
    write_folder(tmp_path, build_config("phi3", model.changes))

    assert check_folder(tmp_path, "phi3", load_torch_model).outcome is Outcome.RIGHT
    assert load_torch_model(EngineConfig(tmp_path)).model.max_tokens == ROPE_TOKENS  # as docs/models.md says
    assert check_folder(tmp_path, "phi3", load_without_limit).outcome is Outcome.WRONG


class _LeakingRunner(Runner):
    """Gives every sequence the cache of the first one, which still has its tokens."""

    def new_cache(self, num_tokens: int = 256) -> SequenceCache:
        self._first: SequenceCache = getattr(self, "_first", None) or super().new_cache(num_tokens)
        return self._first


def test_a_state_that_leaks_into_the_next_sequence_is_wrong(llama: Path) -> None:
    def load_leaking(config: EngineConfig) -> LoadedModel[TorchModel]:
        loaded = load_torch_model(config)
        runner = _LeakingRunner(loaded.model.runner._model, loaded.model.runner.device)
        return build_torch_model(config, runner)

    assert check_folder(llama, "llama", load_leaking).outcome is Outcome.WRONG


def test_one_wrong_number_in_any_stage_is_found(llama: Path) -> None:
    answers = run_product(load_torch_model(EngineConfig(llama)))
    stages = {answer.stage: index for index, answer in enumerate(answers)}
    assert stages.keys() == {"alone", "together", "after others", "token strings"}

    for stage, index in stages.items():
        spoiled = answers[index].logits.clone()
        spoiled[0] += 0.1
        others = [*answers[:index], dataclasses.replace(answers[index], logits=spoiled)]
        result = judge_answers(others, llama)
        assert (result.outcome, result.reason.partition(":")[0]) == (Outcome.WRONG, stage)


def test_logits_that_are_no_numbers_are_wrong(llama: Path) -> None:
    first, *others = run_product(load_torch_model(EngineConfig(llama)))
    broken = dataclasses.replace(first, logits=torch.full_like(first.logits, torch.nan))

    assert judge_answers([*others, broken], llama).outcome is Outcome.WRONG


def test_the_sequences_reach_the_last_position_and_start_short(llama: Path) -> None:
    lengths = [len(answer.token_ids) for answer in run_product(load_torch_model(EngineConfig(llama)))]

    assert (min(lengths), max(lengths)) == (3, MAX_TOKENS)


def _fail(error: Exception) -> FamilyResult:
    def load(_config: EngineConfig) -> LoadedModel[TorchModel]:
        raise error

    return check_folder(Path("/folder/of/mamba"), "mamba", load)


def test_any_other_error_than_a_refusal_is_wrong() -> None:
    assert _fail(ValueError("models of the family 'mamba'")).outcome is Outcome.WRONG


def test_a_refusal_is_judged_without_the_name_of_the_folder() -> None:
    result = _fail(ModelError("cannot load the model in /folder/of/mamba: no"))

    assert result.outcome is Outcome.WRONG
    assert "does not name the family" in result.reason


@pytest.mark.parametrize(
    ("sentence", "outcome"),
    [
        ("models of the family 'git' cannot be run: it has no attention", Outcome.REFUSED),
        ("models of the family 'git_text' cannot be run: it has no attention", Outcome.REFUSED),
        ("the logits differ, and the digits", Outcome.WRONG),
        ("models of the family 'git' cannot be run:\nno", Outcome.WRONG),
        ("models of the family 'git' cannot be run: KeyError: 'x'", Outcome.WRONG),
        ("models of the family 'git' cannot be run: 'NoneType' object is not callable", Outcome.WRONG),
        ("models of the family 'git' cannot be run: " + "because " * 40, Outcome.WRONG),
    ],
)
def test_a_refusal_names_the_family_in_one_short_line_without_foreign_errors(sentence: str, outcome: Outcome) -> None:
    assert judge_refusal(sentence, "git").outcome is outcome
