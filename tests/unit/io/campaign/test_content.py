"""A resumed run recognises its data: rows, files and their content, but not dates of files."""

import os
import shutil

import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign import open_campaign
from scitoolkit.io.campaign.content import content_of, require_same_content


def write(folder, runs=3, rows=6, seed=0, kind="nc"):
    folder.mkdir(exist_ok=True)
    for run in range(runs):
        values = np.random.default_rng([seed, run]).random((rows, 40, 50))
        found = xr.Dataset({"u": (("time", "y", "x"), values)}, {"time": np.arange(float(rows))})
        if kind == "nc":
            found.to_netcdf(folder / f"run{run}.nc", engine="h5netcdf")
        else:
            found.to_zarr(folder / f"run{run}.zarr", consolidated=False)
    return folder


def content(folder):
    return content_of(open_campaign(folder, ["u"]))


@pytest.mark.parametrize("kind", ["nc", "zarr"])
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"rows": 7}, "has 7 rows"),
        ({"runs": 4}, "is new"),
        ({"runs": 2}, "is missing"),
        ({"seed": 1}, "other content"),
    ],
)
def test_other_data_are_told(tmp_path, kind, change, fault):
    before = content(write(tmp_path / "a", kind=kind))
    now = content(write(tmp_path / "b", kind=kind, **change))
    with pytest.raises(DataError, match=fault):
        require_same_content(before, now, "runs")


def test_copies_are_the_same_data(tmp_path):
    before = content(write(tmp_path / "a"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for path in (tmp_path / "b").iterdir():
        os.utime(path, (0, 0))
    require_same_content(before, content(tmp_path / "b"), "runs")
