"""Graphs of atomic configurations, the input of every potential: atoms, edges and labels.

Keys of a batch with N atoms and E edges in B configurations, and T types of the model:

| key | shape | meaning |
|---|---|---|
| `positions` | (N, 3) float64 | Å |
| `types` | (N,) int64 | index into the model's type map |
| `frame` | (N,) int64 | configuration of the atom |
| `num_atoms` | (B,) int64 | atoms of each configuration |
| `cell` | (B, 3, 3) float64 | rows are lattice vectors, Å |
| `pbc` | (B, 3) bool | periodic directions |
| `edge_index` | (2, E) int64 | centre i, neighbour j; sorted by i, then by the type of j |
| `edge_shift` | (E, 3) float64 | Å; the edge vector is positions[j] - positions[i] + shift |
| `segments` | (N * T + 1,) int64 | first edge of each pair of centre and neighbour type |
| `frame_parameters`, `atom_parameters` | (B, F), (N, A) | external parameters, if any |
| `energy`, `forces`, `virial` | (B,), (N, 3), (B, 3, 3) | labels, if any; eV, eV/Å, eV |
| `head` | (B,) int64 | readout of each configuration, of a model with several; 0 by default |
| `weights` | (B, 3) float64 | of energy, forces and virial in the loss; absent if all are 1 |
| `has_energy`, `has_forces`, `has_virial` | (B,) bool | masks, if a label is missing somewhere |

Both directions of a pair are edges. Every periodic image within the cutoff is a neighbour, also
images of the atom itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import DataError, missing_extra
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.atoms import Configuration
from scitoolkit.ops import neighbours
from scitoolkit.ops.neighbours import sums

LABELS = ("energy", "forces", "virial")
PARAMETERS = ("frame_parameters", "atom_parameters")
NEAREST = 1e-3
"""Å; nearer atoms coincide. The C library has the same limit."""


def type_indices(frame: Configuration, type_map: Sequence[str]) -> np.ndarray:
    """Return the index of each atom's species in the type map, (N,) int64.

    A deepmd system without type_map.raw has species `Type_0`, `Type_1`, ...: as in deepmd-kit, the
    number is the place in the type map.

    Raises:
        DataError: a species is not in the type map.
    """
    places = {f"Type_{number}": number for number in range(len(type_map))}
    places |= {name: number for number, name in enumerate(type_map)}
    try:
        return np.array([places[str(s)] for s in frame.species], dtype=np.int64)
    except KeyError as error:
        name = str(error.args[0])
        raise DataError(
            f"species {name!r} is not known to the model",
            where=frame.where,
            allowed=", ".join(type_map),
            fix=nearest_name(name, type_map) or "type_map: [...]",
        ) from None


def neighbour_edges(
    frame: Configuration, types: np.ndarray, num_types: int, cutoff: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (centre, neighbour, shift, segments) of all ordered pairs within `cutoff` Å.

    Args:
        frame: the configuration.
        types: (N,) int64 type of each atom.
        num_types: number of types of the model.
        cutoff: Å.

    Raises:
        BackendError: there is neither a C compiler nor vesin.
        DataError: two atoms coincide.
    """
    cell = _whole_cell(frame)
    system = (frame.positions, types, num_types, cell, frame.pbc, cutoff)
    *edges, (distance, one, other) = (
        neighbours.neighbour_list(*system, threads=torch.get_num_threads())
        if neighbours.available()
        else _list_by_vesin(*system)
    )
    _check_distance(distance, one, other, frame.where)
    return tuple(edges)


def _check_distance(distance: float, one: int, other: int, where: str = "") -> None:
    if not distance >= NEAREST:
        raise DataError(f"atoms {one} and {other} are {distance:.1e} Å apart", where=where)


def _list_by_vesin(positions, types, num_types, cell, pbc, cutoff):
    """Return the neighbour list of vesin in the form of `ops.neighbours.neighbour_list`."""
    try:
        from vesin import NeighborList
    except ImportError:
        raise missing_extra("vesin", "potentials", "neighbour lists") from None
    i, j, image, distance = NeighborList(cutoff=float(cutoff), full_list=True).compute(
        points=np.ascontiguousarray(positions),
        box=cell,
        quantities="ijSd",
        periodic=pbc if pbc.any() else False,
    )
    i, j = i.astype(np.int64), j.astype(np.int64)
    pair = i * num_types + types[j]
    order = np.argsort(pair, kind="stable")
    counts = np.bincount(pair, minlength=len(types) * num_types)
    worst = int(distance.argmin()) if len(distance) else 0
    nearest = (distance[worst], i[worst], j[worst]) if len(distance) else (np.inf, 0, 0)
    segments = np.concatenate([[0], np.cumsum(counts)])
    return i[order], j[order], image[order] @ cell, segments, nearest


def _whole_cell(frame: Configuration) -> np.ndarray:
    """Return the cell with missing lattice vectors of open directions set to unit normals."""
    cell = np.array(frame.cell, dtype=np.float64)
    if not frame.pbc.any():
        return np.eye(3)
    for axis in np.flatnonzero(~frame.pbc):
        others = cell[[a for a in range(3) if a != axis]]
        if np.linalg.matrix_rank(cell) < 3:
            cell[axis] = np.linalg.svd(others)[2][-1]
    return cell


def configuration_graph(
    frame: Configuration, type_map: Sequence[str], cutoff: float
) -> dict[str, Tensor]:
    """Return the batch of one configuration; its keys are those of the module docstring.

    Example:
        >>> frame = Configuration(np.array(["O", "H"]), np.array([[0.0, 0, 0], [0, 0, 1]]),
        ...                       np.zeros((3, 3)), np.zeros(3, dtype=bool))
        >>> configuration_graph(frame, ["O", "H"], 3.0)["edge_index"].tolist()
        [[0, 1], [1, 0]]
    """
    types = type_indices(frame, type_map)
    centre, neighbour, shift, segments = neighbour_edges(frame, types, len(type_map), cutoff)
    graph = {
        "positions": torch.from_numpy(np.array(frame.positions, dtype=np.float64)),
        "types": torch.from_numpy(types),
        "frame": torch.zeros(len(types), dtype=torch.int64),
        "num_atoms": torch.tensor([len(types)]),
        "cell": torch.from_numpy(np.array(frame.cell, dtype=np.float64))[None],
        "pbc": torch.from_numpy(np.array(frame.pbc, dtype=bool))[None],
        "edge_index": torch.from_numpy(np.stack([centre, neighbour])),
        "edge_shift": torch.from_numpy(shift),
        "segments": torch.from_numpy(segments),
    }
    if frame.energy is not None:
        graph["energy"] = torch.tensor([frame.energy], dtype=torch.float64)
    if frame.forces is not None:
        graph["forces"] = torch.from_numpy(frame.forces)
    if frame.virial is not None:
        graph["virial"] = torch.from_numpy(frame.virial)[None]
    if any(weight != 1.0 for weight in frame.weights):
        graph["weights"] = torch.tensor([frame.weights], dtype=torch.float64)
    if frame.frame_parameters is not None:
        graph["frame_parameters"] = torch.from_numpy(frame.frame_parameters)[None]
    if frame.atom_parameters is not None:
        graph["atom_parameters"] = torch.from_numpy(frame.atom_parameters)
    return graph


def collate(graphs: Sequence[Batch]) -> Batch:
    """Return the batch of several graphs, with the parameters that all of them have.

    A label that only some have is zero for the others, and `has_...` masks it.
    """
    if len(graphs) == 1:
        return dict(graphs[0])
    atoms = np.cumsum([0, *(len(g["types"]) for g in graphs)]).tolist()
    edges = np.cumsum([0, *(g["edge_index"].shape[1] for g in graphs)]).tolist()
    out: Batch = {
        name: torch.cat([g[name] for g in graphs])
        for name in ("positions", "types", "num_atoms", "cell", "pbc", "edge_shift")
    }
    out["frame"] = torch.repeat_interleave(torch.arange(len(graphs)), out["num_atoms"])
    out["edge_index"] = torch.cat(
        [g["edge_index"] + first for g, first in zip(graphs, atoms, strict=False)], dim=1
    )
    starts = [g["segments"][:-1] + first for g, first in zip(graphs, edges, strict=False)]
    out["segments"] = torch.cat([*starts, torch.tensor([edges[-1]])])
    for name in (*LABELS, *PARAMETERS):
        if all(name in g for g in graphs):
            out[name] = torch.cat([g[name] for g in graphs])
    if any("weights" in g for g in graphs):
        ones = torch.ones(1, len(LABELS), dtype=torch.float64)
        out["weights"] = torch.cat([g.get("weights", ones) for g in graphs])
    if any("head" in g for g in graphs):
        out["head"] = torch.cat([g.get("head", torch.zeros(1, dtype=torch.int64)) for g in graphs])
    for label in LABELS:
        has = [label in g for g in graphs]
        if any(has) and not all(has):
            out[label] = torch.cat([g.get(label, _no_label(g, label)) for g in graphs])
            out[f"has_{label}"] = torch.tensor(has)
    return out


def _no_label(graph: Batch, label: str) -> Tensor:
    """Return zeros of the shape of a label of one configuration."""
    shapes = {"energy": (1,), "forces": (len(graph["types"]), 3), "virial": (1, 3, 3)}
    return torch.zeros(shapes[label], dtype=torch.float64)


def without_edges(graph: Batch, kept: Tensor) -> Batch:
    """Return the graph with only the edges where `kept`, (E,) bool, is true."""
    below = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])
    return {
        **graph,
        "edge_index": graph["edge_index"][:, kept],
        "edge_shift": graph["edge_shift"][kept],
        "segments": below[graph["segments"]],
    }


def of_frames(graph: Batch, chosen: Tensor) -> Batch:
    """Return the inputs, without labels, of the configurations where `chosen`, (B,) bool, is true.

    Atoms and edges keep their order.
    """
    atoms = chosen[graph["frame"]]
    near = without_edges(graph, atoms[graph["edge_index"][0]])
    place = atoms.cumsum(0) - 1
    kinds = (len(graph["segments"]) - 1) // len(atoms)
    segments = torch.cat(
        [near["segments"][:-1].view(-1, kinds)[atoms].flatten(), near["segments"][-1:]]
    )
    out: Batch = {
        name: graph[name][atoms]
        for name in ("positions", "types", "atom_parameters")
        if name in graph
    }
    out |= {
        name: graph[name][chosen]
        for name in ("num_atoms", "cell", "pbc", "frame_parameters")
        if name in graph
    }
    return {
        **out,
        "frame": (chosen.cumsum(0) - 1)[graph["frame"][atoms]],
        "edge_index": place[near["edge_index"]],
        "edge_shift": near["edge_shift"],
        "segments": segments,
    }


def within_cutoff(graph: Batch, cutoff: float) -> Batch:
    """Return the graph without the edges of `cutoff` Å and more.

    Raises:
        DataError: two atoms coincide.
    """
    squares = edge_vectors(graph).square().sum(1)
    if len(squares):
        nearest = int(squares.argmin())
        one, other = graph["edge_index"][:, nearest].tolist()
        _check_distance(float(squares[nearest]) ** 0.5, one, other)
    return without_edges(graph, squares < cutoff**2)


def edge_vectors(graph: Batch) -> Tensor:
    """Return the vectors from centre to neighbour, (E, 3), Å."""
    positions, shift = graph["positions"], graph["edge_shift"]
    if sums.supports(positions):
        return sums.edge_vectors(
            positions.contiguous(), graph["edge_index"].contiguous(), shift.contiguous()
        )
    centre, neighbour = graph["edge_index"]
    return graph["positions"][neighbour] - graph["positions"][centre] + graph["edge_shift"]
