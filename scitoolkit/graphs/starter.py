"""Starter configurations of node prediction and of targets of whole graphs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.starter import CommentedLines, DataToStart
from scitoolkit.graphs.arrays_on_disk import ArrayFile
from scitoolkit.graphs.graph_set import StackedGraphs
from scitoolkit.graphs.graph_set_files import is_graph_set, read_graphs
from scitoolkit.graphs.pyg_files import load_data
from scitoolkit.graphs.targets import TargetName
from scitoolkit.graphs.ugrid import is_ugrid, survey

EDGES = ("edge_index", "adj_indptr", "indptr")
"""Arrays of which a file of a graph has one."""


def starter(data: DataToStart) -> str:
    """Return a short commented configuration of a graph job that runs unchanged."""
    if is_ugrid(data.one):
        return _of_mesh(data)
    if is_graph_set(data.one):
        return _of_graph_set(data)
    if not _has(data.one, "y"):
        if data.one.suffix != ".pt" and not any(_has(data.one, name) for name in EDGES):
            raise DataError(
                "no graph in the file", where=str(data.one), allowed=f"one of {', '.join(EDGES)}"
            )
        return starter_of_links(data)
    target = _meaning_of(data.one)
    lines = CommentedLines(
        f"{target.capitalize()} of nodes from their features and edges, on the whole graph at once."
    )
    lines.key("domain", "graphs")
    stated = None if target == "classes" else target
    lines.section("data", path=str(data.written[0]), target=stated)
    model = _model_of(data.one)
    lines.section("model", name=model, hidden=16, dropout=0.5)
    lines.section(
        "training", epochs=200, optimizer={"name": "adam", "lr": 0.01, "weight_decay": 5e-4}
    )
    return lines.text()


def starter_of_links(data: DataToStart) -> str:
    """Return a short commented configuration of link prediction that runs unchanged.

    Raises:
        DataError: a file of another kind without edges, such as a mesh in NetCDF.
    """
    path = data.one
    if path.is_file() and path.suffix not in (".npz", ".pt") and not _has(path, "edge_index"):
        raise DataError(
            "no edges of a graph",
            where=str(path),
            allowed="`edge_index` (2, E) with `x` and `y`, in .npz, or a .pt file of PyG",
            fix="write the cells of a mesh as nodes and their neighbours as edges",
        )
    lines = CommentedLines(
        "Edges of a graph: a share is hidden and has to be told from pairs without one."
    )
    lines.key("domain", "graph_links")
    lines.section("data", path=str(data.written[0]))
    lines.section("split", validation=0.05, test=0.1)
    lines.section("model", name=_model_of(data.one), hidden=64, dropout=0.0)
    lines.key("negatives", 1, "pairs without an edge for each edge, drawn in each epoch")
    optimizer = {"name": "adam", "lr": 0.01}
    lines.section("training", epochs=50, batch_size=4096, optimizer=optimizer)
    return lines.text()


def _of_mesh(data: DataToStart) -> str:
    """Return the configuration of the change of fields on a mesh to the next time."""
    mesh = survey(data.one)
    lines = CommentedLines(
        f"{', '.join(mesh.fields)} on the {mesh.location}s of {mesh.mesh}: the change to the next "
        f"{mesh.time} from the values around each {mesh.location}."
    )
    for name, why in mesh.left_out.items():
        lines.comment(f"{name} is left out: {why}")
    lines.key("domain", "graphs")
    lines.section("data", path=str(data.written[0]), target="values", normalise="standard")
    lines.section("model", name="sage", hidden=64, dropout=0.0)
    lines.section("training", epochs=200, optimizer={"name": "adam", "lr": 0.005})
    return lines.text()


def _meaning_of(path: Path) -> TargetName:
    """Return what the `y` of nodes most probably means; `train` reports one that it cannot read."""
    if path.is_dir():
        return "classes"
    try:
        y = load_data(path).y if path.suffix == ".pt" else ArrayFile(path).read("y")
        values = np.asarray(y, np.float64)
    except (AttributeError, DataError, KeyError, TypeError, ValueError):
        return "classes"
    present = values[np.isfinite(values)]
    if values.ndim == 2:
        return "labels" if np.isin(present, (-1, 0, 1)).all() else "values"
    return "classes" if (present == np.round(present)).all() else "values"


def _model_of(path: Path) -> str:
    return "rgcn" if _has(path, "edge_type") else "gcn"


def _of_graph_set(data: DataToStart) -> str:
    """Return the configuration of targets of whole graphs."""
    graphs, undirected, ignored = _first_look(data.one)
    target = _target_of(graphs)
    lines = CommentedLines(
        f"{len(graphs)} graphs: {target} of whole graphs from their nodes and edges."
    )
    lines.key("domain", "graph_sets")
    pos = "pos" in graphs.arrays
    lines.section(
        "data",
        path=str(data.written[0]),
        target=target,
        ignore=ignored or None,
        positions=("distances" if "z" in graphs.arrays else "offsets") if pos else None,
        undirected=undirected,
        reference="composition" if target == "values" else None,
    )
    if not graphs.parts:
        lines.section("split", validation=0.1, test=0.1)
    model = _model_for(graphs)
    norm = "batch" if model == "gine" else None
    lines.section("model", name=model, hidden=64, layers=4, dropout=0.0, norm=norm)
    lines.key("pooling", "mean", "sum for quantities that grow with the graph, such as energies")
    lines.section("training", epochs=50, batch_size=32, optimizer={"name": "adamw", "lr": 0.002})
    return lines.text()


def _first_look(path: Path) -> tuple[StackedGraphs, bool | None, list[str]]:
    """Return the graphs, whether each edge is stored once, and the entries that are not read."""
    ignored: list[str] = []
    undirected = None
    while True:
        try:
            graphs = read_graphs(path, "values", ignore=ignored, undirected=undirected)
            return graphs, undirected, ignored
        except DataError as error:
            name = re.fullmatch(r"data\.ignore=\[(\w+)\]", error.fix)
            if name:
                ignored.append(name[1])
            elif error.fix.startswith("data.undirected=true"):
                undirected = True
            else:
                raise


def _target_of(graphs: StackedGraphs) -> TargetName:
    """Return what whole numbers or real numbers for each graph most probably mean."""
    y = graphs.target
    whole = bool(np.isfinite(y).all() and (y == np.round(y)).all() and y.min() >= 0)
    if not whole or len(np.unique(y)) > max(2, len(y) // 4):
        return "values"
    return "classes" if y.shape[1] == 1 else "labels" if y.max() <= 1 else "values"


def _model_for(graphs: StackedGraphs) -> str:
    if "edge_type" in graphs.arrays:
        return "rgcn"
    return "gcn" if "edge_weight" in graphs.arrays else "gine"


def _has(path: Path, name: str) -> bool:
    """Return whether a file has an entry; `train` reports a file that cannot be read."""
    try:
        if path.suffix != ".pt":
            # A partitioned graph states its labels in its header.
            return name in ArrayFile(path) or (path.is_dir() and name == "y")
        data = load_data(path)
        if hasattr(data, "node_types"):
            return name == "edge_type" or any(name in data[kind] for kind in data.node_types)
        return getattr(data, name, None) is not None
    except DataError:
        return name == "y"
