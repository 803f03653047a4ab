"""Questions about small random rows, and what a scorer must answer."""

import random
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st

from inference.model.pytorch.scoring import (
    Batch,
    Edge,
    RowQuestion,
    Scorer,
    TokenRanks,
    build_batch,
    compute_scores,
)
from tests.support.samplers import expect_scores
from trie_cache.trie import Interval, Trie
from trie_cache.vocabulary import Vocabulary

KERNEL_TYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class ChoiceCase:
    """A vocabulary, rows of logits, and what is asked about them."""

    trie: Trie
    ranks: TokenRanks
    rows: list[torch.Tensor]
    questions: list[RowQuestion]
    edges: list[Edge]

    @property
    def batch(self) -> Batch:
        """The questions, packed."""
        return build_batch(self.rows, self.questions, self.edges, device=self.ranks.device)


def make_vocabulary(num_logits: int, seed: int = 0, num_gaps: int = 5) -> tuple[Vocabulary, Trie]:
    """Short tokens, some of them with equal bytes, two special ones, and ids without a token: gaps and a padded end."""
    source = random.Random(seed)
    num_ids = max(1, num_logits - source.randrange(1 + num_gaps))
    tokens = {index: bytes(source.choices(b"abc", k=source.randint(1, 4))) for index in range(num_ids)}
    for index in source.sample(range(num_ids), min(num_ids - 1, source.randrange(1 + num_gaps))):
        del tokens[index]
    special = {f"<{index}>": index for index in list(tokens)[1:3]}
    vocabulary = Vocabulary.from_tokens(tokens, special, num_rows=num_logits)
    return vocabulary, Trie.build(vocabulary)


def make_rows(num_rows: int, num_logits: int, dtype: torch.dtype, scale: float, seed: int = 0) -> list[torch.Tensor]:
    """Random rows. Some logits are -inf, and many are equal if `scale` is small."""
    source = np.random.default_rng(seed)
    logits = np.round(source.normal(size=(num_rows, num_logits)) * 4) / 4 * scale
    logits[source.random(logits.shape) < 0.05] = -np.inf
    return [torch.from_numpy(row).to(dtype) for row in logits]


def build_case(dtype: torch.dtype, num_logits: int = 60, chunk_size: int = 16) -> ChoiceCase:
    """Two rows, with a question about each: of all tokens, and of an interval."""
    vocabulary, trie = make_vocabulary(num_logits)
    ranks = TokenRanks(vocabulary, trie, torch.device("cpu"), chunk_size)
    questions = [RowQuestion(0, ranks.all_tokens), RowQuestion(1, Interval(3, trie.num_tokens // 2))]
    return ChoiceCase(trie, ranks, make_rows(2, num_logits, dtype, 1.5), questions, [])


@st.composite
def choice_cases(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...]) -> ChoiceCase:
    """Cases with every kind of question. The lengths of rows are mostly no multiples of a chunk."""
    seed = draw(st.integers(0, 10_000))
    num_logits = draw(st.integers(1, 400))
    chunk_size = draw(st.sampled_from([32, 64, 256]))
    vocabulary, trie = make_vocabulary(num_logits, seed, draw(st.sampled_from([0, 5, 100])))
    ranks = TokenRanks(vocabulary, trie, torch.device("cpu"), chunk_size)
    rows = make_rows(2, num_logits, draw(st.sampled_from(dtypes)), draw(st.sampled_from([0.0, 0.3, 4.0, 1e4])), seed)
    questions = draw(st.lists(_questions(trie, ranks), min_size=1, max_size=4))
    edges = draw(st.lists(st.builds(Edge, st.integers(0, 1), st.integers(0, num_logits - 1)), max_size=3))
    return ChoiceCase(trie, ranks, rows, questions, edges)


@st.composite
def _questions(draw: st.DrawFn, trie: Trie, ranks: TokenRanks) -> RowQuestion:
    num_text = trie.num_tokens
    row = draw(st.integers(0, 1))
    lo = draw(st.integers(0, num_text))
    spelled = bytes(draw(st.lists(st.sampled_from(b"abc"), max_size=4)))
    question: RowQuestion = draw(
        st.sampled_from([
            RowQuestion(row, ranks.all_tokens),
            RowQuestion(row, Interval(0, num_text)),
            RowQuestion(row, Interval(lo, lo)),  # none
            RowQuestion(row, Interval(0, min(1, num_text))),  # one
            RowQuestion(row, Interval(max(0, num_text - 1), num_text)),
            RowQuestion(row, Interval(lo, draw(st.integers(lo, num_text)))),
            RowQuestion(row, trie.find_interval(spelled), trie.find_ancestors(spelled)),
        ])
    )  # fmt: skip
    return question


def assert_right(case: ChoiceCase, scorer: Scorer) -> None:
    """Checks all answers of a scorer against NumPy's."""
    answers, expected = compute_scores(scorer, case.batch), expect_scores(case.batch, case.ranks)
    for name in ("log_totals", "log_masses"):
        np.testing.assert_allclose(getattr(answers, name), getattr(expected, name), rtol=1e-6, atol=1e-4)
    for name in ("best_logits", "best_ids", "edge_logits"):
        np.testing.assert_array_equal(getattr(answers, name), getattr(expected, name))
