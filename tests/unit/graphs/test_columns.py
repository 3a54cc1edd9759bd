"""Numbers of a graph far from those of the training are told, by column."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from scitoolkit.core.content import shipped_path
from scitoolkit.core.errors import DataError
from scitoolkit.graphs.columns import column_moments, refuse_marked_columns, warn_of_columns
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.graphs.graph import Graph, read_graph, write_graph
from scitoolkit.graphs.link_config import LinkConfig
from scitoolkit.graphs.link_stages import LinkStages
from scitoolkit.graphs.partitioner import partition_edges
from scitoolkit.graphs.stages import GraphStages
from scitoolkit.io import familiar
from scitoolkit.surrogate import load
from scitoolkit.testing.job import scitoolkit

pytest.importorskip("torch_geometric", exc_type=ImportError)

NODES, EDGES = 120, 500


@pytest.fixture
def lines(monkeypatch):
    """The warnings of values far from the training; whether logs propagate depends on the order."""
    out = []
    monkeypatch.setattr(familiar.log, "warning", lambda text, *values: out.append(text % values))
    return out


def numbers(seed=0):
    r = np.random.default_rng(seed)
    group = np.eye(2)[r.integers(2, size=NODES)]
    return np.column_stack([r.normal(300, 5, NODES), r.normal(0, 1, NODES), group])


def graph_of(x, bonds=None, seed=0):
    r = np.random.default_rng(seed)
    nodes = np.arange(NODES)
    parts = {"train": nodes[:60], "validation": nodes[60:80], "test": nodes[80:]}
    labels, (source, target) = nodes % 2, r.integers(NODES, size=(2, EDGES))
    return Graph(source, target, NODES, x, labels, parts, edge_attr=bonds)


def trained(folder, path, *more):
    (folder / "case.yaml").write_text(
        f"domain: graphs\ndata: {{path: {path}}}\nrun: {{root: {folder}/runs}}\n"
        "training: {strategy: graph, epochs: 2, progress: false}\n"
    )
    done = scitoolkit("train", folder / "case.yaml", *more, "--json")
    assert done.code == 0, done.err
    return load(GraphStages(), GraphConfig, Path(json.loads(done.out)["run"]))


def told(model, path, lines):
    """Return the warning of a prediction, which is that of an evaluation."""
    stages = GraphStages()
    data = stages.open(model.config, path)
    lines.clear()
    stages.predict(model.config, model.model, data, path)
    of_prediction = list(lines)
    lines.clear()
    stages.evaluate(model.config, model.model, data, None)
    assert len(of_prediction) == len(lines) <= 1
    return "".join(of_prediction)


CHANGES = {
    "itself": ("", lambda x: x),
    "other groups": ("", lambda x: x * [1, 1, 0, 0] + [0, 0, 1, 0]),
    "permuted": ("column 1 of x", lambda x: x[:, [1, 0, 2, 3]]),
    "degC": ("column 0 of x", lambda x: x - [273.15, 0, 0, 0]),
    "thousand": ("column 1 of x", lambda x: x * [1, 1000, 1, 1]),
    "groups times 1000": ("column 3 of x", lambda x: x * [1, 1, 1, 1000]),
    "mark": (
        "of x, one of 4 such columns:",
        lambda x: np.where(np.arange(NODES)[:, None] % 9, x, -999),
    ),
}


def test_numbers_far_from_those_of_the_training_are_told(tmp_path, lines):
    file, folder = tmp_path / "a.npz", tmp_path / "parts"
    write_graph(graph_of(numbers()), file)
    model = trained(tmp_path, file)
    for name, (column, change) in CHANGES.items():
        write_graph(graph_of(change(numbers(1)), seed=1), tmp_path / "b.npz")
        assert column in told(model, tmp_path / "b.npz", lines), name
        assert column or not told(model, tmp_path / "b.npz", lines), name
    partition_edges(tmp_path / "b.npz", folder, 2)
    assert column in told(model, folder, lines)
    model.model.measured.pop("columns")
    assert not told(model, folder, lines)


def test_features_of_edges_are_compared(tmp_path, lines):
    bonds = np.random.default_rng(0).normal(9, 1, (EDGES, 2))
    write_graph(graph_of(numbers(), bonds), tmp_path / "a.npz")
    model = trained(tmp_path, tmp_path / "a.npz", "model={name: gine}")
    write_graph(graph_of(numbers(1), bonds, 1), tmp_path / "b.npz")
    assert not told(model, tmp_path / "b.npz", lines)
    write_graph(graph_of(numbers(1), bonds * [1, -90], 1), tmp_path / "b.npz")
    assert "column 1 of edge_attr" in told(model, tmp_path / "b.npz", lines)


def test_models_of_edges_compare_as_well(tmp_path, lines):
    graph, stages = graph_of(numbers()), LinkStages()
    write_graph(graph, tmp_path / "a.npz")
    config = LinkConfig.model_validate({"data": {"path": tmp_path / "a.npz"}})
    data = stages.open(config, tmp_path / "a.npz")
    model = stages.build(config, None, stages.measure(config, data, []), 0)
    stages.evaluate(config, model, data, None)
    assert not lines
    graph.features[:, 1] *= 1000
    write_graph(graph, tmp_path / "a.npz")
    stages.evaluate(config, model, stages.open(config, tmp_path / "a.npz"), None)
    assert "column 1 of x" in lines[0]


def test_a_partitioned_graph_has_the_moments_of_the_file(tmp_path):
    write_graph(graph_of(numbers()), tmp_path / "a.npz")
    partition_edges(tmp_path / "a.npz", tmp_path / "parts", 1)
    stages, config = GraphStages(), GraphConfig.model_validate({"data": {"path": "a.npz"}})
    data = [stages.open(config, tmp_path / name) for name in ("a.npz", "parts")]
    first, second = (stages.measure(config, d, [])["columns"]["x"] for d in data)
    for name, values in first.items():
        np.testing.assert_allclose(values, second[name], rtol=1e-12)


def test_moments_are_those_of_all_rows_of_all_processes():
    x = numbers() * (np.random.default_rng(1).random((NODES, 4)) < 0.4)
    x[:, 1] = 0
    matrix = sp.csr_matrix(x)
    # An entry that is stored twice counts as the sum.
    double = sp.csr_matrix(
        (np.repeat(matrix.data / 2, 2), np.repeat(matrix.indices, 2), 2 * matrix.indptr), x.shape
    )
    shares = [x[:50], x[50:50], x[50:]]
    for parts in ([x], [matrix], [double], shares, [double[:7], x[7:]]):
        moments = column_moments({"x": parts})["x"]
        np.testing.assert_array_equal(moments.lowest, x.min(0))
        np.testing.assert_array_equal(moments.highest, x.max(0))
        np.testing.assert_allclose(moments.mean, x.mean(0))
        np.testing.assert_allclose(moments.deviation, x.std(0))
        ends = (x == x.min(0)) | (x == x.max(0))
        np.testing.assert_allclose(moments.at_ends, ends.mean(0))


@pytest.mark.parametrize("chosen", [slice(None), slice(0, 140), slice(1, None, 2)])
def test_words_of_other_documents_are_not_told(lines, chosen):
    graph = read_graph(shipped_path("datasets/cora/cora.npz"))
    usual = column_moments({"x": [graph.features[chosen]]})["x"].usual()
    own = column_moments({"x": [graph.features]})
    warn_of_columns({"x": usual}, own, graph.where)
    assert not lines
    warn_of_columns({"x": usual}, column_moments({"x": [graph.features * 1000]}), graph.where)
    assert len(lines) == 1


MARKED = {
    "-9999": (-9999.0, 5),
    "once": (-9999.0, 1),
    "-999": (-999.0, 5),
    "-99.9": (-99.9, 5),
    "1e20": (1e20, 5),
}


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("name", MARKED)
def test_marks_of_missing_values_are_refused(name, kind):
    mark, count = MARKED[name]
    x = np.random.default_rng(0).normal(size=(NODES, 3))
    x[:count, 1] = mark
    with pytest.raises(DataError, match=f"{count} values are .*allow_suspect=true"):
        refuse_marked_columns({"x": [x[:0], kind(x)]}, "a.npz")


def test_a_column_of_large_numbers_hides_no_mark(tmp_path):
    x = np.random.default_rng(0).normal(size=(NODES, 3)) * [1e6, 1, 1]
    x[3:9, 1] = -9999
    write_graph(graph_of(x), tmp_path / "a.npz")
    stages = GraphStages()
    for path in ("a.npz", "parts"):
        if path == "parts":
            partition_edges(tmp_path / "a.npz", tmp_path / "parts", 1)
        for suspect in (False, True):
            data = {"path": tmp_path / path, "allow_suspect": suspect}
            config = GraphConfig.model_validate({"data": data})
            if suspect:
                stages.measure(config, stages.open(config, tmp_path / path), [])
                continue
            with pytest.raises(DataError, match="column 1 of x: 6 values are -9999"):
                stages.measure(config, stages.open(config, tmp_path / path), [])


@pytest.mark.parametrize(
    "column",
    [
        np.r_[-1.0, np.arange(40.0)],
        np.r_[np.arange(100.0), 99.0],
        np.r_[-9999.0, np.linspace(-1e4, 1e4, 99)],
        np.r_[999.0, np.linspace(0, 990, 99)],
        np.r_[np.zeros(90), np.ones(9)],
        np.full(20, -999.0),
        np.r_[np.random.default_rng(0).pareto(1.0, 500) * 100],
    ],
)
def test_features_without_marks_pass(column):
    refuse_marked_columns({"x": [column[:, None], sp.csr_matrix(column[:, None])]}, "a.npz")
