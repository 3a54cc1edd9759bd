"""Parts of exported equivariant models: radial tables, matrices, and the layers of layers.h."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from scitoolkit.core.errors import NumericalError
from scitoolkit.ops.interpolation import EquidistantGrid
from scitoolkit.ops.interpolation import cpu as interpolation
from scitoolkit.ops.irreps import Irrep
from scitoolkit.ops.spherical_harmonics import cpu as harmonics
from scitoolkit.ops.spherical_harmonics.spec import HarmonicsSpec
from scitoolkit.ops.tensor_product import TensorProductSpec
from scitoolkit.ops.tensor_product import cpu as tensor_product
from scitoolkit.ops.tensor_product.operators import QUICK_PASSES
from scitoolkit.potentials.equivariant.geometry import GRID_STEP
from scitoolkit.potentials.equivariant.layers import (
    DegreeLinear,
    RadialNetwork,
    SpeciesLinear,
)
from scitoolkit.potentials.equivariant.model import EquivariantPotential
from scitoolkit.potentials.export.source import Kernel, LibrarySource

TOLERANCE = {torch.float32: 1e-6, torch.float64: 2e-13}
"""Tolerance of the tables' values relative to the largest; slopes have about 1000 times as much."""
SHORTEST, FINEST = 0.3, 8  # smallest checked distance, Å; largest number of halvings of the step
INTERPOLATION = ("values", "slopes", "values_gradient", "slopes_gradient")
CALLED = {"forward": "stk_convolve", "backward": "stk_convolve_back"}
PRODUCT = {"product": "stk_contract", "product_back": "stk_contract_back"}


class RadialTables:
    """Tables of the radial functions of a model, on one grid on which all reach the tolerance.

    Args:
        model: the model.
        networks: its radial networks.
        densities: its networks whose tanh(network²) is summed over the neighbours.

    Attributes:
        grid: nodes of the tables.
        num_pairs: number of tables of a network: 1, or one for each pair of species.

    Raises:
        NumericalError: the functions cannot be tabulated.
    """

    def __init__(
        self,
        model: EquivariantPotential,
        networks: Iterable[RadialNetwork],
        densities: Iterable[RadialNetwork] = (),
    ) -> None:
        number = len(model.type_map)
        self._model, self._densities = model, frozenset(densities)
        self.num_pairs: int = 1 if model.transform is None else number**2
        self.grid: EquidistantGrid = self._fine_grid([*networks, *self._densities])

    def table(self, network: RadialNetwork) -> Tensor:
        """Return the coefficients of a network's function, (pairs x intervals, 8, W)."""
        values = self._values(network, self.grid.nodes())
        return torch.cat([self.grid.coefficients(row, torch.float64) for row in values])

    def settings(self) -> dict[str, int | float]:
        """Return the macros of the driver that describe the tables."""
        return {
            "STK_TABLES": self.num_pairs,
            "STK_STEP": self.grid.step,
            "STK_BINS": self.num_pairs * (self.grid.num_intervals + 1),
        }

    def _fine_grid(self, networks: Sequence[RadialNetwork]) -> EquidistantGrid:
        cutoff = self._model.cutoff
        number, tolerance = math.ceil(cutoff / GRID_STEP), TOLERANCE[self._model.dtype]
        worst = math.inf
        for _ in range(FINEST):
            grid = EquidistantGrid(cutoff, number)
            worst = max(self._error(network, grid) for network in networks)
            if worst <= tolerance:
                return grid
            number *= 2
        raise NumericalError(f"the radial weights cannot be tabulated (relative error {worst:.1e})")

    def _error(self, network: RadialNetwork, grid: EquidistantGrid) -> float:
        """Return the largest error between nodes, relative to the largest value."""
        nodes = grid.nodes()
        values = self._values(network, nodes)
        middle = (nodes[1:] + nodes[:-1]) / 2
        wanted = self._values(network, middle)[:, middle > SHORTEST]
        between = [grid.coefficients(row, torch.float64)[:-1, 0] for row in values]
        difference = torch.stack(between)[:, middle > SHORTEST] - wanted
        return float(difference.abs().max() / values.abs().max().clamp_min(1e-300))

    def _values(self, network: RadialNetwork, r: Tensor) -> Tensor:
        """Return the function of a network at distances, (pairs, len(r), W), float64."""
        radial = self._model.geometry.radial
        factor = radial.cutoff_factor(r)
        out = []
        for basis in self._bases(r):
            values = network(basis)
            if network in self._densities:
                values = torch.tanh(values.square())
            out.append(values if factor is None else values * factor)
        return torch.stack(out)

    def _bases(self, r: Tensor) -> Iterator[Tensor]:
        radial, transform = self._model.geometry.radial, self._model.transform
        if transform is None:
            yield radial(r)
            return
        number = len(self._model.type_map)
        for one in range(number):
            for other in range(number):
                types = (torch.full((len(r),), kind) for kind in (one, other))
                yield radial(r, transform(r, *types))


def add_geometry(source: LibrarySource, lmax: int) -> None:
    """Add the kernels of spherical harmonics up to `lmax` and of radial tables."""
    spec = HarmonicsSpec(tuple(range(lmax + 1)), "component", True)
    source.kernels["harmonics"] = Kernel(harmonics.generate(spec, source.real))
    source.kernels["table"] = Kernel(interpolation.generate(source.real), (), INTERPOLATION)


def add_convolution(
    source: LibrarySource, number: int, spec: TensorProductSpec, irreps: Sequence[Irrep]
) -> dict[str, str]:
    """Add the kernels of a layer's convolution; return its entries in layers.h.

    Args:
        source: of the library.
        number: of the layer.
        spec: tensor product, whose segments of the output are in the order of `irreps`.
        irreps: of the features.
    """
    for kernel in ("forward", "backward"):
        source.kernels[f"convolution{number}_{kernel}"] = Kernel(
            tensor_product.generate(spec, kernel, source.real), QUICK_PASSES
        )
    segments = [Irrep(segment.degree, segment.parity) for segment in spec.out]
    copies = [segments.count(irrep) for irrep in irreps]
    return {
        "weights": str(spec.weight_numel),
        "rows": str(num_rows(spec)),
        "width": str(spec.dim_in1),
        "copies": f"{{{', '.join(map(str, copies))}}}",
        "forward": f"STK_OF(convolution{number}_forward_forward)",
        "backward": f"STK_OF(convolution{number}_backward_backward)",
    }


def num_rows(spec: TensorProductSpec) -> int:
    """Return the number of rows of a message before the second channel mixing."""
    return sum(segment.components for segment in spec.out)


def add_matrices(source: LibrarySource, number: int, **matrices: Tensor) -> dict[str, str]:
    """Add matrices (..., C, C) of a layer and their transposes; return its entries in layers.h."""
    entries: dict[str, str] = {}
    for name, blocks in matrices.items():
        source.add(**{f"{name}{number}": blocks, f"{name}{number}_t": blocks.mT})
        entries |= {name: f"STK_ARRAY_{name}{number}", f"{name}_t": f"STK_ARRAY_{name}{number}_t"}
    return entries


def add_arrays(source: LibrarySource, number: int, **arrays: Tensor) -> dict[str, str]:
    """Add arrays of a layer; return its entries in layers.h."""
    source.add(**{f"{name}{number}": values for name, values in arrays.items()})
    return {name: f"STK_ARRAY_{name}{number}" for name in arrays}


def layers_header(layers: Sequence[dict[str, str]], irreps: Sequence[Irrep]) -> str:
    """Return layers.h from the entries of each layer and the irreps of features."""
    degrees = ", ".join(str(irrep.degree) for irrep in irreps)
    declared = [
        f"{kind} {layer[key]};"
        for layer in layers
        for key, kind in (CALLED | PRODUCT).items()
        if key in layer
    ]
    rows = [
        "  {" + ", ".join(f".{key} = {value}" for key, value in layer.items()) + "},"
        for layer in layers
    ]
    return "\n".join(
        [
            "/* The layers of the model. */",
            *declared,
            f"static const int DEGREES[] = {{{degrees}}};",
            "static const stk_layer LAYERS[] = {",
            *rows,
            "};",
            "",
        ]
    )


def mixing(linear: DegreeLinear, factor: float = 1.0) -> Tensor:
    """Return the matrices (degrees and copies, C, C) of a layer, scaled."""
    parts = []
    for weight in linear.weight:
        scaled = weight.double() * (weight.shape[0] ** -0.5 * factor)
        parts.append(scaled.view(-1, weight.shape[1], weight.shape[1]))
    return torch.cat(parts)


def species_mixing(linear: SpeciesLinear, num_types: int) -> Tensor:
    """Return the matrices (degrees x species, C, K) of a layer, scaled."""
    channels = linear.weight[0].shape[1]
    return torch.cat(list(linear.weight)).double() * (channels * num_types) ** -0.5
