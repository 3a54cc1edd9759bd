"""Names, coordinates and roles of the dims of a file, by CF metadata first and names last.

Sources: CF Conventions 1.12; the NetCDF Users Guide, "Groups".
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign_layout import COMPONENT, SIMULATION, TIME, CampaignOptions
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


def last_parts(paths: Iterable[str]) -> list[str]:
    """Return the last parts of paths, each once."""
    return list(dict.fromkeys(path.rpartition("/")[2] for path in paths))


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


def seen_coordinates(header: FileHeader, field: str) -> dict[str, StoredArray]:
    """Return {name: vector} of the vectors that a field sees, of all in a file without groups."""
    vectors = {p: v for p, v in header.variables.items() if len(v.shape) == 1}
    if not field or not any("/" in path for path in vectors):
        return {p.rpartition("/")[2]: v for p, v in vectors.items()}
    paths = {name: seen(header, name, field, ranks=(1,)) for name in last_parts(vectors)}
    return {name: vectors[path] for name, path in paths.items() if path}


def views_of(header: FileHeader) -> Iterator[tuple[dict[str, StoredArray], dict[str, StoredArray]]]:
    """Yield the coordinates by name, and the arrays by path, of fields that see the same."""
    views: dict[tuple[str, tuple[str, ...]], dict[str, StoredArray]] = {}
    grouped = any("/" in path for path in header.variables)
    for path, stored in header.variables.items():
        if stored.shape:
            key = (path.rpartition("/")[0], stored.scales) if grouped else ("", ())
            views.setdefault(key, {})[path] = stored
    for variables in views.values():
        yield seen_coordinates(header, next(iter(variables))), variables


def roles_of_dims(header: FileHeader, options: CampaignOptions) -> dict[str, Role]:
    """Return {dim: role} of all dims, by the coordinates that the arrays of their groups see."""
    roles: dict[str, Role] = {}
    for coordinates, variables in views_of(header):
        named = (named_dims(header, v, options) for v in variables.values())
        dims = list(dict.fromkeys(d for names in named for d in names))
        here = roles_of(dims, {name: v.attrs for name, v in coordinates.items()})
        # A group without the coordinate of a dim says less than one with it.
        roles |= {d: r for d, r in here.items() if d not in roles or d in coordinates}
    return roles


def with_time(
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


def require_not_time(
    dims: Sequence[str], roles: Sequence[str], apart: frozenset[str], header: FileHeader
) -> None:
    """Raise DataError if an entry of the dim that counts the samples is selected."""
    for dim, role in zip(dims, roles, strict=True):
        if role == TIME and dim in apart:
            raise DataError(
                f"{dim} counts the samples, so that no entry of it can be selected",
                where=str(header.path),
                fix="data.select",
            )


def stated_roles(coordinates: Mapping[str, StoredArray]) -> dict[str, str]:
    """Return {dim: role} as the attributes of the coordinates state them."""
    # A coordinate variable has the name of its dim (CF, section 5). An auxiliary coordinate along
    # another dim says nothing about a dim that shares its name.
    own = {name: v.attrs for name, v in coordinates.items() if v.dims == (name,)}
    roles = {name: role_by_metadata(attributes) for name, attributes in own.items()}
    return {name: role for name, role in roles.items() if role}


def assigned_roles(
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
