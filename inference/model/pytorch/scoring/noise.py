"""The numbers that draws use: counter-based, so that they need no state on the device and are the same on every device.

Philox 4x32 with ten rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), computed with 64-bit
integers. The kernels compute the same numbers.
"""

from enum import IntEnum

import torch

_NUM_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF  # 32 bits


class Level(IntEnum):
    """What a number decides. Each level has numbers of its own."""

    CHUNK = 0  # in which chunk of a row the drawn token is
    TOKEN = 1  # which token of the chunk it is
    HEAD = 2  # which of the sorted tokens it is, where only the likeliest may be drawn


def build_uniforms(
    seeds: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, streams: torch.Tensor, level: Level
) -> torch.Tensor:
    """Numbers in (0, 1], float32. The arguments are int64, and broadcast."""
    words = _build_words(seeds, indices, offsets, streams, level)
    return words.float() * 2.0**-32 + 2.0**-33


def build_gumbels(
    seeds: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, streams: torch.Tensor, level: Level
) -> torch.Tensor:
    """Standard Gumbel noise, float32: of log-weights plus this noise, the greatest is drawn in proportion to weight."""
    # log1p keeps the digits of small numbers, which are those that win.
    return -torch.log(-torch.log1p(-build_uniforms(seeds, indices, offsets, streams, level)))


def _build_words(
    seeds: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, streams: torch.Tensor, level: Level
) -> torch.Tensor:
    """The first 32-bit word of each block, as int64."""
    c0, c1, c2, c3 = indices & _LOW, offsets & _LOW, streams & _LOW, torch.full_like(indices, level)
    k0, k1 = seeds & _LOW, (seeds >> 32) & _LOW
    for _ in range(_NUM_ROUNDS):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high2, low2 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return c0


def _multiply(word: torch.Tensor, factor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The high and the low 32 bits of a product. It may overflow into the sign, which the mask removes."""
    product = word * factor
    return (product >> 32) & _LOW, product & _LOW
