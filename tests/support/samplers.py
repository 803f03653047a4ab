"""Both samplers, so that each test runs with both, and a scorer that needs no GPU."""

import numpy as np
import pytest
import torch

from inference.healing.covering import Crossing, Rule
from inference.model.language_model import Sampling
from inference.model.pytorch.sampler import HostSampler, Sampler, TorchSampler
from inference.model.pytorch.scoring import Batch, TokenRanks
from tests.support.toys import ToyTokenizer

SAMPLERS = ("numpy", "torch")
GREEDY = Sampling(temperature=0.0, top_p=1.0)

both_samplers = pytest.mark.parametrize("name", SAMPLERS)


class NumpyScorer:
    """Answers as the kernels, by NumPy in float64."""

    def __init__(self, ranks: TokenRanks) -> None:
        self._ranks = ranks

    def score(self, batch: Batch) -> torch.Tensor:
        of_ids = self._ranks.ranks.cpu().numpy()[: self._ranks.num_logits]
        rows = torch.stack(batch.rows).double().cpu().numpy()
        logits = np.where(of_ids < 0, -np.inf, rows)
        allowed = np.full_like(logits, -np.inf)
        more_ids = batch.more_ids.cpu().numpy()
        for line, own, (_, lo, hi, start, end) in zip(allowed, logits, batch.questions.tolist(), strict=True):
            may_follow = (lo <= of_ids) & (of_ids < hi)
            may_follow[more_ids[start:end]] = True
            line[may_follow] = own[may_follow]
        bests = allowed.max(axis=1)
        best_ids = np.where(bests == -np.inf, -1, allowed.argmax(axis=1))
        with np.errstate(invalid="ignore"):  # logits that are no numbers
            totals = np.logaddexp.reduce(logits, axis=1)
        return torch.from_numpy(np.stack([totals, bests, best_ids]))


def build_sampler(name: str, toy: ToyTokenizer) -> Sampler:
    """Builds the sampler of that name on the CPU."""
    if name == "numpy":
        return HostSampler(toy.vocabulary, toy.trie)
    ranks = TokenRanks(toy.vocabulary, toy.trie, torch.device("cpu"))
    return TorchSampler(toy.vocabulary, toy.trie, ranks, NumpyScorer(ranks).score)


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
