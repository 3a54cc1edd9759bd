"""Statistics are those of the stored values in float64, for every type, scale and storage."""

import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign import open_campaign
from scitoolkit.io.campaign.kept import training_moments
from scitoolkit.io.campaign.measure import Question
from scitoolkit.io.campaign.rows import row_sets


def values(kind, size, seed):
    random = np.random.default_rng(seed)
    wave = np.sin(np.arange(40)[:, None, None] / 5 + random.random((1, 6, 7)) * 6)
    return {
        "small": 1e-12 * wave,
        "pressure": 101325 + 300 * wave,
        "large": 1e25 * (2 + wave),
        "negative": -273.15 + wave,
    }[size].astype(kind)


@pytest.mark.parametrize("kind", ["f4", "f8", ">f4", ">f8", "i2"])
@pytest.mark.parametrize("size", ["small", "pressure", "large", "negative"])
def test_moments_are_those_of_float64(tmp_path, kind, size):
    stored, encoding = [], {}
    for run in range(3):
        found = values("f8" if kind == "i2" else kind, size, run)
        if kind == "i2":
            span = 12 * np.abs(found - found.mean()).max()
            packing = {"scale_factor": span / 2**16, "add_offset": found.mean()}
            encoding = {"u": {"dtype": "i2", "_FillValue": -(2**15), **packing}}
        dataset = xr.Dataset({"u": (("time", "y", "x"), found)}, {"time": np.arange(40.0)})
        path = tmp_path / f"run{run}.nc"
        dataset.to_netcdf(path, engine="h5netcdf", encoding=encoding)
        with xr.open_dataset(path, mask_and_scale=False) as raw:
            numbers = raw.u.values.astype("f8")
            stored.append(
                numbers * float(raw.u.attrs.get("scale_factor", 1))
                + float(raw.u.attrs.get("add_offset", 0))
            )
    campaign = open_campaign(tmp_path, ["u"])
    question = Question(1, ("u",))
    rows = campaign.index.blocks
    measured, _ = training_moments(campaign, row_sets(campaign), rows, question)
    mean, scale = measured.values["u"].result()
    change = measured.changes["u"].root_mean_square()
    every = np.stack(stored)
    size_of_values = np.abs(every).max()
    assert abs(mean[0] - every.mean()) <= 1e-12 * size_of_values
    assert abs(scale[0] - every.std()) <= 1e-12 * size_of_values
    expected = np.sqrt(np.mean(np.diff(every, axis=1) ** 2))
    assert change[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("lead", [1, 3])
@pytest.mark.parametrize(("offset", "scale"), [(0.1, 0.003), (273.15, 0.01), (-7e4, 0.3)])
def test_changes_from_a_packed_file_to_the_next_are_those_of_float64(tmp_path, offset, scale, lead):
    whole = np.random.default_rng(0).integers(-900, 900, (12, 5, 4))
    for part, rows in enumerate([slice(0, 7), slice(7, 9), slice(9, 12)]):
        packing = {
            "dtype": "i2",
            "_FillValue": -(2**15),
            "scale_factor": scale,
            "add_offset": offset,
        }
        data = xr.Dataset(
            {"u": (("time", "y", "x"), whole[rows] * scale + offset)},
            {"time": ("time", np.arange(12.0)[rows], {"units": "days since 2000-01-01"})},
        )
        data.to_netcdf(tmp_path / f"a_{part}.nc", engine="h5netcdf", encoding={"u": packing})
    campaign = open_campaign(tmp_path, ["u"])
    found, _ = training_moments(
        campaign, row_sets(campaign), campaign.index.blocks, Question(lead, ("u",))
    )
    values = whole * scale + offset
    expected = np.sqrt(np.mean((values[lead:] - values[:-lead]) ** 2))
    assert campaign.index.num_simulations == 1
    assert found.changes["u"].root_mean_square()[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("value", [1e39, -1e300, np.inf, np.nan])
def test_values_that_float32_does_not_hold_are_refused(tmp_path, value):
    found = values("f8", "pressure", 0)
    found[17, 2, 3] = value
    dataset = xr.Dataset({"u": (("time", "y", "x"), found)}, {"time": np.arange(40.0)})
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    campaign = open_campaign(tmp_path / "a.nc", ["u"])
    question = Question(1, ("u",))
    with pytest.raises(DataError, match="row 17"):
        training_moments(campaign, row_sets(campaign), campaign.index.blocks, question)
