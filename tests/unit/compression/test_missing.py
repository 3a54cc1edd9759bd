"""Every convention for missing values is honoured by compression and by verification alike."""

from __future__ import annotations

import warnings

import h5py
import numpy as np
import pytest
import xarray as xr

from scitoolkit.cli.main import run_cli
from scitoolkit.compression import (
    Bound,
    MissingValues,
    Options,
    compress,
    compress_slabs,
    decompress,
    inspect_stream,
    iterate_slabs,
)
from scitoolkit.compression.check import compared, verify_file
from scitoolkit.compression.compress import compress_within
from scitoolkit.compression.files import FilePlan, compress_file, decompress_file
from scitoolkit.compression.missing import NETCDF_FILL
from scitoolkit.compression.stored import Stored
from scitoolkit.core.errors import ConfigError, NumericalError

REL = 1e-3


def ocean(dtype: str = "f4") -> np.ndarray:
    y, x = np.mgrid[:40, :60]
    noise = 0.1 * np.random.default_rng(0).standard_normal((40, 60))
    return (100 * np.sin(y / 9) * np.cos(x / 7) + noise).astype(dtype)


def land(value: float, dtype: str = "f4") -> tuple[np.ndarray, np.ndarray]:
    field = ocean(dtype)
    where = np.zeros(field.shape, bool)
    where[5:20, 10:30] = True
    field[where] = value
    return field, where


def f4(*values: float) -> np.ndarray:
    return np.array(values, "f4")


# Attributes, HDF5 fill value, and the value at the missing points.
CONVENTIONS = {
    "_FillValue": ({"_FillValue": f4(1e20)}, None, 1e20),
    "_FillValue of NaN and missing_value": (
        {"_FillValue": np.float32("nan"), "missing_value": np.float32(1e20)},
        None,
        1e20,
    ),
    "several missing_values": ({"missing_value": f4(-999, -1e34)}, None, -1e34),
    "a double for float data": ({"missing_value": 1e20}, None, 1e20),
    "text": ({"missing_value": "-9999."}, None, -9999),
    "HDF5 fill value": ({}, -1e30, -1e30),
    "netCDF's default": ({}, None, NETCDF_FILL),
    "valid_max": ({"valid_max": np.float32(1e3)}, None, 1e5),
    "valid_min": ({"valid_min": np.float32(-1e3)}, None, -1e5),
    "valid_range": ({"valid_range": f4(-1e3, 1e3)}, None, 1e10),
    "a float _FillValue of double data": ({"_FillValue": np.float32(1e20)}, None, 1e20),
}


@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_convention_is_honoured_by_compress_and_verify(name, tmp_path):
    attributes, fill, value = CONVENTIONS[name]
    field, where = land(value, "f8" if "double data" in name else "f4")
    source, small, back = (tmp_path / n for n in ("a.h5", "b.h5", "c.h5"))
    with h5py.File(source, "w") as file:
        made = file.create_dataset("t", data=field, fillvalue=fill)
        made.attrs.update(attributes)
    compress_file(source, small, FilePlan(Bound("rel", REL), {}, Options(codec="dyadic")))
    decompress_file(small, back)
    with h5py.File(back) as file:
        found = file["t"][...]
    assert found[where].tobytes() == field[where].tobytes()
    bound = REL * float(np.ptp(field[~where]))
    assert np.abs(found[~where].astype(float) - field[~where]).max() <= bound
    (record,) = verify_file(small, source)
    assert record["holds"]
    assert record["allowed"] == pytest.approx(bound, rel=1e-5)


@pytest.mark.parametrize(("value", "attributes"), [(1e20, {"missing_value": 1e20}), (1e20, {})])
def test_verify_does_not_trust_a_stream_that_took_missing_values_for_data(
    value, attributes, tmp_path
):
    field, _ = land(value)
    stream = compress_within(field, Bound("rel", REL), Options(), extent=(-100.0, 1e20))
    missing = MissingValues.from_attributes(attributes, field.dtype)
    one = Stored.of_stream("t", stream)
    assert not compared("t", one.about, one.decode(), field, missing)["holds"]


@pytest.mark.parametrize("how", [{"rel": REL}, {"psnr": 60.0}])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_range_of_outliers_is_refused_with_the_fix(how, dtype):
    field, where = land(1e20, dtype)
    with pytest.raises(NumericalError, match=r"--missing 1e\+20"):
        compress(field, **how)
    lonely = ocean(dtype)
    lonely[3, 4] = -1e12
    with pytest.raises(NumericalError, match="outliers"):
        compress(lonely, **how)
    few = ocean(dtype)
    few.reshape(-1)[:2] = 1e12, 2e12
    with pytest.raises(NumericalError, match="outliers"):
        compress(few, **how)
    with pytest.raises(NumericalError, match="outliers"):
        compress_slabs(few, Bound(*next(iter(how.items()))), Options(), slab_bytes=2000)
    found = decompress(compress(field, **how, missing=1e20))
    assert found[where].tobytes() == field[where].tobytes()
    assert decompress(compress(lonely, abs=1e-2))[3, 4] == dtype_of(lonely)(-1e12)


def dtype_of(field: np.ndarray) -> type:
    return field.dtype.type


def test_sparse_and_skewed_fields_are_not_taken_for_outliers():
    sparse = np.zeros((50, 50), "f4")
    sparse[3, 4:9] = np.linspace(1, 1e5, 5)
    skewed = np.exp(np.random.default_rng(0).normal(0, 2, (40, 40))).astype("f4")
    for field in (sparse, skewed, np.full((20, 20), 3.5, "f4")):
        assert np.abs(decompress(compress(field, rel=REL)) - field).max() <= REL * np.ptp(field)


def test_the_command_takes_missing_values(tmp_path, capsys):
    field, where = land(-32768.0)
    field[0, 0] = 1e30
    np.save(tmp_path / "x.npy", field)
    names = [str(tmp_path / n) for n in ("x.npy", "x.sci", "y.npy")]
    assert run_cli(["compress", *names[:2], "--rel", "1e-3"]) == 4
    assert "--missing 1e+30" in capsys.readouterr().err
    assert not (tmp_path / "x.sci").exists()
    given = ["--missing", "-32768", "--missing", "1e30"]
    assert run_cli(["compress", *names[:2], "--rel", "1e-3", *given]) == 0
    assert run_cli(["decompress", *names[1:]]) == 0
    assert run_cli(["verify", names[1], names[0]]) == 0
    found, where[0, 0] = np.load(names[2]), True
    assert found[where].tobytes() == field[where].tobytes()
    assert np.abs(found - field)[~where].max() <= 1e-3 * np.ptp(field[~where])


def test_no_valid_value_decodes_to_a_missing_one():
    rain = np.maximum(ocean(), 0)
    for missing in (
        MissingValues((50.0,)),
        MissingValues(valid_min=0.0),
        MissingValues((0.0,), valid_max=90.0),
        MissingValues(valid_min=-0.1, valid_max=float(rain.max())),
    ):
        where = missing.where(rain)
        found = decompress(compress(rain, abs=0.5, missing=missing))
        assert (missing.where(found) == where).all()
        assert found[where].tobytes() == rain[where].tobytes()
        assert np.abs(found - rain).max() <= 0.5


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize("slab_bytes", [1 << 20, 3000])
def test_masked_arrays_come_back_masked(dtype, slab_bytes):
    field, where = land(0, dtype)
    field[where] = 12345
    field[30, 30] = 7 if dtype == "i4" else np.nan
    masked = np.ma.array(field, mask=where, fill_value=-7)
    stream = compress_slabs(masked, Bound("rel", REL), Options(), slab_bytes=slab_bytes)
    found = decompress(stream)
    assert isinstance(found, np.ma.MaskedArray)
    assert (np.ma.getmaskarray(found) == where).all()
    assert found.fill_value == -7
    kept = ~where & np.isfinite(field)
    assert np.abs(found.data[kept].astype(float) - field[kept]).max() <= REL * np.ptp(field[kept])
    assert np.ma.concatenate(list(iterate_slabs(stream))).data.tobytes() == found.data.tobytes()
    assert inspect_stream(stream)["masked"] == -7


def test_a_mask_that_hides_nothing_or_everything():
    for mask in (False, True):
        masked = np.ma.array(ocean(), mask=np.full((40, 60), mask))
        found = decompress(compress(masked, rel=REL))
        assert (np.ma.getmaskarray(found) == mask).all()


def test_attributes_of_an_xarray_array_are_honoured():
    field, where = land(-999)
    array = xr.DataArray(field, dims=("y", "x"), attrs={"missing_value": -999.0})
    found = decompress(compress(array, rel=REL))
    assert np.abs(found - field)[~where].max() <= REL * np.ptp(field[~where])
    assert (found[where] == -999).all()


def test_missing_values_that_are_no_numbers_are_refused_or_named(caplog):
    with pytest.raises(ConfigError, match="numbers"):
        compress(ocean(), rel=REL, missing="land")
    found = MissingValues.from_attributes({"missing_value": "none"}, np.dtype("f4"))
    assert found == MissingValues()


def test_masked_half_floats_are_compressed_without_a_remark():
    values = np.cumsum(np.ones((30, 40), "f2"), 1)
    masked = np.ma.array(values, mask=values > 35)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        back = decompress(compress(masked, rel=REL))
    np.testing.assert_array_equal(back.mask, masked.mask)
    assert np.abs(back.data[~back.mask] - values[~masked.mask]).max() <= REL * 34
