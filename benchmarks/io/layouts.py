"""Small campaigns written by the specification of each layout, with the expected values.

Sources: the Well 1.2 `docs/data_format.md`; PDEBench `data_gen` and `models/fno/utils.py`;
Dedalus 3 `core/evaluator.py`; CF Conventions 1.11.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign import CampaignOptions, open_campaign
from scitoolkit.io.campaign.rows import row_sets
from scitoolkit.io.campaign.windows import CampaignWindows

SIMULATIONS, ROWS, X, Y = 3, 6, 8, 5


@dataclass
class Written:
    """A campaign on disk.

    Attributes:
        path: path as given by a user.
        variables: names as given by a user.
        truth: {channel: one array (rows, *space) for each simulation}.
        refused: expected text of the error if the layout must be refused.
    """

    path: Path | str
    variables: list[str]
    truth: dict[str, list[np.ndarray]]
    options: CampaignOptions = field(default_factory=CampaignOptions)
    refused: str = ""


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
            ("t0_fields/density", u, True, True),
            ("t1_fields/velocity", v, True, True),
            ("t0_fields/conductivity", still, True, False),
            ("t0_fields/topo", topo, False, False),
        ):
            file[name] = array
            file[name].attrs["sample_varying"], file[name].attrs["time_varying"] = sample, time
    tiled = [np.broadcast_to(s, (ROWS, X, Y)) for s in still]
    truth = {
        "density": list(u),
        "velocity_0": list(v[..., 0]),
        "velocity_1": list(v[..., 1]),
        "conductivity": tiled,
        "topo": [np.broadcast_to(topo, (ROWS, X, Y))] * SIMULATIONS,
    }
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
    return Written(folder / "darcy.hdf5", ["nu", "tensor"], truth, CampaignOptions(lead=0))


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
        data = xr.Dataset(
            {"u": (("time", "x", "y"), u)}, coords={"time": times, "x": np.arange(X) / X}
        )
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
    options = CampaignOptions(dims=["time", "x", "y"])
    return Written(folder, ["Fields/Temp"], {"Fields_Temp": arrays}, options)


def numpy_files(folder: Path) -> Written:
    arrays = [values(ROWS, X, Y, seed=i) for i in range(SIMULATIONS)]
    for i, u in enumerate(arrays):
        np.save(folder / f"run{i}.npy", u)
    return Written(folder, ["values"], {"values": arrays}, CampaignOptions(dims=["time", "x", "y"]))


def one_sample_a_file(folder: Path) -> Written:
    """Steps 8 to 13, so that names in the order of letters are wrong."""
    arrays = [values(ROWS, X, Y, seed=i) for i in range(SIMULATIONS)]
    for i, u in enumerate(arrays):
        for k, frame in enumerate(u):
            data = xr.Dataset({"u": (("x", "y"), frame)})
            data.to_netcdf(folder / f"run{i}_t{k + 8}.nc", engine="h5netcdf")
    options = CampaignOptions(pattern="run{simulation}_t{step}.nc")
    return Written(folder, ["u"], {"u": arrays}, options)


def one_map_a_file(folder: Path) -> Written:
    arrays = [values(1, X, Y, seed=i) for i in range(SIMULATIONS)]
    for i, u in enumerate(arrays):
        data = xr.Dataset({"u": (("x", "y"), u[0])})
        data.to_netcdf(folder / f"case{i}.nc", engine="h5netcdf")
    return Written(folder, ["u"], {"u": arrays}, CampaignOptions(lead=0))


def pdebench_incompressible(folder: Path) -> Written:
    """Frames are allocated ahead: those behind `latestIndex` hold zeros."""
    v, p = values(2, ROWS + 3, X, Y, 2), values(2, ROWS + 3, X, Y, 1, seed=1)
    force = values(2, X, Y, 2, seed=2)
    v[:, ROWS:], p[:, ROWS:] = 0, 0
    with h5py.File(folder / "ns_incom.h5", "w") as file:
        file.attrs["latestIndex"] = ROWS - 1
        for name, array in (("velocity", v), ("particles", p), ("force", force)):
            chunks = (1, 1, *array.shape[2:])
            file.create_dataset(name, data=array, chunks=chunks, compression="lzf", shuffle=True)
        file["t"] = np.tile(np.arange(ROWS + 3.0, dtype="f4"), (2, 1))
    truth = {
        **{f"velocity_{c}": list(v[:, :ROWS, ..., c]) for c in range(2)},
        "particles_0": list(p[:, :ROWS, ..., 0]),
        **{
            f"force_{c}": [np.broadcast_to(f[..., c], (ROWS, X, Y)) for f in force]
            for c in range(2)
        },
    }
    return Written(folder / "ns_incom.h5", ["velocity", "particles", "force"], truth)


def pdearena(folder: Path) -> Written:
    """The group is the split; each sample has its own step, which is not a field."""
    u, vx = values(SIMULATIONS, ROWS, X, Y), values(SIMULATIONS, ROWS, X, Y, seed=1)
    with h5py.File(folder / "NavierStokes2D_train_1.h5", "w") as file:
        file["train/u"], file["train/vx"] = u, vx
        file["train/dt"] = file["train/buo_y"] = np.full(SIMULATIONS, 0.5)
    path = folder / "NavierStokes2D_train_1.h5"
    return Written(path, ["u", "vx"], {"u": list(u), "vx": list(vx)})


def _iteration(file: h5py.File, number: int, e: np.ndarray, rho: np.ndarray) -> None:
    """One iteration of openPMD, with a constant component and stored axes (y, x)."""
    base = file.require_group(f"data/{number}")
    base.attrs["time"], base.attrs["timeUnitSI"], base.attrs["dt"] = 0.1 * number, 1e-15, 0.1
    meshes = base.create_group("meshes")
    electric = meshes.create_group("E")
    electric.attrs["axisLabels"], electric.attrs["geometry"] = [b"y", b"x"], "cartesian"
    electric.attrs["dataOrder"] = "C"
    electric["x"] = e
    constant = electric.create_group("z")
    constant.attrs["value"], constant.attrs["shape"] = 0.0, rho.shape
    meshes["rho"] = rho
    meshes["rho"].attrs["axisLabels"], meshes["rho"].attrs["geometry"] = [b"x", b"y"], "cartesian"
    meshes["rho"].attrs["dataOrder"] = "F"


def _openpmd_root(file: h5py.File, encoding: str) -> None:
    file.attrs["openPMD"], file.attrs["basePath"] = "1.1.0", "/data/%T/"
    file.attrs["meshesPath"], file.attrs["iterationEncoding"] = "meshes/", encoding


def openpmd_groups(folder: Path) -> Written:
    """Iterations 80, 90, 100, ...: not in the order of their letters."""
    e = [values(ROWS, Y, X, seed=i) for i in range(SIMULATIONS)]
    for i, array in enumerate(e):
        with h5py.File(folder / f"run{i}.h5", "w") as file:
            _openpmd_root(file, "groupBased")
            for k in range(ROWS):
                _iteration(file, 10 * (8 + k), array[k], 2 * array[k])
    return Written(folder, ["E/x", "rho"], {"E_x": e, "rho": [2 * a for a in e]})


def openpmd_files(folder: Path) -> Written:
    e = values(ROWS, Y, X)
    for k in range(ROWS):
        with h5py.File(folder / f"data{10 * (8 + k)}.h5", "w") as file:
            _openpmd_root(file, "fileBased")
            _iteration(file, 10 * (8 + k), e[k], 2 * e[k])
    return Written(folder, ["E/x", "rho"], {"E_x": [e], "rho": [2 * e]})


def npz_files(folder: Path) -> Written:
    arrays = [values(ROWS + i, X, Y, seed=i) for i in range(SIMULATIONS)]
    for i, u in enumerate(arrays):
        np.savez(folder / f"run{i}.npz", u=u, x=np.arange(Y))
    return Written(folder, ["u"], {"u": arrays}, CampaignOptions(dims=["time", "y", "x"]))


def npz_compressed(folder: Path) -> Written:
    u = values(ROWS, X, Y)
    np.savez_compressed(folder / "run.npz", u=u)
    options = CampaignOptions(dims=["time", "y", "x"])
    return Written(folder / "run.npz", ["u"], {"u": [u]}, options, refused="compressed")


def netcdf3_records(folder: Path) -> Written:
    """Records of two variables are interleaved."""
    u, v = values(ROWS, X, Y), values(ROWS, X, Y, seed=1)
    data = xr.Dataset(
        {"u": (("time", "x", "y"), u), "v": (("time", "x", "y"), v)},
        coords={"time": 0.5 * np.arange(ROWS)},
    )
    data.to_netcdf(folder / "r.nc", engine="scipy", unlimited_dims=["time"])
    return Written(folder / "r.nc", ["u", "v"], {"u": [u], "v": [v]})


def netcdf3_time_last(folder: Path) -> Written:
    u = values(ROWS, X, Y)
    data = xr.Dataset({"u": (("x", "y", "time"), u.transpose(1, 2, 0))})
    data.to_netcdf(folder / "r.nc", engine="scipy")
    return Written(folder / "r.nc", ["u"], {"u": [u]})


def zarr_sharded(folder: Path) -> Written:
    import zarr

    arrays = [values(ROWS, X, Y, seed=i) for i in range(SIMULATIONS)]
    for i, u in enumerate(arrays):
        group = zarr.open_group(folder / f"run{i}.zarr", mode="w", zarr_format=3)
        made = group.create_array(
            "u",
            shape=u.shape,
            dtype="f4",
            chunks=(1, X, Y),
            shards=(3, X, Y),
            dimension_names=["time", "x", "y"],
        )
        made[:] = u
    return Written(str(folder / "run*.zarr"), ["u"], {"u": arrays})


def virtual(folder: Path) -> Written:
    """One file over the parts of four processes, as parallel solvers write them."""
    u = values(ROWS, 8, Y)
    parts = folder / "run_s1"
    parts.mkdir()
    layout = h5py.VirtualLayout(u.shape, "f4")
    for p in range(4):
        with h5py.File(parts / f"run_s1_p{p}.h5", "w") as file:
            file["u"] = u[:, 2 * p : 2 * p + 2]
        source = h5py.VirtualSource(f"run_s1/run_s1_p{p}.h5", "u", (ROWS, 2, Y))
        layout[:, 2 * p : 2 * p + 2] = source
    with h5py.File(folder / "run_s1.h5", "w") as file:
        file.create_virtual_dataset("u", layout)
        for axis, dim in enumerate(("time", "x", "y")):
            file["u"].dims[axis].label = dim
    return Written(folder, ["u"], {"u": [u]})


def flash(folder: Path) -> Written:
    with h5py.File(folder / "plt_0001.h5", "w") as file:
        file["dens"] = values(3, 4, 4, 4)
        file["refine level"], file["node type"] = np.array([1, 2, 2]), np.array([2, 1, 1])
        file["bounding box"] = np.zeros((3, 3, 2))
    return Written(folder, ["dens"], {}, refused="FLASH: fields in blocks")


def athena(folder: Path) -> Written:
    with h5py.File(folder / "blast.out1.00000.athdf", "w") as file:
        file.attrs["NumMeshBlocks"], file.attrs["VariableNames"] = 2, [b"dens", b"press"]
        file.attrs["Time"], file["Levels"] = 0.0, np.zeros(2, int)
        file["prim"] = values(2, 2, 4, 4, 4)
    return Written(folder, ["prim"], {}, refused=r"Athena\+\+: fields in blocks")


LAYOUTS: dict[str, Callable[[Path], Written]] = {
    function.__name__: function
    for function in (
        the_well,
        the_well_chunked,
        pdebench_tensor,
        pdebench_flow,
        pdebench_darcy,
        pdebench_seeds,
        dedalus,
        netcdf4,
        netcdf3,
        zarr_v2,
        zarr_v3,
        ensemble,
        groups,
        numpy_files,
        one_sample_a_file,
        one_map_a_file,
        pdebench_incompressible,
        pdearena,
        openpmd_groups,
        openpmd_files,
        npz_files,
        npz_compressed,
        netcdf3_records,
        netcdf3_time_last,
        zarr_sharded,
        virtual,
        flash,
        athena,
    )
}


def disagreements(written: Written) -> list[str]:
    """Return the channels that differ from the written values, or an unexpected error."""
    if written.refused:
        return refusal(written)
    campaign = open_campaign(written.path, written.variables, written.options)
    assert set(campaign.channels) == set(written.truth)
    source = CampaignWindows(campaign, row_sets(campaign), np.arange(campaign.index.num_rows), [0])
    found = source.read(np.arange(len(source)))
    return [
        name
        for name, truth in written.truth.items()
        if [len(b) for b in campaign.index.blocks] != [len(t) for t in truth]
        or not np.array_equal(found[name][:, 0], np.concatenate(truth))
    ]


def refusal(written: Written) -> list[str]:
    """Return nothing if the layout is refused as expected, else the actual outcome."""
    try:
        campaign = open_campaign(written.path, written.variables, written.options)
        sets = row_sets(campaign)
        CampaignWindows(campaign, sets, np.arange(1), [0]).read(np.arange(1))
    except DataError as error:
        return [] if re.search(written.refused, str(error)) else [str(error)]
    return ["not refused"]
