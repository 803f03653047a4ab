"""Attention of all rows of a pass to keys and values in the slots of a pool, in the Triton language.

For one row and one head it is this: find the keys that the row may see, multiply them with the query, take the softmax
of the products, and add up the values with these weights. The kernel does it

1. for a *tile* of rows of one segment at once, with all query heads that share keys stacked below each other;
2. block by block over the segment's keys, with the maximum and the sum of the weights so far;
3. for a *share* of the keys only, where a tile has many keys and the pass few tiles, so that one sequence keeps the
   whole device busy. A second kernel adds the shares up.

All rows of a tile see the first keys, which are the kept tokens. For the others, the rows of a tree, a bit says whether
a row sees a key: whether the key's token is its ancestor.
"""

import torch
import triton
import triton.language as tl
from triton.errors import TritonError

from inference.errors import ModelError
from inference.model.pytorch.attention import PackedPass, Tile
from inference.model.pytorch.transformers_hook import ScoreRule

(
    _FIRST_ROW, _NUM_ROWS, _FIRST_KEY, _NUM_KEYS, _LEAST_POSITION, _NUM_OPEN, _FIRST_WORD, _NUM_WORDS,
) = (tl.constexpr(int(column)) for column in Tile)  # fmt: skip
_NUM_COLUMNS = tl.constexpr(len(Tile))

_MIN_BLOCK = 16  # the least size of a matrix product
_BLOCK_BYTES = 16_384  # of the keys that are read at once
_MAX_SHARES = 32
_MIN_SHARE_KEYS = 128
_TILES_PER_PROCESSOR = 2


@triton.jit
def _attend_tiles(
    query,  # [num_heads, num_rows, key_dim]
    keys,  # [num_kv_heads, capacity, key_dim]
    values,  # [num_kv_heads, capacity, value_dim]
    out,  # [num_rows, num_heads, value_dim]; [num_shares, num_rows, num_heads, value_dim] float32 if there are shares
    log_sums,  # [num_shares, num_rows, num_heads] float32
    sinks,  # [num_heads]
    tiles,  # [num_tiles, len(Tile)] int64
    positions,  # [num_rows] int64
    key_slots,  # int64, of all segments
    key_positions,  # int64, of all segments
    bits,  # int64, of all segments
    scale,
    softcap,
    reach,
    query_head_stride,
    query_row_stride,
    key_head_stride,
    value_head_stride,
    num_rows,
    num_heads,
    num_shares,
    group: tl.constexpr,
    key_dim: tl.constexpr,
    value_dim: tl.constexpr,
    block_rows: tl.constexpr,
    block_keys: tl.constexpr,
    block_key_dim: tl.constexpr,
    block_value_dim: tl.constexpr,
    has_window: tl.constexpr,
    has_chunks: tl.constexpr,
    has_softcap: tl.constexpr,
    has_sinks: tl.constexpr,
    has_shares: tl.constexpr,
):
    tile = tiles + tl.program_id(0) * _NUM_COLUMNS
    kv_head = tl.program_id(1)
    share = tl.program_id(2)
    first_row = tl.load(tile + _FIRST_ROW)
    num_tile_rows = tl.load(tile + _NUM_ROWS)
    first_key = tl.load(tile + _FIRST_KEY)
    end = tl.load(tile + _NUM_KEYS)
    lowest = tl.load(tile + _LEAST_POSITION)
    num_open = tl.load(tile + _NUM_OPEN)
    first_word = tl.load(tile + _FIRST_WORD)
    num_words = tl.load(tile + _NUM_WORDS)

    stacked = tl.arange(0, block_rows)
    row = stacked // group
    head = kv_head * group + stacked % group
    is_row = row < num_tile_rows
    key_dims = tl.arange(0, block_key_dim)
    value_dims = tl.arange(0, block_value_dim)
    asked = tl.load(
        query + (head * query_head_stride + (first_row + row) * query_row_stride)[:, None] + key_dims[None, :],
        mask=is_row[:, None] & (key_dims < key_dim)[None, :],
        other=0.0,
    )
    position = tl.load(positions + first_row + row, mask=is_row, other=0)

    if has_window:  # the keys that all rows see are those of positions 0, 1, 2 and so on
        begin = tl.maximum(tl.minimum(lowest - reach + 1, num_open), 0) // block_keys * block_keys
    else:
        begin = 0 * end
    num_blocks = tl.cdiv(end - begin, block_keys)
    own_blocks = tl.cdiv(num_blocks, num_shares)
    first = begin + share * own_blocks * block_keys
    last = tl.minimum(first + own_blocks * block_keys, end)

    highest = tl.full([block_rows], float("-inf"), tl.float32)
    total = tl.zeros([block_rows], tl.float32)
    sums = tl.zeros([block_rows, block_value_dim], tl.float32)
    for start in range(first, last, block_keys):
        key = start + tl.arange(0, block_keys)
        is_key = key < last
        slot = tl.load(key_slots + first_key + key, mask=is_key, other=0)
        found = tl.load(
            keys + kv_head * key_head_stride + slot[None, :] * key_dim + key_dims[:, None],
            mask=is_key[None, :] & (key_dims < key_dim)[:, None],
            other=0.0,
        )
        scores = tl.dot(asked, found, input_precision="tf32x3") * scale
        if has_softcap:
            scores = softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)  # the hyperbolic tangent
        sees = is_row[:, None] & is_key[None, :]
        if start + block_keys > num_open:
            own = tl.maximum(key - num_open, 0)  # among the keys that not all rows see
            words = tl.load(
                bits + first_word + row[:, None] * num_words + (own // 64)[None, :],
                mask=sees & (key >= num_open)[None, :],
                other=-1,
            )
            sees = sees & (((words >> (own % 64)[None, :]) & 1) != 0)
        if has_window or has_chunks:
            key_position = tl.load(key_positions + first_key + key, mask=is_key, other=0)
            if has_window:
                sees = sees & (position[:, None] - key_position[None, :] < reach)
            else:
                sees = sees & (position[:, None] // reach == key_position[None, :] // reach)
        scores = tl.where(sees, scores, float("-inf"))
        now_highest = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(now_highest == float("-inf"), 0.0, now_highest)  # rows that have seen no key yet
        weights = tl.exp(scores - base[:, None])
        shrink = tl.exp(highest - base)
        total = total * shrink + tl.sum(weights, 1)
        given = tl.load(
            values + kv_head * value_head_stride + slot[:, None] * value_dim + value_dims[None, :],
            mask=is_key[:, None] & (value_dims < value_dim)[None, :],
            other=0.0,
        )
        sums = sums * shrink[:, None] + tl.dot(weights.to(given.dtype), given, input_precision="tf32x3")
        highest = now_highest

    if has_sinks and not has_shares:
        sink = tl.load(sinks + head, mask=is_row, other=0.0).to(tl.float32)
        with_sink = tl.maximum(highest, sink)
        shrink = tl.exp(highest - with_sink)
        total = total * shrink + tl.exp(sink - with_sink)
        sums = sums * shrink[:, None]
    divisor = tl.where(total == 0.0, 1.0, total)  # rows that see no key of this share
    sums = sums / divisor[:, None]
    place = (share * num_rows + first_row + row) * num_heads + head
    tl.store(
        out + place[:, None] * value_dim + value_dims[None, :],
        sums.to(out.dtype.element_ty),
        mask=is_row[:, None] & (value_dims < value_dim)[None, :],
    )
    if has_shares:
        tl.store(log_sums + place, tl.where(total == 0.0, float("-inf"), highest + tl.log(divisor)), mask=is_row)


@triton.jit
def _add_shares(
    parts,  # [num_shares, num_rows, num_heads, value_dim] float32
    log_sums,  # [num_shares, num_rows, num_heads] float32
    sinks,  # [num_heads]
    out,  # [num_rows, num_heads, value_dim]
    num_pairs,  # of rows and heads
    num_heads,
    num_shares,
    value_dim: tl.constexpr,
    block_value_dim: tl.constexpr,
    block_shares: tl.constexpr,
    has_sinks: tl.constexpr,
):
    pair = tl.program_id(0)
    share = tl.arange(0, block_shares)
    value_dims = tl.arange(0, block_value_dim)
    log_sum = tl.load(log_sums + share * num_pairs + pair, mask=share < num_shares, other=float("-inf"))
    highest = tl.max(log_sum, 0)
    if has_sinks:
        sink = tl.load(sinks + pair % num_heads).to(tl.float32)
        highest = tl.maximum(highest, sink)
    weights = tl.exp(log_sum - highest)
    total = tl.sum(weights, 0)
    if has_sinks:
        total += tl.exp(sink - highest)
    states = tl.load(
        parts + (share * num_pairs + pair)[:, None] * value_dim + value_dims[None, :],
        mask=(share < num_shares)[:, None] & (value_dims < value_dim)[None, :],
        other=0.0,
    )
    sums = tl.sum(states * weights[:, None], 0) / total
    tl.store(out + pair * value_dim + value_dims, sums.to(out.dtype.element_ty), mask=value_dims < value_dim)


def attend_together(
    num_processors: int,
    packed: PackedPass,
    keys: torch.Tensor,
    values: torch.Tensor,
    query: torch.Tensor,
    rule: ScoreRule,
) -> torch.Tensor:
    """Attention of all rows, as `AttentionKernel` says. Raises ModelError if the device cannot run the kernels.

    `num_processors`: how many tiles the device works on at the same time.
    """
    try:
        # Triton launches on the current device, wherever the tensors are.
        with torch.cuda.device_of(query):
            return _attend(num_processors, packed, keys, values, query, rule)
    except TritonError as error:
        name = str(query.dtype).removeprefix("torch.")
        raise ModelError(
            f"the attention kernel cannot be run on this device for heads of {query.shape[2]} numbers in {name} "
            f"({type(error).__name__})"
        ) from error


def _attend(
    num_processors: int,
    packed: PackedPass,
    keys: torch.Tensor,
    values: torch.Tensor,
    query: torch.Tensor,
    rule: ScoreRule,
) -> torch.Tensor:
    assert keys.stride()[1:] == (keys.shape[2], 1), "a plane of the pool"
    assert values.stride()[1:] == (values.shape[2], 1), "a plane of the pool"
    query = query if query.stride(2) == 1 else query.contiguous()
    num_heads, num_rows, key_dim = query.shape
    num_kv_heads, value_dim = keys.shape[0], values.shape[2]
    group = num_heads // num_kv_heads
    num_shares = _count_shares(num_processors, packed, num_kv_heads)
    out = query.new_empty(num_rows, num_heads, value_dim)
    parts, log_sums = out, out
    if num_shares > 1:
        parts = query.new_empty(num_shares, num_rows, num_heads, value_dim, dtype=torch.float32)
        log_sums = query.new_empty(num_shares, num_rows, num_heads, dtype=torch.float32)
    sinks = out if rule.sinks is None else rule.sinks
    reach = rule.reach
    block_rows, block_value_dim = _find_block(packed.rows_per_tile * group), _find_block(value_dim)
    row_bytes = query.itemsize * max(_find_block(key_dim), block_value_dim)
    _attend_tiles[(len(packed.tiles), num_kv_heads, num_shares)](
        query, keys, values, parts, log_sums, sinks,
        packed.tiles, packed.positions, packed.key_slots, packed.key_positions, packed.bits,
        rule.scale, rule.softcap or 1.0, reach.num_tokens or 1,
        query.stride(0), query.stride(1), keys.stride(0), values.stride(0), num_rows, num_heads, num_shares,
        group=group, key_dim=key_dim, value_dim=value_dim,
        block_rows=block_rows, block_keys=min(64, max(_MIN_BLOCK, _BLOCK_BYTES // row_bytes)),
        block_key_dim=_find_block(key_dim), block_value_dim=block_value_dim,
        has_window=reach.num_tokens is not None and reach.chunk is None, has_chunks=reach.chunk is not None,
        has_softcap=rule.softcap is not None, has_sinks=rule.sinks is not None, has_shares=num_shares > 1,
        num_warps=4 if block_rows * row_bytes <= 8192 else 8, num_stages=2,  # their registers hold a block
    )  # fmt: skip
    if num_shares > 1:
        _add_shares[(num_rows * num_heads,)](
            parts, log_sums, sinks, out, num_rows * num_heads, num_heads, num_shares,
            value_dim=value_dim, block_value_dim=block_value_dim,
            block_shares=triton.next_power_of_2(num_shares), has_sinks=rule.sinks is not None, num_warps=4,
        )  # fmt: skip
    return out


def _count_shares(num_processors: int, packed: PackedPass, num_kv_heads: int) -> int:
    """Into how many shares the keys of a tile are divided, so that all processors have work."""
    wanted = -(-_TILES_PER_PROCESSOR * num_processors // (len(packed.tiles) * num_kv_heads))
    return max(1, min(wanted, packed.max_keys // _MIN_SHARE_KEYS, _MAX_SHARES))


def _find_block(size: int) -> int:
    return int(max(_MIN_BLOCK, triton.next_power_of_2(size)))
