"""The shipped super-resolution model on altered fields: equal numbers, or a difference by name."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from scitoolkit import api
from scitoolkit.core.content import find_content
from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.io.fields import open_fields

PERIOD = 4.0


@pytest.fixture(scope="module")
def coarse():
    """The flow that the model did not learn from, on the nodes that it takes."""
    path = find_content("datasets", "rayleigh_benard") / "rb2d_ra1e6_pr1_s43_t20-23.75.h5"
    fields = open_fields(path).isel(t=slice(None, 11, 5), z=slice(4, None, 9), x=slice(0, 64, 8))
    return fields.load()


def predicted(fields, folder):
    fields.to_netcdf(folder / "in.nc", engine="h5netcdf")
    model = find_content("surrogates", "rayleigh_benard_mfn")
    with xr.open_dataset(api.predict(model, folder / "in.nc", folder / "out.nc")) as opened:
        return opened.load()


@pytest.fixture(scope="module")
def expected(coarse, tmp_path_factory):
    return predicted(coarse, tmp_path_factory.mktemp("plain"))


def at(dim, change, **attrs):
    return lambda d: d.assign_coords({dim: (dim, change(d[dim].values), attrs)})


def without_value(d, value):
    return d.assign(b=d.b.where(d.x > 0.1, value))


EQUAL = {
    "times from the end": lambda d: d.isel(t=slice(None, None, -1)),
    "x from the end": lambda d: d.isel(x=slice(None, None, -1)),
    "z from the top": lambda d: d.isel(z=slice(None, None, -1)),
    "dims in another order": lambda d: d.transpose("x", "t", "z"),
    "variables in another order": lambda d: d[["w", "u", "p", "b"]],
    "float64": lambda d: d.astype("f8"),
    "big-endian": lambda d: d.astype(">f4"),
    "one more variable": lambda d: d.assign(q=2 * d.u),
    "one member": lambda d: d.expand_dims(member=[0]),
    "later": at("t", lambda t: t + 100),
    "a period further": at("x", lambda x: x + PERIOD),
    "a part of a cell further": at("x", lambda x: x + 0.013),
}
REFUSED = {
    "another step": at("t", lambda t: 2 * t),
    "no times": lambda d: d.drop_vars("t"),
    "dates": at("t", lambda t: np.datetime64("2001-01-01", "ns") + (1e9 * t).astype("m8[ns]")),
    "a repeated time": lambda d: d.isel(t=[0, 1, 1, 2]),
    "two times": lambda d: d.isel(t=[0, 1]),
    "uneven times": at("t", lambda t: t + np.array([0, 0.3, 0])),
    "x in metres": at("x", lambda x: x, units="m"),
    "z in centimetres": at("z", lambda z: 100 * z, units="cm"),
    "no x": lambda d: d.drop_vars("x"),
    "no z": lambda d: d.drop_vars("z"),
    "x turned around": lambda d: d.roll(x=3, roll_coords=True),
    "x not a number": at("x", lambda x: np.r_[x[:-1], np.nan]),
    "u in cm/s": lambda d: d.assign(u=d.u.assign_attrs(units="cm/s")),
    "no w": lambda d: d.drop_vars("w"),
    "w renamed": lambda d: d.rename(w="v"),
    "x renamed": lambda d: d.rename(x="lon"),
    "t renamed": lambda d: d.rename(t="moment"),
    "one dim less": lambda d: d.isel(z=0),
    "two members": lambda d: xr.concat([d, d], "member"),
    "complex": lambda d: d.assign(b=d.b + 0j),
    "text": lambda d: d.assign(b=d.b.astype(str)),
    "NaN": lambda d: without_value(d, np.nan),
    "Inf": lambda d: without_value(d, np.inf),
    "marks of missing values": lambda d: without_value(d, -9999.0).assign(
        b=without_value(d, -9999.0).b.assign_attrs(missing_value=np.float32(-9999.0))
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EQUAL)
def test_the_same_numbers(coarse, expected, tmp_path, name):
    fields = predicted(EQUAL[name](coarse), tmp_path)
    for variable, wanted in expected.data_vars.items():
        values = fields[variable].squeeze(drop=True)
        values = values.sortby([d for d in "txz" if d in values.coords]).transpose(*wanted.dims)
        close = 1e-6 * float(np.abs(wanted).max())
        np.testing.assert_allclose(values, wanted.sortby(list("txz")), rtol=0, atol=close)


@pytest.mark.parametrize("name", REFUSED)
def test_a_difference_is_named(coarse, tmp_path, name):
    with pytest.raises(ScitoolkitError):
        predicted(REFUSED[name](coarse), tmp_path)
    assert not (tmp_path / "out.nc").exists()
