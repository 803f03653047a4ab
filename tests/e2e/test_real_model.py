"""A published model with real weights gives the same answers on each runner as its publisher's code.

Float32 must give the same texts. Weights of 8 bits, and llama.cpp with weights of 4, are other numbers: there a text
may differ where the reference has the two within a margin.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.corpora.real_model import REAL_FOLDER, REAL_GGUF
from inference.config import EngineConfig
from inference.engine.job import CompletionEngine
from inference.engine.local_engine import build_engine
from inference.healing.heal_point import encode_text, find_heal_point
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model.loader import load_model
from inference.model.pytorch.loader import load_torch_model
from inference.model_folder import GGUF_NAME
from inference.protocol.completion import CompletionRequest, Extent, Healing
from tests.support.decoder_folders import DecoderOracle
from tests.support.sinks import complete

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),  # for the first one, which waits for all of the reference
    pytest.mark.skipif(not REAL_FOLDER.exists(), reason="make real-model downloads it"),
]

_CODE = sorted((Path(__file__).parents[1] / "support/code").iterdir())  # of three languages
_NUM_EACH, _CONTEXT_CHARS = 34, 160
_MAX_PASSES = 16  # of the reference for a cut; one with more is not used
_EDGES = slice(0, None, 4)  # of the cuts those at whose heal points texts at a token edge begin
_NUM_TOKENS = 6  # of such a text
_MARGINS = {"onnx float32": 1e-3, "torch float32": 1e-3, "onnx int8": 0.6, "gguf Q4_1": 1.0}  # in nats


class Reference:
    """transformers in float32: a pass of its own for each string of tokens."""

    def __init__(self) -> None:
        self.tokenizer = load_tokenizer(REAL_FOLDER)
        self._oracle = DecoderOracle(REAL_FOLDER, "float32")

    def find_row(self, *ids: int) -> npt.NDArray[np.float64]:
        """The log probabilities after these tokens."""
        logits = self._oracle.forward([*self.tokenizer.start_ids, *ids])
        row: npt.NDArray[np.float64] = logits - np.logaddexp.reduce(logits)
        return row

    def iter_paths(self, ids: tuple[int, ...], healed: bytes, log_prob: float = 0.0) -> "Iterator[_Path]":
        """All strings of tokens after `ids` that spell a beginning of the healed bytes."""
        row, trie = self.find_row(*ids), self.tokenizer.trie
        yield log_prob, row, healed
        for end in range(1, len(healed) + 1):
            for token_id in trie.find_ids(healed[:end]):
                yield from self.iter_paths((*ids, token_id), healed[end:], log_prob + float(row[token_id]))

    def count_paths(self, healed: bytes) -> int:
        """How many passes `iter_paths` makes."""
        ends = range(1, len(healed) + 1)
        return 1 + sum(len(self.tokenizer.trie.find_ids(healed[:end])) * self.count_paths(healed[end:]) for end in ends)


_Path = tuple[float, npt.NDArray[np.float64], bytes]  # its log probability, the next token's, and what is left to spell


@dataclass(frozen=True)
class Cut:
    """A cursor in code, and what the reference says of it."""

    reference: Reference
    prefix: str
    kept_ids: tuple[int, ...]  # the tokens before the heal point; they spell the beginning of the prefix
    healed: bytes

    @cached_property
    def texts(self) -> dict[str, float]:
        """The log probabilities of the texts that a first token goes beyond the cursor, given what is typed."""
        trie, texts, masses = self.reference.tokenizer.trie, dict[str, float](), list[float]()
        for log_prob, row, remaining in self.reference.iter_paths(self.kept_ids, self.healed):
            lo, hi = trie.find_interval(remaining)
            crossing = trie.order[lo + len(trie.find_ids(remaining)) * bool(remaining) : hi]
            own = row[crossing] if remaining else row
            masses.append(log_prob + float(np.logaddexp.reduce(own)) if own.size else -np.inf)
            for token_id in crossing:
                text = trie.spell(int(token_id))[len(remaining) :].decode(errors="replace")
                texts[text] = max(texts.get(text, -np.inf), log_prob + float(row[token_id]))
        total = float(np.logaddexp.reduce(masses))
        return {text: log_prob - total for text, log_prob in texts.items()}

    @cached_property
    def greedy(self) -> list[tuple[str, npt.NDArray[np.float64]]]:
        """The tokens after the kept ones, without healing: text, and the log probabilities of all."""
        ids, found = self.kept_ids, list[tuple[str, npt.NDArray[np.float64]]]()
        for _ in range(_NUM_TOKENS):
            row = self.reference.find_row(*ids)
            ids = (*ids, int(row.argmax()))
            found.append((self.reference.tokenizer.trie.spell(ids[-1]).decode(errors="replace"), row))
        return found

    def find_gap(self, text: str) -> float:
        """How much likelier the reference finds its own token where a text leaves the greedy one; 0 if it does not."""
        trie = self.reference.tokenizer.trie
        for token, row in self.greedy:
            if not text.startswith(token):
                data = text.encode()
                ids = [token_id for end in range(1, len(data) + 1) for token_id in trie.find_ids(data[:end])]
                return float(row.max() - row[ids].max()) if data else 0.0
            text = text[len(token) :]
        return 0.0


@pytest.fixture(scope="module")
def cuts() -> list[Cut]:
    """Cursors after a character that is no blank, so many in each language."""
    reference, cuts = Reference(), list[Cut]()
    for path in _CODE:
        rng, text, found = Random(path.name.removesuffix(".txt")), path.read_text(encoding="utf-8"), dict[int, Cut]()
        while len(found) < _NUM_EACH:
            at = rng.randrange(_CONTEXT_CHARS + 1, len(text) - _CONTEXT_CHARS)
            prefix = text[text.index("\n", at - _CONTEXT_CHARS - 1) + 1 : at]
            if prefix.strip() and not prefix[-1].isspace():
                point = find_heal_point(reference.tokenizer.encoder, prefix)
                if point.kept_ids and reference.count_paths(point.healed) <= _MAX_PASSES:
                    found[at] = Cut(reference, prefix, point.kept_ids, point.healed)
        cuts += found.values()
    return cuts


@dataclass(frozen=True)
class Runner:
    engine: CompletionEngine
    margin: float

    def complete(self, prefix: str, healing: Healing, num_tokens: int) -> tuple[str, list[float]]:
        """The text, and the log probability at the end of each token."""
        request = CompletionRequest(prefix, max_tokens=num_tokens, healing=healing, extent=Extent.UNLIMITED)
        sink = complete(self.engine, request)
        return sink.text, [log_prob for chunk in sink.chunks for log_prob in chunk.log_probs]


@pytest.fixture(scope="module", params=_MARGINS)
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    (kind, dtype), folder = request.param.split(), REAL_FOLDER
    if kind == "gguf":
        pytest.importorskip("llama_cpp", reason="make gguf installs it")
        folder, dtype = tmp_path_factory.mktemp("gguf"), "auto"
        for path in (*REAL_FOLDER.glob("*.json"), REAL_GGUF):  # with the folder's start token
            (folder / (GGUF_NAME if path == REAL_GGUF else path.name)).symlink_to(path)
    config = EngineConfig(folder, device="cpu", dtype=dtype, num_threads=1, max_context_tokens=512)
    loaded = load_torch_model(config) if kind == "torch" else load_model(config)
    with closing(build_engine(config, loaded)) as engine:
        yield Runner(engine, _MARGINS[request.param])


def test_a_text_at_a_token_edge_is_that_of_transformers(runner: Runner, cuts: list[Cut]) -> None:
    gaps = list[float]()
    for cut in cuts[_EDGES]:
        kept = cut.prefix[: len(cut.prefix) - len(cut.healed.decode())]
        if (
            encode_text(cut.reference.tokenizer.encoder, kept) == cut.kept_ids
        ):  # without healing, the model reads the same
            text, log_probs = runner.complete(kept, Healing.NONE, _NUM_TOKENS)
            assert log_probs, "a text of no tokens would be right"
            gaps.append(cut.find_gap(text))

    assert len(gaps) >= 20
    assert max(gaps) <= runner.margin


def test_the_exact_choice_is_the_best_of_all_token_strings_that_spell_what_is_typed(
    runner: Runner, cuts: list[Cut]
) -> None:
    gaps, differences = list[float](), list[float]()
    for cut in cuts:
        text, log_probs = runner.complete(cut.prefix, Healing.EXACT, 1)
        expected = cut.texts.get(text, -np.inf)
        gaps.append(max(cut.texts.values()) - expected)
        differences.append(abs(log_probs[0] - expected))

    assert len(gaps) >= 100
    assert max(gaps) <= runner.margin
    # What is shown leaves out what is not canonical, and rows that cannot change the choice.
    assert float(np.median(differences)) <= runner.margin / 10
