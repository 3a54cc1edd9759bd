"""Latitudes and longitudes of curvilinear grids, which files may store in another order.

Only corners are compared, since every file is asked. Files of one simulation have to agree; those
of others may cover another region, as boxes of another length may, but in the same directions.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.channels import Channel
from scitoolkit.io.campaign.headers import FileHeader, StoredArray
from scitoolkit.io.campaign.segments import Segments
from scitoolkit.io.loader.hdf5 import open_hdf5
from scitoolkit.io.loader.packing import Packing
from scitoolkit.io.roles import role_by_metadata, role_by_name

_TOLERANCE = 1e-3
"""Distance of corners that count as the same, relative to the extent of the grid."""

_DISTORTION = 0.1
"""Relative difference of widths of cells that a projection makes between regions."""


def require_same_places(segments: Segments, channels: Iterable[Channel]) -> None:
    """Raise if the cells of a file lie in other directions, or elsewhere in one simulation.

    Raises:
        DataError: with the file and the corners of both.
    """
    first = segments.header(int(segments.file[0]))
    dims = {dim for channel in channels for dim in channel.dims}
    named = {
        path: role for path, stored in first.variables.items() if (role := _role(stored, dims))
    }
    if not named:
        return
    own = {path: _corners(first, path, role) for path, role in named.items()}
    begins = dict(own)
    simulation = int(segments.simulation[0])
    files, at = np.unique(segments.file, return_index=True)
    for segment, number in sorted(zip(at.tolist(), files.tolist(), strict=True)):
        header = segments.header(int(number))
        others = {
            path: _corners(header, path, role)
            for path, role in named.items()
            if path in header.variables
        }
        if int(segments.simulation[segment]) != simulation:
            simulation, begins = int(segments.simulation[segment]), others
        for path, corners in others.items():
            if not _same_directions(own[path], corners):
                raise _elsewhere(path, header, corners, first, own[path], "directions")
            if path in begins and not _same(begins[path], corners):
                raise _elsewhere(path, header, corners, first, own[path], "cells of a simulation")


def widths_of_cells(segments: Segments, channels: Iterable[Channel]) -> dict[str, np.ndarray]:
    """Return {dim: mean width of the cells, degrees of arc, (simulations,)} on a curvilinear grid.

    The width is that between the corners of the first file of a simulation; widths that differ by
    the distortion of a projection are those of the first simulation. Empty without latitudes and
    longitudes along two dims.
    """
    channels = list(channels)
    first = segments.header(int(segments.file[0]))
    dims = {dim for channel in channels for dim in channel.dims}
    named: dict[str, str] = {}
    for path, stored in first.variables.items():
        if role := _role(stored, dims):
            named.setdefault(role, path)
    if len(named) < 2 or len({first.variables[p].dims[-2:] for p in named.values()}) > 1:
        return {}
    stored = first.variables[named["latitude"]]
    widths = []
    for number in segments.file[np.unique(segments.simulation, return_index=True)[1]].tolist():
        header = segments.header(int(number))
        if not set(named.values()) <= header.variables.keys():
            return {}
        phi, lam = (np.radians(_corners(header, named[r], r)) for r in ("latitude", "longitude"))
        points = np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], -1)
        widths.append(np.degrees(np.linalg.norm(points[1:3] - points[0], axis=-1)))
    sides = np.array(widths) / (np.array(stored.shape[-2:]) - 1)
    same = np.abs(sides - sides[0]) <= _DISTORTION * sides[0].max()
    sides = np.where(same, sides[0], sides)
    return dict(zip(stored.dims[-2:], sides.T, strict=True))


def _role(stored: StoredArray, dims: set[str]) -> str:
    """Return whether a variable holds the latitudes or longitudes of cells, else ""."""
    if len(stored.shape) < 2 or not set(stored.dims[-2:]) <= dims or 1 in stored.shape[-2:]:
        return ""
    role = role_by_metadata(stored.attrs) or role_by_name(stored.name)
    return role if role in ("latitude", "longitude") else ""


def _corners(header: FileHeader, path: str, role: str) -> np.ndarray:
    """Return the values at (first, first), (last, first), (first, last), (last, last), (4,)."""
    stored = header.variables[path]
    ends = [(0, 0), (-1, 0), (0, -1), (-1, -1)]
    last = [size - 1 for size in stored.shape[-2:]]
    before = (0,) * (len(stored.shape) - 2)
    keys = [(*before, *(n and size for n, size in zip(end, last, strict=True))) for end in ends]
    if header.format.native_hdf5:
        with open_hdf5(header.path) as file:
            values = np.array([file[path][key] for key in keys])
    else:
        with header.format.open_dataset(header.path, decode=False) as dataset:
            values = np.array([dataset.variables[path][key].values for key in keys])
    degrees = Packing.of(values.dtype, stored.attrs).unpack(values, exact=True).astype(np.float64)
    if role == "longitude":
        # Within half a turn of the first corner: 359 and -1 degrees are the same place.
        degrees = degrees[0] + (degrees - degrees[0] + 180) % 360 - 180
    return degrees


def _same_directions(own: np.ndarray, other: np.ndarray) -> bool:
    """Return whether a coordinate rises and falls along the same dim to the same side."""
    steps = [values[1:3] - values[0] for values in (own, other)]
    # Along the dim in which the coordinate changes most; along the other it may be constant.
    axis = int(np.argmax(np.nan_to_num(np.abs(steps[0]))))
    return not steps[0][axis] * steps[1][axis] < 0


def _same(own: np.ndarray, other: np.ndarray) -> bool:
    away = np.abs((other - own + 180) % 360 - 180)
    return not (away > _TOLERANCE * max(float(np.nanmax(own) - np.nanmin(own)), 1e-3)).any()


def _elsewhere(
    path: str,
    header: FileHeader,
    corners: np.ndarray,
    first: FileHeader,
    own: np.ndarray,
    what: str,
) -> DataError:
    texts = [", ".join(f"{n:g}" for n in values) for values in (corners, own)]
    return DataError(
        f"{path} is {texts[0]} at the corners: other {what}",
        where=str(header.path),
        allowed=f"{texts[1]}, as in {first.path}",
        fix="write all files on one grid in one order: ds.isel(DIM=slice(None, None, -1))",
    )
