"""The job from a file to a prediction, on one process and on two."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from command_line import run_process

from scitoolkit import api
from scitoolkit.cli.main import run_cli
from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.graphs.graph import Graph, read_graph, write_graph
from scitoolkit.graphs.job import GraphJob
from scitoolkit.graphs.partitioned import PartitionedGraph
from scitoolkit.graphs.stages import GraphStages
from scitoolkit.surrogate import load

pytest.importorskip("torch_geometric", exc_type=ImportError)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Three groups of nodes that mostly know their own, features that say little."""
    r = np.random.default_rng(0)
    nodes, groups = 240, 3
    labels = np.arange(nodes) % groups
    source = r.integers(nodes, size=4000)
    target = r.integers(nodes, size=4000)
    kept = (labels[source] == labels[target]) | (r.random(4000) < 0.1)
    x = r.normal(size=(nodes, 5)) + 0.5 * np.eye(5)[labels]
    order = r.permutation(nodes)
    parts = {"train": order[:30], "validation": order[30:80], "test": order[80:]}
    path = tmp_path_factory.mktemp("graph") / "groups.npz"
    write_graph(Graph(source[kept], target[kept], nodes, x, labels, parts), path)
    return path


def settings(file, root, **more):
    values = {
        "domain": "graphs",
        "data": {"path": str(file)},
        "run": {"root": str(root)},
        "training": {
            "strategy": "graph",
            "epochs": 40,
            "progress": False,
            "log_every": 1,
            "optimizer": {"name": "adam", "lr": 0.02},
        },
    } | more
    path = root / "train.yaml"
    path.write_text(json.dumps(values))
    return path


@pytest.mark.parametrize(("members", "dtype"), [(2, "float32"), (3, "int8")])
def test_networks_are_averaged_and_stored_in_few_bits(file, tmp_path, members, dtype):
    training = {"strategy": "graph", "epochs": 3, "progress": False}
    more = {"members": members, "weights_dtype": dtype, "seed": 4, "training": training}
    run = api.run(settings(file, tmp_path, **more))
    folder = ModelFolder(run.path)
    assert len({name.split(".")[1] for name in folder.load_weights()}) == members
    stages = GraphStages()
    trained = load(stages, GraphConfig, run.path)
    data = stages.open(trained.config, file)
    graph = data.whole
    x = torch.from_numpy(graph.dense_features(np.arange(graph.num_nodes))).float()
    pair = torch.from_numpy(np.stack([graph.source, graph.target]))
    outputs = torch.stack([member(x, pair) for member in trained.model.members])
    truth = outputs.mean(0).softmax(-1).detach()
    out = stages.predict(trained.config, trained.model, data, tmp_path / "out.nc")
    np.testing.assert_allclose(out.probability.values, truth.numpy(), atol=1e-5)
    GraphJob().predict(run.path, file, tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as written:
        np.testing.assert_array_equal(written.probability.values, out.probability.values)


def test_a_resumed_run_refuses_another_graph(file, tmp_path):
    graph, path = read_graph(file), tmp_path / "graph.npz"
    write_graph(graph, path)
    training = {"strategy": "graph", "epochs": 1, "progress": False}
    run = api.run(settings(path, tmp_path, training=training))
    wider = np.concatenate([graph.dense_features(np.arange(graph.num_nodes))] * 2, 1)
    write_graph(replace(graph, features=wider), path)
    config = ModelFolder(run.path).config(GraphConfig)
    with pytest.raises(DataError, match="variable x"):
        GraphJob().train(config, RunDirectory(run.path), resume=True)


def test_a_trial_is_scored_on_the_validation_nodes_alone(file, tmp_path):
    job, path = GraphJob(), settings(file, tmp_path)
    config = load_config(GraphConfig, path)
    run = RunDirectory.create(tmp_path / "trials", "one", config)
    scores = job.search_trial(config, run)
    assert "validation_accuracy" in scores
    assert not any("test" in name or "train" in name for name in scores)


def test_train_evaluate_predict(file, tmp_path):
    run = api.run(settings(file, tmp_path))
    results = json.loads((run.path / "results.json").read_text())["metrics"]
    assert results["test_accuracy"] > 0.85
    assert results["test_accuracy"] > results["test_accuracy_majority_class"] + 0.3
    again = api.evaluate(run.path, file).metrics
    assert again["test_accuracy"] == results["test_accuracy"]
    out = api.predict(run.path, file, tmp_path / "classes.nc")
    with xr.open_dataset(out) as found:
        assert found["probability"].shape == (240, 3)
        assert np.allclose(found["probability"].sum("label"), 1, atol=1e-5)
    assert (run.path / "report" / "index.html").is_file()
    stored = tmp_path / "parts"
    assert run_cli(["graphs", "partition", str(file), str(stored), "--parts", "3"]) == 0
    by_parts = api.predict(run.path, stored, tmp_path / "by_parts.nc")
    with xr.open_dataset(out) as found, xr.open_dataset(by_parts) as again:
        assert np.abs(found["probability"] - again["probability"]).max() < 1e-6
    assert sorted(p.name for p in stored.iterdir())[0] == "graph.json"  # no scratch is left


@pytest.fixture(scope="module")
def with_target(tmp_path_factory):
    """Groups as labels of which a node has several, and as values; a few nodes without either."""
    folder = tmp_path_factory.mktemp("targets")
    r = np.random.default_rng(1)
    nodes, groups = 240, 3
    labels = (r.random((nodes, groups)) < 0.4).astype(np.int64)
    values = 50 + 20 * labels[:, :2] + r.normal(size=(nodes, 2))
    source, target = r.integers(nodes, size=(2, 8000))
    kept = (labels[source] == labels[target]).all(1)
    x = r.normal(size=(nodes, 5)) + 2 * (labels @ np.eye(3, 5))
    order = r.permutation(nodes - 5)
    parts = {"train": order[:80], "validation": order[80:120], "test": order[120:]}
    labels[-5:], values[-5:, 1] = -1, np.nan

    def write(name):
        y = {"labels": labels, "values": values}[name]
        graph = Graph(source[kept], target[kept], nodes, x, y, parts, target_name=name)
        write_graph(graph, folder / f"{name}.npz")
        return folder / f"{name}.npz"

    return write


@pytest.mark.parametrize(
    ("name", "merit", "good"),
    [("labels", "micro_f1", lambda f: f > 0.9), ("values", "rmse", lambda f: f < 5)],
)
def test_labels_and_values_are_learned(with_target, tmp_path, name, merit, good):
    file = with_target(name)
    more = {"data": {"path": str(file), "target": name}, "model": {"name": "gcn", "dropout": 0.0}}
    config = settings(file, tmp_path, **more)
    run = api.run(config)
    metrics = json.loads((run.path / "results.json").read_text())["metrics"]
    assert good(metrics[f"test_{merit}"])
    plain = {"labels": "majority_of_each_label", "values": "mean"}[name]
    better = max if merit == "micro_f1" else min
    assert (
        better(metrics[f"test_{merit}"], metrics[f"test_{merit}_{plain}"])
        != (metrics[f"test_{merit}_{plain}"])
    )
    with xr.open_dataset(api.predict(run.path, file, tmp_path / "found.nc")) as found:
        graph = read_graph(file, name)
        rows = found["has_label" if name == "labels" else "value"].values[graph.parts["test"]]
        again = graph.learned.figures(graph.labels[graph.parts["test"]], rows)
        assert again[merit] == pytest.approx(metrics[f"test_{merit}"], rel=1e-5)
    stored = tmp_path / "parts"
    command = ["graphs", "partition", str(file), str(stored), "--parts", "1", "--target", name]
    assert run_cli(command) == 0
    whole = api.check(config)
    more["data"]["path"] = str(stored)
    from_parts = api.check(settings(stored, tmp_path, **more))
    del from_parts["seconds_per_step"], whole["seconds_per_step"]
    assert from_parts == {**whole, "first_loss": pytest.approx(whole["first_loss"], rel=1e-5)}
    with pytest.raises(ConfigError, match=f"partitioned with {name}.*data.target={name}"):
        api.check(settings(stored, tmp_path))


def test_check_says_what_is_kept_of_the_edges(file, tmp_path):
    facts = api.check(settings(file, tmp_path))
    graph = read_graph(file)
    pairs = set(zip(graph.source, graph.target, strict=True))
    assert facts["duplicate_edges"] == graph.num_edges - len(pairs) > 0
    assert facts["self_loops"] == (graph.source == graph.target).sum() > 0
    assert facts["isolated_nodes"] == 0
    stored = tmp_path / "parts"
    assert run_cli(["graphs", "partition", str(file), str(stored), "--parts", "1"]) == 0
    from_parts = api.check(settings(stored, tmp_path))
    del from_parts["seconds_per_step"], facts["seconds_per_step"]
    assert from_parts == {**facts, "first_loss": pytest.approx(facts["first_loss"], rel=1e-5)}


def test_a_file_with_other_features_is_refused(file, tmp_path):
    run = api.train(settings(file, tmp_path, training={"epochs": 1, "progress": False}))
    other = tmp_path / "other.npz"
    np.savez(other, edge_index=np.zeros((2, 1), int), x=np.zeros((3, 2)), y=np.zeros(3), test=[0])
    with pytest.raises(DataError, match=r"variable x: components \(2,\).*\(5,\)"):
        api.evaluate(run.path, other)
    y = np.array([0, 7, 1])
    np.savez(other, edge_index=np.zeros((2, 1), int), x=np.zeros((3, 5)), y=y, test=[0])
    with pytest.raises(DataError, match=r"8 classes.*at most the 3 of training"):
        api.evaluate(run.path, other)
    np.savez(
        other,
        edge_index=np.zeros((2, 1), int),
        x=np.zeros((3, 5)),
        y=np.zeros(3),
        test=[0],
        edge_weight=np.ones(1),
    )
    with pytest.raises(DataError, match=r"edge_weight.*as in training"):
        api.evaluate(run.path, other)


def test_configurations_that_cannot_run(file, tmp_path):
    for more, message in (
        (
            {"graph": {"algorithm": "2d"}, "training": {"strategy": "ddp"}},
            "'ddp' is not one of auto",
        ),
        ({"graph": {"owner": str(file)}}, "not a readable npy"),
    ):
        with pytest.raises((ConfigError, DataError), match=message):
            api.check(settings(file, tmp_path, **more))


@pytest.mark.multiproc
@pytest.mark.parametrize(
    ("algorithm", "stored"),
    [
        ("1d", False),
        pytest.param("1d", True, marks=pytest.mark.slow),
        pytest.param("1.5d", False, marks=pytest.mark.slow),
    ],
)
def test_two_processes_train_to_the_same_curve(file, tmp_path, algorithm, stored):
    def job(name, data, algorithm):
        folder = tmp_path / name
        folder.mkdir()
        return settings(data, folder, graph={"algorithm": algorithm, "partition": "random"})

    def losses(folder):
        with open(f"{folder}/metrics.jsonl", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        return [row["value"] for row in rows if row["name"] == "train/loss"]

    data = tmp_path / "parts" if stored else file
    if stored:
        assert run_cli(["graphs", "partition", str(file), str(data), "--parts", "2"]) == 0
    one = api.run(job("one", file, "1d"))
    two = job("two", data, algorithm)
    done = run_process(tmp_path, "run", two, "--nproc", 2, "--json")
    assert done.code == 0, done.err
    two = done.json
    alone = losses(one.path)
    assert len(alone) == 40
    assert np.allclose(alone, losses(two["run"]), rtol=2e-4)
    results = json.loads((one.path / "results.json").read_text())["metrics"]
    assert results["test_accuracy"] == pytest.approx(two["metrics"]["test_accuracy"], abs=0.01)


def test_plan_names_every_grid_and_chooses(file, capsys):
    assert run_cli(["graphs", "plan", str(file), "--ranks", "4", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["algorithms"]) == 12
    assert answer["choice"] == answer["algorithms"][0]["algorithm"]
    needed = {row["algorithm"]: row["words"] for row in answer["algorithms"]}
    assert needed["1D 4x1x1, needed rows"] <= needed["1D 4x1x1, all rows"]
    assert run_cli(["graphs", "plan", str(file), "--ranks", "999"]) == 2


def test_the_plan_of_a_random_partition_depends_on_the_seed(file, capsys):
    answers = []
    for seed in ("3", "4", "3"):
        options = ["--partition", "random", "--seed", seed, "--json"]
        assert run_cli(["graphs", "plan", str(file), *options]) == 0
        rows = json.loads(capsys.readouterr().out)["algorithms"]
        answers.append({row["algorithm"]: row["words"] for row in rows})
    assert answers[0] == answers[2] != answers[1]


def test_types_of_edges_from_a_file_of_heterogeneous_data(file, tmp_path):
    """What one type of edges says about the group, the other denies."""
    plain = read_graph(file)
    r = np.random.default_rng(3)
    other = r.integers(plain.num_nodes, size=(2, plain.num_edges))
    other = other[:, plain.labels[other[0]] != plain.labels[other[1]]]
    graph = Graph(
        np.concatenate([plain.source, other[0]]),
        np.concatenate([plain.target, other[1]]),
        plain.num_nodes,
        plain.features,
        plain.labels,
        plain.parts,
        edge_type=np.repeat([0, 1], [plain.num_edges, other.shape[1]]),
    )
    path = tmp_path / "types.npz"
    write_graph(graph, path)
    with pytest.raises(ConfigError, match="edge_type, which Weighted"):
        api.run(settings(path, tmp_path))
    run = api.run(settings(path, tmp_path, model={"name": "rgcn", "hidden": 8}))
    results = json.loads((run.path / "results.json").read_text())["metrics"]
    assert results["test_accuracy"] > 0.6
    api.predict(run.path, path, tmp_path / "classes.nc")
    with pytest.raises(DataError, match="edge_type"):
        api.predict(run.path, file, tmp_path / "without.nc")
    graph.edge_type[0] = 2
    write_graph(graph, tmp_path / "more.npz")
    with pytest.raises(DataError, match="3 types of edges"):
        api.predict(run.path, tmp_path / "more.npz", tmp_path / "more.nc")
    assert run_cli(["graphs", "partition", str(path), str(tmp_path / "p"), "--parts", "2"]) == 0
    assert PartitionedGraph.open(tmp_path / "p").header["edge_types"] == 2
