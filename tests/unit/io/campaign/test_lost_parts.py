"""A part or a member that is missing in some files does not make simulations of all files."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from scitoolkit import open_campaign
from scitoolkit.core.errors import DataError


def write_years(folder, lost):
    for member in range(3):
        for year in range(3):
            if (member, year) == lost:
                continue
            values = np.random.default_rng(9 * member + year).standard_normal((12, 4, 5))
            days = np.arange(12.0) * 30 + 360 * year
            attrs = {"units": "days since 1850-01-01", "calendar": "360_day"}
            data = xr.Dataset({"u": (("time", "y", "x"), values)}, {"time": ("time", days, attrs)})
            name = f"tas_r{member}i1p1f1_{1850 + year}01-{1850 + year}12.nc"
            data.to_netcdf(folder / name, engine="h5netcdf")


def test_a_missing_year_of_one_member_is_a_gap_of_that_member(tmp_path):
    write_years(tmp_path, lost=(1, 1))
    with pytest.raises(DataError, match="times are missing between"):
        open_campaign(tmp_path)
    index = open_campaign(tmp_path, gaps="split").found.index
    assert index.num_simulations == 3
    assert index.breaks.tolist() == [36 + 12]


def test_members_that_some_parts_lack_are_refused(tmp_path):
    for part, members in enumerate((5, 4)):
        values = np.random.default_rng(part).standard_normal((6, members, 4, 5))
        attrs = {"units": "hours since 2000-01-01"}
        coords = {"number": np.arange(members), "time": ("time", np.arange(6.0) + 6 * part, attrs)}
        data = xr.Dataset({"u": (("time", "number", "y", "x"), values)}, coords)
        data.to_netcdf(tmp_path / f"part{part}.nc", engine="h5netcdf")
    with pytest.raises(DataError, match="member 4 is in 1 of 2 files"):
        open_campaign(tmp_path)
    assert open_campaign(tmp_path, files="simulations").found.index.num_simulations == 9
