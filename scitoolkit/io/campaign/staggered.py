"""Fields on staggered grids, interpolated to the centres of the cells.

A dim of faces is paired with the dim of the centres that it lies between, by SGRID, by COMODO, or
by the names of WRF, ROMS, MITgcm and MOM6; its place against the centres follows from its size.
Centre i is the mean of the two faces beside it. Centres without a face on one side, at the ends of
a dim that does not close, are left out of all fields. Sources: SGRID 0.3; COMODO conventions
(`c_grid_axis_shift`); `Grid.interp` of xgcm 0.8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.campaign.campaign_layout import Array, CampaignOptions, Centring
from scitoolkit.io.campaign.channels import Channel
from scitoolkit.io.campaign.dim_roles import chosen_dims
from scitoolkit.io.campaign.headers import FileHeader
from scitoolkit.io.campaign.plain import Plain
from scitoolkit.io.campaign.segments import Segments
from scitoolkit.io.campaign.turns import period_of
from scitoolkit.io.loader.files import Counter
from scitoolkit.io.loader.packing import ATTRIBUTES, Packing
from scitoolkit.io.loader.rows import VariableLayout

_logger = get_logger(__name__)
_FIX = "data.staggered=stored, with fields of one grid"
# Faces | and centres o along a dim, by their numbers F and C; shift is the face below centre 0:
#
# F = C + 1     | o | o |      shift 0, all centres have two faces
# F = C - 1     o | o | o      shift -1, without the first and the last centre
# F = C, lower  | o | o         shift 0, without the last centre unless the dim closes
# F = C, upper  o | o |         shift -1, without the first centre unless the dim closes

_PADDED = re.compile(r"(\w+)\s*:\s*(\w+)\s*\(\s*padding\s*:\s*(none|low|high|both)\s*\)")
# Names of MITgcm and MOM6, by the side of a cell on which its face has its number.
_LOWER = {"XG": "XC", "YG": "YC", "Zl": "Z", "i_g": "i", "j_g": "j", "k_l": "k"}
_UPPER = {"Zu": "Z", "k_u": "k", "xq": "xh", "yq": "yh"}
_OUTER = {"Xp1": "X", "Yp1": "Y", "Zp1": "Z", "k_p1": "k", "zi": "zl", "s_w": "s_rho"}
_ROMS = {"xi_u": "xi_rho", "eta_v": "eta_rho", "xi_psi": "xi_rho", "eta_psi": "eta_rho"}
_ALSO = {"X": "XC", "Y": "YC"}
"""Names that MITgcm gives to the centres in files of another of its packages."""
_TWINS = {"eta_u": "eta_rho", "xi_v": "xi_rho"}
"""Dims of centres by another name."""


@dataclass(frozen=True)
class Pair:
    """Dim of faces, and the dim of the centres between them.

    Attributes:
        centre: dim of the centres.
        lower: whether, of as many faces as centres, face i is below centre i; None if the files
            do not say.
        twin: whether the dim is one of centres by another name.
    """

    centre: str
    lower: bool | None = None
    twin: bool = False


def pairs_of(header: FileHeader, dims: Iterable[str]) -> dict[str, Pair]:
    """Return {dim of faces: its pair} among the dims of a file."""
    present = set(dims)
    pairs: dict[str, Pair] = {}
    for dim in present:
        stem = dim.removesuffix("_stag")
        named = {**_LOWER, **_UPPER, **_OUTER, **_ROMS, **_TWINS}
        centre = stem if stem != dim else named.get(dim)
        if centre is not None:
            centre = centre if centre in present else _ALSO.get(centre, centre)
            lower = True if dim in _LOWER else False if dim in _UPPER else None
            pairs[dim] = Pair(centre, lower, dim in _TWINS)
    pairs |= _of_comodo(header) | _of_sgrid(header)
    return {d: pair for d, pair in pairs.items() if d in present and pair.centre in present}


def _of_comodo(header: FileHeader) -> dict[str, Pair]:
    """Return the pairs of coordinates with one `axis`, of which one is shifted by half a cell."""
    vectors = {v.dims[0]: v.attrs for v in header.variables.values() if len(v.shape) == 1}
    axes = {d: str(a["axis"]).upper() for d, a in vectors.items() if "axis" in a}
    pairs = {}
    for dim, axis in axes.items():
        shift = vectors[dim].get("c_grid_axis_shift")
        centres = [
            d for d, a in axes.items() if a == axis and "c_grid_axis_shift" not in vectors[d]
        ]
        if shift is not None and len(centres) == 1:
            pairs[dim] = Pair(centres[0], float(np.ravel(shift)[0]) < 0)
    return pairs


def _of_sgrid(header: FileHeader) -> dict[str, Pair]:
    """Return the pairs that a variable of SGRID with the topology of the grid states."""
    pairs: dict[str, Pair] = {}
    for attrs in (v.attrs for v in header.variables.values()):
        if str(attrs.get("cf_role", "")) != "grid_topology":
            continue
        for key in ("face_dimensions", "volume_dimensions", "vertical_dimensions"):
            for centre, node, padding in _PADDED.findall(str(attrs.get(key, ""))):
                # Padding at one end: the centres reach beyond the nodes there.
                pairs[node] = Pair(centre, {"low": False, "high": True}.get(padding))
        for key in ("edge1_dimensions", "edge2_dimensions"):
            text = str(attrs.get(key, ""))
            padded = {dim for dim, *_ in _PADDED.findall(text)}
            for dim, node in re.findall(r"(\w+)\s*:\s*(\w+)", text):
                if node in pairs:
                    pair = pairs[node]
                    pairs[dim] = replace(pair, twin=True) if dim in padded else pair
    return pairs


def centred(
    segments: Segments, channels: Mapping[str, Channel], options: CampaignOptions
) -> dict[str, Channel]:
    """Return the channels with their fields at the centres of the cells.

    Args:
        segments: of the campaign.
        channels: as stored.
        options: of the campaign.

    Raises:
        DataError: no dim of the fields is one of faces, the place of one is not known, or the dims
            of files run in different orders.
    """
    header = segments.header(int(segments.file[0]))
    arrays = {c.array.path: c.array for c in channels.values()}
    sizes = _sizes(header, arrays.values())
    pairs = pairs_of(header, sizes)
    used = [d for a in arrays.values() for d in a.roles if d in pairs]
    if not used:
        raise DataError(
            "data.staggered is centres, but no dim of the fields is known to lie between cells",
            where=str(header.path),
            allowed="dims of SGRID, COMODO (c_grid_axis_shift), WRF, ROMS, MITgcm or MOM6; the "
            f"dims are {', '.join(d for d in sizes if not d.startswith('@'))}",
            fix=_FIX,
        )
    _require_no_entry(header, options, {dim: pairs[dim].centre for dim in used})
    _require_one_grid(segments, sizes, {dim: pairs[dim] for dim in used})
    if segments.turns:
        raise DataError(
            "files store a dim in different orders, beside staggered grids",
            where=segments.path(min(segments.turns)),
            fix="write all files in one order",
        )
    # A group says nothing about the dims of another: the fields along a dim have its coordinate.
    along = {d: a.path for a in reversed(arrays.values()) for d in a.roles}
    places = {dim: _place(header, dim, pairs[dim], sizes, along) for dim in used}
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    for place in places.values():
        # All fields keep the centres that every pair of dims has, so that they stay on one grid.
        low[place.centre] = max(low.get(place.centre, 0), place.low)
        high[place.centre] = min(high.get(place.centre, place.high), place.high)
    for array in arrays.values():
        _require_paired(header, array, pairs, {p.centre for p in places.values()})
    made = {path: _moved(array, places, low, high) for path, array in arrays.items()}
    for dim, place in places.items():
        text = "" if place.period else f", cells {low[place.centre]} to {high[place.centre] - 1}"
        names = [p for p, array in arrays.items() if dim in array.roles]
        _logger.info(
            "%s: %s of %s is interpolated to the centres along %s%s",
            header.path,
            dim,
            ", ".join(names),
            place.centre,
            " (closed)" if place.period else text,
        )
    return {n: replace(c, array=made[c.array.path]) for n, c in channels.items()}


def _require_no_entry(
    header: FileHeader, options: CampaignOptions, centres: Mapping[str, str]
) -> None:
    """Raise if one entry is read of centres between which faces lie that keep all of theirs.

    Raises:
        DataError: with both dims.
    """
    chosen = chosen_dims(header, options)
    for dim, centre in centres.items():
        if centre in chosen:
            raise DataError(
                f"of {centre} one entry is read or each is a channel, and {dim} lies between them",
                where=f"{header.path}: data.select, data.levels",
                allowed=f"fields along {centre}, or along {dim} as stored",
                fix=_FIX,
            )


def _require_one_grid(segments: Segments, dims: Iterable[str], pairs: Mapping[str, Pair]) -> None:
    """Raise if the faces of a file lie otherwise than those of the first.

    Raises:
        DataError: with the file and the dim.
    """
    dims = list(dims)
    first = segments.header(int(segments.file[0]))
    # The attributes that state pairs are part of the schema, which most files share.
    schemas = np.asarray(segments.table.schema)[segments.file]
    for segment in np.unique(schemas, return_index=True)[1].tolist():
        header = segments.header(int(segments.file[segment]))
        others = pairs_of(header, dims)
        for dim, pair in pairs.items():
            if others.get(dim) != pair:
                raise DataError(
                    f"{dim} lies otherwise between the cells than in other files",
                    where=str(header.path),
                    allowed=f"attributes of {dim} as in {first.path}",
                    fix="open the files one by one, or write all with one grid",
                )


@dataclass(frozen=True)
class _Place:
    """Place of a dim of faces against its centres.

    Attributes:
        centre: dim of the centres.
        shift: number of the face below centre 0; None for a dim of centres by another name.
        low, high: the first centre with two faces, and the last + 1.
        period: number of faces of a dim that closes, else 0.
    """

    centre: str
    shift: int | None
    low: int
    high: int
    period: int = 0


def _place(
    header: FileHeader, dim: str, pair: Pair, sizes: Mapping[str, int], along: Mapping[str, str]
) -> _Place:
    faces, cells = sizes[dim], sizes[pair.centre]
    if pair.twin and faces == cells:
        return _Place(pair.centre, None, 0, cells)
    if faces == cells + 1:
        return _Place(pair.centre, 0, 0, cells)
    if faces == cells - 1:
        return _Place(pair.centre, -1, 1, cells - 1)
    if faces != cells or pair.lower is None:
        raise DataError(
            f"{faces} entries of {dim} beside {cells} of {pair.centre}: which lie between which is "
            "not known",
            where=str(header.path),
            allowed=f"{cells + 1} or {cells - 1}, or as many with c_grid_axis_shift",
            fix=_FIX,
        )
    field = along.get(pair.centre, along[dim])
    period = faces if _closes(header, pair.centre, field) else 0
    shift = 0 if pair.lower else -1
    low, high = (0, cells) if period else (0, cells - 1) if pair.lower else (1, cells)
    return _Place(pair.centre, shift, low, high, period)


def _closes(header: FileHeader, dim: str, field: str) -> bool:
    """Return whether the centres of a dim go once around, by the coordinate that a field sees."""
    stored = Plain.coordinate(header, "", dim, field)
    points = None if stored is None else stored.points
    if stored is None or points is None:
        return False
    return period_of(dim, ((dim,), points, stored.attrs)) is not None


def _sizes(header: FileHeader, arrays: Iterable[Array]) -> dict[str, int]:
    """Return the extent of every dim of a file."""
    sizes = {d: n for v in header.variables.values() for d, n in zip(v.dims, v.shape, strict=True)}
    return sizes | {d: n for a in arrays for d, n in zip(a.roles, a.shape, strict=True)}


def _require_paired(
    header: FileHeader, array: Array, pairs: Mapping[str, Pair], centres: set[str]
) -> None:
    """Raise if a dim of an array is marked as staggered, but has no centres.

    Raises:
        DataError: with the dim.
    """
    vectors = {v.dims[0]: v.attrs for v in header.variables.values() if len(v.shape) == 1}
    for dim in array.roles:
        marked = dim.endswith("_stag") or "c_grid_axis_shift" in vectors.get(dim, {})
        if marked and dim not in pairs:
            raise DataError(
                f"{dim} lies between cells of a dim that the file does not have",
                where=f"{header.path}: variable {array.path}",
                allowed=", ".join(sorted(centres)),
                fix=_FIX,
            )


def _moved(
    array: Array, places: Mapping[str, _Place], low: Mapping[str, int], high: Mapping[str, int]
) -> Array:
    """Return an array at the centres, with how each of its axes is read."""
    roles: list[str] = []
    shape: list[int] = []
    axes: list[Centring | None] = []
    for role, size in zip(array.roles, array.shape, strict=True):
        place = places.get(role)
        centre = place.centre if place is not None else role
        if centre not in low:
            roles, shape, axes = [*roles, role], [*shape, size], [*axes, None]
            continue
        first, last = low[centre], high[centre]
        shift = None if place is None else place.shift
        period = 0 if place is None else place.period
        roles, shape = [*roles, centre], [*shape, last - first]
        axes.append(Centring(first, shift, period))
    if all(axis is None for axis in axes):
        return array
    about = array.long_name
    if any(axis is not None and axis.shift is not None for axis in axes):
        about = f"{about or array.path}, mean of neighbouring faces at cell centres"
    return replace(
        array, roles=tuple(roles), shape=tuple(shape), centring=tuple(axes), long_name=about
    )


class CentredReader:
    """Reader of a whole array at the centres, from the reader of the array as stored.

    Values are unpacked before they are averaged: packed ones in float64. A centre beside a face
    without a value has none.

    Args:
        inner: reader of the stored array.
        array: with `centring`.
        layout: what to read, of the array at the centres; all of it by default.
    """

    def __init__(self, inner: Any, array: Array, layout: VariableLayout | None = None) -> None:
        self.inner, self.array = inner, array
        self._packing = Packing.of(np.dtype(inner.layout.dtype), inner.layout.attrs)
        dtype = self._packing.unpack(np.zeros(1, inner.layout.dtype), exact=True).dtype
        averaged = any(axis is not None and axis.shift is not None for axis in array.centring)
        if averaged and dtype.kind not in "fc":  # means of integers are not integers
            dtype = np.dtype(np.float64)
        if layout is None:
            stored = inner.layout
            shape = tuple(
                n if axis is None else size
                for n, size, axis in zip(stored.shape, array.shape, array.centring, strict=True)
            )
            layout = replace(
                stored,
                shape=shape,
                dtype=dtype,
                chunks=None,
                crop=tuple(slice(0, n) for n in shape),
                attrs={k: v for k, v in stored.attrs.items() if k not in ATTRIBUTES},
            )
        self.layout = layout

    def with_layout(self, layout: VariableLayout) -> CentredReader:
        """Return a reader of the same array with another axis or crop."""
        reader = CentredReader(self.inner, self.array, layout)
        reader.counter = self.counter
        return reader

    @property
    def counter(self) -> Counter:
        """Counter of requests and bytes."""
        counter: Counter = self.inner.counter
        return counter

    @counter.setter
    def counter(self, counter: Counter) -> None:
        self.inner.counter = counter

    @property
    def file(self) -> Any:
        """The file, if there is exactly one."""
        return self.inner.file

    @property
    def holds_handle(self) -> bool:
        """Whether a library keeps the file open."""
        return bool(getattr(self.inner, "holds_handle", False))

    @property
    def unit_rows(self) -> int:
        """Minimum number of rows per read."""
        return int(self._stored(0, 1)[0].unit_rows)

    def _stored(self, first: int, last: int) -> tuple[Any, list[np.ndarray | None]]:
        """Return the reader of the faces of a window, and which of them each centre has."""
        layout = self.layout
        crop: list[slice] = []
        below: list[np.ndarray | None] = []
        window = layout.window(first, last)
        for wanted, axis, size in zip(
            window, self.array.centring, self.inner.layout.shape, strict=True
        ):
            if axis is None:
                crop, below = [*crop, wanted], [*below, None]
                continue
            begin, end = axis.first + wanted.start, axis.first + wanted.stop
            if axis.shift is None:
                crop, below = [*crop, slice(begin, end)], [*below, None]
                continue
            faces = np.arange(begin, end) + axis.shift
            # Faces on both sides of the seam are no slice: the whole dim is read.
            if axis.period and (faces[0] < 0 or faces[-1] + 1 >= size):
                crop.append(slice(0, size))
                below.append(faces % axis.period)
            else:
                crop.append(slice(int(faces[0]), int(faces[-1]) + 2))
                below.append(faces - int(faces[0]))
        made = replace(self.inner.layout, axis=layout.axis, crop=tuple(crop))
        reader = self.inner.with_layout(made)
        reader.counter = self.counter
        return reader, below

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows `first` ... `last` - 1 at the centres."""
        reader, below = self._stored(first, last)
        at = reader.layout.axis
        rows = reader.layout.crop[at]
        unpacked = self._packing.unpack(reader.read(rows.start, rows.stop), exact=True)
        values = np.moveaxis(unpacked.astype(self.layout.dtype, copy=False), 0, at)
        for axis, faces in enumerate(below):
            if faces is not None:
                above = faces + 1
                if (period := self.array.centring[axis]) is not None and period.period:
                    above = above % period.period
                values = _mean(np.take(values, faces, axis), np.take(values, above, axis))
        return np.moveaxis(values, at, 0)

    def read_into(self, first: int, last: int, out: np.ndarray) -> None:
        """Read rows `first` ... `last` - 1 into `out`."""
        out[...] = self.read(first, last)

    def missing(self) -> list[tuple[int, int]]:
        """Return the ranges (first, last + 1) of rows that were never written."""
        rows: list[tuple[int, int]] = self._stored(0, self.layout.num_rows)[0].missing()
        return rows

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return the requests and the bytes that reading these rows takes."""
        reader = self._stored(first, last)[0]
        rows = reader.layout.crop[reader.layout.axis]
        cost: tuple[int, int] = reader.cost(rows.start, rows.stop)
        return cost

    def check(self) -> None:
        """Raise DataError if the file was truncated or replaced."""
        self.inner.check()


def _mean(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the mean of two arrays of floats; halves are exact, and their sum cannot overflow."""
    half = one.dtype.type(0.5)
    return one * half + other * half
