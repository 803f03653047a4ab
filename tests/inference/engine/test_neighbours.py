"""What a request gets does not depend on its neighbours, bit for bit, where each sequence has a pass of its own."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings

from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.fill_in import choose_fill_in
from inference.engine.local_engine import start_engine
from inference.engine.prompt import PromptBuilder
from inference.model.language_model import SequenceInput
from inference.model.loader import load_model
from inference.model.onnx.model import OnnxModel, OnnxSequenceCache
from inference.model.sampler import NumpyRow, NumpyTokens
from inference.model.token_sequence import TokenSequence
from inference.protocol.completion import (
    Chunks,
    CompletionRequest,
    Explanation,
    Extent,
    FinishReason,
    Healing,
    Priority,
)
from tests.support.engine_bench import get_local
from tests.support.sinks import CollectingSink

# So little room that requests wait and remembered sequences are dropped.
_CONFIG = EngineConfig(Path("models/default"), dtype="float32", max_sequences=4, cache_tokens=500, memory_mib=4)

_TEXTS = (
    "import os\n", "def walk(node):\n    ret", "for chi", "x = {'a': 1, 'b'", "class Node:\n    pass\n\nNod", "",
    "\n\n  ", "print(f'{na", "    return self.", "é = 'caf", "a = [1, 2, 3]\nb = a", "if x is None:\n    raise Val",
)  # fmt: skip

_SUFFIXES = ("", "", "\n", ")\n", "\n    return node\n")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Arrival:
    """A request that is submitted before a pass, and may be cancelled so many passes later."""

    moment: int
    request: CompletionRequest
    cancelled_after: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Outcome:
    """What a request gets, and what was computed for its first candidate."""

    texts: list[str]
    reasons: list[tuple[int, FinishReason]]
    explanation: Explanation | None  # with the masses of all crossings
    token_ids: tuple[int, ...]
    keys_and_values: bytes
    rows: dict[tuple[int, ...], bytes]  # the logits after tokens; those after guessed ones too


class _ScheduledModel(OnnxModel):
    """A model on onnxruntime. `before_pass` runs on the engine's thread."""

    before_pass: Callable[[], None] = staticmethod(lambda: None)

    def forward(self, parts: Sequence[SequenceInput]) -> list[list[NumpyRow]]:
        self.before_pass()
        return super().forward(parts)


@pytest.fixture(scope="module", params=[False, True], ids=["one after the other", "together"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine with the default model on onnxruntime, which steps its requests in one way or the other."""
    loaded = load_model(_CONFIG)
    assert isinstance(loaded.model, OnnxModel)
    tokens = NumpyTokens(loaded.tokenizer.vocabulary, loaded.tokenizer.trie)
    model = _ScheduledModel(loaded.model._session, loaded.model.config, tokens)
    model.runs_together = request.param  # the engine reads it once
    fill_in = choose_fill_in(_CONFIG, loaded)
    with closing(start_engine(_CONFIG, model, PromptBuilder(loaded.tokenizer, fill_in))) as engine:
        yield engine


class _Trial:
    """One request, and others that come and go."""

    def __init__(self, engine: Engine, own: _Arrival, others: Sequence[_Arrival] = ()) -> None:
        self.had_company = False  # whether another request was begun while it was
        self._engine = engine
        self._own = own
        self._sink = CollectingSink(self._look)
        self._submitted: list[CollectingSink] = []
        self._num_passes = 0
        self._waiting = sorted([own, *others], key=lambda arrival: arrival.moment)
        self._cancelled_at: list[tuple[int, CollectingSink]] = []
        self._outcome: _Outcome | None = None
        model = get_local(engine).model
        assert isinstance(model, _ScheduledModel)
        model.before_pass = self._begin_pass

    def run(self) -> _Outcome:
        """What the request gets. Those that wait for a pass that never comes are submitted when all others are done."""
        while self._waiting:
            self._submit(self._waiting.pop(0))
            for sink in self._submitted:  # a pass may add some
                sink.wait_for_end()
        assert self._sink.error is None
        assert self._outcome is not None
        return self._outcome

    def _submit(self, arrival: _Arrival) -> None:
        sink = self._sink if arrival is self._own else CollectingSink()
        self._submitted.append(sink)
        if arrival.cancelled_after is not None:
            self._cancelled_at.append((self._num_passes + arrival.cancelled_after, sink))
        self._engine.submit(arrival.request, sink)

    def _begin_pass(self) -> None:
        begun = [job.sink is self._sink for job in self._engine._scheduler if job.is_begun]
        self.had_company |= len(begun) > 1 and any(begun)
        while self._waiting and self._waiting[0].moment <= self._num_passes:
            self._submit(self._waiting.pop(0))
        for moment, sink in self._cancelled_at:
            if moment <= self._num_passes:
                sink.cancelled.set()
        self._num_passes += 1

    def _look(self) -> None:
        """Looks at the request's sequence before others can have it."""
        if self._sink.chunks[-1].is_last:
            [job] = [job for job in self._engine._scheduler if job.sink is self._sink]
            reasons = [(chunk.candidate, chunk.finish_reason) for chunk in self._sink.chunks if chunk.finish_reason]
            self._outcome = _Outcome(
                self._sink.texts,
                sorted(reasons),
                self._sink.chunks[-1].explanation,
                *_read_bits(get_local(self._engine)._running[job][0].sequence),
            )


def _read_bits(sequence: TokenSequence) -> tuple[tuple[int, ...], bytes, dict[tuple[int, ...], bytes]]:
    """The tokens, their keys and values, and the logits."""
    assert isinstance(sequence.cache, OnnxSequenceCache)
    planes = sequence.cache.planes[:, :, : sequence.num_tokens]
    rows = {key: node.row.logits.tobytes() for key, node in sequence._nodes.items() if isinstance(node.row, NumpyRow)}
    return tuple(sequence.token_ids), planes.tobytes(), rows


def _draw_request(random: Random, tenant: str, document: str) -> CompletionRequest:
    return CompletionRequest(
        "".join(random.choices(_TEXTS, k=random.choice([1, 1, 1, 2]))),
        random.choice(_SUFFIXES),
        max_tokens=random.randint(1, 3),
        healing=random.choice([Healing.EXACT, *Healing]),
        extent=random.choice(list(Extent)),
        temperature=random.choice([0.0, 0.0, 1.0]),
        top_p=random.choice([1.0, 0.9]),
        seed=random.randrange(10),
        num_candidates=random.choice([1, 1, 1, 1, 2]),
        explain=random.random() < 0.5,
        chunks=random.choice(list(Chunks)),
        tenant=tenant,
        document=document,  # a newer request for the same one supersedes it
        priority=random.choice([*[Priority.INTERACTIVE] * 4, Priority.PREFETCH]),  # which has no company
    )


def _draw_neighbour(random: Random) -> _Arrival:
    request = _draw_request(random, random.choice(["", "a", "b"]), random.choice(["", "", "one.py", "two.py"]))
    return _Arrival(random.randrange(4), request, random.choice([None, None, 0, 1, 2]))


@pytest.mark.timeout(600)
def test_a_request_gets_the_same_bits_among_any_neighbours_as_alone(engine: Engine) -> None:
    """Over a hundred trials in a full run. Nothing is remembered of the request's tenant, which is a new one each time.

    The runner is served one request after the other. In other trials all step together, as the engine does it with a
    runner that gains from company.
    """
    runs_together = get_local(engine).info.runs_together
    num_trials = (2 if runs_together else 5) * settings().max_examples
    num_with_company = 0
    for number in range(num_trials):
        random = Random(number)
        request, moment = _draw_request(random, "", ""), random.randrange(3)
        neighbours = [_draw_neighbour(random) for _ in range(random.randint(1, 3))]
        alone = _Trial(engine, _Arrival(0, dataclasses.replace(request, tenant=f"alone {number}"))).run()
        trial = _Trial(engine, _Arrival(moment, dataclasses.replace(request, tenant=f"among {number}")), neighbours)

        among = trial.run()

        num_with_company += trial.had_company
        for name in ("texts", "reasons", "explanation", "token_ids", "keys_and_values"):
            assert getattr(among, name) == getattr(alone, name), f"{name} of trial {number}: {request} {neighbours}"
        shared = alone.rows.keys() & among.rows.keys()  # what follows tokens that were only guessed may not be in both
        assert shared
        assert all(among.rows[key] == alone.rows[key] for key in shared), f"trial {number}: {request} {neighbours}"
    assert not runs_together or num_with_company >= num_trials / 25, "the trials say little"
