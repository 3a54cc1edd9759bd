"""Starter configuration of node classification."""

from __future__ import annotations

from pathlib import Path

from scitoolkit.core.errors import DataError
from scitoolkit.core.starter import DataToStart, Lines
from scitoolkit.graphs.arrays_on_disk import ArrayFile


def starter(data: DataToStart) -> str:
    """Return a short commented configuration of a graph job that runs unchanged."""
    lines = Lines("Classes of nodes from their features and edges, on the whole graph at once.")
    lines.key("domain", "graphs")
    typed = _has_edge_types(data.one)
    lines.section("data", path=str(data.written[0]))
    model = "rgcn" if typed else "gcn"
    lines.section("model", name=model, hidden=16, dropout=0.5)
    lines.section(
        "training", epochs=200, optimizer={"name": "adam", "lr": 0.01, "weight_decay": 5e-4}
    )
    return lines.text()


def _has_edge_types(path: Path) -> bool:
    """Return whether a file has types of edges; `train` reports a file that cannot be read."""
    try:
        return "edge_type" in ArrayFile(path)
    except DataError:
        return False
