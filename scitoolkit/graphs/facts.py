"""Facts of graphs, sets of graphs and meshes, and their comparison with those of a training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scitoolkit.core.data_differences import Accepts, compare, refuse
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.errors import DataError
from scitoolkit.graphs.graph import GraphInputs
from scitoolkit.graphs.graph_set import EDGE_ARRAYS, StackedGraphs
from scitoolkit.graphs.targets import TargetName
from scitoolkit.io.facts import of_graph


def node_facts(inputs: GraphInputs, target: TargetName, num_outputs: int | None) -> DataFacts:
    """Return the facts of a graph: node features, edge inputs and target.

    Args:
        inputs: shapes of the inputs.
        target: meaning of the labels.
        num_outputs: classes, labels or values of a node; None for a graph without labels.
    """
    arrays: dict[str, np.ndarray] = {"x": np.empty((0, inputs.num_features), np.float32)}
    if inputs.edge_weight:
        arrays["edge_weight"] = np.empty(0, np.float32)
    if inputs.edge_attr is not None:
        arrays["edge_attr"] = np.empty((0, *inputs.edge_attr), np.float32)
    for name, present in (("edge_type", inputs.edge_types), ("node_type", inputs.node_types)):
        if present:
            arrays[name] = np.empty(0, np.int64)
    if inputs.dimensions:
        arrays["pos"] = np.empty((0, inputs.dimensions), np.float32)
    if num_outputs is not None:
        one = target == "classes"
        shape = (0,) if one else (0, num_outputs)
        arrays[target] = np.empty(shape, np.int64 if one else np.float32)
    roles = {name: "edge" for name in ("edge_weight", "edge_attr", "edge_type")}
    roles |= {target: "label"}
    return of_graph(arrays, roles)


def require_types(measured: Mapping[str, Any], inputs: GraphInputs, where: str) -> None:
    """Refuse more types of nodes or edges than in training, and types of other names.

    Raises:
        DataError: names the types of both.
    """
    # Folders of former versions lack these numbers: their models read no types of nodes, so that
    # none is allowed; those of edges cannot be compared.
    for what, count in (("edge", inputs.edge_types), ("node", inputs.node_types)):
        trained = measured.get(f"{what}_types", count if what == "node" else 0)
        if count > trained:
            allowed = f"at most the {trained} of training"
            raise DataError(f"{count} types of {what}s", where=where, allowed=allowed)
    names, of_training = list(inputs.type_names), measured.get("type_names", [])
    # A type is known by its number: where one lacks, or in another order, each would get the
    # weights of another.
    if names and of_training and names != of_training:
        raise DataError(
            f"types {', '.join(names)}",
            where=where,
            allowed=f"those of the training in their order: {', '.join(of_training)}",
            fix="for a type that lacks, nodes or edges of that type, of which there may be none",
        )


ACCEPTS = Accepts(optional=("label",), convert=False, others=False)
"""Differences that models of graphs allow: labels may be missing."""


def graph_set_facts(graphs: StackedGraphs) -> DataFacts:
    """Return the facts of a set of graphs: inputs of nodes and edges, and target, with units."""
    arrays = {name: array[:0] for name, array in graphs.arrays.items()}
    if graphs.labels is not None:
        arrays[graphs.target_name] = graphs.labels[:0]
    roles = {name: "edge" for name in EDGE_ARRAYS} | {graphs.target_name: "label"}
    units = {**graphs.units, graphs.target_name: graphs.units.get("y", "")}
    return with_units(of_graph(arrays, roles), units)


def with_units(facts: DataFacts, units: Mapping[str, str]) -> DataFacts:
    """Return facts with the units of variables by name."""
    variables = (replace(v, units=units.get(v.name, "")) for v in facts.variables)
    return replace(facts, variables=tuple(variables))


def mesh_facts(path: Path, names: tuple[str, ...]) -> DataFacts:
    """Return the facts of a file of meshes: components, kinds of number and units.

    Args:
        path: the HDF5 file.
        names: its groups to describe; they must agree.

    Raises:
        DataError: a group differs from the first one.
    """
    first: DataFacts | None = None
    with h5py.File(path, "r") as file:
        for name in names:
            facts = _group_facts(file[name])
            if first is not None:
                refuse(compare(first, facts, Accepts(convert=False)), f"{path}:{name}")
            first = first or facts
    return first or DataFacts()


def _group_facts(group: h5py.Group) -> DataFacts:
    entries = {"positions": (2,), "velocity": (2,), "tracer": ()}
    arrays = {n: np.empty((0, *shape), group[n].dtype) for n, shape in entries.items()}
    facts = of_graph(arrays, {"tracer": "label"})
    units = {n: group[n].attrs.get("units", "") for n in entries}
    texts = {n: u.decode() if isinstance(u, bytes) else str(u) for n, u in units.items()}
    return with_units(facts, texts)
