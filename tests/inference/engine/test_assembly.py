import shutil
import threading
from contextlib import closing
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.engine.assembly import find_fill_in, load_engine
from inference.engine.layout import Layout
from inference.errors import ModelError
from inference.model.language_model import LoadedModel
from inference.model.loader import load_model
from inference.protocol.completion import CompletionRequest
from tests.inference.conftest import MakeModel
from tests.support.engine_bench import build_bench
from tests.support.memorised import build_marker_documents, write_memorised_model
from tests.support.scripted_model import ScriptedModel, raise_full
from tests.support.sinks import complete
from tests.support.toys import KINDS, toy_tokenizer


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


def test_an_unknown_layout_is_a_model_error(make_model: MakeModel) -> None:
    with pytest.raises(ModelError, match="fill_in_layout must be one of auto, none, psm, psm_line"):
        load_engine(EngineConfig(make_model("qwen"), fill_in_layout="mps"))


def test_a_model_that_was_not_trained_on_its_markers_reads_no_suffixes(
    make_model: MakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    config = EngineConfig(make_model("qwen"))

    assert find_fill_in(config, load_model(config)) is None

    [record] = caplog.records
    assert "fill-in markers, but it does not end its text where the suffix begins" in record.getMessage()
    assert record.getMessage().endswith("so it was not trained on them; it reads no suffixes")


def test_a_layout_that_the_setting_names_is_taken_all_the_same(
    make_model: MakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    config = EngineConfig(make_model("qwen"), fill_in_layout="spm")

    fill_in = find_fill_in(config, load_model(config))

    assert fill_in is not None
    assert fill_in.layout is Layout.SPM
    [record] = caplog.records
    assert record.getMessage().endswith("they are given to it all the same")


def test_a_layout_that_the_folder_names_and_the_model_does_not_know_is_refused(
    make_model: MakeModel, tmp_path: Path
) -> None:
    shutil.copytree(make_model("qwen"), tmp_path / "model")
    (tmp_path / "model" / "midtoken.json").write_text('{"fill_in": {"layout": "psm"}}')

    with pytest.raises(ModelError, match=r"midtoken\.json names the layout psm, but the model does not profit"):
        load_engine(EngineConfig(tmp_path / "model"))


def test_a_model_that_was_trained_on_its_markers_reads_suffixes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_memorised_model(tmp_path / "model", *build_marker_documents("qwen", Layout.PSM_LINE))
    config = EngineConfig(folder)

    fill_in = find_fill_in(config, load_model(config))

    assert fill_in is not None
    assert fill_in.layout is Layout.PSM_LINE
    assert not caplog.records


def test_a_model_that_fails_in_the_check_is_a_model_error(make_model: MakeModel) -> None:
    config = EngineConfig(make_model("qwen"))
    model = ScriptedModel(toy_tokenizer("qwen"), before_forward=lambda _: raise_full())
    loaded = LoadedModel(model, load_model(config).tokenizer)

    with pytest.raises(ModelError, match="the model cannot be used: the device has no memory left"):
        find_fill_in(config, loaded)


def test_the_default_model_reads_suffixes_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    config = EngineConfig(Path("models/default"))

    fill_in = find_fill_in(config, load_model(config))

    assert fill_in is not None
    assert fill_in.layout is Layout.SPM
    assert not caplog.records


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
