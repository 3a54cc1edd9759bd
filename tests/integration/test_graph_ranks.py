"""Models of torch-geometric on several processes over gloo: equal to plain training, or refused."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric", exc_type=ImportError)

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
HELPERS = ("_graph_ranks", "_graph_models", "_graph_user_models")
EQUAL = [
    "GCNConv",
    "GATConv",
    "ChebConv",
    "GPSConv",
    "BatchNorm",
    "virtual node",
    "dropout",
    # as users write them
    "GCN of the tutorial",
    "DeepGCN res+, checkpointed",
    "RevGNN with dropout mask",
    "VGAE encoder",
    "lazy GAT",
    "weight norm",
    "dropout_edge, rewired",
    "reversed edges by index, rewired",
    "softmax over out-edges, between",
    "gumbel, between",
]
REFUSED = {
    "first rows": "gradient of the input",
    "to_undirected, rewired": "edge_index",
    "sparse product, between": "on 2 simulated ranks",
}


@pytest.fixture
def run_models(monkeypatch):
    for folder in (BENCHMARKS, BENCHMARKS / "graphs"):
        monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(BENCHMARKS))  # restored, whatever run_models adds
    from _graph_ranks import run_models

    yield run_models
    for name in HELPERS:
        sys.modules.pop(name)


@pytest.mark.multiproc
def test_models_on_two_processes_train_as_plain_ones(tmp_path, run_models):
    found = run_models([*EQUAL, *REFUSED], 2, tmp_path)
    for name, text in REFUSED.items():
        assert text in found.pop(name)["verdict"]
    assert set(found) == set(EQUAL)
    for name, record in found.items():
        assert record["verdict"] == "equal", name
        assert record["error"] < 1e-10, name


@pytest.mark.slow
@pytest.mark.multiproc
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_user_model_is_equal_or_refused(ranks, tmp_path, run_models):
    from _graph_user_models import user_models

    names = list(user_models())
    assert len(names) >= 150
    found = run_models(names, ranks, tmp_path)
    equal = [n for n in names if found[n]["verdict"] == "equal"]
    assert not [n for n in equal if not found[n]["error"] < 1e-10]
    others = {n: found[n]["verdict"] for n in names if n not in equal}
    assert all(text.startswith("refused") for text in others.values()), others
    assert len(equal) >= (0.92 if ranks > 1 else 1.0) * len(names), others
