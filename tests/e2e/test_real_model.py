"""A published model with real weights gives the same answers on each runner as its publisher's code.

Float32 must give the same texts. Weights of 8 bits, and llama.cpp with weights of 4, are other numbers: there a text
may differ where the reference has the two within a margin.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import transformers

from benchmarks.corpora.real_model import REAL_FOLDER, REAL_GGUF
from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.local_executor import build_engine
from inference.healing.heal_point import encode_text, find_heal_point
from inference.healing.loaded_tokenizer import LoadedTokenizer, load_tokenizer
from inference.model.loader import load_model
from inference.model.pytorch.loader import load_torch_model
from inference.model_folder import GGUF_NAME
from inference.platforms import IMPORT_ROOT
from inference.protocol.completion import CompletionRequest, Extent, Healing
from tests.support.sinks import CollectingSink
from trie_cache.trie import Trie

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),  # for the first one, which waits for all of the reference
    pytest.mark.skipif(not REAL_FOLDER.exists(), reason="make real-model downloads it"),
]

_CODE = tuple(sorted((IMPORT_ROOT / "midtoken/samples").iterdir()))
_CONTEXT_CHARS = 160
_MAX_STRINGS = 16  # that spell the healed bytes; a cut with more is not used
_NUM_LIKELY = 64  # tokens of each crossing


@dataclass(frozen=True)
class RealCut:
    """A cursor in code of one of three languages."""

    prefix: str
    following: str  # the text after the cursor
    kept_ids: tuple[int, ...]  # the tokens before the heal point; they spell the beginning of the prefix
    healed: bytes

    @property
    def kept(self) -> str:
        """The text before the heal point."""
        return self.prefix[: len(self.prefix) - len(self.healed.decode())]


@dataclass(frozen=True)
class Judgement:
    """What transformers computes at a cut."""

    log_probs: dict[str, float]  # of the likely texts that a first token goes beyond the cursor; given what is typed
    greedy: tuple[tuple[str, npt.NDArray[np.float32]], ...]  # the tokens after the kept ones: text, all log probs

    @property
    def best(self) -> str:
        """The most likely of the texts."""
        return max(self.log_probs, key=self.log_probs.__getitem__)


def draw_real_cuts(tokenizer: LoadedTokenizer, num_each: int) -> list[RealCut]:
    """Draws seeded cuts after a character that is no blank: `num_each` in each language."""
    cuts = list[RealCut]()
    for path in _CODE:
        rng, text = Random(path.name.removesuffix(".txt")), path.read_text(encoding="utf-8")
        found: dict[int, RealCut] = {}
        while len(found) < num_each:
            at = rng.randrange(_CONTEXT_CHARS + 1, len(text) - _CONTEXT_CHARS)
            prefix = text[text.index("\n", at - _CONTEXT_CHARS - 1) + 1 : at]
            if prefix.strip() and not prefix[-1].isspace():
                point = find_heal_point(tokenizer.encoder, prefix)
                cut = RealCut(prefix, text[at:], point.kept_ids, point.healed)
                if cut.kept and len(list(_iter_strings(tokenizer.trie, cut.healed))) <= _MAX_STRINGS:
                    found[at] = cut
        cuts += found.values()
    return cuts


def _iter_strings(trie: Trie, data: bytes) -> Iterator[tuple[int, ...]]:
    """All strings of tokens that spell the bytes."""
    if not data:
        yield ()
    for end in range(1, len(data) + 1):
        for token_id in trie.find_ids(data[:end]):
            for rest in _iter_strings(trie, data[end:]):
                yield (token_id, *rest)


class RealModelOracle:
    """transformers in float32, with its own attention and cache."""

    def __init__(self, folder: Path, tokenizer: LoadedTokenizer) -> None:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype="float32", attn_implementation="eager", local_files_only=True
        )
        self._model = model.eval()
        self._tokenizer = tokenizer

    def judge(self, cut: RealCut, num_greedy: int) -> Judgement:
        """Reads the kept tokens once, then each string that spells the healed bytes as a row of its own."""
        ids = (*self._tokenizer.start_ids, *cut.kept_ids)
        with torch.inference_mode():
            cache = self._model(input_ids=torch.tensor([ids[:-1]]), logits_to_keep=1).past_key_values
            strings = list(_iter_strings(self._tokenizer.trie, cut.healed))
            rows = max(map(len, strings), default=0)
            padded = [(ids[-1], *string, *[0] * (rows - len(string))) for string in strings]
            greedy = tuple(self._decode(ids[-1], copy.deepcopy(cache), num_greedy))
            cache.batch_repeat_interleave(len(strings))
            log_probs = self._forward(padded, cache)[0]
        return Judgement(self._weigh(cut.healed, strings, log_probs), greedy)

    def _forward(self, ids: Sequence[Sequence[int]], cache: Any) -> tuple[npt.NDArray[np.float32], Any]:
        """[num_strings, num_tokens, vocab_size]: the log probabilities after each token."""
        out = self._model(input_ids=torch.tensor([list(each) for each in ids]), past_key_values=cache, use_cache=True)
        return torch.log_softmax(out.logits, -1).numpy(), out.past_key_values

    def _decode(self, token_id: int, cache: Any, num_tokens: int) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
        for _ in range(num_tokens):
            log_probs, cache = self._forward([[token_id]], cache)
            token_id = int(log_probs[0, -1].argmax())
            yield self._tokenizer.trie.spell(token_id).decode(errors="replace"), log_probs[0, -1]

    def _weigh(
        self, healed: bytes, strings: Sequence[tuple[int, ...]], log_probs: npt.NDArray[np.float32]
    ) -> dict[str, float]:
        """The texts beyond the cursor, by all paths and all tokens that cross its end."""
        trie = self._tokenizer.trie
        texts: dict[str, float] = {}
        log_masses: dict[tuple[int, ...], float] = {}
        for string, rows in zip(strings, log_probs, strict=True):
            before, spelled = 0.0, 0
            for num, row in enumerate(rows[: len(string) + 1]):
                path, remaining = string[:num], healed[spelled:]
                if path not in log_masses:
                    lo, hi = trie.find_interval(remaining)
                    lo += len(trie.find_ids(remaining)) if remaining else 0
                    crossing = trie.order[lo:hi]
                    own = row if not remaining else row[crossing]
                    log_masses[path] = (
                        before + float(np.logaddexp.reduce(own, dtype=np.float64)) if own.size else -np.inf
                    )
                    for index in np.argsort(-row[crossing])[:_NUM_LIKELY].tolist():
                        text = trie.spell(int(crossing[index]))[len(remaining) :].decode(errors="replace")
                        texts[text] = max(texts.get(text, -np.inf), before + float(row[crossing[index]]))
                if num < len(string):
                    before += float(row[string[num]])
                    spelled += len(trie.spell(string[num]))
        total = float(np.logaddexp.reduce(list(log_masses.values())))
        return {text: log_prob - total for text, log_prob in texts.items()}


def check_context(tokenizer: LoadedTokenizer, cut: RealCut) -> bool:
    """True if the kept tokens are those of their text alone: without healing, the model reads the same."""
    return encode_text(tokenizer.encoder, cut.kept) == cut.kept_ids


_NUM_EACH = 34  # cuts in each language
_EDGES = slice(0, None, 4)  # of these cuts the heal points, where texts at a token edge begin
_NUM_TOKENS = 6  # of such a text
_MARGINS = {"onnx float32": 1e-3, "torch float32": 1e-3, "onnx int8": 0.6, "gguf Q4_1": 1.0}  # in nats


@dataclass(frozen=True)
class Runner:
    name: str
    engine: Engine


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
            gaps.append(_find_gap(tokenizer, text, [end for end, _ in ends], judgement))

    assert len(gaps) >= 20
    assert max(gaps) <= _MARGINS[runner.name]


def _find_gap(tokenizer: LoadedTokenizer, text: str, ends: Sequence[int], judgement: Judgement) -> float:
    """How much likelier transformers finds its own token than the first other one, which end at `ends`; 0 if none."""
    for (token, log_probs), start, end in zip(judgement.greedy, (0, *ends), ends, strict=False):
        if token != text[start:end]:
            return float(log_probs.max() - log_probs[tokenizer.trie.find_ids(text[start:end].encode())].max())
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
