import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from inference.config import EngineConfig
from inference.errors import ModelError, OverloadedError
from inference.model.pytorch.loader import check_config, check_torch_model, load_torch_model, refusing_family
from tests.inference.conftest import MakeModel
from tests.support.runners import build_torch
from tests.support.tiny_families import (
    EXPERTS,
    KV,
    LATENT,
    LAYER_TYPES,
    REFUSED_BY_CONFIG,
    build_config,
    build_model,
)
from tests.support.toys import NUM_PADDING_ROWS, toy_tokenizer, write_model


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


def test_weights_of_another_shape_are_a_model_error_in_one_line(tmp_path: Path) -> None:
    folder = write_model(tmp_path, toy_tokenizer("qwen"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 49}))

    with pytest.raises(ModelError, match=r"^[^\n]*its weights are damaged, or do not fit its config.json$"):
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


def test_models_that_several_threads_load_at_once_are_all_right(make_model: MakeModel) -> None:
    folders = [make_model("qwen", family) for family in ("gemma2", "llama", "mistral", "qwen2")] * 3
    configs = [EngineConfig(folder) for folder in folders]

    with ThreadPoolExecutor(len(configs)) as pool:
        loaded = list(pool.map(load_torch_model, configs))

    assert all(each.model.vocab_size == toy_tokenizer("qwen").num_rows for each in loaded)


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


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "cannot read"),
        (b"\xff", "cannot read"),
        (b"null", "not an object"),
        (b"[]", "not an object"),
        (b"{}", "names no model_type"),
        (b'{"model_type": ["llama"]}', "names no model_type"),
        (b'{"model_type": "no such model"}', "'no such model' cannot be run: the installed .* does not know"),
        (b'{"model_type": "own", "auto_map": {}}', "'own' cannot be run: they bring code of their own"),
        (b'{"model_type": "llama", "hidden_size": "many"}', "'llama' cannot be run: config.json has values"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_told_in_one_line(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)

    with pytest.raises(ModelError, match=f"^cannot load the model in [^\\n]*{reason}[^\\n]*$"):
        load_torch_model(EngineConfig(tmp_path))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ZeroDivisionError("in some code"), "its code in transformers fails with this configuration$"),
        (ImportError("No module named 'timm'", name="timm"), r"a Python package that is not installed \(timm\)$"),
        (ModelError("layer 3 is odd"), "layer 3 is odd$"),
    ],
)
def test_a_failure_names_the_family_and_no_foreign_exception(error: Exception, reason: str) -> None:
    match = f"^models of the family 'strange' cannot be run: .*{reason}"
    with pytest.raises(ModelError, match=match), refusing_family("strange"):
        raise error


def test_a_device_without_memory_is_no_fault_of_the_family() -> None:
    with pytest.raises(OverloadedError), refusing_family("strange"):
        raise OverloadedError("no memory")


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

_ACCEPTED: dict[str, dict[str, Any]] = {
    "llama": KV,
    "gpt2": {},
    "mistral": {**KV, "sliding_window": 100},
    "gemma2": {**KV, "attn_logit_softcapping": 2.0, "sliding_window": 100},
    "gemma4_text": {
        **KV,
        **LAYER_TYPES,
        "global_head_dim": 16,
        "hidden_size_per_layer_input": 8,
        "sliding_window": 100,
    },
    "gpt_oss": {**KV, **EXPERTS, "sliding_window": 100},
    "deepseek_v3": LATENT,
    "llama4_text": {**KV, **EXPERTS, "attention_chunk_size": 100, "pad_token_id": 0, "attn_temperature_tuning": False},
    "diffllama": KV,  # calls the attention twice in each layer
    "olmoe": {**KV, **EXPERTS, "sliding_window": 100},  # its layers have the window, and its masks do not
}


def _check(model: Any) -> None:
    with refusing_family(model.config.model_type):
        check_torch_model(build_torch(model))


@pytest.mark.parametrize("family", sorted(REFUSED_BY_CONFIG.keys() - {"mamba"}))  # mamba has no heads to name
def test_layers_of_another_type_are_refused_if_the_configuration_hides_them(family: str) -> None:
    model = build_model(build_config(family, REFUSED_BY_CONFIG[family][0]))

    with pytest.raises(ModelError, match=f"^models of the family '{family}' cannot be run: "):
        _check(model)


@pytest.mark.parametrize("family", _REFUSED)
def test_what_the_configuration_does_not_say_is_refused_after_a_trial_run(family: str) -> None:
    model = build_model(build_config(family, {"num_attention_heads": 4} | _REFUSED[family]))

    with pytest.raises(ModelError, match=f"^models of the family '{family}' cannot be run: "):
        _check(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", _ACCEPTED)
def test_softmax_attention_is_accepted_in_full_and_in_half_precision(family: str, dtype: torch.dtype) -> None:
    config = build_config(family, _ACCEPTED[family])
    check_config(config)
    before = str(config)
    model = build_model(config, dtype)

    _check(model)

    assert str(model.config) == before
