"""Both samplers, so that each test runs with both, and a scorer that needs no GPU."""

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest
import torch

from inference.healing.covering import Crossing, Rule
from inference.model.language_model import Sampling
from inference.model.pytorch.sampler import HostSampler, Sampler, TorchSampler
from inference.model.pytorch.scoring import Batch, RowScores, TokenRanks
from tests.support.toys import ToyTokenizer

SAMPLERS = ("numpy", "torch")
GREEDY = Sampling(temperature=0.0, top_p=1.0)

both_samplers = pytest.mark.parametrize("name", SAMPLERS)


def expect_scores(batch: Batch, ranks: TokenRanks) -> RowScores:
    """The answers by NumPy in float64."""
    of_ids = ranks.ranks.cpu().numpy()[: ranks.num_logits]
    rows = torch.stack(batch.rows).double().cpu().numpy()
    logits = np.where(of_ids < 0, -np.inf, rows)[[question.row for question in batch.questions]]
    allowed = np.full_like(logits, -np.inf)
    for line, own, (_, (lo, hi), more_ids) in zip(allowed, logits, batch.questions, strict=True):
        may_follow = (lo <= of_ids) & (of_ids < hi)
        may_follow[list(more_ids)] = True
        line[may_follow] = own[may_follow]
    bests = allowed.max(axis=1)
    best_ids = np.where(bests == -np.inf, -1, allowed.argmax(axis=1))
    edge_rows, token_ids = batch.edges.cpu().numpy().T
    totals, masses = (np.logaddexp.reduce(each, axis=1) for each in (logits, allowed))
    return RowScores(totals, masses, bests, best_ids, rows[edge_rows, token_ids])


class NumpyScorer:
    """Answers as the kernels."""

    def __init__(self, ranks: TokenRanks) -> None:
        self._ranks = ranks

    def __call__(self, batch: Batch) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(dataclasses.astuple(expect_scores(batch, self._ranks))))


def build_sampler(name: str, toy: ToyTokenizer) -> Sampler:
    """Builds the sampler of that name on the CPU."""
    if name == "numpy":
        return HostSampler(toy.vocabulary, toy.trie)
    ranks = TokenRanks(toy.vocabulary, toy.trie, torch.device("cpu"))
    return TorchSampler(toy.vocabulary, toy.trie, ranks, NumpyScorer(ranks))


def may_follow(toy: ToyTokenizer, token_id: int, crossing: Crossing) -> bool:
    """Applies the rules to one token."""
    token = toy.vocabulary.token_bytes[token_id]
    if not crossing.remaining_bytes:
        return bool(token) or token_id in toy.vocabulary.special_ids
    if crossing.rule is Rule.CROSS:
        return token.startswith(crossing.remaining_bytes) and token != crossing.remaining_bytes
    begins = bool(token) and crossing.remaining_bytes.startswith(token) and crossing.rule is Rule.SPELL
    return token.startswith(crossing.remaining_bytes) or begins


def find_log_probs(toy: ToyTokenizer, logits: torch.Tensor) -> torch.Tensor:
    """Returns the log probabilities of rows of logits; padding has none."""
    every = Crossing(None, b"", Rule.EXTEND)
    is_token = torch.tensor([may_follow(toy, token_id, every) for token_id in range(toy.num_rows)])
    return torch.log_softmax(logits.double().masked_fill(~is_token, -torch.inf), dim=-1)


def assert_follows(seen: npt.NDArray[np.int64], expected: npt.NDArray[np.float64]) -> None:
    """A chi-squared test of how often each outcome was seen. It rejects a right sampler once in 100,000 times."""
    assert not seen[expected == 0].any(), "only what is possible is drawn"
    likely = expected >= 5
    if expected[~likely].sum() >= 5:
        seen, expected = (np.append(each[likely], each[~likely].sum()) for each in (seen, expected))
    else:
        seen, expected = seen[likely], expected[likely]
    freedom = len(expected) - 1
    assert freedom > 0, "too few likely outcomes for a test"
    spread = 2 / (9 * freedom)  # Wilson and Hilferty's approximation
    assert ((seen - expected) ** 2 / expected).sum() <= freedom * (1 - spread + 4.27 * spread**0.5) ** 3
