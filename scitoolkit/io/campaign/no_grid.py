"""Values on no grid: of programs that are recognised, and along dims that number cells.

Neighbours in such an array are none in space, so that a convolution over it would learn from the
order of numbers. Sources: yt `frontends/flash`, `athena_pp` and `gadget`; PyFR 2 `writers/native`;
AMBER NetCDF 1.0 B; Exodus II (SAND92-2137); ODIM_H5 2.4.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign_layout import Array, CampaignLayout, CampaignOptions
from scitoolkit.io.campaign.headers import FileHeader, StoredArray
from scitoolkit.io.roles import CELL_NAMES, role_by_metadata

_GRAPH = "write positions and neighbours as a graph in .npz, for scitoolkit init graph"
_BLOCKS = "fields in blocks of a possibly refined mesh"
_UNIFORM = "write a uniform grid: yt.load(FILE).covering_grid(LEVEL, ...), one file per time"
_TABLE = range(3, 9)
"""Nodes of a cell, or cells around one, in the tables of meshes."""


class Program(NamedTuple):
    """A program whose files hold no grid as they are.

    Attributes:
        name: of the program.
        wrote: returns whether it wrote a file.
        holds: what its files hold.
        fix: how to make a file that can be read.
    """

    name: str
    wrote: Callable[[FileHeader], bool]
    holds: str
    fix: str


PROGRAMS = (
    Program(
        "FLASH", lambda h: {"refine level", "node type"} <= set(h.variables), _BLOCKS, _UNIFORM
    ),
    Program(
        "Athena++", lambda h: {"NumMeshBlocks", "VariableNames"} <= set(h.attrs), _BLOCKS, _UNIFORM
    ),
    Program(
        "GADGET, AREPO or SWIFT",
        lambda h: "Header/NumPart_ThisFile" in h.attrs,
        "particles in no order",
        f"yt.load(FILE).arbitrary_grid(LEFT, RIGHT, DIMS), one file per time; or {_GRAPH}",
    ),
    Program(
        "AMBER or LAMMPS",
        lambda h: "AMBER" in _text(h.attrs.get("Conventions")),
        "atoms in no order",
        "extended XYZ with energies and forces, for scitoolkit init potential; or " + _GRAPH,
    ),
    Program(
        "PyFR",
        lambda h: any(
            re.fullmatch(r"(.*/)?soln_(tri|quad|tet|hex|pri|pyr)_p\d+", n) for n in h.variables
        ),
        "points of the elements of a mesh",
        "pyfr export volume MESH FILE OUT.vtu",
    ),
    Program(
        "Exodus (MOOSE, Nalu, Sierra)",
        lambda h: "api_version" in h.attrs and any(n.startswith("connect") for n in h.variables),
        "nodes and elements of a mesh",
        "meshio convert FILE OUT.vtu; or " + _GRAPH,
    ),
    Program(
        "ODIM_H5",
        lambda h: _text(h.attrs.get("Conventions")).startswith("ODIM_H5"),
        "packed numbers whose gain and offset are attributes of another group",
        "write gain * data + offset with a time as NetCDF; xradar.io.open_odim_datatree reads them",
    ),
)


class NoGrid(CampaignLayout):
    """Base of files that are refused by the name of their program."""

    name: ClassVar[str] = "no grid"

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether one of the programs wrote the file."""
        return any(program.wrote(header) for program in PROGRAMS)

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Raise an error that explains how to convert the file.

        Raises:
            DataError: always.
        """
        program = next(program for program in PROGRAMS if program.wrote(header))
        raise DataError(
            f"{program.name}: {program.holds} are not supported as a grid",
            where=str(header.path),
            fix=program.fix,
        )


def require_grid(header: FileHeader, array: Array, options: CampaignOptions) -> None:
    """Refuse values on numbered cells or nodes, whose neighbours in the array are none in space.

    Raises:
        DataError: with the dim, unless `options.grid` names it.
    """
    stored = header.variables.get(array.path)
    space = [r for r in array.roles if not r.startswith("@")]
    asked = set(options.grid or ())
    if stored is None or not space or set(space) <= asked:
        return
    numbered = [d for d in space if d not in asked and _numbers_cells(header, d, stored)]
    stated = str(stored.attrs.get("CDI_grid_type", "")).lower() == "unstructured" or (
        {"mesh", "location"} <= set(stored.attrs)
    )
    if not numbered and not stated:
        return
    dim = (numbered or space)[-1]
    raise DataError(
        f"an unstructured mesh: {dim} numbers its cells",
        where=f"{header.path}: variable {array.path}",
        allowed="rows on a grid with a dim for each direction",
        fix="interpolate to a grid, or scitoolkit init graph on a file with the mesh by UGRID, or "
        "with cells and neighbours as the nodes and edges of a graph in .npz; "
        f"data.grid=[{dim}] if its entries are next to each other",
    )


def _numbers_cells(header: FileHeader, dim: str, stored: StoredArray) -> bool:
    """Return whether the places along a dim are cells, by coordinates, tables, or the name."""
    along = [v for v in header.variables.values() if _only_along(v, dim)]
    if {"latitude", "longitude"} <= {role_by_metadata(v.attrs) for v in along}:
        return True
    if any(v.name.rpartition("/")[2] == dim and v.dims == (dim,) for v in along):
        return False  # a coordinate: the places are in the order of its values
    # `node_x` and `node_y`, `coordx` and `coordy`: two directions along one dim.
    leaves = {v.name.rpartition("/")[2].lower() for v in along if np.dtype(v.dtype).kind == "f"}
    pairs = any(n.endswith("x") and f"{n[:-1]}y" in leaves for n in leaves)
    return pairs or _in_table(header, dim, stored) or dim.lower() in CELL_NAMES


def _only_along(stored: StoredArray, dim: str) -> bool:
    """Return whether a variable varies along one dim only, whatever dims of one entry it has."""
    longer = [d for d, n in zip(stored.dims, stored.shape, strict=True) if n > 1]
    return longer == [dim]


def _in_table(header: FileHeader, dim: str, stored: StoredArray) -> bool:
    """Return whether a table of whole numbers has the nodes or neighbours of each place."""
    for table in header.variables.values():
        if len(table.dims) != 2 or dim not in table.dims or np.dtype(table.dtype).kind not in "iu":
            continue
        other = 1 - table.dims.index(dim)
        if table.dims[other] not in (dim, *stored.dims) and table.shape[other] in _TABLE:
            return True
    return False


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
