"""Reading and writing of the parts of deepmd-kit's files that descriptors share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.potentials.deepmd.descriptors.environment import PairDescriptor
from scitoolkit.potentials.deepmd.descriptors.fields import EnvironmentFields
from scitoolkit.potentials.deepmd.file import Tree, fill_networks, network_collection, resnet_dt
from scitoolkit.potentials.deepmd.input_section import Section


def refuse(where: str, **settings: Any) -> None:
    """Raise an error for the first setting that is on.

    Raises:
        DataError: a setting is on, which is not supported.
    """
    for name, value in settings.items():
        if value:
            raise DataError(f"{name} {value} is not supported", where=where)


def common_from_input(section: Section) -> dict[str, Any]:
    """Return the shared settings of a descriptor section of deepmd-kit's input.json."""
    section.only("activation_function", "tanh")
    section.only("env_protection", 0.0, 0)
    return {
        "cutoff": section.get("rcut", 6.0),
        "cutoff_smooth": section.get("rcut_smth", 0.5),
        "embedding": section.get("neuron", [10, 20, 40]),
        "type_one_side": section.get("type_one_side", False),
        "embedding_resnet_dt": "same_width" if section.get("resnet_dt", False) else "none",
        "exclude_types": section.get("exclude_types", []),
    }


def sel_from_input(section: Section) -> Any:
    """Return `sel` of a descriptor section; deepmd-kit's `auto` with a factor is `auto`."""
    sel = section.get("sel", "auto")
    return "auto" if isinstance(sel, str) else sel


def pair_from_input(section: Section) -> dict[str, Any]:
    """Return the settings shared by se_e2_a and se_e2_r from a section of input.json."""
    return {
        **common_from_input(section),
        "sel": sel_from_input(section),
        "zero_mean": section.get("set_davg_zero", False),
    }


def pair_from_tree(tree: Tree, where: str) -> dict[str, Any]:
    """Return the settings shared by se_e2_a and se_e2_r from a descriptor in a `.dp` file.

    Raises:
        DataError: a setting is not supported.
    """
    zero_mean = tree.get("set_davg_zero", False)
    return {"sel": tree["sel"], "zero_mean": zero_mean, **common_from_tree(tree, where)}


def common_from_tree(tree: Tree, where: str) -> dict[str, Any]:
    """Return the shared settings of a descriptor in a `.dp` file.

    Raises:
        DataError: a setting is not supported.
    """
    refuse(
        where,
        activation_function={tree["activation_function"]} - {"tanh"},
        env_protection=tree["env_protection"],
        spin=tree.get("spin"),
        compress=tree.get("compress"),
        use_exp_switch=tree["env_mat"].get("use_exp_switch"),
    )
    return {
        "cutoff": tree["rcut"],
        "cutoff_smooth": tree["rcut_smth"],
        "embedding": tree["neuron"],
        "type_one_side": tree["type_one_side"],
        "embedding_resnet_dt": resnet_dt(tree["embeddings"]),
        "exclude_types": [tuple(sorted(pair)) for pair in tree["exclude_types"]],
    }


def common_tree(
    config: EnvironmentFields, sel: Sequence[int], type_map: Sequence[str], precision: str
) -> Tree:
    """Return the shared part of a descriptor's tree."""
    return {
        "@class": "Descriptor",
        "@version": 2,
        "rcut": config.cutoff,
        "rcut_smth": config.cutoff_smooth,
        "sel": list(sel),
        "neuron": list(config.embedding),
        "trainable": True,
        "resnet_dt": config.embedding_resnet_dt != "none",
        "type_one_side": config.type_one_side,
        "exclude_types": [list(pair) for pair in config.exclude_types],
        "env_protection": 0.0,
        "activation_function": "tanh",
        "precision": precision,
        "type_map": list(type_map),
        "spin": None,
        "env_mat": {
            "rcut": config.cutoff,
            "rcut_smth": config.cutoff_smooth,
            "protection": 0.0,
            "use_exp_switch": False,
        },
    }


def pair_tree(out: PairDescriptor, type_map: Sequence[str], precision: str) -> Tree:
    """Return the part of the tree shared by se_e2_a and se_e2_r."""
    config, sel = out.config, out.spec.sel
    return {
        **common_tree(config, sel, type_map, precision),
        "type": config.name,
        "set_davg_zero": config.zero_mean,
        "embeddings": network_collection(
            out.embedding, "embedding_network", len(type_map), 1 if config.type_one_side else 2
        ),
        "@variables": {
            "davg": repeated(out.mean, sum(sel)),
            "dstd": repeated(out.deviation, sum(sel)),
        },
    }


@torch.no_grad()
def fill_pair(out: PairDescriptor, tree: Tree, where: str) -> None:
    """Set weights and statistics of se_e2_a or se_e2_r from a tree.

    Raises:
        DataError: statistics differ between the neighbours of one atom.
    """
    fill_networks(out.embedding, tree["embeddings"], where)
    out.mean.copy_(torch.from_numpy(statistics(tree, "davg", where)))
    out.deviation.copy_(torch.from_numpy(statistics(tree, "dstd", where)))


def statistics(tree: Tree, name: str, where: str) -> np.ndarray:
    """Return the statistics `name` of a tree, (types, columns).

    Raises:
        DataError: they differ between the neighbours of one atom.
    """
    values = tree["@variables"][name]
    if not np.array_equal(values, np.broadcast_to(values[:, :1], values.shape)):
        raise DataError("statistics that differ between neighbours of one atom", where=where)
    return values[:, 0]


def repeated(values: torch.Tensor, neighbours: int) -> np.ndarray:
    """Return statistics (types, columns) repeated to (types, neighbours, columns)."""
    return np.repeat(values.numpy()[:, None], neighbours, axis=1)
