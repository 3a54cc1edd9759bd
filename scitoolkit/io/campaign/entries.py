"""Entries of dims that are chosen by a value, or that each become a channel: levels and members."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign_layout import COMPONENT, SIMULATION, Array, CampaignOptions
from scitoolkit.io.campaign.dim_roles import chosen_dims, named_dims
from scitoolkit.io.campaign.headers import FileHeader
from scitoolkit.io.campaign.plain import Plain
from scitoolkit.io.campaign.segments import Segments
from scitoolkit.io.coordinates import READ_ERRORS
from scitoolkit.io.formats.base import unreadable

Entry = tuple[int, str]
"""Index along a dim, and what the name of its channel ends with; "" for a chosen entry."""
_TOLERANCE = 1e-6


def entries_of(
    header: FileHeader, path: str, array: Array, options: CampaignOptions
) -> list[list[Entry]]:
    """Return the entries of each COMPONENT axis of an array that become channels.

    Args:
        header: of the first file.
        path: of the array in the file.
        array: with its roles.
        options: `select` and `levels` of the campaign.

    Raises:
        DataError: no entry has the chosen value.
    """
    stored, chosen = header.variables.get(path), chosen_dims(header, options)
    dims = named_dims(header, stored, options) if stored is not None and chosen else ()
    names = dims if len(dims) == len(array.roles) else [""] * len(array.roles)
    entries = []
    for role, size, dim in zip(array.roles, array.shape, names, strict=True):
        if role != COMPONENT:
            continue
        if dim in (options.select or {}):
            entries.append([(_index(header, dim, size, options, path), "")])
        elif dim in chosen:
            entries.append(list(enumerate(_labels(header, dim, size, path))))
        else:
            entries.append([(k, str(k)) for k in range(size)])
    return entries


def _points(header: FileHeader, dim: str, field: str) -> np.ndarray | None:
    stored = Plain.coordinate(header, "", dim, field)
    return None if stored is None else stored.points


def _index(header: FileHeader, dim: str, size: int, options: CampaignOptions, field: str) -> int:
    """Return the index of the chosen entry: by the value of the coordinate, else by number."""
    value = float((options.select or {})[dim])
    points = _points(header, dim, field)
    if points is None:
        if value.is_integer() and 0 <= value < size:
            return int(value)
        allowed = f"an entry from 0 to {size - 1}: the dim has no coordinate"
    else:
        # Levels may be stored in float32, in which 0.1 is not the user's 0.1.
        near = np.abs(np.asarray(points, np.float64) - value) <= _TOLERANCE * max(abs(value), 1e-6)
        if near.sum() == 1:
            return int(np.flatnonzero(near)[0])
        allowed = ", ".join(f"{p:g}" for p in points[:20])
    raise DataError(
        f"no single entry {value:g} of {dim}",
        where=str(header.path),
        allowed=allowed,
        fix="data.select",
    )


def _labels(header: FileHeader, dim: str, size: int, field: str) -> list[str]:
    """Return the ends of the names of channels: the values of the coordinate, else numbers."""
    points = _points(header, dim, field)
    numbers = [str(k) for k in range(size)]
    if points is None or len(points) != size:
        return numbers
    # Names of channels name parts of networks, which have no points.
    texts = [f"{p:.6g}".replace(".", "_").replace("-", "minus") for p in points.tolist()]
    return texts if len(set(texts)) == size else numbers


def require_same_entries(
    segments: Segments, arrays: Iterable[Array], options: CampaignOptions
) -> None:
    """Raise if files have other values along a dim whose entries are chosen, channels or members.

    Args:
        segments: of the campaign.
        arrays: that are read.
        options: of the campaign.

    Raises:
        DataError: with the first such file and both ranges.
    """
    first = segments.header(int(segments.file[0]))
    roles = {COMPONENT, SIMULATION} if _joins_members(segments) else {COMPONENT}
    fields = _fields_along(first, arrays, options, roles)
    dims = {dim for dim, _ in fields}
    fields |= {(dim, ""): "" for dim in chosen_dims(first, options) - dims}
    texts = {dim: names for dim, _ in fields if (names := _names_along(first, dim))}
    for number in _files(segments.file) if fields else ():
        header = segments.header(number)
        for (dim, _), field in sorted(fields.items()):
            own, other = _points(first, dim, field), _points(header, dim, field)
            names = _names_along(header, dim) if dim in texts else ()
            same = names == texts.get(dim, ())
            if same and own is None and other is None:
                continue
            if not same or own is None or other is None or not _same(own, other):
                raise DataError(
                    f"the entries of {dim} are {', '.join(names) or _text(other)}",
                    where=str(header.path),
                    allowed=f"{', '.join(texts.get(dim, ())) or _text(own)}, as in {first.path}",
                    fix=f"write all files with one order of {dim}",
                )


def _joins_members(segments: Segments) -> bool:
    """Return whether a simulation consists of the same member of several files."""
    places = np.unique(np.stack([segments.simulation, segments.file]), axis=1)
    several = bool((np.bincount(places[0]) > 1).any())
    return several and bool((np.asarray(segments.member) >= 0).any())


def _fields_along(
    header: FileHeader, arrays: Iterable[Array], options: CampaignOptions, roles: set[str]
) -> dict[tuple[str, str], str]:
    """Return {(dim, group): path of an array there} of the dims that have one of some roles."""
    fields: dict[tuple[str, str], str] = {}
    for array in arrays:
        stored = header.variables.get(array.path)
        names = () if stored is None else named_dims(header, stored, options)
        if len(names) == len(array.roles):
            pairs = zip(names, array.roles, strict=True)
            folder = array.path.rpartition("/")[0]
            fields |= {(name, folder): array.path for name, role in pairs if role in roles}
    return fields


def _names_along(header: FileHeader, dim: str) -> tuple[str, ...]:
    """Return the texts of the coordinate of a dim; none for numbers, or without a coordinate."""
    if dim in header.variables or dim.startswith("dim_"):
        return ()
    try:
        with header.format.open_dataset(header.path) as dataset:
            stored = dataset.variables.get(dim)
            if stored is None or stored.dtype.kind not in "SUOT":
                return ()
            texts = stored.values.tolist()
    except READ_ERRORS as error:
        raise unreadable(header.path, error) from None
    return tuple(n.decode() if isinstance(n, bytes) else str(n) for n in texts)


def _files(numbers: np.ndarray) -> Iterable[int]:
    return map(int, np.unique(numbers))


def _same(own: np.ndarray, other: np.ndarray) -> bool:
    return own.shape == other.shape and np.allclose(own, other, rtol=_TOLERANCE, atol=0)


def _text(points: np.ndarray | None) -> str:
    return "numbered" if points is None else f"{points[0]:g} to {points[-1]:g} ({len(points)})"
