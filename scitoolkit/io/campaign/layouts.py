"""Layouts of simulation data on disk: the role of each axis of each variable.

A layout is recognised by names and attributes only. Sources: the Well 1.2 `docs/data_format.md`;
PDEBench `data_gen` and `models/fno/utils.py`; CF Conventions 1.11.
"""

from __future__ import annotations

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.campaign.headers import FileHeader, StoredArray
from scitoolkit.io.roles import (
    COMPONENT_NAMES,
    LEAD_NAMES,
    SIMULATION_NAMES,
    TIME_NAMES,
    Role,
    role_by_metadata,
    roles_of,
)
from scitoolkit.io.variable_roles import references, roles_of_variables

TIME, SIMULATION, COMPONENT = "@time", "@simulation", "@component"
SPACE = ("x", "y", "z")
FIX_DIMS = "data.dims=[...], one name for each dim, in the stored order"


@dataclass(frozen=True)
class CampaignOptions:
    """Settings of a campaign that override what is detected in the files.

    Attributes:
        sample_dim: the dim along which samples are counted; `time` also accepts t, step, ...
        dims: names of the dims of plain HDF5 and .npy files.
        grid: the space dims, which are then treated neither as components nor as simulations.
        files: whether each file is a simulation, or all files are parts of one.
        pattern: pattern of the names of single-sample files, `run{simulation}_t{step}.h5`.
        lead: number of samples from input to output; with 0, samples need no order.
        on_error: `skip` skips simulations that cannot be read or do not match the others.
        gaps: what missing times within a simulation do: `refuse` it, `split` it into stretches
            that no window crosses, or nothing (`allow`), for a reader that knows where they are.
        steps: whether all simulations must have the `same` time step.
        select: {dim: value of the entry to read}, a level or a member; the number of the entry
            where the dim has no coordinate.
        levels: whether the vertical dim is a dim of the grid, or its entries are `channels`.
        staggered: whether fields on the faces of cells are read as `stored`, or as the means of
            neighbouring faces at the `centres`.
        offsets: {variable: number that is subtracted from it in float64 when it is read}.
    """

    sample_dim: str = "time"
    dims: Sequence[str] | Mapping[str, Sequence[str]] | None = None
    grid: Sequence[str] | None = None
    files: Literal["auto", "simulations", "parts"] = "auto"
    pattern: str | None = None
    lead: int = 1
    on_error: Literal["raise", "skip"] = "raise"
    gaps: Literal["refuse", "split", "allow"] = "refuse"
    select: Mapping[str, float] | None = None
    levels: Literal["dim", "channels"] = "dim"
    steps: Literal["same", "any"] = "same"
    staggered: Literal["stored", "centres"] = "stored"
    offsets: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Centring:
    """How an axis of an array is read at the centres of cells.

    Attributes:
        first: the first centre that is read.
        shift: number of the face below centre 0, None for an axis of centres.
        period: number of faces of a dim that closes, else 0.
    """

    first: int
    shift: int | None
    period: int = 0


@dataclass(frozen=True)
class Array:
    """Array of a file with the role of each axis.

    Attributes:
        path: name in the file, relative to the group of a simulation.
        shape: of the array.
        roles: for each axis TIME, SIMULATION, COMPONENT or the name of a space dim.
        units: as stated in the file.
        long_name: as stated in the file.
        centring: how each axis is read at the centres of cells; empty if all are as stored.
        offset: number that is subtracted from the values.
    """

    path: str
    shape: tuple[int, ...]
    roles: tuple[str, ...]
    units: str = ""
    long_name: str = ""
    centring: tuple[Centring | None, ...] = ()
    offset: float = 0.0

    def size(self, role: str) -> int | None:
        """Return the extent of the axis with a role; None without such an axis."""
        return self.shape[self.roles.index(role)] if role in self.roles else None


class CampaignLayout(ABC):
    """Base of a layout.

    Attributes:
        name: for messages.
        time_path: path of the times, with `{group}` for a simulation's group; "" for none.
        coordinate_path: path of a space dim's coordinate, also with `{dim}`; "" for none.
    """

    name: ClassVar[str]
    time_path: ClassVar[str] = ""
    coordinate_path: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether a file has this layout."""

    @classmethod
    def groups(cls, header: FileHeader) -> list[str]:
        """Return the groups that contain one simulation each; [""] without groups."""
        return [""]

    @classmethod
    @abstractmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return the fields by the names that users refer to them by."""

    @classmethod
    def times(
        cls, header: FileHeader, group: str, options: CampaignOptions, fields: Iterable[str] = ()
    ) -> StoredArray | None:
        """Return the times, (rows,) or (simulations, rows), of the fields with some paths."""
        return header.get(cls.time_path.format(group=group)) if cls.time_path else None

    @classmethod
    def coordinate(
        cls, header: FileHeader, group: str, dim: str, field: str = ""
    ) -> StoredArray | None:
        """Return the coordinate of a space dim, of one field where fields differ."""
        path = cls.coordinate_path
        return header.get(path.format(group=group, dim=dim)) if path else None

    @classmethod
    def units(cls, header: FileHeader, name: str) -> str:
        """Return the unit of an array, by its full name."""
        stored = header.variables.get(name)
        return "" if stored is None else str(stored.attrs.get("units", ""))

    @classmethod
    def remarks(cls, header: FileHeader) -> list[str]:
        """Return lines for the user about what is in the file but not read as it says."""
        return []

    @classmethod
    def written(cls, header: FileHeader) -> int | None:
        """Return the number of written rows if more were allocated; None if all were written."""
        return None

    @classmethod
    def step(cls, header: FileHeader, group: str) -> tuple[str, int] | None:
        """Return simulation and step of a group that is one sample, if the file states them."""
        return None


class Well(CampaignLayout):
    """The Well: `tR_fields/NAME` (trajectory, time, space..., components...)."""

    name: ClassVar[str] = "the Well"
    time_path: ClassVar[str] = "dimensions/time"
    coordinate_path: ClassVar[str] = "dimensions/{dim}"
    _RANKS: ClassVar[tuple[str, ...]] = ("t0_fields", "t1_fields", "t2_fields")

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether the root has `n_trajectories` and there are groups of fields by rank."""
        fields = any(n.split("/")[0] in cls._RANKS for n in header.variables)
        return "n_trajectories" in header.attrs and fields

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return the fields with the axes stated by their attributes.

        Raises:
            DataError: a shape contradicts the attributes.
        """
        space = _spatial_names(header)
        arrays = {}
        for path, stored in header.variables.items():
            group, _, name = path.partition("/")
            if group not in cls._RANKS:
                continue
            rank = cls._RANKS.index(group)
            # The Well leaves out axes along which a field does not vary, such as a static mask.
            lead = [
                role
                for role, attr in ((SIMULATION, "sample_varying"), (TIME, "time_varying"))
                if stored.attrs.get(attr, True)
            ]
            dims = [*lead, *space, *[COMPONENT] * rank]
            if constant_dims(header, path):
                continue
            if len(dims) != len(stored.shape):
                raise DataError(
                    f"shape {stored.shape} does not have the {len(dims)} axes stated by its "
                    f"attributes ({', '.join(dims)})",
                    where=f"{header.path}: variable {path}",
                )
            arrays[name] = array_of(path, stored, dims)
        return arrays

    @classmethod
    def remarks(cls, header: FileHeader) -> list[str]:
        """Return the fields that are left out because they are constant along a space dim."""
        left_out = {p: d for p in header.variables if (d := constant_dims(header, p))}
        return [f"{p} is constant along {', '.join(d)}: not read" for p, d in left_out.items()]


def constant_dims(header: FileHeader, path: str) -> list[str]:
    """Return the space dims that a field of the Well leaves out, as it is constant along them."""
    stored = header.variables.get(path)
    stated = [] if stored is None else np.ravel(stored.attrs.get("dim_varying", [])).tolist()
    if all(stated):
        return []
    return [d for d, varies in zip(_spatial_names(header), stated, strict=False) if not varies]


def _spatial_names(header: FileHeader) -> list[str]:
    """Return the space dims of a file of the Well."""
    short = [n.removeprefix("dimensions/") for n in header.variables if n.startswith("dimensions/")]
    order = {"x": 0, "y": 1, "z": 2}
    rank = header.attrs.get("n_spatial_dims")
    names = sorted((n for n in short if n != "time"), key=lambda n: (order.get(n, 3), n))
    # HDF5 visits names alphabetically (`phi`, `r`, `theta`): only the attribute has the stored
    # order. With one dim it is read as a text, and there is nothing to order.
    stated = header.attrs.get("dimensions/spatial_dims", header.attrs.get("spatial_dims"))
    if isinstance(stated, list):
        names = [str(s) for s in stated]
    if rank is not None and len(names) != int(rank):
        raise DataError(
            f"dimensions {', '.join(names)}",
            where=str(header.path),
            allowed=f"{rank} space dims, as n_spatial_dims states",
        )
    return names


class PdeBench(CampaignLayout):
    """PDEBench's flat files: `tensor` or `density`, `Vx`, ...: (sample, time, x[, y, z]).

    The times may include the end of the last step.
    """

    name: ClassVar[str] = "PDEBench"
    time_path: ClassVar[str] = "t-coordinate"
    coordinate_path: ClassVar[str] = "{dim}-coordinate"

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether PDEBench's coordinates and fields exist."""
        names = header.variables
        return "x-coordinate" in names and ("tensor" in names or {"density", "Vx"} <= set(names))

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return the fields; `nu` of Darcy flow has no time."""
        rank = sum(f"{d}-coordinate" in header.variables for d in SPACE)
        arrays = {}
        for path, stored in header.variables.items():
            if path.endswith("-coordinate") or len(stored.shape) < 1 + rank:
                continue
            # The solution of Darcy flow has a time axis of length 1, its coefficient `nu` has none.
            with_time = len(stored.shape) == 2 + rank
            dims = [SIMULATION, *[TIME] * with_time, *SPACE[:rank]]
            if len(dims) == len(stored.shape):
                arrays[path] = array_of(path, stored, dims)
        return arrays


class PdeBenchSeeds(CampaignLayout):
    """PDEBench's files with one group per simulation: `0000/data` (time, x[, y], channel)."""

    name: ClassVar[str] = "PDEBench, one group per simulation"
    time_path: ClassVar[str] = "{group}/grid/t"
    coordinate_path: ClassVar[str] = "{group}/grid/{dim}"

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether numbered groups contain `data` and `grid`."""
        return any(n.endswith("/data") and n[:-5].isdigit() for n in header.variables) and any(
            "/grid/" in n for n in header.variables
        )

    @classmethod
    def groups(cls, header: FileHeader) -> list[str]:
        """Return the numbered groups."""
        numbered = [n[:-5] for n in header.variables if n.endswith("/data") and n[:-5].isdigit()]
        return sorted(numbered, key=int)

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return `data`, channels last."""
        stored = header.variables[f"{cls.groups(header)[0]}/data"]
        space = SPACE[: len(stored.shape) - 2]
        return {"data": array_of("data", stored, [TIME, *space, COMPONENT])}


class Dedalus(CampaignLayout):
    """Dedalus 3: `tasks/NAME` (write, components..., space...), times in `scales/sim_time`.

    The sets `_s1`, `_s2`, ... belong to one simulation, because their times continue.
    """

    name: ClassVar[str] = "Dedalus"
    time_path: ClassVar[str] = "scales/sim_time"

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether tasks and the simulation time exist."""
        names = header.variables
        return "scales/sim_time" in names and any(n.startswith("tasks/") for n in names)

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return the tasks; dims with a scale are space dims, others components.

        Raises:
            DataError: a task was written as spectral coefficients.
        """
        arrays = {}
        for path, stored in header.variables.items():
            group, _, name = path.partition("/")
            if group != "tasks":
                continue
            space = stored.attrs.get("grid_space", True)
            if not np.all(space):
                raise DataError(
                    "spectral coefficients, not values on the grid",
                    where=f"{header.path}: variable {path}",
                    fix="add_task(..., layout='g')",
                )
            # A scale is named `x_hash_HASH`, where the hash is that of its grid: it differs with
            # the resolution, the dim does not.
            dims = [d.split("_hash_")[0] for d in stored.dims[1:]]
            roles = [COMPONENT if d.startswith("dim_") or not d else d for d in dims]
            arrays[name] = array_of(path, stored, [TIME, *roles])
        return arrays

    @classmethod
    def coordinate(
        cls, header: FileHeader, group: str, dim: str, field: str = ""
    ) -> StoredArray | None:
        """Return the scale of a space dim."""
        # Tasks at several resolutions leave several scales of a dim, and the name of the dim alone
        # does not tell which of them is that of a field.
        scales = [n for n in header.variables if n.startswith(f"scales/{dim}_hash_")]
        return header.get(scales[0]) if len(scales) == 1 else None


class Plain(CampaignLayout):
    """NetCDF, Zarr, plain HDF5 and .npy: roles by the names of dims, variables in any group."""

    name: ClassVar[str] = "plain"

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return True: the fallback if no other layout matches."""
        return True

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return all arrays with dims by path, and by the last part of the path if unique."""
        stated_options, apart = options, chosen_dims(header, options)
        arrays: dict[str, Array] = {}
        short: dict[str, list[str]] = {}
        for coordinates, variables in _views(header):
            options = _with_time(header, stated_options, coordinates)
            stated = _stated_roles(coordinates)
            for path, stored in variables.items():
                dims = named_dims(header, stored, options)
                roles = _roles(dims, options, apart, stated, header)
                _require_not_time(dims, roles, apart, header)
                arrays[path] = array_of(path, stored, roles)
                short.setdefault(path.rpartition("/")[2], []).append(path)
        unique = {n: arrays[p[0]] for n, p in short.items() if len(p) == 1}
        return {**unique, **arrays}

    @classmethod
    def times(
        cls, header: FileHeader, group: str, options: CampaignOptions, fields: Iterable[str] = ()
    ) -> StoredArray | None:
        """Return the vector named like the sample dim, else a scalar with such a name.

        Raises:
            DataError: fields of several groups have different times.
        """
        fields = list(fields)
        options = _with_time(header, options, _coordinates(header, next(iter(fields), "")))
        names = [options.sample_dim, *(TIME_NAMES if options.sample_dim == "time" else ())]
        dims = {d for v in header.variables.values() for d in named_dims(header, v, options)}
        # The user's dim is compared as written, common names also in capitals (`Time` of WRF).
        candidates = [
            path
            for path, stored in header.variables.items()
            if path.rpartition("/")[2].lower() in names or path.rpartition("/")[2] in names
            if len(stored.shape) <= 1
        ]
        shapes = {path: header.variables[path].shape for path in candidates}
        # cfgrib writes a scalar `step` beside the times, or a scalar `time` beside the steps: the
        # vector of a dim comes first, and of several that of the sample dim.
        candidates.sort(
            key=lambda path: (
                len(shapes[path]) != 1 or path.rpartition("/")[2] not in dims,
                path.rpartition("/")[2] != options.sample_dim,
                len(shapes[path]) != 1,
            )
        )
        # Most files have no groups.
        if not any("/" in path for path in (*candidates, *fields)):
            return header.get(candidates[0]) if candidates else None
        # Fields of one group and scales have the same times.
        fields = list(
            {
                (
                    f.rpartition("/")[0],
                    header.variables[f].scales if f in header.variables else (),
                ): f
                for f in reversed(fields)
            }.values()
        )[::-1]
        first: StoredArray | None = None
        for number, field in enumerate(fields or [""]):
            own = next((p for n in _leaves(candidates) if (p := seen(header, n, field))), "")
            times = header.get(own)
            if number and not _same_values(first, times):
                raise DataError(
                    f"{field} has other times than {fields[0]}",
                    where=str(header.path),
                    allowed="fields of one group, or with the same times",
                    fix="read each group by itself",
                )
            first = times if not number else first
        return first

    @classmethod
    def coordinate(
        cls, header: FileHeader, group: str, dim: str, field: str = ""
    ) -> StoredArray | None:
        """Return the vector named like the dim that a field sees."""
        return header.get(seen(header, dim, field, ranks=(1,)))


def _leaves(paths: Iterable[str]) -> list[str]:
    """Return the last parts of paths, each once."""
    return list(dict.fromkeys(path.rpartition("/")[2] for path in paths))


def _same_values(one: StoredArray | None, other: StoredArray | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.name == other.name:
        return True
    own, others = (np.asarray(times.points, np.float64) for times in (one, other))
    return np.array_equal(own, others, equal_nan=True) and all(
        one.attrs.get(key) == other.attrs.get(key) for key in ("units", "calendar")
    )


def seen(header: FileHeader, name: str, field: str, ranks: Sequence[int] = (0, 1)) -> str:
    """Return the path of the variable of a name that a field refers to, "" without.

    An attached dimension scale decides. Else it is looked for in the group of the field and then
    in those around it, never in one beside it (NetCDF Users Guide, "Groups"). Other HDF5 has no
    such rule: a group that holds no field is searched too, if it is the only one.

    Args:
        header: of the file.
        name: of the dim, or of a variable, which may be a path (CF Conventions 1.12, 2.7).
        field: path of the field; "" for one of any group.
        ranks: numbers of dims that the variable may have.
    """
    if name.startswith("/"):
        path = name.removeprefix("/")
        return path if path in header.variables else ""
    leaf = name.rpartition("/")[2]
    paths = {
        path: len(stored.shape)
        for path, stored in header.variables.items()
        if path.rpartition("/")[2] == leaf and len(stored.shape) in ranks
    }
    stored = header.variables.get(field)
    for scale in () if stored is None else stored.scales:
        if scale.rpartition("/")[2] == name:
            return scale if scale in paths else ""
    folder = field.rpartition("/")[0]
    while True:
        path = posixpath.normpath(f"{folder}/{name}") if folder else name
        if path in paths:
            return path
        if not folder:
            break
        folder = folder.rpartition("/")[0]
    if not paths or leaf != name:
        return ""
    auxiliary = auxiliary_names(header) if max(paths.values()) > 1 else set()
    of_fields = {
        p.rpartition("/")[0]
        for p, v in header.variables.items()
        if len(v.shape) > 1 and p not in auxiliary
    }
    apart = [p for p in paths if not stored or p.rpartition("/")[0] not in of_fields]
    return apart[0] if len(apart) == 1 else ""


def named_dims(
    header: FileHeader, stored: StoredArray, options: CampaignOptions
) -> tuple[str, ...]:
    """Return the names of a variable's dims: the user's if given for its rank, else the file's.

    Raises:
        DataError: the user's names for this variable do not match its rank.
    """
    where = f"{header.path}: variable {stored.name}"
    wanted = options.dims
    if isinstance(wanted, Mapping):
        wanted = wanted.get(stored.name, wanted.get(stored.name.rpartition("/")[2]))
        if wanted is not None and len(wanted) != len(stored.shape):
            raise DataError(
                f"dims {list(wanted)} do not fit its shape {stored.shape}",
                where=where,
                allowed=f"{len(stored.shape)} names",
            )
    if wanted is not None and len(wanted) == len(stored.shape):
        return tuple(wanted)
    return stored.dims


def _coordinates(header: FileHeader, field: str) -> dict[str, StoredArray]:
    """Return {name: vector} of the vectors that a field sees, of all in a file without groups."""
    vectors = {p: v for p, v in header.variables.items() if len(v.shape) == 1}
    if not field or not any("/" in path for path in vectors):
        return {p.rpartition("/")[2]: v for p, v in vectors.items()}
    paths = {name: seen(header, name, field, ranks=(1,)) for name in _leaves(vectors)}
    return {name: vectors[path] for name, path in paths.items() if path}


def _views(header: FileHeader) -> Iterator[tuple[dict[str, StoredArray], dict[str, StoredArray]]]:
    """Yield the coordinates by name, and the arrays by path, of fields that see the same."""
    views: dict[tuple[str, tuple[str, ...]], dict[str, StoredArray]] = {}
    grouped = any("/" in path for path in header.variables)
    for path, stored in header.variables.items():
        if stored.shape:
            key = (path.rpartition("/")[0], stored.scales) if grouped else ("", ())
            views.setdefault(key, {})[path] = stored
    for variables in views.values():
        yield _coordinates(header, next(iter(variables))), variables


def roles_of_dims(header: FileHeader, options: CampaignOptions) -> dict[str, Role]:
    """Return {dim: role} of all dims, by the coordinates that the arrays of their groups see."""
    roles: dict[str, Role] = {}
    for coordinates, variables in _views(header):
        named = (named_dims(header, v, options) for v in variables.values())
        dims = list(dict.fromkeys(d for names in named for d in names))
        here = roles_of(dims, {name: v.attrs for name, v in coordinates.items()})
        # A group without the coordinate of a dim says less than one with it.
        roles |= {d: r for d, r in here.items() if d not in roles or d in coordinates}
    return roles


def _with_time(
    header: FileHeader, options: CampaignOptions, coordinates: Mapping[str, StoredArray]
) -> CampaignOptions:
    """Return the options with the sample dim that CF metadata state.

    A vector whose attributes make it a time counts the samples, whatever its name; names decide
    where no dim has such a coordinate. Two of them cannot both: `data.sample_dim` has to say which.
    """
    if options.sample_dim != "time":
        return options
    times = {n for n, v in coordinates.items() if role_by_metadata(v.attrs) == "time"}
    if not times:
        return options
    # Only dims that fields use: a file may hold further vectors of times that count no samples,
    # such as the starts of forecasts.
    used = {
        d for v in header.variables.values() if v.shape for d in named_dims(header, v, options)
    } - set(options.grid or ())
    stated = sorted(times & used)
    if len(stated) == 1 and stated[0] != "time":
        return replace(options, sample_dim=stated[0])
    if len(stated) > 1 and "time" not in stated:
        raise DataError(
            f"the dims {' and '.join(stated)} are both times",
            where=str(header.path),
            fix=f"data.sample_dim={stated[0]}",
        )
    return options


NEVER_LEARNED = ("coordinate", "bounds", "climatology bounds", "grid mapping", "mesh")


def auxiliary_names(header: FileHeader) -> set[str]:
    """Return the names of variables that place or weigh others, by CF attributes and names."""
    roles = roles_of_variables(
        {path: stored.attrs for path, stored in header.variables.items()},
        {path: len(stored.shape) for path, stored in header.variables.items()},
    )
    own = {path for path, role in roles.items() if role in NEVER_LEARNED}
    # A thickness of cells may be learned, unless another variable names it as its measure.
    named = {
        name
        for name, role in references(stored.attrs for stored in header.variables.values())
        if role in (*NEVER_LEARNED, "cell measure")
    }
    return own | {path for path in header.variables if path.rpartition("/")[2] in named}


def chosen_dims(header: FileHeader, options: CampaignOptions) -> frozenset[str]:
    """Return the dims of which one entry is selected, or whose entries become channels.

    Raises:
        DataError: a selected dim is none of the file's, or counts its samples; or no dim is
            vertical.
    """
    selected = frozenset(options.select or ())
    if not selected and options.levels == "dim":
        return frozenset()
    named = (named_dims(header, v, options) for v in header.variables.values() if v.shape)
    dims = list(dict.fromkeys(d for names in named for d in names))
    wrong = sorted((selected - set(dims)) | (selected & {options.sample_dim}))
    if wrong:
        raise DataError(
            f"no dim {wrong[0]!r} to select an entry of",
            where=str(header.path),
            allowed=", ".join(d for d in dims if d != options.sample_dim),
            fix="data.select",
        )
    if options.levels == "dim":
        return selected
    levels = {d for d, role in roles_of_dims(header, options).items() if role == "vertical"}
    if not levels:
        raise DataError(
            f"no dim is vertical among {', '.join(dims)}",
            where=str(header.path),
            fix="state axis: Z on its coordinate, or leave out data.levels",
        )
    return selected | levels


def _require_not_time(
    dims: Sequence[str], roles: Sequence[str], apart: frozenset[str], header: FileHeader
) -> None:
    for dim, role in zip(dims, roles, strict=True):
        if role == TIME and dim in apart:
            raise DataError(
                f"{dim} counts the samples, so that no entry of it can be selected",
                where=str(header.path),
                fix="data.select",
            )


def _stated_roles(coordinates: Mapping[str, StoredArray]) -> dict[str, str]:
    """Return {dim: role} as the attributes of the coordinates state them."""
    # A coordinate variable has the name of its dim (CF, section 5). An auxiliary coordinate along
    # another dim says nothing about a dim that shares its name.
    own = {name: v.attrs for name, v in coordinates.items() if v.dims == (name,)}
    roles = {name: role_by_metadata(attributes) for name, attributes in own.items()}
    return {name: role for name, role in roles.items() if role}


def _roles(
    dims: Sequence[str],
    options: CampaignOptions,
    apart: frozenset[str],
    stated: Mapping[str, str],
    header: FileHeader,
) -> list[str]:
    """Return the role of each dim by the attributes of its coordinate, else by its name.

    Raises:
        DataError: several names are those of a time, and nothing states which is.
    """
    time = options.sample_dim
    if time == "time" and time not in dims:
        like_time = [d for d in dims if d.lower() in TIME_NAMES]
        time = like_time[0] if len(like_time) == 1 else time
        # A variable of times alone, such as valid dates by `date` and `step`, is no field and must
        # not refuse the file.
        if len(like_time) > 1 and len(dims) > len(like_time):
            raise DataError(
                f"the dims {' and '.join(like_time)} are both times by their names",
                where=str(header.path),
                fix=f"data.sample_dim={like_time[0]}",
            )
    space = set(options.grid or ())
    roles = []
    for dim in dims:
        if dim == time:
            roles.append(TIME)
        elif dim in apart:
            roles.append(COMPONENT)
        # A row belongs to one number of a simulation: a second such dim, `expver` after `number`,
        # is left as a dim of the grid.
        elif dim not in space and SIMULATION not in roles and _counts_simulations(dim, stated):
            roles.append(SIMULATION)
        elif dim.lower() in COMPONENT_NAMES and dim not in space and dim not in stated:
            roles.append(COMPONENT)
        else:
            roles.append(dim)
    return roles


def _counts_simulations(dim: str, stated: Mapping[str, str]) -> bool:
    # A time beside the one that counts samples is the start of each forecast.
    return stated.get(dim, "simulation") in ("simulation", "time") and (
        dim in stated or dim.lower() in SIMULATION_NAMES
    )


def is_lead(dim: str, coordinate: StoredArray | None) -> bool:
    """Return whether a dim counts the time since the start of a forecast, by CF or its name."""
    stated = {} if coordinate is None else coordinate.attrs
    if str(stated.get("standard_name", "")) == "forecast_period":
        return True
    return role_by_metadata(stated) is None and dim.lower() in (*TIME_NAMES, *LEAD_NAMES)


def array_of(
    path: str, stored: StoredArray, roles: Sequence[str], units: str | None = None
) -> Array:
    """Return the `Array` of a stored array with the given roles, and its unit by default."""
    return Array(
        path,
        stored.shape,
        tuple(roles),
        str(stored.attrs.get("units", "")) if units is None else units,
        str(stored.attrs.get("long_name", "")),
    )


def missing_field(name: str, header: FileHeader, arrays: Mapping[str, object]) -> DataError:
    """Return the error for a variable that a file does not have."""
    for path in header.variables:
        if path.rpartition("/")[2] == name and (dims := constant_dims(header, path)):
            return DataError(
                f"constant along {', '.join(dims)} (dim_varying), which it is stored without",
                where=f"{header.path}: variable {path}",
                allowed="fields that are stored along all space dims",
                fix=f"leave out {name}, or store it along {', '.join(dims)}",
            )
    near = nearest_name(name, arrays)
    return DataError(
        f"variable {name!r} not found",
        where=str(header.path),
        allowed=", ".join(arrays),
        fix=f"did you mean {near}?" if near else "",
    )
