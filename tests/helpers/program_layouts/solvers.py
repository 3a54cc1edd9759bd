"""Layouts of solvers, of collections for machine learning, and of plain arrays."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from program_layouts.files import ROWS, LayoutFiles, Write

RUNS, X, Y = 3, 9, 8
Rng = np.random.Generator


def _values(rng: Rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype("f4")


def _axes(file: h5py.File, pattern: str, names: str = "xy") -> None:
    for name, size in zip(names, (X, Y), strict=False):
        file[pattern.format(name)] = np.arange(size) / size


def the_well(folder: Path, rng: Rng) -> LayoutFiles:
    """The Well: fields by rank, with attributes for what varies."""
    u, v = _values(rng, RUNS, ROWS, X, Y), _values(rng, RUNS, ROWS, X, Y, 2)
    path = folder / "well.hdf5"
    with h5py.File(path, "w") as file:
        file.attrs["n_trajectories"], file.attrs["n_spatial_dims"] = RUNS, 2
        file["dimensions/time"] = np.arange(ROWS, dtype="f4")
        _axes(file, "dimensions/{}")
        for name, array in (("t0_fields/density", u), ("t1_fields/velocity", v)):
            file[name] = array
            file[name].attrs["sample_varying"] = file[name].attrs["time_varying"] = True
    parts = {f"velocity_{c}": list(v[..., c]) for c in range(2)}
    return LayoutFiles(path, {"density": list(u), **parts})


def pdebench_tensor(folder: Path, rng: Rng) -> LayoutFiles:
    """PDEBench in one dim: `tensor`, with the end of the last step among the times."""
    u, path = _values(rng, RUNS, ROWS, X), folder / "1D_Advection.hdf5"
    with h5py.File(path, "w") as file:
        file["tensor"], file["t-coordinate"] = u, np.arange(ROWS + 1.0)
        _axes(file, "{}-coordinate", "x")
    return LayoutFiles(path, {"tensor": list(u)})


def pdebench_flow(folder: Path, rng: Rng) -> LayoutFiles:
    """PDEBench, compressible flow."""
    fields, path = (
        {n: _values(rng, RUNS, ROWS, X, Y) for n in ("density", "Vx")},
        folder / "2D.hdf5",
    )
    with h5py.File(path, "w") as file:
        for name, array in fields.items():
            file[name] = array
        file["t-coordinate"] = np.arange(ROWS + 1.0)
        _axes(file, "{}-coordinate")
    return LayoutFiles(path, {n: list(a) for n, a in fields.items()})


def pdebench_seeds(folder: Path, rng: Rng) -> LayoutFiles:
    """PDEBench with a group for each seed."""
    u, path = _values(rng, RUNS, ROWS, X, Y, 2), folder / "2D_diff-react.h5"
    with h5py.File(path, "w") as file:
        for i in range(RUNS):
            file[f"{i:04d}/data"], file[f"{i:04d}/grid/t"] = u[i], np.arange(float(ROWS))
            _axes(file, f"{i:04d}/grid/{{}}")
    return LayoutFiles(path, {f"data_{c}": list(u[..., c]) for c in range(2)})


def pdebench_incompressible(folder: Path, rng: Rng) -> LayoutFiles:
    """PDEBench, incompressible flow: frames after `latestIndex` were not written."""
    v, path = _values(rng, RUNS, ROWS + 3, X, Y, 2), folder / "ns_incom.h5"
    v[:, ROWS:] = 0
    with h5py.File(path, "w") as file:
        file.attrs["latestIndex"] = ROWS - 1
        file["velocity"] = v
        file["t"] = np.tile(np.arange(ROWS + 3.0, dtype="f4"), (RUNS, 1))
    return LayoutFiles(path, {f"velocity_{c}": list(v[:, :ROWS, ..., c]) for c in range(2)})


def pdearena(folder: Path, rng: Rng) -> LayoutFiles:
    """PDEArena: the group is the split."""
    u, path = _values(rng, RUNS, ROWS, X, Y), folder / "NavierStokes2D_train_1.h5"
    with h5py.File(path, "w") as file:
        file["train/u"], file["train/vx"] = u, u + 1
        file["train/dt"] = np.full(RUNS, 0.5)
    return LayoutFiles(path, {"u": list(u), "vx": list(u + np.float32(1))})


def dedalus(folder: Path, rng: Rng) -> LayoutFiles:
    """Dedalus: sets `_s1` to `_s10` of one simulation."""
    b = _values(rng, 2 * 10, X, Y)
    for i in range(10):
        rows = slice(2 * i, 2 * i + 2)
        with h5py.File(folder / f"snapshots_s{i + 1}.h5", "w") as file:
            time = file.create_dataset("scales/sim_time", data=0.1 * np.arange(20.0)[rows])
            time.make_scale("sim_time")
            task = file.create_dataset("tasks/b", data=b[rows])
            task.attrs["grid_space"] = [True, True]
            task.dims[0].label = "t"
            task.dims[0].attach_scale(time)
            for axis, (dim, size) in enumerate((("x", X), ("y", Y)), start=1):
                name = f"scales/{dim}_hash_ab12"
                file[name] = np.arange(size) / size
                file[name].make_scale(f"{dim}_hash_ab12")
                task.dims[axis].attach_scale(file[name])
    return LayoutFiles(folder, {"b": [b]})


def _iteration(file: h5py.File, number: int, rho: np.ndarray) -> None:
    base = file.require_group(f"data/{number}")
    base.attrs["time"], base.attrs["timeUnitSI"], base.attrs["dt"] = 0.1 * number, 1e-15, 0.1
    mesh = base.create_dataset("meshes/rho", data=rho)
    mesh.attrs["axisLabels"], mesh.attrs["geometry"] = [b"y", b"x"], "cartesian"
    mesh.attrs["dataOrder"] = "C"


def _openpmd(file: h5py.File, encoding: str) -> None:
    file.attrs["openPMD"], file.attrs["basePath"] = "1.1.0", "/data/%T/"
    file.attrs["meshesPath"], file.attrs["iterationEncoding"] = "meshes/", encoding


def openpmd_groups(folder: Path, rng: Rng) -> LayoutFiles:
    """openPMD with iterations as groups, not in the order of their letters."""
    arrays = [_values(rng, ROWS, Y, X) for _ in range(RUNS)]
    for i, array in enumerate(arrays):
        with h5py.File(folder / f"run{i}.h5", "w") as file:
            _openpmd(file, "groupBased")
            for k in range(ROWS):
                _iteration(file, 10 * (8 + k), array[k])
    return LayoutFiles(folder, {"rho": arrays})


def openpmd_files(folder: Path, rng: Rng) -> LayoutFiles:
    """openPMD with an iteration a file."""
    rho = _values(rng, ROWS, Y, X)
    for k in range(ROWS):
        with h5py.File(folder / f"data{10 * (8 + k)}.h5", "w") as file:
            _openpmd(file, "fileBased")
            _iteration(file, 10 * (8 + k), rho[k])
    return LayoutFiles(folder, {"rho": [rho]})


def fno_matlab(folder: Path, rng: Rng) -> LayoutFiles:
    """A MATLAB v7.3 file of neural-operator papers: dims in the reverse order, without names."""
    u, path = _values(rng, 5, ROWS, X, Y), folder / "NavierStokes_V1e-3.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["u"] = u.transpose(1, 2, 3, 0)
    return LayoutFiles(path, {"u": list(u)}, ("--dims", "time,y,x,simulation"))


def meep(folder: Path, rng: Rng) -> LayoutFiles:
    """Plain HDF5 without any name."""
    e, path = _values(rng, ROWS, X, Y), folder / "ez.h5"
    with h5py.File(path, "w") as file:
        file["ez"] = e
    return LayoutFiles(path, {"ez": [e]})


def plain_4d(folder: Path, rng: Rng) -> LayoutFiles:
    """Plain HDF5 of four unnamed dims."""
    u, path = _values(rng, RUNS, ROWS, X, Y), folder / "train.h5"
    with h5py.File(path, "w") as file:
        file["u"] = u
    return LayoutFiles(path, {"u": list(u)}, ("--dims", "simulation,time,y,x"))


def groups(folder: Path, rng: Rng) -> LayoutFiles:
    """Plain HDF5 with fields in a group, a simulation a file."""
    arrays = [_values(rng, ROWS, X, Y) for _ in range(RUNS)]
    for i, u in enumerate(arrays):
        with h5py.File(folder / f"heat{i}.h5", "w") as file:
            file["Fields/Temp"] = u
    return LayoutFiles(folder, {"Temp": arrays}, ("--dims", "time,x,y"))


def numpy_files(folder: Path, rng: Rng) -> LayoutFiles:
    """`.npy`, a simulation a file."""
    arrays = [_values(rng, ROWS, X, Y) for _ in range(RUNS)]
    for i, u in enumerate(arrays):
        np.save(folder / f"run{i}.npy", u)
    return LayoutFiles(folder, {"values": arrays}, ("--dims", "time,y,x"))


def npz_files(folder: Path, rng: Rng) -> LayoutFiles:
    """`.npz`, a simulation a file."""
    arrays = [_values(rng, ROWS, X, Y) for _ in range(RUNS)]
    for i, u in enumerate(arrays):
        np.savez(folder / f"run{i}.npz", u=u)
    return LayoutFiles(folder, {"u": arrays}, ("--dims", "time,y,x"))


def snapshots(folder: Path, rng: Rng) -> LayoutFiles:
    """One sample a file; steps 8 to 19 are not in the order of their letters."""
    import xarray as xr

    arrays = [_values(rng, ROWS, X, Y) for _ in range(RUNS)]
    for i, u in enumerate(arrays):
        for k, frame in enumerate(u):
            data = xr.Dataset({"u": (("x", "y"), frame)})
            data.to_netcdf(folder / f"run{i}_t{k + 8}.nc", engine="h5netcdf")
    return LayoutFiles(folder, {"u": arrays})


def snapshots_dated(folder: Path, rng: Rng) -> LayoutFiles:
    """One date a file, as services of weather deliver them."""
    import xarray as xr

    u = _values(rng, ROWS, X, Y)
    for k, frame in enumerate(u):
        days = ("time", [k + 0.0], {"units": "days since 2001-01-25", "axis": "T"})
        data = xr.Dataset({"t": (("time", "y", "x"), frame[None])}, {"time": days})
        data.to_netcdf(folder / f"analysis_{k}.nc", engine="h5netcdf")
    return LayoutFiles(folder, {"t": [u]})


def _scaled(file: h5py.File, name: str, sizes: dict[str, int]) -> None:
    for axis, (dim, size) in enumerate(sizes.items()):
        if dim not in file:
            file[dim] = np.arange(float(size))
            file[dim].make_scale(dim)
        file[name].dims[axis].attach_scale(file[dim])


def virtual(folder: Path, rng: Rng) -> LayoutFiles:
    """One file over the parts of four processes."""
    u, parts = _values(rng, ROWS, 8, Y), folder / "parts"
    parts.mkdir()
    layout = h5py.VirtualLayout(u.shape, "f4")
    for p in range(4):
        own = slice(2 * p, 2 * p + 2)
        with h5py.File(parts / f"p{p}.h5", "w") as file:
            file["u"] = u[:, own]
        layout[:, own] = h5py.VirtualSource(f"parts/p{p}.h5", "u", (ROWS, 2, Y))
    with h5py.File(folder / "run.h5", "w") as file:
        file.create_virtual_dataset("u", layout)
        _scaled(file, "u", {"time": ROWS, "y": 8, "x": Y})
    return LayoutFiles(folder / "run.h5", {"u": [u]})


def complex_waves(folder: Path, rng: Rng) -> LayoutFiles:
    """Complex numbers, as quantum codes write them."""
    psi, path = _values(rng, ROWS, X, Y) + 1j * _values(rng, ROWS, X, Y), folder / "psi.h5"
    with h5py.File(path, "w") as file:
        file["psi"] = psi
        _scaled(file, "psi", {"time": ROWS, "y": X, "x": Y})
    return LayoutFiles(path, {"psi_real": [psi.real], "psi_imag": [psi.imag]})


def zarr_shards(folder: Path, rng: Rng) -> LayoutFiles:
    """Zarr v3 with shards, a simulation a store."""
    import zarr

    arrays = [_values(rng, ROWS, X, Y) for _ in range(RUNS)]
    for i, u in enumerate(arrays):
        group = zarr.open_group(folder / f"run{i}.zarr", mode="w", zarr_format=3)
        made = group.create_array(
            "u",
            shape=u.shape,
            dtype="f4",
            chunks=(1, X, Y),
            shards=(3, X, Y),
            dimension_names=["time", "y", "x"],
        )
        made[:] = u
    return LayoutFiles(str(folder / "run*.zarr"), {"u": arrays})


def icon(folder: Path, rng: Rng) -> LayoutFiles:
    """ICON on its triangles."""
    import xarray as xr

    angles = {"clat": "degrees_north", "clon": "degrees_east"}
    cells = {n: (("ncells",), np.arange(20.0), {"units": u}) for n, u in angles.items()}
    attrs = {"CDI_grid_type": "unstructured", "coordinates": "clat clon"}
    time = ("time", np.arange(float(ROWS)), {"units": "days since 2000-01-01"})
    data = xr.Dataset({"ts": (("time", "ncells"), _values(rng, ROWS, 20), attrs)}, {"time": time})
    path = folder / "icon_atm.nc"
    data.assign(cells).to_netcdf(path, engine="h5netcdf")
    return LayoutFiles(path, refused="unstructured mesh")


def mpas(folder: Path, rng: Rng) -> LayoutFiles:
    """MPAS: values on cells, whose positions are vectors of the same dim."""
    import xarray as xr

    places = {
        name: (("nCells",), rng.random(20), {"units": "rad", "standard_name": role})
        for name, role in (("latCell", "latitude"), ("lonCell", "longitude"))
    }
    time = (("Time",), np.arange(float(ROWS)), {"units": "days since 2000-01-01"})
    data = xr.Dataset({"t2m": (("Time", "nCells"), _values(rng, ROWS, 20))}, {"Time": time})
    path = folder / "history.nc"
    data.assign(places).to_netcdf(path, engine="h5netcdf")
    return LayoutFiles(path, refused="unstructured mesh")


def fesom(folder: Path, rng: Rng) -> LayoutFiles:
    """FESOM 2 by the UGRID convention."""
    import xarray as xr

    attrs = {"mesh": "fesom_mesh", "location": "node"}
    time = (("time",), np.arange(float(ROWS)), {"units": "days since 2000-01-01"})
    data = xr.Dataset({"sst": (("time", "nod2"), _values(rng, ROWS, 20), attrs)}, {"time": time})
    path = folder / "sst.fesom.nc"
    data.to_netcdf(path, engine="h5netcdf")
    return LayoutFiles(path, refused="unstructured mesh")


def flash(folder: Path, rng: Rng) -> LayoutFiles:
    """FLASH: blocks of a refined mesh."""
    path = folder / "flash_hdf5_chk_0000"
    with h5py.File(path, "w") as file:
        file["dens"], file["refine level"] = _values(rng, 3, 8, 8, 8), np.ones(3, "i4")
        file["node type"], file["bounding box"] = np.ones(3, "i4"), np.zeros((3, 3, 2))
    return LayoutFiles(path, refused="fields in blocks")


def athena(folder: Path, rng: Rng) -> LayoutFiles:
    """Athena++: blocks of a refined mesh."""
    path = folder / "blast.out1.00000.athdf"
    with h5py.File(path, "w") as file:
        file.attrs["NumMeshBlocks"], file.attrs["VariableNames"] = 2, [b"dens", b"press"]
        file.attrs["Time"], file["Levels"] = 0.0, np.zeros(2, int)
        file["prim"] = _values(rng, 2, 2, 4, 4, 4)
    return LayoutFiles(path, refused="fields in blocks")


SOLVER_LAYOUTS: dict[str, Write] = {
    write.__name__: write
    for write in (
        the_well,
        pdebench_tensor,
        pdebench_flow,
        pdebench_seeds,
        pdebench_incompressible,
        pdearena,
        dedalus,
        openpmd_groups,
        openpmd_files,
        fno_matlab,
        meep,
        plain_4d,
        groups,
        numpy_files,
        npz_files,
        snapshots,
        snapshots_dated,
        virtual,
        complex_waves,
        zarr_shards,
        icon,
        mpas,
        fesom,
        flash,
        athena,
    )
}
