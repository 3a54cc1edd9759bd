"""Areas of the cells of latitude-longitude and curvilinear grids, relative to one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.roles import LATITUDE_UNITS, LONGITUDE_UNITS

_EQUAL_AREA = "data.area_weights=false, which gives all cells of a dim equal weights"
_DEGREES = {"degree", "degrees", "deg", "arcdeg", "arc_degree", "\N{DEGREE SIGN}"}
_RADIANS = {"radian", "radians", "rad"}
_SLACK = 1e-3
"""Degrees beyond a pole that are rounding."""
_SMALLEST = 1e-3
"""Least area of a curvilinear cell relative to the median: corners at a pole fold over."""


def is_angle(units: str) -> bool:
    """Return whether a unit is one of angles, or missing.

    Example:
        >>> is_angle("degrees_north"), is_angle("radian"), is_angle("m")
        (True, True, False)
    """
    name = units.strip().lower()
    return not name or name in _DEGREES | LATITUDE_UNITS | LONGITUDE_UNITS or name in _RADIANS


def in_degrees(values: np.ndarray, attributes: Mapping[str, Any], where: str) -> np.ndarray:
    """Return latitudes in degrees, float64.

    Args:
        values: latitudes of any shape, in the unit that the attribute `units` states; in degrees
            if it states none.
        attributes: of the coordinate.
        where: file and variable, for messages.

    Raises:
        DataError: latitudes that are not finite or beyond a pole, or that could be degrees as well
            as radians.

    Example:
        >>> in_degrees(np.array([0.0, np.pi / 6]), {"units": "radian"}, "").round(6).tolist()
        [0.0, 30.0]
    """
    units = str(attributes.get("units", "")).strip().lower()
    degrees = np.asarray(values, np.float64)
    if units in _RADIANS:
        degrees = np.degrees(degrees)
    # A range near pi is a globe in radians, or three degrees around the equator.
    elif not units and degrees.size and 2.5 < np.ptp(degrees) <= np.pi + _SLACK:
        if np.abs(degrees).max() <= np.pi / 2 + _SLACK:
            raise DataError(
                f"latitudes from {degrees.min():.4g} to {degrees.max():.4g} without a unit: "
                "degrees or radians?",
                where=where,
                fix=f"the attribute units (degrees_north, radian), or {_EQUAL_AREA}",
            )
    if not (np.abs(degrees) <= 90 + _SLACK).all():
        raise DataError(
            f"latitudes from {np.min(degrees):.4g} to {np.max(degrees):.4g} degrees",
            where=where,
            allowed="-90 to 90",
            fix=_EQUAL_AREA,
        )
    return np.clip(degrees, -90.0, 90.0)


def areas_of_latitudes(degrees: np.ndarray, bounds: np.ndarray | None = None) -> np.ndarray:
    """Return the area of cells along a latitude, (cells): differences of the sine of their bounds.

    Without bounds these are halfway between neighbours, and at most at the poles. The weights of
    WeatherBench-X (Rasp et al. 2024, J. Adv. Model. Earth Syst. 16, e2023MS004019).

    Args:
        degrees: (cells) strictly increasing or decreasing latitudes.
        bounds: (cells, 2) in degrees.

    Example:
        >>> areas_of_latitudes(np.array([-90.0, 0.0, 90.0])).round(3).tolist()
        [0.293, 1.414, 0.293]
    """
    if bounds is None:
        if len(degrees) < 2:
            return np.ones(len(degrees))
        middle = 0.5 * (degrees[1:] + degrees[:-1])
        ends = 1.5 * degrees[[0, -1]] - 0.5 * degrees[[1, -2]]
        faces = np.concatenate([ends[:1], middle, ends[1:]])
        bounds = np.stack([faces[:-1], faces[1:]], 1)
    sines = np.sin(np.radians(np.clip(bounds, -90.0, 90.0)))
    return np.abs(sines[:, 1] - sines[:, 0])


def is_whole_turn(longitudes: np.ndarray) -> bool:
    """Return whether even longitudes, in degrees or radians, go around once, each stored once.

    Example:
        >>> is_whole_turn(np.arange(0, 360, 30.0)), is_whole_turn(np.arange(0, 390, 30.0))
        (True, False)
    """
    steps = np.diff(longitudes)
    if len(steps) < 2 or not np.ptp(steps) <= 0.1 * np.abs(steps).mean():
        return False
    step = float(np.abs(steps).mean())
    # The last cell reaches to the first: there are as many steps as cells.
    length = len(longitudes) * step
    return any(abs(length - circle) <= 0.25 * step for circle in (360.0, 2 * np.pi))


def reaches_poles(degrees: np.ndarray) -> bool:
    """Return whether latitudes end within a cell of both poles.

    Example:
        >>> reaches_poles(np.array([-60.0, 0.0, 60.0])), reaches_poles(np.array([0.0, 45.0, 90.0]))
        (True, False)
    """
    step = float(np.abs(np.diff(degrees)).max(initial=0.0))
    opposite = degrees[0] * degrees[-1] < 0
    return bool(opposite and (90 - np.abs(degrees[[0, -1]]) <= 1.01 * step).all())


def areas_of_points(latitudes: np.ndarray, longitudes: np.ndarray) -> np.ndarray:
    """Return the areas of the cells of a curvilinear grid on the unit sphere, (y, x).

    The corners of a cell are the means of the four points around them; those of the outermost
    cells are extrapolated. The area is that of the plane quadrilateral of the corners.

    Args:
        latitudes: (y, x) degrees, at least 2 each.
        longitudes: (y, x) degrees.

    Example:
        >>> lat, lon = np.meshgrid([0.0, 1.0, 2.0], [10.0, 11.0, 12.0], indexing="ij")
        >>> areas_of_points(lat, lon).shape
        (3, 3)
    """
    phi, lam = np.radians(latitudes), np.radians(longitudes)
    # Corners are means of unit vectors, as longitudes jump at 360 degrees and all meet at a pole.
    points = np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], -1)
    for axis in (0, 1):
        points = np.moveaxis(points, axis, 0)
        ends = 2 * points[[0, -1]] - points[[1, -2]]
        points = np.concatenate([ends[:1], points, ends[1:]])
        points = np.moveaxis(0.5 * (points[1:] + points[:-1]), 0, axis)
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    one, other = points[1:, 1:] - points[:-1, :-1], points[1:, :-1] - points[:-1, 1:]
    areas = 0.5 * np.linalg.norm(np.cross(one, other), axis=-1)
    return np.asarray(np.maximum(areas, _SMALLEST * np.median(areas)))


def along_one_dim(values: np.ndarray) -> int | None:
    """Return the axis along which an array of two dims changes; None if it changes along both.

    Example:
        >>> along_one_dim(np.array([[1.0, 1.0], [2.0, 2.0]]))
        0
    """
    slack = 1e-5 * float(np.ptp(values))
    changes = [axis for axis in (0, 1) if (np.ptp(values, axis=axis) > slack).any()]
    return changes[0] if len(changes) == 1 else None
