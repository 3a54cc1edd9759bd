"""Layers on equivariant features: channel mixing, radial weights, convolution, many-body product.

Features are (N, D, C): the D components of all irreps in order, then channels, which is the ir_mul
layout of "Cx0e + Cx1o + Cx2e ...". Letters: N atoms, E edges, T species, C channels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.ops.interpolation import EquidistantGrid
from scitoolkit.ops.irreps import Irrep
from scitoolkit.ops.neighbours.sums import place_sums
from scitoolkit.ops.symmetric_contraction import (
    ContractionSpec,
    Elements,
    symmetric_contraction,
)
from scitoolkit.ops.tensor_product import Edges, TensorProductSpec, tensor_product_convolution


def natural(degrees: Iterable[int]) -> list[Irrep]:
    """Return irreps with the parity of spherical harmonics.

    Example:
        >>> natural(range(3))
        [0e, 1o, 2e]
    """
    return [Irrep(degree, (-1) ** degree) for degree in degrees]


def irreps_text(irreps: Iterable[Irrep], channels: int = 1) -> str:
    """Return irreps as text.

    Example:
        >>> irreps_text(natural(range(3)), 4)
        '4x0e+4x1o+4x2e'
    """
    return "+".join(f"{channels}x{irrep}" for irrep in irreps)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor] | None] = {
    "silu": torch.nn.functional.silu,
    "tanh": torch.tanh,
    "abs": torch.abs,
    "none": None,
}


@functools.cache
def activation_scale(name: str) -> float:
    """Return the factor that normalises the second moment of an activation of a normal z to 1.

    This is e3nn's estimate from a million random numbers, not the integral, for compatibility with
    models trained by other codes; as in e3nn, a factor within 1e-4 of 1 is replaced by 1.
    """
    function = ACTIVATIONS[name]
    if function is None:
        return 1.0
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(1_000_000, generator=generator, dtype=torch.float64)
    scale = float(function(z).square().mean().rsqrt())
    return 1.0 if abs(scale - 1) < 1e-4 else scale


def silu_scale() -> float:
    """Return `activation_scale` of silu."""
    return activation_scale("silu")


class Factory:
    """Factory of parameters of one dtype from one random stream.

    Args:
        dtype: of the parameters.
        seed: of the random stream.
    """

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        self.dtype = dtype
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> nn.Parameter:
        """Return a parameter of normal random numbers of standard deviation `scale`."""
        values = torch.randn(shape, generator=self._generator, dtype=torch.float64)
        return nn.Parameter((values * scale).to(self.dtype))


class Grouped:
    """Atoms sorted by species, for layers with weights for each species.

    Args:
        types: species of the atoms, (N,) int64.
        num_types: number of species T.
    """

    def __init__(self, types: Tensor, num_types: int) -> None:
        self.elements: Elements = Elements.build(types, num_types)
        self.order: Tensor = self.elements.order
        self.inverse: Tensor = torch.argsort(self.order)
        self.counts: list[Any] = self.elements.ptr.diff().tolist()

    def multiply(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return x[n] @ weight[types[n]], (N, M, K), for x (N, M, C) and weight (T, C, K)."""
        parts = x[self.order].split(self.counts)
        out = [part @ of_type for part, of_type in zip(parts, weight, strict=True)]
        return torch.cat(out)[self.inverse]


class DegreeLinear(nn.Module):
    """Linear channel mixing within each irrep: (N, rows, C) to (N, D, K).

    Args:
        segments: irrep of each input segment; the segments of an irrep are neighbours.
        irreps: of the output, each among the segments.
        channels: C.
        channels_out: K.
        factory: makes the weights.
    """

    def __init__(
        self,
        segments: Sequence[Irrep],
        irreps: Sequence[Irrep],
        channels: int,
        channels_out: int,
        factory: Factory,
    ) -> None:
        super().__init__()
        self.segments: tuple[Irrep, ...] = tuple(segments)
        self.irreps: tuple[Irrep, ...] = tuple(irreps)
        self.weight: nn.ParameterList = nn.ParameterList(
            factory.normal(self.segments.count(irrep) * channels, channels_out)
            for irrep in self.irreps
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the mixed features."""
        parts, num_atoms, channels = [], x.shape[0], x.shape[2]
        for irrep, weight in zip(self.irreps, self.weight, strict=True):
            size, copies = irrep.dim, self.segments.count(irrep)
            start = first_row(self.segments, irrep)
            part = x[:, start : start + copies * size]
            if copies > 1:
                part = part.unflatten(1, (copies, size)).transpose(1, 2)
            part = part.reshape(num_atoms * size, copies * channels)
            mixed = part @ (weight * (copies * channels) ** -0.5)
            parts.append(mixed.view(num_atoms, size, -1))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def first_row(segments: Sequence[Irrep], irrep: Irrep) -> int:
    """Return the row of features with these segments where those of an irrep begin."""
    return sum(other.dim for other in segments[: segments.index(irrep)])


class SpeciesLinear(nn.Module):
    """Linear channel mixing within each irrep, with weights for each species.

    Args:
        irreps: that are mixed.
        channels: C.
        num_types: T.
        factory: makes the weights.
        channels_out: number of output channels; by default C.
        irreps_in: of the input, by default `irreps`, and others behind them; see `forward`.
    """

    def __init__(
        self,
        irreps: Sequence[Irrep],
        channels: int,
        num_types: int,
        factory: Factory,
        channels_out: int | None = None,
        irreps_in: Sequence[Irrep] | None = None,
    ) -> None:
        super().__init__()
        self.irreps: tuple[Irrep, ...] = tuple(irreps)
        self.weight: nn.ParameterList = nn.ParameterList(
            factory.normal(num_types, channels, channels_out or channels) for _ in self.irreps
        )
        self._starts = [first_row(irreps_in or self.irreps, irrep) for irrep in self.irreps]
        self._scale = (channels * num_types) ** -0.5

    def forward(self, x: Tensor, groups: Grouped) -> Tensor:
        """Return the mixed features of `irreps`; other rows of x are dropped."""
        parts = [
            groups.multiply(x[:, start : start + irrep.dim], weight * self._scale)
            for irrep, weight, start in zip(self.irreps, self.weight, self._starts, strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class RadialNetwork(nn.Module):
    """Multilayer perceptron from the radial basis of an edge to its weights."""

    def __init__(self, widths: Sequence[int], factory: Factory) -> None:
        super().__init__()
        self.weight: nn.ParameterList = nn.ParameterList(
            factory.normal(*pair) for pair in pairwise(widths)
        )
        self._kept: tuple[object, Tensor, list[Tensor]] | None = None

    def forward(self, basis: Tensor) -> Tensor:
        """Return the weights (E, last width) for a basis (E, first width), in the basis' dtype."""
        hidden = basis
        for number, weight in enumerate(self.weight):
            scale = weight.shape[0] ** -0.5 * (silu_scale() if number else 1.0)
            hidden = hidden @ (weight.to(basis.dtype) * scale)
            if number < len(self.weight) - 1:
                hidden = torch.nn.functional.silu(hidden)
        return hidden

    def table(self, grid: EquidistantGrid, basis: Tensor) -> Tensor:
        """Return the network as `EquidistantGrid.coefficients`; cached for inference.

        Args:
            grid: of distances.
            basis: radial basis at the nodes of the grid, float64.
        """
        dtype = self.weight[0].dtype
        if self.training:
            return grid.coefficients(self(basis), dtype)
        # Weights computed at each access would be freed, and their addresses used again.
        weights = [weight.detach() for weight in self.weight]
        key = (grid, *((weight.data_ptr(), weight._version) for weight in weights))
        if self._kept is None or self._kept[0] != key:
            with torch.no_grad():
                self._kept = (key, grid.coefficients(self(basis), dtype), weights)
        return self._kept[1]


@dataclass(frozen=True)
class Geometry:
    """Edge geometry shared by all layers.

    Attributes:
        edges: sender and receiver of each edge.
        harmonics: spherical harmonics of the edges, (E, D).
        centre: receiving atom of each edge, (E,).
        radial_values: function that returns the outputs (E, W) of a radial network, evaluated at
            every edge or interpolated.
        cutoff: (E, 1) factor of these outputs, if the radial basis does not vanish at the cutoff.
    """

    edges: Edges
    harmonics: Tensor
    centre: Tensor
    radial_values: Callable[[RadialNetwork], Tensor]
    cutoff: Tensor | None = None

    def radial_weights(self, network: RadialNetwork) -> Tensor:
        """Return the weights of all edges, shape (E, W)."""
        values = self.radial_values(network)
        return values if self.cutoff is None else values * self.cutoff

    def density(self, network: RadialNetwork, num_atoms: int) -> Tensor:
        """Return the sum of tanh(network²) over each atom's edges, shape (N, 1)."""
        of_edges = torch.tanh(self.radial_values(network).square())
        of_edges = of_edges if self.cutoff is None else of_edges * self.cutoff
        return place_sums(self.centre, of_edges, num_atoms)


class Convolution(nn.Module):
    """Convolution: channel mixing, weighted tensor products, sum over neighbours, channel mixing.

    Args:
        irreps: of the incoming features.
        harmonics: of the edges.
        channels: C.
        radial_widths: input (basis) and hidden widths of the radial network.
        factory: makes the weights.
        irreps_out: of the messages; by default those of the harmonics.

    Attributes:
        segments: irrep of each segment of the messages before the second channel mixing.
    """

    def __init__(
        self,
        irreps: Sequence[Irrep],
        harmonics: Sequence[Irrep],
        channels: int,
        radial_widths: Sequence[int],
        factory: Factory,
        irreps_out: Sequence[Irrep] | None = None,
    ) -> None:
        super().__init__()
        irreps_out = harmonics if irreps_out is None else irreps_out
        self.spec: TensorProductSpec = TensorProductSpec.channelwise(
            irreps_text(irreps, channels), irreps_text(harmonics), irreps_text(irreps_out)
        )
        self.up: DegreeLinear = DegreeLinear(irreps, irreps, channels, channels, factory)
        self.radial: RadialNetwork = RadialNetwork(
            [*radial_widths, self.spec.weight_numel], factory
        )
        self.segments: list[Irrep] = [Irrep(part.degree, part.parity) for part in self.spec.out]
        self.down: DegreeLinear = DegreeLinear(
            self.segments, irreps_out, channels, channels, factory
        )

    def forward(self, x: Tensor, geometry: Geometry) -> Tensor:
        """Return the sum of messages at each atom, shape (N, D, C)."""
        return self.down(self.messages(x, geometry))

    def messages(self, x: Tensor, geometry: Geometry) -> Tensor:
        """Return the sum of messages before the second channel mixing, (N, rows of segments, C)."""
        weights = geometry.radial_weights(self.radial)
        sums = tensor_product_convolution(
            self.spec, self.up(x).flatten(1), geometry.harmonics, weights, geometry.edges
        )
        return sums.unflatten(1, (-1, x.shape[2]))


class ManyBodyProduct(nn.Module):
    """Symmetric contraction with weights of each species, then channel mixing."""

    def __init__(
        self,
        irreps_in: Sequence[Irrep],
        irreps: Sequence[Irrep],
        correlation: int,
        channels: int,
        num_types: int,
        factory: Factory,
    ) -> None:
        super().__init__()
        self.spec: ContractionSpec = ContractionSpec.build(
            irreps_text(irreps_in), irreps_text(irreps), correlation
        )
        self.weight: nn.Parameter = factory.normal(num_types, self.spec.num_paths, channels)
        start = 0
        with torch.no_grad():
            for _, _, count in self.spec.blocks:
                self.weight[:, start : start + count] /= max(1, count)
                start += count
        self.mix: DegreeLinear = DegreeLinear(irreps, irreps, channels, channels, factory)

    def forward(self, x: Tensor, groups: Grouped) -> Tensor:
        """Return the product features, shape (N, (L + 1)^2, C)."""
        # The kernels cannot see which gradients are required, and those of weights are expensive.
        weight = self.weight if self.training else self.weight.detach()
        return self.mix(symmetric_contraction(self.spec, x, weight, groups.elements))


class Readout(nn.Module):
    """Energy of each atom from its scalar features, linear or with a hidden layer.

    Args:
        channels: C.
        width: of the hidden layer, or None for a linear readout.
        factory: makes the weights.
        gate: activation of the hidden layer, a name in `ACTIVATIONS`.
    """

    def __init__(
        self, channels: int, width: int | None, factory: Factory, gate: str = "silu"
    ) -> None:
        super().__init__()
        sizes = [channels, 1] if width is None else [channels, width, 1]
        self.weight: nn.ParameterList = nn.ParameterList(
            factory.normal(*pair) for pair in pairwise(sizes)
        )
        self._activation, self._scale = ACTIVATIONS[gate], activation_scale(gate)

    def forward(self, x: Tensor) -> Tensor:
        """Return the energies (N,) for features (N, D, C)."""
        hidden = x[:, 0]
        for number, weight in enumerate(self.weight):
            if number and self._activation is not None:
                hidden = self._activation(hidden) * self._scale
            hidden = hidden @ (weight / math.sqrt(weight.shape[0]))
        return hidden.squeeze(1)
