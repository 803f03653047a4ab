import shutil
import threading
from contextlib import closing
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.engine.loader import load_engine
from inference.errors import ModelError
from inference.protocol.completion import CompletionRequest
from tests.inference.conftest import MakeModel
from tests.support.engine_bench import build_bench
from tests.support.sinks import complete
from tests.support.toys import KINDS


def _count_engine_threads() -> int:
    return sum(thread.name == "midtoken-engine" for thread in threading.enumerate())


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_loaded_from_a_folder_completes_like_its_parts(kind: str, make_model: MakeModel) -> None:
    folder, request = make_model(kind), CompletionRequest("x = tex", "\n", max_tokens=4)
    bench = build_bench(folder, kind, dtype="float32")
    with closing(bench.engine), closing(load_engine(EngineConfig(folder))) as engine:
        assert complete(engine, request).text == complete(bench.engine, request).text


def test_a_folder_with_mismatched_parts_is_a_model_error(make_model: MakeModel, tmp_path: Path) -> None:
    shutil.copytree(make_model("qwen"), tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()

    with pytest.raises(ModelError):
        load_engine(EngineConfig(tmp_path / "model"))


def test_an_unknown_fim_order_is_a_model_error(make_model: MakeModel) -> None:
    with pytest.raises(ModelError, match="fim_order"):
        load_engine(EngineConfig(make_model("qwen"), fim_order="mps"))


@pytest.mark.parametrize(("family", "changes"), [("bloom", {})])
def test_a_model_that_cannot_step_is_refused_while_loading(
    family: str, changes: dict[str, object], make_model: MakeModel
) -> None:
    with pytest.raises(ModelError, match="attention"):
        load_engine(EngineConfig(make_model("qwen", family, **changes)))


def test_a_refused_model_leaves_no_thread_running(make_model: MakeModel) -> None:
    num_before = _count_engine_threads()
    folder = make_model("qwen", "bloom")

    with pytest.raises(ModelError):
        load_engine(EngineConfig(folder))

    assert _count_engine_threads() == num_before
