"""A `Scorer` with torch's own operations, on any device. It makes a float32 copy of each row that is asked about.

A draw has two steps, as in the kernels. Gumbel noise for every token of the vocabulary would cost more than to read it:

1. Draw a chunk of the row, in proportion to the mass of its allowed tokens.
2. Draw an allowed token of this chunk.
"""

import torch

from inference.model.pytorch.scoring.batch import Batch
from inference.model.pytorch.scoring.noise import Level, build_gumbels
from inference.model.pytorch.scoring.token_ranks import TokenRanks

_NUM_DRAWS = 256  # computed together


class PlainScorer:
    """The answers with torch's own operations. Rows of float64 are computed in float64, all others in float32."""

    def __init__(self, ranks: TokenRanks) -> None:
        self._ranks = ranks

    @torch.inference_mode()
    def score(self, batch: Batch) -> torch.Tensor:
        """The answers to a batch."""
        rows = torch.stack(batch.rows)
        rows = rows if rows.dtype == torch.float64 else rows.float()
        questions = batch.question_fields
        ranks = self._ranks.ranks[: self._ranks.num_logits]
        logits = rows.masked_fill(ranks < 0, -torch.inf)[questions[:, 1]]
        may_follow = (ranks >= questions[:, 2:3]) & (ranks < questions[:, 3:4])
        may_follow[batch.more[:, 0], batch.more[:, 1]] = True
        allowed = logits.masked_fill(~may_follow, -torch.inf)
        best_logits, best_ids = allowed.max(dim=-1)  # of equal ones, the smallest id
        best_ids = best_ids.masked_fill(best_logits == -torch.inf, -1)
        answers = [logits.logsumexp(dim=-1), allowed.logsumexp(dim=-1), best_logits, best_ids.to(logits)]
        drawn = self._draw(batch, allowed, best_logits)
        edges = rows[batch.edges[:, 1], batch.edges[:, 2]]
        return torch.cat([torch.stack(answers, dim=1).flatten(), drawn.flatten(), edges])

    def _draw(self, batch: Batch, allowed: torch.Tensor, best_logits: torch.Tensor) -> torch.Tensor:
        """[num_draws, 2]: score and id of each draw. `allowed`: [num_questions, vocab_size], -inf for other tokens."""
        if not batch.num_draws:
            return allowed.new_empty(0)
        scales = batch.question_fields[:, 6].int().view(torch.float32)[:, None]
        bests = best_logits.masked_fill(best_logits == -torch.inf, 0.0)[:, None]
        weights = ((allowed - bests) * scales).masked_fill(allowed == -torch.inf, -torch.inf)
        num_missing = self._ranks.num_chunks * self._ranks.chunk_size - weights.shape[1]
        weights = torch.nn.functional.pad(weights, (0, num_missing), value=-torch.inf)
        chunks = weights.view(len(weights), self._ranks.num_chunks, self._ranks.chunk_size)
        masses = chunks.logsumexp(dim=-1)
        return torch.cat([_draw_some(draws, chunks, masses) for draws in torch.split(batch.draws, _NUM_DRAWS)])


def _draw_some(draws: torch.Tensor, chunks: torch.Tensor, masses: torch.Tensor) -> torch.Tensor:
    """`chunks`: [num_questions, num_chunks, chunk_size] log-weights. `masses`: [num_questions, num_chunks]."""
    questions, seeds, offsets, streams = draws.T[:, :, None]
    indices = torch.arange(masses.shape[1], device=masses.device)
    noisy = masses[questions[:, 0]] + build_gumbels(seeds, indices, offsets, streams, Level.CHUNK)
    scores, drawn = noisy.max(dim=1)
    ids = drawn[:, None] * chunks.shape[2] + torch.arange(chunks.shape[2], device=masses.device)
    noisy = chunks[questions[:, 0], drawn] + build_gumbels(seeds, ids, offsets, streams, Level.TOKEN)
    drawn_ids = ids.gather(1, noisy.argmax(dim=1, keepdim=True))[:, 0].masked_fill(scores == -torch.inf, -1)
    return torch.stack([scores, drawn_ids.to(scores)], dim=1)
