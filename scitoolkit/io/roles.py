"""Roles of dims: CF metadata first, names last.

The one table of what a dim means. Both roads into files, campaigns of stored arrays and opened
xarray datasets, ask it. Sources: CF Conventions 1.12, section 4 (axes) and appendix A; names of
ERA5 (`valid_time`), NEMO (`time_counter`), ROMS (`ocean_time`), WRF (`Time`, `XTIME`), CMIP6
(`member_id`), cfgrib (`number`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scitoolkit.core.data_facts import Role

TIME_NAMES = (
    "time",
    "t",
    "times",
    "valid_time",
    "time_counter",
    "ocean_time",
    "forecast_time",
    "xtime",
    "datetime",
    "date",
    "step",
    "steps",
    "timestep",
    "time_step",
    "tstep",
    "frame",
    "snapshot",
)
LEAD_NAMES = ("lead", "lead_time", "leadtime", "forecast_period", "prediction_timedelta", "fhour")
SIMULATION_NAMES = (
    "simulation",
    "sim",
    "traj",
    "trajectory",
    "n_traj",
    "member",
    "member_id",
    "ensemble",
    "ensemble_member",
    "realization",
    "number",
    "expver",
    "run",
    "case",
    "sample",
    "samples",
    "batch",
)
COMPONENT_NAMES = (
    "c",
    "comp",
    "component",
    "components",
    "channel",
    "channels",
    "vector",
    "tensor_index",
)
CELL_NAMES = ("node", "nodes", "num_nodes", "nele", "num_elem", "ncol", "atom", "atoms", "particle")
LATITUDE_NAMES = ("lat", "latitude", "nav_lat", "lats", "latitudes", "xlat", "tlat", "geolat")
LONGITUDE_NAMES = ("lon", "longitude", "nav_lon", "lons", "longitudes", "xlong", "tlong", "geolon")
VERTICAL_NAMES = ("level", "lev", "plev", "depth", "height", "altitude", "pressure_level")
LATITUDE_UNITS = {"degrees_north", "degree_north", "degrees_n", "degree_n", "degreesn", "degreen"}
LONGITUDE_UNITS = {"degrees_east", "degree_east", "degrees_e", "degree_e", "degreese", "degreee"}
STANDARD_NAMES: dict[str, Role] = {
    "time": "time",
    "latitude": "latitude",
    "grid_latitude": "latitude",
    "longitude": "longitude",
    "grid_longitude": "longitude",
    "realization": "simulation",
    "air_pressure": "vertical",
    "depth": "vertical",
    "height": "vertical",
    "altitude": "vertical",
    "atmosphere_hybrid_sigma_pressure_coordinate": "vertical",
    "ocean_s_coordinate": "vertical",
}
AXES: dict[str, Role] = {"t": "time", "z": "vertical", "e": "simulation"}
ROLE_NAMES: tuple[tuple[tuple[str, ...], Role], ...] = (
    (TIME_NAMES, "time"),
    (LATITUDE_NAMES, "latitude"),
    (LONGITUDE_NAMES, "longitude"),
    (VERTICAL_NAMES, "vertical"),
    (SIMULATION_NAMES, "simulation"),
    (COMPONENT_NAMES, "component"),
)


def role_by_metadata(attrs: Mapping[str, Any]) -> Role | None:
    """Return the role that CF attributes of a coordinate state, None if they state none.

    Example:
        >>> role_by_metadata({"units": "hours since 2000-01-01"})
        'time'
        >>> role_by_metadata({"units": "degrees_north"}), role_by_metadata({"units": "m"})
        ('latitude', None)
    """
    return role_and_attribute(attrs)[0]


def role_and_attribute(attrs: Mapping[str, Any]) -> tuple[Role | None, str]:
    """Return the role that attributes of a coordinate state, and which of them; (None, "") if none.

    Example:
        >>> role_and_attribute({"units": "1", "axis": "Z"})
        ('vertical', 'axis')
    """
    # Units first: by them alone CF identifies latitude (4.1), longitude (4.2) and time (4.4), while
    # standard names and axes are optional.
    units = _text(attrs.get("units"))
    if " since " in f"{units} ":
        return "time", "units"
    if units in LATITUDE_UNITS:
        return "latitude", "units"
    if units in LONGITUDE_UNITS:
        return "longitude", "units"
    if (stated := STANDARD_NAMES.get(_text(attrs.get("standard_name")))) is not None:
        return stated, "standard_name"
    # X and Y do not tell a longitude from a length. E, of ensembles, is written but not in CF.
    role = AXES.get(_text(attrs.get("axis")))
    return role, "axis" if role else ""


def _text(value: object) -> str:
    return (
        value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
    ).lower()


def role_by_name(name: str) -> Role:
    """Return the role that is usual for a name, `space` for others; case does not matter."""
    key = name.rpartition("/")[2].lower()
    return next((role for names, role in ROLE_NAMES if key in names), "space")


def roles_of(dims: Sequence[str], attributes: Mapping[str, Mapping[str, Any]]) -> dict[str, Role]:
    """Return the role of each dim of an array.

    A coordinate that is a time by its attributes is the time; a dim that is merely called `step`
    or `date` beside it is not a second one, but is left as a dim of unknown role, `space`.

    Args:
        dims: names of the dims.
        attributes: attributes of the coordinates that have any.

    Example:
        >>> roles_of(["valid_time", "x"], {"valid_time": {"units": "days since 1900-01-01"}})
        {'valid_time': 'time', 'x': 'space'}
    """
    stated = {d: role_by_metadata(attributes.get(d, {})) for d in dims}
    roles = {d: role or role_by_name(d) for d, role in stated.items()}
    if "time" in stated.values():
        for dim, role in roles.items():
            if role == "time" and stated[dim] != "time":
                roles[dim] = "space"
    return roles
