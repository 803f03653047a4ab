import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inference.errors import InvalidRequestError, ModelError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SequencePart
from inference.model.onnx.model import OnnxModel, OnnxSequenceCache
from inference.model.sampler import NumpyRow
from tests.support.decoder_folders import (
    LONG_ROPE,
    MAX_TOKENS,
    SERVED,
    VOCAB_SIZE,
    DecoderOracle,
    change_config,
    write_decoder,
)
from tests.support.onnx_folder import load_folder
from tests.support.runners import CheckedSequence, random_trees

_BUNDLED_MODEL = Path(__file__).parents[4] / "models/default"
_TOLERANCE = 1e-4
_TREE = TokenTree((3, 4, 5), (6, 7, 6, 8, 9), (None, 0, None, 2, 2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def model(folder: Path) -> OnnxModel:
    return load_folder(folder)


def _forward(model: OnnxModel, cache: OnnxSequenceCache, tree: TokenTree) -> list[NumpyRow]:
    return model.forward([SequencePart(cache, tree)])[0]


def _new_sequence(folder: Path) -> CheckedSequence:
    return CheckedSequence(load_folder(folder), DecoderOracle(folder).forward, _TOLERANCE)


@pytest.mark.parametrize("name", SERVED)
def test_logits_after_all_nodes_of_a_tree_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    family, changes = SERVED[name]
    write_decoder(tmp_path, family, **changes)
    sequence = _new_sequence(tmp_path)
    sequence.skim([Random(0).randrange(VOCAB_SIZE) for _ in range(50)], 20)
    sequence.forward(_TREE)
    sequence.keep(_TREE, node=4)
    sequence.read(1)


@pytest.mark.parametrize(("dtype", "share"), [("int8", 0.1), ("int4", 0.5)])
@pytest.mark.parametrize("name", ["llama", "gemma", "stablelm"])
def test_weights_of_few_bits_change_the_logits_by_a_part_of_their_spread(
    name: str, dtype: str, share: float, tmp_path: Path
) -> None:
    family, changes = SERVED[name]
    write_decoder(tmp_path, family, **changes | {"intermediate_size": 300})
    model, text = load_folder(tmp_path, dtype=dtype), (3, 4, 5, 6)
    [row] = _forward(model, model.new_cache(8), TokenTree(text))
    expected = DecoderOracle(tmp_path).forward(text)
    assert (row.logits - expected).std() <= share * expected.std()  # without relation, 1.4 of it


# What stands in files that were written by other versions of transformers.
_OTHER_SPELLINGS: dict[str, dict[str, Any]] = {
    "llama": {"rope_parameters": ..., "rope_theta": 900.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama yarn": {"rope_parameters": {"type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 32},
    "mistral": {"sliding_window": 4096, "rope_parameters": None, "rope_theta": 900.0},
    "qwen2": {
        "rope_parameters": ...,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        "layer_types": ...,
        "sliding_window": 8,
    },
    "gemma": {"hidden_act": "gelu", "hidden_activation": None},
    "phi3": {"rope_parameters": ..., "rope_scaling": {**LONG_ROPE, "rope_type": "su"}},
    "phi3 longrope": {"rope_parameters": LONG_ROPE | {"rope_type": "yarn", "attention_factor": 1.5}},
    "smollm3": {"layer_types": ..., "sliding_window": None, "use_sliding_window": True},
    "stablelm": {"rope_parameters": ..., "partial_rotary_factor": ..., "rope_theta": 900},
}


@pytest.mark.parametrize("name", _OTHER_SPELLINGS)
def test_files_of_other_versions_of_transformers_are_read_as_it_reads_them(name: str, tmp_path: Path) -> None:
    family, changes = SERVED[name]
    change_config(write_decoder(tmp_path, family, **changes), **_OTHER_SPELLINGS[name])
    _new_sequence(tmp_path).forward(_TREE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shard_size", ["1GB", "9KB"])
@pytest.mark.parametrize("name", ["llama", "phi3 longrope, a part of each head"])
def test_weights_of_each_type_are_read_from_one_file_or_several(
    name: str, dtype: torch.dtype, shard_size: str, tmp_path: Path
) -> None:
    family, changes = SERVED[name]
    write_decoder(tmp_path, family, dtype, shard_size, **changes)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shard_size == "9KB")
    _new_sequence(tmp_path).forward(_TREE)


@pytest.fixture(scope="module", params=["float32", "int8", "int4"])
def bundled_models(request: pytest.FixtureRequest) -> list[OnnxModel]:
    """The bundled model with one thread and with two."""
    return [load_folder(_BUNDLED_MODEL, dtype=request.param, num_threads=num_threads) for num_threads in (1, 2)]


@example(sizes=[129, 1])  # attention takes rows in tiles
@example(sizes=[257])
@settings(max_examples=settings().max_examples // 3)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_bits_do_not_depend_on_how_a_text_is_divided_into_passes_or_on_threads(
    sizes: list[int], bundled_models: list[OnnxModel]
) -> None:
    text = [Random(1).randrange(8192) for _ in range(sum(sizes))]
    _check_same_bits(bundled_models, text, sizes)


@pytest.mark.parametrize("size", [32, 33, 65, 97])
def test_bits_do_not_depend_on_the_division_where_heads_are_small(size: int, model: OnnxModel) -> None:
    _check_same_bits([model], [Random(1).randrange(VOCAB_SIZE) for _ in range(size)], [30, size - 30])


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("name", ["starcoder2", "gemma", "granite", "phi3", "olmo2", "qwen3", "llama gelu", "stablelm"])
def test_bits_do_not_depend_on_the_division_in_any_family(name: str, dtype: str, tmp_path: Path) -> None:
    family, changes = SERVED[name]
    write_decoder(tmp_path, family, **changes | {"intermediate_size": 1003})
    models = [load_folder(tmp_path, dtype=dtype, num_threads=num_threads) for num_threads in (1, 2)]
    _check_same_bits(models, [Random(1).randrange(VOCAB_SIZE) for _ in range(45)], [1, 2, 7, 34, 1])


def _check_same_bits(models: list[OnnxModel], text: list[int], sizes: list[int]) -> None:
    """All models get the same bits when they read the text in pieces as the first gets when it reads two by two."""
    pairs = [2] * (len(text) // 2) + [1] * (len(text) % 2)
    planes, rows = _read_in_pieces(models[0], text, pairs)
    for model in models:
        for division in (sizes, [len(text)]):
            other_planes, other_rows = _read_in_pieces(model, text, division)
            np.testing.assert_array_equal(other_planes, planes)
            np.testing.assert_array_equal(other_rows[-1].logits, rows[-1].logits)


def _read_in_pieces(
    model: OnnxModel, text: list[int], sizes: list[int]
) -> tuple[npt.NDArray[np.float32], list[NumpyRow]]:
    cache, rows, first = model.new_cache(8), [], 0
    for size in sizes:
        tree = TokenTree(tuple(text[first : first + size]))
        rows += _forward(model, cache, tree)
        cache.keep(tree)
        first += size
    return cache.planes[:, :, :first].copy(), rows


@given(trees=st.lists(random_trees(VOCAB_SIZE), min_size=2, max_size=4))
def test_bits_do_not_depend_on_the_neighbours_in_a_pass(trees: list[TokenTree], model: OnnxModel) -> None:
    alone = [_forward(model, model.new_cache(), tree) for tree in trees]
    together = model.forward([SequencePart(model.new_cache(), tree) for tree in trees])
    for some, others in zip(alone, together, strict=True):
        for one, other in zip(some, others, strict=True):
            np.testing.assert_array_equal(one.logits, other.logits)


def test_the_last_position_of_the_model_is_right_and_the_next_one_is_refused(folder: Path) -> None:
    sequence = _new_sequence(folder)
    sequence.skim([Random(2).randrange(VOCAB_SIZE) for _ in range(MAX_TOKENS - 1)])
    sequence.forward(TokenTree((1,)))
    with pytest.raises(InvalidRequestError, match="129 tokens is longer than the 128 tokens"):
        sequence.forward(TokenTree((1,), (2,), (None,)))


def test_long_texts_are_read_with_little_memory_and_get_the_same_bits_and_the_logits_of_transformers(
    tmp_path: Path,
) -> None:
    write_decoder(tmp_path, max_position_embeddings=3000, num_hidden_layers=1)
    model, oracle = load_folder(tmp_path), DecoderOracle(tmp_path)
    text = [Random(3).randrange(VOCAB_SIZE) for _ in range(2500)]
    in_pieces, _ = _read_in_pieces(model, text, [700, 700, 700, 400])

    tracemalloc.start()
    at_once, rows = _read_in_pieces(model, text, [len(text)])
    num_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    np.testing.assert_array_equal(at_once, in_pieces)
    assert num_bytes < 15_000_000  # a bias of all rows and keys takes 25 million
    np.testing.assert_allclose(rows[-1].logits, oracle.forward(text), atol=_TOLERANCE)
    tree = TokenTree(tuple(text[500:]), (3, 4, 5), (None, None, 0))
    sequence = CheckedSequence(model, oracle.forward, _TOLERANCE)
    sequence.skim(text[:500])
    sequence.forward(tree)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_refused(value: float, model: OnnxModel) -> None:
    cache, tree = model.new_cache(8), TokenTree((1, 2))
    _forward(model, cache, tree)
    cache.keep(tree)
    cache.planes[0, 0, 0, 0] = value
    with pytest.raises(ModelError, match="infinite or NaN"):
        _forward(model, cache, TokenTree((3,)))
