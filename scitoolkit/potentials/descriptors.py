"""Descriptors of an atom's surroundings, to be had alone or side by side in a `deep_potential`.

A descriptor works in two steps, because only the first sees edges: moments of the neighbours,
with the way back from a derivative with respect to them to one with respect to edge vectors, and
from the moments what the fitting net reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from scitoolkit.core.config import Config
from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.environment_matrix import EnvironmentSpec, operators, reference
from scitoolkit.potentials.graph import edge_vectors, without_edges
from scitoolkit.potentials.networks import StackedNetworks
from scitoolkit.potentials.statistics import environment_statistics

Steps = Literal["none", "same_width", "all"]
TypePair = tuple[int, int]


@dataclass(frozen=True)
class Moments:
    """Moments of every atom's neighbours and the way back.

    Attributes:
        values: (N, M, columns).
        pull: from dE/d(values) to dE/d(edge vector), (E, 3).
    """

    values: Tensor
    pull: Callable[[Tensor], Tensor]


class Descriptor(nn.Module, ABC):
    """What every descriptor does; see the module.

    Attributes:
        width: of what the fitting net reads of it.
        vectors: M, the number of vectors that `rotation` gives; 0 when it has none.
    """

    width: int
    vectors: int
    cutoff: float

    @abstractmethod
    def moments(self, graph: Batch, vectors: Tensor) -> Moments:
        """Return the moments for edge vectors (E, 3)."""

    @abstractmethod
    def forward(self, values: Tensor, types: Tensor) -> Tensor:
        """Return (N, width) from the moments' values."""

    @abstractmethod
    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Measure the environments' mean and deviation."""

    @abstractmethod
    def rotation(self, values: Tensor) -> Tensor:
        """Return (N, M, 3) vectors that turn with the atoms."""


def kept_edges(
    graph: Batch, vectors: Tensor, cutoff: float, excluded: Sequence[TypePair]
) -> tuple[Tensor | None, Tensor]:
    """Return which edges lie within `cutoff` and are of no excluded pair; None when all are.

    Also the number of excluded neighbours within the cutoff, (N, T).
    """
    types, count = graph["types"], len(graph["segments"]) - 1
    num_types = count // max(1, len(types))
    centre, neighbour = graph["edge_index"]
    near = vectors.square().sum(1) < cutoff**2
    numbers = torch.zeros(len(types), num_types, dtype=torch.int64, device=types.device)
    if excluded:
        banned = torch.zeros(num_types, num_types, dtype=torch.bool, device=types.device)
        for one, other in excluded:
            banned[one, other] = banned[other, one] = True
        out = banned[types[centre], types[neighbour]] & near
        pair = centre[out] * num_types + types[neighbour[out]]
        numbers = torch.bincount(pair, minlength=count).view_as(numbers)
        near = near & ~out
    return (None if bool(near.all()) else near), numbers


class SmoothDescriptorConfig(Config):
    """The descriptors with two-body embedding; names in brackets are deepmd-kit's.

    Attributes:
        name: `se_e2_a` sees distances and directions, `se_e2_r` distances alone.
        cutoff: Å [rcut].
        cutoff_smooth: Å, where the switch begins [rcut_smth].
        sel: most neighbours of each type, in the order of the type map; `auto` counts them.
        embedding: widths [neuron].
        axis_neurons: second factor of the descriptor, se_e2_a only [axis_neuron].
        one_side: whether the embedding ignores the centre's type [type_one_side].
        embedding_step: layers of the embedding with a step [resnet_dt].
        exclude_types: pairs of types (places in the type map) that do not see each other.
        zero_mean: leave the mean of the environments at zero [set_davg_zero]. Without it an
            excluded neighbour makes a jump where it crosses the cutoff, as in deepmd-kit, so that
            models with `exclude_types` that are trained here have a mean of zero.
    """

    name: Literal["se_e2_a", "se_e2_r"] = "se_e2_a"
    cutoff: PositiveFloat = 6.0
    cutoff_smooth: float = Field(default=0.5, ge=0)
    sel: list[PositiveInt] | Literal["auto"] = "auto"
    embedding: list[PositiveInt] = Field(default=[25, 50, 100], min_length=1)
    axis_neurons: PositiveInt = 16
    one_side: bool = True
    embedding_step: Steps = "none"
    exclude_types: list[TypePair] = Field(default_factory=list)
    zero_mean: bool = False

    @model_validator(mode="after")
    def _fits(self) -> SmoothDescriptorConfig:
        if self.cutoff_smooth >= self.cutoff:
            raise ValueError(f"cutoff_smooth {self.cutoff_smooth} must be below {self.cutoff}")
        if self.name == "se_e2_a" and self.axis_neurons > self.embedding[-1]:
            raise ValueError(f"axis_neurons {self.axis_neurons} exceed the last embedding width")
        return self

    def with_sel(self, most: Sequence[int]) -> SmoothDescriptorConfig:
        """Return the configuration with `sel` filled in."""
        return self.model_copy(update={"sel": list(most)})

    def build(
        self, num_types: int, generator: torch.Generator, dtype: torch.dtype
    ) -> SmoothDescriptor:
        """Return the descriptor with initial weights."""
        return SmoothDescriptor(self, num_types, generator, dtype)


class SmoothDescriptor(Descriptor):
    """se_e2_a and se_e2_r: D = T T'^T of the moments T, or T itself; see `EnvironmentSpec`."""

    def __init__(
        self, config: SmoothDescriptorConfig, num_types: int, generator: torch.Generator,
        dtype: torch.dtype,
    ) -> None:  # fmt: skip
        super().__init__()
        assert not isinstance(config.sel, str)
        if len(config.sel) != num_types:
            raise ConfigError(
                f"sel has {len(config.sel)} numbers for {num_types} types",
                where="model.descriptors", fix="sel: auto",
            )  # fmt: skip
        check_pairs(config.exclude_types, num_types)
        self.config, self.dtype, self.cutoff = config, dtype, config.cutoff
        self.use_kernels = True
        self.spec = EnvironmentSpec(
            config.cutoff, config.cutoff_smooth, tuple(config.sel), tuple(config.embedding),
            config.one_side, config.name == "se_e2_r",
        )  # fmt: skip
        self.embedding = StackedNetworks(
            self.spec.num_networks, 1, config.embedding, step=config.embedding_step,
            linear_output=False, generator=generator, dtype=dtype,
        )  # fmt: skip
        last = config.embedding[-1]
        self.width = last if self.spec.radial else last * config.axis_neurons
        self.vectors = 0 if self.spec.radial else last
        shape = (num_types, self.spec.columns)
        self.mean: Tensor
        self.deviation: Tensor
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("deviation", torch.ones(shape, dtype=torch.float64))

    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Measure the environments; the mean stays zero where the configuration wants it so."""
        seen = []
        for graph in graphs:
            vectors = edge_vectors(graph)
            kept, _ = kept_edges(graph, vectors, self.cutoff, self.config.exclude_types)
            seen.append(graph if kept is None else without_edges(graph, kept))
        mean, deviation = environment_statistics(self.spec, seen)
        if self.config.zero_mean or self.config.exclude_types:
            mean = torch.zeros_like(mean)
        with torch.no_grad():
            self.mean.copy_(mean)
            self.deviation.copy_(deviation)

    def moments(self, graph: Batch, vectors: Tensor) -> Moments:
        """Return the moments, by the compiled kernels where they can be used."""
        kept, excluded = kept_edges(graph, vectors, self.cutoff, self.config.exclude_types)
        part = graph if kept is None else without_edges(graph, kept)
        near = vectors if kept is None else vectors[kept]
        fused = (
            self.use_kernels and near.device.type == "cpu" and not self.embedding.step
            and operators.available(self.spec, near.dtype)
        )  # fmt: skip
        found = self._fused(part, near) if fused else self._written_out(part, near)
        values = found.values
        if self.config.exclude_types:
            values = values + self._correction(graph["types"], excluded)

        def pull(cotangent: Tensor) -> Tensor:
            slopes = found.pull(cotangent)
            if kept is None:
                return slopes
            places = kept.nonzero().squeeze(1)
            return torch.zeros_like(vectors).index_add(0, places, slopes)

        return Moments(values, pull)

    def _statistics(self) -> tuple[Tensor, Tensor]:
        return self.mean.to(self.dtype), self.deviation.to(self.dtype)

    def _correction(self, types: Tensor, excluded: Tensor) -> Tensor:
        """Return what excluded neighbours change: they fill a place, with an environment of 0."""
        mean, deviation = self._statistics()
        networks = self.embedding.networks()
        places = reference.absent_rows(self.spec, mean, deviation, networks)
        nothing = reference.absent_rows(self.spec, torch.zeros_like(mean), deviation, networks)
        numbers = excluded.to(self.dtype)
        return torch.einsum("nt,ntmc->nmc", numbers, (nothing - places)[types]) / sum(self.spec.sel)

    def _written_out(self, graph: Batch, vectors: Tensor) -> Moments:
        leaf = vectors.detach().requires_grad_()
        values = reference.moments(
            self.spec, leaf, graph["segments"], graph["types"], *self._statistics(),
            self.embedding.networks(),
        )  # fmt: skip
        return Moments(values, pull_by_autograd(values, leaf, self.training))

    def _fused(self, graph: Batch, vectors: Tensor) -> Moments:
        types, spec = graph["types"], self.spec
        mean, deviation = self._statistics()
        order = types.argsort(stable=True)
        environment = operators.Environment(
            spec, order, graph["segments"], types, vectors, mean, deviation, self.training
        )
        stack = self.embedding
        weights = operators.flat_weights(list(zip(stack.weight, stack.bias, strict=True)))
        counts = graph["segments"].diff().view(-1, spec.num_types)
        absent = (torch.tensor(spec.sel) - counts).to(self.dtype)
        table = reference.absent_rows(spec, mean, deviation, stack.networks())[types]
        moments = operators.moments(weights, environment)
        values = moments[order.argsort()]
        values = values + torch.einsum("nt,ntmc->nmc", absent, table) / sum(spec.sel)
        return Moments(
            values, lambda cotangent: operators.edge_gradients(cotangent[order], environment)
        )

    def forward(self, values: Tensor, types: Tensor) -> Tensor:
        """Return D, flattened."""
        if self.spec.radial:
            return values.squeeze(2)
        axis = values[:, : self.config.axis_neurons]
        return torch.bmm(values, axis.transpose(1, 2)).flatten(1)

    def rotation(self, values: Tensor) -> Tensor:
        """Return the moments of the directions, (N, M, 3)."""
        return values[:, :, 1:]


def pull_by_autograd(values: Tensor, leaf: Tensor, training: bool) -> Callable[[Tensor], Tensor]:
    """Return the way back for moments that torch's autograd knows."""

    def pull(cotangent: Tensor) -> Tensor:
        (slopes,) = torch.autograd.grad(
            values, leaf, cotangent, create_graph=training, allow_unused=True
        )
        return torch.zeros_like(leaf) if slopes is None else slopes

    return pull


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
