"""How a dim of a field goes on beyond its ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Padding = Literal["circular", "zeros", "edge"]


class SharedDim(ABC):
    """A dim of which each process holds a slab, in place of its `Padding`.

    Attributes:
        kind: how the whole dim goes on beyond its ends.
        rank: this process.
        size: number of processes, whose slabs follow one another by rank.
    """

    kind: Padding
    rank: int
    size: int

    @abstractmethod
    def extend(self, x: Tensor, dim: int, width: int, kind: Padding) -> Tensor:
        """Return a slab with `width` cells of its neighbours, or of what is beyond the walls."""

    @abstractmethod
    def sum(self, x: Tensor) -> Tensor:
        """Return the sum over the processes, the same bits on all of them."""


AnyPadding = Padding | SharedDim


def kind_of(padding: AnyPadding) -> Padding:
    """Return how a whole dim goes on beyond its ends.

    Example:
        >>> kind_of("circular")
        'circular'
    """
    return padding.kind if isinstance(padding, SharedDim) else padding
