"""Models of torch-geometric on two processes over gloo: equal to plain training, or refused."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric", exc_type=ImportError)

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
EQUAL = ["GCNConv", "GATConv", "ChebConv", "GPSConv", "BatchNorm", "virtual node", "dropout"]


@pytest.mark.multiproc
def test_models_on_two_processes_train_as_plain_ones(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("PYTHONPATH", str(BENCHMARKS))  # restored, whatever run_models adds
    from _graph_ranks import run_models

    try:
        found = run_models([*EQUAL, "first rows"], 2, tmp_path)
    finally:
        sys.modules.pop("_graph_ranks"), sys.modules.pop("_graph_models")
    assert "gradient of the input" in found.pop("first rows")["verdict"]
    assert set(found) == set(EQUAL)
    for name, record in found.items():
        assert record["verdict"] == "equal", name
        assert record["error"] < 1e-10, name
