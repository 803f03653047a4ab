"""Model families of transformers with tiny random weights, through both checks."""

from typing import Any

import pytest
import torch
import transformers

from inference.errors import ModelError
from inference.model.attention import ATTENTION_NAME, register_attention
from inference.model.layer_check import check_config, check_forward_pass
from inference.model.runner import Runner

_SHAPE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
}
_KV: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 8}
_EXPERTS: dict[str, Any] = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}

# family -> what its configuration adds, and the layer type or setting that the refusal names
_REFUSED_BY_CONFIG: dict[str, tuple[dict[str, Any], str]] = {
    "mamba": ({}, "linear_attention"),
    "jamba": ({**_KV, **_EXPERTS, "attn_layer_period": 2, "attn_layer_offset": 1}, "linear_attention"),
    "qwen3_next": ({**_KV, **_EXPERTS, "layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
    "lfm2": ({**_KV, "layer_types": ["conv", "full_attention"]}, "conv"),
    "recurrent_gemma": ({"num_key_value_heads": 1, "lru_width": 32, "head_dim": 8}, "linear_attention"),
    "falcon_h1": ({**_KV, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16}, "hybrid"),
    "llama4_text": ({**_KV, **_EXPERTS, "attention_chunk_size": 100, "pad_token_id": 0}, "chunked_attention"),
    "gemma2": ({**_KV, "attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
}

# what no configuration says: family -> what its configuration adds, and what the refusal says
_REFUSED_BY_MEASURE: dict[str, tuple[dict[str, Any], str]] = {
    "bloom": ({}, "BloomBlock"),  # positions added to the scores, in code of its own
    "rwkv": ({"attention_hidden_size": 32}, "RwkvBlock"),
    "diffllama": (_KV, "2 times"),
    "gpt_oss": ({**_KV, **_EXPERTS}, "attention sinks"),
    "doge": (_KV, "a mask of the model's own"),
    "stablelm": (_KV, "does not get the keyword arguments"),
    "deepseek_v3": ({"num_key_value_heads": 4, "n_routed_experts": 4, "n_group": 1, "topk_group": 1}, "heads of 192"),
    "bert": ({"is_decoder": False}, "the logits that each gets alone"),  # every token sees those after it
    "olmoe": ({**_KV, **_EXPERTS, "sliding_window": 100}, "windows of no tokens"),
    "phimoe": ({**_KV, **_EXPERTS, "sliding_window": 100}, r"windows of \[100\] tokens"),
    "mpt": ({"d_model": 32, "n_heads": 4, "n_layers": 2}, "a forward pass failed"),
}

_ACCEPTED: dict[str, dict[str, Any]] = {
    "llama": _KV,
    "qwen2": _KV,
    "gpt2": {},
    "mistral": {**_KV, "sliding_window": 5},
    "gemma3_text": {**_KV, "sliding_window": 100},
    "mixtral": {**_KV, **_EXPERTS},
    "afmoe": {**_KV, **_EXPERTS},  # passes every argument of the attention by its name, and views its output
}


def _build_config(family: str, changes: dict[str, Any]) -> Any:
    return transformers.AutoConfig.for_model(family, **_SHAPE | changes)


def _build_model(config: Any, dtype: torch.dtype = torch.float32) -> tuple[Any, Runner]:
    """Builds a model with random weights, also for norms and sinks, so that no zero or one hides a difference."""
    register_attention()
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION_NAME)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model, Runner(model.to(dtype), torch.device("cpu"))


@pytest.mark.parametrize("family", _REFUSED_BY_CONFIG)
def test_layers_of_another_type_are_refused_from_the_configuration(family: str) -> None:
    changes, reason = _REFUSED_BY_CONFIG[family]

    with pytest.raises(ModelError, match=f"^models of the family '{family}' cannot be run: .*{reason}"):
        check_config(_build_config(family, changes))


@pytest.mark.parametrize(
    "family", sorted(_REFUSED_BY_CONFIG.keys() - {"mamba"})
)  # mamba has no attention heads to name
def test_layers_of_another_type_are_refused_if_the_configuration_hides_them(family: str) -> None:
    model, runner = _build_model(_build_config(family, _REFUSED_BY_CONFIG[family][0]))

    with pytest.raises(ModelError, match=f"^models of the family '{family}' cannot be run: "):
        check_forward_pass(model, runner)


@pytest.mark.parametrize("family", _REFUSED_BY_MEASURE)
def test_unsupported_attention_in_code_is_refused_after_a_forward_pass(family: str) -> None:
    changes, reason = _REFUSED_BY_MEASURE[family]
    config = _build_config(family, {"num_attention_heads": 4} | changes)
    check_config(config)
    model, runner = _build_model(config)

    with pytest.raises(ModelError, match=f"^models of the family '{family}' cannot be run: .*{reason}"):
        check_forward_pass(model, runner)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", _ACCEPTED)
def test_softmax_attention_is_accepted_in_full_and_in_half_precision(family: str, dtype: torch.dtype) -> None:
    config = _build_config(family, _ACCEPTED[family])
    check_config(config)
    model, runner = _build_model(config, dtype)

    check_forward_pass(model, runner)

    assert model.config._attn_implementation == ATTENTION_NAME


@pytest.mark.parametrize("name", ["alibi", "use_alibi"])
def test_positions_that_are_added_to_the_scores_are_refused(name: str) -> None:
    config = _build_config("llama", {name: True})

    with pytest.raises(ModelError, match=f"'llama' cannot be run: .* adds positions .*{name}"):
        check_config(config)


def test_a_configuration_without_attention_heads_is_refused() -> None:
    config = transformers.AutoConfig.for_model("rwkv", vocab_size=300, hidden_size=32, num_hidden_layers=2)

    with pytest.raises(ModelError, match=r"'rwkv' cannot be run: .*num_attention_heads"):
        check_config(config)


def test_logits_that_are_nan_are_refused() -> None:
    model, runner = _build_model(_build_config("llama", _KV))
    torch.nn.init.constant_(model.model.norm.weight, torch.nan)

    with pytest.raises(ModelError, match="differ by nan"):
        check_forward_pass(model, runner)


class _AllRowsLlama(transformers.LlamaForCausalLM):  # type: ignore[misc]  # transformers has no types
    """A model that returns the logits of all rows, not only the requested ones."""

    def forward(self, *, logits_to_keep: torch.Tensor, **others: Any) -> Any:  # noqa: ARG002  # that is the case
        return super().forward(**others)


def test_a_model_that_ignores_the_requested_rows_is_refused() -> None:
    register_attention()
    config = _build_config("llama", _KV)
    model = _AllRowsLlama._from_config(config, attn_implementation=ATTENTION_NAME)

    with pytest.raises(ModelError, match="'llama' cannot be run: its code does not take logits_to_keep"):
        check_forward_pass(model, Runner(model, torch.device("cpu")))
