"""How many tokens of a prompt are read, on a machine and with a model."""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.errors import ModelError
from inference.model import window
from inference.model.loader import load_model
from inference.model.measurements import Measured
from inference.model.window import choose_window, measure_reading
from inference.protocol.completion import CompletionRequest
from tests.support.sinks import complete

_DEFAULT = Path("models/default").absolute()
_TEXT = Path("inference/engine/engine.py").read_text(encoding="utf-8")
_TOKEN_NBYTES = 1_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The default model, without the context that it names."""
    copied = shutil.copytree(_DEFAULT, tmp_path / "model")
    values = json.loads((copied / "midtoken.json").read_text())
    del values["context_tokens"]
    (copied / "midtoken.json").write_text(json.dumps(values))
    return copied


def test_a_context_of_2048_is_read_by_a_model_that_sees_as_many() -> None:
    with closing(load_engine(EngineConfig(_DEFAULT, max_context_tokens=2048))) as engine:
        stats = complete(engine, CompletionRequest(_TEXT, max_tokens=4)).stats

        assert engine.context_tokens == 2048
        assert 1024 < stats.num_context_tokens <= 2044


def test_a_context_of_more_than_the_model_sees_is_refused_with_what_would_fit() -> None:
    with pytest.raises(ModelError, match=r"4096 tokens \(--context\) is more than the model sees: at most 2048 would"):
        load_engine(EngineConfig(_DEFAULT, max_context_tokens=4096))


def test_what_was_measured_is_kept(folder: Path, tmp_path: Path) -> None:
    config = EngineConfig(folder, graph_dir=tmp_path / "cache")
    with patch.object(window, "is_busy", lambda: False), closing(load_engine(config)) as engine:
        assert 1024 <= engine.context_tokens <= 2048
    with patch.object(window, "measure_reading", _raise), closing(load_engine(config)) as again:
        assert again.context_tokens == engine.context_tokens


def _raise(*_: object) -> Measured:
    raise AssertionError("it was measured before")


def _measure(num_tokens: float) -> Callable[[], Measured]:
    return lambda: {"tokens": num_tokens}


@pytest.mark.parametrize(
    ("named", "max_tokens", "memory_nbytes", "measured", "expected"),
    [
        (None, 32_768, 2**40, 3000.5, 2816),
        (None, 32_768, 2**40, 90_000.0, 8192),
        (None, 32_768, 2**40, 40.0, 1024),
        (None, 2000, 2**40, 90_000.0, 2000),
        (None, 512, 2**40, 90_000.0, 512),
        (None, 32_768, 12 * 5000 * _TOKEN_NBYTES, 90_000.0, 5000),
        (20_000, 32_768, 2**40, 40.0, 20_000),
        (100, 32_768, 2**40, 90_000.0, 100),
    ],
)
def test_a_window_is_what_is_named_or_what_is_read_in_time_and_has_memory(
    named: int | None, max_tokens: int, memory_nbytes: int, measured: float, expected: int, tmp_path: Path
) -> None:
    config = EngineConfig(tmp_path, max_context_tokens=named)
    with patch.object(window, "find_memory", lambda: memory_nbytes):
        assert choose_window(config, max_tokens, _TOKEN_NBYTES, _measure(measured)) == expected


def test_a_window_that_has_no_memory_is_refused_with_one_that_has(tmp_path: Path) -> None:
    config = EngineConfig(tmp_path, max_context_tokens=5001)
    with (
        patch.object(window, "find_memory", lambda: 12 * 5000 * _TOKEN_NBYTES),
        pytest.raises(
            ModelError, match=r"no memory for a context of 5001 tokens \(--context\): at most 5000 would fit"
        ),
    ):
        choose_window(config, 32_768, _TOKEN_NBYTES, _raise)


@pytest.mark.parametrize(("seconds", "expected"), [(1e9, 2048), (1e-9, 0)])
def test_as_many_tokens_are_read_as_there_is_time_for_or_the_model_sees(seconds: float, expected: int) -> None:
    model = load_model(EngineConfig(_DEFAULT)).model
    assert int(measure_reading(model, seconds)["tokens"]) == expected
