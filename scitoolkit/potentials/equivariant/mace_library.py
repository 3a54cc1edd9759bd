"""Export of MACE as a C library: supported models, kernels, tables and weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from scitoolkit.ops.symmetric_contraction import cpu as contraction
from scitoolkit.ops.symmetric_contraction.operators import LIGHT_PASSES
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
from scitoolkit.potentials.equivariant.layers import activation_scale, natural
from scitoolkit.potentials.equivariant.mace_config import MaceConfig
from scitoolkit.potentials.export.source import Kernel, LibrarySource

if TYPE_CHECKING:
    from scitoolkit.potentials.equivariant.mace import Mace, MaceLayer

GATES = {"silu": 0, "none": 1, "abs": 2, "tanh": 3}


@torch.no_grad()
def mace_library(model: Mace) -> LibrarySource:
    """Return the library source of a MACE model.

    Raises:
        NumericalError: the radial weights cannot be tabulated.
    """
    config, layers = _config(model), _layers(model)
    lmax, hidden, channels = config.lmax, config.lmax_hidden, config.channels
    source = LibrarySource(
        "mace.c",
        model.type_map,
        model.cutoff,
        model.dtype,
        widest_row=(hidden + 1) ** 2 * channels if config.layers > 1 else 0,
    )
    add_geometry(source, lmax)
    source.add_double(shift=model.shift, scale=model.scale.expand(len(model.type_map)))
    tables = RadialTables(
        model,
        [layer.convolution.radial for layer in layers],
        [layer.density for layer in layers if layer.density is not None],
    )
    rows = [_add_layer(source, model, number, tables) for number in range(config.layers)]
    source.files["layers.h"] = layers_header(rows, natural(range(lmax + 1)))
    source.settings |= {
        "STK_CHANNELS": channels,
        "STK_LAYERS": config.layers,
        "STK_LMAX": lmax,
        "STK_LAST_HIDDEN": hidden,
        "STK_HIDDEN": (hidden + 1) ** 2,
        "STK_STORED": (lmax + 1) ** 2,
        **tables.settings(),
        "STK_MOST_WEIGHTS": max(layer.convolution.spec.weight_numel for layer in layers),
        "STK_MOST_ROWS": max(num_rows(layer.convolution.spec) for layer in layers),
        "STK_GATE": GATES[config.gate],
        "STK_GATE_SCALE": activation_scale(config.gate),
    }
    source.add_pair_repulsion(model.repulsion, model.scale)
    return source


def _add_layer(
    source: LibrarySource, model: Mace, number: int, tables: RadialTables
) -> dict[str, str]:
    """Add the kernels and arrays of a layer; return its entries in layers.h."""
    layer, types = _layers(model)[number], len(model.type_map)
    convolution, product, density = layer.convolution, layer.product, layer.density
    source.kernels[f"product{number}"] = Kernel(
        contraction.generate(product.spec, source.real, training=False), LIGHT_PASSES
    )
    up, embedding = mixing(convolution.up), model.embedding.double() * types**-0.5
    average = 1.0 if density is not None else float(model.average_neighbours)
    matrices = {"down": mixing(convolution.down, 1 / average), "mix": mixing(product.mix)}
    shortcut = species_mixing(layer.shortcut, types)
    entries: dict[str, str] = {}
    if number:
        matrices["up"] = up
    else:
        source.add(embedded=embedding @ up[0])
    if number or not layer.residual:
        matrices["shortcut"] = shortcut
    else:
        first = torch.einsum("tc,tck->tk", embedding, shortcut)
        entries |= add_arrays(source, number, shortcut=first)
    weights = [w / math.sqrt(w.shape[0]) for w in layer.readout.weight]
    arrays = {
        "contraction": product.weight,
        "table": tables.table(convolution.radial),
        "readout": torch.cat([w.flatten() for w in weights]),
    }
    if density is not None:
        arrays["density"] = tables.table(density)
    return {
        **add_convolution(source, number, convolution.spec, convolution.down.irreps),
        **add_matrices(source, number, **matrices),
        **entries,
        **add_arrays(source, number, **arrays),
        "last_out": str(len(product.mix.irreps) - 1),
        "last_kept": str(len(layer.shortcut.irreps) - 1),
        "residual": str(int(layer.residual)),
        "reads_out": "1",
        "has_density": str(int(density is not None)),
        "readout_width": str(weights[0].shape[1] if len(weights) > 1 else 0),
        "product": f"STK_OF(product{number}_forward)",
        "product_back": f"STK_OF(product{number}_backward)",
    }


def _config(model: Mace) -> MaceConfig:
    assert isinstance(model.config, MaceConfig)
    return model.config


def _layers(model: Mace) -> list[MaceLayer]:
    return list(model.layers)  # type: ignore[arg-type]
