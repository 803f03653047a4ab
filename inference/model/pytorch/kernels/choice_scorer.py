"""A `Scorer` with kernels: two launches for a batch, whatever it asks."""

from typing import Any

import torch
import triton
import triton.language as tl

from inference.model.pytorch.kernels.choice import NUM_PARTS, merge_chunks, score_chunks
from inference.model.pytorch.scoring.batch import Batch
from inference.model.pytorch.scoring.token_ranks import TokenRanks

NUM_WARPS = 4  # 16 logits for each thread of a program
NUM_READ_EDGES = 128  # by one program
_ALIGNMENT = 16  # bytes: what a thread reads at once
_LOGIT_TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


class KernelScorer:
    """The answers with the kernels of `choice`, computed in float32."""

    def __init__(self, ranks: TokenRanks) -> None:
        self._ranks = ranks

    @torch.inference_mode()
    def score(self, batch: Batch) -> torch.Tensor:
        """The answers to a batch, whose rows are bfloat16, float16 or float32, and begin at multiples of 16 bytes."""
        assert all(row.data_ptr() % _ALIGNMENT == 0 for row in batch.rows), "the sampler built the rows"
        # Triton launches on the current device, wherever the tensors are.
        with torch.cuda.device_of(batch.values):
            return self._launch(batch)

    def _launch(self, batch: Batch) -> torch.Tensor:
        ranks, device = self._ranks, batch.values.device
        options = find_options(ranks.num_chunks, ranks.chunk_size, batch.rows[0].dtype)
        vocabulary = (ranks.num_logits, ranks.num_leading, ranks.num_text_tokens, ranks.num_chunks)
        parts = torch.empty((batch.num_questions, NUM_PARTS.value, ranks.num_chunks), device=device)
        results = torch.empty(batch.num_answers, device=device)
        score_chunks[(ranks.num_chunks, batch.num_questions)](
            batch.values, ranks.ranks, parts, batch.more_at, *vocabulary, **_select(score_chunks, options)
        )
        num_programs = batch.num_questions + batch.num_draws + triton.cdiv(batch.num_edges, NUM_READ_EDGES)
        places = (batch.more_at, batch.draws_at, batch.edges_at, batch.num_questions, batch.num_draws, batch.num_edges)
        merge_chunks[(num_programs,)](
            batch.values, ranks.ranks, parts, results, *places, *vocabulary, **_select(merge_chunks, options)
        )
        return results


def find_options(num_chunks: int, chunk_size: int, dtype: torch.dtype) -> dict[str, Any]:
    """What the kernels are compiled for, by the names of their parameters, and how many warps run a program."""
    return {
        "chunk_size": chunk_size,
        "logit_type": _LOGIT_TYPES[dtype],
        "padded_chunks": triton.next_power_of_2(num_chunks),
        "num_read": NUM_READ_EDGES,
        "num_warps": NUM_WARPS,
    }


def _select(kernel: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options of one kernel."""
    return {name: value for name, value in options.items() if name in kernel.arg_names or name == "num_warps"}
