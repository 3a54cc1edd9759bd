"""Zarr stores: what is compressed keeps its bound and its metadata, the rest keeps its bytes."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import xarray as xr

from scitoolkit.cli.main import run_cli
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.compressed import StoreFiles, is_store
from scitoolkit.testing.codec import smooth_field

zarr = pytest.importorskip("zarr")


def field(shape=(40, 50, 30)):
    return smooth_field(shape) + 280


@pytest.fixture(params=[2, 3])
def store(request, tmp_path):
    """Return a store with groups, attributes, several arrays, a fill value and compressors."""
    path, version = tmp_path / "a.zarr", request.param
    root = zarr.create_group(path, zarr_format=version, attributes={"title": "a run"})
    inner = root.create_group("ocean/deep", attributes={"level": 3})
    t = field()
    t[3, 4:9] = 1e20
    how = {"chunks": (16, 16, 16), "dtype": "<f4"}
    grid = {} if version == 2 else {"dimension_names": ["z", "y", "x"]}
    temperature = inner.create_array(
        "t", shape=t.shape, fill_value=1e20, attributes={"units": "K"}, **how, **grid
    )
    temperature[:] = t
    wide = root.create_array("wide", shape=t.shape, dtype="<f8", chunks=(40, 50, 30))
    wide[:] = field()
    counts = root.create_array("counts", shape=(2000,), dtype="i4", chunks=(100,))
    counts[:] = np.arange(2000)
    root.create_array("small", shape=(5,), dtype="f4")[:] = np.arange(5)
    with pytest.warns(UserWarning, match="onsolidated") if version == 3 else _nothing():
        zarr.consolidate_metadata(path, zarr_format=version)
    return path


def _nothing():
    import contextlib

    return contextlib.nullcontext()


def contents(path):
    files = StoreFiles(path)
    return {name: files.read(name) for name in files.names()}


def metadata(path):
    return {
        name: json.loads(text)
        for name, text in contents(path).items()
        if name.rpartition("/")[2] in ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
    }


def test_a_store_comes_back_with_its_groups_attributes_chunks_and_codecs(store, tmp_path, capsys):
    small, back = tmp_path / "small.zarr", tmp_path / "back.zarr"
    assert run_cli(["compress", str(store), str(small), "--abs", "0.01", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [v["name"] for v in told["variables"]] == ["ocean/deep/t", "wide"]
    assert told["bytes_out"] < told["bytes_in"] / 2
    assert run_cli(["verify", str(small), str(store)]) == 0
    coded = zarr.open_group(small, mode="r")
    original = zarr.open_group(store, mode="r")
    land = original["ocean/deep/t"][:] > 1e19
    for name in ("ocean/deep/t", "wide"):
        a, b = original[name][:], coded[name][:]
        same = land if "t" in name else np.zeros_like(land)
        assert (a[same] == b[same]).all()
        assert np.abs(a - b)[~same].max() <= 0.01
    assert (coded["counts"][:] == np.arange(2000)).all()
    assert coded["ocean/deep"].attrs["level"] == 3
    assert run_cli(["decompress", str(small), str(back)]) == 0
    assert metadata(back) == metadata(store)
    unchanged = contents(store)
    for name, data in contents(back).items():
        if not name.startswith(("ocean/deep/t/", "wide/")):
            assert name.endswith((".zmetadata", "zarr.json")) or data == unchanged[name]
    restored = zarr.open_group(back, mode="r")["ocean/deep/t"][:]
    assert np.abs(restored - original["ocean/deep/t"][:])[~land].max() <= 0.01


def test_a_zip_file_is_a_store_like_a_folder(store, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "a"), "zip", store)
    small, back = tmp_path / "small.zip", tmp_path / "back.zarr"
    assert run_cli(["compress", archive, str(small), "--abs", "0.01"]) == 0
    assert is_store(small)
    assert run_cli(["verify", str(small), archive]) == 0
    assert run_cli(["verify", str(small), str(store)]) == 0
    assert run_cli(["decompress", str(small), str(back)]) == 0
    assert metadata(back) == metadata(store)


def test_inspect_and_verify_know_a_changed_original(store, tmp_path, capsys):
    small = tmp_path / "small.zarr"
    assert run_cli(["compress", str(store), str(small), "--rel", "1e-3"]) == 0
    capsys.readouterr()
    assert run_cli(["inspect", str(small)]) == 0
    said = capsys.readouterr().out
    assert "ocean/deep/t(40, 50, 30)" in said
    assert "Zarr codec" in said
    changed = zarr.open_group(store, mode="r+")["wide"]
    changed[1, 2, 3] = changed[1, 2, 3] + 5
    assert run_cli(["verify", str(small), str(store)]) == 4


def test_what_the_codec_cannot_keep_is_a_stream(store, tmp_path):
    small, back = tmp_path / "small.zarr", tmp_path / "back.zarr"
    group = zarr.open_group(store, mode="r+")
    group["wide"].attrs["valid_max"] = 400.0
    half = group.create_array("half", shape=(2000,), dtype="f2")
    half[:] = np.linspace(0, 1, 2000)
    assert run_cli(["compress", str(store), str(small), "--rel", "1e-3"]) == 0
    coded = zarr.open_group(small, mode="r")
    assert {name: coded[name].dtype.str for name in ("wide", "half")} == {
        "wide": "|u1",
        "half": "|u1",
    }
    assert coded["ocean/deep/t"].dtype == np.float32
    assert run_cli(["verify", str(small), str(store)]) == 0
    assert run_cli(["decompress", str(small), str(back)]) == 0
    restored = zarr.open_group(back, mode="r")
    assert restored["half"].dtype == np.float16
    assert restored["wide"].attrs["valid_max"] == 400.0
    assert np.abs(restored["wide"][:] - group["wide"][:]).max() <= 1e-3 * np.ptp(group["wide"][:])


@pytest.mark.parametrize("version", [2, 3])
def test_big_endian_values_in_another_order_and_awkward_edges(version, tmp_path):
    x = field((37, 41, 23)).astype(">f8")
    how = {"order": "F"} if version == 2 else {}
    made = zarr.create_array(
        tmp_path / "a.zarr",
        shape=x.shape,
        dtype=">f8",
        chunks=(32, 40, 32),
        zarr_format=version,
        **how,
    )
    made[:] = x
    small, back = tmp_path / "b.zarr", tmp_path / "c.zarr"
    assert run_cli(["compress", str(made.store.root), str(small), "--abs", "1e-3"]) == 0
    assert np.abs(zarr.open_array(small, mode="r")[:] - x).max() <= 1e-3
    assert run_cli(["verify", str(small), str(tmp_path / "a.zarr")]) == 0
    assert run_cli(["decompress", str(small), str(back)]) == 0
    restored = zarr.open_array(back, mode="r")
    assert restored.chunks == (32, 40, 32)
    assert metadata(back) == metadata(tmp_path / "a.zarr")
    assert np.abs(restored[:] - x).max() <= 1e-3


def test_shards_are_kept_and_lossy_codecs_are_not(tmp_path, caplog):
    x = field((64, 64, 64))
    sharded = zarr.create_array(
        tmp_path / "a.zarr", shape=x.shape, dtype="f4", chunks=(32, 32, 32), shards=(64, 64, 64)
    )
    sharded[:] = x
    small, back = tmp_path / "b.zarr", tmp_path / "c.zarr"
    assert run_cli(["compress", str(tmp_path / "a.zarr"), str(small), "--abs", "1e-3"]) == 0
    coded = zarr.open_array(small, mode="r")
    assert (coded.chunks, coded.shards) == ((32, 32, 32), (64, 64, 64))
    assert np.abs(coded[:] - x).max() <= 1e-3
    assert run_cli(["decompress", str(small), str(back)]) == 0
    assert metadata(back) == metadata(tmp_path / "a.zarr")
    from scitoolkit.compression.zarr_codec import InterpolationSerializer

    lossy = zarr.create_array(
        tmp_path / "l.zarr",
        shape=x.shape,
        dtype="f4",
        chunks=(64, 64, 64),
        compressors=None,
        serializer=InterpolationSerializer(0.5),
    )
    lossy[:] = x
    seen = lossy[:]
    assert run_cli(["compress", str(tmp_path / "l.zarr"), str(small), "--abs", "1e-3"]) == 0
    assert run_cli(["decompress", str(small), str(back)]) == 0
    assert "which may be lossy" in caplog.text
    assert np.abs(zarr.open_array(back, mode="r")[:] - seen).max() <= 1e-3


@pytest.mark.parametrize("version", [2, 3])
def test_missing_values_of_xarray_are_kept(version, tmp_path):
    t = field()
    t[3, 4:9] = np.nan
    encoding = {"t": {"_FillValue": np.float32(1e20)}}
    xr.Dataset({"t": (("z", "y", "x"), t)}).to_zarr(
        tmp_path / "a.zarr", encoding=encoding, zarr_format=version, consolidated=False
    )
    small = tmp_path / "b.zarr"
    assert run_cli(["compress", str(tmp_path / "a.zarr"), str(small), "--rel", "1e-3"]) == 0
    assert run_cli(["verify", str(small), str(tmp_path / "a.zarr")]) == 0
    with xr.open_dataset(small, engine="scitoolkit") as found:
        assert (np.isnan(found.t.values) == np.isnan(t)).all()
        assert float(np.nanmax(np.abs(found.t.values - t))) <= 1e-3 * np.nanmax(np.abs(t - 280)) * 2


def test_bad_stores_are_refused_by_name_and_leave_nothing_behind(store, tmp_path, capsys):
    given = ["compress", str(store)]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("")
    for arguments, said in (
        ([*given, str(tmp_path / "o.h5"), "--rel", "1e-3"], "ends with .zarr or .zip"),
        ([*given, str(store), "--rel", "1e-3"], "onto itself"),
        ([*given, str(tmp_path / "no" / "o.zarr"), "--rel", "1e-3"], "no such folder"),
        ([*given, str(tmp_path / "o.zarr"), "--rel", "1e-3", "--variable", "wid"], "wide"),
        (
            [*given, str(tmp_path / "o.zarr"), "--quantity", "gradient(wide): rel=1e-3"],
            "quantities of a Zarr store",
        ),
        (
            ["compress", str(tmp_path / "folder"), str(tmp_path / "o.zarr"), "--rel", "1e-3"],
            "not a Zarr store",
        ),
        (["decompress", str(store), str(tmp_path / "o.zarr")], "no variable compressed"),
    ):
        assert run_cli(arguments) in (2, 3), said
        assert said in capsys.readouterr().err
    damaged = store / ("wide/zarr.json" if (store / "zarr.json").exists() else "wide/.zarray")
    damaged.write_text("{")
    assert run_cli([*given, str(tmp_path / "o.zarr"), "--rel", "1e-3"]) == 3
    assert "invalid JSON" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zarr", "folder"]


def test_a_damaged_chunk_or_attribute_is_an_error(store, tmp_path, capsys):
    small = tmp_path / "small.zarr"
    assert run_cli(["compress", str(store), str(small), "--rel", "1e-3"]) == 0
    name = "zarr.json" if (small / "zarr.json").exists() else ".zattrs"
    text = (small / "wide" / name).read_text()
    (small / "wide" / name).write_text(text.replace('"error_bound"', '"error_bond"'))
    assert run_cli(["inspect", str(small)]) == 3
    assert "damaged attribute" in capsys.readouterr().err
    (small / "wide" / name).write_text(text)
    (chunk,) = (p for p in (small / "wide").rglob("*") if p.is_file() and "z" not in p.name)
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 4
    chunk.write_bytes(data)
    assert run_cli(["decompress", str(small), str(tmp_path / "back.zarr")]) == 3
    assert not (tmp_path / "back.zarr").exists()


def test_the_python_functions_raise_named_errors(tmp_path):
    from scitoolkit.compression import Bound, Options
    from scitoolkit.compression.files import FilePlan, compress_file, decompress_file

    plan = FilePlan(Bound("rel", 1e-3), {}, Options())
    with pytest.raises(DataError, match="no such file"):
        compress_file(tmp_path / "a.zarr", tmp_path / "b.zarr", plan)
    with pytest.raises(DataError, match="no such file"):
        decompress_file(tmp_path / "a.zarr", tmp_path / "b.zarr")
    with pytest.raises(ConfigError, match="with the filter"):
        FilePlan(Bound("rel", 1e-3), {}, Options(objective="speed"), container="filter")
