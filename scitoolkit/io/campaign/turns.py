"""Dims that some files store in another order: reversed, or from another longitude.

The order of the first simulation counts. A file with the same points in another order is read in
that order; where the points differ as well, both ranges are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.unit_conversion import conversion
from scitoolkit.core.units import same_unit
from scitoolkit.io.campaign.channels import Channel, Coordinate, coordinates_of
from scitoolkit.io.campaign.segments import Segments
from scitoolkit.io.roles import role_by_metadata, role_by_name

_logger = get_logger(__name__)
_TOLERANCE = 1e-2
"""Distance, in cells, of points that count as the same: coordinates are stored in float32."""


_ONE = 1e-6
"""Relative distance of the only points of two dims that counts as none."""


@dataclass(frozen=True)
class Turn:
    """Order of a dim of a file.

    Attributes:
        dim: name of the dim.
        flip: whether the file begins at the other end.
        shift: number of cells, after the flip, before the first cell of the campaign.
        size: number of cells.
    """

    dim: str
    flip: bool
    shift: int
    size: int

    @property
    def order(self) -> np.ndarray:
        """Number in the file of each cell of the campaign, (size,) int64."""
        cells = np.arange(self.size)
        return np.roll(cells[::-1] if self.flip else cells, -self.shift)


def find_turns(segments: Segments, channels: Iterable[Channel]) -> dict[int, list[Turn]]:
    """Return the turned dims of every segment that has any.

    Args:
        segments: of the campaign.
        channels: fields whose dims are compared.

    Raises:
        DataError: a dim runs in another direction or in another unit over other points.
    """
    channels = list(channels)
    # The order of a dim is that of the first file that states its points.
    first: dict[str, tuple[int, Coordinate]] = {}
    places: dict[tuple[int, int], list[Turn]] = {}
    begins: dict[int, dict[str, Coordinate]] = {}
    turns: dict[int, list[Turn]] = {}
    unstated: dict[str, int] = {}
    for segment in range(len(segments)):
        place = int(segments.file[segment]), int(segments.group[segment])
        if place not in places:
            coordinates = coordinates_of(segments, segment, channels)
            for dim, coordinate in coordinates.items():
                first.setdefault(dim, (segment, coordinate))
            places[place] = _turns(segments, segment, first, coordinates)
            begin = begins.setdefault(int(segments.simulation[segment]), coordinates)
            if not places[place] and begin is not coordinates:
                _require_same_points(segments, segment, begin, coordinates)
            for dim in sorted(first.keys() - coordinates.keys()):
                unstated.setdefault(dim, segment)
        if places[place]:
            turns[segment] = places[place]
    for dim, segment in unstated.items():
        _logger.warning(
            "%s has no coordinate %s, which others have: its order is taken to be theirs",
            segments.path(segment),
            dim,
        )
    for dim in sorted({t.dim for dims in turns.values() for t in dims}):
        count = sum(any(t.dim == dim for t in dims) for dims in turns.values())
        _logger.info(
            "%d of %d files or parts store %s in another order than %s: read in the order of the "
            "latter",
            count,
            len(segments),
            dim,
            segments.path(0),
        )
    return turns


def _turns(
    segments: Segments,
    segment: int,
    first: Mapping[str, tuple[int, Coordinate]],
    coordinates: Mapping[str, Coordinate],
) -> list[Turn]:
    turns = []
    for dim, coordinate in coordinates.items():
        earlier, reference = first[dim]
        own, other = (np.asarray(c[1]) for c in (reference, coordinate))
        if own.dtype.kind not in "iuf" or other.dtype.kind not in "iuf" or not len(own):
            continue
        if not np.isfinite(other).all():
            raise DataError(
                f"coordinate {dim} has missing or infinite entries", where=segments.path(segment)
            )
        line = _line(reference, coordinate)
        turn = None
        if line is not None:
            own, other = own.astype(np.float64), other.astype(np.float64) * line
            turn = _turn(dim, own, other, period_of(dim, reference))
        if turn is None:
            label = segments.labels[int(segments.simulation[segment])]
            before = segments.labels[int(segments.simulation[earlier])]
            units = [str(c[2].get("units", "")) for c in (reference, coordinate)]
            own, other = (np.asarray(c[1]) for c in (reference, coordinate))
            raise DataError(
                f"{dim} runs from {other[0]:g} to {other[-1]:g} {units[1]}".rstrip(),
                where=f"{segments.path(segment)}: simulation {label}",
                allowed=f"{own[0]:g} to {own[-1]:g} {units[0]}".rstrip()
                + f", as in simulation {before}, or the same points in another order",
                fix=f"ds.sortby({dim!r}) in all files, in one unit",
            )
        if turn.flip or turn.shift:
            turns.append(turn)
    return turns


def _require_same_points(
    segments: Segments,
    segment: int,
    begin: Mapping[str, Coordinate],
    coordinates: Mapping[str, Coordinate],
) -> None:
    """Raise if a part of a simulation has other points than its first part.

    Raises:
        DataError: with the dim and the first point that differs.
    """
    for dim, (_, points, _) in coordinates.items():
        own, other = np.asarray(begin.get(dim, ((), points, {}))[1]), np.asarray(points)
        if own.dtype.kind not in "iuf" or own.shape != other.shape or len(own) < 2:
            continue
        line = _line(begin[dim], coordinates[dim]) if dim in begin else None
        limit = _TOLERANCE * float(np.abs(np.diff(own)).min())
        away = np.abs(other * (1.0 if line is None else line) - own) > limit
        if away.any():
            at, moved = int(np.argmax(away)), bool(np.ptp(other - own) <= limit)
            label = segments.labels[int(segments.simulation[segment])]
            raise DataError(
                f"{dim} is {other[at]:g} at entry {at}",
                where=f"{segments.path(segment)}: simulation {label}",
                allowed=f"{own[at]:g}, as in the first part of the simulation",
                fix="cut one fixed window from all parts, as the cells move"
                if moved and len(segments.groups) > 1
                else "data.files=simulations, if each file is a simulation",
            )


def _line(first: Coordinate, other: Coordinate) -> float | None:
    """Return the factor into the unit and direction of the first; None without conversion."""
    units = [str(c[2].get("units", "")) for c in (first, other)]
    factor: float | None = 1.0
    if all(units) and not same_unit(*units):
        line = conversion(units[1], units[0])
        factor = None if line is None or line[1] else line[0]
    upward = [str(c[2].get("positive", "")).lower() for c in (first, other)]
    if factor is not None and all(upward) and upward[0] != upward[1]:
        return -factor  # depths against heights
    return factor


def period_of(dim: str, coordinate: Coordinate) -> float | None:
    """Return the period of a dim whose points go once around; None for others."""
    _, points, attrs = coordinate
    longitude = "longitude" in (role_by_metadata(attrs), role_by_name(dim))
    period = float(attrs.get("period", 360.0 if longitude else 0.0))
    steps = np.abs(np.diff(np.asarray(points, np.float64)))
    if not len(steps):
        return None
    closed = abs(float(steps.sum() + np.median(steps)) - period) <= _TOLERANCE * len(steps) * (
        float(np.median(steps))
    )
    return period if period > 0 and closed else None


def _turn(dim: str, own: np.ndarray, other: np.ndarray, period: float | None) -> Turn | None:
    """Return how the points of a file are ordered; None if they contradict those of the first.

    Other points in the same direction, such as those of a box of another length, are no turn.
    """
    if len(own) == 1 == len(other):
        # One level or section: another position is another field.
        same = abs(float(other[0] - own[0])) <= _ONE * max(1e-300, abs(float(own[0])))
        return Turn(dim, False, 0, 1) if same else None
    if len(own) == 1:
        return Turn(dim, False, 0, 1)  # other sizes are refused with the shapes
    limit = _TOLERANCE * float(np.abs(np.diff(own)).min())
    if len(other) == len(own):
        for flip in (False, True):
            cells = other[::-1] if flip else other
            if (np.abs(cells - own) <= limit).all():
                return Turn(dim, flip, 0, len(own))
            if period is None:
                continue
            shift = int(np.argmin(np.abs(_wrapped(cells - own[0], period))))
            if (np.abs(_wrapped(np.roll(cells, -shift) - own, period)) <= limit).all():
                return Turn(dim, flip, shift, len(own))
    same = len(other) < 2 or (own[-1] - own[0]) * (other[-1] - other[0]) > 0
    return Turn(dim, False, 0, len(own)) if same and period is None else None


def _wrapped(distance: np.ndarray, period: float) -> np.ndarray:
    return (distance + period / 2) % period - period / 2
