"""Settings and arithmetic that the descriptors built on the environment matrix share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from scitoolkit.core.config import Config
from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.environment_matrix import EnvironmentSpec, reference
from scitoolkit.potentials.deepmd.descriptors.base import (
    Descriptor,
    DescriptorConfig,
    Moments,
    vjp_by_autograd,
)
from scitoolkit.potentials.deepmd.networks import ResnetSteps, StackedNetworks
from scitoolkit.potentials.deepmd.statistics import (
    environment_statistics,
    max_neighbours,
    suggest_sel,
    warn_of_overflow,
)
from scitoolkit.potentials.graph import without_edges

TypePair = tuple[int, int]


class EnvironmentFields(Config):
    """Settings of an environment matrix and its embedding; names in brackets are deepmd-kit's.

    Attributes:
        cutoff: Å [rcut].
        cutoff_smooth: Å, where the switch begins [rcut_smth].
        embedding: widths [neuron].
        type_one_side: whether the embedding ignores the centre's type [type_one_side].
        embedding_resnet_dt: layers of the embedding with a step [resnet_dt]: deepmd-kit's
            TensorFlow backend has them in layers that keep their width (same_width), its others
            in all.
        exclude_types: pairs of types (places in the type map) that do not see each other.
    """

    renamed: ClassVar[Mapping[str, str]] = {
        "one_side": "type_one_side", "embedding_step": "embedding_resnet_dt",
    }  # fmt: skip

    cutoff: PositiveFloat = 6.0
    cutoff_smooth: float = Field(default=0.5, ge=0)
    embedding: list[PositiveInt] = Field(default=[25, 50, 100], min_length=1)
    type_one_side: bool = True
    embedding_resnet_dt: ResnetSteps = "none"
    exclude_types: list[TypePair] = Field(default_factory=list)

    @model_validator(mode="after")
    def _falls(self) -> Self:
        if self.cutoff_smooth >= self.cutoff:
            raise ValueError(f"cutoff_smooth {self.cutoff_smooth} must be below {self.cutoff}")
        return self


class PairFields(EnvironmentFields):
    """Settings of the two-body embedding.

    Attributes:
        sel: most neighbours of each type, in the order of the type map; `auto` counts them.
        zero_mean: leave the mean of the environments at zero [set_davg_zero]. Without it an
            excluded neighbour makes a jump where it crosses the cutoff, as in deepmd-kit, so that
            models with `exclude_types` that are trained here have a mean of zero.
    """

    sel: list[PositiveInt] | Literal["auto"] = "auto"
    zero_mean: bool = False


class AxisFields(Config):
    """Settings of D = T T'^T.

    Attributes:
        axis_neurons: number of basis functions in the second factor T' [axis_neuron].
    """

    axis_neurons: PositiveInt = 16


def check_axis(axis_neurons: int, embedding: Sequence[int]) -> None:
    """Refuse a second factor wider than the first.

    Raises:
        ValueError: it is.
    """
    if axis_neurons > embedding[-1]:
        raise ValueError(f"axis_neurons {axis_neurons} exceed the last embedding width")


class PairDescriptorConfig(PairFields, DescriptorConfig):
    """Base of the configurations of se_e2_a and se_e2_r."""

    def summary(self) -> dict[str, Any]:
        """Return `sel`."""
        return {"sel": self.sel}

    def resolve_auto_sel(self, graphs: Sequence[Batch], type_map: Sequence[str]) -> Self:
        """Return the configuration with `sel` counted by type where it is `auto`."""
        most = max_neighbours(graphs, len(type_map))
        if self.sel == "auto":
            return self.model_copy(update={"sel": suggest_sel(most)})
        if len(self.sel) == len(most):
            warn_of_overflow(most, self.sel, type_map)
        return self


class PairDescriptor(Descriptor):
    """Moments T of the environment matrix with a two-body embedding; see `EnvironmentSpec`.

    Args:
        config: `sel` has a number for each type.
        num_types: of the model.
        generator: of the initial weights.
        dtype: of the arithmetic.
        radial: distances alone, without directions.

    Raises:
        ConfigError: `sel` or `exclude_types` are of another type map.
    """

    def __init__(
        self, config: PairDescriptorConfig, num_types: int, generator: torch.Generator,
        dtype: torch.dtype, *, radial: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        assert not isinstance(config.sel, str)
        if len(config.sel) != num_types:
            raise ConfigError(
                f"sel has {len(config.sel)} numbers for {num_types} types",
                where="model.sel", fix="sel: auto",
            )  # fmt: skip
        check_pairs(config.exclude_types, num_types)
        self.config: PairDescriptorConfig = config
        self.dtype = dtype
        self.cutoff: float = config.cutoff
        self.use_kernels = True
        self.num_vectors: int = config.num_vectors
        self.spec: EnvironmentSpec = EnvironmentSpec(
            config.cutoff, config.cutoff_smooth, tuple(config.sel), tuple(config.embedding),
            config.type_one_side, radial,
        )  # fmt: skip
        self.embedding: StackedNetworks = StackedNetworks(
            self.spec.num_networks, 1, config.embedding, resnet_dt=config.embedding_resnet_dt,
            linear_output=False, generator=generator, dtype=dtype,
        )  # fmt: skip
        shape = (num_types, self.spec.columns)
        self.mean: Tensor
        self.deviation: Tensor
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("deviation", torch.ones(shape, dtype=torch.float64))

    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Measure the environments; the mean stays zero where the configuration says so."""
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
        """Return mean and deviation of the environments in the dtype of the arithmetic."""
        return self.mean.to(self.dtype), self.deviation.to(self.dtype)

    def moments(self, graph: Batch, vectors: Tensor) -> Moments:
        """Return the moments (N, M, columns); an excluded neighbour counts as an empty place."""
        part, kept, numbers = without_excluded(graph, self.config.exclude_types)
        if kept is None:
            return self.moments_of_all(graph, vectors)
        found = self.moments_of_all(part, vectors[kept])
        places = kept.nonzero().squeeze(1)
        extra = torch.einsum("nt,ntmc->nmc", numbers.to(self.dtype), self.empty()[graph["types"]])
        return Moments(
            found.values + extra,
            lambda cotangent: torch.zeros_like(vectors).index_add(0, places, found.vjp(cotangent)),
        )

    def moments_of_all(self, graph: Batch, vectors: Tensor) -> Moments:
        """Return the moments of a graph without excluded pairs, by the torch reference."""
        leaf = vectors.detach().requires_grad_()
        values = reference.moments(
            self.spec, leaf, graph["segments"], graph["types"], *self.statistics(),
            self.embedding.networks(),
        )  # fmt: skip
        return Moments(values, vjp_by_autograd(values, leaf, self.training))

    def absent(self) -> Tensor:
        """Return the part of one absent neighbour in the moments, (types, types, M, columns)."""
        rows = reference.absent_rows(self.spec, *self.statistics(), self.embedding.networks())
        return rows / sum(self.spec.sel)

    def empty(self) -> Tensor:
        """Return the change by one excluded neighbour: its environment is 0, not an absent one's.

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
    """Return the graph without edges between excluded types, which edges are kept, and numbers.

    The second is None where all edges are kept, the third is the number of excluded neighbours of
    each type, (N, types).
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
        ConfigError: a place beyond the type map.
    """
    for pair in pairs:
        if not all(0 <= place < num_types for place in pair):
            raise ConfigError(
                f"exclude_types {list(pair)} of a model of {num_types} types",
                where="model.descriptors", allowed=f"places from 0 to {num_types - 1}",
            )  # fmt: skip
