"""Folders of tiny decoders with random weights, and the logits that transformers computes for them."""

import json
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

from tests.support.toys import END, ToyTokenizer

VOCAB_SIZE = 96
MAX_TOKENS = 128
_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_TOKENS,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN_ROPE = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 32}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 500.0,
    "short_factor": [1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75],
    "long_factor": [4.0] * 8,
    "original_max_position_embeddings": MAX_TOKENS // 2,
}
PHI3 = {"pad_token_id": 0, "eos_token_id": 0, "original_max_position_embeddings": MAX_TOKENS // 2}
GRANITE = {
    "embedding_multiplier": 6.0,
    "attention_multiplier": 0.1,
    "residual_multiplier": 0.3,
    "logits_scaling": 4.0,
}
# The configurations that must be run rightly.
SERVED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "llama one head of keys": ("llama", {"num_key_value_heads": 1}),
    "llama as many heads of keys": ("llama", {"num_key_value_heads": 4}),
    "llama wide heads": ("llama", {"head_dim": 32}),
    "llama biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama theta": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}, "rms_norm_eps": 0.01}),
    "llama linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}}),
    "llama llama3": ("llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama one layer": ("llama", {"num_hidden_layers": 1}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral wide heads": ("mistral", {"sliding_window": None, "head_dim": 32, "tie_word_embeddings": True}),
    "qwen2": ("qwen2", {}),
    "qwen2 tied": ("qwen2", {"tie_word_embeddings": True}),
    "llama dynamic": ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0}}),
    "llama yarn": ("llama", {"rope_parameters": YARN_ROPE}),
    "llama yarn, scaled scores": ("llama", {"rope_parameters": {**YARN_ROPE, "mscale": 0.7, "mscale_all_dim": 0.3}}),
    "llama yarn, other bounds": (
        "llama",
        {"rope_parameters": {**YARN_ROPE, "beta_fast": 4.0, "beta_slow": 2.0, "truncate": False}},
    ),
    "llama gelu": ("llama", {"hidden_act": "gelu"}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "qwen3 biases, yarn": ("qwen3", {"head_dim": 32, "attention_bias": True, "rope_parameters": YARN_ROPE}),
    "starcoder2": ("starcoder2", {}),
    "starcoder2 without biases, untied": ("starcoder2", {"use_bias": False, "tie_word_embeddings": False}),
    "granite": ("granite", GRANITE),
    "granite biases": ("granite", {**GRANITE, "attention_bias": True, "mlp_bias": True}),
    "gemma": ("gemma", {"head_dim": 32}),
    "gemma one head of keys": ("gemma", {"head_dim": 16, "num_key_value_heads": 1, "hidden_act": "gelu"}),
    "phi3": ("phi3", PHI3),
    "phi3 longrope": ("phi3", {**PHI3, "rope_parameters": LONG_ROPE}),
    "phi3 longrope, a part of each head": (
        "phi3",
        {
            **PHI3,
            "head_dim": 32,
            "hidden_size": 128,
            "rope_parameters": {**LONG_ROPE, "partial_rotary_factor": 0.5},
        },
    ),
    "smollm3": ("smollm3", {"pad_token_id": 0, "no_rope_layers": [1, 0]}),
    "smollm3 with an interval": ("smollm3", {"pad_token_id": 0, "num_hidden_layers": 4, "no_rope_layer_interval": 2}),
    "olmo2": ("olmo2", {}),
    "olmo2 biases": ("olmo2", {"attention_bias": True, "tie_word_embeddings": True}),
    "stablelm": ("stablelm", {"partial_rotary_factor": 0.5}),
    "stablelm few turned numbers": ("stablelm", {"hidden_size": 320, "partial_rotary_factor": 0.25}),
    "stablelm biases": ("stablelm", {"use_qkv_bias": True, "partial_rotary_factor": 1.0}),
    "qwen2 linear": ("qwen2", {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}}),
}


def write_decoder(
    folder: Path, family: str = "llama", dtype: torch.dtype = torch.float32, shard_size: str = "1GB", **changes: Any
) -> Path:
    """Writes a tiny decoder; also norms and biases are random, so that no zero or one hides a difference."""
    config = transformers.AutoConfig.for_model(family, **deepcopy(_SHAPE | changes))
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard_size)
    (folder / "tokenizer.json").write_text("{}")  # so that the folder is complete; no tokenizer is made of it
    return folder


def build_content(family: str, **changes: Any) -> dict[str, Any]:
    """The config.json of a tiny decoder, without the fields that are `...`."""
    changes = {name: value for name, value in (_SHAPE | changes).items() if value is not ...}
    content: dict[str, Any] = json.loads(
        transformers.AutoConfig.for_model(family, **deepcopy(changes)).to_json_string(False)
    )
    return content


def change_config(folder: Path, **changes: Any) -> None:
    """Changes fields of a folder's config.json; those that are `...` are removed."""
    path = folder / "config.json"
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not ...}))


def write_model(folder: Path, toy: ToyTokenizer, family: str = "llama", seed: int = 0, **changes: object) -> Path:
    """Writes a model folder with the toy's tokenizer and random weights, large enough for clear preferences."""
    shape = {
        "vocab_size": toy.num_rows,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
        "bos_token_id": 0,
        "eos_token_id": toy.vocabulary.special_tokens.get(END),
    } | changes
    if family in ("llama", "mistral", "qwen2"):
        shape.setdefault("num_key_value_heads", 2)
    config = transformers.AutoConfig.for_model(family, **shape)
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    toy.tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    return folder


class DecoderOracle:
    """transformers: one text at a time, with its own attention."""

    def __init__(self, folder: Path, dtype: str = "float64") -> None:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="eager", local_files_only=True
        )
        self._model = model.eval()

    def forward(self, token_ids: Sequence[int]) -> npt.NDArray[np.float64]:
        """The next-token logits after the last token."""
        with torch.inference_mode():
            logits: torch.Tensor = self._model(input_ids=torch.tensor([list(token_ids)]), use_cache=False).logits
        result: npt.NDArray[np.float64] = logits[0, -1].double().numpy()
        return result
