import dataclasses
from pathlib import Path
from typing import Any

import pytest

from inference.config import VARIABLE, EngineConfig, find_engine_url
from inference.errors import ModelError

_NUMBERS = [field.name for field in dataclasses.fields(EngineConfig) if field.type in (int, int | None)]


def test_a_config_is_unchanged_after_a_round_trip_through_the_environment() -> None:
    for config in (
        EngineConfig(Path("/m")),
        EngineConfig(Path("/m"), device="cuda", max_sequences=3, num_threads=2, graph_dir=Path("/g")),
    ):
        assert EngineConfig.from_environment({VARIABLE: config.to_json()}) == config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", f"{VARIABLE} in the server's environment has no model_dir"),
        ("[]", f"{VARIABLE} in the server's environment is no JSON object"),
        ("model_dir", "is no JSON object"),
        ('{"model_dir": "/m", "modle": 1}', "has the unknown field 'modle'; known are model_dir, device"),
        ('{"model_dir": 1}', "model_dir must be a string, not '1'"),
        ('{"model_dir": "/m", "max_sequences": "3"}', "max_sequences must be a whole number, not '\"3\"'"),
        ('{"model_dir": "/m", "max_sequences": true}', "max_sequences must be a whole number, not 'true'"),
        ('{"model_dir": "/m", "device": null}', "device must be a string, not 'null'"),
        *(
            (f'{{"model_dir": "/m", "dtype": "{dtype}"}}', f"dtype must be one of auto, .*, float64, not '{dtype}'")
            for dtype in ("float17", "float8_e4m3fn", "complex64", "bool", "nn")
        ),
    ],
)
def test_what_is_no_configuration_is_named_in_the_error(text: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        EngineConfig.from_environment({VARIABLE: text})


@pytest.mark.parametrize("name", _NUMBERS)
@pytest.mark.parametrize("value", [-1, 2**40])
def test_every_number_has_a_range(name: str, value: int) -> None:
    values: dict[str, Any] = {name: value}
    with pytest.raises(ModelError, match=rf"^{name} must be between \d+ and \d+, not {value}$"):
        EngineConfig(Path("/m"), **values)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("http://[::1]:8080/v1", "http://[::1]:8080"),
        (" https://e.example/llm/v1/", "https://e.example/llm"),
        ("localhost:80/v1#ann/b:Q8@main?", "http://localhost:80#ann/b:Q8@main?"),
        ("HTTP://127.0.0.1:8080/v1x", "http://127.0.0.1:8080/v1x"),
        ("[::1]:80", "http://[::1]:80"),
        ("e.example:1", "http://e.example:1"),
    ],
)
def test_an_engines_address_is_also_that_of_an_openai_client(text: str, url: str) -> None:
    assert find_engine_url(text) == url


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
        *("http://ann:hunter2@a:99999", "http://a,http://b", "http://a?key=hunter2"),
    ],
)
def test_what_is_no_address_of_an_engine_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(ModelError, match="an engine's address") as raised:
        find_engine_url(text)
    assert "hunter2" not in str(raised.value)
