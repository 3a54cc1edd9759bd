"""Reading and writing of deepmd-kit's backend-independent model file (`.dp`, HDF5).

`dp convert-backend graph.pb model.dp` (or from .pth) writes such a file from any backend of
deepmd-kit; the same command converts a file written here to the format of any backend.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import torch
from torch import nn

from scitoolkit.core.errors import DataError
from scitoolkit.potentials.deepmd.config import DeepPotentialConfig
from scitoolkit.potentials.deepmd.descriptors.config import (
    DescriptorConfig,
    deepmd_names,
    descriptors,
)
from scitoolkit.potentials.deepmd.descriptors.environment import PairDescriptor
from scitoolkit.potentials.deepmd.descriptors.trees import refuse
from scitoolkit.potentials.deepmd.file import (
    Tree,
    fill_networks,
    network_collection,
    resnet_dt,
    write_tree,
)
from scitoolkit.potentials.deepmd.model import DeepPotential
from scitoolkit.potentials.deepmd.properties import PropertyKind, PropertyModel
from scitoolkit.potentials.deepmd.unread import finish, open_tree

log: logging.Logger = logging.getLogger(__name__)
_PROPERTIES: dict[str, PropertyKind] = {
    "dipole": "dipole",
    "polar": "polarisability",
    "dos": "dos",
}
_PARAMETERS = {"frame_parameters": "fparam", "atom_parameters": "aparam"}


def _opened(path: Path | str) -> tuple[Tree, Tree, Tree, str]:
    """Return the trees of a file, its model and its fitting net, and the path for messages."""
    tree = open_tree(Path(path))
    model = tree["model"]
    for part in _trees(model):
        part["backend"] = tree.get("backend")  # se_atten has another attention in TensorFlow
    return tree, model, model.get("fitting", {}), str(path)


def read_deepmd(path: Path | str) -> DeepPotential:
    """Return the model of a `.dp` file, with the energies of deepmd-kit.

    Raises:
        DataError: not a `.dp` file, or an unsupported model.
    """
    tree, model, fitting, where = _opened(path)
    if fitting.get("type") != "ener":
        raise DataError(
            f"fitting {fitting.get('type')!r} gives no energy",
            where=where,
            allowed="ener",
            fix="read_deepmd_property, for dipole, polar and dos",
        )
    _refuse_unknown(model, fitting, where)
    out = DeepPotential(_config(model, where), model["type_map"])
    _fill(out, model, where)
    with torch.no_grad():
        shift = np.zeros(len(out.type_map)) + fitting["@variables"]["bias_atom_e"].ravel()
        if (extra := model.get("@variables", {}).get("out_bias")) is not None:
            shift = shift + extra.reshape(-1)[: len(shift)]
        out.shift.copy_(torch.from_numpy(shift))
    finish(tree, where)
    return out


def read_deepmd_property(path: Path | str) -> PropertyModel:
    """Return the dipole, polarisability or DOS model of a `.dp` file.

    Raises:
        DataError: not a `.dp` file, or an unsupported model.
    """
    tree, model, fitting, where = _opened(path)
    kind = _PROPERTIES.get(str(fitting.get("type")))
    if kind is None:
        raise DataError(
            f"fitting {fitting.get('type')!r} is not supported",
            where=where,
            allowed=", ".join(_PROPERTIES),
        )
    _refuse_unknown(model, fitting, where)
    type_map = model["type_map"]
    out = PropertyModel(
        _config(model, where),
        type_map,
        kind,
        number=fitting.get("dim_out", 1),
        diagonal=fitting.get("fit_diag", True),
    )
    _fill(out.base, model, where)
    variables = fitting["@variables"]
    added = np.asarray(model["@variables"]["out_bias"])[0].reshape(len(type_map), -1)
    with torch.no_grad():
        out.shift.copy_(torch.from_numpy(variables["bias_atom_e"]))
        if kind == "dos":
            out.shift += torch.from_numpy(added)
        if kind == "polarisability":
            scale = np.ravel(variables["scale"])
            constant = np.zeros(len(type_map))
            if fitting["shift_diag"]:
                diagonal = added.reshape(-1, 3, 3).diagonal(axis1=1, axis2=2).mean(1)
                constant = (np.ravel(variables["constant_matrix"]) + diagonal) * scale
            out.scale.copy_(torch.from_numpy(scale))
            out.isotropic.copy_(torch.from_numpy(constant))
    finish(tree, where)
    return out.eval()


def _trees(model: Tree) -> list[Tree]:
    """Return the trees of the descriptors of a hybrid, or of the one descriptor."""
    tree = model["descriptor"]
    return tree["list"] if tree.get("type") == "hybrid" else [tree]


def _config(model: Tree, where: str) -> DeepPotentialConfig:
    trees, fitting = _trees(model), model["fitting"]
    return DeepPotentialConfig(
        descriptors=[_descriptor_config(tree, where) for tree in trees],
        shared_fitting=fitting["mixed_types"],
        fitting=fitting["neuron"],
        fitting_resnet_dt=resnet_dt(fitting["nets"]),
        precision=_precision(trees, fitting, where),
        **{name: fitting[f"numb_{theirs}"] for name, theirs in _PARAMETERS.items()},
    )


def _precision(trees: list[Tree], fitting: Tree, where: str) -> str:
    """Return the highest precision of the descriptors and the fitting net.

    Raises:
        DataError: another precision than float32 and float64.
    """
    precisions = {tree["precision"] for tree in trees} | {fitting["precision"]}
    refuse(where, precision=", ".join(sorted(precisions - {"float32", "float64"})))
    return "float64" if "float64" in precisions else "float32"


def _descriptor_config(tree: Tree, where: str) -> DescriptorConfig:
    names, kind = deepmd_names(), str(tree.get("type"))
    if kind not in names:
        raise DataError(
            f"descriptor {kind!r} is not supported",
            where=where,
            allowed=", ".join([*names, "hybrid of these"]),
        )
    return descriptors.get(names[kind]).from_deepmd_tree(tree, where)


@torch.no_grad()
def _fill(out: DeepPotential, model: Tree, where: str) -> None:
    """Set weights of descriptors and fitting nets, and the statistics of given parameters."""
    for descriptor, tree in zip(out.descriptors, _trees(model), strict=True):
        descriptor.fill_from_tree(tree, where)
        _warn_of_jumps(descriptor, tree, where)
    fitting = model["fitting"]
    variables = fitting["@variables"]
    fill_networks(out.fitting, fitting["nets"], where)
    for name, theirs in _PARAMETERS.items():
        if fitting[f"numb_{theirs}"]:
            for ending, key in (("mean", "avg"), ("scale", "inv_std")):
                values = torch.from_numpy(np.ravel(variables[f"{theirs}_{key}"]))
                out.get_buffer(f"{name}_{ending}").copy_(values)


def _warn_of_jumps(descriptor: nn.Module, tree: Tree, where: str) -> None:
    """Warn of energy jumps if an excluded neighbour differs from an absent one."""
    with_mean = isinstance(descriptor, PairDescriptor) and bool(descriptor.mean.any())
    if tree.get("exclude_types") and with_mean:
        log.warning(
            "%s: energies jump where an excluded neighbour crosses the cutoff, as in deepmd-kit, "
            "because the environments' mean is not zero. Fix: train with set_davg_zero",
            where,
        )


def _refuse_unknown(model: Tree, fitting: Tree, where: str) -> None:
    refuse(
        where,
        activation_function={fitting["activation_function"]} - {"tanh"},
        atom_exclude_types=model.get("atom_exclude_types") or fitting["exclude_types"],
        pair_exclude_types=model.get("pair_exclude_types"),
        dim_case_embd=fitting.get("dim_case_embd"),
        use_aparam_as_mask=fitting.get("use_aparam_as_mask"),
    )


def write_deepmd(model: DeepPotential, path: Path | str) -> Path:
    """Write a `.dp` file that deepmd-kit loads, with the same energies.

    Raises:
        DataError: a ZBL repulsion, a mean interaction energy, a descriptor or an attention that no
            backend of deepmd-kit supports.
    """
    for name in ("zbl", "long_range"):
        if getattr(model, name) is not None:
            raise DataError(f"a .dp file cannot store model.{name}", where=str(path))
    if model.interaction is not None:
        raise DataError(
            "a .dp file cannot store the mean interaction energy of a training on isolated atoms",
            where=str(path),
            fix="train with e0=least_squares",
        )
    names, precision = list(model.type_map), model.config.precision
    trees = [descriptor.to_tree(names, precision) for descriptor in model.descriptors]
    backends = {tree.pop("backend") for tree in trees if "backend" in tree}
    if len(backends) > 1:
        raise DataError(
            "a .dp file holds attention of one backend, and these descriptors have "
            + " and ".join(sorted(backends)),
            where=str(path),
            fix="one gate_floor for all",
        )
    hybrid = {"@class": "Descriptor", "type": "hybrid", "@version": 1, "list": trees}
    types = len(names)
    tree = {
        "software": "scitoolkit",
        "backend": backends.pop() if backends else "scitoolkit",
        "model": {
            "@class": "Model",
            "type": "standard",
            "@version": 2,
            "type_map": names,
            "descriptor": trees[0] if len(trees) == 1 else hybrid,
            "fitting": _fitting_tree(model),
            "atom_exclude_types": [],
            "pair_exclude_types": [],
            "rcond": None,
            "preset_out_bias": None,
            "@variables": {"out_bias": np.zeros((1, types, 1)), "out_std": np.ones((1, types, 1))},
        },
        "model_def_script": {},
    }
    return write_tree(tree, Path(path))


def _fitting_tree(model: DeepPotential) -> Tree:
    config, types = model.config, len(model.type_map)
    numbers, variables = {}, {}
    for name, theirs in _PARAMETERS.items():
        number = getattr(config, name)
        numbers[f"numb_{theirs}"] = number
        for ending, key in (("mean", "avg"), ("scale", "inv_std")):
            values = model.get_buffer(f"{name}_{ending}").numpy() if number else None
            variables[f"{theirs}_{key}"] = values
    mixed = config.one_fitting
    num_parameters = sum(numbers.values())
    return {
        "@class": "Fitting",
        "type": "ener",
        "@version": 4,
        "var_name": "energy",
        "ntypes": types,
        "dim_descrpt": model.fitting.weight[0].shape[1] - num_parameters,
        "mixed_types": mixed,
        "dim_out": 1,
        "neuron": list(config.fitting),
        "resnet_dt": config.fitting_resnet_dt != "none",
        **numbers,
        "dim_case_embd": 0,
        "default_fparam": None,
        "rcond": None,
        "tot_ener_zero": False,
        "trainable": [True] * (len(config.fitting) + 1),
        "atom_ener": [],
        "activation_function": "tanh",
        "precision": config.precision,
        "layer_name": None,
        "use_aparam_as_mask": False,
        "spin": None,
        "exclude_types": [],
        "nets": network_collection(model.fitting, "fitting_network", types, 0 if mixed else 1),
        "@variables": {
            "bias_atom_e": model.shift.numpy()[:, None],
            "case_embd": None,
            **variables,
        },
        "type_map": list(model.type_map),
    }
