"""What follows from the size of a model, and what goes before it."""

from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from inference.config import EngineConfig
from inference.engine.local_executor import load_engine
from inference.errors import ModelError
from inference.model import sizes
from inference.model.loader import load_model
from inference.model.sizes import choose_auto_tokens, choose_context_tokens, choose_threads
from inference.protocol.completion import CompletionRequest
from tests.support.sinks import complete

_BUNDLED = Path("models/default").absolute()
_TEXT = Path("inference/engine/engine.py").read_text(encoding="utf-8")
_TOKEN_NBYTES = 1_000
_SMALL, _MEDIUM, _LARGE = 100_000_000, 1_544_000_000, 3_000_000_000


@pytest.mark.parametrize(
    ("named", "num_weights", "num_cores", "expected"),
    [(None, _SMALL, 8, 1), (3, _SMALL, 8, 3), (None, _MEDIUM, 8, 7), (2, _MEDIUM, 8, 2)]
    + [(None, _MEDIUM, num_cores, most) for num_cores, most in ((1, 1), (2, 2), (3, 2))],
)
def test_a_small_model_has_one_thread_and_others_leave_one_of_more_than_two_cores(
    named: int | None, num_weights: int, num_cores: int, expected: int
) -> None:
    with patch("os.sched_getaffinity", lambda _: range(num_cores)):
        assert choose_threads(named, num_weights) == expected


def test_what_was_chosen_is_said_and_the_folder_names_the_precision() -> None:
    assert load_model(EngineConfig(_BUNDLED)).runs_as == "int8, 1 thread (onnxruntime, 7 million weights)"


def test_the_larger_a_model_the_fewer_tokens_are_read_unless_it_is_on_a_gpu() -> None:
    assert [choose_auto_tokens(each) for each in (_SMALL, _MEDIUM, _LARGE)] == [8192, 2048, 1024]
    assert choose_auto_tokens(_LARGE, is_on_gpu=True) == 8192


def test_a_context_of_2048_is_read_by_a_model_that_sees_as_many() -> None:
    with closing(load_engine(EngineConfig(_BUNDLED, max_context_tokens=2048))) as engine:
        stats = complete(engine, CompletionRequest(_TEXT, max_tokens=4)).stats

        assert engine.context_tokens == 2048
        assert 1024 < stats.num_context_tokens <= 2044


def test_a_context_of_more_than_the_model_sees_is_refused_with_what_would_fit() -> None:
    with pytest.raises(ModelError, match=r"4096 tokens \(--context\) is more than the model sees: at most 2048 would"):
        load_engine(EngineConfig(_BUNDLED, max_context_tokens=4096))


@pytest.mark.parametrize(
    ("named", "max_tokens", "memory_nbytes", "expected"),
    [
        (None, 32_768, 2**40, 8192),
        (None, 512, 2**40, 512),
        (None, 32_768, 14 * 5000 * _TOKEN_NBYTES, 5000),
        (20_000, 32_768, 2**40, 20_000),
        (100, 32_768, 2**40, 100),
    ],
)
def test_a_window_is_what_is_named_or_follows_from_the_size_and_has_memory(
    named: int | None, max_tokens: int, memory_nbytes: int, expected: int, tmp_path: Path
) -> None:
    config = EngineConfig(tmp_path, max_context_tokens=named)
    with patch.object(sizes, "find_memory", lambda: memory_nbytes):
        assert choose_context_tokens(config, max_tokens, _TOKEN_NBYTES, 8192) == expected


def test_a_window_that_has_no_memory_is_refused_with_one_that_has(tmp_path: Path) -> None:
    config = EngineConfig(tmp_path, max_context_tokens=5001)
    with (
        patch.object(sizes, "find_memory", lambda: 14 * 5000 * _TOKEN_NBYTES),
        pytest.raises(
            ModelError, match=r"no memory for a context of 5001 tokens \(--context\): at most 5000 would fit"
        ),
    ):
        choose_context_tokens(config, 32_768, _TOKEN_NBYTES, 8192)
