"""Reading of mace-torch weights; hyperparameters are inferred from a state dict's shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError, DataError, missing_extra
from scitoolkit.core.suggest import nearest_name
from scitoolkit.ops.symmetric_contraction.coupling import basis
from scitoolkit.ops.wigner import wigner_3j
from scitoolkit.potentials.consumed import ConsumedState
from scitoolkit.potentials.equivariant.layers import Readout
from scitoolkit.potentials.equivariant.mace import Mace, MaceLayer
from scitoolkit.potentials.equivariant.mace_config import MaceConfig
from scitoolkit.potentials.equivariant.mace_file import INTERACTIONS, MaceSettings, open_mace
from scitoolkit.potentials.equivariant.radial_functions import DistanceTransform
from scitoolkit.potentials.peers.convert_mace import symmetrised

State = Mapping[str, Tensor]
UNDERSTOOD = f"MACE or ScaleShiftMACE with {', '.join(INTERACTIONS)}"
UNSUPPORTED = {  # part of a key: option of mace-torch that makes it
    "joint_embedding": "embedding_specs (charges, spins)",
    "embedding_readout": "use_embedding_readout",
    "linear_down": "RealAgnosticAttResidualInteractionBlock",
    "linear_res": "RealAgnosticResidualNonLinearInteractionBlock",
    "linear_mid": "NonLinearBiasReadoutBlock",
    "lora_": "lora (merge it into the weights first)",
    "les.": "MACELES",
}


def read_mace(
    source: State | nn.Module | Path | str,
    *,
    average_neighbours: float | None = None,
    gate: str | None = None,
    apply_cutoff: bool | None = None,
    head: str | int | None = None,
    precision: str = "float32",
) -> Mace:
    """Return the model of mace-torch weights, with the same energies and forces.

    Supports MACE and ScaleShiftMACE with the options of the page "Come from mace-torch". Other
    options and unknown keys raise an error.

    Args:
        source: a file written by `scitoolkit.potentials.peers.convert_mace` (in mace-torch's
            environment, from a `.model` file), a mace-torch model, or its `state_dict()`.
        average_neighbours: for a state dict: `model.interactions[0].avg_num_neighbors`.
        gate: for a state dict: silu, tanh, abs or none, as `--gate` of the training.
        apply_cutoff: for a state dict: as `--apply_cutoff`, True by default.
        head: name or index of the head, required if there are several.
        precision: float32 or float64.

    Raises:
        DataError: the model is not supported, or a setting is missing.
    """
    try:
        from ase.data import chemical_symbols
    except ImportError:
        raise missing_extra("ase", "potentials", "reading mace-torch weights") from None
    stated = MaceSettings(average_neighbours, gate, apply_cutoff)
    tensors, settings, where = open_mace(source, stated)
    state = ConsumedState(tensors, where)
    _refuse_unsupported(tensors, where)
    _read_structure(state, tensors)
    config = _config(state, settings, precision)
    numbers = state.take("atomic_numbers")
    model = Mace(config, [chemical_symbols[number] for number in numbers.tolist()])
    heads, chosen = _head(state, settings, head)
    with torch.no_grad():
        _copy(model.embedding, state, "node_embedding.linear.weight")
        _read_transform(model.transform, state, numbers)
        _read_repulsion(model, state, numbers)
        layers = [layer for layer in model.layers if isinstance(layer, MaceLayer)]
        for number, layer in enumerate(layers):
            _read_layer(layer, state, number, len(numbers))
        _read_readouts([layer.readout for layer in layers], state, heads, chosen)
        energies = state.take("atomic_energies_fn.atomic_energies")
        model.shift.copy_(energies.reshape(heads, -1)[chosen])
        if not (config.first_density and (config.density or config.layers == 1)):
            model.average_neighbours.fill_(
                settings.need("average_neighbours", "the average number of neighbours")
            )
        if "scale_shift.scale" in state:
            model.scale.copy_(_of_head(state.take("scale_shift.scale"), chosen))
            model.shift += _of_head(state.take("scale_shift.shift"), chosen)
    state.finish(UNDERSTOOD)
    return model.eval()


def _config(state: ConsumedState, settings: MaceSettings, precision: str) -> MaceConfig:
    parameters = _hyper_parameters(state, settings)
    try:
        return MaceConfig(**{**parameters, "precision": precision})
    except ConfigError as error:
        raise DataError(f"not supported: {error}", where=state.where) from None


def _of_head(values: Tensor, head: int) -> Tensor:
    return values if values.ndim == 0 else values[min(head, len(values) - 1)]


def _refuse_unsupported(state: State, where: str) -> None:
    for part, option in UNSUPPORTED.items():
        if any(part in name for name in state):
            raise DataError(f"{option} is not supported", where=where, allowed=UNDERSTOOD)


def _read_structure(state: ConsumedState, tensors: State) -> None:
    """Check the entries determined by the irreps: empty biases, masks and coupling constants."""
    for name in tensors:
        if name.endswith((".output_mask", "_zeroed")):
            state.take(name)
        elif name.endswith((".bias", ".conv_tp.weight")):
            state.take(name, (0,))
        elif degrees := re.search(r"_w3j_(\d+)_(\d+)_(\d+)$", name):
            constants = wigner_3j(*(int(degree) for degree in degrees.groups()))
            if not np.allclose(state.take(name).double().numpy(), constants, atol=1e-5):
                raise DataError(f"{name} differs from the coupling constants here")


def _head(
    state: ConsumedState, settings: MaceSettings, wanted: str | int | None
) -> tuple[int, int]:
    """Return the number of heads and the index of the chosen one.

    Raises:
        DataError: none of several heads is chosen, or the chosen one does not exist.
    """
    energies = state.take("atomic_energies_fn.atomic_energies")
    number = 1 if energies.ndim == 1 else len(energies)
    names = settings.heads or tuple(str(place) for place in range(number))
    if wanted is None and number == 1:
        return 1, 0
    if wanted is not None and str(wanted) in names:
        return number, names.index(str(wanted))
    if isinstance(wanted, int) and 0 <= wanted < number:
        return number, wanted
    raise DataError(
        f"{number} heads" if wanted is None else f"no head {wanted!r}",
        where=state.where,
        allowed=", ".join(names),
        fix=f"head={nearest_name(str(wanted), list(names)) or names[0]!r}",
    )


def _copy(parameter: Tensor, state: ConsumedState, name: str) -> None:
    """Copy a weight, which must have the same number of values."""
    values = state.take(name)
    if parameter.numel() != values.numel():
        raise DataError(
            f"{name} has {values.numel()} values instead of {parameter.numel()} (edge_irreps, "
            "other hidden irreps than Cx0e + Cx1o + ..., or keep_last_layer_irreps?)",
            where=state.where,
            allowed=UNDERSTOOD,
        )
    parameter.copy_(values.reshape(parameter.shape))


def _hyper_parameters(state: ConsumedState, settings: MaceSettings) -> dict[str, Any]:
    layers, types = int(state.take("num_interactions")), len(state.take("atomic_numbers"))
    channels = state.take("node_embedding.linear.weight").numel() // types
    contraction = "products.0.symmetric_contractions.contractions"
    size = state.take(f"{contraction}.0.U_matrix_1").shape[0]
    outputs = sum(f"{contraction}.{i}.U_matrix_1" in state for i in range(9))
    radial, number = [], 0
    while (name := f"interactions.0.conv_tp_weights.layer{number}.weight") in state:
        radial.append(state.take(name).shape[1])
        number += 1
    parameters = {
        **_radial_settings(state),
        "apply_cutoff": settings.need("apply_cutoff", "apply_cutoff (True unless changed)"),
        "channels": channels,
        "lmax": math.isqrt(size) - 1,
        "lmax_hidden": outputs - 1,
        "correlation": sum(f"{contraction}.0.U_matrix_{nu}" in state for nu in range(1, 9)),
        "layers": layers,
        "radial_widths": radial[:-1],
        "pair_repulsion": "pair_repulsion_fn.c" in state,
    }
    blocks = [_block(state, number, parameters, settings) for number in range(layers)]
    if len(set(blocks[1:])) > 1:
        raise DataError("layers with different blocks after the first", where=state.where)
    parameters["first_residual"], parameters["first_density"] = blocks[0]
    if layers > 1:
        parameters["residual"], parameters["density"] = blocks[1]
        parameters |= _readout_settings(state, layers, settings)
    return parameters


def _readout_settings(state: ConsumedState, layers: int, settings: MaceSettings) -> dict[str, Any]:
    energies = state.take("atomic_energies_fn.atomic_energies")
    heads = 1 if energies.ndim == 1 else len(energies)
    last = 0 if "readouts.0.linear_1.weight" in state else layers - 1
    width = state.take(f"readouts.{last}.linear_2.weight").numel() // heads**2
    return {"readout_width": width, "gate": settings.need("gate", "the gate of the last readout")}


def _radial_settings(state: ConsumedState) -> dict[str, Any]:
    """Return the settings of the radial basis, whose parameters must be untrained."""
    cutoff, name = float(state.take("r_max")), "radial_embedding"
    radial: dict[str, Any] = {"cutoff": cutoff, "envelope": int(state.take(f"{name}.cutoff_fn.p"))}
    _same(state, f"{name}.cutoff_fn.r_max", cutoff)
    kinds = {"bessel_weights": "bessel", "gaussian_weights": "gaussian", "n": "chebyshev"}
    key, radial["radial_type"] = next(
        (pair for pair in kinds.items() if f"{name}.bessel_fn.{pair[0]}" in state),
        ("bessel_weights", "bessel"),
    )
    values = state.take(f"{name}.bessel_fn.{key}").double().reshape(-1)
    number = radial["num_basis"] = len(values)
    count = torch.arange(1, number + 1).double()
    expected = {
        "bessel": math.pi / cutoff * count,
        "chebyshev": count,
        "gaussian": torch.linspace(0, cutoff, number, dtype=torch.float64),
    }[radial["radial_type"]]
    if not torch.allclose(values, expected, rtol=1e-5, atol=1e-6):
        raise DataError(
            f"trained {radial['radial_type'].title()} functions",
            where=state.where,
            allowed="n pi / r_max" if key == "bessel_weights" else "those of a new model",
        )
    if radial["radial_type"] == "bessel":
        _same(state, f"{name}.bessel_fn.r_max", cutoff)
        _same(state, f"{name}.bessel_fn.prefactor", math.sqrt(2 / cutoff))
    for symbol, transform in (("q", "agnesi"), ("alpha", "soft")):
        if f"{name}.distance_transform.{symbol}" in state:
            radial["distance_transform"] = transform
    return radial


def _same(state: ConsumedState, name: str, expected: float) -> None:
    value = float(state.take(name))
    if not math.isclose(value, expected, rel_tol=1e-5):
        raise DataError(f"{name} is {value}", where=state.where, allowed=f"{expected}")


def _block(
    state: ConsumedState, number: int, found: Mapping[str, Any], settings: MaceSettings
) -> tuple[bool, bool]:
    """Return (residual, density) of a layer.

    Raises:
        DataError: the shapes fit both a residual and a non-residual block.
    """
    if settings.interactions is not None:
        return INTERACTIONS[settings.interactions[number]]
    name = f"interactions.{number}"
    density, types = f"{name}.density_fn.layer0.weight" in state, len(state.take("atomic_numbers"))
    before = 1 if number == 0 else found["lmax_hidden"] + 1
    after = 1 if number == found["layers"] - 1 else found["lmax_hidden"] + 1
    square = types * found["channels"] ** 2
    sizes = {True: min(before, after) * square, False: (found["lmax"] + 1) * square}
    size = state.take(f"{name}.skip_tp.weight").numel()
    if sizes[True] == sizes[False]:
        raise DataError(
            f"{name}: the state dict does not show whether it is residual",
            where=state.where,
            fix="convert_mace in mace-torch's environment, or read_mace(model)",
        )
    if size not in sizes.values():
        raise DataError(
            f"{name}.skip_tp.weight has {size} values", where=state.where, allowed=UNDERSTOOD
        )
    return size == sizes[True], density


def _read_transform(
    transform: DistanceTransform | None, state: ConsumedState, numbers: Tensor
) -> None:
    if transform is None:
        return
    name = "radial_embedding.distance_transform"
    for key in dict(transform.named_buffers()):
        if key != "radii":
            transform.get_buffer(key).copy_(state.take(f"{name}.{key}", ()))
    radii = state.take(f"{name}.covalent_radii")[numbers].double()
    transform.radii.copy_(radii[:, None] + radii[None, :])


def _read_repulsion(model: Mace, state: ConsumedState, numbers: Tensor) -> None:
    if model.repulsion is None:
        return
    name = "pair_repulsion_fn"
    for ours, theirs in (("power", "a_exp"), ("prefactor", "a_prefactor"), ("amplitudes", "c")):
        buffer = model.repulsion.get_buffer(ours)
        buffer.copy_(state.take(f"{name}.{theirs}", tuple(buffer.shape)))
    _same(state, f"{name}.p", model.repulsion.envelope)
    radii = state.take(f"{name}.covalent_radii")[numbers].double()
    model.repulsion.get_buffer("radii").copy_(radii[:, None] + radii[None, :])


def _read_layer(layer: MaceLayer, state: ConsumedState, number: int, num_types: int) -> None:
    name, product = f"interactions.{number}", f"products.{number}"
    _read_linear(layer.convolution.up.weight, state, f"{name}.linear_up.weight")
    _read_linear(layer.convolution.down.weight, state, f"{name}.linear.weight")
    for k, weight in enumerate(layer.convolution.radial.weight):
        _copy(weight, state, f"{name}.conv_tp_weights.layer{k}.weight")
    if layer.density is not None:
        _copy(layer.density.weight[0], state, f"{name}.density_fn.layer0.weight")
    shape = [(weight.shape[1], num_types, weight.shape[2]) for weight in layer.shortcut.weight]
    parts = _split(state, f"{name}.skip_tp.weight", [math.prod(sizes) for sizes in shape])
    for weight, part, sizes in zip(layer.shortcut.weight, parts, shape, strict=True):
        weight.copy_(part.reshape(sizes).transpose(0, 1))
    _read_product(layer, state, f"{product}.symmetric_contractions.contractions")
    _read_linear(layer.product.mix.weight, state, f"{product}.linear.weight")


def _read_readouts(
    readouts: Sequence[Readout], state: ConsumedState, heads: int, head: int
) -> None:
    """Set the readouts to the columns of one head; those of layers without readout to zero."""
    last_only = len(readouts) > 1 and "readouts.0.linear_1.weight" in state
    for number, readout in enumerate(readouts):
        if last_only and number < len(readouts) - 1:
            for weight in readout.weight:
                weight.zero_()
            continue
        name = f"readouts.{0 if last_only else number}"
        if len(readout.weight) == 1:
            (only,) = readout.weight
            flat = state.take(f"{name}.linear.weight", (only.numel() * heads,))
            only.copy_(flat.view(-1, heads)[:, head, None])
            continue
        first, second = readout.weight
        width = len(second)
        flat = state.take(f"{name}.linear_1.weight", (first.numel() * heads,))
        first.copy_(flat.view(len(first), heads, width)[:, head])
        flat = state.take(f"{name}.linear_2.weight", (heads * width * heads,))
        # The fan-in includes all heads.
        second.copy_(flat.view(heads, width, heads)[head, :, head, None] / math.sqrt(heads))


def _split(state: ConsumedState, name: str, sizes: Sequence[int]) -> Sequence[Tensor]:
    flat = state.take(name).reshape(-1)
    if len(flat) != sum(sizes):
        raise DataError(
            f"{name} has {len(flat)} values instead of {sum(sizes)} (edge_irreps, "
            "other hidden irreps than Cx0e + Cx1o + ..., or keep_last_layer_irreps?)",
            where=state.where,
            allowed=UNDERSTOOD,
        )
    return flat.split(list(sizes))


def _read_linear(weights: Iterable[Tensor], state: ConsumedState, name: str) -> None:
    held = list(weights)
    parts = _split(state, name, [weight.numel() for weight in held])
    for weight, part in zip(held, parts, strict=True):
        weight.copy_(part.reshape(weight.shape))


def _read_product(layer: MaceLayer, state: ConsumedState, name: str) -> None:
    spec, start = layer.product.spec, 0
    for position, (out, order, count) in enumerate(spec.blocks):
        prefix = f"{name}.{position // spec.correlation}"
        place = spec.correlation - order - 1
        key = "weights_max" if order == spec.correlation else f"weights.{place}"
        theirs = state.take(f"{prefix}.U_matrix_{order}").double().numpy()
        lead = (2 * out[0] + 1,) if out[0] else ()
        if theirs.shape[:-1] != (*lead, *(spec.dim_in,) * order):
            raise DataError(
                f"{prefix}.U_matrix_{order} couples unsupported irreps",
                where=state.where,
                allowed="hidden irreps Cx0e + Cx1o + Cx2e + ...",
            )
        weights = state.take(f"{prefix}.{key}").double()
        types, _, channels = layer.product.weight.shape
        if weights.shape not in {(n, theirs.shape[-1], channels) for n in (1, types)}:
            raise DataError(f"{prefix}.{key} has shape {tuple(weights.shape)}", where=state.where)
        if not count:
            if theirs.any():
                raise DataError(
                    f"{prefix}: products of order {order} that have no path in this model"
                )
            continue
        ours = basis(spec.irreps_in, out, order)
        change = _change_of_basis(theirs, ours, spec.dim_in, order)
        layer.product.weight[:, start : start + count] = torch.from_numpy(change) @ weights
        start += count


def _change_of_basis(theirs: np.ndarray, ours: np.ndarray, size: int, order: int) -> np.ndarray:
    """Return the matrix from weights of mace-torch's paths to weights of the paths here.

    Equal paths differ at most in sign, by the convention of the 3j symbols. Another basis of the
    same polynomials, such as mace-torch's reduced one, is expressed in `ours` by least squares.
    """
    paths = theirs.shape[-1]
    summed = symmetrised(theirs, len(ours), size, order)
    if summed.shape == ours.shape:
        signs = np.where((summed * ours).sum((0, 1)) < 0, -1.0, 1.0)
        if np.allclose(summed, ours * signs, atol=1e-5):
            return np.diag(signs)
    target, source = summed.reshape(-1, paths), ours.reshape(-1, ours.shape[-1])
    change = np.linalg.lstsq(source, target, rcond=1e-8)[0]
    if not np.allclose(source @ change, target, atol=1e-4):
        raise DataError(f"products of order {order} that are not symmetric polynomials")
    return change
