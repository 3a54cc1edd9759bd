"""Variables that describe others keep every bit, in any layout; data beside them do not."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from scitoolkit.compression import Bound, Options
from scitoolkit.compression.files import FilePlan, compress_file, decompress_file, wanted_variables
from scitoolkit.core.errors import DataError

SHAPE = (40, 50)
PLAN = FilePlan(Bound("rel", 1e-3), {}, Options())


def waves(seed: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).cumsum(-1).astype("f4")


def written(path: Path, exact: dict[str, dict], holder: dict, kind: str) -> None:
    """Write a file in which an integer variable, or the file, names the exact variables."""
    if kind.startswith("zarr"):
        zarr = pytest.importorskip("zarr")
        root = zarr.open_group(path, mode="w", zarr_format=int(kind[-1]))
        for number, (name, attributes) in enumerate(exact.items()):
            root.create_array(name, data=waves(number)).attrs.update(attributes)
        root.create_array("q", data=waves(99))
        root.create_array("packed", data=np.arange(2000, dtype="i2")).attrs.update(holder)
        return
    with h5py.File(path, "w") as file:
        group = file.create_group("deep/er") if kind == "groups" else file
        for number, (name, attributes) in enumerate(exact.items()):
            group[name] = waves(number)
            group[name].attrs.update(attributes)
        group["q"] = waves(99)
        file["packed"] = np.arange(2000, dtype="i2")
        (file if kind == "file" else file["packed"]).attrs.update(holder)


LAYOUTS = {
    "packed": ({"a": {}, "b": {}}, {"coordinates": "a b", "scale_factor": 0.01}),
    "ugrid": ({"nx": {}, "ny": {}}, {"cf_role": "mesh_topology", "node_coordinates": "nx ny"}),
    "climatology": ({"spans": {}}, {"climatology": "spans"}),
    "hybrid": ({"ap": {}, "bp": {}}, {"formula_terms": "a: ap b: bp"}),
    "areas": (
        {"sizes": {}, "other": {"standard_name": "cell_area"}},
        {"cell_measures": "area: sizes"},
    ),
    "units": ({"north": {"units": "degrees_north"}, "when": {"units": "days since 2000-1-1"}}, {}),
    "particles": ({"Coordinates": {}}, {}),
    "flags": ({"kind": {"flag_values": [0.0, 1.0], "flag_meanings": "no yes"}}, {}),
}


@pytest.mark.parametrize("kind", ["variable", "file", "groups", "zarr2", "zarr3"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_describing_variables_keep_every_bit(layout: str, kind: str, tmp_path: Path) -> None:
    exact, holder = LAYOUTS[layout]
    suffix = ".zarr" if kind.startswith("zarr") else ".h5"
    a = tmp_path / f"a{suffix}"
    written(a, exact, holder, kind)
    assert [n.rpartition("/")[2] for n in wanted_variables(a, PLAN)] == ["q"]
    if layout != "packed":
        return
    b, c = (tmp_path / f"{n}{suffix}" for n in "bc")
    assert [r["name"].rpartition("/")[2] for r in compress_file(a, b, PLAN)] == ["q"]
    decompress_file(b, c)
    if suffix == ".zarr":
        opened = contextlib.nullcontext(pytest.importorskip("zarr").open_group(c))
    else:
        opened = h5py.File(c)
    with opened as file:
        place = file["deep/er"] if kind == "groups" else file
        for number, name in enumerate(exact):
            assert np.asarray(place[name]).tobytes() == waves(number).tobytes()


def test_a_named_variable_is_compressed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    a = tmp_path / "a.h5"
    written(a, *LAYOUTS["packed"], "variable")
    named = FilePlan(Bound("rel", 1e-3), {"a": None, "q": None}, Options())
    assert wanted_variables(a, named) == ["a", "q"]
    with caplog.at_level(logging.INFO, "scitoolkit"):
        wanted_variables(a, PLAN)
    assert "a (coordinate), b (coordinate)" in caplog.text


def filtered_file(folder: Path, **encoding: object) -> Path:
    data = {"t": (("time", "y", "x"), waves(0, (8, 40, 50)), {"units": "K"})}
    xr.Dataset(data).to_netcdf(
        folder / "a.nc", engine="h5netcdf", unlimited_dims=["time"], encoding={"t": encoding}
    )
    compress_file(folder / "a.nc", folder / "b.nc", PLAN)
    return folder / "b.nc"


@pytest.mark.parametrize(
    "encoding", [{}, {"zlib": True, "complevel": 3, "shuffle": True, "chunksizes": (1, 20, 25)}]
)
def test_an_opened_file_is_written_as_the_original(encoding, tmp_path) -> None:
    b, c = filtered_file(tmp_path, **encoding), tmp_path / "c.nc"
    with xr.open_dataset(b, engine="scitoolkit") as small:
        assert "scitoolkit_filtered" not in small.t.attrs
        small.to_netcdf(c, engine="h5netcdf")
    with xr.open_dataset(c, engine="h5netcdf") as again:
        assert np.abs(again.t.values - waves(0, (8, 40, 50))).max() <= 1e-3 * np.ptp(
            waves(0, (8, 40, 50))
        )
        assert again.encoding["unlimited_dims"] == {"time"}
        assert again.t.attrs == {"units": "K"}
        assert again.t.encoding.get("complevel", 0) == encoding.get("complevel", 0)
        if encoding:
            assert again.t.encoding["chunksizes"] == (1, 20, 25)


def test_a_mark_counts_only_with_the_filter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """h5repack, nccopy and arithmetic copy the attribute to files without the filter."""
    from scitoolkit.compression.check import verify_file
    from scitoolkit.io.compressed import holds_streams

    b, c, d, e = (tmp_path / f"{n}.nc" for n in "bcde")
    filtered_file(tmp_path)
    with h5py.File(b) as one, h5py.File(c, "w") as other:
        other["t"] = one["t"][...]
        for name in ("scitoolkit_filtered", "units"):
            other["t"].attrs[name] = one["t"].attrs[name]
    assert (holds_streams(b), holds_streams(c)) == (True, False)
    with pytest.raises(DataError, match="no variable compressed"):
        decompress_file(c, d)
    with pytest.raises(DataError, match="already compressed"):
        compress_file(b, d, PLAN)
    for container in ("filter", "stream"):
        plan = FilePlan(Bound("rel", 1e-2), {}, Options(), container=container)
        assert len(compress_file(c, d, plan)) == 1
        assert "former file" in caplog.text
        assert verify_file(d, c)[0]["holds"]
        decompress_file(d, e)
        with h5py.File(e) as file:
            assert set(file["t"].attrs) == {"units"}


@pytest.mark.parametrize("version", [2, 3])
def test_a_mark_in_a_store_counts_only_with_the_codec(version: int, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    a, b, c, d = (tmp_path / f"{n}.zarr" for n in "abcd")
    root = zarr.open_group(a, mode="w", zarr_format=version)
    root.create_array("t", data=waves(0), dimension_names=None)
    compress_file(a, b, PLAN)
    plain = zarr.open_group(c, mode="w", zarr_format=version)
    plain.create_array("t", data=np.asarray(zarr.open_group(b)["t"][...]))
    plain["t"].attrs.update(dict(zarr.open_group(b)["t"].attrs))
    with pytest.raises(DataError, match="no variable compressed"):
        decompress_file(c, d)
    assert len(compress_file(c, d, PLAN)) == 1
    with pytest.raises(DataError, match="already compressed"):
        compress_file(d, a, PLAN)


def test_rows_may_be_appended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from scitoolkit.compression.check import verify_file

    b = filtered_file(tmp_path)
    with h5py.File(b, "r+") as file:
        before = file["t"][...]
        file["t"].resize(11, axis=0)
        file["t"][8:] = waves(5, (3, 40, 50))
        np.testing.assert_array_equal(file["t"][:8], before)
    assert verify_file(b, tmp_path / "a.nc")[0]["holds"]
    assert "3 rows were appended" in caplog.text
    with h5py.File(b, "r+") as file:
        file["t"].resize(5, axis=0)
    with pytest.raises(DataError, match="the original is"):
        verify_file(b, tmp_path / "a.nc")


def test_rows_that_share_a_chunk_are_coded_once_for_each_time_it_is_written(tmp_path: Path) -> None:
    """Whole chunks keep the bound; a chunk written again adds at most one bound to its values."""
    from scitoolkit.compression.native.plugin import filter_options

    whole = filtered_file(tmp_path)  # loads the filter
    times, bound, rows = 3, 0.02, waves(7, (12, 40, 50))
    with h5py.File(whole, "w") as file:
        how = {"maxshape": (None, 40, 50), "chunks": (4, 40, 50), **filter_options(bound)}
        for name in ("whole", "rows"):
            file.create_dataset(name, data=rows[:4], fillvalue=np.nan, **how)
    for begin in (4, 8):
        for row in range(begin, begin + times):
            with h5py.File(whole, "r+") as file:
                file["rows"].resize(row + 1, axis=0)
                file["rows"][row] = rows[row]
        with h5py.File(whole, "r+") as file:
            file["rows"].resize(begin + 4, axis=0)
            file["rows"][begin + 3] = rows[begin + 3]
            file["whole"].resize(begin + 4, axis=0)
            file["whole"][begin : begin + 4] = rows[begin : begin + 4]
    with h5py.File(whole) as file:
        errors = {name: np.abs(file[name][...].astype("f8") - rows) for name in file}
    assert errors["whole"].max() <= bound
    assert errors["rows"].max() <= (times + 1) * bound
    assert errors["rows"][[3, 7, 11]].max() <= bound
