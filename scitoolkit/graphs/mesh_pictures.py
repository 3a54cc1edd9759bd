"""Maps of fields on a mesh for a report, on a regular grid with missing values outside the mesh."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr
from matplotlib.tri import LinearTriInterpolator, Triangulation

from scitoolkit.core.results import Maps, Panel
from scitoolkit.graphs.mesh_data import MeshGeometry

CELLS = 160
"""Cells of the grid along the longer side of a mesh."""


def on_grid(shape: MeshGeometry, values: Mapping[str, np.ndarray]) -> xr.Dataset:
    """Return fields of one mesh, linear in its triangles, on a regular grid.

    Args:
        shape: a geometry of one mesh.
        values: name -> value at each node, (N,).

    Returns:
        Variables over (y, x), in mean edge lengths; NaN outside the mesh, holes included.
    """
    positions = shape.positions.astype(np.float64)
    low, high = positions.min(0), positions.max(0)
    step = float((high - low).max()) / CELLS
    x, y = (np.arange(low[k] + step / 2, high[k], step) for k in (0, 1))
    grid = Triangulation(positions[:, 0], positions[:, 1], shape.triangles)
    inside = np.meshgrid(x, y)
    fields = {
        name: (
            ("y", "x"),
            LinearTriInterpolator(grid, field.astype(np.float64))(*inside).filled(np.nan),
        )
        for name, field in values.items()
    }
    units = {"units": "mean edge lengths"}
    return xr.Dataset(fields, {"y": ("y", y, units), "x": ("x", x, units)})


def final_maps(
    shape: MeshGeometry, states: Mapping[str, np.ndarray], rival: str, steps: int
) -> tuple[Maps, xr.Dataset]:
    """Return maps of the last step of a rollout: truth, surrogate, its error and the rival's.

    Args:
        shape: a geometry of one mesh.
        states: `truth`, `surrogate` and the rival -> tracer at each node, (N,).
        rival: name of a baseline in `states`.
        steps: number of steps of the rollout.
    """
    errors = {f"error of {name}": states[name] - states["truth"] for name in ("surrogate", rival)}
    shown = {"truth": states["truth"], "surrogate": states["surrogate"], **errors}
    panels = [
        Panel(
            variable=name,
            label=name,
            scale="error" if name in errors else "tracer",
            diverging=name in errors,
        )
        for name in shown
    ]
    title = f"Tracer on {shape.names[0]} after {steps} steps"
    return Maps(title=title, panels=panels, columns=4), on_grid(shape, shown)
