"""The questions of a choice, answered with one read of the logits in their own type, in the Triton language.

Naive form: log-softmax of each row, a mask of the vocabulary's size for each question, then maximum and log-sum-exp.
Each of these steps reads or writes a float32 copy of all logits. Instead:

1. `score_chunks`: a program reads a chunk of a row once, and reduces it to five numbers: greatest logit and sum of
   exponentials, of all tokens and of the allowed ones, and the best allowed id. Each sum is relative to the greatest
   logit of its own chunk and tokens, so rare tokens keep their mass.
2. `merge_chunks`: a program for each question merges its chunks. Others read the logits of edges.

The order of the tokens' bytes makes a set of allowed tokens an interval of ranks and a few ids. Ranks are read only
where they can matter: for a limit, or in a chunk that has ids without a token.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from inference.model.pytorch.scoring import Batch, Edge, PackedQuestion, TokenRanks

# The columns of the arrays of a batch.
_ROW, _LO, _HI, _FIRST_MORE, _END_MORE = map(tl.constexpr, range(len(PackedQuestion._fields)))
_QUESTION_FIELDS = tl.constexpr(len(PackedQuestion._fields))
_EDGE_ROW, _EDGE_TOKEN = map(tl.constexpr, range(len(Edge._fields)))
_EDGE_FIELDS = tl.constexpr(len(Edge._fields))

# What is known of a question and a chunk: greatest logit and sum of exponentials of all tokens; the same of the allowed
# ones; the best allowed id.
_TOP, _TOTAL, _BEST, _MASS, _BEST_ID = map(tl.constexpr, range(5))
_NUM_PARTS = tl.constexpr(5)

# They change from batch to batch, or from model to model. A kernel must not be compiled for each of them.
_INTEGERS = ("num_questions", "num_edges", "num_logits", "num_leading", "num_text_tokens", "num_chunks")

_NUM_WARPS = 4  # 16 logits for each thread of a program
_NUM_READ_EDGES = 128  # by one program
_ALIGNMENT = 16  # bytes: what a thread reads at once
_LOGIT_TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


@triton.jit
def _read_chunk(
    addresses, questions, more_ids, question, chunk, ranks, num_logits, num_leading, num_text_tokens,
    chunk_size: tl.constexpr, logit_type: tl.constexpr,
):  # fmt: skip
    """The ids of a chunk, all its logits, the allowed ones, and whether there is a limit. -inf for other tokens."""
    fields = questions + _QUESTION_FIELDS * question
    lo = tl.load(fields + _LO).to(tl.int32)
    hi = tl.load(fields + _HI).to(tl.int32)
    has_limit = (lo > 0) | (hi <= num_text_tokens)
    ids = chunk * chunk_size + tl.arange(0, chunk_size)
    address = tl.load(addresses + tl.load(fields + _ROW))
    row = tl.multiple_of(address.to(tl.pointer_type(logit_type)), 16)  # so that several logits are one load
    if (chunk + 1) * chunk_size <= num_logits:
        logits = tl.load(row + ids)  # a mask would make a load of each logit
    else:
        logits = tl.load(row + ids, mask=ids < num_logits, other=float("-inf"))
    rank = tl.zeros([chunk_size], tl.int32)
    if has_limit | ((chunk + 1) * chunk_size > num_leading):
        rank = tl.load(ranks + ids)
    logits = tl.where(rank >= 0, logits.to(tl.float32), float("-inf"))
    allowed = logits
    if has_limit:
        may_follow = (rank >= lo) & (rank < hi)
        for more in range(tl.load(fields + _FIRST_MORE), tl.load(fields + _END_MORE)):
            may_follow |= ids == tl.load(more_ids + more).to(tl.int32)
        allowed = tl.where(may_follow, logits, float("-inf"))
    return ids, logits, allowed, has_limit


@triton.jit
def _finite(greatest):
    """The greatest of some numbers, to be subtracted from them; 0 if all of them are -inf."""
    return tl.where(greatest == float("-inf"), 0.0, greatest)


@triton.jit(do_not_specialize=_INTEGERS)
def score_chunks(
    addresses, questions, more_ids, ranks, parts, num_logits, num_leading, num_text_tokens, num_chunks,
    chunk_size: tl.constexpr, logit_type: tl.constexpr,
):  # fmt: skip
    """Fills `parts`, [num_questions, _NUM_PARTS, num_chunks] float32. Grid: (num_chunks, num_questions)."""
    chunk = tl.program_id(0)
    question = tl.program_id(1)
    _, logits, allowed, has_limit = _read_chunk(
        addresses, questions, more_ids, question, chunk, ranks, num_logits, num_leading, num_text_tokens,
        chunk_size, logit_type,
    )  # fmt: skip
    top, top_at = tl.max(logits, axis=0, return_indices=True)  # of equal ones, the first
    total = tl.sum(tl.exp(logits - _finite(top)), axis=0)
    best, best_at, mass = top, top_at, total
    if has_limit:
        best, best_at = tl.max(allowed, axis=0, return_indices=True)
        mass = tl.sum(tl.exp(allowed - _finite(best)), axis=0)
    part = parts + question * _NUM_PARTS * num_chunks + chunk
    tl.store(part + _TOP * num_chunks, top)
    tl.store(part + _TOTAL * num_chunks, total)
    tl.store(part + _BEST * num_chunks, best)
    tl.store(part + _MASS * num_chunks, mass)
    tl.store(part + _BEST_ID * num_chunks, (chunk * chunk_size + best_at).to(tl.float32))


@triton.jit
def _merge_sums(tops, sums):
    """The log-sum-exp of all chunks, from the greatest number and the sum of each."""
    top = tl.max(tops, axis=0)
    return top + tl.log(tl.sum(sums * tl.exp(tops - _finite(top)), axis=0))


@triton.jit
def _merge_question(parts, results, question, num_questions, num_chunks, padded_chunks: tl.constexpr):
    chunks = tl.arange(0, padded_chunks)
    is_chunk = chunks < num_chunks
    part = parts + question * _NUM_PARTS * num_chunks + chunks
    tops = tl.load(part + _TOP * num_chunks, mask=is_chunk, other=float("-inf"))
    totals = tl.load(part + _TOTAL * num_chunks, mask=is_chunk, other=0.0)
    bests = tl.load(part + _BEST * num_chunks, mask=is_chunk, other=float("-inf"))
    masses = tl.load(part + _MASS * num_chunks, mask=is_chunk, other=0.0)
    ids = tl.load(part + _BEST_ID * num_chunks, mask=is_chunk, other=0.0)
    best = tl.max(bests, axis=0)
    best_id = tl.min(tl.where(bests == best, ids, float("inf")), axis=0)
    answer = results + question  # in the order of the fields of `RowScores`
    tl.store(answer, _merge_sums(tops, totals))
    tl.store(answer + num_questions, _merge_sums(bests, masses))
    tl.store(answer + 2 * num_questions, best)
    tl.store(answer + 3 * num_questions, tl.where(best == float("-inf"), -1.0, best_id))


@triton.jit
def _read_edges(addresses, edges, results, first, num_edges, logit_type: tl.constexpr, num_read: tl.constexpr):
    edge = first + tl.arange(0, num_read)
    is_edge = edge < num_edges
    rows = tl.load(edges + _EDGE_FIELDS * edge + _EDGE_ROW, mask=is_edge, other=0)
    token_ids = tl.load(edges + _EDGE_FIELDS * edge + _EDGE_TOKEN, mask=is_edge, other=0)
    starts = tl.load(addresses + rows, mask=is_edge, other=0).to(tl.pointer_type(logit_type))
    logits = tl.load(starts + token_ids, mask=is_edge, other=0.0)
    tl.store(results + edge, logits.to(tl.float32), mask=is_edge)


@triton.jit(do_not_specialize=_INTEGERS)
def merge_chunks(
    addresses, edges, parts, results, num_questions, num_edges, num_chunks,
    padded_chunks: tl.constexpr, logit_type: tl.constexpr, num_read: tl.constexpr,
):  # fmt: skip
    """Fills `results`, float32, from `parts`. Grid: questions, then each `num_read` edges."""
    program = tl.program_id(0)
    if program < num_questions:
        _merge_question(parts, results, program, num_questions, num_chunks, padded_chunks)
    else:
        first = (program - num_questions) * num_read
        _read_edges(addresses, edges, results + 4 * num_questions, first, num_edges, logit_type, num_read)


@torch.inference_mode()
def score_batch(ranks: TokenRanks, batch: Batch) -> torch.Tensor:
    """The answers to a batch, as `Scorer` says, by two launches, whatever it asks. They are computed in float32.

    Its rows are bfloat16, float16 or float32, and begin at multiples of 16 bytes.
    """
    assert all(row.data_ptr() % _ALIGNMENT == 0 for row in batch.rows), "the sampler built the rows"
    # Triton launches on the current device, wherever the tensors are.
    with torch.cuda.device_of(batch.addresses):
        return _launch(ranks, batch)


def _launch(ranks: TokenRanks, batch: Batch) -> torch.Tensor:
    device, num_questions, num_edges = batch.addresses.device, len(batch.questions), len(batch.edges)
    parts = torch.empty((num_questions, _NUM_PARTS.value, ranks.num_chunks), device=device)
    results = torch.empty(4 * num_questions + num_edges, device=device)
    options: dict[str, Any] = {"logit_type": _LOGIT_TYPES[batch.rows[0].dtype], "num_warps": _NUM_WARPS}
    score_chunks[(ranks.num_chunks, num_questions)](
        batch.addresses, batch.packed_questions, batch.more_ids, ranks.ranks, parts,
        ranks.num_logits, ranks.num_leading, ranks.num_text_tokens, ranks.num_chunks,
        chunk_size=ranks.chunk_size, **options,
    )  # fmt: skip
    merge_chunks[(num_questions + triton.cdiv(num_edges, _NUM_READ_EDGES),)](
        batch.addresses, batch.edges, parts, results, num_questions, num_edges, ranks.num_chunks,
        padded_chunks=triton.next_power_of_2(ranks.num_chunks), num_read=_NUM_READ_EDGES, **options,
    )  # fmt: skip
    return results
