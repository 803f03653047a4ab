"""Whether a runner completes as another one does with the same weights, such as onnxruntime in float32.

Both engines get the same requests: every strategy, with and without the text after the cursor, one completion or
three, greedily. Each choice is recorded. Where the choices part, it is a tie if the other one was less likely by no
more than a gap: llama.cpp keeps keys and values in float16, a GPU computes in bfloat16, and sums depend on the rows
beside.
"""

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from benchmarks.corpora.cuts import Cut
from inference.config import EngineConfig
from inference.engine.local_executor import build_engine
from inference.model.language_model import LanguageModel
from inference.model.loader import load_model
from inference.model.sampler import SampledToken, SampleRequest, SampleResult, find_row
from inference.protocol.completion import CompletionRequest, Extent, Healing
from tests.support.sinks import complete

_CONTEXT_CHARS = 400
_SUFFIX_CHARS = 400
_MAX_TOKENS = 12


Recorded = tuple[SampleRequest, SampleResult]


class RecordingModel:
    """A model whose choices are recorded. It gets no drafts, which change the order in which candidates choose."""

    token_cost = math.inf

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.choices: list[Recorded] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        results = self._model.choose(requests)
        self.choices += [pair for pair in zip(requests, results, strict=True) if pair[1].choices]
        return results


@dataclass
class Differences:
    """What became of the requests whose completions are not equal."""

    gap: float  # in nats; what is closer is a tie
    num_tied: int = 0
    wrong: list[CompletionRequest] = field(default_factory=list)
    greatest_gap: float = 0.0

    def add(self, request: CompletionRequest, loss: float) -> None:
        """`loss`: how much less likely the one choice was than the other, where the two part."""
        self.greatest_gap = max(self.greatest_gap, loss)
        if loss <= self.gap:
            self.num_tied += 1
        else:
            self.wrong.append(request)


def compare_engines(
    ours: EngineConfig,
    reference: EngineConfig,
    cuts: Sequence[Cut],
    gap: float,
) -> Differences:
    """Completes at each cut in one of all ways in turn, with both. `gap`: of a tie, in nats."""
    differences = Differences(gap)
    ways = list(product(Healing, (False, True), (1, 3)))
    loaded = [load_model(config) for config in (ours, reference)]
    models = [RecordingModel(each.model) for each in loaded]
    pairs = zip((ours, reference), loaded, models, strict=True)
    engines = [build_engine(config, replace(each, model=model)) for config, each, model in pairs]
    with closing(engines[0]), closing(engines[1]):
        for index, cut in enumerate(cuts):
            healing, has_suffix, num_candidates = ways[index % len(ways)]
            suffix = (cut.run_end + cut.suffix)[:_SUFFIX_CHARS] if has_suffix else ""
            request = CompletionRequest(
                cut.find_context(_CONTEXT_CHARS), suffix, _MAX_TOKENS, healing, extent=Extent.SINGLE_LINE,
                num_candidates=num_candidates,
            )  # fmt: skip
            for model in models:
                model.choices.clear()
            mine, other = [complete(engine, request).texts for engine in engines]
            if mine != other:
                differences.add(request, _find_loss(models[0].choices, models[1].choices))
    return differences


def _find_loss(ours: list[Recorded], theirs: list[Recorded]) -> float:
    for (_, mine), (asked, other) in zip(ours, theirs, strict=False):
        if mine.choices != other.choices:
            pairs = zip(mine.choices, other.choices, strict=True)
            return max(find_log_prob(asked, b) - find_log_prob(asked, a) for a, b in pairs)
    return math.inf


def find_log_prob(request: SampleRequest, choice: SampledToken) -> float:
    """The log probability of a choice that the request allows."""
    rows = request.rows
    tree, node = request.tree, choice.crossing.node
    steps = [(find_row(tree.parents[branch]), tree.branch_ids[branch]) for branch in tree.find_path(node)]
    steps.append((find_row(node), choice.token_id))
    return float(sum(rows[row].find_logit(token_id) - rows[row].log_total for row, token_id in steps))
