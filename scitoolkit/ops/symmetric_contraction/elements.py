"""Nodes in the order of their elements, as the kernels of the contraction read them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scitoolkit.core.errors import DataError


@dataclass(frozen=True)
class Elements:
    """Nodes sorted by element. Build it once per system and reuse it in every layer.

    On a GPU the host waits for the check of the elements, which `build` does once.

    Attributes:
        species: element of each node, shape (N,), int64.
        ptr: start of each element's nodes in `order`, shape (E + 1,), int64.
        order: nodes sorted by element, shape (N,), int64; the sort is stable.

    Example:
        >>> nodes = Elements.build(torch.tensor([1, 0, 1]), num_elements=3)
        >>> nodes.ptr.tolist(), nodes.order.tolist()
        ([0, 1, 3, 3], [1, 0, 2])
    """

    species: Tensor
    ptr: Tensor
    order: Tensor

    @classmethod
    def build(cls, species: Tensor, num_elements: int) -> Elements:
        """Check and sort the elements of nodes.

        Args:
            species: element of each node, shape (N,), int32 or int64.
            num_elements: number of elements; elements without nodes are allowed.

        Raises:
            DataError: another shape or dtype, or an element out of range.
        """
        if not isinstance(species, Tensor) or species.dtype not in (torch.int64, torch.int32):
            actual = species.dtype if isinstance(species, Tensor) else type(species)
            raise DataError(f"expected species as an integer tensor, got {actual}")
        if species.ndim != 1:
            raise DataError(f"expected species of shape (N,), got {tuple(species.shape)}")
        if species.numel() and not torch.compiler.is_compiling():
            low, high = torch.stack(species.aminmax()).tolist()
            if low < 0 or high >= num_elements:
                raise DataError(
                    f"species contains element {low if low < 0 else high}",
                    allowed=f"0 to {num_elements - 1}, as weight has {num_elements} elements",
                )
        species = species.long()
        order = torch.argsort(species, stable=True)
        elements = torch.arange(num_elements + 1, device=species.device)
        return cls(species, torch.searchsorted(species[order], elements), order)

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        return self.ptr.shape[0] - 1
