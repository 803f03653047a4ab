"""What tests ask of a pool of keys and values."""

from inference.model.pytorch.pool import TokenPool


def count_free(pool: TokenPool) -> int:
    """The number of slots that nobody holds."""
    while pool._released:
        pool.release(pool._released.popleft())
    return pool.capacity - int((pool.num_holders > 0).sum())
