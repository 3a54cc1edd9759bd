"""Fields on meshes in NetCDF by the UGRID convention, as a graph whose nodes are cells or nodes.

Source: UGRID 1.0, https://ugrid-conventions.github.io/ugrid-conventions/.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.data_facts import DataFacts, Var
from scitoolkit.core.errors import DataError
from scitoolkit.io.facts import of_dataset
from scitoolkit.io.familiar import refuse_marks

Array = np.ndarray
SUFFIXES = (".nc", ".nc4", ".cdf", ".netcdf")
SHARES = (0.7, 0.15)  # of the pairs of times, for training and validation
# What the netCDF library fills cells with that were never written: 9.96921e36, in both precisions.
_NEVER_WRITTEN = 9.9692e36
_STEPS = 1e-3  # relative difference of time steps that are called equal


@dataclass(frozen=True)
class MeshFields:
    """The variables of a UGRID file.

    Attributes:
        mesh: name of the variable of the topology.
        location: `node` or `face`, where the fields are.
        time: name of their dim of time.
        fields: names of the fields with that time at that location.
        left_out: name -> why it is not learned.
    """

    mesh: str
    location: str
    time: str
    fields: tuple[str, ...]
    left_out: dict[str, str]


def is_ugrid(path: Path) -> bool:
    """Return whether a NetCDF file states a mesh by `cf_role: mesh_topology`."""
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return False
    with _opened(path) as data:
        return bool(_meshes(data))


def survey(path: Path) -> MeshFields:
    """Return which variables of a UGRID file are learned.

    Raises:
        DataError: not readable, no mesh or several, or no field with a time at nodes or faces.
    """
    with _opened(path) as data:
        return _survey(data, str(path))


def field_facts(path: Path) -> DataFacts:
    """Return names, units and time step of the fields, and where on the mesh they are.

    Numbers of cells are left out: a model may meet another mesh.

    Raises:
        DataError: as `survey`.
    """
    with _opened(path) as data:
        names = _survey(data, str(path))
        facts = of_dataset(data, names.fields)
        coordinates = str(data[names.mesh].attrs.get("node_coordinates", "")).split()
        units = [str(data[n].attrs.get("units", "")) for n in coordinates if n in data.variables]
    places = Var(f"positions of {names.location}s", next(iter(units), ""))
    times = tuple(dim for dim in facts.dims if dim.name == names.time)
    return DataFacts((*facts.variables, places), times)


def graph_arrays(path: Path) -> dict[str, Array]:
    """Return the graph of the fields of a UGRID file, with a copy of the mesh for each time.

    Neighbours are nodes beside each other on a face, or faces with a common edge, in both
    directions. Node `t * N + n` is cell `n` at time `t`.

    Args:
        path: NetCDF file with T times of fields on N nodes or faces.

    Returns:
        Arrays as described by `scitoolkit.graphs.graph.read_graph`: `x` ((T - 1) N, fields + 2 or
        3), the fields and the positions (unit vectors for degrees); `y` ((T - 1) N, fields), the
        changes to the next time; `edge_index`; `train`, `val`, `test`, nodes of the first, the
        following and the last times.

    Raises:
        DataError: as `survey`; missing values, uneven times, fewer than 4 times, or a connectivity
            that names nodes which the mesh does not have.
    """
    where = str(path)
    with _opened(path) as data:
        names = _survey(data, where)
        _check_times(data[names.time], where)
        values = np.stack([_values(data, names, name, where) for name in names.fields], 2)
        topology = data[names.mesh].attrs
        faces = _faces(data, topology, where)
        nodes = _node_positions(data, topology, where)
    if faces.max(initial=-1) >= len(nodes):
        raise DataError(
            f"a face has node {faces.max()}", where=where, allowed=f"0 to {len(nodes) - 1}"
        )
    at_nodes = names.location == "node"
    pairs = _neighbour_nodes(faces) if at_nodes else _neighbour_faces(faces)
    places = nodes if at_nodes else _centres(nodes, faces)
    times, cells = values.shape[:2]
    if cells != len(places):
        raise DataError(
            f"{names.fields[0]} has {cells} values", where=where, allowed=f"{len(places)}"
        )
    if times < 4:
        raise DataError(
            f"{times} times", where=where, allowed="4 or more, for training, validation and test"
        )
    copies = times - 1
    first = np.arange(copies)[:, None, None] * cells
    edges = (pairs[None] + first).transpose(1, 0, 2).reshape(2, -1)
    still = np.broadcast_to(places, (copies, *places.shape))
    # The change in the file's precision: float32 would lose it where the field is large.
    change = np.diff(values, axis=0)
    inputs = np.concatenate([values[:-1], still], 2)
    cuts = [max(1, int(copies * SHARES[0])), max(1, int(copies * SHARES[1]))]
    cuts[0] = min(cuts[0], copies - cuts[1] - 1)
    bounds = np.cumsum([0, *cuts]) * cells
    ends = [*bounds[1:], copies * cells]
    parts = {
        name: np.arange(begin, end)
        for name, begin, end in zip(("train", "val", "test"), bounds, ends, strict=True)
    }
    return {
        "edge_index": edges,
        "x": inputs.reshape(copies * cells, -1),
        "y": change.reshape(copies * cells, -1),
        **parts,
    }


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import xarray as xr

    try:
        data = xr.open_dataset(path)
    except FileNotFoundError:
        raise DataError("no such file", where=str(path)) from None
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"not readable ({error})", where=str(path)) from None
    with data:
        yield data


def _meshes(data: Any) -> list[str]:
    return [n for n in data.variables if data[n].attrs.get("cf_role") == "mesh_topology"]


def _survey(data: Any, where: str) -> MeshFields:
    meshes = _meshes(data)
    if len(meshes) != 1:
        raise DataError(
            f"{len(meshes)} meshes", where=where, allowed="one variable with cf_role: mesh_topology"
        )
    by_place: dict[tuple[str, str], list[str]] = {}
    left_out: dict[str, str] = {}
    for name in data.data_vars:
        location = data[name].attrs.get("location", "")
        if data[name].attrs.get("mesh") != meshes[0]:
            continue
        dims = data[name].dims
        if location not in ("node", "face"):
            left_out[name] = f"at location {location or 'unknown'}"
        elif len(dims) != 2 or data[name].dtype.kind not in "fiu":
            left_out[name] = f"({', '.join(dims)}) of {data[name].dtype}, not (time, {location})"
        elif not _is_time(data, dims[0]):
            left_out[name] = f"its dim {dims[0]} is no time"
        else:
            by_place.setdefault((location, dims[0]), []).append(name)
    if not by_place:
        raise DataError(
            "no field with a time on the nodes or faces of the mesh"
            + "".join(f"; {name}: {why}" for name, why in left_out.items()),
            where=where,
            allowed="variables (time, node or face) with the attributes mesh and location",
        )
    location, time = max(by_place, key=lambda place: len(by_place[place]))
    for place, names in by_place.items():
        if place != (location, time):
            left_out |= dict.fromkeys(names, f"on {place[0]}s, along {place[1]}")
    # By name, since columns of features have none: another file may store them in another order.
    return MeshFields(meshes[0], location, time, tuple(sorted(by_place[location, time])), left_out)


def _is_time(data: Any, dim: str) -> bool:
    if dim not in data.coords:
        return False
    coordinate = data[dim]
    attrs = coordinate.attrs
    dated = coordinate.dtype.kind in "Mm" or coordinate.dtype == object
    return dated or attrs.get("axis") == "T" or attrs.get("standard_name") == "time"


def _check_times(times: Any, where: str) -> None:
    """Refuse times whose distances differ, between which no single change is learned."""
    values = np.asarray(times.values)
    if values.dtype == object:  # dates of another calendar
        steps = np.array([step.total_seconds() for step in np.diff(values)])
    else:
        steps = np.diff(values) / (np.timedelta64(1, "s") if values.dtype.kind == "M" else 1)
    if len(steps) and not (
        steps.min() > 0 and steps.max() - steps.min() <= _STEPS * abs(steps.max())
    ):
        raise DataError(
            f"steps of {times.name} from {steps.min():g} to {steps.max():g}",
            where=where,
            allowed="equal steps that increase",
        )


def _values(data: Any, names: MeshFields, name: str, where: str) -> Array:
    """Return a field in float64, shape (times, cells)."""
    values = np.asarray(data[name].values, np.float64)
    missing = ~(np.abs(values) < _NEVER_WRITTEN)
    if missing.any():
        row = int(np.argmax(missing.any(1)))
        raise DataError(
            f"{name} has no value on {int(missing[row].sum())} {names.location}s at row {row}",
            where=where,
            allowed="a value everywhere",
        )
    refuse_marks(values, f"{where}: {name}")
    return values


def _faces(data: Any, topology: dict[str, Any], where: str) -> Array:
    """Return the nodes of each face, shape (faces, most nodes), -1 where a face has fewer."""
    name = topology.get("face_node_connectivity", "")
    if name not in data.variables:
        raise DataError(
            f"no face_node_connectivity {name}".rstrip(),
            where=where,
            allowed="a mesh of topology_dimension 2",
        )
    stored = data[name]
    rows = topology.get("face_dimension", stored.dims[0])
    numbers = stored.transpose(rows, ...).values.astype(np.float64)
    numbers = np.where(
        np.isfinite(numbers), numbers - float(stored.attrs.get("start_index", 0)), -1
    )
    numbers = np.maximum(numbers, -1).astype(np.int64)
    if ((numbers >= 0).sum(1) < 3).any():
        raise DataError("a face with fewer than 3 nodes", where=f"{where}:{name}")
    return numbers


def _node_positions(data: Any, topology: dict[str, Any], where: str) -> Array:
    """Return positions of the nodes, shape (nodes, 2); of degrees unit vectors, (nodes, 3)."""
    names = str(topology.get("node_coordinates", "")).split()
    if len(names) != 2 or not all(name in data.variables for name in names):
        raise DataError("no two node_coordinates", where=where, allowed="names of two variables")
    units = [str(data[name].attrs.get("units", "")).lower() for name in names]
    positions = [np.asarray(data[name].values, np.float64) for name in names]
    if not all(unit.startswith("degree") for unit in units):
        return np.stack(positions, 1)
    # CF: latitude has degrees_north; the order of the two names is free.
    latitude = next((k for k, unit in enumerate(units) if "north" in unit or "_n" in unit), None)
    if latitude is None:
        roles = [data[name].attrs.get("standard_name") for name in names]
        latitude = roles.index("latitude") if "latitude" in roles else 1
    north, east = np.deg2rad(positions[latitude]), np.deg2rad(positions[1 - latitude])
    return np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], 1)


def _sides(faces: Array) -> tuple[Array, Array]:
    """Return the sides of all faces, (sides, 2) in increasing order, and the face of each."""
    counts = (faces >= 0).sum(1)
    # The nodes that a face has, first; UGRID allows missing ones at the end only.
    following = np.roll(faces, -1, axis=1)
    following[np.arange(len(faces)), counts - 1] = faces[:, 0]
    there = faces >= 0
    sides = np.sort(np.stack([faces[there], following[there]], 1), axis=1)
    return sides, np.repeat(np.arange(len(faces)), counts)


def _neighbour_nodes(faces: Array) -> Array:
    pairs = np.unique(_sides(faces)[0], axis=0).T
    return np.concatenate([pairs, pairs[::-1]], 1)


def _neighbour_faces(faces: Array) -> Array:
    sides, owner = _sides(faces)
    order = np.lexsort((sides[:, 1], sides[:, 0]))
    sides, owner = sides[order], owner[order]
    same = (sides[1:] == sides[:-1]).all(1)
    pairs = np.stack([owner[:-1][same], owner[1:][same]])
    return np.concatenate([pairs, pairs[::-1]], 1)


def _centres(nodes: Array, faces: Array) -> Array:
    """Return the means of the nodes of each face."""
    there = faces >= 0
    total = np.where(there[:, :, None], nodes[np.maximum(faces, 0)], 0).sum(1)
    return total / there.sum(1, keepdims=True)
