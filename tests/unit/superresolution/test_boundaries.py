"""Boundary conditions in crops: at the coordinates of the file, under mirrors, in part of a dim."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr
from prepared_crops import prepare

from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError
from scitoolkit.io.fields import write_fields
from scitoolkit.io.loader.cursor import tensors
from scitoolkit.superresolution import SuperresolutionConfig


@pytest.fixture
def ramp_job(job_file, tmp_path):
    """Write a job whose field is 1 + 2 z at z = 0.5 ... 1.5 with conditions at both ends."""
    z, t = np.linspace(0.5, 1.5, 33), np.linspace(0.0, 1.0, 33)
    u = np.broadcast_to(1 + 2 * z, (33, 33)).astype("f4")
    data = xr.Dataset({"u": (("t", "z"), u)}, coords={"t": t, "z": z})
    path = str(write_fields(data, tmp_path / "ramp.nc"))

    def make(walled=(), **sections):
        sections = {
            "boundaries": [
                {"field": "u", "dim": "z", "at": 0.5, "value": 2.0},
                {"field": "u", "dim": "z", "at": 1.5, "value": 4.0},
                {"field": "u", "dim": "z", "at": 1.5, "value": 2.0, "order": 1},
            ],
            "boundary_weight": 1.0,
            **sections,
        }
        return job_file(
            data={
                "path": path,
                "test": path,
                "dims": ["t", "z"],
                "periodic": {},
                "walled": list(walled),
            },
            crop={
                "size": {"t": 9, "z": 17},
                "every": {"t": 4, "z": 4},
                "symmetries": {"mirror": {"z": ["u"]}},
            },
            pde={"equations": {}, "weight": 0.0},
            **sections,
        )

    return make


@pytest.mark.parametrize("walled", [[], ["z"]])
def test_an_exact_field_meets_its_boundary_conditions(ramp_job, walled):
    """An untrained model without its decoder interpolates, which is exact for a linear field."""
    config = load_config(SuperresolutionConfig, ramp_job(walled))
    prepared = prepare(config)
    task = prepared.task
    last = task.model.decoder.linears[-1]
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.zeros_(last.bias)
    source = prepared.loaders["train"].source
    batch = tensors(source.read(np.arange(64)))
    assert set(batch["signs"].ravel().tolist()) == {-1.0, 1.0}
    assert float(task._boundary_loss(batch).detach()) < 1e-5
    wrong = {**batch, "reflection": batch["reflection"].clone()}
    wrong["reflection"][..., 0], wrong["reflection"][..., 1] = 1.0, 0.0
    assert float(task._boundary_loss(wrong).detach()) > 0.1


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"boundaries": [{"field": "v", "dim": "z", "at": 0.5}]}, "'v' is not one of the fields"),
        ({"boundaries": [{"field": "u", "dim": "y", "at": 0.5}]}, "'y' is not one of the dims"),
        ({"flow": {"velocity": {"z": "w"}, "viscosity": 0.1}}, "'w' is not one of the fields"),
        ({"flow": {"velocity": {"z": "u"}, "time": "time"}}, "'time' is not one of the dims"),
        (
            {"model": {"encoder": {"stages": [{"channels": 8, "refine": {"x": 2}}]}}},
            "'x' is not one of the dims",
        ),
    ],
)
def test_unknown_names_are_refused_before_the_training(ramp_job, sections, message):
    config = load_config(SuperresolutionConfig, ramp_job(**sections))
    with pytest.raises(ConfigError, match=message):
        prepare(config)


def test_a_boundary_across_a_periodic_dim_is_refused(job_file):
    path = job_file(boundaries=[{"field": "u", "dim": "x", "at": 0.0}], boundary_weight=1.0)
    with pytest.raises(ConfigError, match="x is periodic"):
        prepare(load_config(SuperresolutionConfig, path))
