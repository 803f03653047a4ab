"""Rows of logits of each kind, so that each test of the sampler runs with all, and their oracle."""

import numpy as np
import numpy.typing as npt
import pytest
import torch

from inference.healing.covering import Crossing, Rule
from inference.model.pytorch.model import TorchRow, TorchTokens
from inference.model.sampler import NumpyRow, NumpyTokens, Sampling
from tests.support.toys import ToyTokenizer

ROWS = ("numpy", "torch")
GREEDY = Sampling(temperature=0.0, top_p=1.0)

both_rows = pytest.mark.parametrize("name", ROWS)


@torch.inference_mode()
def build_rows(name: str, toy: ToyTokenizer, logits: torch.Tensor) -> list[NumpyRow] | list[TorchRow]:
    """A row of that kind for each line of logits, on the CPU. Some may be -inf."""
    numbers = logits.masked_fill(logits.isneginf(), 0)
    if name == "torch":
        rows = TorchTokens(toy.vocabulary, toy.trie, torch.device("cpu")).build_rows(numbers)
        for each, line in zip(rows, logits, strict=True):
            each.logits[line.isneginf()] = -torch.inf
        return rows
    on_host = NumpyTokens(toy.vocabulary, toy.trie).build_rows(numbers.float().numpy())
    for row, line in zip(on_host, logits, strict=True):
        row.logits[line.isneginf().numpy()] = -np.inf
    return on_host


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
