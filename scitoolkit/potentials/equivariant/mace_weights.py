"""Weights of mace-torch models: a state dict's hyper-parameters are read from its shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.errors import DataError, missing_extra
from scitoolkit.ops.symmetric_contraction.coupling import basis, monomials
from scitoolkit.potentials.equivariant.mace import Mace, MaceConfig, MaceLayer

State = Mapping[str, Tensor]


def read_mace(state: State, *, average_neighbours: float, precision: str = "float32") -> Mace:
    """Return the model of a mace-torch state dict, with the same energies and forces.

    Models of the kinds MACE and ScaleShiftMACE with Bessel functions, one head, and interactions
    RealAgnosticResidual (or RealAgnostic in the first layer) are understood.

    Args:
        state: `model.state_dict()` of the mace-torch model.
        average_neighbours: its `avg_num_neighbors`, which no state dict holds:
            `model.interactions[0].avg_num_neighbors`.
        precision: float32 or float64.

    Raises:
        DataError: a kind of model that is not understood.
    """
    try:
        from ase.data import chemical_symbols
    except ImportError:
        raise missing_extra("ase", "potentials", "reading mace-torch weights") from None
    if any(name.startswith("pair_repulsion") for name in state):
        raise DataError("its pair repulsion (another screening than model.zbl) is not built here")
    config = MaceConfig(precision=precision, **_hyper_parameters(state))
    type_map = [chemical_symbols[number] for number in state["atomic_numbers"].tolist()]
    model = Mace(config, type_map)
    with torch.no_grad():
        _copy(model.embedding, _take(state, "node_embedding.linear.weight"))
        for number, layer in enumerate(model.layers):
            _read_layer(layer, state, number, len(type_map))  # type: ignore[arg-type]
        model.shift.copy_(_take(state, "atomic_energies_fn.atomic_energies").reshape(-1))
        model.average_neighbours.fill_(average_neighbours)
        if "scale_shift.scale" in state:
            model.scale.copy_(state["scale_shift.scale"].reshape(()))
            model.shift += state["scale_shift.shift"].reshape(())
    return model.eval()


def _take(state: State, name: str) -> Tensor:
    if name not in state:
        raise DataError(
            f"the state dict has no {name}",
            allowed="MACE or ScaleShiftMACE with RealAgnostic(Residual)InteractionBlock",
        )
    return state[name]


def _copy(parameter: Tensor, values: Tensor) -> None:
    if parameter.numel() != values.numel():
        raise DataError(f"a weight of {values.numel()} numbers where {parameter.numel()} belong")
    parameter.copy_(values.reshape(parameter.shape))


def _hyper_parameters(state: State) -> dict[str, Any]:
    layers, types = int(_take(state, "num_interactions")), len(_take(state, "atomic_numbers"))
    channels = _take(state, "node_embedding.linear.weight").numel() // types
    cutoff = float(_take(state, "r_max"))
    frequencies = _take(state, "radial_embedding.bessel_fn.bessel_weights").double()
    expected = math.pi / cutoff * torch.arange(1, len(frequencies) + 1)
    if not torch.allclose(frequencies, expected.double(), rtol=1e-5):
        raise DataError("trained Bessel frequencies", allowed="n pi / r_max")
    contraction = "products.0.symmetric_contractions.contractions"
    size = _take(state, f"{contraction}.0.U_matrix_1").shape[0]
    outputs = sum(f"{contraction}.{i}.U_matrix_1" in state for i in range(9))
    orders = sum(f"{contraction}.0.U_matrix_{nu}" in state for nu in range(1, 9))
    radial, number = [], 0
    while (name := f"interactions.0.conv_tp_weights.layer{number}.weight") in state:
        radial.append(state[name].shape[1])
        number += 1
    shortcut = _take(state, "interactions.0.skip_tp.weight").numel()
    last = f"readouts.{layers - 1}.linear_2.weight"
    width = {"readout_width": _take(state, last).numel()} if layers > 1 else {}
    return {
        **width,
        "cutoff": cutoff,
        "channels": channels,
        "lmax": math.isqrt(size) - 1,
        "lmax_hidden": outputs - 1,
        "correlation": orders,
        "layers": layers,
        "num_basis": len(frequencies),
        "envelope": int(_take(state, "radial_embedding.cutoff_fn.p")),
        "radial_widths": radial[:-1],
        "first_residual": shortcut == channels * channels * types,
    }


def _read_layer(layer: MaceLayer, state: State, number: int, num_types: int) -> None:
    name, product = f"interactions.{number}", f"products.{number}"
    _read_linear(layer.convolution.up, _take(state, f"{name}.linear_up.weight"))
    _read_linear(layer.convolution.down, _take(state, f"{name}.linear.weight"))
    for k, weight in enumerate(layer.convolution.radial.weight):
        _copy(weight, _take(state, f"{name}.conv_tp_weights.layer{k}.weight"))
    shortcut = _take(state, f"{name}.skip_tp.weight")
    parts = shortcut.chunk(len(layer.shortcut.weight))
    for weight, part in zip(layer.shortcut.weight, parts, strict=True):
        channels = weight.shape[1]
        _copy(weight, part.reshape(channels, num_types, channels).transpose(0, 1))
    _read_product(layer, state, f"{product}.symmetric_contractions.contractions")
    _read_linear(layer.product.mix, _take(state, f"{product}.linear.weight"))
    names = ["linear"] if len(layer.readout.weight) == 1 else ["linear_1", "linear_2"]
    for weight, each in zip(layer.readout.weight, names, strict=True):
        _copy(weight, _take(state, f"readouts.{number}.{each}.weight"))


def _read_linear(linear: torch.nn.Module, flat: Tensor) -> None:
    sizes = [weight.numel() for weight in linear.weight]  # type: ignore[union-attr]
    for weight, part in zip(linear.weight, flat.split(sizes), strict=True):  # type: ignore[arg-type]
        _copy(weight, part)


def _read_product(layer: MaceLayer, state: State, name: str) -> None:
    spec, start = layer.product.spec, 0
    for position, (out, order, count) in enumerate(spec.blocks):
        if not count:
            continue
        prefix = f"{name}.{position // spec.correlation}"
        place = spec.correlation - order - 1
        key = "weights_max" if order == spec.correlation else f"weights.{place}"
        change = _change_of_basis(
            _take(state, f"{prefix}.U_matrix_{order}").double().numpy(),
            basis(spec.irreps_in, out, order), spec.dim_in, order,
        )  # fmt: skip
        weights = _take(state, f"{prefix}.{key}").double()
        layer.product.weight[:, start : start + count] = torch.from_numpy(change) @ weights
        start += count


def _change_of_basis(theirs: np.ndarray, ours: np.ndarray, size: int, order: int) -> np.ndarray:
    """Return the matrix from weights of their paths to weights of ours, for equal products.

    Same paths differ at most in sign, by the convention of the 3j symbols; another basis of the
    same polynomials (mace-torch's reduced one) is expressed in ours by least squares.
    """
    paths = theirs.shape[-1]
    places = {each: i for i, each in enumerate(monomials(size, order))}
    index = [places[tuple(sorted(each))] for each in np.ndindex(*(size,) * order)]
    summed = np.zeros((ours.shape[0], ours.shape[1], paths))
    np.add.at(summed, (slice(None), index), theirs.reshape(ours.shape[0], -1, paths))  # type: ignore[arg-type]
    if summed.shape == ours.shape:
        signs = np.where((summed * ours).sum((0, 1)) < 0, -1.0, 1.0)
        if np.allclose(summed, ours * signs, atol=1e-5):
            return np.diag(signs)
    target, source = summed.reshape(-1, paths), ours.reshape(-1, ours.shape[-1])
    change = np.linalg.lstsq(source, target, rcond=1e-8)[0]
    if not np.allclose(source @ change, target, atol=1e-4):
        raise DataError(f"products of order {order} that are not symmetric polynomials")
    return change
