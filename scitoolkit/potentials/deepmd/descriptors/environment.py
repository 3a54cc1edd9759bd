"""Base class of the descriptors of the environment matrix, and exclusion of type pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.environment_matrix import EnvironmentSpec, reference
from scitoolkit.ops.fitting_network.by_type import stacked_embedding
from scitoolkit.potentials.deepmd.descriptors.base import Descriptor, NeighbourSums, vjp_by_autograd
from scitoolkit.potentials.deepmd.descriptors.fields import (
    PairDescriptorConfig,
    TypePair,
)
from scitoolkit.potentials.deepmd.networks import StackedNetworks
from scitoolkit.potentials.deepmd.statistics import (
    environment_statistics,
)
from scitoolkit.potentials.graph import without_edges


class PairDescriptor(Descriptor):
    """Base class of se_e2_a and se_e2_r: moments T of the environment matrix (`EnvironmentSpec`).

    Args:
        config: with a number for each type in `sel`.
        num_types: number of types of the model.
        generator: of the initial weights.
        dtype: of the arithmetic.
        radial: distances only, without directions.

    Raises:
        ConfigError: `sel` or `exclude_types` do not fit `num_types`.
    """

    far_is_absent = True

    def __init__(
        self,
        config: PairDescriptorConfig,
        num_types: int,
        generator: torch.Generator,
        dtype: torch.dtype,
        *,
        radial: bool,
    ) -> None:
        super().__init__()
        assert not isinstance(config.sel, str)
        if len(config.sel) != num_types:
            raise ConfigError(
                f"sel has {len(config.sel)} numbers for {num_types} types",
                where="model.sel",
                fix="sel: auto",
            )
        check_pairs(config.exclude_types, num_types)
        self.config: PairDescriptorConfig = config
        self.dtype = dtype
        self.cutoff: float = config.cutoff
        self.use_kernels = True
        self.num_vectors: int = config.num_vectors
        self.spec: EnvironmentSpec = EnvironmentSpec(
            config.cutoff,
            config.cutoff_smooth,
            tuple(config.sel),
            tuple(config.embedding),
            config.type_one_side,
            radial,
        )
        self.embedding: StackedNetworks = StackedNetworks(
            self.spec.num_networks,
            1,
            config.embedding,
            resnet_dt=config.embedding_resnet_dt,
            linear_output=False,
            generator=generator,
            dtype=dtype,
        )
        shape = (num_types, self.spec.columns)
        self.mean: Tensor
        self.deviation: Tensor
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("deviation", torch.ones(shape, dtype=torch.float64))

    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Set mean and deviation of the environments; the mean may be fixed at zero."""
        pairs = self.config.exclude_types
        mean, deviation = environment_statistics(
            self.spec, [without_excluded(graph, pairs)[0] for graph in graphs]
        )
        if self.config.zero_mean or pairs:
            mean = torch.zeros_like(mean)
        with torch.no_grad():
            self.mean.copy_(mean)
            self.deviation.copy_(deviation)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Return mean and deviation of the environments, (types, columns) each, in `dtype`."""
        return self.mean.to(self.dtype), self.deviation.to(self.dtype)

    def moments(self, graph: Batch, vectors: Tensor) -> NeighbourSums:
        """Return the moments (N, M, columns); an excluded neighbour counts as an empty slot."""
        part, included, numbers = without_excluded(graph, self.config.exclude_types)
        if included is None:
            return self.moments_of_all(graph, vectors)
        near = self.moments_of_all(part, vectors[included])
        places = included.nonzero().squeeze(1)
        extra = torch.einsum("nt,ntmc->nmc", numbers.to(self.dtype), self.empty()[graph["types"]])
        return NeighbourSums(
            near.values + extra,
            lambda cotangent: torch.zeros_like(vectors).index_add(0, places, near.vjp(cotangent)),
        )

    def moments_of_all(self, graph: Batch, vectors: Tensor) -> NeighbourSums:
        """Return the moments of a graph without excluded pairs, by the torch reference."""
        leaf = vectors.detach().requires_grad_()
        values = reference.moments(
            self.spec,
            leaf,
            graph["segments"],
            graph["types"],
            *self.statistics(),
            self.embedding.networks(),
        )
        return NeighbourSums(values, vjp_by_autograd(values, leaf, self.training))

    def absent(self) -> Tensor:
        """Return the part of an absent neighbour in the moments, (types, types, M, columns)."""
        if self.mean.device.type != "cpu":
            return self._stacked_absent()
        rows = reference.absent_rows(self.spec, *self.statistics(), self.embedding.networks())
        return rows / sum(self.spec.sel)

    def _stacked_absent(self) -> Tensor:
        """Return the same with all networks in one product per layer: few launches on a GPU."""
        mean, deviation = self.statistics()
        zero, types, spec = -mean / deviation, len(mean), self.spec
        if spec.type_one_side:
            inputs = zero[None, :, :1].expand(types, -1, -1)
        else:
            inputs = zero[:, None, :1].expand(-1, types, -1).reshape(-1, 1, 1)
        basis = stacked_embedding(self.embedding.stacked(), inputs).flatten(0, 1)
        basis = basis.unflatten(0, (types, types))
        basis = basis.transpose(0, 1) if spec.type_one_side else basis
        factor = torch.full_like(zero, reference.RADIAL_FACTOR) if spec.radial else zero
        return basis[:, :, :, None] * factor[:, None, None, :] / sum(spec.sel)

    def empty(self) -> Tensor:
        """Return the difference of the moments between an excluded and an absent neighbour.

        The environment of an excluded neighbour is zero after normalisation, as in deepmd-kit.
        Shape (types, types, M, columns).
        """
        mean, deviation = self.statistics()
        networks = self.embedding.networks()
        absent = reference.absent_rows(self.spec, mean, deviation, networks)
        empty = reference.absent_rows(self.spec, torch.zeros_like(mean), deviation, networks)
        return (empty - absent) / sum(self.spec.sel)


def without_excluded(
    graph: Batch, pairs: Sequence[TypePair]
) -> tuple[Batch, Tensor | None, Tensor]:
    """Remove the edges between excluded pairs of types.

    Returns:
        The graph; a mask (E,) of the remaining edges, None if no edge is removed; and the number
        of excluded neighbours of each type, (N, types).
    """
    types, count = graph["types"], len(graph["segments"]) - 1
    num_types = count // max(1, len(types))
    numbers = torch.zeros(len(types), num_types, dtype=torch.int64, device=types.device)
    if not pairs:
        return graph, None, numbers
    banned = torch.zeros(num_types, num_types, dtype=torch.bool, device=types.device)
    for one, other in pairs:
        banned[one, other] = banned[other, one] = True
    centre, neighbour = graph["edge_index"]
    out = banned[types[centre], types[neighbour]]
    if not bool(out.any()):
        return graph, None, numbers
    pair = centre[out] * num_types + types[neighbour[out]]
    numbers = torch.bincount(pair, minlength=count).view_as(numbers)
    return without_edges(graph, ~out), ~out, numbers


def check_pairs(pairs: Sequence[TypePair], num_types: int) -> None:
    """Refuse pairs of types that the model does not have.

    Raises:
        ConfigError: an index is beyond the type map.
    """
    for pair in pairs:
        if not all(0 <= place < num_types for place in pair):
            raise ConfigError(
                f"exclude_types {list(pair)} for a model of {num_types} types",
                where="model.descriptors",
                allowed=f"indices from 0 to {num_types - 1}",
            )
