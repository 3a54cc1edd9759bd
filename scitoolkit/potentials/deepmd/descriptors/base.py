"""Base class of descriptors of atomic environments, usable alone or concatenated.

A descriptor has two steps, of which only the first reads edges: `moments` sums over the neighbours
of each atom and returns values with their vector-Jacobian product; `forward` maps the values of an
atom to the input of its fitting net.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import DataError
from scitoolkit.ops.fitting_network import FittingSpec
from scitoolkit.potentials.deepmd.file import Tree


@dataclass(frozen=True)
class NeighbourSums:
    """Sums over the neighbours of every atom.

    Attributes:
        values: (N, ...).
        vjp: vector-Jacobian product, from dE/d(values) to dE/d(edge vector), (E, 3).
    """

    values: Tensor
    vjp: Callable[[Tensor], Tensor]


class ChunkedMoments(Protocol):
    """Moments of chunks of atoms without an autograd graph, for inference.

    Attributes:
        chunk: number of atoms whose activations fit in the cache.
    """

    chunk: int

    def values(self, atoms: Tensor, kind: int) -> Tensor:
        """Return the moments (n, M, columns) of atoms (n,), all of the type `kind`."""
        ...

    def add_slopes(self, atoms: Tensor, cotangent: Tensor) -> None:
        """Store dE/d(edge vector) of the edges of the atoms of the last call of `values`."""
        ...

    def slopes(self) -> Tensor:
        """Return dE/d(edge vector), (E, 3), once `add_slopes` was called for all atoms."""
        ...


class Descriptor(nn.Module, ABC):
    """Base class of descriptors; see the module docstring.

    A subclass implements `values` in torch, or `moments` with an explicit vector-Jacobian product.

    Attributes:
        cutoff: Å; graphs must not have longer edges.
        width: number of inputs of the fitting net.
        num_vectors: number of vectors that `rotation` returns for an atom.
        far_is_absent: whether an edge beyond the cutoff is the same as an absent neighbour.
    """

    cutoff: float
    width: int
    num_vectors: int = 0
    far_is_absent: bool = False

    def values(self, graph: Batch, vectors: Tensor) -> Tensor:
        """Return the moments (N, ...) of edge vectors (E, 3), Å, differentiable by autograd."""
        raise NotImplementedError

    def moments(self, graph: Batch, vectors: Tensor) -> NeighbourSums:
        """Return the moments of edge vectors (E, 3), Å, with their vector-Jacobian product."""
        leaf = vectors.detach().requires_grad_()
        values = self.values(graph, leaf)
        return NeighbourSums(values, vjp_by_autograd(values, leaf, self.training))

    @abstractmethod
    def forward(self, values: Tensor, types: Tensor) -> Tensor:
        """Return fitting-net inputs (n, width) from moments (n, ...) of atoms of types (n,)."""

    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Set the constants that are measured on training graphs, by default none."""

    def rotation(self, values: Tensor) -> Tensor:
        """Return (N, num_vectors, 3) vectors that rotate with the atoms."""
        raise DataError(f"{type(self).__name__} has no directions", allowed="se_e2_a, se_atten")

    def chunked(self, vectors: Tensor) -> bool:
        """Return whether `chunks` can be used for edge vectors of this dtype and device."""
        return False

    def chunks(self, graph: Batch, vectors: Tensor) -> ChunkedMoments:
        """Return the moments for inference in chunks of atoms."""
        raise NotImplementedError

    def fused_fitting(self, widths: Sequence[int]) -> FittingSpec | None:
        """Return the spec of the fused kernel for fitting nets of hidden `widths`, or None."""
        return None

    def constant_inputs(self, kind: int) -> Tensor | None:
        """Return inputs appended to the descriptor that depend on the type alone, or None."""
        return None

    def compress(self, *, shortest: float, tolerance: float) -> None:
        """Tabulate the networks, for inference; see `Potential.compress`."""
        raise NotImplementedError

    def fill_from_tree(self, tree: Tree, where: str) -> None:
        """Set weights and statistics from a `.dp` file."""
        raise NotImplementedError

    def to_tree(self, type_map: Sequence[str], precision: str) -> Tree:
        """Return the tree of a `.dp` file.

        Raises:
            DataError: deepmd-kit does not have this descriptor.
        """
        raise DataError(f"a .dp file cannot store {type(self).__name__}")


def vjp_by_autograd(values: Tensor, leaf: Tensor, training: bool) -> Callable[[Tensor], Tensor]:
    """Return the vector-Jacobian product of `values` with respect to `leaf` by autograd.

    Args:
        values: computed from `leaf`.
        leaf: (E, 3), requires a gradient.
        training: whether the product must be differentiable.
    """

    def vjp(cotangent: Tensor) -> Tensor:
        if not values.requires_grad:
            return torch.zeros_like(leaf)
        (slopes,) = torch.autograd.grad(
            values, leaf, cotangent, create_graph=training, allow_unused=True
        )
        return torch.zeros_like(leaf) if slopes is None else slopes

    return vjp
