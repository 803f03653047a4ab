"""Models with a recurrent state: right as if each text were read alone, whatever was read, cut or forgotten before."""

import gc
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from benchmarks.corpora.state_models import FAMILIES, write_state_model
from inference.config import EngineConfig
from inference.engine.engine import Engine, complete
from inference.engine.local_executor import load_engine
from inference.errors import ModelError, OverloadedError
from inference.healing.token_tree import TokenTree
from inference.model.gguf import model as gguf_model
from inference.model.language_model import SequencePart
from inference.model.loader import load_model
from inference.protocol.completion import CompletionRequest, Extent, Priority
from tests.support.runners import CheckedSequence
from tests.support.sinks import submit
from tests.support.state_models import SeparateTexts, load_states

_TEXT = Path("models/default/README.md").read_text(encoding="utf-8")
_NUM_STATES = 16
_GAP = 0.05


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_state_model(tmp_path_factory.mktemp("models") / "granite", "granitehybrid")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with closing(load_engine(EngineConfig(folder))) as engine:
        yield engine


@pytest.fixture(scope="module")
def new(folder: Path) -> Callable[[], CheckedSequence]:
    """Makes empty sequences of a model with few states."""
    model, texts = load_states(folder, _NUM_STATES), SeparateTexts(folder / "model.gguf")
    return lambda: CheckedSequence(model, texts.forward, _GAP)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_each_family_are_those_of_texts_that_are_read_alone(family: str, tmp_path: Path) -> None:
    folder, ids = write_state_model(tmp_path, family), np.random.default_rng(0).integers(8, 8000, 90).tolist()
    texts = SeparateTexts(folder / "model.gguf")
    sequence = CheckedSequence(load_states(folder, _NUM_STATES), texts.forward, _GAP)
    tree = TokenTree((9,), (3, 4, 5), (None, 0, 0))
    sequence.read(*ids[:60])
    sequence.forward(tree)
    sequence.keep(tree)
    for typed in ids[60:70]:
        sequence.read(typed)
    other = sequence.fork()
    other.read(*ids[70:75])
    for wanted in (72, 61, 30):
        sequence.cut(wanted)
        sequence.read(*ids[75:78])


def test_keys_of_a_word_read_nothing_before_it_and_a_word_is_read_once(engine: Engine) -> None:
    start, read = _TEXT.index("## ") + 40, []
    for at in range(start, start + 80):
        request = CompletionRequest(_TEXT[:at], max_tokens=6, extent=Extent.SINGLE_LINE)
        read.append(complete(engine, request)[1].num_read_tokens)
    assert read[1:].count(0) > 40
    assert max(read[1:]) <= 8
    assert sum(read[1:]) <= 60  # the tokens of 80 characters, and some that are read for the second time


def test_a_prefetch_leaves_nothing_to_read(engine: Engine) -> None:
    text = "class Prefetched:\n" + _TEXT[:400]
    sink = submit(engine, CompletionRequest(text, priority=Priority.PREFETCH))
    sink.wait_for_end()
    assert complete(engine, CompletionRequest(text, max_tokens=2))[1].num_read_tokens == 0


def test_sixteen_at_once_get_what_each_gets_alone(engine: Engine) -> None:
    requests = [CompletionRequest(_TEXT[at : at + 300], max_tokens=6, num_candidates=2) for at in range(0, 1600, 100)]
    alone = [complete(engine, request)[0] for request in requests]
    sinks = [submit(engine, request) for request in requests]
    for sink in sinks:
        sink.wait_for_end()
    assert [sink.text for sink in sinks] == alone


def test_a_long_text_is_cut_back_near_its_end_and_not_far_before_where_it_was_cut(
    new: Callable[[], CheckedSequence],
) -> None:
    sequence, text = new(), tuple(np.random.default_rng(0).integers(8, 8000, 1100).tolist())
    sequence.read(*text)
    for wanted, least in ((1090, 1060), (1050, 960), (800, 580)):
        other = sequence.fork()
        other.cut(wanted)
        assert least <= other.cache.num_tokens <= wanted
    sequence.cut(400)
    assert sequence.cache.num_tokens == 0
    for _ in range(2):
        sequence.read(*text[sequence.cache.num_tokens : 500])
        sequence.cut(400)
    assert sequence.cache.num_tokens == 400
    sequence.read(9)


def test_more_paths_than_there_are_states_are_read_one_after_the_other(new: Callable[[], CheckedSequence]) -> None:
    sequences = [new(), new()]
    for sequence in sequences:
        sequence.read(1, 2, 3)
    tree = TokenTree((4,), tuple(range(10, 30)), (None, *range(4), *[2] * 15))
    parts = [SequencePart(sequence.cache, tree) for sequence in sequences]
    for sequence, part, rows in zip(sequences, parts, sequences[0].model.forward(parts), strict=True):
        sequence.check(part, rows)
        sequence.keep(tree)
        sequence.read(5)


def test_checkpoints_make_room_for_other_sequences_and_what_has_no_state_is_refused(
    new: Callable[[], CheckedSequence],
) -> None:
    def read(first: int) -> CheckedSequence:
        sequence = new()
        sequence.read(first, 2)
        sequence.read(3, 4)
        return sequence

    sequences = [read(first) for first in range(_NUM_STATES // 2)]
    with pytest.raises(OverloadedError, match=r"llama\.cpp has no room for 1 further sequences"):
        sequences.extend(read(first) for first in range(_NUM_STATES))
    del sequences[-2:]
    gc.collect()
    for sequence in sequences:
        sequence.cut(2)
        sequence.read(5)


def test_a_state_for_which_there_is_no_memory_is_refused_with_the_number(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_model, "find_room", lambda _nbytes: 2**16)
    with pytest.raises(ModelError, match=r"no memory for 16 copies of its recurrent state: they take [0-9,]+ KiB"):
        load_model(EngineConfig(folder))


def test_a_family_that_llama_cpp_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    path = write_state_model(tmp_path, "mamba") / "model.gguf"
    path.write_bytes(path.read_bytes().replace(b"mamba", b"mumba"))
    with pytest.raises(ModelError, match=r"llama\.cpp, as of llama-cpp-python [0-9.]+, has no family 'mumba'"):
        load_model(EngineConfig(tmp_path))


def test_a_file_without_a_bias_on_which_llama_cpp_crashes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, layers, others = FAMILIES["falcon-h1"]
    without = [{name: shape for name, shape in layer.items() if name != "ssm_conv1d.bias"} for layer in layers]
    monkeypatch.setitem(FAMILIES, "falcon-h1", (values, without, others))
    with pytest.raises(
        ModelError, match=r"its convolutions \(ssm_conv1d\) have no bias, and llama\.cpp ends the process"
    ):
        load_model(EngineConfig(write_state_model(tmp_path, "falcon-h1")))
