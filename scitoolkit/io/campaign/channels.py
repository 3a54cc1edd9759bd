"""Channels of the rows of a campaign, and the coordinates of their dims."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign_layout import Array
from scitoolkit.io.campaign.headers import full_name
from scitoolkit.io.campaign.more_layouts import layout_of
from scitoolkit.io.campaign.segments import Segments
from scitoolkit.io.roles import role_by_metadata, role_by_name

Coordinate = tuple[tuple[str, ...], np.ndarray, dict[str, Any]]
"""Arguments of `xarray.Variable`; `inspect` describes a campaign without importing xarray."""

Part = Literal["", "real", "imag"]
_ATTRIBUTES = ("units", "long_name", "period", "positive", "standard_name", "axis")


@dataclass(frozen=True)
class Channel:
    """Scalar field of a row: a variable or one of its components.

    Attributes:
        name: of the variable, followed by the component's indices: `velocity_0`.
        array: the variable's array.
        components: index along each COMPONENT axis.
        part: `real` or `imag` of complex numbers, "" of others.
    """

    name: str
    array: Array
    components: tuple[int, ...] = ()
    part: Part = ""

    def part_of(self, values: np.ndarray) -> np.ndarray:
        """Return the part of values of the array that this channel holds, as a view."""
        if not self.part:
            return values
        return values.real if self.part == "real" else values.imag

    @property
    def dims(self) -> tuple[str, ...]:
        """The space dims in the stored order."""
        return tuple(r for r in self.array.roles if not r.startswith("@"))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of `dims`."""
        pairs = zip(self.array.roles, self.array.shape, strict=True)
        return tuple(n for r, n in pairs if not r.startswith("@"))


def coordinates_of(
    segments: Segments, segment: int, channels: Iterable[Channel]
) -> dict[str, Coordinate]:
    """Return {space dim: (dims, values, attributes)} of the dims with a coordinate in a segment.

    Args:
        segments: of the campaign.
        segment: number of the segment.
        channels: fields with these dims.

    Raises:
        DataError: a coordinate and a field of different sizes.
    """
    header = segments.header(int(segments.file[segment]))
    group, layout = segments.groups[segments.group[segment]], layout_of(header)
    coordinates: dict[str, Coordinate] = {}
    names: dict[str, str] = {}
    seen: set[tuple[str, str, tuple[str, ...]]] = set()
    for channel in channels:
        array, path = channel.array, full_name(group, channel.array.path)
        # Fields of one group and scales have the same coordinates, of which there is one look-up.
        scales = header.variables[path].scales if path in header.variables else ()
        for dim, size in zip(channel.dims, channel.shape, strict=True):
            if (at := (dim, path.rpartition("/")[0], scales)) in seen:
                continue
            seen.add(at)
            stored = layout.coordinate(header, group, dim, path)
            points = None if stored is None else stored.points
            if stored is None or points is None:
                continue
            axis = array.centring[array.roles.index(dim)] if array.centring else None
            if axis is not None:
                points = points[axis.first : axis.first + size]
            if points.shape != (size,):
                raise DataError(
                    f"{points.shape[0]} values along {dim}, but {channel.array.path} has {size}",
                    where=f"{header.path}: variable {stored.name}",
                    fix="write the coordinate and the field with the same points",
                )
            attrs = {k: v for k, v in stored.attrs.items() if k in _ATTRIBUTES}
            _, first, _ = coordinates.setdefault(dim, ((dim,), points, attrs))
            if names.setdefault(dim, stored.name) != stored.name and not _equal(first, points):
                raise DataError(
                    f"{array.path} has other points along {dim} than {names[dim]}",
                    where=f"{header.path}: variable {stored.name}",
                    allowed="fields of one group, or on the same points",
                    fix="read each group by itself",
                )
    return coordinates


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f" == other.dtype.kind)


def require_coordinates(segments: Segments, channels: Iterable[Channel]) -> None:
    """Raise if a coordinate of the first file has entries without a value, or turns around.

    Raises:
        DataError: with the first such entry.
    """
    for dim, (_, points, attrs) in coordinates_of(segments, 0, channels).items():
        values = np.asarray(points)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            entry = int(np.flatnonzero(~np.isfinite(values))[0])
            raise DataError(
                f"coordinate {dim} has missing or infinite entries, the first at {entry}",
                where=segments.path(0),
            )
        steps = np.diff(values.astype(np.float64)) if values.dtype.kind in "iuf" else np.zeros(0)
        if "longitude" in (role_by_metadata(attrs), role_by_name(dim)):
            steps = (steps + 180) % 360 - 180  # from 359 to 0 is one step
        if (steps > 0).any() and (steps < 0).any():
            entry = int(np.flatnonzero(np.sign(steps) != np.sign(steps[steps != 0][0]))[0]) + 1
            raise DataError(
                f"coordinate {dim} turns around at entry {entry} ({values[entry - 1]:g} then "
                f"{values[entry]:g}), so it is not monotonic",
                where=segments.path(0),
                allowed="coordinates that only rise or only fall",
                fix=f"ds.sortby({dim!r})",
            )
