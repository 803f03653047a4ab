import dataclasses
from pathlib import Path
from typing import Any

import pytest

from inference.config import EngineConfig, config_from_environment, config_to_environment, find_engine_urls
from inference.errors import ModelError

_NUMBERS = [field.name for field in dataclasses.fields(EngineConfig) if field.type is int]


def test_a_config_is_unchanged_after_a_round_trip_through_the_environment() -> None:
    config = EngineConfig(Path("/m"), device="cuda", max_waiting=3, drafts=False)
    assert config_from_environment(config_to_environment(config)) == config


def test_an_empty_variable_means_the_default_and_one_that_names_no_setting_is_ignored() -> None:
    variables = {"MIDTOKEN_MODEL_DIR": "/m", "MIDTOKEN_MAX_WAITING": "", "MIDTOKEN_TEST": "1", "DEVICE": "x"}
    assert config_from_environment(variables) == EngineConfig(Path("/m"))


def test_without_a_model_folder_the_error_says_where_to_give_it() -> None:
    with pytest.raises(ModelError, match="has no MIDTOKEN_MODEL_DIR"):
        config_from_environment({})


@pytest.mark.parametrize(
    ("strings", "text"),
    [
        ({"max_waiting": "many"}, "max_waiting must be a whole number between 0 and 65536, not 'many'"),
        ({"max_waiting": "1_0"}, "max_waiting must be a whole number between 0 and 65536, not '1_0'"),
        ({"max_waiting": "9" * 10_000}, r"not '9999.* and so on, 10000 characters$"),
        *(
            ({"dtype": dtype}, f"dtype must be one of auto, float32, .*, float64, not '{dtype}'")
            for dtype in ("float17", "float8_e4m3fn", "complex64", "bool", "nn")
        ),
        ({"drafts": "yes"}, "drafts must be true or false, not 'yes'"),
        ({"max_sequences": "0"}, "max_sequences must be between 1 and 1024, not 0"),
        ({"max_sequences": "1025"}, "max_sequences must be between 1 and 1024, not 1025"),
        ({"max_waiting": "-1"}, "max_waiting must be between 0 and 65536, not -1"),
        ({"num_threads": "0"}, "num_threads must be between 1 and 1024, not 0"),
        ({"max_context_tokens": "15"}, "max_context_tokens must be between 16 and 1048576, not 15"),
        ({"cache_tokens": "-5"}, "cache_tokens must be between 32 and 1073741824, not -5"),
    ],
)
def test_an_invalid_setting_is_named_in_the_error(strings: dict[str, str], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        config_from_environment(
            {f"MIDTOKEN_{name.upper()}": text for name, text in {"model_dir": "/m", **strings}.items()}
        )


@pytest.mark.parametrize("name", _NUMBERS)
@pytest.mark.parametrize("value", [-1, 2**40])
def test_every_number_has_a_range(name: str, value: int) -> None:
    values: dict[str, Any] = {name: value}
    with pytest.raises(ModelError, match=rf"^{name} must be between \d+ and \d+, not {value}$"):
        EngineConfig(Path("/m"), **values)


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("http://127.0.0.1:8080/", ["http://127.0.0.1:8080"]),
        ("http://[::1]:8080/v1, https://e.example/llm/v1/", ["http://[::1]:8080", "https://e.example/llm"]),
        ("localhost:80/v1#ann/b:Q8@main?, http://c#d", ["http://localhost:80#ann/b:Q8@main?", "http://c#d"]),
        ("HTTP://127.0.0.1:8080/v1x", ["http://127.0.0.1:8080/v1x"]),
        ("localhost:8080/v1, [::1]:80,e.example:1", ["http://localhost:8080", "http://[::1]:80", "http://e.example:1"]),
    ],
)
def test_an_engines_address_is_also_that_of_an_openai_client(text: str, urls: list[str]) -> None:
    assert find_engine_urls(text) == urls


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            ",",
            "localhost",
            "http:/a:80",
            "localhost:x",
            "ftp://a",
            "http://",
            "http://[::1",
            "http://a:65536",
            "http://a:0",
            "http://a:x",
        ),
        *("http://ann:hunter2@a:99999", "http://ann:x,hunter2@a", "http://a?key=hunter2"),
    ],
)
def test_what_is_no_address_of_an_engine_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(ModelError, match="an engine's address") as raised:
        find_engine_urls(text)
    assert "hunter2" not in str(raised.value)
