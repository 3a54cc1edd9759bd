"""Units and places of openPMD: what changes from one iteration or file to the next."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

import scitoolkit
from scitoolkit.core.errors import DataError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.starter import DataToStart

FIELDS = np.random.default_rng(0).random((2, 6, 8, 9), np.float32)
VOLT_PER_METRE = [1.0, 1.0, -3.0, -1.0, 0.0, 0.0, 0.0]


def write(path, factor=lambda i: 1.0, offset=lambda i: 0.0, position=(0.0, 0.0), constant=False):
    with h5py.File(path, "w") as file:
        file.attrs.update({"openPMD": "1.1.0", "basePath": "/data/%T/", "meshesPath": "meshes/"})
        for i in range(6):
            group = file.create_group(f"data/{i}")
            group.attrs.update({"time": float(i), "dt": 1.0, "timeUnitSI": 1.0})
            mesh = group.create_group("meshes/E")
            mesh.attrs.update({"axisLabels": [b"y", b"x"], "gridSpacing": [0.5, 0.25]})
            mesh.attrs.update({"gridGlobalOffset": [0.0, offset(i)], "gridUnitSI": 2.0})
            mesh.attrs.update({"geometry": "cartesian", "unitDimension": VOLT_PER_METRE})
            for number, name in enumerate("xy"):
                if constant and name == "y":
                    part = mesh.create_group(name)
                    part.attrs.update({"value": 3.0, "shape": [8, 9]})
                else:
                    part = mesh.create_dataset(name, data=FIELDS[number, i])
                part.attrs["unitSI"] = factor(i)
                part.attrs["position"] = [0.5, 0.0] if position[number] else [0.0, 0.0]


def test_units_and_places_are_those_of_si(tmp_path):
    write(tmp_path / "a.h5", factor=lambda i: 1e9)
    campaign = scitoolkit.open_campaign(tmp_path / "a.h5")
    data = campaign.dataset(0)
    assert set(data.data_vars) == {"meshes_E_x", "meshes_E_y"}
    np.testing.assert_array_equal(data.meshes_E_x, FIELDS[0])
    np.testing.assert_allclose(data.x, np.arange(9) * 0.5)
    assert data.meshes_E_x.units == "1000000000 m kg s-3 A-1"


def test_another_factor_in_one_iteration_or_file_is_refused(tmp_path):
    write(tmp_path / "a.h5", factor=lambda i: 1.0 if i < 3 else 1000.0)
    with pytest.raises(DataError, match="unit '1000 m kg"):
        scitoolkit.open_campaign(tmp_path / "a.h5")
    write(tmp_path / "a.h5")
    write(tmp_path / "b.h5", factor=lambda i: 10.0)
    with pytest.raises(DataError, match="unit '10 m kg"):
        scitoolkit.open_campaign(tmp_path)


def test_a_window_that_moves_is_refused(tmp_path):
    write(tmp_path / "a.h5", offset=lambda i: 0.25 * i)
    with pytest.raises(DataError, match=r"x is 0\.5 at entry 0.*fixed window"):
        scitoolkit.open_campaign(tmp_path / "a.h5")


def test_init_tells_constants_and_places_within_a_cell(tmp_path):
    write(tmp_path / "a.h5", constant=True)
    start = DataToStart([str(tmp_path / "a.h5")], [str(tmp_path / "a.h5")], [], "")
    assert "E/y left out: a constant, 3" in job_for_task("emulate").starter(start)
    write(tmp_path / "a.h5", position=(1, 0))
    assert "E/x at [0.5, 0.0], E/y at [0.0, 0.0]" in job_for_task("emulate").starter(start)
