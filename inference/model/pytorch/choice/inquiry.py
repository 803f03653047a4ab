"""What one choice asks a scorer: the questions of all its requests, and where each request finds its answers."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from inference.healing.covering import Crossing, Rule, find_crossing_interval
from inference.model.language_model import SampleRequest
from inference.model.node_weights import NodeWeights, find_row, weigh_nodes
from inference.model.pytorch.choice.draw_source import list_offsets
from inference.model.pytorch.scoring.batch import Batch, Draw, Edge, Question, Scores, build_batch
from inference.model.pytorch.scoring.token_ranks import TokenRanks
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Interval, Trie

_NO_TOKENS = Interval(0, 0)  # of a question that is asked for the row's total only


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and where its answers are."""

    request: SampleRequest
    crossings: tuple[Crossing, ...]  # those whose paths were read; a question each, in this order
    first_question: int
    first_draw: int  # those of the first crossing come first
    edges: dict[tuple[int, int], tuple[int, int]]  # (row of the request, token id) -> edge, question about the row
    num_hot_hits: int
    num_hot_misses: int

    def weigh(self, scores: Scores) -> NodeWeights:
        """The log-probabilities of the request's paths."""

        def find_log_prob(row: int, token_id: int) -> float:
            edge, question = self.edges[row, token_id]
            return float(scores.edge_logits[edge] - scores.log_totals[question])

        return weigh_nodes(self.request, find_log_prob)


class Inquiry:
    """Collects the questions of several requests."""

    def __init__(self, trie: Trie, hot_prefixes: HotPrefixCache, ranks: TokenRanks) -> None:
        self._trie = trie
        self._hot_prefixes = hot_prefixes
        self._ranks = ranks
        self._rows: list[torch.Tensor] = []
        self._questions: list[Question] = []
        self._draws: list[Draw] = []
        self._edges: list[Edge] = []

    def add(self, request: SampleRequest) -> Asked:
        """Adds the questions of a request, whose rows are tensors."""
        places = {}  # row of the request -> row of the batch
        for index, row in enumerate(request.rows):
            if row is not None:
                places[index] = len(self._rows)
                self._rows.append(row)
        num_hits, num_misses = self._hot_prefixes.num_hits, self._hot_prefixes.num_misses
        first_question, first_draw = len(self._questions), len(self._draws)
        crossings = tuple(_iter_reached(request))
        for stream, crossing in enumerate(crossings):
            self._add_crossing(request, places[find_row(crossing.node)], crossing, stream)
        questions = {find_row(crossing.node): first_question + index for index, crossing in enumerate(crossings)}
        return Asked(
            request,
            crossings,
            first_question,
            first_draw,
            self._add_edges(request, places, questions),
            self._hot_prefixes.num_hits - num_hits,
            self._hot_prefixes.num_misses - num_misses,
        )

    def build_batch(self) -> Batch:
        """All questions, on the device."""
        return build_batch(self._rows, self._questions, self._draws, self._edges, device=self._ranks.device)

    def _add_crossing(self, request: SampleRequest, place: int, crossing: Crossing, stream: int) -> None:
        sampling = request.sampling
        if not sampling.is_greedy:
            for seed, offset in list_offsets(request.random_sources):
                self._draws.append(Draw(len(self._questions), seed, offset, stream))
        interval, more_ids = self._find_allowed(crossing)
        scale = 0.0 if sampling.is_greedy else 1.0 / sampling.temperature
        self._questions.append(Question(place, interval, more_ids, scale))

    def _find_allowed(self, crossing: Crossing) -> tuple[Interval, tuple[int, ...]]:
        """The interval of the tokens that may follow, and those that may follow beside it."""
        if not crossing.remaining_bytes:
            return self._ranks.all_tokens, ()
        if crossing.rule is Rule.CROSS:
            return find_crossing_interval(self._trie, crossing.remaining_bytes), ()
        if crossing.rule is Rule.EXTEND:
            return self._trie.find_interval(crossing.remaining_bytes), ()
        allowed = self._hot_prefixes.allowed(crossing.remaining_bytes)
        return allowed.interval, allowed.ancestor_ids

    def _add_edges(
        self, request: SampleRequest, places: dict[int, int], questions: dict[int, int]
    ) -> dict[tuple[int, int], tuple[int, int]]:
        """`questions`: one about each row with a crossing. Rows with an edge only get one too."""
        edges: dict[tuple[int, int], tuple[int, int]] = {}
        for token_id, parent in zip(request.tree.branch_ids, request.tree.parents, strict=True):
            row = find_row(parent)
            if row not in places:
                continue
            if row not in questions:
                questions[row] = len(self._questions)
                self._questions.append(Question(places[row], _NO_TOKENS))
            edges[row, token_id] = len(self._edges), questions[row]
            self._edges.append(Edge(places[row], token_id))
        return edges


def _iter_reached(request: SampleRequest) -> Iterator[Crossing]:
    """The crossings whose paths were read."""
    is_reached = [request.rows[0] is not None]
    for row, parent in zip(request.rows[1:], request.tree.parents, strict=True):
        is_reached.append(row is not None and is_reached[find_row(parent)])
    return (crossing for crossing in request.crossings if is_reached[find_row(crossing.node)])
