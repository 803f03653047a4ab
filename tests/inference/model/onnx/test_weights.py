import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  # bfloat16 for NumPy
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from inference.errors import ModelError
from inference.model.onnx.decoder_config import read_decoder_config
from inference.model.onnx.weights import BLOCK_SIZE, Weights, quantize
from tests.support.decoder_folders import write_decoder

Tensors = dict[str, npt.NDArray[np.float32]]
_QUERY = "model.layers.1.self_attn.q_proj.weight"


def _open(folder: Path) -> None:
    config = read_decoder_config(json.loads((folder / "config.json").read_text()))
    Weights(folder, config).read(_QUERY)


def _change(folder: Path, change: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.pop(_QUERY), f"lack the weights {_QUERY}; download the model again"),
        (lambda t: [t.pop(name) for name in sorted(t)[:9]], "lack the weights .* and 6 more"),
        (lambda t: t.pop("lm_head.weight"), "lack the weights lm_head.weight"),
        (lambda t: t.update({"model.layers.1.self_attn.q_norm.weight": np.ones(16, np.float32)}), "q_norm.weight, whi"),
        (lambda t: t.update({"model.layers.2.mlp.up_proj.weight": t[_QUERY]}), "layers.2.mlp.up_proj.weight, which"),
        (lambda t: t.update({_QUERY: t[_QUERY][:48]}), r"shape \[48, 64\], and not \[64, 64\]"),
        (lambda t: t.update({_QUERY: t[_QUERY].astype(np.float64)}), "are of the type F64"),
        (lambda t: t.update({_QUERY: t[_QUERY].astype(np.int8)}), "are of the type I8"),
    ],
)
def test_files_with_other_tensors_are_refused_by_name(
    change: Callable[[Tensors], object], reason: str, tmp_path: Path
) -> None:
    write_decoder(tmp_path)
    _open(tmp_path)
    _change(tmp_path, change)
    with pytest.raises(ModelError, match=reason):
        _open(tmp_path)


def test_tensors_that_are_computed_from_the_configuration_are_ignored(tmp_path: Path) -> None:
    write_decoder(tmp_path)
    _change(
        tmp_path, lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, dtype=np.float32)})
    )
    _open(tmp_path)


def test_a_head_beside_tied_embeddings_must_be_the_same(tmp_path: Path) -> None:
    write_decoder(tmp_path, tie_word_embeddings=True)
    _change(tmp_path, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"]}))
    _open(tmp_path)
    _change(tmp_path, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"] * 2}))
    with pytest.raises(ModelError, match=r"lm_head\.weight is not model\.embed_tokens\.weight, as tie_word_embeddings"):
        _open(tmp_path)


@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda _: b"\xff" * 100, lambda data: data[:-1]], ids=["empty", "no weights", "truncated"]
)
def test_files_that_are_damaged_are_refused(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = write_decoder(tmp_path) / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged"):
        _open(tmp_path)


def _decode(weights: npt.NDArray[np.float32], num_bits: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The weights that the codes stand for, with those that fill the last block, and the scale of each."""
    codes, scales, zero_points = quantize(weights, num_bits)
    if num_bits == 4:
        codes, zero_points = (
            np.stack([each & 15, each >> 4], -1).reshape(*each.shape[:-1], -1) for each in (codes, zero_points)
        )
    blocks = codes.astype(np.float64) - zero_points[:, : scales.shape[1], None]
    return (blocks * scales[..., None]).reshape(len(weights), -1), np.repeat(scales, BLOCK_SIZE, axis=1)


@given(
    num_bits=st.sampled_from([8, 4]),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 300)),
    shift=st.floats(-10, 10),
    scale=st.sampled_from([0.0, 1e-30, 0.02, 5.0]),
    seed=st.integers(0, 9),
)
def test_codes_stand_for_the_weights_to_half_a_step(
    num_bits: int, shape: tuple[int, int], shift: float, scale: float, seed: int
) -> None:
    weights = (np.random.default_rng(seed).normal(size=shape) * scale + shift).astype(np.float32)
    decoded, steps = _decode(weights, num_bits)
    assert np.all(np.abs(decoded[:, : shape[1]] - weights) <= 0.51 * steps[:, : shape[1]] + 1e-30)
    assert np.all(decoded[:, shape[1] :] == 0)


@pytest.mark.parametrize("num_bits", [8, 4])
def test_blocks_of_zeros_stay_zeros_and_many_rows_are_quantized_as_few(num_bits: int) -> None:
    weights = np.random.default_rng(0).normal(size=(5000, 70)).astype(np.float32)
    weights[::3] = 0
    decoded, steps = _decode(weights, num_bits)
    assert np.all(decoded[::3] == 0)
    assert np.all(np.isfinite(steps))
    np.testing.assert_array_equal(decoded[4500:], _decode(weights[4500:], num_bits)[0])
