"""Description and writing of one layout of a well-known program; see `layouts`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 12


@dataclass(frozen=True)
class LayoutFiles:
    """Files of a layout, and what they mean.

    Attributes:
        path: a file, a folder or a pattern, as a user names it.
        truth: {channel: values of each simulation, (rows, *grid) each}, of what is to be learned.
        options: command-line options without which the files do not say enough.
        refused: a part of the message that is right for files which hold no grid; "" otherwise.
        told: variables that are not learned and have to be listed.
    """

    path: Path | str
    truth: dict[str, list[np.ndarray]] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    refused: str = ""
    told: tuple[str, ...] = ()


Write = Callable[[Path, np.random.Generator], LayoutFiles]


@dataclass(frozen=True)
class CfLayout:
    """A layout of NetCDF or Zarr files on a grid, in a notation of one line.

    Attributes:
        dims: `NAME=KIND` of each dim; see `_axis` for the kinds. `KIND#8` has 8 entries, `KIND#x+1`
            one more than the dim x.
        fields: `NAME:DIM,DIM` of the fields to learn, which share their dims.
        told: the same of fields on other dims, and of variables that describe others.
        coordinates: the same of coordinates with several dims, latitudes and longitudes in turn.
        units: of the fields.
        attributes: of the fields.
        scalars: {scalar coordinate: value}.
        packing: encoding of the fields, for xarray.
        files: number of files, along time or one for each simulation.
        names: of the files, with `{}` for their number.
        members: the dim of simulations in a file, "" for none.
        one_run: whether several files are parts of one simulation.
        options: see `LayoutFiles`.
        record: whether time is unlimited.
        time: the dim of time, where its coordinate has another name.
        vectors: `NAME:DIM=KIND` of coordinates that are not named like their dim, divided by `|`.
    """

    dims: str
    fields: str
    told: str = ""
    coordinates: str = ""
    units: str = "K"
    attributes: dict[str, Any] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)
    packing: dict[str, Any] = field(default_factory=dict)
    files: int = 1
    names: str = "run{}.nc"
    members: str = ""
    one_run: bool = False
    options: tuple[str, ...] = ()
    record: bool = False
    time: str = ""
    vectors: str = ""

    def __call__(self, folder: Path, rng: np.random.Generator) -> LayoutFiles:
        """Write the files."""
        import xarray as xr

        axes = [part.partition("=")[::2] for part in self.dims.split("|")]
        sizes = {name: int(rng.integers(8, 13)) for name, _ in axes}
        timed = (name for name, kind in axes if "since" in kind or kind.startswith("time"))
        time = self.time or next(timed)
        sizes[time] = ROWS
        for name, kind in axes:
            if "#" in kind:
                of, sign, more = re.split("([+-]|$)", kind.partition("#")[2], maxsplit=1)
                sizes[name] = int(of) if of.isdigit() else sizes[of] + int(sign + more)
        truth: dict[str, list[np.ndarray]] = {}
        for number in range(self.files):
            first = number * ROWS if self.one_run else 0
            data = xr.Dataset(coords={k: ((), *v) for k, v in self.scalars.items()})
            for name, kind in axes:
                axis = _axis(kind.partition("#")[0], sizes[name], first)
                if axis is not None:
                    data[name] = ((name,), *axis)
            for part in filter(None, self.vectors.split("|")):
                name, dim, kind = part.replace("=", ":", 1).split(":", 2)
                data[name] = ((dim,), *(_axis(kind, sizes[dim], first) or ()))
            for count, (name, dims) in enumerate(_variables(self.coordinates)):
                shape = [sizes[d] for d in dims]
                angle = "degrees_east" if count % 2 else "degrees_north"
                points = np.cumsum(np.ones(shape), axis=-1 if count % 2 else -2)
                data[name] = (dims, points, {"units": angle})
            for name, dims in _variables(self.fields) + _variables(self.told):
                values = rng.standard_normal([sizes[d] for d in dims]).astype("f4")
                data[name] = (dims, values, {"units": self.units, **self.attributes})
            learned = [name for name, _ in _variables(self.fields)]
            stored = self._write(data, folder / self.names.format(number), learned, time)
            for name in learned:
                values = np.moveaxis(stored[name], data[name].dims.index(time), 0)
                others = [d for d in data[name].dims if d != time]
                if self.members:
                    values = np.moveaxis(values, 1 + others.index(self.members), 0)
                    truth.setdefault(name, []).extend(values)
                elif self.one_run and name in truth:
                    truth[name][0] = np.concatenate([truth[name][0], values])
                else:
                    truth.setdefault(name, []).append(values)
        several = self.files > 1
        path = folder if several else folder / self.names.format(0)
        told = tuple(name for name, _ in _variables(self.told))
        return LayoutFiles(path, truth, self.options, told=told)

    def _write(self, data: Any, path: Path, learned: list[str], time: str) -> dict[str, np.ndarray]:
        """Write a file; return the fields as CF unpacks what was stored, in float64."""
        stored = {name: data[name].values.astype("f8") for name in learned}
        encoding = {name: dict(self.packing) for name in learned if self.packing}
        if "scale_factor" in self.packing:
            scale, offset = self.packing["scale_factor"], self.packing.get("add_offset", 0.0)
            for name in learned:
                stored[name] = np.round(100 * stored[name]) * scale + offset
                data[name] = (data[name].dims, stored[name], data[name].attrs)
        if path.suffix == ".zarr":
            version = self.packing.get("zarr_format", 3)
            for one in encoding.values():
                one.pop("zarr_format", None)
            data.to_zarr(path, encoding=encoding, zarr_format=version, consolidated=False)
            return stored
        engine = "scipy" if path.suffix == ".cdf" else "h5netcdf"
        unlimited = [time] if self.record else []
        data.to_netcdf(path, engine=engine, encoding=encoding, unlimited_dims=unlimited)
        return stored


def _variables(text: str) -> list[tuple[str, tuple[str, ...]]]:
    pairs = (part.partition(":")[::2] for part in text.split())
    return [(name, tuple(dims.split(","))) for name, dims in pairs]


def _axis(kind: str, size: int, first: int) -> tuple[np.ndarray, dict[str, Any]] | None:
    """Return values and attributes of a coordinate, None for a dim without one.

    Kinds: `none`; `bare`, numbers without attributes; `lat`, `-lat` (from the north), `lon`;
    `plev`, `depth`, `x` (metres); `member`; `time` without a unit; else `UNIT since DATE` with
    `;calendar` and a step as in `hours since 2000-01-01;noleap;6`.
    """
    numbers = np.arange(size, dtype="f8")
    plain: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
        "bare": (numbers, {}),
        "time": (numbers + first, {}),
        "member": (np.arange(size, dtype="i4"), {"standard_name": "realization"}),
        "lat": (np.linspace(-80, 80, size), {"units": "degrees_north"}),
        "-lat": (np.linspace(80, -80, size), {"units": "degrees_north"}),
        "lon": (numbers * 360 / size, {"units": "degrees_east"}),
        "rlat": (numbers - 3, {"units": "degrees", "standard_name": "grid_latitude"}),
        "rlon": (numbers + 3, {"units": "degrees", "standard_name": "grid_longitude"}),
        "plev": (1000 - 50 * numbers, {"units": "hPa", "positive": "down"}),
        "depth": (5 + 10 * numbers, {"units": "m", "positive": "down", "axis": "Z"}),
        "x": (1000 * numbers, {"units": "m"}),
    }
    if kind == "none":
        return None
    if kind in plain:
        return plain[kind]
    unit, calendar, step = (*kind.split(";"), "", "")[:3]
    attrs = {"units": unit, "standard_name": "time", "axis": "T"}
    if calendar:
        attrs["calendar"] = calendar
    return (numbers + first) * float(step or 1), attrs
