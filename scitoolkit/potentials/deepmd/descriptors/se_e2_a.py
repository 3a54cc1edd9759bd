"""Descriptor se_e2_a of distances and directions (DeepPot-SE).

On the CPU its embedding runs in fused kernels. Inference processes the atoms by type in chunks
whose activations fit in the cache; with a tabulated embedding no activations are stored.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import BackendError
from scitoolkit.ops.environment_matrix import operators
from scitoolkit.ops.environment_matrix.environment import Environment
from scitoolkit.ops.environment_matrix.gpu_environment import table_of
from scitoolkit.ops.environment_matrix.public import available, environment_kind
from scitoolkit.ops.environment_matrix.table import EmbeddingTable
from scitoolkit.ops.fitting_network import FittingSpec
from scitoolkit.potentials.deepmd.descriptors.base import NeighbourSums
from scitoolkit.potentials.deepmd.descriptors.environment import PairDescriptor, without_excluded
from scitoolkit.potentials.deepmd.descriptors.se_e2_a_config import (
    SeE2ADescriptorConfig,
)
from scitoolkit.potentials.deepmd.descriptors.trees import (
    fill_pair,
    pair_tree,
)
from scitoolkit.potentials.deepmd.file import Tree

CHUNK = 96  # atoms whose activations are stored at a time in inference
TABLE_CHUNK = 576  # likewise with a table, which stores no activations


@dataclass(frozen=True)
class Constants:
    """Constants of the kernels, for one set of parameters.

    Attributes:
        weights: flat weights of the embedding.
        absent: see `PairDescriptor.absent`.
        empty: see `PairDescriptor.empty`.
        table: of the embedding, or None.
    """

    weights: Tensor
    absent: Tensor
    empty: Tensor
    table: EmbeddingTable | None


class SeE2ADescriptor(PairDescriptor):
    """Descriptor D[m, a] = sum_c T[m, c] T[a, c] of the moments T, a < axis_neurons.

    Source: Zhang et al., NeurIPS 2018 (DeepPot-SE), eqs. 8-11.
    """

    config: SeE2ADescriptorConfig

    def __init__(
        self,
        config: SeE2ADescriptorConfig,
        num_types: int,
        generator: torch.Generator,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(config, num_types, generator, dtype, radial=False)
        self.width: int = config.embedding[-1] * config.axis_neurons
        self._constants: tuple[Any, Constants] | None = None
        self._compression: dict[str, float] | None = None

    def forward(self, values: Tensor, types: Tensor) -> Tensor:
        """Return D, flattened to (n, width)."""
        axis = values[:, : self.config.axis_neurons]
        return torch.bmm(values, axis.transpose(1, 2)).flatten(1)

    def rotation(self, values: Tensor) -> Tensor:
        """Return the direction columns of the moments, (N, M, 3)."""
        return values[:, :, 1:]

    def chunked(self, vectors: Tensor) -> bool:
        """Return whether the fused kernels support these edge vectors."""
        # Chunks fit a processor's cache; other devices evaluate all atoms at once.
        return vectors.device.type == "cpu" and self._fused(vectors)

    def _fused(self, vectors: Tensor) -> bool:
        return self.use_kernels and not self.embedding.step and available(self.spec, vectors)

    def fused_fitting(self, widths: Sequence[int]) -> FittingSpec | None:
        """Return the spec of the kernel that computes D and applies the fitting net."""
        if not self.use_kernels:
            return None
        return FittingSpec(self.config.embedding[-1], self.config.axis_neurons, tuple(widths))

    def chunks(self, graph: Batch, vectors: Tensor) -> SeE2AChunks:
        """Return the moments for inference in chunks of atoms."""
        return SeE2AChunks(self, graph, vectors)

    def moments_of_all(self, graph: Batch, vectors: Tensor) -> NeighbourSums:
        """Return the moments of a graph without excluded pairs, by the kernels if available."""
        if not self._fused(vectors):
            return super().moments_of_all(graph, vectors)
        table = None if self.training else self.constants().table
        if table is not None:
            return self._tabulated(table, graph, vectors)
        if vectors.device.type != "cpu":
            return self._in_any_order(graph, vectors)
        types, spec = graph["types"], self.spec
        order = types.argsort(stable=True)
        environment = Environment(
            spec, order, graph["segments"], types, vectors, *self.statistics(), self.training
        )
        weights = self.flat_weights()
        moments = operators.moments(weights, environment)
        counts = torch.bincount(types, minlength=spec.num_types).tolist()
        numbers, absent = self.num_absent(graph)[order].split(counts), self.absent().unbind()
        # One matrix product per type avoids a copy of `absent` for every atom.
        parts = [
            part.flatten(1) + number @ of_absent.flatten(1)
            for part, number, of_absent in zip(moments.split(counts), numbers, absent, strict=True)
        ]
        values = torch.cat(parts).view_as(moments)[order.argsort()]
        return NeighbourSums(
            values,
            lambda cotangent: operators.edge_gradients(cotangent[order], weights, environment),
        )

    def _in_any_order(self, graph: Batch, vectors: Tensor) -> NeighbourSums:
        """Return the moments without sorting atoms: no size depends on the numbers of types."""
        types = graph["types"]
        atoms = torch.arange(len(types), device=types.device)
        kind = environment_kind(self.spec, vectors)
        mean, deviation = self.statistics()
        graph_tensors = (atoms, graph["segments"], types, vectors.contiguous())
        environment = kind(self.spec, *graph_tensors, mean, deviation, self.training)
        weights = self.flat_weights()
        values = operators.moments(weights, environment) + self._absent_of(graph)
        return NeighbourSums(
            values, lambda cotangent: operators.edge_gradients(cotangent, weights, environment)
        )

    def _absent_of(self, graph: Batch) -> Tensor:
        """Return the part of the absent neighbours in the moments, (N, M, 4)."""
        absent = self.absent() if self.training else self.constants().absent
        # One matrix product instead of a copy of `absent` for every atom.
        kinds = torch.arange(self.spec.num_types, device=absent.device)
        numbers = (graph["types"][:, None] == kinds)[:, :, None] * self.num_absent(graph)[
            :, None, :
        ]
        return (numbers.flatten(1) @ absent.flatten(0, 1).flatten(1)).unflatten(1, absent.shape[2:])

    def _tabulated(self, table: EmbeddingTable, graph: Batch, vectors: Tensor) -> NeighbourSums:
        types, segments = graph["types"], graph["segments"]
        atoms = torch.arange(len(types), device=types.device)
        values = table.moments(atoms, segments, types, vectors)
        absent = self.constants().absent[types]
        values = values + torch.einsum("nt,ntmc->nmc", self.num_absent(graph), absent)

        def vjp(cotangent: Tensor) -> Tensor:
            out = torch.empty_like(vectors)
            cotangent = cotangent.detach().contiguous()
            table.edge_gradients(atoms, segments, types, vectors, cotangent, out)
            return out

        return NeighbourSums(values.detach(), vjp)

    def flat_weights(self) -> Tensor:
        """Return the embedding's parameters in the layout of the kernels."""
        stack = self.embedding
        return operators.flat_weights(list(zip(stack.weight, stack.bias, strict=True)))

    def num_absent(self, graph: Batch) -> Tensor:
        """Return `sel` minus the number of neighbours of each type, (N, types)."""
        counts = graph["segments"].diff().view(-1, self.spec.num_types)
        return (_numbers(self.spec.sel, counts.device) - counts).to(self.dtype)

    def compress(self, *, shortest: float, tolerance: float) -> None:
        """Tabulate the embedding as quintic splines; see `Potential.compress`."""
        if not self._fused(self.embedding.weight[0]):
            raise BackendError(
                "a table requires the compiled kernels", fix="scitoolkit doctor --kernels"
            )
        self._compression, self._constants = {"shortest": shortest, "tolerance": tolerance}, None
        self.constants()

    @property
    def is_tabulated(self) -> bool:
        """Whether `compress` was called."""
        return self._compression is not None

    def constants(self) -> Constants:
        """Return the constants of the kernels, recomputed when a parameter has changed."""
        tensors = [*self.parameters(), self.mean, self.deviation]
        key = tuple((t.device, t.data_ptr(), t._version) for t in tensors)
        if self._constants is None or self._constants[0] != key:
            self._constants = (key, self._new_constants())
        return self._constants[1]

    @torch.no_grad()
    def _new_constants(self) -> Constants:
        weights, table = self.flat_weights(), None
        if self._compression is not None:
            table = table_of(
                self.spec,
                self.embedding.networks(),
                weights,
                self.mean,
                self.deviation,
                **self._compression,
            )
        return Constants(weights, self.absent(), self.empty(), table)

    def fill_from_tree(self, tree: Tree, where: str) -> None:
        """Set weights and statistics from a `.dp` file."""
        fill_pair(self, tree, where)

    def to_tree(self, type_map: Sequence[str], precision: str) -> Tree:
        """Return the tree of a `.dp` file."""
        axis = {"axis_neuron": self.config.axis_neurons}
        return pair_tree(self, type_map, precision) | axis


@functools.lru_cache(maxsize=64)
def _on_device(numbers: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(numbers, device=device)


def _numbers(numbers: tuple[int, ...], device: torch.device) -> Tensor:
    """Return integers on a device, copied to it once: a copy waits for the device."""
    if device.type == "cpu":
        return torch.tensor(numbers)
    return _on_device(numbers, device)


class SeE2AChunks:
    """Moments of chunks of atoms; see `ChunkedMoments`."""

    def __init__(self, descriptor: SeE2ADescriptor, graph: Batch, vectors: Tensor) -> None:
        pairs = descriptor.config.exclude_types
        self._graph, self._kept, self._excluded = without_excluded(graph, pairs)
        self._all, self._descriptor, self._constants = vectors, descriptor, descriptor.constants()
        self._vectors = vectors if self._kept is None else vectors[self._kept]
        self._slopes = torch.empty_like(self._vectors)
        self._num_absent = descriptor.num_absent(self._graph)
        self._environment: Environment | None = None
        self.chunk = CHUNK if self._constants.table is None else TABLE_CHUNK

    def values(self, atoms: Tensor, kind: int) -> Tensor:
        """Return the moments (n, M, 4) of atoms (n,) of the type `kind`."""
        constants, graph = self._constants, self._graph
        if constants.table is None:
            self._environment = Environment(
                self._descriptor.spec,
                atoms,
                graph["segments"],
                graph["types"],
                self._vectors,
                *self._descriptor.statistics(),
                self._descriptor.training,
            )
            out = self._environment.moments(constants.weights)
        else:
            out = constants.table.moments(atoms, graph["segments"], graph["types"], self._vectors)
        flat = out.flatten(1)
        flat.addmm_(self._num_absent[atoms], constants.absent[kind].flatten(1))
        if self._kept is not None:
            numbers = self._excluded[atoms].to(flat.dtype)
            flat.addmm_(numbers, constants.empty[kind].flatten(1))
        return out

    def add_slopes(self, atoms: Tensor, cotangent: Tensor) -> None:
        """Write dE/d(edge vector) of the edges of these atoms."""
        table, graph = self._constants.table, self._graph
        if table is None:
            assert self._environment is not None
            self._environment.edge_gradients(cotangent, self._slopes)
            return
        table.edge_gradients(
            atoms, graph["segments"], graph["types"], self._vectors, cotangent, self._slopes
        )

    def slopes(self) -> Tensor:
        """Return dE/d(edge vector), (E, 3); zero for edges between excluded types."""
        if self._kept is None:
            return self._slopes
        out = torch.zeros_like(self._all)
        out[self._kept] = self._slopes
        return out
