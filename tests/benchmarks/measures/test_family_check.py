"""The check of model folders must find what the product's own check would let pass."""

import dataclasses
from pathlib import Path

import pytest
import torch
import transformers

from benchmarks.corpora.tiny_folder import write_folder
from benchmarks.corpora.tiny_models import MAX_TOKENS, PLAIN, build_changes, build_config
from benchmarks.measures.family_check import (
    FamilyResult,
    build_family_row,
    check_folder,
    check_refusal,
    compare_answers,
    run_product,
)
from benchmarks.measures.report import Outcome
from inference.config import EngineConfig
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model.language_model import LoadedModel
from inference.model.pytorch.loader import load_torch_model
from inference.model.pytorch.model import TorchModel
from inference.model.pytorch.rows import TorchTokens


def _load_unchecked(config: EngineConfig) -> LoadedModel[TorchModel]:
    """Loads a model as the product does, without any check of its layers."""
    device = torch.device("cpu")
    model = TorchModel(transformers.AutoModelForCausalLM.from_pretrained(config.model_dir), device)
    tokenizer = load_tokenizer(config.model_dir, model.vocab_size)
    model.tokens = TorchTokens(tokenizer.vocabulary, tokenizer.trie, device)
    return LoadedModel(model, tokenizer)


def _write(folder: Path, family: str) -> Path:
    write_folder(folder, build_config(family, build_changes(family)))
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("llama"), "llama")


@pytest.mark.parametrize("family", ["bloom", "mamba", "lfm2", "gpt_neo", "roberta"])
def test_a_family_that_cannot_be_run_is_wrong_without_the_check_of_its_layers(family: str, tmp_path: Path) -> None:
    assert check_folder(_write(tmp_path, family), family, _load_unchecked).outcome is Outcome.WRONG


def test_one_wrong_number_in_any_stage_is_found_and_all_positions_are_reached(llama: Path) -> None:
    answers = run_product(load_torch_model(EngineConfig(llama)))
    lengths = [len(answer.token_ids) for answer in answers]
    assert (min(lengths), max(lengths)) == (3, MAX_TOKENS)
    assert 0 < (compare_answers(answers, llama).difference or 0) < 1e-4  # rounding

    for stage, index in {answer.stage: index for index, answer in enumerate(answers)}.items():
        spoiled = answers[index].logits.clone()
        spoiled[0] += torch.nan if stage == "alone" else 0.1
        others = [*answers[:index], dataclasses.replace(answers[index], logits=spoiled)]
        result = compare_answers(others, llama)
        assert (result.outcome, result.reason.partition(":")[0]) == (Outcome.WRONG, stage)


@pytest.mark.parametrize(
    ("sentence", "outcome"),
    [
        ("models of the family 'git' cannot be run: it has no attention", Outcome.REFUSED),
        ("the logits differ, and the digits", Outcome.WRONG),
        ("models of the family 'git' cannot be run:\nno", Outcome.WRONG),
        ("models of the family 'git' cannot be run: KeyError: 'x'", Outcome.WRONG),
        ("models of the family 'git' cannot be run: " + "because " * 40, Outcome.WRONG),
    ],
)
def test_a_refusal_names_the_family_in_one_short_line_without_foreign_errors(sentence: str, outcome: Outcome) -> None:
    assert check_refusal(sentence, "git").outcome is outcome


def test_a_wrong_variant_makes_the_family_wrong_and_another_outcome_is_an_exception() -> None:
    right, refused, wrong = (FamilyResult(outcome) for outcome in (Outcome.RIGHT, Outcome.REFUSED, Outcome.WRONG))

    assert build_family_row("x", {PLAIN: right, "window": wrong}).outcome is Outcome.WRONG
    assert build_family_row("x", {PLAIN: right, "window": refused}).exceptions == ("window",)
