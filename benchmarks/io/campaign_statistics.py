"""Statistics of campaigns against xarray and CF in float64.

Each campaign is one that `init emulate` starts by itself: the CF layouts of
`tests/helpers/program_layouts`, and `HARD` ones: a mean that is large against what changes, packed
values, missing cells, gaps in the times, files in other units of time. Mean, standard deviation
and typical change are those that a training normalises with, before they are rounded to float32.
The peer reads what is stored through xarray, without masking or scaling, and follows CF
(section 8.1, packed data; 2.5.1, missing data) in float64. An error is relative to the standard
deviation, that of the mean as well.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
import yaml
from _places import HELPERS

from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.starter import DataToStart
from scitoolkit.emulation.config import DataConfig
from scitoolkit.emulation.data import open_data
from scitoolkit.io.campaign.kept import training_moments
from scitoolkit.io.campaign.measure import Question

sys.path.insert(0, str(HELPERS))

from program_layouts import write_layout
from program_layouts.cf import CF_LAYOUTS

ROWS = 24


@dataclass
class Stored:
    """A campaign, and how its files make simulations.

    Attributes:
        path: of a file or a folder.
        names: variables to compare.
        time: the dim of time.
        member: the dim of simulations in a file, "" for none.
        one_run: whether the files are parts of one simulation.
        gap: row before which times are missing, 0 for none.
    """

    path: Path | str
    names: list[str]
    time: str
    member: str = ""
    one_run: bool = False
    gap: int = 0


def _layout(name: str, folder: Path) -> Stored:
    files, cf = write_layout(name, folder), CF_LAYOUTS[name]
    axes = [part.partition("=")[::2] for part in cf.dims.split("|")]
    timed = [dim for dim, kind in axes if "since" in kind or kind.startswith("time")]
    return Stored(files.path, list(files.truth), cf.time or timed[0], cf.members, cf.one_run)


def _field(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.cumsum(rng.standard_normal(shape), axis=0)


def _write(
    values: np.ndarray, path: Path, times: np.ndarray, units: str, **packing: object
) -> None:
    data = xr.Dataset({"u": (("time", "y", "x"), values)}, {"time": times})
    data["time"].attrs["units"] = units
    encoding = {"u": packing} if packing else {}
    data.to_netcdf(path, engine="h5netcdf", encoding=encoding)


def offset(folder: Path, rng: np.random.Generator) -> Stored:
    """Pressure in Pa, in float64."""
    _write(
        101325 + _field(rng, ROWS, 9, 7), folder / "a.nc", np.arange(ROWS), "days since 2000-1-1"
    )
    return Stored(folder / "a.nc", ["u"], "time")


def packed(folder: Path, rng: np.random.Generator) -> Stored:
    """16-bit values with a scale that is no binary fraction, and an offset."""
    whole = 273.15 + 0.003 * rng.integers(-9000, 9000, (ROWS, 9, 7))
    packing = {"dtype": "i2", "scale_factor": 0.003, "add_offset": 273.15, "_FillValue": -32768}
    _write(whole, folder / "a.nc", np.arange(ROWS), "hours since 2000-1-1", **packing)
    return Stored(folder / "a.nc", ["u"], "time")


def missing(folder: Path, rng: np.random.Generator) -> Stored:
    """Land: cells that are the fill value in every row."""
    values = 290 + _field(rng, ROWS, 9, 7)
    values[:, :3, 2:] = np.nan
    _write(values, folder / "a.nc", np.arange(ROWS), "days since 2000-1-1", _FillValue=1e20)
    return Stored(folder / "a.nc", ["u"], "time")


def gap(folder: Path, rng: np.random.Generator) -> Stored:
    """Times that are missing in the middle; no change is taken across them."""
    times = np.arange(ROWS) + 9 * (np.arange(ROWS) >= ROWS // 2)
    _write(_field(rng, ROWS, 9, 7), folder / "a.nc", times, "days since 2000-1-1")
    return Stored(folder / "a.nc", ["u"], "time", gap=ROWS // 2)


def clocks(folder: Path, rng: np.random.Generator) -> Stored:
    """Two parts of one simulation that count time in days and in hours."""
    values = _field(rng, 2 * ROWS, 9, 7)
    _write(values[:ROWS], folder / "a_1.nc", np.arange(ROWS), "days since 2000-1-1")
    later = 24 * np.arange(ROWS, 2 * ROWS)
    _write(values[ROWS:], folder / "a_2.nc", later, "hours since 2000-1-1")
    return Stored(folder, ["u"], "time", one_run=True)


def reversed_rows(folder: Path, rng: np.random.Generator) -> Stored:
    """Two simulations, the second from the north."""
    for number in range(2):
        lat = ("lat", np.linspace(-80, 80, 9)[:: 1 - 2 * number], {"units": "degrees_north"})
        u = (("time", "lat", "x"), 1e4 + _field(rng, ROWS, 9, 7))
        data = xr.Dataset({"u": u}, {"lat": lat, "time": np.arange(ROWS + 0.0)})
        data.to_netcdf(folder / f"run{number}.nc", engine="h5netcdf")
    return Stored(folder, ["u"], "time")


HARD: tuple[Callable[[Path, np.random.Generator], Stored], ...] = (
    offset,
    packed,
    missing,
    gap,
    clocks,
    reversed_rows,
)


def _unpacked(array: xr.DataArray) -> np.ndarray:
    """Return the values as CF defines them, in float64, NaN where they are missing."""
    raw, attrs = array.values, array.attrs
    fills = [attrs[key] for key in ("_FillValue", "missing_value") if key in attrs]
    values = raw.astype(np.float64) * float(attrs.get("scale_factor", 1))
    values += float(attrs.get("add_offset", 0))
    return np.where(np.isin(raw, fills), np.nan, values) if fills else values


def _files(stored: Stored) -> list[Path]:
    path = Path(stored.path)
    is_folder = path.is_dir() and path.suffix != ".zarr"
    return sorted(path.iterdir()) if is_folder else [path]


def _simulations(stored: Stored) -> dict[str, list[np.ndarray]]:
    """Return {variable: values of each simulation, time first}, through xarray."""
    runs: dict[str, list[np.ndarray]] = {name: [] for name in stored.names}
    for path in _files(stored):
        engine = {".zarr": "zarr", ".cdf": "scipy"}.get(path.suffix, "h5netcdf")
        options = {"consolidated": False} if engine == "zarr" else {}
        with xr.open_dataset(path, engine=engine, decode_cf=False, **options) as data:
            for name in stored.names:
                first = [stored.time, *([stored.member] if stored.member else [])]
                array = data[name].transpose(*first, ...)
                values = _unpacked(array)
                members = np.moveaxis(values, 1, 0) if stored.member else values[None]
                if stored.one_run and runs[name]:
                    runs[name][0] = np.concatenate([runs[name][0], members[0]])
                else:
                    runs[name].extend(members)
    return runs


def _expected(runs: list[np.ndarray], gap: int) -> tuple[float, float, float]:
    """Return mean, standard deviation and root mean square of the changes."""
    whole = np.concatenate([run.reshape(-1) for run in runs])
    parts = [part for run in runs for part in ((run[:gap], run[gap:]) if gap else (run,))]
    changes = np.concatenate([np.diff(part, axis=0).reshape(-1) for part in parts])
    return (
        float(np.nanmean(whole)),
        float(np.nanstd(whole)),
        float(np.sqrt(np.nanmean(np.square(changes)))),
    )


def error(stored: Stored) -> float:
    """Return the largest error of the statistics of a campaign."""
    path = str(stored.path)
    text = job_for_task("emulate").starter(DataToStart([path], [path], [], ""))
    data = open_data(DataConfig(**yaml.safe_load(text)["data"]))
    names = tuple(data.campaign.channels)
    if set(names) != set(stored.names):
        raise RuntimeError(f"{path}: read are {sorted(names)}, not {sorted(stored.names)}")
    moments, _ = training_moments(data.campaign, data.rows, data.stretches, Question(1, names))
    worst = 0.0
    for name, runs in _simulations(stored).items():
        mean, std, change = _expected(runs, stored.gap)
        measured_mean, measured_std = (float(v[0]) for v in moments.values[name].result())
        measured_change = float(moments.changes[name].root_mean_square()[0])
        errors = [
            abs(measured_mean - mean) / std,
            abs(measured_std / std - 1),
            abs(measured_change / change - 1),
        ]
        worst = max(worst, float(np.max(errors)))  # NaN stays NaN
        if not worst <= 1:
            return worst
    return worst


def run() -> dict:
    """Return the largest error over all campaigns, and that of each."""
    logging.disable(logging.WARNING)
    errors: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as parent:
        for number, name in enumerate((*CF_LAYOUTS, *(write.__name__ for write in HARD))):
            folder = Path(parent) / name
            folder.mkdir()
            rng = np.random.default_rng(number)
            own = {write.__name__: write for write in HARD}
            stored = own[name](folder, rng) if name in own else _layout(name, folder)
            errors[name] = error(stored)
    return {
        "campaigns": len(errors),
        "error_max": float(np.max(list(errors.values()))),
        "errors": errors,
    }
