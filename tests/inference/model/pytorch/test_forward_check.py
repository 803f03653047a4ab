"""Model families of transformers with tiny random weights, through the trial runs."""

from typing import Any

import pytest
import torch
import transformers

from inference.errors import ModelError
from inference.model.pytorch.forward_check import NARROW_CHUNK, NARROW_WINDOW, check_forward_pass, narrow_windows
from inference.model.pytorch.loader import check_config, refusing_family
from inference.model.pytorch.runner import Runner
from inference.model.pytorch.transformers_hook import ATTENTION_NAME
from tests.support.tiny_families import (
    EXPERTS,
    KV,
    LATENT,
    LAYER_TYPES,
    REFUSED_BY_CONFIG,
    build_config,
    build_model,
)

_CPU = torch.device("cpu")

_DECODER = {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48}

# what no configuration says: family -> what its configuration adds, and what the refusal says
_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "bloom": ({}, "attention of its own"),  # adds positions to the scores
    "mpt": ({"d_model": 32, "n_heads": 4, "n_layers": 2}, "computes with the attention's mask"),
    "rwkv": ({"attention_hidden_size": 32}, "attention of its own|other layers than attention"),
    "doge": ({**KV, "sliding_window": 100}, "computes with the attention's mask"),
    "bert": ({"is_decoder": False}, "see those after them"),
    "gemma3_text": ({**KV, "use_bidirectional_attention": True}, "joins the mask of earlier tokens with another one"),
    "bart": (
        {
            "is_encoder_decoder": False,
            "d_model": 32,
            "decoder_layers": 2,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 48,
        },
        "counts positions itself .a difference of",
    ),
    "roberta": ({"is_decoder": True, "pad_token_id": 1}, "counts positions itself .a difference of"),
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


def _check(model: Any) -> Runner:
    with refusing_family(model.config.model_type):
        runner = Runner(model, _CPU)
        check_forward_pass(model, runner)
    return runner


@pytest.mark.parametrize("family", sorted(REFUSED_BY_CONFIG.keys() - {"mamba"}))  # mamba has no heads to name
def test_layers_of_another_type_are_refused_if_the_configuration_hides_them(family: str) -> None:
    model = build_model(build_config(family, REFUSED_BY_CONFIG[family][0]))

    with pytest.raises(ModelError, match=f"^models of the family '{family}' cannot be run: "):
        _check(model)


@pytest.mark.parametrize("family", _REFUSED)
def test_what_the_configuration_does_not_say_is_refused_after_a_trial_run(family: str) -> None:
    changes, reason = _REFUSED[family]
    model = build_model(build_config(family, {"num_attention_heads": 4} | changes))

    with pytest.raises(ModelError, match=f"^models of the family '{family}' cannot be run: .*{reason}"):
        _check(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", _ACCEPTED)
def test_softmax_attention_is_accepted_in_full_and_in_half_precision(family: str, dtype: torch.dtype) -> None:
    config = build_config(family, _ACCEPTED[family])
    check_config(config)
    before = str(config)
    model = build_model(config, dtype)

    _check(model)

    assert model.config._attn_implementation == ATTENTION_NAME
    assert str(model.config) == before


class _LeakyLlama(transformers.LlamaForCausalLM):  # type: ignore[misc]  # transformers has no types
    """A model in which all tokens of a pass have a small influence on each other, as in experts with a capacity."""

    def forward(self, input_ids: torch.Tensor, **others: Any) -> Any:
        output = super().forward(input_ids, **others)
        if input_ids.shape[0] == 1:
            output.logits = output.logits + 0.02 * output.logits.std() * (input_ids.sum() % 7)
        return output


def test_a_neighbour_that_changes_the_logits_is_refused_in_half_precision() -> None:
    model = build_model(build_config("llama", KV), torch.bfloat16)
    model.__class__ = _LeakyLlama

    with pytest.raises(ModelError, match="the tokens of a neighbour in the same forward pass change the logits"):
        _check(model)


class _FixedWindowConfig(transformers.MistralConfig):  # type: ignore[misc]  # transformers has no types
    """A configuration whose window cannot be changed."""

    def __getattribute__(self, name: str) -> Any:
        return 100 if name == "sliding_window" else super().__getattribute__(name)


def test_a_window_that_cannot_be_narrowed_is_refused() -> None:
    model = build_model(build_config("mistral", {**KV, "sliding_window": 100}))
    model.config.__class__ = _FixedWindowConfig

    with pytest.raises(ModelError, match=r"takes the window of 100 tokens in MistralAttention from an unknown place"):
        _check(model)


class _TornWindowConfig(transformers.MistralConfig):  # type: ignore[misc]  # transformers has no types
    """A configuration whose window is lost where the model is run with the attention of this package."""

    def __getattribute__(self, name: str) -> Any:
        if name == "sliding_window" and self._attn_implementation == ATTENTION_NAME:
            return None
        return super().__getattribute__(name)


def test_a_difference_beyond_a_wide_window_is_found() -> None:
    model = build_model(build_config("mistral", {**KV, "sliding_window": 100}))
    model.config.__class__ = _TornWindowConfig

    with pytest.raises(ModelError, match="do not get the logits that each gets alone"):
        _check(model)


def test_half_precision_in_which_little_can_be_checked_is_refused() -> None:
    config = build_config("hrm_text", {**KV, "num_key_value_heads": 4})  # runs its layers sixteen times

    _check(build_model(config))
    with pytest.raises(ModelError, match="or is rounded too much in bfloat16"):
        _check(build_model(config, torch.bfloat16))


def _read_sizes(model: torch.nn.Module, name: str) -> set[Any]:
    """The values of an attribute in the model's configuration and modules."""
    owners = [model.config, *model.modules()]
    return {getattr(owner, name) for owner in owners if isinstance(getattr(owner, name, None), int)}


@pytest.mark.parametrize(
    ("family", "changes", "name", "narrow"),
    [
        ("mistral", KV, "sliding_window", NARROW_WINDOW),
        ("gemma3_text", {**KV, **LAYER_TYPES}, "sliding_window", NARROW_WINDOW),
        ("llama4_text", {**KV, **EXPERTS, "pad_token_id": 0}, "attention_chunk_size", NARROW_CHUNK),
    ],
)
def test_all_windows_are_narrow_for_a_while(family: str, changes: dict[str, Any], name: str, narrow: int) -> None:
    model = build_model(build_config(family, {**changes, name: 100}))

    with narrow_windows(model):
        inside = _read_sizes(model, name)

    assert inside == {narrow}
    assert _read_sizes(model, name) == {100}


def test_a_window_that_is_narrow_already_stays() -> None:
    model = build_model(build_config("mistral", {**KV, "sliding_window": 3}))

    with narrow_windows(model):
        assert _read_sizes(model, "sliding_window") == {3}
