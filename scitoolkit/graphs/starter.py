"""Starter configuration of node classification."""

from __future__ import annotations

from scitoolkit.core.starter import DataToStart, Lines


def starter(data: DataToStart) -> str:
    """Return a short commented configuration of a graph job that runs unchanged."""
    lines = Lines("Classes of nodes from their features and edges, on the whole graph at once.")
    lines.key("domain", "graphs")
    lines.section("data", path=str(data.written[0] if data.one else ""))
    lines.section("model", name="gcn", hidden=16, dropout=0.5)
    lines.section(
        "training", epochs=200, optimizer={"name": "adam", "lr": 0.01, "weight_decay": 5e-4}
    )
    return lines.text()
