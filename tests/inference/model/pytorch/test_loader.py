from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from inference.config import EngineConfig
from inference.errors import ModelError
from inference.model.pytorch.loader import check_config, check_torch_model, load_torch_model, refusing_family
from tests.inference.conftest import MakeModel
from tests.support.decoder_folders import write_model
from tests.support.runners import build_torch
from tests.support.tiny_families import (
    KV,
    REFUSED_BY_CONFIG,
    build_config,
    build_model,
)
from tests.support.toys import NUM_PADDING_ROWS, toy_tokenizer


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "damaged"),
        (b"\xff" * 64, "damaged"),
    ],
    ids=["empty", "damaged"],
)
def test_weights_that_cannot_be_read_are_a_model_error(content: bytes, reason: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path, toy_tokenizer("qwen"))
    (folder / "model.safetensors").write_bytes(content)

    with pytest.raises(ModelError, match=f"cannot load the model in .*{reason}"):
        load_torch_model(EngineConfig(folder))


def _write_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """A model folder with other weights."""
    write_model(folder, toy_tokenizer("qwen"))
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


_LAYER = "model.layers.1.self_attn"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda w: w.pop(f"{_LAYER}.q_proj.weight"), f".*{_LAYER}.q_proj.weight, which .* 'llama' have"),
        (
            lambda w: w.update({f"{_LAYER}.q_norm.weight": torch.zeros(4)}),
            f".*{_LAYER}.q_norm.weight, which .* not use",
        ),
        (lambda w: w.update({f"{_LAYER}.q_proj.bias": torch.zeros(4)}), f".*{_LAYER}.q_proj.bias, which .* not use"),
        (lambda w: w["lm_head.weight"].fill_(torch.nan), "in float32, .* infinite or NaN"),
        (lambda w: w["model.layers.0.mlp.up_proj.weight"].fill_(torch.inf), "in float32, .* infinite or NaN"),
        (lambda w: w["lm_head.weight"].zero_(), ".*the same for all tokens"),
    ],
    ids=["missing", "a norm more", "a bias more", "no numbers", "infinite", "zeros"],
)
def test_weights_that_the_models_code_cannot_use_are_a_model_error_that_says_what_is_wrong(
    change: Callable[[dict[str, torch.Tensor]], object], reason: str, tmp_path: Path
) -> None:
    folder = _write_weights(tmp_path, change)

    with pytest.raises(ModelError, match=f"cannot load the model in {folder}: .*{reason}"):
        load_torch_model(EngineConfig(folder))


@pytest.mark.parametrize(
    "name", ["model.layers.1.self_attn.inv_freq", "model.layers.2.self_attn.q_proj.weight", "vision.0.q_proj.weight"]
)
def test_weights_of_parts_that_the_model_has_not_are_named_in_a_warning(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _write_weights(tmp_path, lambda weights: weights.update({name: torch.zeros(4)}))

    load_torch_model(EngineConfig(folder))

    assert name in caplog.text


def test_code_in_a_model_folder_is_refused_and_not_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}')
    (tmp_path / "own.py").write_text("raise SystemExit('the code was run')")

    with pytest.raises(
        ModelError,
        match=r"^[^\n]*'own' cannot be run: they bring code of their own",
    ):
        load_torch_model(EngineConfig(tmp_path))


def test_an_unknown_device_is_a_model_error(make_model: MakeModel) -> None:
    with pytest.raises(ModelError, match=r"cannot load the model in .*'no such device' cannot be used here"):
        load_torch_model(EngineConfig(make_model(), device="no such device"))


def test_a_vocabulary_that_does_not_fit_the_model_is_a_model_error(tmp_path: Path) -> None:
    toy = toy_tokenizer("qwen")
    folder = write_model(tmp_path, toy, vocab_size=toy.num_rows - NUM_PADDING_ROWS - 10)

    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        load_torch_model(EngineConfig(folder))


@pytest.mark.parametrize("family", REFUSED_BY_CONFIG)
def test_layers_of_another_type_are_refused_from_the_configuration(family: str) -> None:
    changes, reason = REFUSED_BY_CONFIG[family]

    with pytest.raises(ModelError, match=f"^models of the family '{family}' cannot be run: .*{reason}"):
        check_config(build_config(family, changes))


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("alibi", "adds positions to the scores"),
        ("use_alibi", "adds positions to the scores"),
        ("attn_temperature_tuning", "takes a token's row in the forward pass for its position"),
    ],
)
def test_a_setting_that_spoils_positions_is_refused(name: str, meaning: str) -> None:
    with pytest.raises(ModelError, match=f"'llama' cannot be run: its attention {meaning} .{name} is true"):
        check_config(build_config("llama", {name: True}))


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("rwkv", ".*num_attention_heads"),
        ("vit", "transformers knows no language model"),
        ("bart", "it has an encoder"),
        ("musicgen", "it has an encoder"),
        ("gpt_neo", "its local attention counts the rows"),
    ],
)
def test_a_family_without_attention_that_predicts_the_next_token_is_refused(family: str, reason: str) -> None:
    with pytest.raises(ModelError, match=f"'{family}' cannot be run: {reason}"):
        check_config(transformers.AutoConfig.for_model(family))


# what no configuration says: family -> what its configuration adds
_REFUSED: dict[str, dict[str, Any]] = {
    "bloom": {},  # adds positions to the scores
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2},
    "rwkv": {"attention_hidden_size": 32},
    "bert": {"is_decoder": False},
    "gemma3_text": {**KV, "use_bidirectional_attention": True},
    "bart": {
        "is_encoder_decoder": False,
        "d_model": 32,
        "decoder_layers": 2,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 48,
    },
    "roberta": {"is_decoder": True, "pad_token_id": 1},  # counts positions itself
}


def _check(model: Any) -> None:
    with refusing_family(model.config.model_type):
        check_torch_model(build_torch(model))


@pytest.mark.parametrize("family", _REFUSED)
def test_what_the_configuration_does_not_say_is_refused_after_a_trial_run(family: str) -> None:
    model = build_model(build_config(family, {"num_attention_heads": 4} | _REFUSED[family]))

    with pytest.raises(ModelError, match=f"^models of the family '{family}' cannot be run: "):
        _check(model)
