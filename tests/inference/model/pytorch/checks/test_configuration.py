import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from inference.errors import ModelError, OverloadedError
from inference.model.pytorch.loader import check_config, read_config, refusing_family
from inference.model.pytorch.transformers_hook import ATTENTION_NAME
from tests.support.tiny_families import REFUSED_BY_CONFIG, build_config


@pytest.mark.parametrize("family", REFUSED_BY_CONFIG)
def test_layers_of_another_type_are_refused_from_the_configuration(family: str) -> None:
    changes, reason = REFUSED_BY_CONFIG[family]

    with pytest.raises(ModelError, match=f"^models of the family '{family}' cannot be run: .*{reason}"):
        check_config(build_config(family, changes))


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("alibi", "adds positions to the scores"),
        ("use_alibi", "adds positions to the scores"),
        ("attn_temperature_tuning", "takes a token's row in the forward pass for its position"),
    ],
)
def test_a_setting_that_spoils_positions_is_refused(name: str, meaning: str) -> None:
    with pytest.raises(ModelError, match=f"'llama' cannot be run: its attention {meaning} .{name} is true"):
        check_config(build_config("llama", {name: True}))


def test_a_configuration_without_attention_heads_is_refused() -> None:
    config = transformers.AutoConfig.for_model("rwkv", vocab_size=300, hidden_size=32, num_hidden_layers=2)

    with pytest.raises(ModelError, match=r"'rwkv' cannot be run: .*num_attention_heads"):
        check_config(config)


def test_a_family_that_is_no_language_model_is_refused() -> None:
    with pytest.raises(ModelError, match="'vit' cannot be run: transformers knows no language model"):
        check_config(transformers.AutoConfig.for_model("vit"))


@pytest.mark.parametrize("family", ["bart", "musicgen"])
def test_a_model_with_an_encoder_is_refused(family: str) -> None:
    with pytest.raises(ModelError, match=f"'{family}' cannot be run: it has an encoder"):
        check_config(transformers.AutoConfig.for_model(family))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({}, "names no model_type"),
        ({"model_type": ["llama"]}, "names no model_type"),
        ({"model_type": "no such model"}, "'no such model' cannot be run: the installed .* does not know"),
        ({"model_type": "own", "auto_map": {}}, "'own' cannot be run: they bring code of their own"),
        ({"model_type": "llama", "hidden_size": "many"}, "'llama' cannot be run: config.json has values"),
    ],
)
def test_a_configuration_that_transformers_refuses_is_told_in_one_line(
    content: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(content))

    with pytest.raises(ModelError, match=f"^[^\\n]*{reason}[^\\n]*$"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ZeroDivisionError("in some code"), "its code in transformers fails with this configuration$"),
        (KeyError(ATTENTION_NAME), "attention of its own, which cannot be replaced$"),
        (ImportError("No module named 'timm'", name="timm"), r"a Python package that is not installed \(timm\)$"),
        (ModelError("layer 3 is odd"), "layer 3 is odd$"),
    ],
)
def test_a_failure_names_the_family_and_no_foreign_exception(error: Exception, reason: str) -> None:
    with pytest.raises(ModelError, match=f"^models of the family 'strange' cannot be run: .*{reason}"), _refusing():
        raise error


def test_a_device_without_memory_is_no_fault_of_the_family() -> None:
    with pytest.raises(OverloadedError), _refusing():
        raise OverloadedError("no memory")


def _refusing() -> Any:  # a context manager
    return refusing_family("strange")
