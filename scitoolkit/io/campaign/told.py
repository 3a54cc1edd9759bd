"""What the variables and dims of a file are taken for, and why: what `inspect` tells.

Asks the same rules as the readers (`variable_roles`, `roles`), so that a user sees before a
training which variables are learned and which dim is the time. Source: CF Conventions 1.12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import h5py

from scitoolkit.io.campaign.headers import FileHeader
from scitoolkit.io.roles import role_and_attribute, roles_of
from scitoolkit.io.variable_roles import explained_roles

FIELD = "field"
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"


@dataclass(frozen=True)
class Told:
    """What a variable or dim is taken for.

    Attributes:
        role: `field`, or what it describes of others; of a dim, as in `roles.Role`.
        because: the attribute or name that states it.
    """

    role: str
    because: str


def roles_of_file(header: FileHeader) -> tuple[dict[str, Told], dict[str, Told]]:
    """Return the roles of the variables by path, and of the dims of the fields by name.

    Args:
        header: of the file; its values are not read.

    Example:
        >>> from pathlib import Path
        >>> from scitoolkit.io.campaign.headers import Schema, StoredArray
        >>> lat = StoredArray("lat", (3,), ("lat",), {"units": "degrees_north"})
        >>> u = StoredArray("u", (9, 3), ("t", "lat"))
        >>> header = FileHeader(Path("u.nc"), Schema("hdf5", {"lat": lat, "u": u}, {}), {})
        >>> variables, dims = roles_of_file(header)
        >>> variables["lat"].because, dims["t"].role
        ('units degrees_north', 'time')
    """
    attributes = {path: stored.attrs for path, stored in header.variables.items()}
    ranks = {path: len(stored.shape) for path, stored in header.variables.items()}
    variables = {}
    for path, (role, because) in explained_roles(attributes, ranks, [header.attrs]).items():
        stored = header.variables[path]
        if not role and stored.dims == (path.rpartition("/")[2],):
            role, because = "coordinate", "it has the name of its dim"
        elif not role and not stored.shape:
            role, because = "scalar", "it has no dims"
        elif not role:
            role, because = FIELD, "no attribute or name says that it describes others"
        variables[path] = Told(role, because)
    return variables, _dims(header, variables)


def _dims(header: FileHeader, variables: Mapping[str, Told]) -> dict[str, Told]:
    # A coordinate variable has the name of its dim (CF, section 5).
    coordinates: dict[str, Mapping[str, Any]] = {
        stored.dims[0]: stored.attrs
        for path, stored in header.variables.items()
        if stored.dims == (path.rpartition("/")[2],)
    }
    told: dict[str, Told] = {}
    for path, stored in header.variables.items():
        if variables[path].role != FIELD:
            continue
        for dim, role in roles_of(stored.dims, coordinates).items():
            stated, attribute = role_and_attribute(coordinates.get(dim, {}))
            if stated == role:
                value = coordinates[dim][attribute]
                told[dim] = Told(role, f"{attribute} {value} of its coordinate")
            elif role == "space":
                told.setdefault(dim, Told(role, "elimination: nothing says more"))
            else:
                told.setdefault(dim, Told(role, "its name"))
    return told


def arrays_without_numbers(header: FileHeader) -> list[str]:
    """Return the names of the arrays of a file that are never read, such as text and compounds."""
    return [name for name in _names(header) if name not in header.variables]


def _names(header: FileHeader) -> list[str]:
    """Return the names of all arrays of a file, of whatever type."""
    if not header.format.native_hdf5:
        with header.format.open_dataset(header.path, decode=False) as dataset:
            return [str(name) for name in dataset.variables]
    names: list[str] = []

    def note(name: str, item: object) -> None:
        # NetCDF stores a dim without coordinates as an array without values.
        if isinstance(item, h5py.Dataset) and not _is_bare_dim(item):
            names.append(name)

    with h5py.File(header.path, "r") as file:
        file.visititems(note)
    return names


def _is_bare_dim(item: h5py.Dataset) -> bool:
    name = item.attrs.get("NAME", b"")
    return isinstance(name, bytes) and name.startswith(_NO_VARIABLE)
