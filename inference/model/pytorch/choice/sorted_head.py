"""Choices that need sorted tokens: several of the most likely, or one among the likeliest that reach `top_p`.

Only the allowed tokens are sorted. All choices are copied to the host together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from inference.model.language_model import Choice
from inference.model.pytorch.choice.inquiry import Asked
from inference.model.pytorch.scoring.batch import Batch
from inference.model.pytorch.scoring.noise import Level, build_uniforms
from inference.model.pytorch.scoring.token_ranks import TokenRanks


@dataclass(frozen=True, slots=True)
class SortedRequest:
    """A request whose choices need sorted tokens."""

    asked: Asked
    offsets: npt.NDArray[np.float64]  # [num_crossings] log P(path) - log_total: added to a logit it gives log P


@torch.inference_mode()
def choose_sorted(
    sorted_requests: Sequence[SortedRequest], batch: Batch, ranks: TokenRanks
) -> list[tuple[Choice, ...]]:
    """The choices of each request. Of equally likely tokens, those of earlier crossings come first, then small ids."""
    if not sorted_requests:
        return []
    picked = [_pick(each, batch, ranks) for each in sorted_requests]
    host = torch.cat(picked, dim=1).cpu().numpy()
    ends = np.cumsum([each.shape[1] for each in picked])[:-1]
    choices = []
    for each, (scores, indices, token_ids) in zip(sorted_requests, np.split(host, ends, axis=1), strict=True):
        found = zip(scores, indices, token_ids, strict=True)
        crossings = each.asked.crossings
        choices.append(
            tuple(
                Choice(crossings[int(index)], int(token_id)) for score, index, token_id in found if np.isfinite(score)
            )
        )
    return choices


def _pick(each: SortedRequest, batch: Batch, ranks: TokenRanks) -> torch.Tensor:
    """[3, num_choices] device: log P, the index of the crossing, and the token id."""
    scores, indices, token_ids = (torch.cat(parts) for parts in zip(*_iter_allowed(each, batch, ranks), strict=True))
    request = each.asked.request
    num_choices = len(request.random_sources)
    if request.sampling.is_greedy:
        places = scores.sort(descending=True, stable=True).indices[:num_choices]
    else:
        draws = batch.draws[each.asked.first_draw :][:num_choices]
        places = _draw(scores / request.sampling.temperature, request.sampling.top_p, draws)
    return torch.stack([scores[places], indices[places].to(scores), token_ids[places].to(scores)])


def _iter_allowed(
    each: SortedRequest, batch: Batch, ranks: TokenRanks
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """For each crossing: log P(path + token) of the allowed tokens, the crossing's index for each, and their ids."""
    for index, offset in enumerate(each.offsets.tolist()):
        place = each.asked.first_question + index
        question = batch.questions[place]
        token_ids = ranks.find_ids(question.interval, batch.find_more_ids(place))
        logits = batch.rows[question.row][token_ids]
        scores = (logits if logits.dtype == torch.float64 else logits.float()) + offset
        yield scores, torch.full_like(token_ids, index), token_ids


def _draw(scores: torch.Tensor, top_p: float, draws: torch.Tensor) -> torch.Tensor:
    """[num_draws] places in `scores`, drawn among the fewest most likely ones that together reach `top_p`."""
    probs, order = torch.softmax(scores, dim=0).sort(descending=True, stable=True)
    totals = probs.cumsum(0)
    totals = probs.masked_fill(totals - probs >= top_p, 0.0).cumsum(0)
    _, seeds, offsets, _ = draws.T
    uniforms = build_uniforms(seeds, torch.zeros_like(seeds), offsets, torch.zeros_like(seeds), Level.HEAD)
    places = torch.searchsorted(totals, uniforms.to(totals) * totals[-1])
    return order[places]
