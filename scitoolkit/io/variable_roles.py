"""Which variables of a file describe others: coordinates, bounds, grids, masks of flags.

Such variables place, weigh or select the values of others, so that a small error in them is large
in every result. They are recognised by the attributes of all objects of a file, also of variables
of integers and of groups. Sources: CF Conventions 1.12 (sections 4, 5, 7, appendices A and D),
UGRID 1.0, SGRID 0.3; names of latitude and longitude in `roles`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from scitoolkit.io.roles import LATITUDE_NAMES, LONGITUDE_NAMES, role_by_metadata

REFERENCES = {
    "coordinates": "coordinate",
    "bounds": "bounds",
    "climatology": "climatology bounds",
    "edges": "bounds",
    "grid_mapping": "grid mapping",
    "formula_terms": "formula term",
    "cell_measures": "cell measure",
    "ancillary_variables": "ancillary",
    "geometry": "geometry",
    "nodes": "geometry",
    "node_count": "geometry",
    "part_node_count": "geometry",
    "interior_ring": "geometry",
    "mesh": "mesh",
    "location_index_set": "mesh",
    "coordinate_interpolation": "tie point",
    "tie_point_mapping": "tie point",
    "interpolation_parameters": "tie point",
    "external_variables": "cell measure",
}
"""Attribute -> role of the variables that it names."""
# Of these, the words before a colon are keys; those of a grid mapping are variables.
_KEYED = {"formula_terms", "cell_measures", "coordinate_interpolation", "interpolation_parameters"}
# UGRID and SGRID: node_coordinates, face1_coordinates, face_node_connectivity, ...
_MESH = re.compile(r"^[a-z0-9_]+_(coordinates|connectivity)$")
_DESCRIBED_BY_NAME = re.compile(r"^(.+)_(bnds|bounds|vertices|bnd|corners)$")
_FLAGS = ("flag_values", "flag_masks", "flag_meanings")
_AXES = ("axis", "_coordinateaxistype", "coordinateaxistype", "_coordinatezispositive")
_TIMES = ("time", "times", "valid_time", "time_counter", "ocean_time", "xtime")
_STANDARD_NAMES = {
    "latitude": "coordinate",
    "longitude": "coordinate",
    "grid_latitude": "coordinate",
    "grid_longitude": "coordinate",
    "time": "coordinate",
    "forecast_reference_time": "coordinate",
    "forecast_period": "coordinate",
    "cell_area": "cell measure",
    "cell_thickness": "cell measure",
    "area_type": "flag",
    "region": "flag",
}


def roles_of_variables(
    attributes: Mapping[str, Mapping[str, Any]],
    dims: Mapping[str, int],
    groups: Iterable[Mapping[str, Any]] = (),
) -> dict[str, str]:
    """Return path -> role of each variable that describes others; data variables are absent.

    Args:
        attributes: path -> attributes of every variable of the file, whatever its type.
        dims: path -> number of dims, of the same variables.
        groups: attributes of the groups and of the file.

    Example:
        >>> roles_of_variables({"t": {"coordinates": "lat"}, "lat": {}, "q": {}},
        ...                    {"t": 2, "lat": 2, "q": 2})
        {'lat': 'coordinate'}
    """
    told = explained_roles(attributes, dims, groups)
    return {path: role for path, (role, _) in told.items() if role}


def explained_roles(
    attributes: Mapping[str, Mapping[str, Any]],
    dims: Mapping[str, int],
    groups: Iterable[Mapping[str, Any]] = (),
) -> dict[str, tuple[str, str]]:
    """Return path -> (role, reason) of all variables, ("", "") for data; see `roles_of_variables`.

    Example:
        >>> explained_roles({"t": {"coordinates": "lat"}, "lat": {}}, {"t": 2, "lat": 2})
        {'t': ('', ''), 'lat': ('coordinate', 'named by coordinates of t')}
    """
    holders = [*attributes.items(), *(("the file or a group", one) for one in groups)]
    named: dict[str, tuple[str, str]] = {}
    for holder, one in holders:
        for key, name, role in _references(one):
            named.setdefault(name, (role, f"named by {key} of {holder}"))
    leaves = {path.rpartition("/")[2] for path in attributes}
    return {
        path: named.get(path.rpartition("/")[2]) or _own_role(path, one, dims[path], leaves)
        for path, one in attributes.items()
    }


def references(attributes: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield (name, role) of each variable that an attribute names, without its group.

    Args:
        attributes: of each variable and group.
    """
    for one in attributes:
        for _, name, role in _references(one):
            yield name, role


def _references(attributes: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (attribute, name, role) of each variable that attributes name, without its group."""
    for key, value in attributes.items():
        for word in _named_by(key, value):
            yield key, word.rpartition("/")[2], _reference(key)


def _reference(key: str) -> str:
    return REFERENCES.get(key) or ("mesh" if _MESH.match(key) else "")


def _named_by(key: str, value: Any) -> list[str]:
    """Return the variables that an attribute names."""
    if not _reference(key):
        return []
    words = " ".join(_texts(value)).replace(":", ": ").split()
    if key in _KEYED:
        words = [word for word in words if not word.endswith(":")]
    return [word.rstrip(":") for word in words]


def _own_role(
    path: str, attributes: Mapping[str, Any], ndim: int, leaves: set[str]
) -> tuple[str, str]:
    """Return (role, reason) as a variable states itself, by attributes first, by its name last."""
    stated = {str(key).lower(): value for key, value in attributes.items()}
    standard = " ".join(_texts(stated.get("standard_name"))).lower().partition(" ")[0]
    if role := _STANDARD_NAMES.get(standard):
        return role, f"standard_name {standard}"
    if standard.endswith("_coordinate"):
        return "coordinate", f"standard_name {standard}"
    for key in _AXES:
        if key in stated:
            return "coordinate", f"attribute {key}"
    for key in _FLAGS:
        if key in stated:
            return "flag", f"attribute {key}"
    if "cf_role" in stated:
        return "identifier", "attribute cf_role"
    units = " ".join(_texts(stated.get("units")))
    if role_by_metadata({"units": units}):
        return "coordinate", f"units {units}"
    # `positive` alone is also the direction of a flux (CMIP6), which is data.
    if "positive" in stated and ndim == 1:
        return "coordinate", "attribute positive"
    leaf = path.rpartition("/")[2]
    # "Coordinates" are positions of particles in files of Gadget, AREPO and SWIFT.
    if leaf.lower() in (*LATITUDE_NAMES, *LONGITUDE_NAMES, *_TIMES, "coordinates"):
        return "coordinate", "its name"
    bounded = _DESCRIBED_BY_NAME.match(leaf)
    return (
        ("bounds", f"its name, beside {bounded[1]}")
        if bounded and bounded[1] in leaves
        else ("", "")
    )


def _texts(value: Any) -> list[str]:
    """Return the texts of an attribute: a str, bytes, or an array of them; numbers have none."""
    if isinstance(value, bytes):
        return [value.decode(errors="replace")]
    if isinstance(value, str):
        return [value]
    if isinstance(value, np.ndarray | list | tuple):
        return [text for one in np.asarray(value).reshape(-1).tolist() for text in _texts(one)]
    return []
