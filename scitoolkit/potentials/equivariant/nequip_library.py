"""Export of NequIP as a C library: kernels, tables and weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scitoolkit.potentials.equivariant.exported import (
    RadialTables,
    add_arrays,
    add_convolution,
    add_geometry,
    add_matrices,
    layers_header,
    mixing,
    num_rows,
    species_mixing,
)
from scitoolkit.potentials.equivariant.layers import natural, silu_scale
from scitoolkit.potentials.equivariant.nequip import layer_irreps
from scitoolkit.potentials.equivariant.nequip_config import NequipConfig
from scitoolkit.potentials.export.source import LibrarySource, refuse

if TYPE_CHECKING:
    from scitoolkit.potentials.equivariant.nequip import Nequip, NequipLayer


@torch.no_grad()
def nequip_library(model: Nequip) -> LibrarySource:
    """Return the library source of a NequIP model.

    Raises:
        NumericalError: the radial weights cannot be tabulated.
        ConfigError: the model has features of both parities.
    """
    config, layers = model.config, _layers(model)
    assert isinstance(config, NequipConfig)
    both = any(irreps != natural(range(len(irreps))) for irreps in layer_irreps(config))
    refuse({"features of both parities": both}, "nequip")
    lmax, channels = config.lmax, config.channels
    rows_hidden = (lmax + 1) ** 2
    source = LibrarySource(
        "nequip.c",
        model.type_map,
        model.cutoff,
        model.dtype,
        widest_row=rows_hidden * channels if config.layers > 1 else 0,
    )
    add_geometry(source, lmax)
    source.add_double(shift=model.shift, scale=model.scale.expand(len(model.type_map)))
    tables = RadialTables(model, [layer.convolution.radial for layer in layers])
    rows = [_add_layer(source, model, number, tables) for number in range(config.layers)]
    source.files["layers.h"] = layers_header(rows)
    source.settings |= {
        "STK_CHANNELS": channels,
        "STK_LAYERS": config.layers,
        "STK_LMAX": lmax,
        "STK_LMAX_HIDDEN": lmax,
        "STK_STORED": rows_hidden + lmax,
        **tables.settings(),
        "STK_MOST_WEIGHTS": max(layer.convolution.spec.weight_numel for layer in layers),
        "STK_MOST_ROWS": max(num_rows(layer.convolution) for layer in layers),
        "STK_GATE": 0,
        "STK_GATE_SCALE": silu_scale(),
    }
    source.add_pair_repulsion(model.repulsion, 1.0)
    return source


def _add_layer(
    source: LibrarySource, model: Nequip, number: int, tables: RadialTables
) -> dict[str, str]:
    """Add the kernels and arrays of a layer; return its entries in layers.h."""
    layer, types = _layers(model)[number], len(model.type_map)
    convolution, last = layer.convolution, number == len(model.layers) - 1
    up, embedding = mixing(convolution.up), model.embedding.double()
    matrices = {"down": mixing(convolution.down, float(model.average_neighbours) ** -0.5)}
    arrays = {"table": tables.table(convolution.radial)}
    shortcut = species_mixing(layer.shortcut, types)
    if number:
        matrices |= {"up": up, "shortcut": shortcut}
    else:
        source.add(embedded=embedding @ up[0])
        arrays["shortcut"] = torch.einsum("tc,tck->tk", embedding, shortcut)
    if layer.gated:
        gates, gates_shortcut = _gates(layer, float(model.average_neighbours), types)
        matrices["gates"] = gates
        if number:
            matrices["gates_shortcut"] = gates_shortcut
        else:
            first = torch.einsum("tc,gtck->tgk", embedding, gates_shortcut)
            arrays["gates_shortcut"] = first
    if last:
        inputs, width = model.hidden.shape
        combined = model.hidden.double() @ model.output.double()
        arrays["readout"] = combined / math.sqrt(inputs * width)
    return {
        **add_convolution(source, number, convolution),
        **add_matrices(source, number, **matrices),
        **add_arrays(source, number, **arrays),
        "lmax_out": str(len(layer.gated)),
        "lmax_kept": str(layer.shortcut.irreps[-1].degree),
        "reads_out": str(int(last)),
    }


def _gates(layer: NequipLayer, neighbours: float, num_types: int) -> tuple[Tensor, Tensor]:
    """Return the matrices of the gates: (gates, copies, C, C) and, of the input, (gates, T, C, C).

    Args:
        layer: with gates.
        neighbours: mean number of neighbours, by whose square root messages are divided.
        num_types: T.
    """
    (weight,), gates = layer.gates.weight, len(layer.gated)
    scaled = weight.double() * (weight.shape[0] * neighbours) ** -0.5
    channels = weight.shape[1] // gates
    from_messages = scaled.view(-1, channels, gates, channels).permute(2, 0, 1, 3)
    of_species = species_mixing(layer.gates_shortcut, num_types)
    from_input = of_species.view(num_types, channels, gates, channels).permute(2, 0, 1, 3)
    return from_messages.contiguous(), from_input.contiguous()


def _layers(model: Nequip) -> list[NequipLayer]:
    return list(model.layers)  # type: ignore[arg-type]
