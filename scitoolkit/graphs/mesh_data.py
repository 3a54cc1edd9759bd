"""Trajectories on meshes: HDF5 groups with positions, triangles, velocity and tracer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.graphs.graph import Graph

Array = np.ndarray
_NAMES = ("positions", "triangles", "velocity", "tracer")


@dataclass(frozen=True)
class MeshSet:
    """Several meshes side by side as one graph, with the same number of trajectories on each.

    Lengths are in mean edges of the mesh, so meshes of different size look alike to a network.

    Attributes:
        graph: all meshes; both directions of every edge; features (boundary flag,).
        positions: in edges, shape (N, 2), float32.
        triangles: shape (M, 3), numbers of nodes of the whole.
        velocity: in edges a step, shape (K, N, 2), float32.
        tracer: shape (K, T + 1, N), float32.
        mesh: which mesh each node is of, shape (N,).
        names: of the meshes.
    """

    graph: Graph
    positions: Array
    triangles: Array
    velocity: Array
    tracer: Array
    mesh: Array
    names: tuple[str, ...]


def read_meshes(path: Path, only: Sequence[str] | None = None) -> MeshSet:
    """Read meshes and trajectories.

    Args:
        path: HDF5, a group for each mesh with `positions` (N, 2), `triangles` (M, 3), `velocity`
            (K, N, 2) and `tracer` (K, T + 1, N).
        only: names of the groups to read; all by default.

    Raises:
        DataError: no such file or group, a missing data set, shapes that differ, NaN.
    """
    try:
        with h5py.File(path, "r") as file:
            names = list(file) if only is None else list(only)
            missing = sorted(set(names) - set(file))
            if missing or not names:
                raise DataError(
                    f"no mesh {', '.join(missing)}", where=str(path), allowed=", ".join(file)
                )
            groups = [_read_group(file[name], f"{path}:{name}") for name in names]
    except OSError as error:
        raise DataError(f"not a readable HDF5 file ({error})", where=str(path)) from None
    counts = {group["tracer"].shape[:2] for group in groups}
    if len(counts) > 1:
        raise DataError(
            f"meshes with {sorted(counts)} trajectories and times", where=str(path),
            allowed="the same on every mesh",
        )  # fmt: skip
    return _joined(groups, tuple(names), str(path))


def _read_group(group: h5py.Group, where: str) -> dict[str, Array]:
    absent = [name for name in _NAMES if name not in group]
    if absent:
        raise DataError(f"{', '.join(absent)} missing", where=where, allowed=", ".join(_NAMES))
    found = {name: group[name][()] for name in _NAMES}
    nodes = len(found["positions"])
    shapes = (found["velocity"].shape[1], found["tracer"].shape[-1])
    if (
        shapes != (nodes, nodes)
        or not 0 <= found["triangles"].min() <= (found["triangles"].max()) < nodes
    ):
        raise DataError(
            f"velocity for {shapes[0]} and tracer for {shapes[1]} nodes, triangles name node "
            f"{found['triangles'].max()}", where=where, allowed=f"{nodes} nodes",
        )  # fmt: skip
    for name in ("positions", "velocity", "tracer"):
        if not np.isfinite(found[name]).all():
            raise DataError(f"{name} holds NaN or Inf", where=where)
    return found


def _joined(groups: list[dict[str, Array]], names: tuple[str, ...], where: str) -> MeshSet:
    pairs, triangles, positions, velocity, boundary, first = [], [], [], [], [], 0
    for group in groups:
        edges, counts = _edges(group["triangles"])
        length = np.linalg.norm(np.diff(group["positions"][edges], axis=1)[:, 0], axis=1).mean()
        positions.append(group["positions"] / length)
        velocity.append(group["velocity"] / length)
        flag = np.zeros((len(group["positions"]), 1), np.float32)
        flag[edges[counts == 1]] = 1.0
        boundary.append(flag)
        pairs.append(edges + first)
        triangles.append(group["triangles"] + first)
        first += len(group["positions"])
    edges = np.concatenate(pairs)
    both = np.concatenate([edges, edges[:, ::-1]])
    graph = Graph(both[:, 0], both[:, 1], first, np.concatenate(boundary), where=where)
    return MeshSet(
        graph,
        np.concatenate(positions).astype(np.float32),
        np.concatenate(triangles),
        np.concatenate(velocity, axis=1).astype(np.float32),
        np.concatenate([group["tracer"] for group in groups], axis=2).astype(np.float32),
        np.repeat(np.arange(len(groups)), [len(group["positions"]) for group in groups]),
        names,
    )


def _edges(triangles: Array) -> tuple[Array, Array]:
    """Return each edge once, shape (E, 2), and how many triangles it bounds."""
    sides = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    return np.unique(np.sort(sides, axis=1), axis=0, return_counts=True)
