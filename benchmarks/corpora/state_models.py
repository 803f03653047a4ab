"""Tiny models with random weights, of the families that keep a recurrent state in llama.cpp."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any

from benchmarks.baselines.gguf_file import write_random_gguf

_BUNDLED = Path("models/default").absolute()
_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "midtoken.json")
_NUM_TOKENS = 8192  # of the bundled model

Shapes = Mapping[str, tuple[int, ...]]


def _norms(*names: str) -> Shapes:
    return {f"{name}_norm.weight": (32,) for name in names}


_SIZES: dict[str, Any] = {
    **{"context_length": 4096, "embedding_length": 32, "block_count": 2, "feed_forward_length": 32},
    **{"attention.head_count": 2, "attention.head_count_kv": 1, "attention.key_length": 16},
    **{"attention.value_length": 16, "attention.layer_norm_rms_epsilon": 1e-5},
}
_STATE = {
    **{"ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 16, "ssm.time_step_rank": 4},
    "ssm.group_count": 2,
}
_EVERY_OTHER = {"attention.head_count_kv": [0, 1]}  # the second layer is attention
_DELTA_NET = _STATE | {"rope.dimension_count": 16, "full_attention_interval": 2}
_FORWARD: Shapes = {f"ffn_{name}.weight": (32, 32) for name in ("gate", "up", "down")}
_ATTENTION: Shapes = {
    f"attn_{name}.weight": (32, size) for name, size in (("q", 32), ("k", 16), ("v", 16), ("output", 32))
}
_HEAD_NORMS: Shapes = {f"attn_{name}_norm.weight": (16,) for name in "qk"}
_MAMBA: Shapes = {
    **{**_norms("attn"), "ssm_in.weight": (32, 128), "ssm_conv1d.weight": (4, 64), "ssm_conv1d.bias": (64,)},
    **{"ssm_x.weight": (64, 36), "ssm_dt.weight": (4, 64), "ssm_dt.bias": (64,), "ssm_a": (16, 64), "ssm_d": (64,)},
    "ssm_out.weight": (64, 32),
}
_MAMBA_2: Shapes = {
    **{**_norms("attn"), "ssm_in.weight": (32, 196), "ssm_conv1d.weight": (4, 128), "ssm_conv1d.bias": (128,)},
    **{"ssm_dt.bias": (4,), "ssm_a": (1, 4), "ssm_d": (1, 4), "ssm_norm.weight": (32, 2), "ssm_out.weight": (64, 32)},
}
_JAMBA_NORMS: Shapes = {f"ssm_{name}_norm.weight": (size,) for name, size in (("dt", 4), ("b", 16), ("c", 16))}
_QWEN: Shapes = _norms("attn", "post_attention")
_QWEN_DELTA: Shapes = {
    **{**_QWEN, "attn_qkv.weight": (32, 128), "attn_gate.weight": (32, 64), "ssm_conv1d.weight": (4, 128)},
    **{"ssm_dt.bias": (4,), "ssm_a": (4,), "ssm_norm.weight": (16,), "ssm_out.weight": (64, 32)},
}
_DELTA_GATES: Shapes = {"ssm_beta.weight": (32, 4), "ssm_alpha.weight": (32, 4)}
_QWEN_ATTENTION: Shapes = {**_QWEN, **_ATTENTION, "attn_q.weight": (32, 64), **_HEAD_NORMS}
_EXPERT_SIZES = {
    **{"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 16},
    "expert_shared_feed_forward_length": 16,
}
_EXPERTS: Shapes = {
    **{"ffn_gate_inp.weight": (32, 4), "ffn_gate_exps.weight": (32, 16, 4), "ffn_up_exps.weight": (32, 16, 4)},
    "ffn_down_exps.weight": (16, 32, 4),
}
_SHARED_EXPERT: Shapes = {
    **{"ffn_gate_inp_shexp.weight": (32,), "ffn_gate_shexp.weight": (32, 16), "ffn_up_shexp.weight": (32, 16)},
    "ffn_down_shexp.weight": (16, 32),
}
_LFM2: Shapes = _norms("attn", "ffn")
_SHORT_CONVOLUTION: Shapes = {
    **{"shortconv.conv.weight": (3, 32), "shortconv.in_proj.weight": (32, 96), "shortconv.out_proj.weight": (32, 32)},
}
_RWKV_6: Shapes = {
    **{f"attn_norm{end}": (32,) for end in (".weight", ".bias", "_2.weight", "_2.bias")},
    **{"time_mix_w1.weight": (32, 20), "time_mix_w2.weight": (4, 32, 5), "time_mix_lerp_x.weight": (32, 1, 1)},
    **{"time_mix_lerp_fused.weight": (32, 1, 1, 5), "time_mix_first.weight": (32, 1), "time_mix_decay.weight": (32,)},
    **{"time_mix_decay_w1.weight": (32, 4), "time_mix_decay_w2.weight": (4, 32)},
    **{f"time_mix_{name}.weight": (32, 32) for name in ("key", "value", "receptance", "gate", "output")},
    **{"time_mix_ln.weight": (32,), "time_mix_ln.bias": (32,)},
    **{f"channel_mix_lerp_{name}.weight": (32, 1, 1) for name in "kr"},
    **{"channel_mix_key.weight": (32, 64), "channel_mix_value.weight": (64, 32)},
    "channel_mix_receptance.weight": (32, 32),
}
_RWKV_ENDS: Shapes = {
    **{"token_embd_norm.weight": (32,), "token_embd_norm.bias": (32,), "output_norm.bias": (32,)},
    "output.weight": (32, _NUM_TOKENS),
}
_RWKV_SIZES = {
    **{"attention.layer_norm_epsilon": 1e-5, "wkv.head_size": 32, "time_mix_extra_dim": 4, "time_decay_extra_dim": 4},
    **{"attention.head_count": 1, "attention.head_count_kv": 0, "feed_forward_length": 64},
}
_NEMOTRON_SIZES = {
    **{"block_count": 3, "attention.head_count_kv": [0, 1, 0], "feed_forward_length": [0, 0, 32]},
    "attention.layer_norm_epsilon": 1e-5,
}
_NEMOTRON_FORWARD: Shapes = {**_norms("attn"), "ffn_up.weight": (32, 32), "ffn_down.weight": (32, 32)}

# The name in llama.cpp -> what differs from the sizes above, the tensors of each layer, other tensors.
FAMILIES: dict[str, tuple[dict[str, Any], Sequence[Shapes], Shapes]] = {
    # One layer: with two, llama.cpp's own logits differ by up to 0.7 if it reads the same text in other pieces.
    "falcon-h1": (_STATE | {"block_count": 1}, [{**_MAMBA_2, **_ATTENTION, "ffn_norm": (32,), **_FORWARD}], {}),
    "granitehybrid": (
        _STATE | _EVERY_OTHER,
        [{**layer, **_norms("attn", "ffn"), **_FORWARD} for layer in (_MAMBA_2, _ATTENTION)],
        {},
    ),
    "jamba": (
        _STATE | _EVERY_OTHER,
        [{**layer, **_norms("attn", "ffn"), **_FORWARD} for layer in ({**_MAMBA, **_JAMBA_NORMS}, _ATTENTION)],
        {},
    ),
    "lfm2": (
        {"shortconv.l_cache": 3} | _EVERY_OTHER,
        [{**_LFM2, **_FORWARD, **_SHORT_CONVOLUTION}, {**_LFM2, **_FORWARD, **_ATTENTION, **_HEAD_NORMS}],
        {"token_embd_norm.weight": (32,)},
    ),
    "lfm2moe": (
        {"shortconv.l_cache": 3, "leading_dense_block_count": 0, "expert_gating_func": 2}
        | _EVERY_OTHER
        | _EXPERT_SIZES,
        [
            {**_LFM2, **_EXPERTS, "exp_probs_b.bias": (4,), **layer}
            for layer in (_SHORT_CONVOLUTION, {**_ATTENTION, **_HEAD_NORMS})
        ],
        {"token_embd_norm.weight": (32,)},
    ),
    "mamba": (_STATE, [_MAMBA] * 2, {}),
    "mamba2": (_STATE, [_MAMBA_2] * 2, {}),
    "nemotron_h": (
        _STATE | _NEMOTRON_SIZES,
        [_MAMBA_2, {**_norms("attn"), **_ATTENTION}, _NEMOTRON_FORWARD],
        {"output.weight": (32, _NUM_TOKENS)},
    ),
    "qwen35": (
        _DELTA_NET | {"rope.dimension_sections": [4, 4, 0, 0]},
        [{**layer, **_FORWARD} for layer in ({**_QWEN_DELTA, **_DELTA_GATES}, _QWEN_ATTENTION)],
        {},
    ),
    "qwen35moe": (
        _DELTA_NET | _EXPERT_SIZES | {"rope.dimension_sections": [4, 4, 0, 0]},
        [{**layer, **_EXPERTS, **_SHARED_EXPERT} for layer in ({**_QWEN_DELTA, **_DELTA_GATES}, _QWEN_ATTENTION)],
        {},
    ),
    "qwen3next": (
        _DELTA_NET | _EXPERT_SIZES,
        [
            {**layer, **_EXPERTS, **_SHARED_EXPERT}
            for layer in ({**_QWEN_DELTA, "ssm_ba.weight": (32, 8)}, _QWEN_ATTENTION)
        ],
        {},
    ),
    "rwkv6": (_RWKV_SIZES, [_RWKV_6] * 2, _RWKV_ENDS),
}


def write_state_model(folder: Path, family: str) -> Path:
    """A folder with the family's tiny GGUF file, and the bundled model's tokenizer and prompts."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        copyfile(_BUNDLED / name, folder / name)
    values, layers, others = FAMILIES[family]
    norms: Shapes = {} if family.startswith("lfm2") else {"output_norm.weight": (32,)}
    shapes = {f"blk.{at}.{name}": shape for at, layer in enumerate(layers) for name, shape in layer.items()}
    spec = json.loads((_BUNDLED / "tokenizer.json").read_text())
    shapes = {"token_embd.weight": (32, _NUM_TOKENS), **norms, **others, **shapes}
    write_random_gguf(folder / "model.gguf", family, spec, _SIZES | values, shapes)
    return folder
