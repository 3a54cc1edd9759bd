"""Every registered format keeps its contract; how formats are found and refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from scitoolkit.compression.config import FileConfig
from scitoolkit.core.errors import BackendError, ConfigError, DataError
from scitoolkit.io.fields import open_fields, packages_for, write_fields
from scitoolkit.io.formats import Format, format_of, formats, writing_format
from scitoolkit.io.inspect import describe
from scitoolkit.testing.format import FormatContract, sample_fields


def save_array(dataset: xr.Dataset, path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, dataset["values"].values)


def save_arrays(dataset: xr.Dataset, path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, **{str(name): array.values for name, array in dataset.items()})


# Formats without a streaming writer. The fallback is tested below; meshes, elements and refined
# grids, whose dims are always those of space, in test_other_formats.
WRITE = {
    "netcdf3": lambda dataset, path: dataset.to_netcdf(path, engine="scipy"),
    "npy": save_array,
    "npz": save_arrays,
}
FALLBACK = "xarray"
OF_SPACE = ("mesh", "adaptive", "nek5000")


class TestFormats(FormatContract):
    @pytest.fixture(params=[n for n in formats.names() if n not in (FALLBACK, *OF_SPACE)])
    def format(self, request) -> type[Format]:
        return formats.get(request.param)

    def write(self, format, dataset, path):
        if format.suffixes:
            super().write(format, dataset, path)
        else:
            WRITE[format.name](dataset, path)


def test_what_an_engine_of_xarray_opens_is_read(tmp_path, monkeypatch):
    path = tmp_path / "forecast.bufr"
    path.write_bytes(b"BUFR....")

    class Engine(xr.backends.BackendEntrypoint):
        def guess_can_open(self, filename_or_obj):
            return str(filename_or_obj).endswith(".bufr")

        def open_dataset(self, filename_or_obj, *, drop_variables=None):
            return sample_fields()

    with pytest.raises(DataError, match="not recognised"):
        open_fields(path)
    monkeypatch.setattr(xr.backends.plugins, "list_engines", lambda: {"bufr": Engine()})
    assert format_of(path) is formats.get(FALLBACK)
    monkeypatch.setattr(xr, "open_dataset", lambda p, **_: Engine().open_dataset(p))
    assert open_fields(path)["u"].shape == (6, 4, 5)


def test_a_format_whose_package_is_missing_names_the_extra(tmp_path, monkeypatch):
    sample_fields().to_zarr(tmp_path / "a.zarr", consolidated=False)
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(BackendError, match=r"scitoolkit\[zarr\]"):
        open_fields(tmp_path / "a.zarr")


def test_unknown_suffixes_and_cdf5_say_what_is_allowed(tmp_path):
    with pytest.raises(ConfigError, match=r"\.nc, .*\.zarr"):
        writing_format(tmp_path / "out.txt")
    (tmp_path / "a.nc").write_bytes(b"CDF\x05" + bytes(60))
    with pytest.raises(DataError, match=r"CDF-5.*nccopy"):
        open_fields(tmp_path / "a.nc")


def test_packages_of_a_store_and_of_several_files_are_named(tmp_path):
    data = xr.Dataset({"u": (("time", "x"), np.zeros((2, 3)))})
    one, two = (write_fields(data, tmp_path / f"{n}.nc") for n in "ab")
    (tmp_path / "s.zarr").mkdir()
    (tmp_path / "s.zarr" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    assert packages_for(one) == ()
    assert packages_for([one, two]) == ("dask",)
    assert packages_for(tmp_path / "s.zarr") == ("zarr",)
    config = FileConfig(path=tmp_path / "s.zarr")
    assert config.required_packages() == ("zarr",)


def test_npz_is_described_by_its_headers(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, u=np.zeros((1000, 8), "f4"), names=np.array(["a", "b"]))
    found = describe(path)["variables"]
    assert [(v["name"], v["shape"], v["filters"]) for v in found] == [("u", (1000, 8), "deflate")]
    assert found[0]["stored_bytes"] < 1000
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="damaged or truncated"):
        describe(path)
