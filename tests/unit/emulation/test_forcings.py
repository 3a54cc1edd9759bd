"""A prediction tells which forcings it holds at their last values."""

from __future__ import annotations

import types

import numpy as np
import pytest

from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.prediction import _held_forcings
from scitoolkit.emulation.variables import Layout, Variable


def layout(inputs: str, outputs: str) -> Layout:
    def fields(names: str):
        return tuple(Variable(n, ("x",), (4,), "", True) for n in names)

    return Layout(fields(inputs), fields(outputs), {"x": 4}, {"x": [0.0, 1.0, 2.0, 3.0]}, "t")


def data(rows: int, on: Layout, **values):
    frames = [
        {n: np.full(4, values[n](k) if n in values else k, np.float32) for n in on.variables}
        for k in range(rows)
    ]
    return types.SimpleNamespace(num_samples=rows, layout=on, frame=lambda k: frames[k])


def config(inputs: str, outputs: str, **more) -> EmulationConfig:
    section = {"path": "none.nc", "inputs": list(inputs), "outputs": list(outputs), **more}
    return EmulationConfig.model_validate({"data": section, "model": "resnet"})


@pytest.mark.parametrize(
    ("inputs", "outputs", "values", "held"),
    [
        ("uf", "u", {}, ["f"]),
        ("uf", "u", {"f": lambda k: 3.0}, []),
        ("uf", "u", {"f": lambda k: np.nan}, []),  # land
        ("uf", "u", {"f": lambda k: float(k == 9)}, ["f"]),
        ("ufg", "u", {"g": lambda k: 1.0}, ["f"]),
        ("u", "u", {}, []),
    ],
)
def test_forcings_that_change_in_time(inputs, outputs, values, held):
    on = layout(inputs, outputs)
    assert _held_forcings(config(inputs, outputs), on, data(10, on, **values)) == held


def test_one_sample_tells_nothing():
    on = layout("uf", "u")
    assert _held_forcings(config("uf", "u"), on, data(1, on)) == []
