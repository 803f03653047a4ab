from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from inference.config import EngineConfig
from inference.errors import ModelError, OverloadedError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SequencePart
from inference.model.pytorch.loader import load_torch_model
from inference.model.pytorch.model import TorchModel, refusing_when_out_of_memory
from tests.inference.conftest import MakeModel
from tests.support.decoder_folders import DecoderOracle, write_model
from tests.support.runners import CheckedSequence, build_torch, load_torch
from tests.support.tiny_families import KV, LAYER_TYPES, build_config, build_model
from tests.support.toys import toy_tokenizer


def _raise(error: BaseException) -> NoReturn:
    raise error


def _new_sequence(folder: Path, dtype: str = "float64") -> CheckedSequence:
    """A sequence of the model in a folder. In float64, only mistakes differ from transformers."""
    return CheckedSequence(load_torch(folder, dtype), DecoderOracle(folder, dtype).forward, 1e-3)


def test_a_window_counts_from_the_positions_of_stored_branches(make_model: MakeModel) -> None:
    """Half of the layers see five tokens only."""
    sequence = _new_sequence(make_model(family="gemma3_text", **KV, **LAYER_TYPES, sliding_window=5))
    tree = TokenTree((1, 2), (3, 4), (None, 0))
    sequence.forward(tree)
    stored = sequence.cache.copy_branches(tree)
    sequence.keep(tree)
    part = SequencePart(sequence.cache, TokenTree((), (3, 4, 5, 6, 7, 8, 9), (None, 0, 1, 2, 3, 4, 5)), tuple(stored))

    sequence.check(part, sequence.model.forward([part])[0])


@pytest.mark.parametrize(("dtype", "of_logits"), [("bfloat16", torch.bfloat16), ("float64", torch.float32)])
def test_logits_have_the_type_that_the_model_computes_in_but_at_most_float32(
    make_model: MakeModel, dtype: str, of_logits: torch.dtype
) -> None:
    model = load_torch_model(EngineConfig(make_model(), dtype=dtype)).model
    [[row]] = model.forward([SequencePart(model.new_cache(), TokenTree((1,)))])

    assert row.logits.dtype == of_logits


class _AllRowsLlama(transformers.LlamaForCausalLM):  # type: ignore[misc]  # transformers has no types
    """A model that returns the logits of all rows, not only the requested ones."""

    def forward(self, *, logits_to_keep: torch.Tensor | None = None, **others: Any) -> Any:  # noqa: ARG002  # that is the case
        return super().forward(**others)


class _NoRowsLlama(transformers.LlamaForCausalLM):  # type: ignore[misc]  # transformers has no types
    """A model that cannot be asked for some rows only."""

    def forward(self, input_ids: torch.Tensor, position_ids: Any = None, past_key_values: Any = None, **_: Any) -> Any:
        return super().forward(input_ids, position_ids=position_ids, past_key_values=past_key_values)


@pytest.mark.parametrize("family", [_AllRowsLlama, _NoRowsLlama])
def test_rows_are_selected_for_a_model_that_returns_all(family: type) -> None:
    built = build_model(build_config("llama", KV))
    tree = TokenTree((1, 2, 3), (4, 5), (None, 0))
    expected = _forward_once(build_torch(built), tree)
    built.__class__ = family

    torch.testing.assert_close(_forward_once(build_torch(built), tree), expected)


def _forward_once(model: TorchModel, tree: TokenTree) -> torch.Tensor:
    [rows] = model.forward([SequencePart(model.new_cache(), tree)])
    return torch.stack([row.logits for row in rows])


def test_a_text_whose_logits_are_no_numbers_is_an_error_and_the_next_text_is_not(tmp_path: Path) -> None:
    folder = write_model(tmp_path, toy_tokenizer("qwen"))
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][300] = torch.nan  # as a float16 model that overflows after some texts
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    model = load_torch_model(EngineConfig(folder)).model

    with pytest.raises(ModelError, match="in float32, the model's logits are infinite or NaN"):
        _forward_once(model, TokenTree((5, 300)))
    assert _forward_once(model, TokenTree((5, 6))).isfinite().any()


_LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 77,
}


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("phi3", {"rope_parameters": _LONG_ROPE, "original_max_position_embeddings": 77, "pad_token_id": 0}),
        ("llama", {"rope_parameters": _LONG_ROPE}),
        (
            "gemma3_text",
            {
                **LAYER_TYPES,
                "rope_parameters": {
                    "full_attention": _LONG_ROPE,
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                },
            },
        ),
    ],
)
def test_a_sequence_is_no_longer_than_what_leaves_its_earlier_tokens_unchanged(
    family: str, changes: dict[str, Any]
) -> None:
    assert build_torch(build_model(build_config(family, KV | changes))).max_tokens == 77


@pytest.mark.parametrize(
    "allocate",
    [
        partial(torch.empty, 1 << 50),
        partial(_raise, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")),
        partial(_raise, RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")),
        partial(_raise, MemoryError()),
    ],
    ids=["torch on the CPU", "GPU", "cuBLAS", "Python"],
)
def test_a_failed_allocation_is_an_overloaded_error_that_names_its_purpose(allocate: Callable[[], object]) -> None:
    with (
        pytest.raises(OverloadedError, match="no memory left for the keys of 5 tokens"),
        refusing_when_out_of_memory("the keys of 5 tokens"),
    ):
        allocate()
