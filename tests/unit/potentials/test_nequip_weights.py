"""Checkpoints of nequip: equal energies and forces, or refused by name."""

import json
import os
import pickle
import subprocess
from pathlib import Path

import ase.io
import numpy as np
import pytest
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials import read_nequip
from scitoolkit.potentials.calculator import Calculator
from scitoolkit.potentials.graph import configuration_graph

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden"
MAKER = GOLDEN / "make_nequip.py"
CHECKPOINT = GOLDEN / "nequip.ckpt"
ACAC = ROOT / "datasets" / "acac"
PEER = ROOT / ".venv-peers" / "nequip" / "bin" / "python"
CASES = sorted(
    {name.split("/")[0] for name in np.load(GOLDEN / "nequip_options.npz").files}
    - {"positions", "cell", "species"}
)


def _held(arrays, name):
    """The contents of a checkpoint."""
    shapes = json.loads(str(arrays[f"{name}/shapes"]))
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    parts = torch.from_numpy(arrays[f"{name}/state"]).split(sizes)
    state = {key: part.reshape(shapes[key]) for key, part in zip(shapes, parts, strict=True)}
    hyper = json.loads(str(arrays[f"{name}/hyper_parameters"]))
    return {"hyper_parameters": hyper, "state_dict": state}


def _check(arrays, name, folder):
    path = folder / "model.ckpt"
    torch.save(_held(arrays, name), path)
    frame = Configuration(
        arrays["species"], arrays["positions"], arrays["cell"], np.ones(3, dtype=bool)
    )
    model = read_nequip(path)
    out = model(configuration_graph(frame, model.type_map, model.cutoff))
    for key in ("energy", "forces"):
        value = arrays[f"{name}/{key}"]
        assert np.abs(out[key].detach().numpy() - value).max() <= 1e-12 * np.abs(value).max(), name


@pytest.mark.parametrize("name", CASES)
def test_equals_nequip(name, tmp_path):
    _check(np.load(GOLDEN / "nequip_options.npz"), name, tmp_path)
