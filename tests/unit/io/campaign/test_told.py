"""`inspect` tells what each variable and dim is taken for, and which attribute states it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from scitoolkit.cli.main import app
from scitoolkit.io.inspect import describe


@pytest.fixture
def stored(tmp_path, request):
    """A month of temperature with what climate files store beside it, as NetCDF or Zarr."""
    lat = ("lat", np.linspace(50, 30, 5), {"standard_name": "latitude"})
    time = ("when", np.arange(4.0), {"units": "days since 2000-01-01", "bounds": "spans"})
    dataset = xr.Dataset(
        {
            "tas": (
                ("when", "plev", "lat", "q"),
                np.ones((4, 2, 5, 3)),
                {"cell_measures": "area: a"},
            ),
            "spans": (("when", "two"), np.zeros((4, 2))),
            "a": (("lat", "q"), np.ones((5, 3))),
            "crs": ((), 0),
            "kind": (("lat",), np.zeros(5, np.int32), {"flag_values": [0, 1]}),
            "site": ((), "Jungfraujoch"),
        },
        coords={"lat": lat, "when": time, "plev": ("plev", [850.0, 500.0], {"axis": "Z"})},
    )
    path = tmp_path / f"tas.{request.param}"
    if request.param == "nc":
        dataset.to_netcdf(path)
    else:
        dataset.to_zarr(path, zarr_format=2)  # format 3 has no text of fixed length
    return path


@pytest.mark.parametrize("stored", ["nc", "zarr"], indirect=True)
def test_roles_have_the_attribute_that_states_them(stored):
    told = describe(stored)
    roles = {name: (one["role"], one["because"]) for name, one in told["roles"].items()}
    assert roles["tas"][0] == "field"
    assert roles["spans"] == ("bounds", "named by bounds of when")
    assert roles["a"] == ("cell measure", "named by cell_measures of tas")
    assert roles["kind"] == ("flag", "attribute flag_values")
    assert roles["lat"] == ("coordinate", "standard_name latitude")
    assert roles["plev"] == ("coordinate", "attribute axis")
    assert roles["crs"][0] == "scalar"
    dims = {name: (one["role"], one["because"]) for name, one in told["dims"].items()}
    assert dims["when"] == ("time", "units days since 2000-01-01 of its coordinate")
    assert dims["plev"] == ("vertical", "axis Z of its coordinate")
    assert dims["lat"] == ("latitude", "standard_name latitude of its coordinate")
    assert dims["q"][0] == "space"
    assert told["others"] == ["site"]
    assert not told["remark"]


@pytest.mark.parametrize("stored", ["nc"], indirect=True)
def test_inspect_and_init_leave_no_variable_out(stored):
    shown = CliRunner().invoke(app, ["inspect", str(stored)]).output
    assert "bounds: named by bounds of when" in shown
    assert "dim plev: vertical, by axis Z of its coordinate" in shown
    assert "no numbers, never read: site" in shown
    started = CliRunner().invoke(app, ["init", "emulate", str(stored)]).output
    assert "site left out: it holds no numbers" in started


def test_files_of_a_campaign_are_told(tmp_path):
    for number in range(2):
        xr.Dataset(
            {"u": (("time", "x"), np.random.default_rng(0).normal(size=(5, 8))), "id": ((), "a")},
            coords={"time": ("time", np.arange(5.0), {"units": "s"})},
        ).to_netcdf(tmp_path / f"s{number}.nc")
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path)]).output
    assert "time, not learned unless named: coordinate, its name" in shown
    assert "no numbers, never read: id" in shown
    answer = json.loads(CliRunner().invoke(app, ["inspect", str(tmp_path), "--json"]).output)
    assert answer["roles"]["u"]["role"] == "field"
