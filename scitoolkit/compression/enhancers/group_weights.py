"""Quantised weights of the group-wise enhancer networks, and their inference by a C kernel."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from scitoolkit.compression.kernel_arguments import extents, folded
from scitoolkit.compression.limits import refuse_falling
from scitoolkit.compression.native.library import call, check
from scitoolkit.core.errors import DataError

INPUTS = 32
MAX_GROUPS, MAX_HIDDEN = 16, 64


@dataclass(frozen=True)
class GroupWeights:
    """Quantised weights of all groups.

    Attributes:
        limits: (G - 1,) ascending float32, values that separate the groups.
        first: (G, H, 32) int8, weights of the hidden layer.
        bias: (G, H) int8, of the hidden layer.
        second: (G, H) int8, weights of the output layer.
        scales: (3,) float32, units of `first`, `bias` and `second`.
    """

    limits: np.ndarray
    first: np.ndarray
    bias: np.ndarray
    second: np.ndarray
    scales: np.ndarray

    def apply(self, decoded: np.ndarray, bound: float, clip: float) -> np.ndarray:
        """Return the enhanced field; no point changes by more than `clip`."""
        out, shape = np.empty_like(decoded), folded(decoded.shape)
        units = self.scales.astype(decoded.dtype)
        arrays = [
            np.ascontiguousarray(part.astype(decoded.dtype) * unit)
            for part, unit in zip((self.first, self.bias, self.second), units, strict=True)
        ]
        limits = self.limits.astype(decoded.dtype)
        groups, hidden = self.bias.shape
        field = (extents(shape), decoded, float(1 / bound))
        network = (limits, groups, hidden, *arrays, float(clip))
        check(call("network_apply", decoded.dtype, *field, *network, out))
        return out

    def to_bytes(self) -> bytes:
        """Serialise as little-endian extents, scales, limits and weights."""
        groups, hidden = self.bias.shape
        parts = (
            self.scales.astype("<f4"),
            self.limits.astype("<f4"),
            self.first,
            self.bias,
            self.second,
        )
        return struct.pack("<BB", groups, hidden) + b"".join(p.tobytes() for p in parts)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> GroupWeights:
        """Deserialise what `to_bytes` wrote.

        Raises:
            DataError: the length of the data does not match the extents, or limits do not rise.
        """
        data = bytes(data)
        groups, hidden = (data[0], data[1]) if len(data) > 1 else (0, 0)
        start = 2 + 12 + 4 * (groups - 1)
        sizes = (groups * hidden * INPUTS, groups * hidden, groups * hidden)
        fits = 1 <= groups <= MAX_GROUPS and 1 <= hidden <= MAX_HIDDEN
        if not fits or len(data) != start + sum(sizes):
            raise DataError("damaged stream: the length of the networks does not match")
        scales = np.frombuffer(data, "<f4", 3, 2)
        limits = np.frombuffer(data, "<f4", groups - 1, 14)
        refuse_falling(limits, "network")
        first, bias, second = np.split(
            np.frombuffer(data, np.int8, -1, start), np.cumsum(sizes)[:2]
        )
        return cls(
            limits,
            first.reshape(groups, hidden, INPUTS),
            bias.reshape(groups, hidden),
            second.reshape(groups, hidden),
            scales,
        )
