from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest

from inference.errors import ModelError
from inference.model.onnx.graph import build_graph
from inference.model.onnx.graph_store import CONSTANTS_NAME, GRAPH_NAME
from inference.model.onnx.model import OnnxModel
from inference.model.onnx.session import open_session
from inference.model.onnx.trial import StoredWeights, check_model
from inference.model.onnx.weights import Precision, Weights
from tests.support.decoder_folders import write_decoder
from tests.support.onnx_folder import load_folder

_SEVERAL_BLOCKS = "model.layers.1.mlp.down_proj.weight"
_BETWEEN_OTHERS = "model.layers.0.self_attn.k_proj.weight"


@pytest.fixture(params=[Precision.INT8, Precision.INT4])
def precision(request: pytest.FixtureRequest) -> Precision:
    found: Precision = request.param
    return found


@contextmanager
def _convert(folder: Path, precision: Precision) -> Iterator[tuple[OnnxModel, StoredWeights]]:
    """A model that is loaded, and the weights that are stored for it."""
    write_decoder(folder / "model", intermediate_size=300)
    model = load_folder(folder / "model", dtype=precision.value, graph_dir=folder / "graphs")
    [path] = (folder / "graphs").glob(f"*/{CONSTANTS_NAME}")
    weights = Weights(folder / "model", model.config)
    yield model, StoredWeights(weights, build_graph(model.config, weights, precision, CONSTANTS_NAME), path)


@pytest.mark.parametrize("part", [0, 1, 2], ids=["codes", "scales", "zero points"])
@pytest.mark.parametrize("name", [_SEVERAL_BLOCKS, _BETWEEN_OTHERS])
def test_one_number_that_is_stored_wrong_is_found(name: str, part: int, precision: Precision, tmp_path: Path) -> None:
    with _convert(tmp_path, precision) as (model, stored):
        check_model(model, stored, precision)
        constants, start = stored.graph.places[name]
        numbers = np.memmap(stored.path, constants[part].dtype, "r+", constants[part].offset, constants[part].shape)
        row = numbers[start + 7].reshape(-1)
        row[0] = row[0] * 1.1 if part == 1 else row[0] ^ 1
        numbers.flush()
        with pytest.raises(ModelError, match=f"not what their {precision.num_bits} bits stand for"):
            check_model(model, stored, precision)


def test_one_product_that_is_computed_without_its_zero_points_is_found(precision: Precision, tmp_path: Path) -> None:
    with _convert(tmp_path, precision) as (model, stored):
        path = stored.path.with_name(GRAPH_NAME)
        graph = onnx.load(path, load_external_data=False)
        node = next(node for node in graph.graph.node if node.op_type == "MatMulNBits")
        del node.input[3]  # half of the codes are then taken for zero, which is almost right
        path.write_bytes(graph.SerializeToString())
        model._session = open_session(str(path), 1)
        with pytest.raises(ModelError, match="computes other logits"):
            check_model(model, stored, precision)
