"""Converts a `.model` file of mace-torch to plain tensors and settings, which `read_mace` reads.

A `.model` file is pickled code, so it is opened here alone, in mace-torch's environment, by its
owner. This file needs torch and mace-torch, not scitoolkit:

    python convert_mace.py MACE.model mace.pt
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn

FORMAT = "scitoolkit mace 1"
GATES = {"silu": "silu", "tanh": "tanh", "abs": "abs", "NoneType": "none"}


def describe(model: nn.Module) -> dict[str, Any]:
    """Return the settings of a mace-torch model that its state dict does not hold.

    Args:
        model: as mace-torch makes or loads it.

    Returns:
        Names and numbers: `model`, `interactions`, `readouts`, `average_neighbours`, `heads`,
        `gate` (None where no readout has one), `apply_cutoff`, `use_so3`.
    """
    parts: Any = model
    return {
        "model": type(model).__name__,
        "interactions": [type(each).__name__ for each in parts.interactions],
        "readouts": [type(each).__name__ for each in parts.readouts],
        "average_neighbours": [float(each.avg_num_neighbors) for each in parts.interactions],
        "heads": [str(each) for each in getattr(model, "heads", None) or ["Default"]],
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
    """Write the settings and tensors of a `.model` file; nothing in the result is code."""
    model = torch.load(source, map_location="cpu", weights_only=False)
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    torch.save({"format": FORMAT, "settings": describe(model), "state": state}, target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help=".model file of mace-torch")
    parser.add_argument("target", help="file to write, such as mace.pt")
    arguments = parser.parse_args()
    convert(arguments.source, arguments.target)
