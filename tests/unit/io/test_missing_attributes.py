"""What attributes declare as missing is missing on both roads into files."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import xarray as xr

from scitoolkit import open_campaign
from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign import open_campaign as find_campaign
from scitoolkit.io.campaign.kept import training_moments
from scitoolkit.io.campaign.measure import Question
from scitoolkit.io.campaign.rows import row_sets
from scitoolkit.io.fields import open_fields
from scitoolkit.io.missing_attributes import missing_numbers, stored_limits, valid_limits

FILL = 9.969209968386869e36
# Name: stored dtype, attributes, a stored value that is missing, and the largest that is not.
DECLARED = {
    "valid_range": ("f4", {"valid_range": np.array([-100, 100], "f4")}, 1e5, 100),
    "valid_min of float32 in float64": ("f8", {"valid_min": np.float32(0.1)}, -3, 50),
    "float limits of float32": ("f4", {"valid_max": 0.1}, 0.2, 0.1),
    "packed limit": ("i2", {"scale_factor": 0.1, "valid_min": np.int16(-5)}, -6, 99),
    "unpacked limit": ("i2", {"scale_factor": 0.1, "valid_max": np.float32(4.95)}, 50, 49),
    "negative scale": ("i2", {"scale_factor": -0.1, "valid_max": np.float32(4.95)}, -50, 49),
    "signed limit of unsigned": (
        "i1",
        {"_Unsigned": "true", "valid_range": np.array([0, -16], "i1")},
        -6,
        -16,
    ),
    "text": ("f4", {"missing_value": "-999."}, -999, 5),
    "text of a scale": ("i2", {"missing_value": "-99", "scale_factor": "0.5"}, -99, 5),
    "decimals of float32": ("f8", {"missing_value": np.float32(-999.9)}, -999.9, 5),
}


def written(path, dtype, attributes, missing, valid, fill=None):
    """Write rows of 8 x 8 values, one of which is missing in row 3."""
    u = np.full((12, 8, 8), valid, dtype)
    u[3, 2, 2] = missing
    with h5py.File(path, "w") as file:
        item = file.create_dataset("u", data=u, fillvalue=fill)
        item.attrs.update(attributes)
        for axis, dim in enumerate(("time", "y", "x")):
            file[dim] = np.arange(float(u.shape[axis]))
            file[dim].make_scale(dim)
            item.dims[axis].attach_scale(file[dim])
    return u


@pytest.mark.parametrize("name", DECLARED)
def test_declared_values_are_missing_on_both_roads(tmp_path, name):
    dtype, attributes, missing, valid = DECLARED[name]
    stored = written(tmp_path / "a.nc", dtype, attributes, missing, valid)
    if "_Unsigned" in attributes:
        stored = stored.view("u1")
    expected = stored * float(attributes.get("scale_factor", 1))
    expected[3, 2, 2] = np.nan
    with open_fields(tmp_path / "a.nc") as fields:
        np.testing.assert_allclose(fields["u"].values, expected, rtol=1e-6)
        assert np.isnan(fields["u"][3, 2, 2].values)
    lazy = open_campaign(tmp_path / "a.nc", ["u"]).dataset(0)["u"]
    np.testing.assert_allclose(lazy.values, expected, rtol=1e-6)


def test_the_default_fill_of_netcdf_is_missing_though_no_attribute_states_it(tmp_path):
    written(tmp_path / "a.nc", "f4", {}, FILL, 1, fill=FILL)
    with open_fields(tmp_path / "a.nc") as fields:
        assert np.argwhere(np.isnan(fields["u"].values)).tolist() == [[3, 2, 2]]
    with pytest.raises(DataError, match="row 3"):
        list(open_campaign(tmp_path / "a.nc", ["u"]).loader(batch_size=12, horizon=0))
    written(tmp_path / "plain.h5", "f4", {}, FILL, 1)  # HDF5 that no netCDF library filled
    with open_fields(tmp_path / "plain.h5") as fields:
        assert np.isfinite(fields["u"].values).all()


def test_limits_of_lazy_chunks(tmp_path):
    pytest.importorskip("dask")
    written(tmp_path / "a.nc", "f4", {"valid_max": np.float32(10)}, 11, 10)
    with open_fields(tmp_path / "a.nc", chunks={"time": 5}) as fields:
        assert fields["u"].chunks is not None
        assert int(np.isnan(fields["u"].values).sum()) == 1
        assert "valid_max" not in fields["u"].attrs


def test_attributes_as_numbers():
    assert missing_numbers({"_FillValue": b"1e20f", "missing_value": [-9, np.nan]}, np.dtype("f4"))
    assert missing_numbers({"missing_value": "none"}, np.dtype("f4")) == ()
    assert valid_limits({"valid_min": "0", "valid_max": np.inf}) == (0.0, np.inf)
    assert stored_limits({}, np.dtype("f4"), None, 0.0) == (-np.inf, np.inf)


def test_a_valid_range_of_another_unit_hides_nothing(tmp_path):
    """Arithmetic may keep attributes: values in K with the range of degC."""
    values = (290 + np.random.default_rng(0).normal(size=(12, 5, 4))).astype("f4")
    about = {"units": "K", "valid_range": np.array([-5, 40], "f4")}
    temperature = xr.DataArray(values, dims=("time", "y", "x"), name="t", attrs=about)
    temperature.to_netcdf(tmp_path / "kelvin.nc")
    with open_fields(tmp_path / "kelvin.nc") as fields:
        assert np.array_equal(fields["t"].values, values)
    campaign = find_campaign(tmp_path / "kelvin.nc", ["t"])
    with pytest.raises(DataError, match=r"outside valid_range \[-5.0, 40.0\], as the file says"):
        training_moments(campaign, row_sets(campaign), campaign.index.blocks, Question(1, ("t",)))


# netcdf.h: NC_FILL_SHORT, NC_FILL_USHORT, ...
@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("i2", -32767),
        ("u2", 65535),
        ("i4", -2147483647),
        ("u4", 4294967295),
        ("i8", -9223372036854775806),
        ("u8", 18446744073709551614),
    ],
)
def test_the_default_fill_of_integers_is_missing(tmp_path, dtype, fill):
    for name, library in (("a.nc", {"fillvalue": np.dtype(dtype).type(fill)}), ("b.h5", {})):
        with h5py.File(tmp_path / name, "w") as file:
            u = file.create_dataset("u", data=np.ones((12, 4), dtype), **library)
            u[3] = fill
    with open_fields(tmp_path / "a.nc") as fields:
        assert np.isnan(fields["u"].values[3]).all()
        assert (fields["u"].values[4] == 1).all()
    dims = ["time", "x"]
    lazy = open_campaign(tmp_path / "a.nc", ["u"], dims=dims).dataset(0)["u"].values
    assert np.isnan(lazy[3]).all()
    assert (lazy[4] == 1).all()
    with pytest.raises(DataError, match="row 3"):
        list(open_campaign(tmp_path / "a.nc", ["u"], dims=dims).loader(batch_size=12, horizon=0))
    with open_fields(tmp_path / "b.h5") as fields:  # HDF5 that no netCDF library filled
        assert fields["u"].values[3].tolist() == [fill] * 4


def test_bytes_have_no_default_fill(tmp_path):
    for dtype, fill in (("i1", -127), ("u1", 255)):
        with h5py.File(tmp_path / "a.nc", "w") as file:
            file.create_dataset("u", data=np.full((3, 4), fill, dtype), fillvalue=fill)
        with open_fields(tmp_path / "a.nc") as fields:
            assert (fields["u"].values == fill).all()
