import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from inference.config import EngineConfig
from inference.errors import ModelError
from inference.model import loader
from inference.model.loader import load_model
from inference.model.onnx.model import OnnxModel
from inference.model.pytorch.model import TorchModel
from inference.platforms import find_install_command
from tests.inference.conftest import MakeModel
from tests.support.decoder_folders import change_config, write_decoder

_BUNDLED = Path("models/default")


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch and transformers are not installed."""
    hidden = ("torch", "transformers")
    monkeypatch.setattr(loader, "find_spec", lambda name: None if name in hidden else find_spec(name))


@pytest.mark.usefixtures("without_torch")
def test_the_bundled_model_runs_without_torch() -> None:
    loaded = load_model(EngineConfig(_BUNDLED))

    assert isinstance(loaded.model, OnnxModel)


@pytest.mark.parametrize(("family", "settings"), [("gpt2", {}), ("llama", {"dtype": "float64"})])
def test_families_and_types_of_numbers_that_need_torch_get_it(
    family: str, settings: dict[str, Any], make_model: MakeModel
) -> None:
    assert isinstance(load_model(EngineConfig(make_model(family=family), **settings)).model, TorchModel)


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {},
            "its family is 'cohere', and only llama, mistral, qwen2, qwen3, starcoder2, granite, gemma, phi3, smollm3, "
            "olmo2, stablelm run without torch",
        ),
        ({"device": "cuda"}, "the device is cuda"),
        ({"dtype": "bfloat16"}, "its numbers are to be of the type bfloat16"),
    ],
)
def test_without_torch_the_reason_and_the_remedy_are_said(
    settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    folder = write_decoder(tmp_path, "cohere")

    with pytest.raises(ModelError) as raised:
        load_model(EngineConfig(folder, **settings))

    assert str(raised.value) == (
        f"cannot load the model in {folder}: it cannot be run without torch, because {reason}; and torch and "
        f"transformers cannot be imported here; run {find_install_command('torch')}"
    )


@pytest.mark.usefixtures("without_torch")
def test_a_device_that_does_not_exist_is_no_reason_to_install_torch(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"^no device is called 'cdua'; torch has cpu, cuda, mps, xpu .--device.$"):
        load_model(EngineConfig(write_decoder(tmp_path), device="cdua"))


@pytest.mark.parametrize(
    ("changes", "settings", "reason"),
    [
        ({"model_type": "gpt2"}, {}, "its family is 'gpt2', and only llama"),
        ({"hidden_act": "relu"}, {}, "hidden_act .* not 'relu'"),
        ({}, {"device": "cuda"}, "the device is cuda"),
    ],
)
def test_where_8_bits_cannot_be_had_the_reason_and_what_would_work_are_said(
    changes: dict[str, Any], settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    change_config(write_decoder(tmp_path), **changes)

    with pytest.raises(ModelError, match=f"in int8: {reason}.*; in float32 .--dtype., it is run with torch"):
        load_model(EngineConfig(tmp_path, dtype="int8", **settings))


@pytest.mark.parametrize(
    ("settings", "named", "expected"),
    [
        ({}, None, "auto"),  # the size decides
        ({"device": "meta"}, None, "float32"),
        ({}, "int8", "int8"),
        ({}, "float32", "float32"),
        ({"dtype": "float32"}, "int8", "float32"),
        ({"dtype": "float64"}, "int8", "float64"),
        ({"device": "meta"}, "int8", "float32"),
    ],
)
def test_the_setting_decides_on_numbers_then_the_folder(
    settings: dict[str, Any], named: str | None, expected: str, tmp_path: Path
) -> None:
    folder = write_decoder(tmp_path)
    if named is not None:
        (folder / "midtoken.json").write_text(json.dumps({"dtype": named}))

    assert loader._choose_dtype(EngineConfig(folder, **settings)) == expected
