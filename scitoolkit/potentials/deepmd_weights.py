"""Weights from and to deepmd-kit's backend-independent model file (`.dp`, HDF5).

`dp convert-backend graph.pb model.dp` (or from .pth) writes such a file from any backend of
deepmd-kit; the same command turns one that is written here into any backend's form.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.potentials.networks import StackedNetworks
from scitoolkit.potentials.se_e2_a import SmoothEdition, SmoothEditionConfig

_TYPES = {"se_e2_a": "se_e2_a", "se_a": "se_e2_a", "se_e2_r": "se_e2_r", "se_r": "se_e2_r"}


def read_deepmd(path: Path | str) -> SmoothEdition:
    """Return the model of a `.dp` file, its energies those of deepmd-kit.

    Raises:
        DataError: not such a file, or a model of a kind that is not built here.
    """
    data = _read_tree(Path(path))
    model, where = data["model"], str(path)
    descriptor, fitting = model.get("descriptor", {}), model.get("fitting", {})
    kind = _TYPES.get(str(descriptor.get("type")))
    if kind is None or fitting.get("type") != "ener":
        raise DataError(
            f"descriptor {descriptor.get('type')!r} with fitting {fitting.get('type')!r}",
            where=where, allowed="se_e2_a or se_e2_r with ener",
        )  # fmt: skip
    _refuse_unknown(descriptor, fitting, model, where)
    config = SmoothEditionConfig(
        name=kind, cutoff=descriptor["rcut"], cutoff_smooth=descriptor["rcut_smth"],
        sel=descriptor["sel"], embedding=descriptor["neuron"],
        axis_neurons=descriptor.get("axis_neuron", 1), one_side=descriptor["type_one_side"],
        embedding_step=_steps(descriptor["embeddings"]), fitting=fitting["neuron"],
        fitting_step=_steps(fitting["nets"]), precision=descriptor["precision"],
    )  # fmt: skip
    out = config.build(model["type_map"])
    with torch.no_grad():
        _fill(out.embedding, descriptor["embeddings"], where)
        _fill(out.fitting, fitting["nets"], where)
        mean, deviation = (descriptor["@variables"][k] for k in ("davg", "dstd"))
        _one_row_a_type(mean, where)
        out.mean.copy_(torch.from_numpy(mean[:, 0]))
        out.deviation.copy_(torch.from_numpy(_one_row_a_type(deviation, where)))
        shift = np.zeros(len(out.type_map)) + fitting["@variables"]["bias_atom_e"].ravel()
        if (extra := model.get("@variables", {}).get("out_bias")) is not None:
            shift = shift + extra.reshape(-1)[: len(shift)]
        out.shift.copy_(torch.from_numpy(shift))
    return out


def _refuse_unknown(descriptor: dict, fitting: dict, model: dict, where: str) -> None:
    refused = {
        "activation_function": {descriptor["activation_function"], fitting["activation_function"]}
        - {"tanh"},
        "exclude_types": descriptor["exclude_types"] or fitting["exclude_types"],
        "env_protection": descriptor["env_protection"],
        "numb_fparam": fitting["numb_fparam"],
        "numb_aparam": fitting["numb_aparam"],
        "pair_exclude_types": model.get("pair_exclude_types"),
        "spin": descriptor.get("spin"),
    }
    for name, value in refused.items():
        if value:
            raise DataError(f"{name} {value} is not built here", where=where)


def _steps(collection: dict[str, Any]) -> str:
    """Return which layers have a step, of the first network."""
    hidden = next(n for n in collection["networks"] if n is not None)["layers"]
    held = [layer["@variables"].get("idt") is not None for layer in hidden]
    if not any(held):
        return "none"
    return "all" if held[0] else "same_width"


def _one_row_a_type(values: np.ndarray, where: str) -> np.ndarray:
    if not np.array_equal(values, np.broadcast_to(values[:, :1], values.shape)):
        raise DataError("statistics that differ between neighbours of one atom", where=where)
    return values[:, 0]


def _fill(stack: StackedNetworks, collection: dict[str, Any], where: str) -> None:
    networks = [n for n in collection["networks"] if n is not None]
    if len(networks) != stack.count:
        raise DataError(f"{len(networks)} networks, expected {stack.count}", where=where)
    if collection["ndim"] == 2:  # deepmd-kit counts pairs with the centre's type fastest
        types = collection["ntypes"]
        networks = [networks[c + n * types] for c in range(types) for n in range(types)]
    for number, network in enumerate(networks):
        for k, layer in enumerate(network["layers"]):
            variables = layer["@variables"]
            stack.weight[k][number] = torch.from_numpy(variables["w"])
            stack.bias[k][number] = torch.from_numpy(np.ravel(variables["b"]))
            step = variables.get("idt")
            if (step is not None) != (str(k) in stack.step):
                raise DataError(f"layer {k}: an unexpected or missing idt", where=where)
            if step is not None:
                stack.step[str(k)][number] = torch.from_numpy(np.ravel(step))


def _read_tree(path: Path) -> dict[str, Any]:
    try:
        with h5py.File(path) as file:
            tree = json.loads(file.attrs["json"])
            return _resolved(tree, file)
    except FileNotFoundError:
        raise DataError("no such file", where=str(path)) from None
    except (OSError, KeyError, json.JSONDecodeError) as error:
        raise DataError(
            f"not a deepmd-kit .dp file ({error})", where=str(path),
            fix="dp convert-backend graph.pb model.dp",
        ) from None  # fmt: skip


def _resolved(node: Any, file: h5py.File, variables: bool = False) -> Any:
    if isinstance(node, dict):
        return {k: _resolved(v, file, variables or k == "@variables") for k, v in node.items()}
    if isinstance(node, list):
        return [_resolved(v, file, variables) for v in node]
    return file[node][()] if variables and isinstance(node, str) else node


def write_deepmd(model: SmoothEdition, path: Path | str) -> Path:
    """Write a `.dp` file that deepmd-kit loads, with the same energies.

    Raises:
        DataError: the model has a repulsion of nuclei, which that file cannot hold.
    """
    if model.zbl is not None:
        raise DataError("a .dp file has no place for model.zbl", where=str(path))
    path, config = Path(path), model.config
    radial, types = model.spec.radial, len(model.type_map)
    mean, deviation = (
        np.repeat(t.numpy()[:, None], sum(model.spec.sel), axis=1)
        for t in (model.mean, model.deviation)
    )
    common = {
        "rcut": config.cutoff, "rcut_smth": config.cutoff_smooth, "sel": list(model.spec.sel),
        "neuron": list(config.embedding), "resnet_dt": config.embedding_step != "none",
        "trainable": True, "type_one_side": config.one_side, "exclude_types": [],
        "env_protection": 0.0, "set_davg_zero": False, "activation_function": "tanh",
        "precision": config.precision, "type_map": list(model.type_map), "spin": None,
        "env_mat": {
            "rcut": config.cutoff, "rcut_smth": config.cutoff_smooth, "protection": 0.0,
            "use_exp_switch": False,
        },
    }  # fmt: skip
    descriptor = {
        "@class": "Descriptor", "type": config.name, "@version": 2, **common,
        **({} if radial else {"axis_neuron": config.axis_neurons}),
        "embeddings": _collection(model.embedding, "embedding_network", types, config.one_side),
        "@variables": {"davg": mean, "dstd": deviation},
    }  # fmt: skip
    shift = model.shift.numpy()[:, None]
    fitting = {
        "@class": "Fitting", "type": "ener", "@version": 4, "var_name": "energy", "ntypes": types,
        "dim_descrpt": model.fitting.weight[0].shape[1], "mixed_types": False, "dim_out": 1,
        "neuron": list(config.fitting), "resnet_dt": config.fitting_step != "none",
        "numb_fparam": 0, "numb_aparam": 0, "dim_case_embd": 0, "default_fparam": None,
        "rcond": None, "tot_ener_zero": False, "trainable": [True] * (len(config.fitting) + 1),
        "atom_ener": [], "activation_function": "tanh", "precision": config.precision,
        "layer_name": None, "use_aparam_as_mask": False, "spin": None, "exclude_types": [],
        "nets": _collection(model.fitting, "fitting_network", types, True),
        "@variables": {
            "bias_atom_e": shift, "fparam_avg": None, "fparam_inv_std": None, "aparam_avg": None,
            "aparam_inv_std": None, "case_embd": None,
        },
        "type_map": list(model.type_map),
    }  # fmt: skip
    tree = {
        "software": "scitoolkit", "backend": "scitoolkit",
        "model": {
            "@class": "Model", "type": "standard", "@version": 2,
            "type_map": list(model.type_map), "descriptor": descriptor, "fitting": fitting,
            "atom_exclude_types": [], "pair_exclude_types": [], "rcond": None,
            "preset_out_bias": None,
            "@variables": {"out_bias": np.zeros((1, types, 1)), "out_std": np.ones((1, types, 1))},
        },
        "model_def_script": {},
    }  # fmt: skip
    with h5py.File(path, "w") as file:
        file.attrs["json"] = json.dumps(_stored(tree, file), separators=(",", ":"))
    return path


def _collection(stack: StackedNetworks, kind: str, types: int, one_index: bool) -> dict[str, Any]:
    order = range(stack.count)
    if not one_index:
        order = [c * types + n for n in range(types) for c in range(types)]  # type: ignore[assignment]
    inputs, fitting = stack.weight[0].shape[1], kind == "fitting_network"
    described: dict[str, Any] = {
        "in_dim": inputs, "neuron": list(stack.widths), "activation_function": "tanh",
        "resnet_dt": bool(stack.step), "precision": _precision(stack),
    }  # fmt: skip
    if fitting:
        described |= {"out_dim": 1, "bias_out": True}
    else:
        described |= {"bias": True}
    networks = [
        {
            "@class": "FittingNetwork" if fitting else "EmbeddingNetwork",
            "@version": 1 if fitting else 2, **described,
            "layers": [_layer(stack, number, k) for k in range(len(stack.weight))],
        }
        for number in order
    ]  # fmt: skip
    return {
        "@class": "NetworkCollection", "@version": 1, "ndim": 1 if one_index else 2,
        "ntypes": types, "network_type": kind, "networks": networks,
    }  # fmt: skip


def _precision(stack: StackedNetworks) -> str:
    return str(stack.weight[0].dtype).removeprefix("torch.")


def _layer(stack: StackedNetworks, number: int, k: int) -> dict[str, Any]:
    output = k == len(stack.widths)
    step = stack.step[str(k)][number].detach().numpy() if str(k) in stack.step else None
    return {
        "@class": "Layer", "@version": 2, "bias": True, "use_timestep": step is not None,
        "activation_function": "none" if output else "tanh", "resnet": not output,
        "precision": _precision(stack), "trainable": True,
        "@variables": {
            "w": stack.weight[k][number].detach().numpy(),
            "b": stack.bias[k][number].detach().numpy(), "idt": step,
        },
    }  # fmt: skip


def _stored(node: Any, file: h5py.File) -> Any:
    if isinstance(node, dict):
        return {k: _stored(v, file) for k, v in node.items()}
    if isinstance(node, list):
        return [_stored(v, file) for v in node]
    if isinstance(node, np.ndarray):
        return file.create_dataset(f"variable_{len(file):04d}", data=node).name
    return node
