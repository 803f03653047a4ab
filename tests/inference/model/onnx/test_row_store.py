from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inference.errors import OverloadedError
from inference.model.onnx.model import OnnxModel
from inference.model.onnx.row_store import OnnxRowStore
from tests.support.decoder_folders import VOCAB_SIZE, DecoderOracle, load_folder, write_decoder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def model(folder: Path) -> OnnxModel:
    return load_folder(folder)


@pytest.fixture(scope="module")
def oracle(folder: Path) -> DecoderOracle:
    return DecoderOracle(folder)


@dataclass
class _String:
    """A string of tokens, and the store's row of each."""

    ids: list[int]
    rows: list[int]


def _forward(store: OnnxRowStore, tokens: Sequence[tuple[_String, int]], num_used: int = 60) -> npt.NDArray[np.float32]:
    """Forwards tokens of strings, each given by its string and its index there."""
    visible = np.zeros((len(tokens), num_used), np.bool_)
    for number, (string, index) in enumerate(tokens):
        visible[number, string.rows[: index + 1]] = True
    return store.forward(
        [string.ids[index] for string, index in tokens],
        [string.rows[index] for string, index in tokens],
        [index for _, index in tokens],
        visible,
        range(len(tokens)),
    )


@example(seed=4, num_passes=2)  # a row at the end is forwarded again, after a new token that sees it
@given(seed=st.integers(0, 10_000), num_passes=st.integers(1, 6))
def test_strings_that_branch_anywhere_get_the_logits_of_transformers(
    seed: int, num_passes: int, model: OnnxModel, oracle: DecoderOracle
) -> None:
    """Rows are chosen anywhere, also in front of older ones; some strings end, and their rows are used again."""
    random, store, strings = Random(seed), OnnxRowStore(model), [_String([], [])]
    for _ in range(num_passes):
        used = {row for string in strings for row in string.rows}
        free = [row for row in range(60) if row not in used]
        if random.random() < 0.5:
            random.shuffle(free)
        again = [string for string in strings if string.ids and random.random() < 0.3]
        tokens: list[tuple[_String, int]] = []
        grown: list[_String] = []
        for _ in range(random.randint(1, 3)):
            parent = random.choice(strings + grown)
            count = min(random.randint(1, 4), len(free))
            new = [random.randrange(VOCAB_SIZE) for _ in range(count)]
            child = _String(parent.ids + new, parent.rows + [free.pop(0) for _ in range(count)])
            grown.append(child)
            tokens += [(child, index) for index in range(len(parent.ids), len(child.ids))]
        tokens += [(string, len(string.ids) - 1) for string in again]
        if not tokens:
            return
        for (string, index), row in zip(tokens, _forward(store, tokens), strict=True):
            np.testing.assert_allclose(row, oracle.forward(string.ids[: index + 1]), atol=1e-4)
        strings = random.sample(strings[1:] + grown, random.randint(1, len(strings + grown) - 1))
        strings = [_String([], []), *strings]


def test_a_store_that_grows_keeps_its_rows(model: OnnxModel, oracle: DecoderOracle) -> None:
    store = OnnxRowStore(model)
    text = _String([Random(0).randrange(VOCAB_SIZE) for _ in range(20)], [*range(17), 300, 299, 298])
    _forward(store, [(text, index) for index in range(17)])
    store.grow(301)
    assert store.capacity == 301
    rows = _forward(store, [(text, index) for index in range(17, 20)], 301)
    np.testing.assert_allclose(rows[-1], oracle.forward(text.ids), atol=1e-4)


def test_only_the_wanted_logits_are_computed(model: OnnxModel, oracle: DecoderOracle) -> None:
    store = OnnxRowStore(model)
    logits = store.forward([5, 6, 7], [0, 1, 2], [0, 1, 2], np.tri(3, dtype=np.bool_), [1])
    np.testing.assert_allclose(logits, [oracle.forward([5, 6])], atol=1e-4)


def test_a_store_without_memory_says_so_and_stays(model: OnnxModel, oracle: DecoderOracle) -> None:
    store = OnnxRowStore(model)
    text = _String([1, 2, 3], [0, 1, 2])
    _forward(store, [(text, 0), (text, 1)])
    with pytest.raises(OverloadedError, match="no memory left for the keys and values"):
        store.grow(1 << 45)
    assert store.capacity == 256
    np.testing.assert_allclose(_forward(store, [(text, 2)])[0], oracle.forward([1, 2, 3]), atol=1e-4)
