"""Format of VTK files and others of meshes, through meshio; regular grids are read as grids."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.formats.base import Format, file_head

if TYPE_CHECKING:
    import xarray as xr

_STARTS = (b"# vtk DataFile", b"<VTKFile", b"<?xml")
_TYPE = re.compile(rb'<VTKFile[^>]*\btype="(\w+)"')
_ALLOWED = "legacy VTK, .vtu, .xdmf of one time"
_SAME = 1e-6
"""Distance of two points on one line of a grid, of the extent."""


class Meshes(Format):
    """VTK (`.vtk`, `.vtu`) and XDMF, one time a file, as OpenFOAM and others export them.

    Points, or centres of cells, that fill a regular grid are the dims `z`, `y`, `x`. Values of
    others are on a mesh, for graphs.
    """

    name: ClassVar[str] = "mesh"
    requires: ClassVar[tuple[str, ...]] = ("meshio",)
    extra: ClassVar[str] = "graphs"

    @classmethod
    def guess(cls, path: Path) -> float:
        """Return 1 for the first bytes of VTK, also in XML, or of XDMF."""
        head = file_head(path, 512).lstrip()
        if not head.startswith(_STARTS) and not head.startswith(b"<Xdmf"):
            return 0.0
        mesh = b"<VTKFile" in head or b"<Xdmf" in head or head.startswith(_STARTS[0])
        return float(mesh)

    @classmethod
    def open_dataset(cls, path: Path, *, chunks: Any = None, decode: bool = True) -> xr.Dataset:
        """Read the fields into memory.

        Raises:
            DataError: a file that meshio does not read, or that names others.
        """
        import xarray as xr

        mesh = _read(path)
        variables: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, str]]] = {}
        coordinates: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
        points = np.asarray(mesh.points, np.float64)
        centres = [points[block.data].mean(1) for block in mesh.cells]
        of_cells = {n: np.concatenate(parts) for n, parts in mesh.cell_data.items()}
        suffix = "_cell" if mesh.point_data and of_cells else ""
        for places, fields, end in (
            (points, dict(mesh.point_data), ""),
            (np.concatenate(centres) if centres else points, of_cells, suffix),
        ):
            if not fields:
                continue
            grid = _Grid.of(places)
            for name, values in fields.items():
                array = np.asarray(values)
                array = array[:, 0] if array.shape[1:] == (1,) else array
                extra = [f"component_{k}" if k else "component" for k in range(array.ndim - 1)]
                if grid is None:
                    about = {"mesh": path.name, "location": "face" if end else "node"}
                    variables[name] = ((f"points{end}", *extra), array, about)
                    continue
                own = tuple(f"{dim}{end}" for dim in grid.axes)
                shape = (*map(len, grid.axes.values()), *array.shape[1:])
                variables[name] = ((*own, *extra), array[grid.order].reshape(shape), {})
                for dim, line in grid.axes.items():
                    coordinates[f"{dim}{end}"] = ((f"{dim}{end}",), line)
        dataset = xr.Dataset(variables, coordinates)
        return dataset if chunks is None else dataset.chunk(chunks)


class _Grid:
    """Points that fill a regular grid.

    Attributes:
        axes: coordinates along the dims with more than one point, the slowest first.
        order: number of the point at each place of the grid, in C order.
    """

    def __init__(self, axes: dict[str, np.ndarray], order: np.ndarray) -> None:
        self.axes, self.order = axes, order

    @classmethod
    def of(cls, points: np.ndarray) -> _Grid | None:
        """Return the grid of points, (points, 2 or 3); None if they fill none."""
        axes, numbers = {}, []
        for dim, along in reversed(list(zip("xyz", points.T, strict=False))):
            ordered = np.sort(along)
            extent = float(np.ptp(ordered))
            starts = np.concatenate([[True], np.diff(ordered) > _SAME * max(extent, 1e-300)])
            lines = ordered[starts]
            if len(lines) > 1:
                middle = 0.5 * (lines[1:] + lines[:-1])
                axes[dim] = lines
                numbers.append(np.searchsorted(middle, along))
        shape = tuple(len(lines) for lines in axes.values())
        if not shape or np.prod(shape, dtype=np.float64) != len(points):
            return None
        place = np.ravel_multi_index(numbers, shape)
        order = np.argsort(place, kind="stable")
        return cls(axes, order) if (place[order] == np.arange(len(points))).all() else None


def _read(path: Path) -> Any:
    import meshio

    head = file_head(path, 4096)
    if b'type="Collection"' in head or b"<vtkMultiBlock" in head:
        raise DataError(
            "names other files instead of values",
            where=str(path),
            fix=f"read the files that it names: '{path.parent}/*.vtu'",
        )
    kind = "vtu" if b"<VTKFile" in head else "xdmf" if b"<Xdmf" in head else "vtk"
    stated = _TYPE.search(head)
    if kind == "vtu" and stated is not None and stated[1] != b"UnstructuredGrid":
        name = stated[1].decode(errors="replace")
        raise DataError(
            f"XML of VTK of the type {name} is not read",
            where=str(path),
            allowed=_ALLOWED,
            fix=f"pyvista.read('{path.name}').cast_to_unstructured_grid().save('{path.stem}.vtu')",
        )
    try:
        # `meshio.read` would print the cause of an error and leave it out of its exception.
        return getattr(meshio, kind).read(path)
    except Exception as error:  # each of its parsers has other errors
        text = " ".join(str(error).split())[:200]
        raise DataError(
            f"meshio does not read this file ({text or type(error).__name__})",
            where=str(path),
            allowed=_ALLOWED,
            fix="write it again, as legacy VTK or .vtu",
        ) from None
