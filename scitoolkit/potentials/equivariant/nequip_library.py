"""Export of NequIP as a C library: kernels, tables and weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scitoolkit.ops.irreps import Irrep
from scitoolkit.ops.tensor_product import TensorProductSpec
from scitoolkit.ops.tensor_product.spec import Path
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
from scitoolkit.potentials.equivariant.layers import activation_scale, irreps_text, silu_scale
from scitoolkit.potentials.equivariant.nequip import layer_irreps
from scitoolkit.potentials.equivariant.nequip_config import NequipConfig
from scitoolkit.potentials.export.source import LibrarySource

if TYPE_CHECKING:
    from scitoolkit.potentials.equivariant.nequip import Nequip, NequipLayer


@torch.no_grad()
def nequip_library(model: Nequip) -> LibrarySource:
    """Return the library source of a NequIP model.

    The rows of features have all irreps that occur in a layer; those that a layer lacks are zero.

    Raises:
        NumericalError: the radial weights cannot be tabulated.
    """
    config, layers = model.config, _layers(model)
    assert isinstance(config, NequipConfig)
    irreps = max(layer_irreps(config), key=len)
    channels, hidden = config.channels, sum(irrep.dim for irrep in irreps)
    source = LibrarySource(
        "nequip.c",
        model.type_map,
        model.cutoff,
        model.dtype,
        widest_row=hidden * channels if config.layers > 1 else 0,
    )
    add_geometry(source, config.lmax)
    source.add_double(shift=model.shift, scale=model.scale.expand(len(model.type_map)))
    tables = RadialTables(model, [layer.convolution.radial for layer in layers])
    rows = [
        _LayerExport(source, model, number, irreps).entries(tables)
        for number in range(config.layers)
    ]
    source.files["layers.h"] = layers_header(rows, irreps)
    source.settings |= {
        "STK_CHANNELS": channels,
        "STK_LAYERS": config.layers,
        "STK_LMAX": config.lmax,
        "STK_LAST_HIDDEN": len(irreps) - 1,
        "STK_HIDDEN": hidden,
        "STK_STORED": hidden + sum(irrep.degree > 0 for irrep in irreps),
        **tables.settings(),
        "STK_MOST_WEIGHTS": max(layer.convolution.spec.weight_numel for layer in layers),
        "STK_MOST_ROWS": max(num_rows(layer.convolution.spec) for layer in layers),
        "STK_GATE": 0,
        "STK_GATE_SCALE": silu_scale(),
        "STK_ODD_SCALE": activation_scale("tanh"),
    }
    source.add_pair_repulsion(model.repulsion, 1.0)
    return source


class _LayerExport:
    """Kernels and arrays of a layer.

    Args:
        source: to which they are added.
        model: the model.
        number: of the layer.
        irreps: of the rows of features between layers.
    """

    def __init__(
        self, source: LibrarySource, model: Nequip, number: int, irreps: Sequence[Irrep]
    ) -> None:
        self._source, self._model, self._number = source, model, number
        self._layer, self._irreps = _layers(model)[number], irreps
        self._gated = [irrep for irrep in irreps if irrep.degree]

    def entries(self, tables: RadialTables) -> dict[str, str]:
        """Return the layer's entries in layers.h."""
        model, layer, number = self._model, self._layer, self._number
        convolution, types = layer.convolution, len(model.type_map)
        neighbours, embedding = float(model.average_neighbours), model.embedding.double()
        spec, order = self._reordered()
        matrices = {"down": mixing(convolution.down, neighbours**-0.5)}
        table = tables.table(convolution.radial)
        arrays = {"table": table[..., order]}
        up, shortcut = mixing(convolution.up), species_mixing(layer.shortcut, types)
        copied = [irrep for irrep in self._irreps if irrep in layer.irreps_shared]
        last_kept = self._irreps.index(copied[-1])
        if number:
            matrices["up"] = _padded(up, convolution.up.irreps, self._irreps)
            blocks = _padded(
                shortcut.unflatten(0, (-1, types)),
                layer.shortcut.irreps,
                self._irreps[: last_kept + 1],
            )
            matrices["shortcut"] = blocks.flatten(0, 1)
        else:
            self._source.add(embedded=embedding @ up[0])
            arrays["shortcut"] = torch.einsum("tc,tck->tk", embedding, shortcut)
        if layer.gated:
            gates, gates_shortcut = (
                _padded(blocks, layer.gated, self._gated)
                for blocks in _gates(layer, neighbours, types)
            )
            matrices["gates"] = gates
            if number:
                matrices["gates_shortcut"] = gates_shortcut
            else:
                first = torch.einsum("tc,gtck->tgk", embedding, gates_shortcut)
                arrays["gates_shortcut"] = first
        last = number == len(model.layers) - 1
        if last:
            inputs, width = model.hidden.shape
            combined = model.hidden.double() @ model.output.double()
            arrays["readout"] = combined / math.sqrt(inputs * width)
        return {
            **add_convolution(self._source, number, spec, self._irreps),
            **add_matrices(self._source, number, **matrices),
            **add_arrays(self._source, number, **arrays),
            "last_out": str(0 if last else len(self._irreps) - 1),
            "last_kept": str(last_kept),
            "reads_out": str(int(last)),
        }

    def _reordered(self) -> tuple[TensorProductSpec, Tensor]:
        """Return the tensor product on the rows between layers, and the order of its weights."""
        spec, channels = self._layer.convolution.spec, self._model.embedding.shape[1]
        features = self._irreps if self._number else self._irreps[:1]

        def places(path: Path) -> tuple[int, int, int]:
            left, out = spec.in1[path.in1], spec.out[path.out]
            i = self._irreps.index(Irrep(left.degree, left.parity))
            return self._irreps.index(Irrep(out.degree, out.parity)), i, path.in2

        paths = sorted(spec.paths, key=places)
        built = TensorProductSpec.build(
            irreps_text(features, channels),
            "+".join(map(str, spec.in2)),
            irreps_text([self._irreps[places(path)[0]] for path in paths], channels),
            [(places(path)[1], path.in2, k, "uvu", True) for k, path in enumerate(paths)],
        )
        columns = torch.arange(spec.weight_numel).view(-1, channels)
        offsets = [path.weight_offset // channels for path in paths]
        return built, columns[offsets].flatten()


def _padded(blocks: Tensor, present: Sequence[Irrep], irreps: Sequence[Irrep]) -> Tensor:
    """Return a block of each irrep, zero where it is not present."""
    out = blocks.new_zeros(len(irreps), *blocks.shape[1:])
    out[[irreps.index(irrep) for irrep in present]] = blocks
    return out


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
