"""Token strings, and the rows for trees of them, compared with a plain forward pass over each string."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from inference.characters.model import CoveringSettings
from inference.characters.service import load_character_model
from inference.characters.token_string import ModelReader, TokenString
from inference.config import EngineConfig
from inference.errors import InvalidRequestError, ModelError
from inference.model.language_model import LanguageModel
from inference.model.loader import load_model
from inference.model.pytorch.loader import load_torch_model
from inference.model.pytorch.model import TorchModel
from inference.protocol.characters import CoveringKind
from tests.inference.conftest import MakeModel
from tests.support.character_toys import LogProbs, TokenIds, open_toy, spell_out
from tests.support.decoder_folders import DecoderOracle
from tests.support.tiny_families import KV, LAYER_TYPES
from tests.support.toys import END, toy_tokenizer

_WIDE_HEADS = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}  # for onnxruntime
_FAMILIES: dict[str, dict[str, object]] = {
    "llama": {},
    "gemma4_text": {**KV, **LAYER_TYPES, "sliding_window": 5, "global_head_dim": 16, "hidden_size_per_layer_input": 8},
}
_TOY = toy_tokenizer("qwen")
_END_IDS = sorted(_TOY.vocabulary.end_ids)


class PlainModel:
    """The same model, run by transformers over the whole string each time."""

    def __init__(self, folder: Path, end_ids: Sequence[int] = _END_IDS) -> None:
        self._end_ids, self._oracle = end_ids, DecoderOracle(folder)

    def find_log_probs(self, token_ids: TokenIds) -> LogProbs:
        """Returns log probabilities by rank. The end of the text is last."""
        logits = self._oracle.forward(token_ids)
        texts, end = logits[_TOY.trie.order], np.logaddexp.reduce(logits[list(self._end_ids)])
        log_probs: LogProbs = np.append(texts, end) - np.logaddexp.reduce([*texts, end])
        return log_probs


def _load(folder: Path) -> TorchModel:
    return load_torch_model(EngineConfig(folder, dtype="float64")).model


def _new_reader(model: LanguageModel) -> ModelReader:
    return ModelReader(model, _TOY.trie, _END_IDS, 512)


def _assert_read(strings: Sequence[TokenString], plain: PlainModel) -> None:
    for string in strings:
        expected = plain.find_log_probs(spell_out(string))
        assert string.log_probs is not None
        np.testing.assert_allclose(string.log_probs, expected[:-1], rtol=0, atol=2e-4)
        np.testing.assert_allclose(string.log_end, expected[-1], rtol=0, atol=2e-4)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("load", "family", "changes"),
    [(_load, family, changes) for family, changes in _FAMILIES.items()]
    + [(lambda folder: load_model(EngineConfig(folder)).model, "llama", _WIDE_HEADS)],
    ids=["torch", "torch, windows", "onnxruntime"],
)
def test_each_string_of_a_growing_tree_gets_the_row_of_a_plain_forward_pass(
    load: Callable[[Path], LanguageModel], family: str, changes: dict[str, Any], seed: int, make_model: MakeModel
) -> None:
    """Branches grow anywhere. Some are dropped and their rows are reused, some are read again."""
    folder = make_model(family=family, **changes)
    plain, reader, random = PlainModel(folder), _new_reader(load(folder)), Random(seed)
    root = TokenString((0,))
    base = root.extend_at_once(tuple(random.choices(range(5, 600), k=40)), 512)
    alive = [root, base]
    for _ in range(12):
        new = []
        for _ in range(random.randint(1, 6)):
            parent = random.choice(alive)
            new.append(parent.extend(random.choices(range(5, 600), k=random.choice([1, 1, 2, 7]))))
        again = random.sample(alive, k=random.choice([0, 0, 1, min(3, len(alive))]))
        strings = list(dict.fromkeys([*new, *again]))

        reader.read(strings)

        _assert_read(strings, plain)
        for string in strings:
            string.log_probs = None
        alive = random.sample(alive + new, k=min(len(alive + new), 6))
        del new, strings, again


def test_several_end_tokens_are_summed_to_one_end(make_model: MakeModel) -> None:
    folder, end_ids = make_model(), [0, 3]
    string = TokenString((0, 7))

    ModelReader(_load(folder), _TOY.trie, end_ids, 512).read([string])

    _assert_read([string], PlainModel(folder, end_ids))


def test_more_strings_than_there_is_memory_for_their_rows_are_refused(make_model: MakeModel) -> None:
    """Otherwise a wide beam takes any amount of memory with a large vocabulary."""
    row_bytes = 4 * (_TOY.trie.num_tokens + len(_END_IDS))
    reader = ModelReader(_load(make_model()), _TOY.trie, _END_IDS, 512, max_row_bytes=20 * row_bytes)
    root = TokenString((0,))
    strings = [root.extend([token_id]) for token_id in range(5, 26)]
    reader.read(strings[:20])

    with pytest.raises(InvalidRequestError, match=r"after 21 token strings .* a smaller width"):
        reader.read(strings)


@pytest.mark.parametrize(
    "settings",
    [CoveringSettings(), CoveringSettings(CoveringKind.BEAM, 3)],
    ids=lambda settings: settings.kind,
)
def test_a_loaded_model_agrees_with_its_plain_forward_passes(settings: CoveringSettings, make_model: MakeModel) -> None:
    folder = make_model(family="mistral", sliding_window=5)
    ours = load_character_model(EngineConfig(folder, dtype="float64"))
    plain = open_toy(_TOY, PlainModel(folder))
    text, context = "def café(self, num_padded): return".encode(), b"import os\nclass Node:\n    "

    for state, other in zip(
        ours.open(context, settings).walk(text), plain.open(context, settings).walk(text), strict=True
    ):
        finite = np.isfinite(other.next_log_probs)
        np.testing.assert_array_equal(np.isfinite(state.next_log_probs), finite)
        np.testing.assert_allclose(state.next_log_probs[finite], other.next_log_probs[finite], rtol=0, atol=1e-3)


def test_a_model_without_an_end_token_is_refused(tmp_path: Path, make_model: MakeModel) -> None:
    folder = make_model()
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).symlink_to(folder / name)
    config = (folder / "config.json").read_text(encoding="utf-8")
    (tmp_path / "config.json").write_text(
        config.replace(f'"eos_token_id": {_TOY.vocabulary.special_tokens.get(END)}', '"x": 1')
    )

    with pytest.raises(ModelError, match="names no token that"):
        load_character_model(EngineConfig(tmp_path))
