"""Whether a model with a recurrent state completes as if each text were read alone."""

from collections.abc import Iterable
from pathlib import Path

from benchmarks.baselines.separate_texts import SeparateTexts, SeparateTextsModel
from benchmarks.corpora.cuts import Cut, draw_cuts
from benchmarks.measures.right_choices import Differences, compare_engines
from inference.config import EngineConfig
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model.sampler import NumpyTokens
from models.training.corpus import SourceFile

_GAP = 0.02  # nats
_CONTEXT_CHARS = 400
_STEPS = (1, 1, 2, 1, -3, 1, 4, 1, 1, -1)  # characters from one cursor to the next


def draw_state_cuts(files: Iterable[SourceFile], num_cuts: int) -> list[Cut]:
    """Half of them at random places, half where a person types, deletes, and goes on."""
    num_typed = num_cuts // 2
    cuts = draw_cuts(files, num_cuts - num_typed - num_typed // 2, num_typed // 2, seed=7)
    text = cuts[0].prefix + cuts[0].run_end + cuts[0].suffix
    at = _CONTEXT_CHARS
    for index in range(num_typed):
        at += _STEPS[index % len(_STEPS)]
        cuts.append(Cut("typed", cuts[0].path, text[:at], "", text[at:]))
    return cuts


def compare_with_separate_texts(folder: Path, cuts: list[Cut]) -> Differences:
    """Compares the engine with one whose model reads each text of each row alone."""
    config, tokenizer = EngineConfig(folder, num_threads=1), load_tokenizer(folder)
    texts = SeparateTexts(folder / "model.gguf")
    oracle = SeparateTextsModel(texts, NumpyTokens(tokenizer.vocabulary, tokenizer.trie))
    return compare_engines(config, config, cuts, _GAP, oracle)
