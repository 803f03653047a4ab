import json
from pathlib import Path
from typing import Any

import pytest

from inference.config import EngineConfig
from inference.model.loader import load_model
from inference.model.measurements import Fit, find_memory, open_measurements
from inference.model.onnx.decoder_config import DecoderConfig, read_decoder_config
from inference.model.onnx.fitting import Trial, choose_fit, run_trial

_DEFAULT = Path("models/default")
_GB = 10**9
_TRIAL: Trial = {"8 1": 1.0, "8 2": 0.6, "8 4": 0.55, "4 1": 0.7, "4 2": 0.5, "4 4": 0.5}  # with 4, hardly quicker
_SLOW_4_BITS: Trial = {"8 1": 1.0, "8 2": 1.0, "4 1": 1.0, "4 2": 1.0}


def _read(num_layers: int = 6) -> DecoderConfig:
    content = json.loads((_DEFAULT / "config.json").read_text())
    return read_decoder_config(content | {"num_hidden_layers": num_layers})


_LARGE, _SMALL = _read(1000), _read()  # 740 and 6.5 million weights


def _fail() -> Trial:
    raise AssertionError("a trial decides nothing here")


@pytest.mark.parametrize(
    ("dtype", "num_threads", "decoder", "num_bytes", "trial", "expected"),
    [
        ("auto", None, _SMALL, _GB, None, ("float32", 1)),
        ("auto", 3, _SMALL, _GB, None, ("float32", 3)),
        ("int8", None, _SMALL, _GB, None, ("int8", 1)),
        ("float32", 2, _LARGE, _GB, None, ("float32", 2)),
        ("auto", None, _LARGE, 24 * _GB, _TRIAL, ("int8", 2)),
        ("auto", None, _LARGE, _GB, _TRIAL, ("int4", 2)),
        ("auto", 1, _LARGE, _GB, _TRIAL, ("int4", 1)),
        ("int8", None, _LARGE, _GB, _TRIAL, ("int8", 2)),
        ("auto", None, _LARGE, _GB, _SLOW_4_BITS, ("int8", 1)),
    ],
)
def test_size_memory_and_a_trial_decide_where_the_settings_do_not(
    dtype: str,
    num_threads: int | None,
    decoder: DecoderConfig,
    num_bytes: int,
    trial: Trial | None,
    expected: tuple[str, int],
) -> None:
    fit = choose_fit(dtype, num_threads, decoder, num_bytes, _fail if trial is None else lambda: trial)

    assert (fit.dtype, fit.num_threads) == expected


def test_what_was_chosen_is_said_with_its_reasons() -> None:
    fit = choose_fit("auto", None, _LARGE, _GB, lambda: _TRIAL)

    assert str(fit) == (
        "int4, 2 threads (740 million weights, which 8 bits each would make most of 1 GB; in a trial, 2 threads were "
        "1.7 times as quick as one)"
    )
    assert str(Fit("float32", 1, "6 million weights")) == "float32, 1 thread (6 million weights)"


def test_a_small_model_runs_with_one_thread_and_in_the_numbers_that_its_folder_names() -> None:
    assert load_model(EngineConfig(_DEFAULT)).runs_as.startswith("int8, 1 thread")


def test_a_trial_takes_time_for_each_number_of_bits_and_threads() -> None:
    trial = run_trial(_read())

    assert next(iter(trial)) == "8 1"
    assert {key.split()[0] for key in trial} == {"8", "4"}
    assert all(0 < seconds < 60 for seconds in trial.values())
    assert 0 < find_memory() < 2**62


@pytest.mark.parametrize(
    ("group", "limits", "expected"),
    [
        ("0::/user.slice/mine", {"user.slice/memory.max": "7000", "user.slice/mine/memory.max": "max"}, 7000),
        ("0::/", {"memory.max": "6000"}, 6000),
        ("1:cpu:/\n4:memory:/a/b", {"memory/a/memory.limit_in_bytes": "5000", "memory/memory.limit_in_bytes": "9"}, 9),
        ("4:memory:/docker/123", {"memory/memory.limit_in_bytes": "4000"}, 4000),  # a container sees its own at the top
    ],
)
def test_the_limits_of_both_kinds_of_groups_are_seen(
    group: str, limits: dict[str, str], expected: int, tmp_path: Path
) -> None:
    files = {"proc/self/cgroup": group, **{f"sys/fs/cgroup/{name}": limit for name, limit in limits.items()}}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{content}\n")
    assert find_memory(tmp_path) == expected


def test_a_result_is_kept_and_one_that_is_damaged_is_measured_again(tmp_path: Path) -> None:
    counts: list[int] = []

    def measure() -> dict[str, Any]:
        counts.append(1)
        return {"8 1": 0.5}

    for damage in (None, "", "{", "3"):
        if damage is not None:
            [path] = tmp_path.iterdir()
            path.write_text(damage)
        for _ in range(2):
            assert open_measurements(tmp_path)("name", measure) == {"8 1": 0.5}
    for _ in range(2):
        assert open_measurements(tmp_path)("other", measure, keeps=False) == {"8 1": 0.5}
    assert len(counts) == 6
