"""Baselines of transport on meshes: persistence and semi-Lagrangian interpolation."""

from __future__ import annotations

import numpy as np
from matplotlib.tri import LinearTriInterpolator, Triangulation

from scitoolkit.graphs.mesh_data import MeshSet

Array = np.ndarray


def persistence(meshes: MeshSet, flows: Array, steps: int) -> Array:
    """Return the initial state at every step, shape (steps, K, N)."""
    return np.repeat(meshes.tracer[None, flows, 0], steps, axis=0)


def interpolation(meshes: MeshSet, flows: Array, steps: int) -> Array:
    """Return semi-Lagrangian states u(x, t + 1) = u(x - v(x), t), shape (steps, K, N).

    Linear interpolation in the triangles adds numerical diffusion. If a path leaves the mesh, the
    node keeps its value.
    """
    shape = meshes.geometry
    out = np.empty((steps, len(flows), shape.graph.num_nodes), np.float32)
    for number, flow in enumerate(flows):
        for mesh in range(len(shape.names)):
            nodes = np.flatnonzero(shape.mesh == mesh)
            inside = np.isin(shape.triangles[:, 0], nodes)
            corners = shape.triangles[inside] - nodes[0]
            grid = Triangulation(shape.positions[nodes, 0], shape.positions[nodes, 1], corners)
            # The flow is steady, so that every step departs from the same points.
            back = shape.positions[nodes] - meshes.velocity[flow, nodes]
            state = meshes.tracer[flow, 0, nodes].astype(np.float64)
            for step in range(steps):
                upstream = LinearTriInterpolator(grid, state)(*back.T)
                state = np.where(np.ma.getmaskarray(upstream), state, upstream.filled(0.0))
                out[step, number, nodes] = state
    return out
