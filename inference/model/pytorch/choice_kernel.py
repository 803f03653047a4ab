"""The questions of a choice, answered with one read of the logits in their own type, in the Triton language.

Naive form: log-softmax of each row, a mask of the vocabulary's size for each question, then the maximum. Each of these
steps reads or writes a float32 copy of all logits. Instead:

1. `score_chunks`: a program reads a chunk of a row once, and reduces it to four numbers: greatest logit and sum of
   exponentials of all tokens, greatest logit of the allowed ones and its id.
2. `merge_chunks`: a program for each question merges its chunks.

The order of the tokens' bytes makes a set of allowed tokens an interval of ranks and a few ids. Ranks are read only
where they can matter: for a limit, or in a chunk that has ids without a token.
"""

import torch
import triton
import triton.language as tl

from inference.model.pytorch.scoring import Batch, PackedQuestion, TokenRanks

# The columns of `Batch.questions`.
_ADDRESS, _LO, _HI, _FIRST_MORE, _END_MORE = map(tl.constexpr, range(len(PackedQuestion._fields)))
_QUESTION_FIELDS = tl.constexpr(len(PackedQuestion._fields))

# What is known of a question and a chunk: greatest logit and sum of exponentials of all tokens; greatest logit of the
# allowed ones, and its id.
_TOP, _TOTAL, _BEST, _BEST_ID = map(tl.constexpr, range(4))
_NUM_PARTS = tl.constexpr(4)

# They change from batch to batch, or from model to model. A kernel must not be compiled for each of them.
_INTEGERS = ("num_questions", "num_logits", "num_leading", "num_text_tokens", "num_chunks")

_NUM_WARPS = 4  # 16 logits for each thread of a program
_ALIGNMENT = 16  # bytes: what a thread reads at once
_LOGIT_TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


@triton.jit
def _finite(greatest):
    """The greatest of some numbers, to be subtracted from them; 0 if all of them are -inf."""
    return tl.where(greatest == float("-inf"), 0.0, greatest)


@triton.jit(do_not_specialize=_INTEGERS)
def score_chunks(
    questions, more_ids, ranks, parts, num_logits, num_leading, num_text_tokens, num_chunks,
    chunk_size: tl.constexpr, logit_type: tl.constexpr,
):  # fmt: skip
    """Fills `parts`, [num_questions, _NUM_PARTS, num_chunks] float32. Grid: (num_chunks, num_questions)."""
    chunk = tl.program_id(0)
    question = tl.program_id(1)
    fields = questions + _QUESTION_FIELDS * question
    lo = tl.load(fields + _LO).to(tl.int32)
    hi = tl.load(fields + _HI).to(tl.int32)
    has_limit = (lo > 0) | (hi <= num_text_tokens)
    ids = chunk * chunk_size + tl.arange(0, chunk_size)
    address = tl.load(fields + _ADDRESS)
    row = tl.multiple_of(address.to(tl.pointer_type(logit_type)), 16)  # so that several logits are one load
    if (chunk + 1) * chunk_size <= num_logits:
        logits = tl.load(row + ids)  # a mask would make a load of each logit
    else:
        logits = tl.load(row + ids, mask=ids < num_logits, other=float("-inf"))
    rank = tl.zeros([chunk_size], tl.int32)
    if has_limit | ((chunk + 1) * chunk_size > num_leading):
        rank = tl.load(ranks + ids)
    logits = tl.where(rank >= 0, logits.to(tl.float32), float("-inf"))
    top, best_at = tl.max(logits, axis=0, return_indices=True)  # of equal ones, the first
    total = tl.sum(tl.exp(logits - _finite(top)), axis=0)
    best = top
    if has_limit:
        may_follow = (rank >= lo) & (rank < hi)
        for more in range(tl.load(fields + _FIRST_MORE), tl.load(fields + _END_MORE)):
            may_follow |= ids == tl.load(more_ids + more).to(tl.int32)
        best, best_at = tl.max(tl.where(may_follow, logits, float("-inf")), axis=0, return_indices=True)
    part = parts + question * _NUM_PARTS * num_chunks + chunk
    tl.store(part + _TOP * num_chunks, top)
    tl.store(part + _TOTAL * num_chunks, total)
    tl.store(part + _BEST * num_chunks, best)
    tl.store(part + _BEST_ID * num_chunks, (chunk * chunk_size + best_at).to(tl.float32))


@triton.jit(do_not_specialize=_INTEGERS)
def merge_chunks(parts, results, num_questions, num_chunks, padded_chunks: tl.constexpr):
    """Fills `results`, [3, num_questions] float32, from `parts`. Grid: (num_questions,)."""
    question = tl.program_id(0)
    chunks = tl.arange(0, padded_chunks)
    is_chunk = chunks < num_chunks
    part = parts + question * _NUM_PARTS * num_chunks + chunks
    tops = tl.load(part + _TOP * num_chunks, mask=is_chunk, other=float("-inf"))
    totals = tl.load(part + _TOTAL * num_chunks, mask=is_chunk, other=0.0)
    bests = tl.load(part + _BEST * num_chunks, mask=is_chunk, other=float("-inf"))
    ids = tl.load(part + _BEST_ID * num_chunks, mask=is_chunk, other=0.0)
    top = tl.max(tops, axis=0)
    best = tl.max(bests, axis=0)
    best_id = tl.min(tl.where(bests == best, ids, float("inf")), axis=0)
    answer = results + question
    tl.store(answer, top + tl.log(tl.sum(totals * tl.exp(tops - _finite(top)), axis=0)))
    tl.store(answer + num_questions, best)
    tl.store(answer + 2 * num_questions, tl.where(best == float("-inf"), -1.0, best_id))


class KernelScorer:
    """Launches the kernels: `score` is a `Scorer` with two launches for a batch. It computes in float32."""

    def __init__(self, ranks: TokenRanks) -> None:
        self._ranks = ranks

    @torch.inference_mode()
    def score(self, batch: Batch) -> torch.Tensor:
        """The answers to a batch, whose rows are bfloat16, float16 or float32, and begin at multiples of 16 bytes."""
        assert all(row.data_ptr() % _ALIGNMENT == 0 for row in batch.rows), "the sampler built the rows"
        # Triton launches on the current device, wherever the tensors are.
        with torch.cuda.device_of(batch.questions):
            return self._launch(batch)

    def _launch(self, batch: Batch) -> torch.Tensor:
        ranks, device, num_questions = self._ranks, batch.questions.device, len(batch.rows)
        parts = torch.empty((num_questions, _NUM_PARTS.value, ranks.num_chunks), device=device)
        results = torch.empty((3, num_questions), device=device)
        score_chunks[(ranks.num_chunks, num_questions)](
            batch.questions, batch.more_ids, ranks.ranks, parts,
            ranks.num_logits, ranks.num_leading, ranks.num_text_tokens, ranks.num_chunks,
            chunk_size=ranks.chunk_size, logit_type=_LOGIT_TYPES[batch.rows[0].dtype], num_warps=_NUM_WARPS,
        )  # fmt: skip
        padded_chunks = triton.next_power_of_2(ranks.num_chunks)
        merge_chunks[(num_questions,)](parts, results, num_questions, ranks.num_chunks, padded_chunks=padded_chunks)
        return results
