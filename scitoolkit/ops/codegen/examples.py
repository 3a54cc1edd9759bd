"""Small inputs of operations with which the contract suite compares backends to the reference."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Example:
    """One call of an operation.

    Attributes:
        label: short description of the case.
        spec, options: arguments of `Operation.choose`.
        tensors: floating tensors; derivatives with respect to them are compared.
        call: `call(run, *tensors)` calls an implementation and returns a tensor or a tuple.
    """

    label: str
    spec: Hashable
    tensors: tuple[Tensor, ...]
    call: Callable[..., Any]
    options: tuple[Hashable, ...] = ()


class Numbers:
    """Random tensors of one dtype; the values are the same on every device.

    Example:
        >>> Numbers(torch.float32).normal(2, 3).shape
        torch.Size([2, 3])
    """

    def __init__(self, dtype: torch.dtype, device: str = "cpu", seed: int = 0) -> None:
        self.dtype = dtype
        self.device: str = device
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        """Return standard normal numbers, drawn in float64 and rounded to the dtype."""
        drawn = torch.randn(*shape, generator=self._generator, dtype=torch.float64)
        return drawn.to(self.device, self.dtype)

    def integers(self, limit: int, *shape: int) -> Tensor:
        """Return int64 integers from 0 to `limit` - 1."""
        return torch.randint(limit, shape, generator=self._generator).to(self.device)
