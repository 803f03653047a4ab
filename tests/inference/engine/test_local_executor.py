import dataclasses
import shutil
import threading
from contextlib import closing
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.engine.fill_in import Layout, choose_fill_in
from inference.engine.local_executor import PrefillSpeed, build_engine, load_engine
from inference.errors import ModelError
from inference.model.language_model import LoadedModel, SequencePart
from inference.model.loader import load_model
from inference.protocol.completion import CompletionRequest
from tests.inference.conftest import MakeModel, Memorised
from tests.support.engine_bench import UNBOUNDED, begin_job, build_executor, open_bench
from tests.support.scripted_model import CountingCache, ScriptedModel, raise_full
from tests.support.sinks import complete
from tests.support.toys import toy_tokenizer


@pytest.mark.parametrize("kind", ["qwen", "llama3", "llama2", "metaspace"])
def test_an_engine_loaded_from_a_folder_completes_like_its_parts(kind: str, make_model: MakeModel) -> None:
    folder, request = make_model(kind), CompletionRequest("x = tex", "\n", max_tokens=4)
    with open_bench(folder, kind, dtype="float32") as bench, closing(load_engine(EngineConfig(folder))) as engine:
        assert complete(engine, request).text == complete(bench.engine, request).text


@pytest.mark.parametrize(("setting", "num_warnings"), [("auto", 1), ("spm", 0)])
def test_a_model_that_was_not_trained_on_its_markers_reads_suffixes_only_if_the_setting_says_so(
    setting: str, num_warnings: int, make_model: MakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    config = EngineConfig(make_model("qwen"), fill_in_layout=setting)
    assert (choose_fill_in(config, load_model(config)) is None) == (num_warnings == 1)
    assert len(caplog.records) == num_warnings
    for record in caplog.records:
        assert "fill-in markers, but it does not end its text where the suffix begins" in record.getMessage()
        assert record.getMessage().endswith("so it was not trained on them; it reads no suffixes")


@pytest.mark.parametrize(
    ("layout", "is_renamed"),
    [(Layout.PSM_LINE, False), (Layout.PSM_LINE, True), (Layout.SPM_LINE, True), (Layout.SPM, False)],
)
def test_a_model_that_knows_its_markers_reads_suffixes_in_the_layout_that_it_knows_without_a_warning(
    layout: Layout, is_renamed: bool, memorised: Memorised, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """StarCoder and Mellum have the same names, and another order. The bundled model's folder names the layout."""
    folder = Path("models/default")
    if layout is not Layout.SPM:
        folder = shutil.copytree(memorised(layout), tmp_path / "model")
    if is_renamed:
        text = (folder / "tokenizer.json").read_text().replace("<|fim_", "<fim_")
        (folder / "tokenizer.json").write_text(text.replace("fix|>", "fix>").replace("middle|>", "middle>"))
    fill_in = choose_fill_in(EngineConfig(folder), load_model(EngineConfig(folder)))

    assert fill_in is not None
    assert fill_in.layout is layout
    assert not caplog.records


def test_a_model_that_fails_in_the_check_is_a_model_error(make_model: MakeModel) -> None:
    config = EngineConfig(make_model("qwen"))
    model = ScriptedModel(toy_tokenizer("qwen"), before_forward=lambda _: raise_full())
    loaded = LoadedModel(model, load_model(config).tokenizer)

    with pytest.raises(ModelError, match="the model cannot be used: the device has no memory left"):
        build_engine(config, loaded)


@pytest.mark.parametrize(
    ("family", "name", "content", "message"),
    [
        ("llama", "tokenizer.json", "{}", "tokenizer"),
        ("bloom", "midtoken.json", "{}", "other logits for a token in a tree"),
    ],
)
def test_a_folder_that_cannot_be_served_is_refused_and_leaves_no_thread(
    family: str, name: str, content: str, message: str, make_model: MakeModel, tmp_path: Path
) -> None:
    folder, threads = shutil.copytree(make_model("qwen", family), tmp_path / "model"), threading.enumerate()
    (folder / name).write_text(content)

    with pytest.raises(ModelError, match=message):
        load_engine(EngineConfig(folder))

    assert {thread for thread in threading.enumerate() if thread.name == "midtoken-engine"} <= set(threads)


def test_a_chosen_path_without_keys_and_values_is_read_with_the_chosen_token() -> None:
    """As in a copy of the first tokens of a sequence: it knows the logits after the others, and no more."""
    executor = build_executor()
    job = begin_job(executor, CompletionRequest("x = nam", max_tokens=5, extent=UNBOUNDED))
    [running] = executor._running[job]
    sequence, tree = running.sequence, running.tree
    part = SequencePart(sequence.cache, tree)
    sequence.absorb(part, executor.model.forward([part])[0])
    for node in sequence._nodes.values():
        node.stored = None
    running.tree = dataclasses.replace(tree, chain_ids=())

    executor.step([job], is_shared=False)

    [candidate] = job.candidates
    assert len(candidate.token_ids) > 2
    assert isinstance(sequence.cache, CountingCache)
    assert sequence.cache.token_ids == [*job.prompt.context_ids, *candidate.token_ids[:-1]]
    assert isinstance(executor.model, ScriptedModel)
    assert executor.model.step_sizes == [1, 1]


def _note(*passes: tuple[int, float]) -> PrefillSpeed:
    speed = PrefillSpeed()
    for num_rows, seconds in passes:
        speed.note(num_rows, seconds)
    return speed


def test_the_speed_follows_the_passes() -> None:
    assert _note((15, 1.0)).find_max_tokens() == _note().find_max_tokens()  # a small pass says nothing
    assert _note((100, 1.0)).find_max_tokens() == 100
    assert 50 < _note((100, 1.0), (100, 2.0)).find_max_tokens() < 100
    later = _note((100, 1.0), *[(200, 4.0)] * 100, (16, 1.0))  # a small one says less
    assert later.find_max_tokens() == pytest.approx(50, rel=0.5)


@pytest.mark.parametrize(
    ("seconds_per_row", "expected"), [(None, 16), (0.0, 512), (0.001, 512), (0.01, 100), (0.2, 16)]
)
def test_a_step_takes_a_second_but_never_reads_very_few_or_very_many(
    seconds_per_row: float | None, expected: int
) -> None:
    speed = PrefillSpeed()
    if seconds_per_row is not None:
        speed.note(64, 64 * seconds_per_row)

    assert speed.find_max_tokens() == expected
    for is_shared in (False, True):  # nobody waits for a prefetch's step
        assert speed.find_max_tokens(True, is_shared) == max(expected // 8, 16)
