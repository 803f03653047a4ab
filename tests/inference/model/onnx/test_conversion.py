import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from inference.config import EngineConfig
from inference.errors import ModelError
from inference.model.onnx.conversion import find_folder_obstacle, load_onnx_model
from tests.support.decoder_folders import change_config, write_decoder
from tests.support.onnx_folder import load_folder

_DEFAULT_MODEL = Path(__file__).parents[4] / "models/default"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda folder: change_config(folder, model_type="mixtral"), "its family is 'mixtral'"),
        (lambda folder: change_config(folder, hidden_act="relu"), "hidden_act .* not 'relu'"),
        (lambda folder: (folder / "config.json").write_text("{"), r"cannot read .*config\.json"),
        (lambda folder: (folder / "config.json").write_text("[]"), r"config\.json: not an object"),
        (lambda folder: (folder / "config.json").write_bytes(b"\xff"), r"cannot read .*config\.json"),
        (lambda folder: (folder / "config.json").unlink(), "its family is None"),
    ],
    ids=["family", "field", "no JSON", "a list", "no text", "missing"],
)
def test_a_folder_that_is_not_served_is_refused_with_the_reason(
    change: Callable[[Path], object], reason: str, tmp_path: Path
) -> None:
    write_decoder(tmp_path)
    assert find_folder_obstacle(tmp_path) is None
    change(tmp_path)
    assert re.search(reason, find_folder_obstacle(tmp_path) or "")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux")
def test_once_a_model_is_converted_the_files_of_its_weights_take_no_memory(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(_DEFAULT_MODEL, folder)
    loaded = load_onnx_model(EngineConfig(folder, dtype="int8", graph_dir=tmp_path / "graphs"))
    assert str(folder) not in Path("/proc/self/maps").read_text()
    del loaded


def test_weights_that_do_not_fit_are_refused_with_the_folder(tmp_path: Path) -> None:
    write_decoder(tmp_path)
    change_config(tmp_path, intermediate_size=41)
    with pytest.raises(ModelError, match=f"^cannot load the model in {tmp_path}: .* the shape"):
        load_folder(tmp_path)


def _replace(folder: Path, name: str, value: float) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = np.full_like(tensors[name], value)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("model.layers.0.mlp.up_proj.weight", np.nan, "infinite or NaN: its weights are damaged"),
        ("lm_head.weight", np.inf, "infinite or NaN: its weights are damaged"),
        ("lm_head.weight", 0.0, "the same for all tokens"),
    ],
)
def test_weights_that_cannot_be_those_of_a_model_are_refused(
    name: str, value: float, reason: str, tmp_path: Path
) -> None:
    write_decoder(tmp_path)
    _replace(tmp_path, name, value)
    with pytest.raises(ModelError, match=reason):
        load_folder(tmp_path)
