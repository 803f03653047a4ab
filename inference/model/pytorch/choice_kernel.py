"""The questions of a choice, answered with one read of the logits in their own type.

Naive form: log-softmax of each row, a mask of the vocabulary's size for each question, then maximum and log-sum-exp;
and noise for every token where one is drawn. Each of these steps reads or writes a float32 copy of all logits. Instead:

1. `score_chunks`: a program reads a chunk of a row once, and reduces it to six numbers: greatest logit and sum of
   exponentials, of all tokens and of the allowed ones, the best allowed id, and the allowed sum at the temperature of
   the draws. Each sum is relative to the greatest logit of its own chunk and tokens, so rare tokens keep their mass.
2. `merge_chunks`: a program for each question merges its chunks. One for each draw draws a chunk in proportion to its
   mass, and reads this chunk again to draw a token of it. Others read the logits of edges.

The order of the tokens' bytes makes a set of allowed tokens an interval of ranks and a few ids. Ranks are read only
where they can matter: for a limit, or in a chunk that has ids without a token.

Philox's counter is (index, offset, stream, level), as in `inference.model.pytorch.scoring`.

A `Scorer` with kernels: two launches for a batch, whatever it asks.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from inference.model.pytorch.scoring import (
    NUM_ANSWERS,
    NUM_DRAW_ANSWERS,
    NUM_DRAW_FIELDS,
    NUM_EDGE_FIELDS,
    NUM_MORE_FIELDS,
    NUM_QUESTION_FIELDS,
    Batch,
    Level,
    TokenRanks,
)

NUM_PARTS = tl.constexpr(6)  # numbers for each question and chunk

_QUESTION_FIELDS = tl.constexpr(NUM_QUESTION_FIELDS)
_MORE_FIELDS = tl.constexpr(NUM_MORE_FIELDS)
_DRAW_FIELDS = tl.constexpr(NUM_DRAW_FIELDS)
_EDGE_FIELDS = tl.constexpr(NUM_EDGE_FIELDS)
_ANSWERS = tl.constexpr(NUM_ANSWERS)
_DRAW_ANSWERS = tl.constexpr(NUM_DRAW_ANSWERS)
_CHUNK_LEVEL = tl.constexpr(int(Level.CHUNK))
_TOKEN_LEVEL = tl.constexpr(int(Level.TOKEN))

# They change from batch to batch, or from model to model. A kernel must not be compiled for each of them.
_INTEGERS = (
    "more_at", "draws_at", "edges_at", "num_questions", "num_draws", "num_edges",
    "num_logits", "num_leading", "num_text_tokens", "num_chunks",
)  # fmt: skip


@triton.jit
def _read_chunk(
    batch, question, more_at, chunk, ranks, num_logits, num_leading, num_text_tokens,
    chunk_size: tl.constexpr, logit_type: tl.constexpr,
):  # fmt: skip
    """The ids of a chunk, all its logits, the allowed ones, and whether there is a limit. -inf for other tokens."""
    fields = batch + _QUESTION_FIELDS * question
    lo = tl.load(fields + 2).to(tl.int32)
    hi = tl.load(fields + 3).to(tl.int32)
    has_limit = (lo > 0) | (hi <= num_text_tokens)
    ids = chunk * chunk_size + tl.arange(0, chunk_size)
    row = tl.multiple_of(tl.load(fields).to(tl.pointer_type(logit_type)), 16)  # so that several logits are one load
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
        for more in range(tl.load(fields + 4), tl.load(fields + 5)):
            may_follow |= ids == tl.load(batch + more_at + _MORE_FIELDS * more + 1).to(tl.int32)
        allowed = tl.where(may_follow, logits, float("-inf"))
    return ids, logits, allowed, has_limit


@triton.jit
def _read_scale(batch, question):
    """1 / temperature; 0 if the question has no draws."""
    return tl.load(batch + _QUESTION_FIELDS * question + 6).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _finite(greatest):
    """The greatest of some numbers, to be subtracted from them; 0 if all of them are -inf."""
    return tl.where(greatest == float("-inf"), 0.0, greatest)


@triton.jit(do_not_specialize=_INTEGERS)
def score_chunks(
    batch, ranks, parts, more_at, num_logits, num_leading, num_text_tokens, num_chunks,
    chunk_size: tl.constexpr, logit_type: tl.constexpr,
):  # fmt: skip
    """Fills `parts`, [num_questions, NUM_PARTS, num_chunks] float32. Grid: (num_chunks, num_questions)."""
    chunk = tl.program_id(0)
    question = tl.program_id(1)
    _, logits, allowed, has_limit = _read_chunk(
        batch, question, more_at, chunk, ranks, num_logits, num_leading, num_text_tokens, chunk_size, logit_type
    )
    top, top_at = tl.max(logits, axis=0, return_indices=True)  # of equal ones, the first
    total = tl.sum(tl.exp(logits - _finite(top)), axis=0)
    best, best_at, mass = top, top_at, total
    if has_limit:
        best, best_at = tl.max(allowed, axis=0, return_indices=True)
        mass = tl.sum(tl.exp(allowed - _finite(best)), axis=0)
    drawn_mass = mass
    scale = _read_scale(batch, question)
    if scale > 0:
        drawn_mass = tl.sum(tl.exp((allowed - _finite(best)) * scale), axis=0)
    part = parts + question * NUM_PARTS * num_chunks + chunk
    tl.store(part, top)
    tl.store(part + num_chunks, total)
    tl.store(part + 2 * num_chunks, best)
    tl.store(part + 3 * num_chunks, mass)
    tl.store(part + 4 * num_chunks, (chunk * chunk_size + best_at).to(tl.float32))
    tl.store(part + 5 * num_chunks, drawn_mass)


@triton.jit
def _merge_sums(tops, sums):
    """The log-sum-exp of all chunks, from the greatest number and the sum of each."""
    top = tl.max(tops, axis=0)
    return top + tl.log(tl.sum(sums * tl.exp(tops - _finite(top)), axis=0))


@triton.jit
def _merge_question(parts, results, question, num_chunks, padded_chunks: tl.constexpr):
    chunks = tl.arange(0, padded_chunks)
    is_chunk = chunks < num_chunks
    part = parts + question * NUM_PARTS * num_chunks + chunks
    tops = tl.load(part, mask=is_chunk, other=float("-inf"))
    totals = tl.load(part + num_chunks, mask=is_chunk, other=0.0)
    bests = tl.load(part + 2 * num_chunks, mask=is_chunk, other=float("-inf"))
    masses = tl.load(part + 3 * num_chunks, mask=is_chunk, other=0.0)
    ids = tl.load(part + 4 * num_chunks, mask=is_chunk, other=0.0)
    best = tl.max(bests, axis=0)
    best_id = tl.min(tl.where(bests == best, ids, float("inf")), axis=0)
    answer = results + _ANSWERS * question
    tl.store(answer, _merge_sums(tops, totals))
    tl.store(answer + 1, _merge_sums(bests, masses))
    tl.store(answer + 2, best)
    tl.store(answer + 3, tl.where(best == float("-inf"), -1.0, best_id))


@triton.jit
def _build_gumbels(seed, indices, offset, stream, level):
    """Standard Gumbel noise. For small uniform numbers, which win, a series keeps the digits that 1 - u would lose."""
    words, _, _, _ = tl.philox(seed, indices.to(tl.uint32), offset, stream, level)
    uniforms = words.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10
    series = uniforms * (1.0 + uniforms * (0.5 + uniforms * 0.3333333333333333))
    return -tl.log(tl.where(uniforms < 0.00390625, series, -tl.log(1.0 - uniforms)))


@triton.jit
def _draw_token(
    batch, ranks, parts, results, draw, more_at, draws_at, num_questions,
    num_logits, num_leading, num_text_tokens, num_chunks,
    padded_chunks: tl.constexpr, chunk_size: tl.constexpr, logit_type: tl.constexpr,
):  # fmt: skip
    draw_at = batch + draws_at + _DRAW_FIELDS * draw
    question = tl.load(draw_at).to(tl.int32)
    seed = tl.load(draw_at + 1)
    offset = tl.load(draw_at + 2).to(tl.uint32)
    stream = tl.load(draw_at + 3).to(tl.uint32)
    scale = _read_scale(batch, question)

    chunks = tl.arange(0, padded_chunks)
    part = parts + question * NUM_PARTS * num_chunks + chunks
    bests = tl.load(part + 2 * num_chunks, mask=chunks < num_chunks, other=float("-inf"))
    masses = tl.load(part + 5 * num_chunks, mask=chunks < num_chunks, other=0.0)
    best = _finite(tl.max(bests, axis=0))
    noise = _build_gumbels(seed, chunks, offset, stream, tl.full([], _CHUNK_LEVEL, tl.uint32))
    weights = tl.where(masses > 0, (bests - best) * scale + tl.log(masses), float("-inf"))
    score, chunk = tl.max(weights + noise, axis=0, return_indices=True)

    ids, _, allowed, _ = _read_chunk(
        batch, question, more_at, chunk, ranks, num_logits, num_leading, num_text_tokens, chunk_size, logit_type
    )
    noise = _build_gumbels(seed, ids, offset, stream, tl.full([], _TOKEN_LEVEL, tl.uint32))
    _, drawn_at = tl.max((allowed - best) * scale + noise, axis=0, return_indices=True)
    answer = results + _ANSWERS * num_questions + _DRAW_ANSWERS * draw
    tl.store(answer, score)
    tl.store(answer + 1, tl.where(score == float("-inf"), -1, chunk * chunk_size + drawn_at).to(tl.float32))


@triton.jit
def _read_edges(batch, results, first, edges_at, num_edges, logit_type: tl.constexpr, num_read: tl.constexpr):
    edges = first + tl.arange(0, num_read)
    is_edge = edges < num_edges
    fields = batch + edges_at + _EDGE_FIELDS * edges
    addresses = tl.load(fields, mask=is_edge, other=0)
    token_ids = tl.load(fields + 2, mask=is_edge, other=0)
    logits = tl.load(addresses.to(tl.pointer_type(logit_type)) + token_ids, mask=is_edge, other=0.0)
    tl.store(results + edges, logits.to(tl.float32), mask=is_edge)


@triton.jit(do_not_specialize=_INTEGERS)
def merge_chunks(
    batch, ranks, parts, results, more_at, draws_at, edges_at, num_questions, num_draws, num_edges,
    num_logits, num_leading, num_text_tokens, num_chunks,
    padded_chunks: tl.constexpr, chunk_size: tl.constexpr, logit_type: tl.constexpr, num_read: tl.constexpr,
):  # fmt: skip
    """Fills `results`, [num_answers] float32, from `parts`. Grid: questions, then draws, then each `num_read` edges."""
    program = tl.program_id(0)
    if program < num_questions:
        _merge_question(parts, results, program, num_chunks, padded_chunks)
    elif program < num_questions + num_draws:
        _draw_token(
            batch, ranks, parts, results, program - num_questions, more_at, draws_at, num_questions,
            num_logits, num_leading, num_text_tokens, num_chunks, padded_chunks, chunk_size, logit_type,
        )  # fmt: skip
    else:
        edge_results = results + _ANSWERS * num_questions + _DRAW_ANSWERS * num_draws
        first = (program - num_questions - num_draws) * num_read
        _read_edges(batch, edge_results, first, edges_at, num_edges, logit_type, num_read)


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
