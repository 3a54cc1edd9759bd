"""Readers of sets of graphs: .pt of torch-geometric, .npz or HDF5, and folders of OGB."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np

from scitoolkit.core.content import shipped_path
from scitoolkit.core.errors import DataError
from scitoolkit.graphs.arrays_on_disk import ArrayFile
from scitoolkit.graphs.graph_set import EDGE_ARRAYS, NODE_ARRAYS, StackedGraphs
from scitoolkit.graphs.targets import TargetName
from scitoolkit.io.numpy_file import DAMAGED

Array = np.ndarray
SPLIT_NAMES = {
    "train": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
}
_SIZES = ("_num_nodes", "num_nodes")
_COUNTS = ("num_nodes", "num_edges")


def is_graph_set(path: Path) -> bool:
    """Return whether a file or folder has the layout of a set of graphs, not of one graph."""
    path = Path(path)
    if _ogb_folder(path) is not None:
        return True
    if path.suffix == ".pt":
        from scitoolkit.graphs.pyg_files import load_data

        return isinstance(load_data(path), (list, tuple))
    try:
        file = ArrayFile(path)
    except DataError:
        return False
    with contextlib.closing(file):
        return all(name in file for name in _COUNTS)


def read_graphs(
    path: Path,
    target: TargetName = "values",
    *,
    columns: Sequence[int] = (),
    ignore: Sequence[str] = (),
    undirected: bool | None = None,
    split: str = "",
    integers: Literal["categories", "numbers"] = "categories",
) -> StackedGraphs:
    """Read a set of graphs.

    A `.pt` file holds a list of `Data` or of dicts, or is the processed file of an
    `InMemoryDataset`. An `.npz` or HDF5 file has the keys of `StackedGraphs`: `num_nodes`,
    `num_edges`, `edge_index`, inputs, `y`, and the parts `train`, `val` and `test` as numbers of
    graphs or masks. A folder of OGB has `raw/*.csv.gz`, and `split/NAME/*.csv.gz`.

    Args:
        path: the file or folder.
        target: meaning of `y`.
        columns: columns of `y` that are read; all by default.
        ignore: names of entries that are not read.
        undirected: whether each edge is stored once and also runs in the other direction. None for
            files in which directions follow from the edges.
        split: name of the split of a folder of OGB with several.
        integers: `numbers` reads an `x` or `edge_attr` of whole numbers as real numbers.

    Raises:
        DataError: no such file, an entry that is not read, inconsistent contents, or edges in one
            direction only without `undirected`.
    """
    path = Path(shipped_path(path))
    units: dict[str, str] = {}
    folder = _ogb_folder(path)
    if folder is not None:
        arrays = _of_ogb(folder, split)
    elif not path.exists():
        raise DataError("no such file", where=str(path))
    elif path.suffix == ".pt":
        arrays = _of_data(path, ignore)
    else:
        arrays, units = _of_arrays(path)
    if integers == "numbers":
        arrays |= {n: np.asarray(arrays[n], np.float32) for n in ("x", "edge_attr") if n in arrays}
    graphs = _made(arrays, str(path), target, columns, ignore, units)
    # Each edge once is either a bond stored once or a directed edge, between which only the user
    # can tell; with the wrong one half of the messages are missing.
    if undirected is None and len(graphs.edge_index[0]) and not graphs.has_reverse_edges():
        raise DataError(
            "no edge runs in both directions",
            where=str(path),
            fix="data.undirected=true if each edge is stored once, false if edges have a direction",
        )
    return graphs.with_reverse_edges() if undirected else graphs


def _made(
    arrays: dict[str, Any],
    where: str,
    target: TargetName,
    columns: Sequence[int],
    ignore: Sequence[str],
    units: Mapping[str, str],
) -> StackedGraphs:
    """Return the set of arrays by name."""
    arrays = {name: array for name, array in arrays.items() if name not in ignore}
    missing = [name for name in (*_COUNTS, "edge_index") if name not in arrays]
    if missing:
        raise DataError(
            f"no {missing[0]}, so the file is not a set of graphs",
            where=where,
            allowed="keys num_nodes, num_edges, edge_index",
            fix="domain: graphs, if it holds one graph",
        )
    num_nodes, num_edges, pairs = (arrays.pop(name) for name in (*_COUNTS, "edge_index"))
    parts = {part: arrays.pop(n) for n, part in SPLIT_NAMES.items() if n in arrays}
    labels = arrays.pop("y", None)
    if labels is not None:
        labels = _columns(np.asarray(labels), columns, where, target)
    return StackedGraphs(num_nodes, num_edges, pairs, arrays, labels, parts, where, target, units)


def _columns(labels: Array, columns: Sequence[int], where: str, target: TargetName) -> Array:
    if columns:
        width = labels.shape[1] if labels.ndim == 2 else 1
        outside = [c for c in columns if not 0 <= c < width]
        if outside:
            raise DataError(
                f"no column {outside[0]} of y", where=where, allowed=f"0 to {width - 1}"
            )
        labels = labels.reshape(len(labels), -1)[:, list(columns)]
    if target != "classes":
        return labels
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    # Graphs without a class have NaN in files of real numbers.
    return np.where(np.isnan(labels), -1, labels) if labels.dtype.kind == "f" else labels


def _of_arrays(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arrays of an .npz or HDF5 file, and the units that the latter states."""
    try:
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}, {}
        with h5py.File(path) as file:
            arrays = {name: np.asarray(file[name]) for name in file}
            units = {name: file[name].attrs.get("units", "") for name in file}
    except (OSError, AttributeError, *DAMAGED) as error:
        raise DataError(f"not readable ({error})", where=str(path)) from None
    return arrays, {n: u.decode() if isinstance(u, bytes) else str(u) for n, u in units.items()}


def _of_data(path: Path, ignore: Sequence[str]) -> dict[str, Any]:
    """Return the arrays of a list of Data or dicts, or of an InMemoryDataset."""
    from torch_geometric.data import Data
    from torch_geometric.data.collate import collate

    from scitoolkit.graphs.pyg_files import load_data

    held, where = load_data(path), str(path)
    if isinstance(held, tuple) and len(held) >= 2 and isinstance(held[0], (dict, Data)):
        stored = held[0] if isinstance(held[0], dict) else held[0].to_dict()
        return _stacked(stored, held[1], ignore, where)
    if not isinstance(held, (list, tuple)) or not held:
        raise DataError(
            f"a {type(held).__name__}, not a list of graphs",
            where=where,
            fix="domain: graphs, if it holds one graph",
        )
    graphs = [Data.from_dict(g) if isinstance(g, dict) else g for g in held]
    if others := {type(g).__name__ for g in graphs if not isinstance(g, Data)}:
        what, fix = (
            ", ".join(sorted(others)),
            "types of edges as edge_type, of nodes as columns of x",
        )
        raise DataError(
            f"a list of {what}", where=where, allowed="Data of torch_geometric", fix=fix
        )
    names = _names(graphs[0], ignore)
    for number, graph in enumerate(graphs):
        if _names(graph, ignore) != names:
            odd = sorted(_names(graph, ignore) ^ names)[0]
            raise DataError(
                f"graph {number} differs from graph 0 in having {odd}",
                where=where,
                allowed="the same entries in every graph",
                fix=f"data.ignore=[{odd}]",
            )
    sized = any(name in names for name in NODE_ARRAYS)
    sizes = None if sized else [int(graph.num_nodes) for graph in graphs]
    plain = [Data.from_dict({n: g[n] for n in names}) for g in graphs]
    try:
        data, slices, _ = collate(Data, plain, increment=False, add_batch=False)
    except (RuntimeError, TypeError) as error:
        raise DataError(f"the graphs differ in shapes or dtypes ({error})", where=where) from None
    return _stacked(data.to_dict(), slices, ignore, where, sizes)


def _names(graph: Any, ignore: Sequence[str]) -> set[str]:
    names = [n for n in graph.keys() if n not in (*ignore, "num_nodes")]
    return {n for n in names if graph[n] is not None}


def _stacked(
    stored: dict[str, Any],
    slices: Mapping[str, Any],
    ignore: Sequence[str],
    where: str,
    sizes: Any = None,
) -> dict[str, Any]:
    """Return the arrays of graphs that torch-geometric has concatenated."""
    unread = (*ignore, *_SIZES)
    entries = {n: v for n, v in stored.items() if v is not None and n not in unread}
    if "edge_index" not in entries:
        raise DataError("graphs without edge_index", where=where)
    counts = {name: np.diff(np.asarray(slices[name])) for name in entries if name in slices}
    if sizes is None:
        sized = [name for name in NODE_ARRAYS if name in counts]
        sizes = counts[sized[0]] if sized else _stated_sizes(stored, where)
    arrays: dict[str, Any] = {}
    for name, value in entries.items():
        expected = {**dict.fromkeys(NODE_ARRAYS, sizes)}
        expected |= dict.fromkeys(("edge_index", *EDGE_ARRAYS), counts["edge_index"])
        if name in expected and not np.array_equal(counts[name], expected[name]):
            graph = int(np.argmax(np.asarray(counts[name]) != np.asarray(expected[name])))
            raise DataError(f"{name} of graph {graph} has {counts[name][graph]} rows", where=where)
        arrays[name] = value.numpy() if hasattr(value, "numpy") else np.zeros(0)
    if "y" in arrays:
        arrays["y"] = _targets(arrays["y"], counts.get("y"), np.asarray(sizes), where)
    return {**arrays, "num_nodes": sizes, "num_edges": counts["edge_index"]}


def _stated_sizes(stored: Mapping[str, Any], where: str) -> Array:
    """Return the numbers of nodes that an InMemoryDataset states, for graphs without inputs."""
    for name in _SIZES:
        if stored.get(name) is not None and np.ndim(stored[name]) == 1:
            return np.asarray(stored[name])
    raise DataError(
        "graphs without x, z, pos and num_nodes", where=where, allowed="a number of nodes"
    )


def _targets(y: Array, counts: Any, sizes: Array, where: str) -> Array:
    """Return a row for each graph, of shape (1, D) or (D,) in the graph itself."""
    if counts is None or len(y) == len(sizes):
        return y
    if np.array_equal(counts, sizes) or len(np.unique(counts)) > 1:
        raise DataError(
            f"y has {counts[0]} rows in graph 0 and {counts[-1]} in the last one: it is no target "
            "of whole graphs",
            where=where,
            allowed="y of shape (1, D) in every graph",
        )
    return y.reshape(len(sizes), -1)


def _ogb_folder(path: Path) -> Path | None:
    """Return the folder that holds `raw/` of a data set of OGB; None if there is none."""
    for folder in (path, path.parent):
        if path.is_dir() and (folder / "raw" / "num-node-list.csv.gz").is_file():
            return folder if folder == path or path.name == "raw" else None
    return None


_OF_OGB = {
    "num-node-list": "num_nodes",
    "num-edge-list": "num_edges",
    "edge": "edge_index",
    "node-feat": "x",
    "edge-feat": "edge_attr",
    "graph-label": "y",
}


def _of_ogb(folder: Path, split: str) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for file in sorted((folder / "raw").glob("*.csv.gz")):
        name = file.name.removesuffix(".csv.gz")
        values = _table(file)
        arrays[_OF_OGB.get(name, name)] = values[:, 0] if name.startswith("num-") else values
    if "edge_index" in arrays:
        arrays["edge_index"] = arrays["edge_index"].T
    splits = sorted(p.name for p in (folder / "split").glob("*") if p.is_dir())
    if split and split not in splits:
        raise DataError(f"no split {split}", where=str(folder), allowed=", ".join(splits))
    if len(splits) > 1 and not split:
        raise DataError(
            f"splits {', '.join(splits)}", where=str(folder), fix=f"data.split={splits[0]}"
        )
    for file in sorted((folder / "split" / (split or (splits or ["none"])[0])).glob("*.csv.gz")):
        arrays[file.name.removesuffix(".csv.gz")] = _table(file)[:, 0]
    return arrays


def _table(file: Path) -> Array:
    import pandas as pd

    try:
        return pd.read_csv(file, header=None).to_numpy()
    except pd.errors.EmptyDataError:
        return np.zeros((0, 2), np.int64)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"not a readable table ({error})", where=str(file)) from None
