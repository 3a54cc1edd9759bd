from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.stream import StreamedVariable, stream_fields


def test_dates_units_and_values_come_back(tmp_path):
    times = np.datetime64("2020-01-01", "ns") + np.arange(3) * np.timedelta64(1, "D")
    rows = xr.Dataset(coords={"time": times, "x": ("x", [0.5, 1.5], {"units": "m"})})
    variables = {
        "u": StreamedVariable(("x",), (2,), {"units": "m/s"}),
        "k": StreamedVariable((), ()),
    }
    samples = ({"u": np.full(2, i), "k": np.float32(i)} for i in range(3))
    path = stream_fields(samples, variables, rows, "time", tmp_path / "deep" / "out.nc")
    with xr.open_dataset(path) as found:
        assert found["u"].dims == ("time", "x")
        assert found["u"].attrs["units"] == "m/s"
        assert found["x"].attrs["units"] == "m"
        assert (found["time"].values == times).all()
        assert found["k"].values.tolist() == [0.0, 1.0, 2.0]


def test_an_error_halfway_leaves_no_file_and_keeps_the_old_one(tmp_path):
    path = tmp_path / "out.nc"
    path.write_text("old")

    def samples():
        yield {"u": np.zeros(2)}
        raise DataError("the source broke")

    rows = xr.Dataset(coords={"t": [0.0, 1.0]})
    with pytest.raises(DataError, match="the source broke"):
        stream_fields(samples(), {"u": StreamedVariable(("x",), (2,))}, rows, "t", path)
    assert [p.name for p in tmp_path.iterdir()] == ["out.nc"]
    assert path.read_text() == "old"
