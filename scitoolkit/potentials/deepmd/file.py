"""Trees and networks of deepmd-kit's backend-independent model file (`.dp`, HDF5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.core.files import replacing
from scitoolkit.potentials.deepmd.networks import StackedNetworks

Tree = dict[str, Any]


def read_tree(path: Path) -> Tree:
    """Return the tree of a file with its arrays.

    Raises:
        DataError: no such file, or another kind of file.
    """
    try:
        with h5py.File(path) as file:
            tree = json.loads(file.attrs["json"])
            return _resolved(tree, file)
    except FileNotFoundError:
        raise DataError("no such file", where=str(path)) from None
    except (OSError, KeyError, json.JSONDecodeError) as error:
        raise DataError(
            f"not a deepmd-kit .dp file ({error})",
            where=str(path),
            fix="dp convert-backend graph.pb model.dp",
        ) from None


def _resolved(node: Any, file: h5py.File, variables: bool = False) -> Any:
    if isinstance(node, dict):
        return {k: _resolved(v, file, variables or k == "@variables") for k, v in node.items()}
    if isinstance(node, list):
        return [_resolved(v, file, variables) for v in node]
    return file[node][()] if variables and isinstance(node, str) else node


def write_tree(tree: Tree, path: Path) -> Path:
    """Write a tree whose arrays are under `@variables` keys; return the path."""
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        file.attrs["json"] = json.dumps(_stored(tree, file), separators=(",", ":"))
    return path


def _stored(node: Any, file: h5py.File) -> Any:
    if isinstance(node, dict):
        return {k: _stored(v, file) for k, v in node.items()}
    if isinstance(node, list):
        return [_stored(v, file) for v in node]
    if isinstance(node, np.ndarray):
        return file.create_dataset(f"variable_{len(file):04d}", data=node).name
    return node


def resnet_dt(collection: dict[str, Any]) -> str:
    """Return which layers of the first network have a time step (`ResnetSteps`)."""
    hidden = next(n for n in collection["networks"] if n is not None)["layers"]
    held = [layer["@variables"].get("idt") is not None for layer in hidden]
    if not any(held):
        return "none"
    return "all" if held[0] else "same_width"


def fill_networks(stack: StackedNetworks, collection: dict[str, Any], where: str) -> None:
    """Copy the weights of a network collection into a stack.

    Raises:
        DataError: another number of networks or time steps, or an unsupported layer.
    """
    networks = [n for n in collection["networks"] if n is not None]
    if len(networks) != stack.count:
        raise DataError(f"{len(networks)} networks, expected {stack.count}", where=where)
    if collection["ndim"] == 2:  # deepmd-kit counts pairs with the centre's type fastest
        types = collection["ntypes"]
        networks = [networks[c + n * types] for c in range(types) for n in range(types)]
    for number, network in enumerate(networks):
        for k, layer in enumerate(network["layers"]):
            _check_layer(layer, k == len(stack.widths), where)
            variables = layer["@variables"]
            stack.weight[k][number] = torch.from_numpy(variables["w"])
            stack.bias[k][number] = torch.from_numpy(np.ravel(variables["b"]))
            step = variables.get("idt")
            if (step is not None) != (str(k) in stack.step):
                raise DataError(f"layer {k}: an unexpected or missing idt", where=where)
            if step is not None:
                stack.step[str(k)][number] = torch.from_numpy(np.ravel(step))


def _check_layer(layer: Tree, output: bool, where: str) -> None:
    """Refuse layers other than tanh with a residual connection, and a linear output layer.

    Raises:
        DataError: another activation, or no residual connection.
    """
    wanted = ("none", False) if output else ("tanh", True)
    options = (str(layer["activation_function"]).lower().replace("linear", "none"), layer["resnet"])
    if options != wanted:
        raise DataError(
            f"a layer with activation {options[0]} and resnet {options[1]}",
            where=where,
            allowed=f"{wanted[0]} and {wanted[1]}",
        )


def network_collection(stack: StackedNetworks, kind: str, types: int, indices: int) -> Tree:
    """Return the tree of a stack; `indices` is 0 for one network, 1 for types, 2 for type pairs."""
    order = range(stack.count)
    if indices == 2:
        order = [c * types + n for n in range(types) for c in range(types)]  # type: ignore[assignment]
    inputs, fitting = stack.weight[0].shape[1], kind == "fitting_network"
    described: dict[str, Any] = {
        "in_dim": inputs,
        "neuron": list(stack.widths),
        "activation_function": "tanh",
        "resnet_dt": bool(stack.step),
        "precision": _precision(stack),
    }
    if fitting:
        described |= {"out_dim": stack.weight[-1].shape[2], "bias_out": True}
    else:
        described |= {"bias": True}
    networks = [
        {
            "@class": "FittingNetwork" if fitting else "EmbeddingNetwork",
            "@version": 1 if fitting else 2,
            **described,
            "layers": [_layer(stack, number, k) for k in range(len(stack.weight))],
        }
        for number in order
    ]
    return {
        "@class": "NetworkCollection",
        "@version": 1,
        "ndim": indices,
        "ntypes": types,
        "network_type": kind,
        "networks": networks,
    }


def _precision(stack: StackedNetworks) -> str:
    return str(stack.weight[0].dtype).removeprefix("torch.")


def _layer(stack: StackedNetworks, number: int, k: int) -> dict[str, Any]:
    output = k == len(stack.widths)
    step = stack.step[str(k)][number].detach().numpy() if str(k) in stack.step else None
    return {
        "@class": "Layer",
        "@version": 2,
        "bias": True,
        "use_timestep": step is not None,
        "activation_function": "none" if output else "tanh",
        "resnet": not output,
        "precision": _precision(stack),
        "trainable": True,
        "@variables": {
            "w": stack.weight[k][number].detach().numpy(),
            "b": stack.bias[k][number].detach().numpy(),
            "idt": step,
        },
    }
