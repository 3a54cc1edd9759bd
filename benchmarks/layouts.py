"""Small campaigns written as the specification of each layout says, with what reading must give.

Sources: the Well 1.2 `docs/data_format.md`; PDEBench `data_gen` and `models/fno/utils.py`;
Dedalus 3 `core/evaluator.py`; CF Conventions 1.11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from scitoolkit.io.campaign import Options

SIMULATIONS, ROWS, X, Y = 3, 6, 8, 5


@dataclass
class Written:
    """A campaign on disk.

    Attributes:
        path: what a user would give.
        variables: names that a user would give.
        truth: {channel: one array (rows, *space) for each simulation}.
    """

    path: Path | str
    variables: list[str]
    truth: dict[str, list[np.ndarray]]
    options: Options = field(default_factory=Options)


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def the_well(folder: Path) -> Written:
    u, v = values(SIMULATIONS, ROWS, X, Y), values(SIMULATIONS, ROWS, X, Y, 2, seed=1)
    still, topo = values(SIMULATIONS, X, Y, seed=2), values(X, Y, seed=3)
    with h5py.File(folder / "well.hdf5", "w") as file:
        file.attrs["n_trajectories"], file.attrs["grid_type"] = SIMULATIONS, "cartesian"
        file.attrs["n_spatial_dims"] = 2
        file["dimensions/time"] = np.arange(ROWS, dtype="f4")
        file["dimensions/x"], file["dimensions/y"] = np.arange(X) / X, np.arange(Y) / Y
        for name, array, sample, time in (
            ("t0_fields/density", u, True, True), ("t1_fields/velocity", v, True, True),
            ("t0_fields/conductivity", still, True, False), ("t0_fields/topo", topo, False, False),
        ):  # fmt: skip
            file[name] = array
            file[name].attrs["sample_varying"], file[name].attrs["time_varying"] = sample, time
    tiled = [np.broadcast_to(s, (ROWS, X, Y)) for s in still]
    truth = {
        "density": list(u), "velocity_0": list(v[..., 0]), "velocity_1": list(v[..., 1]),
        "conductivity": tiled, "topo": [np.broadcast_to(topo, (ROWS, X, Y))] * SIMULATIONS,
    }  # fmt: skip
    names = ["density", "velocity", "conductivity", "topo"]
    return Written(folder / "well.hdf5", names, truth)


def the_well_chunked(folder: Path) -> Written:
    """The same with gzip and chunks over several trajectories."""
    written = the_well(folder)
    path = folder / "gzip.hdf5"
    with h5py.File(written.path) as old, h5py.File(path, "w") as new:
        new.attrs.update(old.attrs)

        def copy(name: str, item: h5py.Dataset) -> None:
            if isinstance(item, h5py.Dataset):
                more = {"chunks": (2, 4, X, Y), "compression": "gzip"} if item.ndim == 4 else {}
                made = new.create_dataset(name, data=item[()], **more)
                made.attrs.update(item.attrs)

        old.visititems(copy)
    return Written(path, written.variables, written.truth)


def pdebench_tensor(folder: Path) -> Written:
    u = values(SIMULATIONS, ROWS, X)
    with h5py.File(folder / "1D.hdf5", "w") as file:
        file["tensor"], file["x-coordinate"] = u, np.arange(X) / X
        file["t-coordinate"] = np.arange(ROWS + 1.0)  # the end of the last step as well
    return Written(folder / "1D.hdf5", ["tensor"], {"tensor": list(u)})


def pdebench_flow(folder: Path) -> Written:
    u, v = values(SIMULATIONS, ROWS, X, Y), values(SIMULATIONS, ROWS, X, Y, seed=1)
    with h5py.File(folder / "2D.hdf5", "w") as file:
        file["density"], file["Vx"] = u, v
        file["x-coordinate"], file["y-coordinate"] = np.arange(X) / X, np.arange(Y) / Y
        file["t-coordinate"] = np.arange(ROWS + 1.0)
    return Written(folder / "2D.hdf5", ["density", "Vx"], {"density": list(u), "Vx": list(v)})


def pdebench_darcy(folder: Path) -> Written:
    """A map from a coefficient to the solution: one sample a simulation, no time for `nu`."""
    u, nu = values(SIMULATIONS, 1, X, Y), values(SIMULATIONS, X, Y, seed=1)
    with h5py.File(folder / "darcy.hdf5", "w") as file:
        file["tensor"], file["nu"] = u, nu
        file["x-coordinate"], file["y-coordinate"] = np.arange(X) / X, np.arange(Y) / Y
    truth = {"tensor": list(u), "nu": [n[None] for n in nu]}
    return Written(folder / "darcy.hdf5", ["nu", "tensor"], truth, Options(lead=0))


def pdebench_seeds(folder: Path) -> Written:
    u = values(SIMULATIONS, ROWS, X, Y, 2)
    with h5py.File(folder / "seeds.h5", "w") as file:
        for i in range(SIMULATIONS):
            file[f"{i:04d}/data"] = u[i]
            file[f"{i:04d}/grid/t"] = np.arange(float(ROWS))
            file[f"{i:04d}/grid/x"], file[f"{i:04d}/grid/y"] = np.arange(X) / X, np.arange(Y) / Y
    truth = {f"data_{c}": list(u[..., c]) for c in range(2)}
    return Written(folder / "seeds.h5", ["data"], truth)


def dedalus(folder: Path) -> Written:
    """Ten sets of one simulation: `_s10` comes after `_s9`."""
    b, u = values(10 * 2, X, Y), values(10 * 2, 2, X, Y, seed=1)
    for i in range(10):
        with h5py.File(folder / f"snapshots_s{i + 1}.h5", "w") as file:
            rows = slice(2 * i, 2 * i + 2)
            file.attrs["handler_name"] = "snapshots"
            time = file.create_dataset("scales/sim_time", data=0.1 * np.arange(20.0)[rows])
            time.make_scale("sim_time")
            for dim, size in (("x", X), ("y", Y)):
                scale = file.create_dataset(f"scales/{dim}_hash_ab12", data=np.arange(size) / size)
                scale.make_scale(f"{dim}_hash_ab12")
            for name, array, space in (("b", b, 1), ("u", u, 2)):
                task = file.create_dataset(f"tasks/{name}", data=array[rows])
                task.attrs["grid_space"] = [True, True]
                task.dims[0].label = "t"
                task.dims[0].attach_scale(time)
                for axis, dim in enumerate("xy", start=space):
                    task.dims[axis].attach_scale(file[f"scales/{dim}_hash_ab12"])
    return Written(folder, ["b", "u"], {"b": [b], "u_0": [u[:, 0]], "u_1": [u[:, 1]]})


def _files(folder: Path, write: Callable[[xr.Dataset, Path], object], suffix: str) -> Written:
    """A file a simulation, of unequal lengths, all from time 0."""
    arrays = [values(ROWS + i, X, Y, seed=i) for i in range(SIMULATIONS)]
    for i, u in enumerate(arrays):
        times = ("time", 0.5 * np.arange(len(u)), {"units": "s"})
        data = xr.Dataset({"u": (("time", "x", "y"), u)},
                          coords={"time": times, "x": np.arange(X) / X})  # fmt: skip
        write(data, folder / f"run{i}{suffix}")
    return Written(str(folder / f"run*{suffix}"), ["u"], {"u": arrays})


def netcdf4(folder: Path) -> Written:
    return _files(folder, lambda d, p: d.to_netcdf(p, engine="h5netcdf"), ".nc")


def netcdf3(folder: Path) -> Written:
    return _files(folder, lambda d, p: d.to_netcdf(p, engine="scipy"), ".nc")


def zarr_v2(folder: Path) -> Written:
    return _files(folder, lambda d, p: d.to_zarr(p, zarr_format=2), ".zarr")


def zarr_v3(folder: Path) -> Written:
    return _files(folder, lambda d, p: d.to_zarr(p, zarr_format=3, consolidated=False), ".zarr")


def ensemble(folder: Path) -> Written:
    """One NetCDF file with members, time not first."""
    u = values(SIMULATIONS, ROWS, X, Y)
    data = xr.Dataset({"u": (("member", "x", "time", "y"), u.transpose(0, 2, 1, 3))})
    data.to_netcdf(folder / "all.nc", engine="h5netcdf")
    return Written(folder / "all.nc", ["u"], {"u": list(u)})


def groups(folder: Path) -> Written:
    arrays = [values(ROWS, X, Y, seed=i) for i in range(SIMULATIONS)]
    for i, u in enumerate(arrays):
        with h5py.File(folder / f"heat{i}.h5", "w") as file:
            file["Fields/Temp"], file["Fields/Src"] = u, u + 1
    options = Options(dims=["time", "x", "y"])
    return Written(folder, ["Fields/Temp"], {"Fields_Temp": arrays}, options)


def numpy_files(folder: Path) -> Written:
    arrays = [values(ROWS, X, Y, seed=i) for i in range(SIMULATIONS)]
    for i, u in enumerate(arrays):
        np.save(folder / f"run{i}.npy", u)
    return Written(folder, ["values"], {"values": arrays}, Options(dims=["time", "x", "y"]))


def one_sample_a_file(folder: Path) -> Written:
    """Steps 8 to 13, so that names in the order of letters are wrong."""
    arrays = [values(ROWS, X, Y, seed=i) for i in range(SIMULATIONS)]
    for i, u in enumerate(arrays):
        for k, frame in enumerate(u):
            data = xr.Dataset({"u": (("x", "y"), frame)})
            data.to_netcdf(folder / f"run{i}_t{k + 8}.nc", engine="h5netcdf")
    options = Options(pattern="run{simulation}_t{step}.nc")
    return Written(folder, ["u"], {"u": arrays}, options)


def one_map_a_file(folder: Path) -> Written:
    arrays = [values(1, X, Y, seed=i) for i in range(SIMULATIONS)]
    for i, u in enumerate(arrays):
        data = xr.Dataset({"u": (("x", "y"), u[0])})
        data.to_netcdf(folder / f"case{i}.nc", engine="h5netcdf")
    return Written(folder, ["u"], {"u": arrays}, Options(lead=0))


LAYOUTS: dict[str, Callable[[Path], Written]] = {
    function.__name__: function
    for function in (
        the_well, the_well_chunked, pdebench_tensor, pdebench_flow, pdebench_darcy, pdebench_seeds,
        dedalus, netcdf4, netcdf3, zarr_v2, zarr_v3, ensemble, groups, numpy_files,
        one_sample_a_file, one_map_a_file,
    )
}  # fmt: skip
