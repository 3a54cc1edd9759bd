"""Programs that read a compressed dataset within its bound, and the outcome of damaged chunks.

One file is written by h5py through the filter (`scitoolkit codec install`) and one array by Zarr;
every installed program reads them. 10,000 chunks are damaged, half of them with a recomputed
checksum of the frame, as by an adversary: an error is silent if a value differs from the original
decoded value and no exception is raised. Integer datasets must be refused on creation.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
from _places import PEERS, ROOT

PEER = PEERS / "netcdf" / "bin" / "python"
BOUND, TRIES = 0.05, 10_000
C_PROGRAM = """
#include <netcdf.h>
#include <stdio.h>
static float v[32 * 32 * 32];
int main(int argc, char **argv) {
    int file, var, bad = nc_open(argv[1], NC_NOWRITE, &file);
    if (!bad) bad = nc_inq_varid(file, "t", &var);
    if (!bad) bad = nc_get_var_float(file, var, v);
    FILE *out = fopen(argv[2], "wb");
    fwrite(v, sizeof v, 1, out);
    fclose(out);
    if (bad) fprintf(stderr, "%s", nc_strerror(bad));
    return argc != 3 || bad;
}
"""
FORTRAN_PROGRAM = """
program read_field
  use hdf5
  implicit none
  integer :: bad, unit
  integer(hid_t) :: file, data
  integer(hsize_t) :: n(3) = [32, 32, 32]
  real(4) :: v(32, 32, 32)
  character(1000) :: path, out
  call get_command_argument(1, path)
  call get_command_argument(2, out)
  call h5open_f(bad)
  call h5fopen_f(trim(path), H5F_ACC_RDONLY_F, file, bad)
  call h5dopen_f(file, "t", data, bad)
  call h5dread_f(data, H5T_NATIVE_REAL, v, n, bad)
  if (bad /= 0) stop 1
  open(newunit=unit, file=trim(out), access="stream", form="unformatted")
  write(unit) v
end program
"""


def field() -> np.ndarray:
    """Return a block of real turbulence with a missing row."""
    x = np.load(ROOT / "datasets/turbulence_sperr/wmag_64.npy")[:32, :32, :32].copy()
    x[3, 5] = 1e20
    return x


def within(x: np.ndarray, y: np.ndarray, bound: float = BOUND) -> bool:
    """Whether every value is within the bound, and missing ones are equal bit for bit."""
    missing = x == np.float32(1e20)
    near = np.abs(x[~missing].astype(np.float64) - y[~missing]) <= bound
    return bool(near.all() and (y[missing] == x[missing]).all())


def tool(plugins: Path, *arguments: object) -> str:
    """Return the output of a program run with the filter."""
    if shutil.which(str(arguments[0])) is None:
        raise ModuleNotFoundError(str(arguments[0]))
    environment = {**os.environ, "HDF5_PLUGIN_PATH": str(plugins)}
    done = subprocess.run(
        list(map(str, arguments)), capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout


def by_h5py(plugins: Path, path: Path, x: np.ndarray) -> bool:
    with h5py.File(path) as file:
        return within(x, file["t"][...])


def by_h5dump(plugins: Path, path: Path, x: np.ndarray) -> bool:
    raw = path.with_suffix(".raw")
    tool(plugins, "h5dump", "-d", "/t", "-b", "LE", "-o", raw, path)
    return within(x, np.fromfile(raw, "<f4").reshape(x.shape))


def by_h5repack(plugins: Path, path: Path, x: np.ndarray) -> bool:
    bare = path.with_suffix(".bare.h5")
    tool(plugins, "h5repack", "-f", "NONE", path, bare)
    return by_h5py(plugins, bare, x)


def by_ncdump(plugins: Path, path: Path, x: np.ndarray) -> bool:
    text = tool(plugins, "ncdump", "-p", "9,17", "-v", "t", path).split("t =")[-1]
    values = re.findall(r"-?\d[-+.\de]*|_", text.split("}")[0])
    return within(x, np.array([1e20 if v == "_" else v for v in values], "f4").reshape(x.shape))


def by_nccopy(plugins: Path, path: Path, x: np.ndarray) -> bool:
    """Copy without the filter: a copy with it is compressed once more, and the errors add up."""
    copy = path.with_suffix(".copy.nc")
    tool(plugins, "nccopy", "-F", "none", path, copy)
    return by_h5py(plugins, copy, x)


def by_ncks(plugins: Path, path: Path, x: np.ndarray) -> bool:
    """Cut with NCO without the filter; with it, cut values are coded once more."""
    bare, cut = path.with_suffix(".bare.nc"), path.with_suffix(".cut.nc")
    tool(plugins, "ncks", "-O", "-L", "0", "-d", "z,2,5", path, bare)
    tool(plugins, "ncks", "-O", "-d", "z,2,5", path, cut)
    with h5py.File(cut) as file:
        twice = within(x[2:6], file["t"][...], 2 * BOUND)
    return by_h5py(plugins, bare, x[2:6]) and twice


def by_cdo(plugins: Path, path: Path, x: np.ndarray) -> bool:
    """Copy with CDO; it takes missing values from the attribute."""
    copy = path.with_suffix(".cdo.nc")
    tool(plugins, "cdo", "-s", "-O", "-f", "nc4", "copy", path, copy)
    return by_h5py(plugins, copy, x)


def by_h5netcdf(plugins: Path, path: Path, x: np.ndarray) -> bool:
    import h5netcdf

    with h5netcdf.File(path) as file:
        return within(x, file["t"][...])


def by_netcdf4(plugins: Path, path: Path, x: np.ndarray) -> bool:
    """Read with netCDF4 in a process that holds h5py's HDF5 library as well."""
    if not PEER.exists():
        raise ModuleNotFoundError("netCDF4")
    code = (
        "import sys, h5py, netCDF4, numpy; f = netCDF4.Dataset(sys.argv[1]);"
        "f.set_auto_mask(False); numpy.save(sys.argv[2], f['t'][:]); f.close();"
        "h5py.File(sys.argv[1])['t'][...]"
    )
    out = path.with_suffix(".npy")
    tool(plugins, PEER, "-c", code, path, out)
    return within(x, np.load(out))


def by_vtk(plugins: Path, path: Path, x: np.ndarray) -> bool:
    """Read with the reader of VTK that ParaView opens NetCDF files with."""
    code = (
        "import sys, numpy; from vtkmodules.vtkIONetCDF import vtkNetCDFCFReader;"
        "from vtkmodules.util.numpy_support import vtk_to_numpy; reader = vtkNetCDFCFReader();"
        "reader.SetFileName(sys.argv[1]); reader.SphericalCoordinatesOff(); reader.Update();"
        "points = reader.GetOutput().GetPointData();"
        "numpy.save(sys.argv[2], vtk_to_numpy(points.GetArray('t')))"
    )
    look = "import importlib.util; print(importlib.util.find_spec('vtkmodules') is not None)"
    if not PEER.exists() or "True" not in tool(plugins, PEER, "-c", look):
        raise ModuleNotFoundError("vtk")
    out = path.with_suffix(".vtk.npy")
    tool(plugins, PEER, "-c", code, path, out)
    return within(x, np.load(out).reshape(x.shape))


def by_program(plugins: Path, path: Path, x: np.ndarray, compiler: str, code: str) -> bool:
    """Read with a compiled program; `compiler` is a command that links the required libraries."""
    source, built = path.with_suffix(".f90" if "fc" in compiler else ".c"), path.with_suffix(".exe")
    source.write_text(code)
    command = f"cd {path.parent} && {compiler} {source} -o {built}"
    flags = ""
    if "fc" not in compiler:
        flags = tool(plugins, "nc-config", "--cflags", "--libs").replace("\n", " ")
    tool(plugins, "sh", "-c", f"{command} {flags}")
    out = path.with_suffix(".out")
    tool(plugins, built, path, out)
    return within(x, np.fromfile(out, "<f4").reshape(x.shape))


def by_c(plugins: Path, path: Path, x: np.ndarray) -> bool:
    return by_program(plugins, path, x, "cc", C_PROGRAM)


def by_fortran(plugins: Path, path: Path, x: np.ndarray) -> bool:
    if shutil.which("h5fc") is None:
        raise ModuleNotFoundError("h5fc")
    return by_program(plugins, path, x, "h5fc", FORTRAN_PROGRAM)


def by_xarray(plugins: Path, path: Path, x: np.ndarray) -> bool:
    import xarray as xr

    with xr.open_dataset(path, engine="h5netcdf", mask_and_scale=False) as data:
        return within(x, data["t"].values)


def by_zarr(plugins: Path, path: Path, x: np.ndarray) -> bool:
    import zarr

    return within(x, np.asarray(zarr.open_array(path.with_suffix(".zarr") / "t", mode="r")[:]))


def by_xarray_zarr(plugins: Path, path: Path, x: np.ndarray) -> bool:
    import xarray as xr

    store = path.with_suffix(".zarr")
    with xr.open_dataset(
        store, engine="zarr", consolidated=False, mask_and_scale=False, chunks=None
    ) as data:
        return within(x, data["t"].values)


READERS: dict[str, Callable[[Path, Path, np.ndarray], bool]] = {
    "h5py": by_h5py,
    "h5dump": by_h5dump,
    "h5repack": by_h5repack,
    "ncdump": by_ncdump,
    "nccopy": by_nccopy,
    "ncks": by_ncks,
    "cdo": by_cdo,
    "h5netcdf": by_h5netcdf,
    "netCDF4": by_netcdf4,
    "VTK (ParaView)": by_vtk,
    "a C program": by_c,
    "a Fortran program": by_fortran,
    "xarray": by_xarray,
    "zarr": by_zarr,
    "xarray (Zarr)": by_xarray_zarr,
}


def write(path: Path, x: np.ndarray) -> None:
    """Write the field to an HDF5 file with dimension scales, and to a Zarr store."""
    import zarr

    from scitoolkit.compression.native.plugin import filter_options
    from scitoolkit.compression.zarr_codec import InterpolationSerializer

    with h5py.File(path, "w") as file:
        data = file.create_dataset(
            "t", data=x, chunks=(16, 16, 16), fillvalue=1e20, **filter_options(BOUND)
        )
        data.attrs["_FillValue"] = np.float32(1e20)
        for axis, name in enumerate("zyx"):
            file[name] = np.arange(x.shape[axis], dtype="f8")
            file[name].make_scale(name)
            data.dims[axis].attach_scale(file[name])
    stored = zarr.create_array(
        path.with_suffix(".zarr"),
        name="t",
        shape=x.shape,
        chunks=(16, 16, 16),
        dtype="f4",
        fill_value=1e20,
        serializer=InterpolationSerializer(BOUND),
        compressors=None,
        dimension_names=tuple("zyx"),
    )
    stored[:] = x


def integers_refused(folder: Path) -> bool:
    """Whether a dataset of integers cannot be made with the filter."""
    from scitoolkit.compression.native.plugin import filter_options

    try:
        with h5py.File(folder / "integers.h5", "w") as file:
            file.create_dataset("i", data=np.arange(99), chunks=(9,), **filter_options(BOUND))
    except (ValueError, OSError, RuntimeError):
        return True
    return False


def damaged_chunks(data: bytes) -> Iterator[bytes]:
    """Yield damaged copies of a chunk; every other one has a valid checksum of its frame."""
    import zlib

    chance = np.random.default_rng(0)
    for number in range(TRIES):
        bad = bytearray(data)
        for _ in range(chance.integers(1, 9)):
            at = chance.integers(0, 20) if chance.random() < 0.2 else chance.integers(0, len(bad))
            bad[at] ^= 1 << int(chance.integers(0, 8))
        if chance.random() < 0.25:
            del bad[chance.integers(0, len(bad)) :]
        if number % 2 and len(bad) >= 20:
            bad[:8] = data[:8]
            frame = zlib.crc32(bad[16:], zlib.crc32(bad[:12]))
            bad[12:16] = frame.to_bytes(4, "little")
        yield bytes(bad)


def damage() -> dict[str, int]:
    """Return the numbers of damaged chunks tried, with other values, and with the same values."""
    from scitoolkit.compression.native import library
    from scitoolkit.core.errors import DataError

    x = field()[:16, :16, :16].copy()
    parameters = library.chunk_parameters(x.shape, x.dtype, BOUND, 1e20)
    data = library.encode_chunk(x, parameters)
    want = library.decode_chunk(data, x.shape, x.dtype, parameters).tobytes()
    counts = {"damaged_tried": 0, "damaged_silent": 0, "damaged_unchanged": 0}
    for bad in damaged_chunks(data):
        counts["damaged_tried"] += 1
        try:
            got = library.decode_chunk(bad, x.shape, x.dtype, parameters).tobytes()
        except DataError:
            continue
        counts["damaged_unchanged" if got == want else "damaged_silent"] += 1
    return counts


def damage_apart() -> dict[str, int]:
    """Run `damage` in another process, so that a crash is counted."""
    code = "import json, compression_readers as c; print(json.dumps(c.damage()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"damaged_tried": TRIES, "damaged_silent": 0, "damaged_crashed": 1}
    return {**json.loads(done.stdout.splitlines()[-1]), "damaged_crashed": 0}


def run() -> dict:
    """Return all figures; see the module docstring."""
    from _measure import machine

    from scitoolkit.compression.native.plugin import install

    ok, wrong, missing = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        folder, x = Path(scratch), field()
        install(folder / "plugins")
        h5py.h5pl.prepend(os.fsencode(folder / "plugins"))
        path = folder / "field.h5"
        write(path, x)
        for name, read in READERS.items():
            try:
                (ok if read(folder / "plugins", path, x) else wrong).append(name)
            except ModuleNotFoundError:
                missing.append(name)
        refused = integers_refused(folder)
        with h5py.File(path) as file:
            ratio = x.nbytes / file["t"].id.get_storage_size()
    if wrong or not refused:
        raise AssertionError(f"wrong values: {wrong}; integers refused: {refused}")
    return {
        "readers_ok": ok,
        "readers_missing": missing,
        "integers_refused": refused,
        **damage_apart(),
        "ratio": ratio,
        "hdf5_of_h5py": h5py.version.hdf5_version,
        "machine": machine(),
    }
