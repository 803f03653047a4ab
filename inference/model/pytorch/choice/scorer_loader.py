"""Which scorer answers the questions of choices on a device, and whether its answers are right."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from inference.errors import MidtokenError, ModelError
from inference.model.pytorch.memory import refusing_when_out_of_memory
from inference.model.pytorch.scoring.batch import Batch, Draw, Edge, Question, Scorer, build_batch, find_scores
from inference.model.pytorch.scoring.plain_scorer import PlainScorer
from inference.model.pytorch.scoring.token_ranks import TokenRanks
from trie_cache.trie import Interval

_NUM_ROWS = 3
_NUM_DRAWS = 8  # for each question
_SPREAD = 4.0  # standard deviation of the logits; real ones have 2 to 5
# In float32. Sums in another order differ by some 1e-6. Scores of draws have the noise of approximate logarithms too.
_TOLERANCE = 1e-3


def build_scorer(ranks: TokenRanks, dtype: torch.dtype) -> Scorer:
    """The scorer for rows of the type `dtype`, on the device of `ranks`.

    Raises ModelError if the device's kernels cannot be used or give other answers than torch's own operations, and
    OverloadedError.
    """
    plain = PlainScorer(ranks)
    if ranks.device.type != "cuda" or dtype == torch.float64:  # for torch, ROCm is cuda too
        return plain
    try:
        # Here, because the packages of torch for other devices come without triton.
        from inference.model.pytorch.kernels.choice_scorer import KernelScorer

        kernel = KernelScorer(ranks)
        with refusing_when_out_of_memory("a check of the kernels that choose tokens"):
            check_scorer(kernel, plain, ranks, dtype)
    except MidtokenError:
        raise
    except Exception as error:  # the compiler of kernels raises undocumented exceptions
        raise ModelError(
            f"the kernels score_chunks and merge_chunks cannot be used on {ranks.device}: {error}"
        ) from error
    return kernel


def check_scorer(scorer: Scorer, expected: Scorer, ranks: TokenRanks, dtype: torch.dtype) -> None:
    """Compares the answers to some questions about random rows. Raises ModelError if they differ."""
    batch = _build_trial(ranks, dtype)
    answers, others = find_scores(scorer, batch), find_scores(expected, batch)
    for name in ("log_totals", "log_masses", "best_logits", "best_ids", "edge_logits", "draw_scores"):
        difference = _find_difference(getattr(answers, name), getattr(others, name))
        if not difference <= _TOLERANCE:  # so for NaN too
            raise _refuse(
                scorer, ranks, dtype, f"its {name} differ by {difference:.1g} from those of torch's operations"
            )
    # A rounding error may change a draw, but not most of them.
    num_equal = int((answers.drawn_ids == others.drawn_ids).sum())
    if num_equal < len(others.drawn_ids) / 2:
        raise _refuse(
            scorer,
            ranks,
            dtype,
            f"only {num_equal} of its {len(others.drawn_ids)} draws are those of torch's operations",
        )


def _refuse(scorer: Scorer, ranks: TokenRanks, dtype: torch.dtype, fault: str) -> ModelError:
    name = str(dtype).removeprefix("torch.")
    return ModelError(f"{type(scorer).__name__} computes wrong scores of {name} logits on {ranks.device}: {fault}")


def _find_difference(answers: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """The greatest difference; infinite if only one is infinite, NaN if one is no number."""
    same = answers == expected  # infinite ones too
    return float(np.abs(np.where(same, 0.0, answers) - np.where(same, 0.0, expected)).max(initial=0.0))


def _build_trial(ranks: TokenRanks, dtype: torch.dtype) -> Batch:
    """Questions of all kinds about rows of random logits."""
    generator = torch.Generator().manual_seed(0)
    logits = _SPREAD * torch.randn(_NUM_ROWS, ranks.num_logits, generator=generator)
    rows = [row.to(dtype).to(ranks.device) for row in logits]
    num_text = ranks.num_text_tokens
    outside = ranks.find_ids(Interval(0, min(num_text, 3)), torch.empty(0, device=ranks.device)).tolist()
    intervals = [
        (ranks.all_tokens, ()),
        (Interval(num_text // 4, num_text // 2), ()),
        (Interval(num_text // 2, min(num_text, num_text // 2 + 1)), outside),
        (Interval(0, 0), ()),
    ]
    questions = [
        Question(row, interval, more_ids, 1.0 / (1 + row))
        for row in range(_NUM_ROWS)
        for interval, more_ids in intervals
    ]
    draws = [
        Draw(question, 2**40 + draw, draw, question) for question in range(len(questions)) for draw in range(_NUM_DRAWS)
    ]
    edges = [
        Edge(row, token_id) for row in range(_NUM_ROWS) for token_id in (0, ranks.num_logits // 2, ranks.num_logits - 1)
    ]
    return build_batch(rows, questions, draws, edges, device=ranks.device)
