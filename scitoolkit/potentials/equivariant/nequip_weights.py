"""Reading of checkpoints of nequip: settings to a configuration, weights to those of the layers.

Symbols: C channels here, of all irreps; mul multiplicity in nequip, where irreps may have fewer
channels. Missing channels are zero in every weight, so that they stay zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.irreps import Irrep
from scitoolkit.ops.wigner import wigner_3j
from scitoolkit.potentials.consumed import ConsumedState
from scitoolkit.potentials.equivariant.layers import silu_scale
from scitoolkit.potentials.equivariant.nequip import Nequip, NequipLayer
from scitoolkit.potentials.equivariant.nequip_config import NequipConfig
from scitoolkit.potentials.equivariant.nequip_file import (
    open_nequip,
    unsupported,
)

UNDERSTOOD = "NequIPGNNModel or PresetNequIPGNNModel of nequip 0.17 to 0.19"
Multiplicities = list[tuple[int, Irrep]]


def read_nequip(source: Path | str, *, precision: str | None = None) -> Nequip:
    """Return the model of a checkpoint of `nequip-train`, with the same energies and forces.

    Energies are in eV and distances in Å if those of the training data were. Options that the
    network here does not have, and tensors that no layer reads, raise an error.

    Args:
        source: `.ckpt` file. Pickled code in it is not executed.
        precision: float32 or float64; by default that of the model (`model_dtype`).

    Raises:
        DataError: a damaged file, or a model that is not supported.
    """
    checkpoint = open_nequip(source)
    settings, where = checkpoint.settings, checkpoint.where
    state = ConsumedState(checkpoint.state, where)
    try:
        config = _config(settings, state, precision)
        _check_sizes(config, settings, state)
        model = Nequip(config, [str(name) for name in settings["type_names"]])
        with torch.no_grad():
            _read(model, settings, state)
    except ConfigError as error:
        raise DataError(f"not supported: {error}", where=where) from None
    state.finish(UNDERSTOOD)
    return model.eval()


def _config(settings: dict[str, Any], state: ConsumedState, precision: str | None) -> NequipConfig:
    lmax, features, layers = settings["l_max"], settings["num_features"], settings["num_layers"]
    where = state.where
    if lmax > 3:
        raise unsupported("l_max", lmax, "0 to 3", where)
    if settings["radial_mlp_depth"] < 1:
        raise unsupported("radial_mlp_depth", settings["radial_mlp_depth"], "1 or more", where)
    power = _power("polynomial_cutoff_p", settings["polynomial_cutoff_p"], where)
    number = settings["num_bessels"]
    roots = state.take("bessel_encode.bessel_weights", (1, number)).flatten().double()
    if not torch.equal(roots, torch.arange(1, number + 1).double()):
        raise unsupported("bessel_trainable", "true, with trained roots", "false", where)
    return NequipConfig(
        cutoff=settings["r_max"],
        channels=max(*features, settings["type_embed_num_features"]),
        lmax=lmax,
        layers=layers,
        num_basis=number,
        envelope=power,
        radial_widths=[settings["radial_mlp_width"]] * settings["radial_mlp_depth"],
        readout_width=1,
        parity=settings["parity"],
        species_scale=state.take("per_type_energy_scale_shift.scales").numel() > 1,
        repulsion_envelope=_repulsion_power(settings["pair_potential"], where),
        precision=precision or settings["model_dtype"],
    )


def _power(option: str, value: float, where: str) -> int:
    if value != int(value):
        raise unsupported(option, value, "a whole number", where)
    return int(value)


def _repulsion_power(potential: dict[str, Any] | None, where: str) -> int | None:
    if potential is None:
        return None
    kind, units = str(potential["_target_"]).rpartition(".")[2], potential.get("units")
    if (kind, units) != ("ZBL", "metal"):
        value = f"{potential['_target_']} with units: {units}"
        raise unsupported("pair_potential", value, "nequip.nn.pair_potential.ZBL, metal", where)
    power = potential.get("polynomial_cutoff_p", 6)
    return _power("pair_potential.polynomial_cutoff_p", power, where)


def _check_sizes(config: NequipConfig, settings: dict[str, Any], state: ConsumedState) -> None:
    """Compare the settings with sizes in the file before tensors of these sizes are allocated."""
    types, embedded = len(settings["type_names"]), settings["type_embed_num_features"]
    width = settings["radial_mlp_width"]
    state.take("type_embed.embed_module.weight", (types, embedded))
    for number in range(config.layers):
        first = state.take(f"layer{number}_convnet.conv.edge_mlp.mlp.0.weight")
        state.take(f"layer{number}_convnet.conv.linear_1.weight")
        if first.shape != (config.num_basis, width):
            raise DataError(
                f"the radial network of layer {number} has shape {tuple(first.shape)}",
                where=state.where,
                allowed=f"({config.num_basis}, {width}) by num_bessels and radial_mlp_width",
            )
        last = f"layer{number}_convnet.conv.edge_mlp.mlp.{2 * settings['radial_mlp_depth']}.weight"
        state.take(last)
    state.take("per_atom_energy_readout.mlp_module.mlp.0.weight", (settings["num_features"][0], 1))
    sizes = sum(mul**2 for mul, _ in _hidden(settings))
    if config.layers > 1:
        second = state.take("layer1_convnet.conv.linear_1.weight")
        if not sum(mul**2 for mul in settings["num_features"]) <= second.numel() <= 2 * sizes:
            raise DataError(
                f"layer1_convnet.conv.linear_1.weight has {second.numel()} values",
                where=state.where,
                allowed=f"multiplicities num_features {settings['num_features']}",
            )


def _hidden(settings: dict[str, Any]) -> Multiplicities:
    """Return the irreps of features that nequip asks for in each layer but the last."""
    parities = (1, -1) if settings["parity"] else (None,)
    return [
        (mul, Irrep(degree, (-1) ** degree if parity is None else parity))
        for degree, mul in enumerate(settings["num_features"])
        for parity in parities
    ]


def _read(model: Nequip, settings: dict[str, Any], state: ConsumedState) -> None:
    embedding = state.take("type_embed.embed_module.weight").double()
    model.embedding.zero_()[:, : embedding.shape[1]] = embedding
    reciprocal = state.take("edge_norm._rmax_recip", ())
    if not math.isclose(float(reciprocal) * model.cutoff, 1, rel_tol=1e-12):
        raise DataError(f"r_max {model.cutoff} is not 1 / {reciprocal}", where=state.where)
    features: Multiplicities = [(embedding.shape[1], Irrep(0, 1))]
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, NequipLayer)
        last = number == len(model.layers) - 1
        wanted = [(settings["num_features"][0], Irrep(0, 1))] if last else _hidden(settings)
        reader = _LayerReader(layer, state, number, features, wanted)
        reader.read(model, embedding, first=number == 0)
        features = reader.features_out
    _read_energies(model, state)
    average = settings["avg_num_neighbors"]
    values = set(average.values()) if isinstance(average, dict) else {average}
    if len(values) > 1:
        raise unsupported("avg_num_neighbors", average, "one number for all types", state.where)
    model.average_neighbours.fill_(float(values.pop()))
    _structure(state)


def _read_energies(model: Nequip, state: ConsumedState) -> None:
    weight = state.take("per_atom_energy_readout.mlp_module.mlp.0.weight").double()
    model.hidden.zero_()[: len(weight)] = weight * math.sqrt(len(model.hidden) / len(weight))
    model.output.fill_(1.0)
    scales, shifts = (
        state.take(f"per_type_energy_scale_shift.{name}").flatten().double()
        for name in ("scales", "shifts")
    )
    if scales.numel():
        model.scale.copy_(scales if model.scale.ndim else scales[0])
    if shifts.numel():
        model.shift.copy_(shifts.expand(len(model.shift)))
    if model.repulsion is not None:
        factor = 2 * float(state.take("pair_potential._qqr2exesquare", ()))
        if not math.isclose(factor, model.repulsion.constants.coulomb, rel_tol=1e-12):
            raise unsupported("pair_potential.units", f"{factor} eV Å", "metal", state.where)
        charges = model.repulsion.get_buffer("charges")
        charges.copy_(state.take("pair_potential.atomic_numbers", tuple(charges.shape)))


class _LayerReader:
    """Reader of one layer.

    Args:
        layer: whose weights are set.
        state: of the file.
        number: of the layer.
        features: multiplicities of the incoming irreps in nequip, in its order.
        wanted: irreps of the features that the layer may return.

    Attributes:
        features_out: multiplicities of the irreps of its features in nequip, in its order.
    """

    def __init__(
        self,
        layer: NequipLayer,
        state: ConsumedState,
        number: int,
        features: Multiplicities,
        wanted: Multiplicities,
    ) -> None:
        self._layer, self._state, self._features = layer, state, features
        self._name = f"layer{number}_convnet.conv"
        edges = [segment.degree for segment in layer.convolution.spec.in2]
        harmonics = [Irrep(degree, (-1) ** degree) for degree in edges]
        reached = {
            out for _, irrep in features for edge in harmonics for out in irrep.product(edge)
        }
        present = [(mul, irrep) for mul, irrep in wanted if irrep in reached]
        scalars = [entry for entry in present if entry[1].degree == 0]
        gated = [entry for entry in present if entry[1].degree > 0]
        self.features_out: Multiplicities = scalars + gated
        # Rows of the second channel mixing and of the shortcut: scalars, gates, gated.
        self._gates: list[tuple[int, Irrep]] = gated
        gates = [(mul, Irrep(0, 1)) for mul, _ in gated]
        self._columns: Multiplicities = _merged([*scalars, *gates, *gated])
        self._scalars = scalars
        kinds = {irrep for _, irrep in self._columns}
        # A path is (number of the incoming irrep in nequip, degree of the edge, outgoing irrep).
        self._paths = [
            (i, edge.degree, out)
            for i, (_, irrep) in enumerate(features)
            for edge in harmonics
            for out in irrep.product(edge)
            if out in kinds
        ]

        spec, order = layer.convolution.spec, [irrep for _, irrep in features]
        self._our_paths = [
            (
                order.index(Irrep(spec.in1[path.in1].degree, spec.in1[path.in1].parity)),
                spec.in2[path.in2].degree,
                Irrep(spec.out[path.out].degree, spec.out[path.out].parity),
            )
            for path in spec.paths
        ]

    def read(self, model: Nequip, attributes: Tensor, first: bool) -> None:
        """Set the weights; `attributes` are nequip's embeddings of the species, (T, width)."""
        self._read_up()
        self._read_radial(model)
        layer, channels = self._layer, self._layer.convolution.up.weight[0].shape[1]
        blocks = self._down_blocks(channels)
        for irrep, weight in zip(layer.irreps_out, layer.convolution.down.weight, strict=True):
            weight.zero_()
            self._place(weight, blocks[irrep], irrep)
        if layer.gated:
            self._place_gates(layer.gates.weight[0].zero_(), blocks[Irrep(0, 1)])
        for weight in (
            *layer.shortcut.weight,
            *(layer.gates_shortcut.weight if layer.gated else ()),
        ):
            weight.zero_()
        if not first:
            self._read_shortcut(attributes)

    def _read_up(self) -> None:
        """The first channel mixing: a square matrix of each irrep."""
        up = self._layer.convolution.up.weight
        flat = self._take("linear_1.weight", [mul**2 for mul, _ in self._features])
        ours = dict(zip(self._irreps_in(), up, strict=True))
        for (mul, irrep), part in zip(self._features, flat, strict=True):
            weight = ours[irrep]
            scale = math.sqrt(weight.shape[0] / mul)
            weight.zero_()[:mul, :mul] = part.view(mul, mul) * scale

    def _read_radial(self, model: Nequip) -> None:
        """The radial network, whose last columns are in the order of nequip's paths.

        nequip's basis is 2 pi n sinc(n r / c) / c², that here sqrt(2 / c) pi n sinc(n r / c) / c;
        its hidden layers have the gain sqrt(2) instead of the normalisation of silu.
        """
        spec, weights = self._layer.convolution.spec, self._layer.convolution.radial.weight
        muls = [self._features[i][0] for i, _, _ in self._paths]
        for k, weight in enumerate(weights):
            shape = tuple(weight.shape) if k < len(weights) - 1 else (len(weight), sum(muls))
            theirs = self._state.take(f"{self._name}.edge_mlp.mlp.{2 * k}.weight", shape).double()
            factor = math.sqrt(2) / silu_scale() if k else math.sqrt(2 / model.cutoff)
            if k < len(weights) - 1:
                weight.copy_(theirs * factor)
                continue
            columns = dict(zip(self._paths, theirs.split(muls, dim=1), strict=True))
            weight.zero_()
            for path, key in zip(spec.paths, self._our_paths, strict=True):
                part = columns[key]
                weight[:, path.weight_offset : path.weight_offset + part.shape[1]] = part * factor

    def _down_blocks(self, channels: int) -> dict[Irrep, Tensor]:
        """Return the second channel mixing of each irrep, (copies C, mul of its columns)."""
        theirs = {irrep: [p for p in self._paths if p[2] == irrep] for _, irrep in self._columns}
        ours = {irrep: [p for p in self._our_paths if p[2] == irrep] for irrep in theirs}
        muls = {path: self._features[path[0]][0] for path in self._paths}
        totals = [sum(muls[path] for path in theirs[irrep]) for _, irrep in self._columns]
        sizes = [total * mul for total, (mul, _) in zip(totals, self._columns, strict=True)]
        blocks, parts = {}, self._take("linear_2.weight", sizes)
        for (mul, irrep), total, part in zip(self._columns, totals, parts, strict=True):
            rows = part.view(total, mul).split([muls[path] for path in theirs[irrep]])
            padded = part.new_zeros(len(rows), channels, mul)
            for path, row in zip(theirs[irrep], rows, strict=True):
                padded[ours[irrep].index(path), : len(row)] = row
            # Both divide by the square root of the number of rows, which differ by the padding.
            blocks[irrep] = padded.flatten(0, 1) * math.sqrt(len(rows) * channels / total)
        return blocks

    def _read_shortcut(self, attributes: Tensor) -> None:
        """The shortcut: nequip multiplies features, attributes of the species and weights."""
        layer, (types, width) = self._layer, attributes.shape
        columns = {irrep: mul for mul, irrep in self._columns}
        shared = [(mul, irrep, columns[irrep]) for mul, irrep in self._features if irrep in columns]
        parts = self._take("sc.weight", [mul_in * width * mul for mul_in, _, mul in shared])
        blocks, channels = {}, layer.shortcut.weight[0].shape[1]
        for (mul_in, irrep, mul), part in zip(shared, parts, strict=True):
            of_species = torch.einsum("tv,uvw->tuw", attributes, part.view(mul_in, width, mul))
            blocks[irrep] = part.new_zeros(types, channels, mul)
            scale = math.sqrt(channels * types / (mul_in * width))
            blocks[irrep][:, :mul_in] = of_species * scale
        for irrep, weight in zip(layer.irreps_shared, layer.shortcut.weight, strict=True):
            self._place(weight, blocks[irrep], irrep)
        if layer.gated:
            self._place_gates(layer.gates_shortcut.weight[0], blocks[Irrep(0, 1)])

    def _place(self, weight: Tensor, block: Tensor, irrep: Irrep) -> None:
        """Set the columns of an irrep; those of 0e are followed by the gates."""
        mul = next(mul for mul, entry in self.features_out if entry == irrep)
        weight[..., :mul] = block[..., :mul]

    def _place_gates(self, weight: Tensor, block: Tensor) -> None:
        """Set the columns of the gates: C of each gated irrep here, fewer in nequip."""
        irreps = [irrep for irrep in self._layer.irreps_out if irrep.degree]
        channels = weight.shape[-1] // len(irreps)
        start = sum(mul for mul, irrep in self._scalars if irrep == Irrep(0, 1))
        for mul, irrep in self._gates:
            at = irreps.index(irrep) * channels
            weight[..., at : at + mul] = block[..., start : start + mul]
            start += mul

    def _irreps_in(self) -> list[Irrep]:
        return [Irrep(s.degree, s.parity) for s in self._layer.convolution.spec.in1]

    def _take(self, name: str, sizes: Sequence[int]) -> tuple[Tensor, ...]:
        flat = self._state.take(f"{self._name}.{name}", (sum(sizes),))
        return flat.double().split(list(sizes))


def _merged(irreps: Multiplicities) -> Multiplicities:
    """Return sorted irreps, with the multiplicities of equal ones added."""
    sums: dict[Irrep, int] = {}
    for mul, irrep in irreps:
        sums[irrep] = sums.get(irrep, 0) + mul
    return [(sums[irrep], irrep) for irrep in sorted(sums)]


def _structure(state: ConsumedState) -> None:
    """Check the entries that the irreps determine: masks, empty tensors, coupling constants."""
    for name in state.unread():
        value = state.take(name) if name.endswith(("output_mask", ".bias", ".weight")) else None
        degrees = name.rpartition("_w3j_")[2].split("_") if "_w3j_" in name else []
        if value is not None and (name.endswith("output_mask") or not value.numel()):
            continue
        if len(degrees) == 3:
            constants = wigner_3j(*(int(degree) for degree in degrees))
            if np.allclose(state.take(name).double().numpy(), constants, atol=1e-5):
                continue
        raise DataError(f"{name}, which no layer here reads", where=state.where, allowed=UNDERSTOOD)
