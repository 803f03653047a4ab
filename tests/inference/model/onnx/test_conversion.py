import shutil
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.errors import ModelError
from inference.model.onnx.conversion import load_onnx_model
from tests.support.decoder_folders import change_config, write_decoder
from tests.support.onnx_folder import load_folder

_BUNDLED_MODEL = Path(__file__).parents[4] / "models/default"


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux")
def test_once_a_model_is_converted_the_files_of_its_weights_take_no_memory(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(_BUNDLED_MODEL, folder)
    loaded = load_onnx_model(EngineConfig(folder, dtype="int8", graph_dir=tmp_path / "graphs"))
    assert str(folder) not in Path("/proc/self/maps").read_text()
    del loaded


def test_weights_that_do_not_fit_are_refused_with_the_folder(tmp_path: Path) -> None:
    write_decoder(tmp_path)
    change_config(tmp_path, intermediate_size=41)
    with pytest.raises(ModelError, match=f"^cannot load the model in {tmp_path}: .* the shape"):
        load_folder(tmp_path)
