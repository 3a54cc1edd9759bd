"""Files in other units, steps and kinds of time than the training of a super-resolution model."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import xarray as xr
from advected_waves import LENGTH, wave_fields

from scitoolkit import api
from scitoolkit.core.errors import DataError
from scitoolkit.io.fields import write_fields


def with_units(fields: xr.Dataset) -> xr.Dataset:
    """Return waves in metres a second, along metres and seconds."""
    fields = fields.assign(u=fields.u.assign_attrs(units="m/s"))
    coordinates = {d: (d, fields[d].values, {"units": u}) for d, u in (("t", "s"), ("x", "m"))}
    return fields.assign_coords(coordinates)


@pytest.fixture(scope="module")
def run(job_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("facts")
    train = write_fields(with_units(wave_fields()), folder / "train.nc")
    data = {"path": str(train), "test": str(train), "periodic": {"x": LENGTH}}
    return api.train(job_file(data=data)).path


def low() -> xr.Dataset:
    return with_units(wave_fields(phase=0.37)).isel(t=slice(None, None, 4), x=slice(None, None, 4))


def refined(run, fields, tmp_path) -> xr.Dataset:
    path = write_fields(fields, tmp_path / "in.nc")
    api.predict(run, path, tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as opened:
        return opened.load()


def scaled(fields: xr.Dataset, dim: str, factor: float, units: str) -> xr.Dataset:
    return fields.assign_coords({dim: (dim, fields[dim].values * factor, {"units": units})})


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.assign(u=(f.u * 100).assign_attrs(units="cm/s")),
        lambda f: f.assign(u=(f.u * 3.6).assign_attrs(units="km/h")),
        lambda f: scaled(f, "t", 1e3, "ms"),
        lambda f: scaled(f, "t", 1 / 60, "min"),
        lambda f: f.isel(x=slice(None, None, -1)),
        lambda f: f.transpose("x", "t"),
    ],
    ids=["cm/s", "km/h", "ms", "min", "reversed", "transposed"],
)
def test_the_same_fields_in_another_form_are_refined_alike(run, tmp_path, change):
    wanted = refined(run, low(), tmp_path)
    out = refined(run, change(low()), tmp_path)
    assert out.u.dims == wanted.u.dims
    np.testing.assert_allclose(out.u, wanted.u, atol=1e-4 * float(np.abs(wanted.u).max()))
    np.testing.assert_allclose(out.t, wanted.t, rtol=1e-6)


def dated(fields: xr.Dataset) -> xr.Dataset:
    days = np.datetime64("2000-01-01", "ns") + np.arange(len(fields.t)) * np.timedelta64(1, "D")
    return fields.assign_coords(t=("t", days))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.assign(u=f.u.assign_attrs(units="K")), "unit K"),
        (lambda f: scaled(f, "t", 1.0, "m"), "unit m"),
        (lambda f: scaled(f, "t", 2.0, "s"), "step"),
        (lambda f: scaled(f, "t", 0.5, "s"), "step"),
        (dated, "dates"),
    ],
    ids=["kelvin", "metres", "double", "half", "dates"],
)
@pytest.mark.parametrize("use", ["predict", "evaluate"])
def test_fields_of_another_kind_are_refused(run, tmp_path, change, words, use):
    fields = low() if use == "predict" else with_units(wave_fields())
    path = write_fields(change(fields), tmp_path / "in.nc")

    def apply():
        if use == "predict":
            return api.predict(run, path, tmp_path / "out.nc")
        return api.evaluate(run, data=path)

    with pytest.raises(DataError, match=words):
        apply()


def test_a_model_without_facts_still_opens_and_converts_the_units_of_its_header(run, tmp_path):
    older = shutil.copytree(run, tmp_path / "older")
    (older / "model" / "facts.json").unlink()
    wanted = refined(run, low(), tmp_path)
    fields = low()
    out = refined(older, fields.assign(u=(fields.u * 100).assign_attrs(units="cm/s")), tmp_path)
    np.testing.assert_allclose(out.u, wanted.u, atol=1e-4 * float(np.abs(wanted.u).max()))


def test_other_constants_of_the_equations_are_told(run, tmp_path, caplog):
    refined(run, low(), tmp_path)
    assert "trained on" not in caplog.text
    speed = low().attrs["speed"]
    refined(run, low().assign_attrs(speed=3 * speed, number_of_cores=64), tmp_path)
    assert f"in.nc: speed is {3 * speed:.6g}, the model was trained on {speed:.6g}" in caplog.text
    assert "number_of_cores" not in caplog.text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda f: f.assign(u=(f.u * 100).assign_attrs(units="")), "without a unit"),
        (lambda f: f.assign(u=(f.u / 100).assign_attrs(units="")), "without a unit"),
        (lambda f: f.assign(u=(f.u + 300).assign_attrs(units="")), "without a unit"),
        (lambda f: f.assign(u=f.u.where(f.x > 0.3, 1e20).assign_attrs(f.u.attrs)), "fill value"),
        (lambda f: f.assign(u=f.u.where(f.x > 0.3, -999).assign_attrs(f.u.attrs)), "fill value"),
        (lambda f: f.assign(u=f.u.where(f.x > 0.3, -999).assign_attrs(units="km/h")), "fill"),
    ],
    ids=[
        "centimetres without a unit",
        "hectometres without a unit",
        "shifted without a unit",
        *("1e20", "-999", "converted"),
    ],
)
def test_values_of_unknown_meaning_are_refused(run, tmp_path, change, text):
    with pytest.raises(DataError, match=text) as error:
        refined(run, change(low()), tmp_path)
    assert "in.nc: variable u" in str(error.value)
    path = write_fields(change(with_units(wave_fields())), tmp_path / "all.nc")
    with pytest.raises(DataError, match=text):
        api.evaluate(run, data=path)


def test_values_far_from_the_training_are_told(run, tmp_path, caplog):
    refined(run, low(), tmp_path)
    assert "standard deviations" not in caplog.text
    refined(run, low().assign(u=(low().u * 100).assign_attrs(units="m/s")), tmp_path)
    assert "in.nc: variable u: a mean of" in caplog.text
