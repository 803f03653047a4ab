"""What an attention layer does with scores, apart from which keys its rows see."""

from dataclasses import dataclass

import torch

from inference.model.pytorch.attention.reach import Reach


@dataclass(frozen=True, slots=True, eq=False)
class ScoreRule:
    """The arguments of one layer's attention."""

    reach: Reach
    scale: float  # of the products of queries and keys
    softcap: float | None = None  # bounds the scores
    sinks: torch.Tensor | None = None  # [num_heads], device: for each head, the score of one more key, without a value
