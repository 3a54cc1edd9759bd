"""Quantised matrices: integer codes with a scale per group of inputs (reference implementation).

8 bits: codes -127..127, zero is exact. 4 and 2 bits: codes 0..2^b - 1 represent the half-integer
multiples -(2^b - 1)/2 .. (2^b - 1)/2 of the scale, which at so few levels has a smaller error than
a grid with zero, and needs no offset. The scale is chosen from several shrunken ranges by the least
weighted squared error.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

BITS = (8, 4, 2)
GROUP = {8: 128, 4: 32, 2: 32}
"""Inputs that share a scale."""
_SHRINK = {8: (1.0,), 4: tuple(np.linspace(0.7, 1, 13)), 2: tuple(np.linspace(0.4, 1, 25))}


@dataclass(frozen=True, eq=False)
class Uniform:
    """Quantised matrix (outputs, inputs).

    Attributes:
        bits: bits of a code.
        group: number of inputs that share a scale; the last group may be shorter.
        codes: (outputs, inputs) integers.
        scales: (outputs, groups) float32.
        input_bits: bits to which a product rounds its other factor.
    """

    bits: int
    group: int
    codes: np.ndarray
    scales: np.ndarray
    input_bits: int = 8

    def matrix(self) -> np.ndarray:
        """Return the dequantised float32 matrix."""
        wide = np.repeat(self.scales, self.group, 1)[:, : self.codes.shape[1]]
        return (self.codes - np.float32(zero(self.bits))) * wide

    @property
    def bytes(self) -> int:
        """Size of codes and scales in bytes."""
        return -(-self.codes.size * self.bits // 8) + 4 * self.scales.size


def zero(bits: int) -> float:
    """Return the code of the value 0."""
    return 0.0 if bits == 8 else (2**bits - 1) / 2


def matrix_key(matrix: torch.Tensor) -> bytes:
    """Return a digest of a float32 matrix, by which its codes are found in a traced model."""
    values = np.ascontiguousarray(matrix.detach().numpy())
    return hashlib.sha256(repr(values.shape).encode() + values.tobytes()).digest()


def nearest(values: np.ndarray, scales: np.ndarray, bits: int) -> np.ndarray:
    """Return the codes nearest to values / scales."""
    ratio = values / np.where(scales > 0, scales, 1)
    if bits == 8:
        return np.clip(np.rint(ratio), -127, 127).astype(np.int16)
    return np.clip(np.floor(ratio) + 2 ** (bits - 1), 0, 2**bits - 1).astype(np.int16)


def best_scales(part: np.ndarray, bits: int, weight: np.ndarray) -> np.ndarray:
    """Return the scale of each row of a group (outputs, inputs) with the least weighted error.

    Args:
        part: values of the group.
        bits: bits of a code.
        weight: (inputs,) weights of the squared errors.
    """
    most = 127 if bits == 8 else (2**bits - 1) / 2
    full = np.abs(part).max(1).astype(np.float32) / np.float32(most)
    best, least = full, np.full(len(part), np.inf)
    for share in _SHRINK[bits]:
        scales = (full * np.float32(share)).astype(np.float32)
        codes = nearest(part, scales[:, None], bits)
        error = ((part - (codes - zero(bits)) * scales[:, None]) ** 2 * weight).sum(1)
        best = np.where(error < least, scales, best)
        least = np.minimum(error, least)
    return best


def rounded(
    matrix: np.ndarray, bits: int, group: int = 0, weight: np.ndarray | None = None
) -> Uniform:
    """Quantise a matrix by rounding to the nearest code.

    Args:
        matrix: (outputs, inputs) float32.
        bits: 8, 4 or 2.
        group: number of inputs that share a scale, a multiple of 16; `GROUP[bits]` unless given.
        weight: (inputs,) weights of the squared errors, such as mean squares of the inputs.

    Example:
        >>> w = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
        >>> bool(np.abs(rounded(w, 8).matrix() - w).max() < 0.5 / 127 + 1e-6)
        True
    """
    inputs = matrix.shape[1]
    group = group_of(inputs, bits, group)
    weight = np.ones(inputs) if weight is None else weight
    codes, scales = [], []
    for first in range(0, inputs, group):
        part = matrix[:, first : first + group]
        scale = best_scales(part, bits, weight[first : first + group])
        codes.append(nearest(part, scale[:, None], bits))
        scales.append(scale)
    return Uniform(bits, group, np.concatenate(codes, 1), np.stack(scales, 1))


def group_of(inputs: int, bits: int, group: int = 0) -> int:
    """Return the size of a group, at most the number of inputs rounded up to steps of kernels."""
    return min(group or GROUP[bits], -(-inputs // 16) * 16)
