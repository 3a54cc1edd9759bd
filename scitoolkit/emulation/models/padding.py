"""Padding of a dim of a field beyond its ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Padding = Literal["circular", "zeros", "edge", "pole"]


@dataclass(frozen=True)
class PoleDim:
    """A latitude from pole to pole, used instead of the padding `pole`.

    Beyond a pole are the cells of the same latitude, half a turn around it.

    Attributes:
        around: index of the longitude in (B, C, *space).
        cells: cells of the latitude at full resolution.
        points: whether the first, and the last, cell is the pole itself. On coarser levels of a
            network the poles are between cells.
    """

    around: int
    cells: int
    points: tuple[bool, bool] = (False, False)


class SharedDim(ABC):
    """A dim that is divided among processes in slabs, used instead of its `Padding`.

    Attributes:
        kind: padding of the whole dim.
        rank: this process.
        size: number of processes, whose slabs follow one another by rank.
    """

    kind: Padding
    rank: int
    size: int

    @abstractmethod
    def extend(self, x: Tensor, dim: int, width: int, kind: Padding) -> Tensor:
        """Return a slab padded by `width` cells of neighbouring slabs, or by `kind` at walls."""

    @abstractmethod
    def sum(self, x: Tensor) -> Tensor:
        """Return the sum over processes, bitwise equal on all of them."""

    @abstractmethod
    def swap(self, x: Tensor, joined: int, divided: int) -> Tensor:
        """Return a tensor whose slabs along `joined` are one, divided along another dim instead.

        Every process sends the other processes their parts, so that it receives
        ``(size - 1) / size`` of the numbers of `x`.
        """


AnyPadding = Padding | SharedDim | PoleDim


def kind_of(padding: AnyPadding) -> Padding:
    """Return the padding of a whole dim.

    Example:
        >>> kind_of("circular")
        'circular'
    """
    if isinstance(padding, PoleDim):
        return "pole"
    return padding.kind if isinstance(padding, SharedDim) else padding
