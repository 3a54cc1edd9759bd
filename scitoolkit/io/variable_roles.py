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
    named: dict[str, str] = {}
    for name, role in references((*attributes.values(), *groups)):
        named.setdefault(name, role)
    leaves = {path.rpartition("/")[2] for path in attributes}
    roles = {
        path: named.get(path.rpartition("/")[2]) or _own_role(path, one, dims[path], leaves)
        for path, one in attributes.items()
    }
    return {path: role for path, role in roles.items() if role}


def references(attributes: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield (name, role) of each variable that an attribute names, without its group.

    Args:
        attributes: of each variable and group.
    """
    for one in attributes:
        for key, value in one.items():
            for word in _named_by(key, value):
                yield word.rpartition("/")[2], _reference(key)


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


def _own_role(path: str, attributes: Mapping[str, Any], ndim: int, leaves: set[str]) -> str:
    """Return the role that a variable states itself, by attributes first and by its name last."""
    stated = {str(key).lower(): value for key, value in attributes.items()}
    standard = " ".join(_texts(stated.get("standard_name"))).lower().partition(" ")[0]
    if role := _STANDARD_NAMES.get(standard):
        return role
    if standard.endswith("_coordinate") or any(key in stated for key in _AXES):
        return "coordinate"
    if any(key in stated for key in _FLAGS):
        return "flag"
    if "cf_role" in stated:
        return "identifier"
    units = " ".join(_texts(stated.get("units")))
    # `positive` alone is also the direction of a flux (CMIP6), which is data.
    if role_by_metadata({"units": units}) or ("positive" in stated and ndim == 1):
        return "coordinate"
    name = path.rpartition("/")[2].lower()
    if name in LATITUDE_NAMES or name in LONGITUDE_NAMES or name in _TIMES:
        return "coordinate"
    bounded = _DESCRIBED_BY_NAME.match(path.rpartition("/")[2])
    return "bounds" if bounded and bounded[1] in leaves else ""


def _texts(value: Any) -> list[str]:
    """Return the texts of an attribute: a str, bytes, or an array of them; numbers have none."""
    if isinstance(value, bytes):
        return [value.decode(errors="replace")]
    if isinstance(value, str):
        return [value]
    if isinstance(value, np.ndarray | list | tuple):
        return [text for one in np.asarray(value).reshape(-1).tolist() for text in _texts(one)]
    return []
