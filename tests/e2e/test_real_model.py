"""A published model with real weights gives the same answers on each runner as its publisher's code.

Float32 must give the same texts. Weights of 8 bits, and llama.cpp with weights of 4, are other numbers: there a text
may differ where the reference has the two within a margin.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.corpora.real_model import REAL_FOLDER, REAL_GGUF
from inference.config import EngineConfig
from inference.engine.job import CompletionEngine
from inference.engine.local_engine import build_engine
from inference.healing.loaded_tokenizer import LoadedTokenizer, load_tokenizer
from inference.model.loader import load_model
from inference.model.pytorch.loader import load_torch_model
from inference.model_folder import GGUF_NAME
from inference.protocol.completion import CompletionRequest, Extent, Healing
from tests.support.real_model import Judgement, RealCut, RealModelOracle, check_context, draw_real_cuts
from tests.support.sinks import CollectingSink

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),  # for the first one, which waits for all of the reference
    pytest.mark.skipif(not REAL_FOLDER.exists(), reason="make real-model downloads it"),
]

_NUM_EACH = 34  # cuts in each language
_EDGES = slice(0, None, 4)  # of these cuts the heal points, where texts at a token edge begin
_NUM_TOKENS = 6  # of such a text
_MARGINS = {"onnx float32": 1e-3, "torch float32": 1e-3, "onnx int8": 0.6, "gguf Q4_1": 1.0}  # in nats


@dataclass(frozen=True)
class Runner:
    name: str
    engine: CompletionEngine


@pytest.fixture(scope="module")
def tokenizer() -> LoadedTokenizer:
    return load_tokenizer(REAL_FOLDER)


@pytest.fixture(scope="module")
def judged(tokenizer: LoadedTokenizer) -> list[tuple[RealCut, Judgement]]:
    oracle, cuts = RealModelOracle(REAL_FOLDER, tokenizer), draw_real_cuts(tokenizer, _NUM_EACH)
    return [(cut, oracle.judge(cut, _NUM_TOKENS if cut in cuts[_EDGES] else 0)) for cut in cuts]


@pytest.fixture(scope="module", params=_MARGINS)
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    name = request.param
    kind, dtype = name.split()
    folder = REAL_FOLDER
    if kind == "gguf":
        pytest.importorskip("llama_cpp", reason="make gguf installs it")
        folder, dtype = tmp_path_factory.mktemp("gguf"), "auto"
        for path in (*REAL_FOLDER.glob("*.json"), REAL_GGUF):  # with the folder's start token
            (folder / (GGUF_NAME if path == REAL_GGUF else path.name)).symlink_to(path)
    config = EngineConfig(folder, device="cpu", dtype=dtype, num_threads=1, max_context_tokens=512)
    engine = build_engine(config, load_torch_model(config) if kind == "torch" else load_model(config))
    yield Runner(name, engine)
    engine.close()


def _complete(runner: Runner, prefix: str, healing: Healing, num_tokens: int) -> tuple[str, list[tuple[int, float]]]:
    """The text, and where each token ends in it, with its log probability."""
    request = CompletionRequest(prefix, max_tokens=num_tokens, healing=healing, extent=Extent.UNLIMITED)
    sink = CollectingSink()
    runner.engine.submit(request, sink)
    text, ends = "", list[tuple[int, float]]()
    for chunk in sink.wait().chunks:
        ends += [(len(text) + end, prob) for end, prob in zip(chunk.text_ends, chunk.log_probs, strict=True)]
        text += chunk.text
    return text, ends


def test_a_text_at_a_token_edge_is_that_of_transformers(
    runner: Runner, tokenizer: LoadedTokenizer, judged: list[tuple[RealCut, Judgement]]
) -> None:
    gaps = list[float]()
    for cut, judgement in judged[_EDGES]:
        if check_context(tokenizer, cut):
            text, ends = _complete(runner, cut.kept, Healing.NONE, _NUM_TOKENS)
            assert ends, "a text of no tokens would be right"
            gaps.append(_find_gap(tokenizer, text, judgement))

    assert len(gaps) >= 20
    assert max(gaps) <= _MARGINS[runner.name]


def _find_gap(tokenizer: LoadedTokenizer, text: str, judgement: Judgement) -> float:
    """How much likelier transformers finds its own token where the text leaves its; 0 if it does not."""
    for token, log_probs in judgement.greedy:
        if not text.startswith(token):
            data = text.encode()
            ids = [token_id for end in range(1, len(data) + 1) for token_id in tokenizer.trie.find_ids(data[:end])]
            return float(log_probs.max() - log_probs[ids].max()) if data else 0.0
        text = text[len(token) :]
    return 0.0


def test_the_exact_choice_is_the_best_of_all_token_strings_that_spell_what_is_typed(
    runner: Runner, judged: list[tuple[RealCut, Judgement]]
) -> None:
    gaps, differences = list[float](), list[float]()
    for cut, judgement in judged:
        text, ends = _complete(runner, cut.prefix, Healing.EXACT, 1)
        expected = judgement.log_probs.get(text, -np.inf)
        gaps.append(judgement.log_probs[judgement.best] - expected)
        differences.append(abs(ends[0][1] - expected))

    assert len(gaps) >= 100
    assert max(gaps) <= _MARGINS[runner.name]
    # What is shown leaves out what is not canonical, and rows that cannot change the choice.
    assert float(np.median(differences)) <= _MARGINS[runner.name] / 10
