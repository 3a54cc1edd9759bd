"""The shipped mesh emulator on a mesh altered: equal numbers, or the difference by name."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import xarray as xr
from mesh_files import write_meshes

from scitoolkit import api
from scitoolkit.core.content import find_content
from scitoolkit.core.errors import DataError

UNITS = {"positions": "m", "velocity": "m step-1", "tracer": "1"}


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    """Return {name: array} of a small mesh with a few trajectories of three steps."""
    path = tmp_path_factory.mktemp("mesh") / "mesh.h5"
    write_meshes(path, lambda skfem: {"mesh": skfem.MeshTri.init_circle(2)})
    with h5py.File(path) as file:
        arrays = {name: stored[()] for name, stored in file["mesh"].items()}
    return {**arrays, "velocity": arrays["velocity"][:2], "tracer": arrays["tracer"][:2, :4]}


def written(path, arrays, attrs=None, **options):
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            stored = file.create_dataset(f"mesh/{name}", data=values, **options)
            stored.attrs.update({"units": UNITS[name]} if name in UNITS else {})
            stored.attrs.update((attrs or {}).get(name, {}))
    return path


def predicted(path):
    out = api.predict(find_content("surrogates", "mesh_diffusion"), path, path.with_suffix(".nc"))
    with xr.open_dataset(out) as opened:
        return opened.tracer.values


@pytest.fixture(scope="module")
def expected(mesh, tmp_path_factory):
    return predicted(written(tmp_path_factory.mktemp("plain") / "a.h5", mesh))


def replaced(name, place, value):
    def change(mesh):
        kind = np.int64 if name == "triangles" else np.float64
        values = mesh[name].astype(kind)
        values[place] = value
        return {**mesh, name: values}

    return change


def every(change, *names):
    return lambda m: {**m, **{name: change(m[name]) for name in names}}


FLOATS = ("positions", "velocity", "tracer")


def renumbered(mesh):
    """Return the nodes in the reverse order."""
    last = len(mesh["positions"]) - 1
    return {
        "positions": mesh["positions"][::-1],
        "velocity": mesh["velocity"][:, ::-1],
        "tracer": mesh["tracer"][:, :, ::-1],
        "triangles": last - mesh["triangles"],
    }


def packed(mesh):
    """Return the tracer in integers, which are the same numbers after unpacking."""
    scaled = mesh["tracer"].astype(np.float64) * 2.0**24
    return {**mesh, "tracer": scaled.round().astype(np.int64)}


EQUAL = {
    "nodes renumbered": renumbered,
    "triangles in another order": every(lambda t: t[::-1], "triangles"),
    "corners in another order": every(lambda t: np.roll(t, 1, 1), "triangles"),
    "turning the other way": every(lambda t: t[:, ::-1], "triangles"),
    "int64": every(lambda t: t.astype("i8"), "triangles"),
    "uint16": every(lambda t: t.astype("u2"), "triangles"),
    "float64": every(lambda a: a.astype("f8"), *FLOATS),
    "big-endian": every(lambda a: a.astype(a.dtype.newbyteorder(">")), *FLOATS, "triangles"),
    "elsewhere": every(lambda p: p + 0.5, "positions"),
    "a thousand times as large": every(lambda a: a * 1000, "positions", "velocity"),
    "packed": packed,
    "one more variable": lambda m: {**m, "pressure": np.zeros(3)},
}
REFUSED = {
    "complex": every(lambda v: v + 0j, "velocity"),
    "text": every(lambda v: v.astype("S8"), "velocity"),
    "NaN in positions": replaced("positions", (3, 0), np.nan),
    "Inf in velocity": replaced("velocity", (0, 3, 0), np.inf),
    "NaN in tracer": replaced("tracer", (0, 0, 5), np.nan),
    "NaN in a later tracer": replaced("tracer", (0, -1, 5), np.nan),
    "a mark of missing values": replaced("tracer", (0, 0, 5), -9999.0),
    "a node that is none": replaced("triangles", (0, 0), 10_000),
    "a negative node": replaced("triangles", (0, 0), -1),
    "nodes counted from 1": every(lambda t: t + 1, "triangles"),
    "nodes as floats": every(lambda t: t.astype("f8"), "triangles"),
    "a node twice": lambda m: replaced("triangles", (0, 0), m["triangles"][0, 1])(m),
    "a triangle twice": every(lambda t: np.concatenate([t, t]), "triangles"),
    "two nodes at one place": lambda m: replaced(
        "positions", m["triangles"][0, 0], m["positions"][m["triangles"][0, 1]]
    )(m),
    "a node in no triangle": lambda m: {
        "positions": np.concatenate([m["positions"], [[9.0, 9.0]]]),
        "velocity": np.concatenate([m["velocity"], m["velocity"][:, :1]], 1),
        "tracer": np.concatenate([m["tracer"], m["tracer"][:, :, :1]], 2),
        "triangles": m["triangles"],
    },
    "four corners": every(lambda t: np.concatenate([t, t[:, :1]], 1), "triangles"),
    "three directions": every(lambda p: np.concatenate([p, p[:, :1]], 1), "positions"),
    "transposed positions": every(np.transpose, "positions"),
    "transposed triangles": every(np.transpose, "triangles"),
    "fewer velocities": every(lambda v: v[:, :-1], "velocity"),
    "fewer flows": every(lambda v: v[:1], "velocity"),
    "one flow": every(lambda v: v[0], "velocity"),
    "no triangles": lambda m: {n: v for n, v in m.items() if n != "triangles"},
    "no velocity": lambda m: {n: v for n, v in m.items() if n != "velocity"},
}
OTHER_UNITS = {"positions": "km", "velocity": "m s-1", "tracer": "K"}


@pytest.mark.parametrize("name", EQUAL)
def test_the_same_numbers(mesh, expected, tmp_path, name):
    attrs = {"tracer": {"scale_factor": 2.0**-24}} if name == "packed" else {}
    options = {"compression": "gzip"} if name == "float64" else {}
    values = predicted(written(tmp_path / "a.h5", EQUAL[name](mesh), attrs, **options))
    if name == "nodes renumbered":
        values = values[..., ::-1]
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", REFUSED)
def test_a_difference_is_named(mesh, tmp_path, name):
    attrs = {"tracer": {"_FillValue": -9999.0}} if name == "a mark of missing values" else {}
    with pytest.raises(DataError, match=r"a\.h5"):
        predicted(written(tmp_path / "a.h5", REFUSED[name](mesh), attrs))
    assert not (tmp_path / "a.nc").exists()


@pytest.mark.parametrize("name", OTHER_UNITS)
def test_another_unit_is_named(mesh, tmp_path, name):
    path = written(tmp_path / "a.h5", mesh, {name: {"units": OTHER_UNITS[name]}})
    with pytest.raises(DataError, match=f"variable {name}: unit {OTHER_UNITS[name]}"):
        predicted(path)
