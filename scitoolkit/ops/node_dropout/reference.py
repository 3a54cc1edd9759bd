"""Reference node dropout in plain torch, with random numbers of splitmix64."""

from __future__ import annotations

import torch
from torch import Tensor

# Constants of splitmix64 (Steele, Lea, Flood 2014). They are used as signed 64-bit numbers: int64
# multiplication in torch wraps like unsigned multiplication in C.
GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB


def signed(number: int) -> int:
    """Return the signed 64-bit integer with the same bits.

    Example:
        >>> signed(2**64 - 1)
        -1
    """
    number &= 2**64 - 1
    return number - 2**64 if number >= 2**63 else number


def _shift(z: Tensor, bits: int) -> Tensor:
    return (z >> bits) & (2 ** (64 - bits) - 1)


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * signed(MIX_1)
    z = (z ^ _shift(z, 27)) * signed(MIX_2)
    return z ^ _shift(z, 31)


def random_bits(rows: Tensor, width: int, seed: int) -> Tensor:
    """Return 24 random bits for each element, shape (len(rows), width), int64."""
    by_row = _mix((rows + 1) * signed(GOLDEN) + signed(seed))
    by_place = by_row[:, None] + (torch.arange(width, device=rows.device) + 1) * signed(GOLDEN)
    return _shift(_mix(by_place), 40)


def node_dropout(x: Tensor, rows: Tensor, seed: int, threshold: int, scale: float) -> Tensor:
    """Return x * scale where the 24 random bits are at least `threshold`, else 0."""
    return x * scale * (random_bits(rows, x.shape[1], seed) >= threshold)
