"""Base of descriptors of atomic environments, usable alone or concatenated in `deep_potential`.

A descriptor works in two steps, because only the first reads edges: `moments` sums over the
neighbours of each atom and returns values with their vector-Jacobian product; `forward` maps the
values of an atom to the input of its fitting net.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from scitoolkit.core.config import Config
from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import DataError
from scitoolkit.core.plugins import Kind
from scitoolkit.ops.fitting_network import FittingSpec
from scitoolkit.potentials.deepmd.file import Tree
from scitoolkit.potentials.deepmd.input_section import Section


class DescriptorConfig(Config, ABC):
    """Configuration of a descriptor; a member of the kind `descriptor` is a subclass.

    Attributes:
        cutoff: Å.
        tables: whether `Descriptor.compress` can tabulate its networks.
        holds_types: whether it depends on the centre's type, so that one fitting net can serve all.
        example: settings of a small descriptor, for tests and `scitoolkit new`.
        deepmd_types: `type` of the descriptor in deepmd-kit's files, all spellings.
    """

    tables: ClassVar[bool] = False
    holds_types: ClassVar[bool] = False
    example: ClassVar[Mapping[str, Any]] = {}
    deepmd_types: ClassVar[tuple[str, ...]] = ()

    name: str
    cutoff: PositiveFloat

    @property
    def num_vectors(self) -> int:
        """Number of vectors that `Descriptor.rotation` returns for an atom; 0 without any."""
        return 0

    def summary(self) -> dict[str, Any]:
        """Return the entries of `validate`'s report on the descriptor."""
        return {}

    def resolve_auto_sel(self, graphs: Sequence[Batch], type_map: Sequence[str]) -> Self:
        """Return the configuration with `sel` counted where it is `auto`; warn where it is small.

        Args:
            graphs: training configurations with the edges within `cutoff`.
            type_map: species.

        Raises:
            DataError: no graph to count in.
        """
        return self

    @abstractmethod
    def build(self, num_types: int, generator: torch.Generator, dtype: torch.dtype) -> Descriptor:
        """Return the descriptor with initial weights."""

    @classmethod
    def from_deepmd_input(cls, section: Section) -> dict[str, Any]:
        """Return our settings of a descriptor section of deepmd-kit's input.json."""
        raise NotImplementedError

    @classmethod
    def from_deepmd_tree(cls, tree: Tree, where: str) -> Self:
        """Return the configuration of a descriptor in a `.dp` file.

        Raises:
            DataError: a setting that is not built here.
        """
        raise NotImplementedError


descriptors: Kind[type[DescriptorConfig]] = Kind(
    "descriptor",
    "environment of an atom as the input of a Deep Potential's fitting net",
    contract="scitoolkit.testing:PotentialContract",
)
"""Configuration classes by `name:`."""


@dataclass(frozen=True)
class Moments:
    """Sums over the neighbours of every atom.

    Attributes:
        values: (N, ...).
        vjp: from dE/d(values) to dE/d(edge vector), (E, 3).
    """

    values: Tensor
    vjp: Callable[[Tensor], Tensor]


class ChunkedMoments(Protocol):
    """Moments of some atoms at a time without a graph of derivatives, for inference.

    Attributes:
        chunk: number of atoms whose activations fit into the cache.
    """

    chunk: int

    def values(self, atoms: Tensor, kind: int) -> Tensor:
        """Return (n, M, columns) of atoms (n,) that are all of one type."""
        ...

    def add_slopes(self, atoms: Tensor, cotangent: Tensor) -> None:
        """Keep dE/d(edge vector) of the edges of the atoms that `values` was last called with."""
        ...

    def slopes(self) -> Tensor:
        """Return dE/d(edge vector), (E, 3), after all atoms."""
        ...


class Descriptor(nn.Module, ABC):
    """Base of descriptors; see the module.

    A subclass writes `values` in torch, or `moments` with an explicit vector-Jacobian product.

    Attributes:
        cutoff: Å; graphs have the edges within it only.
        width: number of inputs of the fitting net.
        num_vectors: number of vectors that `rotation` returns for an atom.
    """

    cutoff: float
    width: int
    num_vectors: int = 0

    def values(self, graph: Batch, vectors: Tensor) -> Tensor:
        """Return the moments (N, ...) of edge vectors (E, 3), Å, differentiable by autograd."""
        raise NotImplementedError

    def moments(self, graph: Batch, vectors: Tensor) -> Moments:
        """Return the moments of edge vectors (E, 3), Å, with their vector-Jacobian product."""
        leaf = vectors.detach().requires_grad_()
        values = self.values(graph, leaf)
        return Moments(values, vjp_by_autograd(values, leaf, self.training))

    @abstractmethod
    def forward(self, values: Tensor, types: Tensor) -> Tensor:
        """Return (n, width) of the moments' values (n, ...) of atoms of these types (n,)."""

    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Set constants measured on training graphs; none by default."""

    def rotation(self, values: Tensor) -> Tensor:
        """Return (N, num_vectors, 3) vectors that rotate with the atoms."""
        raise DataError(f"{type(self).__name__} has no directions", allowed="se_e2_a, se_atten")

    def chunked(self, vectors: Tensor) -> bool:
        """Return whether `chunks` can be used for edge vectors of this dtype and device."""
        return False

    def chunks(self, graph: Batch, vectors: Tensor) -> ChunkedMoments:
        """Return the moments for inference by chunks of atoms."""
        raise NotImplementedError

    def fused_fitting(self, widths: Sequence[int]) -> FittingSpec | None:
        """Return the fused kernel's spec for fitting nets of hidden `widths`, None without one."""
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
            DataError: deepmd-kit has no such descriptor.
        """
        raise DataError(f"a .dp file has no place for {type(self).__name__}")


def vjp_by_autograd(values: Tensor, leaf: Tensor, training: bool) -> Callable[[Tensor], Tensor]:
    """Return the vector-Jacobian product of `values` with respect to `leaf` by autograd.

    Args:
        values: computed from `leaf`.
        leaf: (E, 3), requires a gradient.
        training: whether the product must be differentiable again.
    """

    def vjp(cotangent: Tensor) -> Tensor:
        if not values.requires_grad:
            return torch.zeros_like(leaf)
        (slopes,) = torch.autograd.grad(
            values, leaf, cotangent, create_graph=training, allow_unused=True
        )
        return torch.zeros_like(leaf) if slopes is None else slopes

    return vjp


def deepmd_names() -> dict[str, str]:
    """Return our name of a descriptor by its `type` in deepmd-kit's files, all spellings."""
    return {kind: name for name in descriptors for kind in descriptors.get(name).deepmd_types}
