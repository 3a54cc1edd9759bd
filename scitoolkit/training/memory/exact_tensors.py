"""Lossless narrowing of integer and boolean tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_WIDTHS = (torch.int8, torch.int16, torch.int32)


@dataclass(frozen=True)
class Narrow:
    """Values minus `low` in a narrower dtype, or packed bits of booleans."""

    data: Tensor
    low: int
    shape: torch.Size
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """Bytes stored."""
        return self.data.nbytes


def narrow(values: Tensor) -> Narrow:
    """Return an integer or boolean tensor in the narrowest dtype that represents it exactly.

    The host waits for the range of integers on a GPU, which decides on the size in memory.

    Example:
        >>> x = torch.arange(70_000, 70_100)
        >>> kept = narrow(x)
        >>> kept.num_bytes, bool((widen(kept) == x).all())
        (100, True)
    """
    shape, dtype = values.shape, values.dtype
    if dtype == torch.bool:
        return Narrow(_packed_bits(values.flatten()), 0, shape, dtype)
    if dtype.is_complex or dtype.itemsize == 1 or not values.numel():
        return Narrow(values.clone(), 0, shape, dtype)
    low, high = (int(v) for v in torch.aminmax(values))
    middle = low + (high - low) // 2
    for width in _WIDTHS:
        limits = torch.iinfo(width)
        if width.itemsize < dtype.itemsize and high - low <= limits.max - limits.min:
            return Narrow((values - middle).to(width), middle, shape, dtype)
    return Narrow(values.clone(), 0, shape, dtype)


def widen(narrow: Narrow) -> Tensor:
    """Return the original tensor of a result of `narrow`."""
    if narrow.dtype == torch.bool:
        return _unpacked_bits(narrow.data, narrow.shape.numel()).reshape(narrow.shape)
    return narrow.data.to(narrow.dtype) + narrow.low if narrow.low else narrow.data.to(narrow.dtype)


def _packed_bits(flat: Tensor) -> Tensor:
    """Return 8 booleans a byte, uint8, first in the highest bit."""
    if on_host(flat):
        return torch.from_numpy(np.packbits(flat.numpy()))
    padded = torch.zeros(-(-flat.numel() // 8) * 8, dtype=torch.uint8, device=flat.device)
    padded[: flat.numel()] = flat
    out = padded[7::8].clone()
    for bit in range(1, 8):
        out |= padded[7 - bit :: 8] << bit
    return out


def _unpacked_bits(data: Tensor, count: int) -> Tensor:
    """Return the first `count` booleans of bytes."""
    if on_host(data):
        return torch.from_numpy(np.unpackbits(data.numpy(), count=count).astype(np.bool_))
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=data.device)
    return (data[:, None] >> shifts & 1).flatten()[:count].bool()


def on_host(tensor: Tensor) -> bool:
    """Return whether numpy, which packs bits several times faster, can read the tensor."""
    return tensor.device.type == "cpu"
