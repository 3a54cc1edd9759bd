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

    Example:
        >>> x = torch.arange(70_000, 70_100)
        >>> kept = narrow(x)
        >>> kept.num_bytes, bool((widen(kept) == x).all())
        (100, True)
    """
    shape, dtype = values.shape, values.dtype
    if dtype == torch.bool:
        bits = torch.from_numpy(np.packbits(values.numpy()))
        return Narrow(bits, 0, shape, dtype)
    if dtype.is_complex or dtype.itemsize == 1 or not values.numel():
        return Narrow(values.clone(), 0, shape, dtype)
    low, high = (int(v) for v in torch.aminmax(values))
    middle = low + (high - low) // 2
    for width in _WIDTHS:
        limits = torch.iinfo(width)
        if width.itemsize < dtype.itemsize and high - low <= limits.max - limits.min:
            return Narrow((values - middle).to(width), middle, shape, dtype)
    return Narrow(values.clone(), 0, shape, dtype)


def widen(kept: Narrow) -> Tensor:
    """Return the original tensor of a result of `narrow`."""
    if kept.dtype == torch.bool:
        count = kept.shape.numel()
        bits = np.unpackbits(kept.data.numpy(), count=count)
        return torch.from_numpy(bits.astype(np.bool_)).reshape(kept.shape)
    return kept.data.to(kept.dtype) + kept.low if kept.low else kept.data.to(kept.dtype)
