"""Conversion of a `.model` file of mace-torch to plain tensors and settings, and back.

A `.model` file is pickled code, so only this script opens and writes it, in mace-torch's
environment. It requires torch and mace-torch, but not scitoolkit:

    python convert_mace.py MACE.model mace.pt           # for `read_mace`
    python convert_mace.py --back trained.pt MACE.model # from a file of `write_mace`
"""

from __future__ import annotations

import argparse
import itertools
import zipfile
from typing import Any

import numpy as np
import torch
from torch import nn

FORMAT, BACK = "scitoolkit mace 1", "scitoolkit mace weights 1"
GATES = {"silu": "silu", "tanh": "tanh", "abs": "abs", "NoneType": "none"}


def describe(model: nn.Module) -> dict[str, Any]:
    """Return the settings of a mace-torch model that its state dict does not contain.

    Args:
        model: a module of mace-torch.

    Returns:
        Names and numbers: `model`, `interactions`, `readouts`, `average_neighbours`, `heads`,
        `gate` (None if no readout has one), `apply_cutoff`, `use_so3`.
    """
    parts: Any = model
    return {
        "model": type(model).__name__,
        "interactions": [type(part).__name__ for part in parts.interactions],
        "readouts": [type(part).__name__ for part in parts.readouts],
        "average_neighbours": [float(part.avg_num_neighbors) for part in parts.interactions],
        "heads": [str(head) for head in getattr(model, "heads", None) or ["Default"]],
        "gate": _gate(parts.readouts[-1]),
        "apply_cutoff": bool(getattr(parts.radial_embedding, "apply_cutoff", True)),
        "use_so3": bool(getattr(model, "use_so3", False)),
    }


def _gate(readout: nn.Module) -> str | None:
    if not hasattr(readout, "non_linearity"):
        return None
    parts: Any = readout
    act = parts.non_linearity.acts[0]
    function = None if act is None else act.f
    name = getattr(function, "__name__", type(function).__name__)
    return GATES.get(name, name)


def convert(source: str, target: str) -> None:
    """Write the settings and tensors of a `.model` file to a file without code.

    Raises:
        ValueError: the file is a compiled model or a checkpoint.
    """
    if _is_torchscript(source):
        raise ValueError(
            f"{source} is a compiled model, which has no settings. Fix: the .model file next to "
            "it, without _compiled, or the one that mace_create_lammps_model was given"
        )
    model = torch.load(source, map_location="cpu", weights_only=False)
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"{source} contains a {type(model).__name__}, such as a checkpoint (.pt), not a model. "
            "Fix: the .model file that mace_run_train writes at its end"
        )
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    torch.save({"format": FORMAT, "settings": describe(model), "state": state}, target)


def _is_torchscript(source: str) -> bool:
    """Return whether a file is an archive of torch.jit, which torch.load would also open."""
    if not zipfile.is_zipfile(source):
        return False
    with zipfile.ZipFile(source) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def symmetrised(coupling: np.ndarray, rows: int, size: int, order: int) -> np.ndarray:
    """Return the coupling constants summed over index tuples of equal monomials.

    Args:
        coupling: U matrix of mace-torch, (rows, size, ..., paths), without the first dim if rows
            is 1.
        rows: number of components of the result.
        size: number of variables.
        order: of the products.

    Returns:
        (rows, monomials, paths), monomials a <= b <= ... in lexical order.
    """
    tuples = itertools.combinations_with_replacement(range(size), order)
    places = {indices: i for i, indices in enumerate(tuples)}
    index = [places[tuple(sorted(indices))] for indices in np.ndindex(*(size,) * order)]
    summed = np.zeros((rows, len(places), coupling.shape[-1]))
    np.add.at(summed, (slice(None), index), coupling.reshape(rows, -1, coupling.shape[-1]))  # type: ignore[arg-type]
    return summed


def restored_state(state: dict[str, Any], held: dict[str, Any]) -> dict[str, Any]:
    """Return a state dict of mace-torch with the weights of a file of `write_mace`.

    Args:
        state: of a new model, with shapes and coupling constants.
        held: contents of the file.
    """
    out = dict(state)
    for name, values in held["weights"].items():
        out[name] = values.reshape(state[name].shape).to(state[name].dtype)
    for name, order, basis, weights in held["products"]:
        theirs = state[f"{name[: name.rindex('.weights')]}.U_matrix_{order}"].double().numpy()
        mine = basis.numpy()
        size = theirs.shape[-2]
        source = symmetrised(theirs, len(mine), size, order).reshape(-1, theirs.shape[-1])
        change = np.linalg.lstsq(source, mine.reshape(-1, mine.shape[-1]), rcond=1e-8)[0]
        if not np.allclose(source @ change, mine.reshape(-1, mine.shape[-1]), atol=1e-6):
            raise ValueError(f"{name}: mace-torch does not have these products")
        out[name] = (torch.from_numpy(change) @ weights.double()).to(state[name].dtype)
    return out


def restore(source: str, target: str) -> None:
    """Write a `.model` file of mace-torch from a file of `scitoolkit.potentials.write_mace`.

    Raises:
        ValueError: `source` is not such a file.
    """
    from e3nn import o3
    from mace import modules

    held = torch.load(source, map_location="cpu", weights_only=True)
    if not isinstance(held, dict) or held.get("format") != BACK:
        raise ValueError(f"{source} was not written by scitoolkit.potentials.write_mace")
    torch.set_default_dtype(getattr(torch, held["dtype"]))
    settings = dict(held["settings"])
    for key in ("interaction_cls", "interaction_cls_first"):
        settings[key] = modules.interaction_classes[settings[key]]
    for key in ("hidden_irreps", "MLP_irreps"):
        settings[key] = o3.Irreps(settings[key])
    settings["gate"] = modules.gate_dict[settings["gate"]]
    settings["atomic_energies"] = np.array(settings["atomic_energies"])
    model = modules.ScaleShiftMACE(**settings)
    model.load_state_dict(restored_state(model.state_dict(), held))
    torch.save(model, target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--back", action="store_true", help="write a .model file")
    parser.add_argument("source", help=".model file of mace-torch; with --back, of write_mace")
    parser.add_argument("target", help="file to write, such as mace.pt")
    arguments = parser.parse_args()
    try:
        (restore if arguments.back else convert)(arguments.source, arguments.target)
    except ValueError as error:
        parser.error(str(error))
