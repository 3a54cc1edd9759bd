"""Other programs read and write through the HDF5 filter and the Zarr codecs."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from scitoolkit.cli.main import run_cli
from scitoolkit.compression import Bound, Options
from scitoolkit.compression.enhancers.group_weights import GroupWeights
from scitoolkit.compression.enhancers.network import Network
from scitoolkit.compression.files import FilePlan, compress_file
from scitoolkit.compression.filtered import load_filter
from scitoolkit.compression.native.library import enhancer_in
from scitoolkit.compression.native.plugin import FILTER_ID, LIBRARY, filter_options, install
from scitoolkit.core.errors import BackendError, ConfigError, DataError
from scitoolkit.testing.codec import smooth_field

BOUND = 1e-3


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    directory = tmp_path_factory.mktemp("plugins")
    install(directory)
    h5py.h5pl.prepend(os.fsencode(directory))
    return directory


@pytest.fixture
def file(plugins, tmp_path):
    path = tmp_path / "a.h5"
    x = smooth_field((30, 31, 20))
    masked = x.copy()
    masked[3, 5, :] = 1e20
    masked[7, 7, 7], masked[8, 8, 8] = np.nan, np.inf
    with h5py.File(path, "w") as out:
        how = {"chunks": (16, 16, 16), **filter_options(BOUND)}
        out.create_dataset("plain", data=x, **how)
        out.create_dataset("masked", data=masked, fillvalue=1e20, **how)
        growing = out.create_dataset(
            "growing",
            (0, 31),
            ">f8",
            maxshape=(None, 31),
            chunks=(8, 31),
            fillvalue=-999,
            **filter_options(BOUND),
        )
        growing.resize((20, 31))
        growing[2:5] = x[:3, :, 0]
    return path, x, masked


def test_h5py_reads_what_it_wrote_and_special_values_are_kept(file):
    path, x, masked = file
    with h5py.File(path) as stored:
        plain, kept, growing = (stored[k][()] for k in ("plain", "masked", "growing"))
        assert stored["plain"].id.get_storage_size() < x.nbytes / 3
    special = ~np.isfinite(masked) | (masked == np.float32(1e20))
    assert np.abs(plain.astype("f8") - x).max() <= BOUND
    assert kept[special].tobytes() == masked[special].tobytes()
    assert np.abs(kept[~special].astype("f8") - masked[~special]).max() <= BOUND
    assert (growing[:2] == -999).all()
    assert (growing[5:] == -999).all()
    assert np.abs(growing[2:5] - x[:3, :, 0]).max() <= BOUND


@pytest.mark.parametrize(
    ("values", "how", "message"),
    [
        (np.arange(100), filter_options(BOUND), "only float32 and float64"),
        (np.ones(100, "f2"), filter_options(BOUND), "only float32 and float64"),
        (np.ones(100), {"compression": FILTER_ID}, "give the absolute bound"),
        (np.ones(100), filter_options(-1.0), "positive number or 0"),
        (np.ones(100), filter_options(float("nan")), "positive number or 0"),
    ],
)
def test_what_cannot_be_coded_is_refused_when_a_dataset_is_made(
    plugins, tmp_path, values, how, message
):
    with (
        h5py.File(tmp_path / "a.h5", "w") as out,
        pytest.raises((ValueError, OSError, RuntimeError), match=message),
    ):
        out.create_dataset("v", data=values, chunks=(10,), **how)


def tool(plugins, *arguments):
    if shutil.which(arguments[0]) is None:
        pytest.skip(f"{arguments[0]} is not installed")
    done = subprocess.run(
        [str(a) for a in arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HDF5_PLUGIN_PATH": str(plugins)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # of the modules that the benchmark imports


def readers():
    """Return the benchmark that holds a reader for each program."""
    path = BENCHMARKS / "compression" / "compression_readers.py"
    spec = importlib.util.spec_from_file_location("compression_readers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def stored_by_h5py_and_zarr(plugins, tmp_path_factory):
    path = tmp_path_factory.mktemp("readers") / "field.h5"
    x = readers().field()
    readers().write(path, x)
    return path, x


@pytest.mark.parametrize("program", readers().READERS)
def test_a_program_reads_every_value_within_the_bound(program, plugins, stored_by_h5py_and_zarr):
    """Programs that are not installed are skipped; Debian's and PyPI's are in the benchmark."""
    try:
        assert readers().READERS[program](plugins, *stored_by_h5py_and_zarr)
    except ModuleNotFoundError as missing:
        pytest.skip(f"{missing} is not installed")


def test_h5dump_prints_values_within_the_bound(plugins, file):
    path, x, _ = file
    text = tool(plugins, "h5dump", "-d", "/plain", "-s", "0,0,0", "-c", "1,1,4", path)
    line = next(line for line in text.splitlines() if "(0,0,0):" in line)
    values = [float(v) for v in line.split(":")[1].split(",")]
    assert np.abs(np.array(values) - x[0, 0, :4]).max() <= BOUND * 1.01


def test_h5repack_copies_removes_and_applies_the_filter(plugins, file, tmp_path):
    path, x, _ = file
    bare, again, copied = (tmp_path / name for name in ("bare.h5", "again.h5", "copied.h5"))
    tool(plugins, "h5repack", path, copied)
    tool(plugins, "h5repack", "-f", "NONE", path, bare)
    low, high = filter_options(1e-2)["compression_opts"]
    tool(plugins, "h5repack", "-f", f"plain:UD={FILTER_ID},0,2,{low},{high}", bare, again)
    for name, bound in ((copied, 1e-3), (bare, 1e-3), (again, 1.1e-2)):
        with h5py.File(name) as stored:
            assert np.abs(stored["plain"][()].astype("f8") - x).max() <= bound


def smoothing_network(path):
    """Write a network of two states, whose sum is .04 of the differences to six neighbours."""
    first = np.zeros((1, 2, 32), "i1")
    # Inputs: -2, -1, 1, 2 in the row, then three of each row around, then four rows at distance 2.
    for k in (1, 2, 4 + 3 + 1, 4 + 3 * 3 + 1, 4 + 3 * 4 + 1, 4 + 3 * 6 + 1):
        first[0, :, k] = 10, -10
    bias, second = np.zeros((1, 2), "i1"), np.array([[10, -10]], "i1")
    units = np.float32([4e-3, 1, 1e-1])
    path.write_bytes(GroupWeights(np.float32([]), first, bias, second, units).to_bytes())
    return Network(weights=path)


@pytest.fixture(scope="module")
def extended(plugins, tmp_path_factory):
    """Return the original and a file with a relative bound, missing values and enhancers."""
    folder = tmp_path_factory.mktemp("extended")
    rng, x = np.random.default_rng(0), smooth_field((30, 31, 20))
    noisy = (x + rng.normal(0, 0.01, x.shape)).astype("f4")
    density = np.exp(9 * noisy.astype("f8"))
    density[3, :4], density[7, 7], density[9, 9], density[11] = 1e20, -999, -888, 0
    attributes = {"missing_value": np.array([-999.0, -888.0])}
    dims = ("z", "y", "x")
    fields = {"density": (dims, density, attributes), "linear": (dims, noisy)}
    fields["network"] = (dims, noisy)
    encoding = {"density": {"_FillValue": 1e20}}
    xr.Dataset(fields).to_netcdf(folder / "in.nc", engine="h5netcdf", encoding=encoding)
    bounds = {"density": Bound("pw_rel", 1e-2)}
    compress_file(folder / "in.nc", folder / "d.nc", FilePlan(None, bounds, Options()))
    network = smoothing_network(folder / "weights")
    for name, enhancer in (("linear", "linear"), ("network", network)):
        options = Options(enhancer=enhancer, objective="quality")
        plan = FilePlan(Bound("abs", 0.05), {name: None}, options, container="filter")
        before, after = ("d.nc", "l.nc") if name == "linear" else ("l.nc", "n.nc")
        compress_file(folder / before, folder / after, plan)
    return folder / "n.nc", folder / "in.nc"


def test_chunks_of_version_3_are_what_was_asked(extended):
    path, original = extended
    with h5py.File(path) as small, h5py.File(original) as full:
        density, expected = small["density"][...], full["density"][...]
        exact = np.isin(expected, [1e20, -999, -888, 0])
        assert density[exact].tobytes() == expected[exact].tobytes()
        error = np.abs(density - expected)[~exact]
        assert (error <= 1e-2 * np.abs(expected[~exact])).all()
        assert expected.nbytes > 6 * small["density"].id.get_storage_size()
        for name in ("linear", "network"):
            words = small[name].id.get_create_plist().get_filter(0)[2]
            assert enhancer_in(words)[0] == name
            assert small[name].id.read_direct_chunk((0, 0, 0))[1][5] == 5
            assert np.abs(small[name][...] - full[name][...].astype("f8")).max() <= 0.05


def test_programs_without_scitoolkit_decode_version_3(plugins, extended, tmp_path):
    path, _ = extended

    def read(file, name, dtype):
        out = tmp_path / "values"
        tool(plugins, "h5dump", "-d", f"/{name}", "-b", "LE", "-o", out, file)
        return np.fromfile(out, dtype)

    with h5py.File(path) as small:
        expected = {name: small[name][...] for name in ("density", "linear", "network")}
    for name, values in expected.items():
        assert read(path, name, values.dtype).tobytes() == values.tobytes()
    # nccopy and h5repack code the values again with the same parameters.
    copies = [tmp_path / "nccopy.nc", tmp_path / "h5repack.nc"]
    tool(plugins, "nccopy", path, copies[0])
    tool(plugins, "h5repack", path, copies[1])
    density = expected.pop("density").reshape(-1)
    exact = np.isin(density, [1e20, -999, -888, 0])
    for copy in copies:
        for name, values in expected.items():
            again = read(copy, name, values.dtype).astype("f8")
            assert np.abs(again - values.reshape(-1)).max() <= 0.05
        again = read(copy, "density", "f8")
        assert again[exact].tobytes() == density[exact].tobytes()
        assert (np.abs(again - density)[~exact] <= 1e-2 * np.abs(density[~exact])).all()


@pytest.mark.parametrize("dtype", ["f4", ">f8", "i2", "u8", "S3"])
def test_a_tool_that_passes_one_parameter_loses_nothing(plugins, tmp_path, dtype):
    """NCO applies the filter of one variable to all variables, with another number as parameter."""
    values = np.random.default_rng(0).integers(0, 9, (30, 40)).astype(dtype)
    how = {"compression": FILTER_ID, "compression_opts": (50,)}
    for name in "ab":
        with h5py.File(tmp_path / f"{name}.h5", "w") as out:
            out.create_dataset("v", data=values, chunks=(15, 40), **how)
            assert (out["v"].id.get_storage_size() < values.nbytes) == (values.dtype.kind == "f")
        with h5py.File(tmp_path / f"{name}.h5") as stored:
            assert stored["v"][()].tobytes() == values.tobytes()
            # As nccopy and h5repack: the parameters of the first file for the second.
            words = stored["v"].id.get_create_plist().get_filter(0)[2]
            how = {"compression": FILTER_ID, "compression_opts": words}


def test_a_mark_states_the_bound_of_its_filter(plugins, tmp_path):
    from scitoolkit.compression import Bound, Options
    from scitoolkit.compression.files import FilePlan, compress_file
    from scitoolkit.io.compressed import holds_streams

    a, b, c, d = (tmp_path / f"{n}.h5" for n in "abcd")
    plan = FilePlan(Bound("abs", BOUND), {}, Options())
    with h5py.File(a, "w") as out:
        out["v"] = np.random.default_rng(0).normal(size=(40, 50)).cumsum(1)
    compress_file(a, b, plan)
    for how, compressible in (
        ({"compression": FILTER_ID, "compression_opts": (50,)}, True),
        (filter_options(1.0), False),
    ):
        with h5py.File(b) as small, h5py.File(c, "w") as out:
            out.create_dataset("v", data=small["v"][()], chunks=(40, 50), **how)
            out["v"].attrs.update(small["v"].attrs)
        assert not holds_streams(c)
        if compressible:
            assert len(compress_file(c, d, plan)) == 1
        else:
            with pytest.raises(DataError, match="already compressed"):
                compress_file(c, d, plan)


def test_damaged_chunks_are_errors(file):
    path, _, _ = file
    with h5py.File(path) as stored:
        mask, raw = stored["plain"].id.read_direct_chunk((0, 0, 0))
        want = stored["plain"][:16, :16, :16]
    chance = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(raw)
        damaged[chance.integers(0, len(raw))] ^= 1 << int(chance.integers(0, 8))
        damaged = damaged[: None if chance.random() < 0.7 else chance.integers(1, len(raw))]
        with h5py.File(path, "r+") as out:
            out["plain"].id.write_direct_chunk((0, 0, 0), bytes(damaged), filter_mask=mask)
        with h5py.File(path) as stored, pytest.raises(OSError, match="read"):
            stored["plain"][:16, :16, :16]
    assert np.isfinite(want).all()


def test_the_command_installs_the_filter(tmp_path, capsys):
    assert run_cli(["codec", "install", str(tmp_path / "new"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"library": str(tmp_path / "new" / LIBRARY), "filter": FILTER_ID}
    assert os.listdir(tmp_path / "new") == [LIBRARY]
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match="cannot be written"):
        install(tmp_path / "file")


def test_without_a_writable_cache_the_filter_is_temporary(tmp_path, monkeypatch):
    blocker = tmp_path / "file"
    blocker.touch()
    monkeypatch.setenv("SCITOOLKIT_CACHE", str(blocker))
    monkeypatch.setattr(h5py.h5pl, "prepend", lambda path: None)
    load_filter.cache_clear()
    try:
        folder = load_filter()
        assert (folder / LIBRARY).is_file()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        load_filter.cache_clear()
        shutil.rmtree(folder)


def test_zarr_reads_what_it_wrote_and_refuses_integers(tmp_path):
    zarr = pytest.importorskip("zarr")
    from scitoolkit.compression.zarr_codec import InterpolationSerializer

    x = smooth_field((50, 61))
    x[:9] = 1e20
    how = {
        "shape": x.shape,
        "chunks": (16, 16),
        "compressors": None,
        "serializer": InterpolationSerializer(BOUND),
    }
    stored = zarr.create_array(tmp_path / "a.zarr", dtype="f4", fill_value=1e20, **how)
    stored[:] = x
    again = zarr.open_array(tmp_path / "a.zarr", mode="r")[:]
    assert again[:9].tobytes() == x[:9].tobytes()
    assert np.abs(again - x)[9:].max() <= BOUND
    with pytest.raises(ConfigError, match="float32 or float64"):
        zarr.create_array(tmp_path / "b.zarr", dtype="i4", **how)
    chunk = tmp_path / "a.zarr" / "c" / "2" / "2"
    damaged = bytearray(chunk.read_bytes())
    damaged[40] ^= 1
    chunk.write_bytes(damaged)
    with pytest.raises(DataError, match="damaged"):
        zarr.open_array(tmp_path / "a.zarr", mode="r")[:]


def test_numcodecs_finds_the_codec_by_name():
    numcodecs = pytest.importorskip("numcodecs")
    codec = numcodecs.get_codec({"id": "scitoolkit.interpolation", "bound": BOUND})
    x = smooth_field((20, 30), ">f8")
    data = codec.encode(x)
    assert np.abs(codec.decode(data) - x).max() <= BOUND
    out = np.empty(x.shape, "<f8")
    codec.decode(data, out)
    assert np.abs(out - x).max() <= BOUND
    for damaged in (data[:1], data[:9], data[:-1], data[:2] + b"\xff\xff\xff\x7f" + data[6:]):
        with pytest.raises(DataError, match="damaged"):
            codec.decode(damaged)
