"""Latitudes and areas of the cells of a campaign, by CF metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.campaign.campaign import Campaign
from scitoolkit.io.campaign.dim_roles import named_dims, seen
from scitoolkit.io.campaign.headers import FileHeader, StoredArray, full_name
from scitoolkit.io.campaign.more_layouts import layout_of
from scitoolkit.io.campaign.plain import Plain
from scitoolkit.io.coordinates import READ_ERRORS
from scitoolkit.io.loader.hdf5 import open_hdf5
from scitoolkit.io.loader.packing import Packing
from scitoolkit.io.roles import Role, role_by_metadata, role_by_name
from scitoolkit.io.sphere import (
    along_one_dim,
    areas_of_latitudes,
    areas_of_points,
    in_degrees,
    is_angle,
    is_whole_turn,
    reaches_poles,
)

_logger = get_logger(__name__)

_AREA_RANKS = (1, 2, 3, 4)
Along = tuple[tuple[str, ...], np.ndarray]
"""Dims, and values along them."""
_SAME = 1e-3
"""Relative difference of areas that is rounding of stored coordinates."""
_EQUAL_WEIGHTS = "data.area_weights=false for equal weights"


@dataclass(frozen=True)
class SphereCells:
    """Positions of cells on a sphere.

    Attributes:
        areas: relative areas along one or two dims of the grid; None without a latitude.
        latitude: geographic latitudes, degrees; None if only those of a rotated pole are stored.
        longitude: geographic longitudes, degrees; None if there are none.
    """

    areas: Along | None = None
    latitude: Along | None = None
    longitude: Along | None = None


def cells_on_sphere(campaign: Campaign) -> SphereCells:
    """Return the positions of the cells of the first simulation.

    A latitude is a coordinate of a dim, or an array along one or two dims of the fields, that is
    one by its standard name, by its unit, or by its name and a unit of angles. Areas that the
    fields' `cell_measures` name (CF Conventions 1.12, section 7.2) come before those of latitudes.

    Raises:
        DataError: latitudes that are none, such as values beyond a pole; latitudes that do not say
            how large the cells are; areas that are not positive.
    """
    # own: coordinates of dims. other: latitudes and longitudes stored for cells, as on curvilinear
    # grids. Areas that a file states are exact, those of points are estimates.
    own = {r: _of_dims(campaign, r) for r in ("latitude", "longitude")}
    other = {r: next(_auxiliary(campaign, r), None) for r in ("latitude", "longitude")}
    areas = _stated_areas(campaign)
    if areas is not None:
        pass
    elif own["latitude"] is not None:
        name, values, attributes = own["latitude"]
        areas = _areas_along(campaign, name, values, attributes)
    elif other["latitude"] is not None:
        areas = _areas_of(other["latitude"], other["longitude"], campaign.segments.path(0))
    geographic = {r: _geographic(own[r], other[r]) for r in own}
    return SphereCells(areas, geographic["latitude"], geographic["longitude"])


def require_equal_areas(campaign: Campaign) -> None:
    """Check that the cells of all simulations are at the same latitudes.

    Raises:
        DataError: with the first simulation whose latitudes differ.
    """
    first = _of_dims(campaign, "latitude")
    if first is None:
        return
    dim, values, attributes = first
    where = campaign.segments.path(0)
    expected = _normalised(areas_of_latitudes(in_degrees(values, attributes, where)))
    for simulation, coordinates in campaign.other_grids():
        if dim not in coordinates:
            continue
        _, here, stated = coordinates[dim]
        name = f"simulation {campaign.labels[simulation]}"
        areas = _normalised(areas_of_latitudes(in_degrees(here, stated, name)))
        # Relative areas decide, not latitudes, which may be rounded or in radians.
        # NaN fails the comparison.
        if areas.shape != expected.shape or not np.abs(areas / expected - 1).max() <= _SAME:
            raise DataError(
                f"{dim} from {here[0]:.4g} to {here[-1]:.4g}, in the first simulation from "
                f"{values[0]:.4g} to {values[-1]:.4g}: cells of other areas",
                where=name,
                allowed="the same latitudes in all simulations",
                fix="an emulator for each region, or data.area_weights=false",
            )


def boundaries_of(campaign: Campaign) -> dict[str, str]:
    """Return {dim: circular or pole} of a longitude all around, and of a latitude pole to pole."""
    own = _of_dims(campaign, "longitude")
    # A longitude is periodic only if its cells make a whole turn, not by its name.
    if own is None or not is_whole_turn(own[1]):
        return {}
    boundaries = {own[0]: "circular"}
    latitude = _of_dims(campaign, "latitude")
    if latitude is not None and not _is_rotated(latitude[2]):
        degrees = in_degrees(latitude[1], latitude[2], campaign.segments.path(0))
        if reaches_poles(degrees):
            boundaries = {latitude[0]: "pole", **boundaries}
    return boundaries


def dims_with_ends(campaign: Campaign) -> set[str]:
    """Return the dims that cannot be periodic: a latitude, and a longitude not all around."""
    longitude, latitude = (_of_dims(campaign, role) for role in ("longitude", "latitude"))
    ends = {latitude[0]} if latitude is not None else set()
    if longitude is not None and not is_whole_turn(longitude[1]):
        ends.add(longitude[0])
    return ends


def _normalised(areas: np.ndarray) -> np.ndarray:
    return np.asarray(areas / areas.mean())


Coordinate = tuple[str, np.ndarray, dict[str, Any]]
"""Dim, values and attributes."""


def _of_dims(campaign: Campaign, role: str) -> Coordinate | None:
    """Return the coordinate of the first space dim that is a latitude, or longitude."""
    for dim, (_, values, attributes) in campaign.coordinates.items():
        if _is(role, dim, attributes) and np.asarray(values).dtype.kind in "iuf":
            return dim, np.asarray(values, np.float64), attributes
    return None


def _is(role: str, name: str, attributes: Mapping[str, Any]) -> bool:
    stated: Role | None = role_by_metadata(attributes)
    # A name alone is no latitude: `y` or `lat` in metres are projected coordinates.
    if stated is None and is_angle(str(attributes.get("units", ""))):
        return role_by_name(name) == role
    return stated == role


def _areas_along(
    campaign: Campaign, dim: str, values: np.ndarray, attributes: Mapping[str, Any]
) -> Along | None:
    """Return the areas along the coordinate of a dim; None if all its latitudes are equal."""
    where = f"{campaign.segments.path(0)}: variable {dim}"
    degrees = in_degrees(values, attributes, where)
    steps = np.diff(degrees)
    # Areas lie between the midpoints of neighbours, which needs an order.
    if not ((steps > 0).all() or (steps < 0).all()):
        return _unknown_areas("latitudes that neither increase nor decrease", degrees, where)
    bounds = _bounds(campaign, dim, attributes, where)
    if bounds is not None and bounds.shape == (len(degrees), 2):
        low, high = bounds.min(1), bounds.max(1)
        # Coordinates in float32 are rounded beyond their bounds.
        slack = 1e-3 * np.abs(steps).max(initial=1.0)
        if not ((low <= degrees + slack) & (degrees - slack <= high) & (low < high)).all():
            raise DataError(
                f"bounds of {dim} that do not enclose its points",
                where=where,
                fix="correct the bounds, or data.area_weights=false",
            )
        return (dim,), areas_of_latitudes(degrees, bounds)
    return (dim,), areas_of_latitudes(degrees)


def _bounds(
    campaign: Campaign, dim: str, attributes: Mapping[str, Any], where: str
) -> np.ndarray | None:
    """Return the stored bounds of the cells along a dim, (cells, 2) degrees; None without."""
    header, group = _first(campaign)
    field = next((c.array.path for c in campaign.channels.values() if dim in c.dims), "")
    stored = layout_of(header).coordinate(header, group, dim, full_name(group, field))
    name = "" if stored is None else str(stored.attrs.get("bounds", ""))
    if stored is None or not name:
        return None
    folder = stored.name.rpartition("/")[0]
    path = f"{folder}/{name}" if folder else name
    if path not in header.variables:
        return None
    units = header.variables[path].attrs.get("units", attributes.get("units", ""))
    values = _values(header, header.variables[path])[campaign.cells_of(dim)]
    return in_degrees(values, {"units": units}, where)


def _first(campaign: Campaign) -> tuple[FileHeader, str]:
    """Return the header of the first segment, and its group."""
    segments = campaign.segments
    return segments.header(int(segments.file[0])), segments.groups[segments.group[0]]


def _auxiliary(campaign: Campaign, role: str) -> Iterator[Along]:
    """Yield the geographic latitudes, or longitudes, that are stored along dims of the fields.

    Those along most dims come first; a leading time is taken at its first entry.
    """
    header, _ = _first(campaign)
    if layout_of(header) is not Plain:
        return
    dims = {d for c in campaign.channels.values() for d in c.dims}
    places: list[tuple[int, StoredArray, tuple[str, ...], bool]] = []
    for path, stored in header.variables.items():
        name, attributes = path.rpartition("/")[2], stored.attrs
        is_field = bool(stored.shape) and np.dtype(stored.dtype).kind == "f"
        if not is_field or not _is(role, name, attributes) or _is_rotated(attributes):
            continue
        own = named_dims(header, stored, campaign.options)
        # Models such as WRF store XLAT(Time, y, x) although it never changes.
        timed = own[0] not in dims and len(own) == 3
        along = own[1:] if timed else own
        if set(along) <= dims and len(along) in (1, 2) and name not in campaign.coordinates:
            # Those of another group lie on another grid, even if its dims have the same names.
            if not _is_seen(campaign, path, set(along)):
                continue
            places.append((len(along), stored, along, timed))
    for _, stored, along, timed in sorted(places, key=lambda place: -place[0]):
        values = _values(header, stored)
        if role == "latitude":
            where = f"{header.path}: variable {stored.name}"
            degrees = in_degrees(values[0] if timed else values, stored.attrs, where)
        else:
            degrees = _longitudes(values[0] if timed else values, stored.attrs)
        yield tuple(along), degrees[tuple(map(campaign.cells_of, along))]


def _is_seen(campaign: Campaign, path: str, dims: set[str]) -> bool:
    """Return whether the fields along dims see the variable of a path by its name.

    Raises:
        DataError: some of them do, and others see another one.
    """
    header, group = _first(campaign)
    name, ranks = path.rpartition("/")[2], (len(header.variables[path].shape),)
    along = {c.name: c.array.path for c in campaign.channels.values() if dims <= set(c.dims)}
    others = {n: seen(header, name, full_name(group, p), ranks) for n, p in along.items()}
    own = [n for n, place in others.items() if place == path]
    apart = next((n for n, place in others.items() if place not in ("", path)), "")
    if own and apart:
        raise DataError(
            f"{own[0]} has the {name} of {path}, {apart} that of {others[apart]}",
            where=str(header.path),
            allowed="fields of one group, or on the same cells",
            fix="emulators of each, or data.area_weights=false",
        )
    return bool(own)


def _longitudes(values: np.ndarray, attributes: Mapping[str, Any]) -> np.ndarray:
    """Return longitudes in degrees."""
    degrees = np.asarray(values, np.float64)
    is_radian = str(attributes.get("units", "")).strip().lower().startswith("rad")
    return np.degrees(degrees) if is_radian else degrees


def _areas_of(latitude: Along, longitude: Along | None, where: str) -> Along | None:
    """Return the areas of cells whose latitudes are stored beside the dims.

    None if all latitudes are equal, as in ideal cases.

    Raises:
        DataError: the latitudes do not say how large the cells are.
    """
    dims, degrees = latitude
    if len(dims) == 2 and (axis := along_one_dim(degrees)) is not None:
        # A regular grid whose latitudes are stored for each cell.
        dims, degrees = (dims[axis],), np.moveaxis(degrees, axis, 0)[:, 0]
    if len(dims) == 1:
        steps = np.diff(degrees)
        if (steps > 0).all() or (steps < 0).all():
            return dims, areas_of_latitudes(degrees)
        return _unknown_areas("latitudes that neither increase nor decrease", degrees, where)
    if longitude is None or set(longitude[0]) != set(dims):
        text = f"latitudes along {' and '.join(dims)} without longitudes along both"
        return _unknown_areas(text, degrees, where)
    if min(degrees.shape) < 2:
        return _unknown_areas("latitudes of a single row of cells", degrees, where)
    # Both must have the same order of dims before they are points.
    turned = longitude[1] if longitude[0] == dims else longitude[1].T
    return dims, areas_of_points(degrees, turned)


def _unknown_areas(what: str, degrees: np.ndarray, where: str) -> Along | None:
    """Return None for equal latitudes, which need no weights; refuse others.

    Raises:
        DataError: the latitudes differ.
    """
    if np.ptp(degrees) <= _SAME:
        return None
    raise DataError(
        f"{what}: the areas of cells are not known",
        where=where,
        allowed="longitudes beside them, or cell_measures: area: NAME",
        fix=_EQUAL_WEIGHTS,
    )


def _stated_areas(campaign: Campaign) -> Along | None:
    """Return the areas that the fields name as their cell measure; None if no file has them.

    Raises:
        DataError: fields with different cells, or areas that are not positive.
    """
    header, group = _first(campaign)
    names: dict[str, str] = {}
    for channel in campaign.channels.values():
        path = full_name(group, channel.array.path)
        stored = header.variables.get(path)
        words = str("" if stored is None else stored.attrs.get("cell_measures", "")).split()
        pairs = dict(zip(words[::2], words[1::2], strict=False))
        if "area:" in pairs:
            area = pairs["area:"]
            names.setdefault(seen(header, area, path, _AREA_RANKS) or area, channel.name)
    # `area: NAME` names a variable of a group that the field sees, or of another file.
    present = [name for name in names if name in header.variables]
    if len(present) > 1:
        raise DataError(
            f"{names[present[0]]} has the cells {present[0]}, {names[present[1]]} {present[1]}",
            where=str(header.path),
            allowed="fields on the same cells",
            fix="emulators of each, or data.area_weights=false",
        )
    for name in set(names) - set(present):
        _logger.info("%s: cell areas %s are in another file, not read", header.path, name)
    if not present:
        return None
    stored = header.variables[present[0]]
    dims = named_dims(header, stored, campaign.options)
    areas, where = _values(header, stored), f"{header.path}: variable {stored.name}"
    grid = {d for c in campaign.channels.values() for d in c.dims}
    # Areas that are stored for each time are the same at all: the first is taken.
    while dims and dims[0] not in grid:
        dims, areas = dims[1:], areas[0]
    if not dims or not set(dims) <= grid:
        raise DataError(
            f"cell areas along {', '.join(dims) or 'no dim'}", where=where, fix=_EQUAL_WEIGHTS
        )
    areas = areas[tuple(map(campaign.cells_of, dims))]
    mask = None if campaign.mask is None else campaign.mask.valid
    if mask is not None and campaign.mask is not None and set(dims) == set(campaign.mask.dims):
        order = [campaign.mask.dims.index(d) for d in dims]
        # Invalid cells may have no area, which nobody reads.
        areas = np.where(mask.transpose(order), areas, 1.0)
    if not (np.isfinite(areas) & (areas > 0)).all():
        bad = int((~(np.isfinite(areas) & (areas > 0))).sum())
        raise DataError(
            f"{bad} cell areas are missing or not positive", where=where, fix=_EQUAL_WEIGHTS
        )
    return tuple(dims), areas


def _geographic(own: Coordinate | None, other: Along | None) -> Along | None:
    """Return geographic degrees: those of the cells, or those of a dim of no rotated pole."""
    if other is not None:
        return other
    if own is None or _is_rotated(own[2]):
        return None
    return (own[0],), _longitudes(own[1], own[2])


def _is_rotated(attributes: Mapping[str, Any]) -> bool:
    """Return whether a coordinate is an angle from a rotated pole."""
    return str(attributes.get("standard_name", "")).startswith("grid_")


def _values(header: FileHeader, stored: StoredArray) -> np.ndarray:
    """Return the values of an array, as float64.

    Raises:
        DataError: they cannot be read.
    """
    try:
        if header.format.native_hdf5:
            with open_hdf5(header.path) as file:
                values = np.asarray(file[stored.name][()])
        else:
            with header.format.open_dataset(header.path, decode=False) as dataset:
                values = np.asarray(dataset[stored.name].values)
    except READ_ERRORS as error:
        raise DataError(
            f"cannot be read ({error})", where=f"{header.path}: variable {stored.name}"
        ) from None
    return Packing.of(values.dtype, stored.attrs).unpack(values, exact=True).astype(np.float64)
