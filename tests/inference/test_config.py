from pathlib import Path

import pytest

from inference.config import EngineConfig, config_from_strings, config_to_environment, strings_from_environment
from inference.errors import ModelError


def test_a_config_survives_the_environment() -> None:
    config = EngineConfig(Path("/m"), device="cuda", max_waiting=3, warm=False)
    assert config_from_strings(strings_from_environment(config_to_environment(config))) == config


def test_other_variables_are_left_alone() -> None:
    assert strings_from_environment({"MIDTOKEN_DEVICE": "cuda", "MIDTOKEN_TEST": "1", "DEVICE": "x"}) == {
        "device": "cuda"
    }


@pytest.mark.parametrize(
    ("strings", "text"),
    [
        ({"max_waiting": "many"}, "max_waiting must be a whole number, not 'many'"),
        ({"warm": "yes"}, "warm must be true or false, not 'yes'"),
        ({"speed": "fast"}, "unknown setting 'speed'; known are model_dir"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(strings: dict[str, str], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        config_from_strings({"model_dir": "/m", **strings})
