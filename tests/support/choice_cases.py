"""Questions about small random rows, and their answers by brute force in float64."""

import dataclasses
import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import strategies as st

from inference.model.pytorch.scoring import Draw, Edge, Question, Scorer, Scores, TokenRanks, build_batch, find_scores
from trie_cache.trie import Interval, Trie
from trie_cache.vocabulary import Vocabulary

KERNEL_TYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class ChoiceCase:
    """A vocabulary, rows of logits, and what is asked about them."""

    vocabulary: Vocabulary
    trie: Trie
    ranks: TokenRanks
    rows: list[torch.Tensor]
    questions: list[Question]
    draws: list[Draw]
    edges: list[Edge]

    def find_scores(self, scorer: Scorer) -> Scores:
        """The scorer's answers."""
        batch = build_batch(self.rows, self.questions, self.draws, self.edges, device=self.ranks.device)
        return find_scores(scorer, batch)


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
    questions = [Question(0, ranks.all_tokens), Question(1, Interval(3, trie.num_tokens // 2))]
    return ChoiceCase(vocabulary, trie, ranks, make_rows(2, num_logits, dtype, 1.5), questions, [], [])


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
    draws = [
        Draw(index, draw(st.integers(0, 2**63 - 1)), 0, index)
        for index, question in enumerate(questions)
        if question.inverse_temperature
    ]
    edges = draw(st.lists(st.builds(Edge, st.integers(0, 1), st.integers(0, num_logits - 1)), max_size=3))
    return ChoiceCase(vocabulary, trie, ranks, rows, questions, draws, edges)


@st.composite
def _questions(draw: st.DrawFn, trie: Trie, ranks: TokenRanks) -> Question:
    num_text = trie.num_tokens
    row, scale = draw(st.integers(0, 1)), draw(st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0]))
    lo = draw(st.integers(0, num_text))
    spelled = bytes(draw(st.lists(st.sampled_from(b"abc"), max_size=4)))
    question = draw(
        st.sampled_from([
            Question(row, ranks.all_tokens),
            Question(row, Interval(0, num_text)),
            Question(row, Interval(lo, lo)),  # none
            Question(row, Interval(0, min(1, num_text))),  # one
            Question(row, Interval(max(0, num_text - 1), num_text)),
            Question(row, Interval(lo, draw(st.integers(lo, num_text)))),
            Question(row, trie.find_interval(spelled), trie.find_ancestors(spelled)),
        ])
    )  # fmt: skip
    return question._replace(inverse_temperature=scale)


def find_allowed(case: ChoiceCase, question: Question) -> list[int]:
    """The ids that a question allows, token by token."""
    allowed = []
    for token_id, token in enumerate(case.vocabulary.token_bytes):
        is_special = token_id in case.vocabulary.special_ids
        rank = int(case.trie.rank[token_id])
        lies_inside = bool(token) and question.interval.lo <= rank < question.interval.hi
        if lies_inside or token_id in question.more_ids or (is_special and question.interval == case.ranks.all_tokens):
            allowed.append(token_id)
    return allowed


def assert_right(case: ChoiceCase, scores: Scores) -> None:
    """Checks all answers against brute force."""
    rows = [row.double().numpy() for row in case.rows]
    every = Question(0, case.ranks.all_tokens)
    for index, question in enumerate(case.questions):
        row, allowed = rows[question.row], find_allowed(case, question)
        _assert_close(scores.log_totals[index], _log_sum_exp(row[find_allowed(case, every)]))
        _assert_close(scores.log_masses[index], _log_sum_exp(row[allowed]))
        best = row[allowed].max(initial=-np.inf)
        best_id = min((token_id for token_id in allowed if row[token_id] == best > -np.inf), default=-1)
        assert (scores.best_logits[index], scores.best_ids[index]) == (best, best_id)
    for index, draw in enumerate(case.draws):
        question = case.questions[draw.question]
        possible = {token_id for token_id in find_allowed(case, question) if rows[question.row][token_id] > -np.inf}
        assert scores.drawn_ids[index] in (possible or {-1})
        assert np.isfinite(scores.draw_scores[index]) == bool(possible)
    assert scores.edge_logits.tolist() == [rows[edge.row][edge.token_id] for edge in case.edges]


def assert_draws_agree(case: ChoiceCase, scorer: Scorer, expected: Scorer) -> None:
    """Checks that two scorers draw the same. A rounding error may change one draw in a hundred."""
    answers, others = case.find_scores(scorer), case.find_scores(expected)
    np.testing.assert_allclose(answers.draw_scores, others.draw_scores, atol=1e-3)
    assert (answers.drawn_ids == others.drawn_ids).mean() >= 0.99


def make_draws(case: ChoiceCase, num_draws: int, temperature: float, seed: int = 1) -> ChoiceCase:
    """The same case with a draw for each offset at each question."""
    questions = [question._replace(inverse_temperature=1 / temperature) for question in case.questions]
    draws = [Draw(index, seed, offset, index) for index in range(len(questions)) for offset in range(num_draws)]
    return dataclasses.replace(case, questions=questions, draws=draws)


def assert_draws_follow_weights(case: ChoiceCase, scores: Scores) -> None:
    """A chi-squared test of all draws of the case's only question. A right scorer fails once in 100,000 seeds."""
    [question] = case.questions
    allowed = find_allowed(case, question)
    logits = case.rows[question.row].double().numpy()[allowed] * question.inverse_temperature
    expected = np.exp(logits - _log_sum_exp(logits)) * len(case.draws)
    seen = np.array([(scores.drawn_ids == token_id).sum() for token_id in allowed])
    assert seen.sum() == len(case.draws), "only allowed tokens are drawn"
    likely = expected >= 5
    seen = np.append(seen[likely], seen[~likely].sum())
    expected = np.append(expected[likely], max(expected[~likely].sum(), 1e-9))
    freedom = len(expected) - 1
    assert freedom > 3, "too few likely tokens for a test"
    spread = 2 / (9 * freedom)  # Wilson and Hilferty's approximation
    assert ((seen - expected) ** 2 / expected).sum() <= freedom * (1 - spread + 4.27 * spread**0.5) ** 3


def _assert_close(answer: float, expected: float) -> None:
    np.testing.assert_allclose(answer, expected, rtol=1e-6, atol=1e-4)


def _log_sum_exp(logits: npt.NDArray[np.float64]) -> float:
    greatest = logits.max(initial=-np.inf)
    if greatest == -np.inf:
        return -np.inf
    return float(greatest + np.log(np.exp(logits - greatest).sum()))
