"""Trainings of graph models that start from trained weights, by the stages of all surrogates."""

import json

import numpy as np
import pytest
import torch
from mesh_files import write_meshes

from scitoolkit import api
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.graphs.graph import Graph, write_graph
from scitoolkit.graphs.graph_set_config import GraphSetConfig
from scitoolkit.graphs.graph_set_stages import GraphSetStages
from scitoolkit.surrogate import fit, load, start
from scitoolkit.surrogate.fine_tuning import adopted, require_same

pytest.importorskip("torch_geometric.nn", exc_type=ImportError)


def molecules(path, count=40, seed=0, scale=1.0):
    """Write chains whose value is the number of nodes times `scale`."""
    r = np.random.default_rng(seed)
    nodes = r.integers(3, 9, count)
    chains = [np.stack([np.arange(n - 1), np.arange(1, n)]) for n in nodes]
    edges = [np.concatenate([pair, pair[::-1]], axis=1) for pair in chains]
    np.savez(
        path,
        num_nodes=nodes,
        num_edges=2 * (nodes - 1),
        edge_index=np.concatenate(edges, axis=1),
        x=r.normal(size=(nodes.sum(), 2)).astype(np.float32),
        y=(scale * nodes)[:, None].astype(np.float32),
    )
    return path


def node_file(path, values=False, seed=0, features=4):
    r = np.random.default_rng(seed)
    source, target = r.integers(60, size=(2, 300))
    labels = r.normal(3 * seed, 1 + seed, 60) if values else np.arange(60) % 3
    parts = np.split(r.permutation(60), [30, 45])
    parts = dict(zip(("train", "validation", "test"), parts, strict=True))
    x = r.normal(size=(60, features)).astype(np.float32)
    name = "values" if values else "classes"
    write_graph(Graph(source, target, 60, x, labels, parts, target_name=name), path)
    return path


def link_file(path, seed=0):
    r = np.random.default_rng(seed)
    pairs = np.triu(r.random((30, 30)) < 0.3, 1)
    edges = np.stack(np.nonzero(pairs | pairs.T))
    np.savez(path, x=r.normal(size=(30, 3)).astype(np.float32), edge_index=edges)
    return path


def mesh_file(path, seed=0):
    """Write trajectories on a mesh of a size that differs by seed."""
    return write_meshes(path, lambda skfem: {"square": skfem.MeshTri().refined(2 + seed)})


SETS = {"model": {"name": "gine", "hidden": 8, "layers": 2, "dropout": 0, "norm": "none"}}
CASES = {
    "graph_sets": (molecules, "npz", SETS, "nodes.bias"),
    "graphs": (node_file, "npz", {"model": {"hidden": 8, "dropout": 0}}, "*bias"),
    "graph_links": (link_file, "npz", {"model": {"hidden": 8}, "width": 8}, "*bias"),
    "mesh_transport": (mesh_file, "h5", {"model": {"hidden": 8, "rounds": 1}}, "decode.*"),
}


def trained(folder, domain, file, epochs=2, **sections):
    settings = {
        "domain": domain,
        "data": {"path": str(file)},
        "run": {"root": str(folder)},
        "training": {
            "epochs": epochs,
            "progress": False,
            "optimizer": {"name": "adam", "lr": 0.01},
        },
        **sections,
    }
    path = folder / "case.yaml"
    path.write_text(json.dumps(settings))
    return api.run(path).path


def weights(run):
    return ModelFolder(run).load_weights()


@pytest.mark.parametrize("domain", CASES)
def test_a_run_starts_from_trained_weights_and_freezes_some(domain, tmp_path):
    make, suffix, sections, frozen = CASES[domain]
    first = trained(tmp_path, domain, make(tmp_path / f"a.{suffix}"), **sections)
    other = make(tmp_path / f"b.{suffix}", seed=1)
    begin = {"path": str(first), "frozen": [frozen]}
    run = trained(tmp_path, domain, other, epochs=1, start=begin, **sections)
    before, after = weights(first), weights(run)
    assert before.keys() == after.keys()
    names = frozen.strip("*")
    moved = {name: not torch.equal(before[name], after[name]) for name in before}
    assert any(moved.values())
    assert not any(moved[name] for name in moved if names in name)
    assert set(api.evaluate(run).metrics)


def test_fine_tuning_is_training_that_continues(tmp_path):
    """Bit for bit that of a trainer given the trained weights, on other graphs of another scale."""
    file = molecules(tmp_path / "a.npz")
    first = trained(tmp_path, "graph_sets", file, **SETS)
    again = {"epochs": 2, "progress": False, "optimizer": {"name": "adam", "lr": 0.01}}
    settings = {"data": {"path": str(file)}, "training": again, **SETS}
    plain = GraphSetConfig.model_validate(settings)
    begun = start(GraphSetStages(), plain)
    former = load(GraphSetStages(), GraphSetConfig, first)
    begun.model.load_state_dict(former.model.state_dict())
    fit(GraphSetStages(), plain, begun, RunDirectory.create(tmp_path / "own", "own", plain))
    run = trained(tmp_path, "graph_sets", file, start={"path": str(first)}, **SETS)
    for name, tensor in begun.model.state_dict().items():
        assert torch.equal(tensor, weights(run)[name]), name


def test_the_units_of_outputs_are_those_of_the_weights(tmp_path):
    """Values ten times as large: they are measured in the deviations of the first training."""
    first = trained(tmp_path, "graph_sets", molecules(tmp_path / "a.npz"), **SETS)
    other = molecules(tmp_path / "b.npz", scale=10.0)
    sections = {"data": {"path": str(other)}, "start": {"path": str(first)}, **SETS}
    opened = start(GraphSetStages(), GraphSetConfig.model_validate(sections)).opened
    former = ModelFolder(first).measured()
    for key in ("target_mean", "target_deviation", "node"):
        assert opened.measured[key] == former[key]
    assert opened.measured["mean"][0] == pytest.approx(10 * former["mean"][0], rel=0.2)
    nodes = trained(
        tmp_path,
        "graphs",
        node_file(tmp_path / "v.npz", True),
        data={"path": str(tmp_path / "v.npz"), "target": "values"},
    )
    again = node_file(tmp_path / "w.npz", True, seed=1)
    data = {"path": str(again), "target": "values"}
    run = trained(tmp_path, "graphs", again, data=data, start={"path": str(nodes)})
    assert ModelFolder(run).measured()["mean"] == ModelFolder(nodes).measured()["mean"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {**SETS["model"], "hidden": 16}}, r"model\.hidden: 8 -> 16"),
        ({"members": 2}, r"members: 1 -> 2"),
        ({"pooling": "sum"}, r"pooling: 'mean' -> 'sum'"),
        ({"start": {"frozen": ["none"]}}, r"no parameter is called 'none'"),
        ({"start": {"frozen": ["*"]}}, r"all parameters are frozen"),
    ],
)
def test_weights_that_would_mean_something_else_are_refused(change, message, tmp_path):
    file = molecules(tmp_path / "a.npz")
    first = trained(tmp_path, "graph_sets", file, epochs=1, **SETS)
    begin = {"path": str(first), **change.pop("start", {})}
    with pytest.raises(ConfigError, match=message):
        trained(tmp_path, "graph_sets", file, **{**SETS, "start": begin, **change})


def test_other_features_and_classes_are_refused(tmp_path):
    first = trained(tmp_path, "graphs", node_file(tmp_path / "a.npz"))
    wider = node_file(tmp_path / "b.npz", features=5)
    with pytest.raises((ConfigError, DataError), match="features"):
        trained(tmp_path, "graphs", wider, start={"path": str(first)})
    with pytest.raises(ConfigError, match=r"outputs|3 -> 2"):
        adopted({"outputs": 2, "mean": [1.5]}, {"outputs": 3, "mean": [0.5]}, ())
    assert adopted({"outputs": 3, "mean": [1.5]}, {"outputs": 3, "mean": [0.5]}, ())["mean"] == [
        0.5
    ]
    with pytest.raises(ConfigError, match=r"a\.b"):
        require_same({"a": {"b": 1}}, {"a": {"b": 2}}, ["a"])
    require_same({"a": 1, "ab": 1}, {"a": 1, "ab": 2}, ["a"])
