"""Writing of MACE weights for mace-torch, where `convert_mace` builds a model from them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.symmetric_contraction.coupling import basis
from scitoolkit.potentials.equivariant.layers import irreps_text, natural
from scitoolkit.potentials.equivariant.mace import Mace, MaceLayer
from scitoolkit.potentials.equivariant.mace_config import MaceConfig
from scitoolkit.potentials.equivariant.mace_file import INTERACTIONS
from scitoolkit.potentials.peers.convert_mace import BACK
from scitoolkit.potentials.zbl import element_data

BLOCKS = {kind: name for name, kind in INTERACTIONS.items()}
TRANSFORMS = {"none": "None", "agnesi": "Agnesi", "soft": "Soft"}


@torch.no_grad()
def write_mace(model: Mace, path: Path | str) -> Path:
    """Write the weights of a MACE model for mace-torch; return the path.

    In mace-torch's environment `python -m scitoolkit.potentials.peers.convert_mace --back FILE
    MACE.model` writes a `.model` file (a ScaleShiftMACE) with the same energies and forces.

    Args:
        model: trained here or read by `read_mace`; its precision is that of the file.
        path: file to write.

    Raises:
        DataError: the model has a `zbl` term, a `long_range` or a mean interaction energy, which
            mace-torch does not support.

    Example:
        >>> from tempfile import mkdtemp
        >>> from scitoolkit.potentials import MaceConfig
        >>> model = MaceConfig(**MaceConfig.example).build(["O", "H"])
        >>> write_mace(model, Path(mkdtemp()) / "trained.pt").name
        'trained.pt'
    """
    if model.zbl is not None:
        raise DataError(
            "mace-torch does not support model.zbl",
            where=str(path),
            fix="model.pair_repulsion=true, which it supports",
        )
    if model.long_range is not None:
        raise DataError("mace-torch does not support model.long_range", where=str(path))
    if model.interaction is not None:
        raise DataError(
            "mace-torch does not support the mean interaction energy of a training on isolated "
            "atoms",
            where=str(path),
            fix="train with e0=least_squares",
        )
    numbers = element_data(model.type_map)[0].long()
    order = torch.argsort(numbers)  # mace-torch lists elements by their number
    weights: dict[str, Tensor] = {"node_embedding.linear.weight": model.embedding[order]}
    products: list[tuple[str, int, Tensor, Tensor]] = []
    for number, layer in enumerate(_layers(model)):
        weights |= _layer_weights(layer, f"interactions.{number}", f"products.{number}", order)
        weights |= _readout_weights(layer, f"readouts.{number}")
        products += _products(
            layer, f"products.{number}.symmetric_contractions.contractions", order
        )
    settings = _settings(model, numbers[order], model.shift[order])
    held = {
        "format": BACK,
        "dtype": str(model.dtype).removeprefix("torch."),
        "settings": settings,
        "weights": weights,
        "products": products,
    }
    torch.save(held, path)
    return Path(path)


def _layers(model: Mace) -> list[MaceLayer]:
    return [layer for layer in model.layers if isinstance(layer, MaceLayer)]


def _settings(model: Mace, numbers: Tensor, energies: Tensor) -> dict[str, Any]:
    """Return the arguments of mace-torch's ScaleShiftMACE, classes and irreps by name."""
    config = model.config
    if not isinstance(config, MaceConfig):
        raise ConfigError("not a MACE model")
    first = (config.first_residual, config.first_density)
    return {
        "r_max": config.cutoff,
        "num_bessel": config.num_basis,
        "num_polynomial_cutoff": config.envelope,
        "max_ell": config.lmax,
        "interaction_cls_first": BLOCKS[first],
        "interaction_cls": BLOCKS[config.residual, config.density],
        "num_interactions": config.layers,
        "num_elements": len(numbers),
        "hidden_irreps": irreps_text(natural(range(config.lmax_hidden + 1)), config.channels),
        "MLP_irreps": f"{config.readout_width}x0e",
        "gate": _gate(config.gate),
        "atomic_energies": energies.tolist(),
        "avg_num_neighbors": float(model.average_neighbours),
        "atomic_numbers": numbers.tolist(),
        "correlation": config.correlation,
        "radial_MLP": list(config.radial_widths),
        "radial_type": config.radial_type,
        "apply_cutoff": config.apply_cutoff,
        "distance_transform": TRANSFORMS[config.distance_transform],
        "pair_repulsion": config.pair_repulsion,
        "atomic_inter_scale": float(model.scale),
        "atomic_inter_shift": 0.0,
    }


def _gate(name: str) -> str:
    return "None" if name == "none" else name


def _flat(weights: Iterable[Tensor]) -> Tensor:
    return torch.cat([weight.flatten() for weight in weights])


def _layer_weights(layer: MaceLayer, name: str, product: str, order: Tensor) -> dict[str, Tensor]:
    convolution = layer.convolution
    weights = {
        f"{name}.linear_up.weight": _flat(convolution.up.weight),
        f"{name}.linear.weight": _flat(convolution.down.weight),
        # (T, C, K) here, (C, T, K) in mace-torch.
        f"{name}.skip_tp.weight": _flat(
            weight[order].transpose(0, 1) for weight in layer.shortcut.weight
        ),
        f"{product}.linear.weight": _flat(layer.product.mix.weight),
    }
    for k, weight in enumerate(convolution.radial.weight):
        weights[f"{name}.conv_tp_weights.layer{k}.weight"] = weight.detach().clone()
    if layer.density is not None:
        weights[f"{name}.density_fn.layer0.weight"] = layer.density.weight[0].detach().clone()
    return weights


def _readout_weights(layer: MaceLayer, name: str) -> dict[str, Tensor]:
    parts = [weight.detach().flatten() for weight in layer.readout.weight]
    names = ["linear"] if len(parts) == 1 else ["linear_1", "linear_2"]
    return {f"{name}.{layer}.weight": part for layer, part in zip(names, parts, strict=True)}


def _products(layer: MaceLayer, name: str, order: Tensor) -> list[tuple[str, int, Tensor, Tensor]]:
    """Return key, order, polynomials (rows, monomials, paths) and weights of each product."""
    spec, start, terms = layer.product.spec, 0, []
    weight = layer.product.weight.detach()[order]
    for position, (out, power, count) in enumerate(spec.blocks):
        place = spec.correlation - power - 1
        key = "weights_max" if power == spec.correlation else f"weights.{place}"
        if count:
            polynomials = torch.from_numpy(basis(spec.irreps_in, out, power).copy())
            part = weight[:, start : start + count].clone()
            terms.append((f"{name}.{position // spec.correlation}.{key}", power, polynomials, part))
        start += count
    return terms
