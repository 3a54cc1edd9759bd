"""Trajectories on meshes: HDF5 groups with positions, triangles, velocity and tracer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scitoolkit.core.errors import DataError, damage_named
from scitoolkit.graphs.graph import Graph
from scitoolkit.io.campaign.statistics import Moments
from scitoolkit.io.familiar import refuse_marks
from scitoolkit.io.loader.packing import Packing

Array = np.ndarray
_NAMES = ("positions", "triangles", "velocity", "tracer")


@dataclass(frozen=True)
class MeshGeometry:
    """Several meshes as the components of one graph, with the same number of trajectories each.

    Lengths are in units of the mean edge length of the mesh, so that networks transfer between
    meshes of different resolution.

    Attributes:
        graph: all meshes, with both directions of every edge and the boundary flag as feature.
        positions: in mean edge lengths, shape (N, 2), float32.
        triangles: node numbers in the joint graph, shape (M, 3).
        mesh: index of the mesh of each node, shape (N,).
        names: names of the meshes.
        lengths: mean edge length of each mesh, in the unit of the file.
        num_flows: number of trajectories K.
        num_times: number of times T + 1 of each trajectory.
    """

    graph: Graph
    positions: Array
    triangles: Array
    mesh: Array
    names: tuple[str, ...]
    lengths: tuple[float, ...]
    num_flows: int
    num_times: int


@dataclass(frozen=True)
class MeshRows:
    """Trajectories at some nodes.

    Attributes:
        velocity: in mean edge lengths per step, shape (K, n, 2), float32.
        tracer: shape (K, T + 1, n), float32.
    """

    velocity: Array
    tracer: Array


class MeshFile:
    """Meshes in a file, whose trajectories are read on demand for some nodes.

    Args:
        path: HDF5 file with a group for each mesh: `positions` (N, 2), `triangles` (M, 3),
            `velocity` (K, N, 2) and `tracer` (K, T + 1, N).
        only: names of the groups to read; all by default.

    Attributes:
        path: the file.
        geometry: the meshes.

    Raises:
        DataError: no such file or group, a missing dataset, inconsistent shapes, NaN.
    """

    def __init__(self, path: Path, only: Sequence[str] | None = None) -> None:
        self.path: Path = Path(path)
        with damage_named(path), _opened(path) as file:
            names = list(file) if only is None else list(only)
            missing = sorted(set(names) - set(file))
            if missing or not names:
                raise DataError(
                    f"no mesh {', '.join(missing)}", where=str(path), allowed=", ".join(file)
                )
            for name in names:
                _check_shapes(file[name], f"{path}:{name}")
            counts = {file[name]["tracer"].shape[:2] for name in names}
            if len(counts) > 1:
                raise DataError(
                    f"meshes with {sorted(counts)} trajectories and times",
                    where=str(path),
                    allowed="the same on every mesh",
                )
            shapes = [
                (_positions(file[name], path, name), file[name]["triangles"][()]) for name in names
            ]
        flows, times = counts.pop()
        self.geometry: MeshGeometry = _joined(shapes, tuple(names), flows, times, str(path))

    def rows(self, nodes: Array) -> MeshRows:
        """Return the trajectories at some nodes, in their order.

        In addition to the result, one trajectory of one mesh is in memory.

        Args:
            nodes: node numbers in the joint graph, shape (n,).

        Raises:
            DataError: NaN, Inf or an undeclared fill value at one of these nodes.
        """
        geometry, nodes = self.geometry, np.asarray(nodes)
        velocity = np.empty((geometry.num_flows, len(nodes), 2), np.float32)
        tracer = np.empty((geometry.num_flows, geometry.num_times, len(nodes)), np.float32)
        first = 0
        with damage_named(self.path), _opened(self.path) as file:
            for number, name in enumerate(geometry.names):
                end = first + len(file[name]["positions"])
                at = np.flatnonzero((nodes >= first) & (nodes < end))
                local, length = nodes[at] - first, np.float64(geometry.lengths[number])
                # A whole trajectory is read and then cut: HDF5 reads scattered rows one at a time.
                for flow in range(geometry.num_flows if len(at) else 0):
                    moving, carried = (_read(file[name][n], flow) for n in ("velocity", "tracer"))
                    refuse_marks(moving, f"{self.path}:{name}, velocity of trajectory {flow}")
                    refuse_marks(carried, f"{self.path}:{name}, tracer of trajectory {flow}")
                    velocity[flow, at] = moving[local] / length
                    tracer[flow][:, at] = carried[:, local]
                _finite(velocity[:, at], self.path, name, "velocity")
                _finite(tracer[:, :, at], self.path, name, "tracer")
                first = end
        return MeshRows(velocity, tracer)

    def speeds(self, flows: Sequence[int]) -> tuple[float, float]:
        """Return mean and standard deviation of the velocities of some trajectories.

        Args:
            flows: numbers of the trajectories.

        Returns:
            Of both components at all nodes, in mean edge lengths per step.
        """
        moments, geometry = Moments(), self.geometry
        with damage_named(self.path), _opened(self.path) as file:
            for name, length in zip(geometry.names, geometry.lengths, strict=True):
                for flow in flows:
                    speeds = _read(file[name]["velocity"], flow) / np.float64(length)
                    moments.add(speeds, is_field=True)
        mean, deviation = moments.result()
        return mean.item(), deviation.item()


@dataclass(frozen=True)
class MeshSet:
    """Meshes with all of their trajectories in memory.

    Attributes:
        geometry: the meshes.
        all_rows: trajectories at all nodes.
    """

    geometry: MeshGeometry
    all_rows: MeshRows

    def rows(self, nodes: Array) -> MeshRows:
        """Return the trajectories at some nodes, in their order."""
        return MeshRows(self.all_rows.velocity[:, nodes], self.all_rows.tracer[:, :, nodes])

    @property
    def graph(self) -> Graph:
        """The graph of the geometry."""
        return self.geometry.graph

    @property
    def tracer(self) -> Array:
        """Tracer, shape (K, T + 1, N), float32."""
        return self.all_rows.tracer

    @property
    def velocity(self) -> Array:
        """Velocity in mean edge lengths per step, shape (K, N, 2), float32."""
        return self.all_rows.velocity


def read_meshes(path: Path, only: Sequence[str] | None = None) -> MeshSet:
    """Read meshes and all trajectories; arguments and errors are those of `MeshFile`."""
    file = MeshFile(path, only)
    return MeshSet(file.geometry, file.rows(np.arange(file.geometry.graph.num_nodes)))


def _opened(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"not a readable HDF5 file ({error})", where=str(path)) from None


def _read(dataset: h5py.Dataset, key: Any = ()) -> Array:
    """Return values of an array, NaN where its attributes mark them as missing."""
    packing = Packing.of(dataset.dtype, dict(dataset.attrs))
    return packing.unpack(np.asarray(dataset[key]), exact=True)


def _check_shapes(group: h5py.Group, where: str) -> None:
    absent = [name for name in _NAMES if name not in group]
    if absent:
        raise DataError(f"{', '.join(absent)} missing", where=where, allowed=", ".join(_NAMES))
    positions, triangles, velocity, tracer = (group[name].shape for name in _NAMES)
    nodes, flows = positions[:1], velocity[:1]
    fits = {
        "positions": positions == (*nodes, 2),
        "triangles": len(triangles) == 2 and triangles[0] > 0 and triangles[1] == 3,
        "velocity": velocity == (*flows, *nodes, 2),
        "tracer": len(tracer) == 3 and tracer == (*flows, tracer[1], *nodes) and tracer[1] > 1,
    }
    for name in (name for name in _NAMES if not fits[name]):
        raise DataError(
            f"{name} of shape {group[name].shape}",
            where=where,
            allowed="positions (N, 2), triangles (M, 3), velocity (K, N, 2), "
            "tracer (K, T + 1, N) with T >= 1",
        )
    corners = group["triangles"][()]
    if corners.dtype.kind not in "iu":
        raise DataError(
            f"triangles of type {corners.dtype}", where=where, allowed="whole numbers of nodes"
        )
    if not 0 <= corners.min() <= corners.max() < nodes[0]:
        raise DataError(
            f"triangles name nodes {corners.min()} to {corners.max()}",
            where=where,
            allowed=f"0 to {nodes[0] - 1}",
        )
    ordered = np.sort(corners, 1)
    if (repeated := (np.diff(ordered) == 0).any(1)).any():
        raise DataError(
            f"triangle {np.argmax(repeated)} has a node twice",
            where=where,
            allowed="triangles of three nodes",
            fix="leave out triangles without an area",
        )
    used = np.bincount(corners.ravel(), minlength=nodes[0]) > 0
    if not used.all():
        # A node without neighbours would keep its first value in every step.
        raise DataError(
            f"{int((~used).sum())} nodes are in no triangle, the first is {np.argmin(used)}",
            where=where,
            fix="leave them out, and renumber the triangles",
        )


def _positions(group: h5py.Group, path: Path, name: str) -> Array:
    positions = _finite(_read(group["positions"]), path, name, "positions")
    refuse_marks(positions, f"{path}:{name}, positions")
    return positions


def _finite(values: Array, path: Path, mesh: str, name: str) -> Array:
    if not np.isfinite(values).all():
        raise DataError(f"{name} holds NaN or Inf", where=f"{path}:{mesh}")
    return values


def _joined(
    shapes: list[tuple[Array, Array]], names: tuple[str, ...], flows: int, times: int, where: str
) -> MeshGeometry:
    pairs, triangles, positions, boundary, lengths, first = [], [], [], [], [], 0
    for name, (places, corners) in zip(names, shapes, strict=True):
        edges, counts = _edges(corners)
        sizes = np.linalg.norm(np.diff(places[edges], axis=1)[:, 0], axis=1)
        for wrong, text in (
            (sizes == 0, "are at one place"),
            (counts > 2, "are an edge of three triangles or more, or of one triangle twice"),
        ):
            if wrong.any():
                one, other = edges[np.argmax(wrong)]
                raise DataError(
                    f"nodes {one} and {other} {text}",
                    where=f"{where}:{name}",
                    allowed="a plane mesh, in which each edge has one or two triangles",
                )
        length = sizes.mean()
        lengths.append(float(length))
        positions.append(places / length)
        flag = np.zeros((len(places), 1), np.float32)
        # An edge of one triangle only is on the boundary; inner edges have two.
        flag[edges[counts == 1]] = 1.0
        boundary.append(flag)
        pairs.append(edges + first)
        triangles.append(corners + first)
        first += len(places)
    edges = np.concatenate(pairs)
    both = np.concatenate([edges, edges[:, ::-1]])
    return MeshGeometry(
        Graph(both[:, 0], both[:, 1], first, np.concatenate(boundary), where=where),
        np.concatenate(positions).astype(np.float32),
        np.concatenate(triangles),
        np.repeat(np.arange(len(shapes)), [len(places) for places, _ in shapes]),
        names,
        tuple(lengths),
        flows,
        times,
    )


def _edges(triangles: Array) -> tuple[Array, Array]:
    """Return the undirected edges, shape (E, 2), and the number of triangles of each."""
    sides = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    return np.unique(np.sort(sides, axis=1), axis=0, return_counts=True)
