"""Export of MACE as a C library: supported models, kernels, tables and weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scitoolkit.core.errors import NumericalError
from scitoolkit.ops.interpolation import Grid
from scitoolkit.ops.interpolation import cpu as interpolation
from scitoolkit.ops.spherical_harmonics import cpu as harmonics
from scitoolkit.ops.spherical_harmonics.spec import HarmonicsSpec
from scitoolkit.ops.symmetric_contraction import cpu as contraction
from scitoolkit.ops.symmetric_contraction.operators import LIGHT_PASSES
from scitoolkit.ops.tensor_product import cpu as tensor_product
from scitoolkit.ops.tensor_product.operators import QUICK_PASSES
from scitoolkit.potentials.equivariant.geometry import GRID_STEP
from scitoolkit.potentials.equivariant.layers import (
    DegreeLinear,
    RadialNetwork,
    SpeciesLinear,
    activation_scale,
)
from scitoolkit.potentials.equivariant.mace_config import MaceConfig
from scitoolkit.potentials.export.source import Kernel, LibrarySource, refuse

if TYPE_CHECKING:
    from scitoolkit.potentials.equivariant.mace import Mace, MaceLayer

GATES = {"silu": 0, "none": 1, "abs": 2, "tanh": 3}
TOLERANCE = {torch.float32: 1e-6, torch.float64: 2e-13}
"""Tolerance of the tables' values relative to the largest; slopes have about 1000 times as much."""
SHORTEST, FINEST = 0.3, 8  # smallest checked distance, Å; largest number of halvings of the step
INTERPOLATION = ("values", "slopes", "values_gradient", "slopes_gradient")


@torch.no_grad()
def mace_library(model: Mace) -> LibrarySource:
    """Return the library source of a MACE model.

    Raises:
        ConfigError: the library has no kernels for an option.
        NumericalError: the radial weights cannot be tabulated.
    """
    config, layers = _config(model), _layers(model)
    refuse({"density": config.density or config.first_density}, "a MACE model")
    lmax, hidden, channels = config.lmax, config.lmax_hidden, config.channels
    rows_hidden = (hidden + 1) ** 2
    source = LibrarySource(
        "mace.c",
        model.type_map,
        model.cutoff,
        model.dtype,
        widest_row=rows_hidden * channels if config.layers > 1 else 0,
    )
    spec = HarmonicsSpec(tuple(range(lmax + 1)), "component", True)
    source.kernels["harmonics"] = Kernel(harmonics.generate(spec, source.real))
    source.kernels["table"] = Kernel(interpolation.generate(source.real), (), INTERPOLATION)
    source.add_double(shift=model.shift, scale=model.scale.reshape(1))
    grid = _grid(model)
    rows = [_add_layer(source, model, number, grid) for number in range(config.layers)]
    source.files["layers.h"] = _layers_header(rows)
    pairs = 1 if model.transform is None else len(model.type_map) ** 2
    source.settings |= {
        "STK_CHANNELS": channels,
        "STK_LAYERS": config.layers,
        "STK_LMAX": lmax,
        "STK_LMAX_HIDDEN": hidden,
        "STK_TABLES": pairs,
        "STK_STEP": grid.step,
        "STK_BINS": pairs * (grid.num_intervals + 1),
        "STK_MOST_WEIGHTS": max(layer.convolution.spec.weight_numel for layer in layers),
        "STK_MOST_ROWS": max(layer.convolution.spec.dim_out for layer in layers) // channels,
        "STK_GATE": GATES[config.gate],
        "STK_GATE_SCALE": activation_scale(config.gate),
    }
    source.add_pair_repulsion(model.repulsion, model.scale)
    return source


def _add_layer(source: LibrarySource, model: Mace, number: int, grid: Grid) -> dict[str, str]:
    """Add the kernels and arrays of a layer; return its entries in layers.h."""
    layer, channels = _layers(model)[number], _config(model).channels
    convolution, product, types = layer.convolution, layer.product, len(model.type_map)
    spec, segments = convolution.spec, convolution.segments
    for kernel in ("forward", "backward"):
        source.kernels[f"convolution{number}_{kernel}"] = Kernel(
            tensor_product.generate(spec, kernel, source.real), QUICK_PASSES
        )
    source.kernels[f"product{number}"] = Kernel(
        contraction.generate(product.spec, source.real, training=False), LIGHT_PASSES
    )
    up, embedding = _blocks(convolution.up), model.embedding * types**-0.5
    linear = {
        "down": _blocks(convolution.down, 1 / float(model.average_neighbours)),
        "mix": _blocks(product.mix),
    }
    if number:
        linear["up"] = up
    else:
        source.add(embedded=embedding.double() @ up[0].double())
    if number or not layer.residual:
        linear["shortcut"] = _species_blocks(layer.shortcut, types)
    else:
        first = _species_blocks(layer.shortcut, types)
        source.add(shortcut0=torch.einsum("tc,tck->tk", embedding.double(), first.double()))
    found: dict[str, str] = {}
    for name, blocks in linear.items():
        source.add(**{f"{name}{number}": blocks, f"{name}{number}_t": blocks.mT})
        found |= {name: f"{name}{number}", f"{name}_t": f"{name}{number}_t"}
    if not number and layer.residual:
        found["shortcut"] = "shortcut0"
    source.add(
        **{f"contraction{number}": product.weight, f"table{number}": _table(model, layer, grid)}
    )
    weights = [w / math.sqrt(w.shape[0]) for w in layer.readout.weight]
    source.add(**{f"readout{number}": torch.cat([w.flatten() for w in weights])})
    names = found | {each: f"{each}{number}" for each in ("contraction", "table", "readout")}
    copies = [segments.count(degree) for degree in range(max(segments) + 1)]
    return {
        "weights": str(spec.weight_numel),
        "rows": str(spec.dim_out // channels),
        "width": str(spec.dim_in1),
        "lmax_out": str(max(product.mix.degrees)),
        "lmax_kept": str(max(layer.shortcut.degrees)),
        "residual": str(int(layer.residual)),
        "readout_width": str(weights[0].shape[1] if len(weights) > 1 else 0),
        "copies": f"{{{', '.join(map(str, copies))}}}",
        **{key: f"STK_ARRAY_{name}" for key, name in names.items()},
        "forward": f"STK_OF(convolution{number}_forward_forward)",
        "backward": f"STK_OF(convolution{number}_backward_backward)",
        "product": f"STK_OF(product{number}_forward)",
        "product_back": f"STK_OF(product{number}_backward)",
    }


def _config(model: Mace) -> MaceConfig:
    assert isinstance(model.config, MaceConfig)
    return model.config


def _layers(model: Mace) -> list[MaceLayer]:
    return list(model.layers)  # type: ignore[arg-type]


FUNCTIONS = {
    "forward": "stk_convolve",
    "backward": "stk_convolve_back",
    "product": "stk_contract",
    "product_back": "stk_contract_back",
}


def _layers_header(layers: Sequence[dict[str, str]]) -> str:
    declared = [f"{kind} {layer[key]};" for layer in layers for key, kind in FUNCTIONS.items()]
    rows = [
        "  {" + ", ".join(f".{key} = {value}" for key, value in layer.items()) + "},"
        for layer in layers
    ]
    return "\n".join(
        [
            "/* The layers of the model. */",
            *declared,
            "static const stk_layer LAYERS[] = {",
            *rows,
            "};",
            "",
        ]
    )


def _blocks(linear: DegreeLinear, factor: float = 1.0) -> Tensor:
    """Return the matrices (degrees and copies, C, C) of a layer, scaled."""
    parts = []
    for weight in linear.weight:
        scaled = weight.double() * (weight.shape[0] ** -0.5 * factor)
        parts.append(scaled.view(-1, weight.shape[1], weight.shape[1]))
    return torch.cat(parts)


def _species_blocks(linear: SpeciesLinear, num_types: int) -> Tensor:
    """Return the matrices (degrees x species, C, C) of a layer, scaled."""
    channels = linear.weight[0].shape[1]
    return torch.cat(list(linear.weight)).double() * (channels * num_types) ** -0.5


def _radial(model: Mace, network: RadialNetwork, r: Tensor) -> Tensor:
    """Return the radial weights at distances, (pairs, len(r), W), float64."""
    radial, found = model.geometry.radial, []
    factor = radial.cutoff_factor(r)
    number = len(model.type_map)
    pairs = (
        [(0, 0)]
        if model.transform is None
        else [(i, j) for i in range(number) for j in range(number)]
    )
    for one, other in pairs:
        basis = radial(r)
        if model.transform is not None:
            types = (torch.full((len(r),), kind) for kind in (one, other))
            basis = radial(r, model.transform(r, *types))
        values = network(basis)
        found.append(values if factor is None else values * factor)
    return torch.stack(found)


def _grid(model: Mace) -> Grid:
    """Return the grid on which the tables of all layers reach the tolerance."""
    number, tolerance = math.ceil(model.cutoff / GRID_STEP), TOLERANCE[model.dtype]
    networks = [layer.convolution.radial for layer in _layers(model)]
    worst = math.inf
    for _ in range(FINEST):
        grid = Grid(model.cutoff, number)
        worst = max(_error(model, network, grid) for network in networks)
        if worst <= tolerance:
            return grid
        number *= 2
    raise NumericalError(f"the radial weights cannot be tabulated (relative error {worst:.1e})")


def _error(model: Mace, network: RadialNetwork, grid: Grid) -> float:
    """Return the largest error of the tables between nodes, relative to the largest value."""
    nodes = grid.nodes()
    values = _radial(model, network, nodes)
    middle = (nodes[1:] + nodes[:-1]) / 2
    wanted = _radial(model, network, middle)[:, middle > SHORTEST]
    found = [grid.coefficients(each, torch.float64)[:-1, 0] for each in values]
    difference = torch.stack(found)[:, middle > SHORTEST] - wanted
    return float(difference.abs().max() / values.abs().max())


def _table(model: Mace, layer: MaceLayer, grid: Grid) -> Tensor:
    """Return the coefficients of a layer's radial weights, (pairs x intervals, 8, W)."""
    values = _radial(model, layer.convolution.radial, grid.nodes())
    return torch.cat([grid.coefficients(each, torch.float64) for each in values])
