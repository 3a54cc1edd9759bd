"""Targets of whole graphs: files, batches, models, and several processes."""

import gzip
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import xarray as xr
import yaml
from command_line import run_process
from torch import nn

from scitoolkit.core.errors import BackendError, ConfigError, DataError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.starter import DataToStart
from scitoolkit.graphs.graph_set import StackedGraphs
from scitoolkit.graphs.graph_set_config import GraphSetConfig, GraphSetDataConfig
from scitoolkit.graphs.graph_set_files import is_graph_set, read_graphs
from scitoolkit.graphs.graph_set_inputs import GraphBatches, edge_columns, node_columns
from scitoolkit.graphs.graph_set_job import GraphSetJob
from scitoolkit.graphs.graph_set_model import GraphSetModel, InputEmbedding
from scitoolkit.graphs.models import OfPyG
from scitoolkit.graphs.starter import starter
from scitoolkit.testing import JobContract
from scitoolkit.testing.job import scitoolkit

pytest.importorskip("torch_geometric.nn", exc_type=ImportError)
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.nn import models as pyg_models
from torch_geometric.utils import to_undirected


def molecules(count=40, seed=0, **entries):
    """Return random trees with bonds; y is the sum over bonds of a number of both ends."""
    r = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        n = int(r.integers(3, 12))
        parent = np.array([int(r.integers(i)) for i in range(1, n)])
        pair = np.stack(
            [np.concatenate([parent, np.arange(1, n)]), np.concatenate([np.arange(1, n), parent])]
        )
        z = r.integers(1, 4, size=n)
        bond = np.tile(r.integers(0, 2, size=n - 1), 2)
        y = float((z[pair[0]] * z[pair[1]] * (1 + bond)).sum())
        data = Data(
            z=torch.from_numpy(z),
            edge_index=torch.from_numpy(pair),
            edge_attr=torch.from_numpy(bond)[:, None],
            y=torch.tensor([[y]]),
            num_nodes=n,
        )
        for name, make in entries.items():
            data[name] = make(r, n, pair)
        out.append(data)
    return out


def stacked(graphs, **more):
    """Return the arrays of an .npz file of a list of Data."""
    return {
        "num_nodes": np.array([g.num_nodes for g in graphs]),
        "num_edges": np.array([g.num_edges for g in graphs]),
        "edge_index": np.concatenate([g.edge_index.numpy() for g in graphs], axis=1),
        "z": np.concatenate([g.z.numpy() for g in graphs]),
        "edge_attr": np.concatenate([g.edge_attr.numpy() for g in graphs]),
        "y": np.concatenate([g.y.numpy() for g in graphs]),
        **more,
    }


def write_ogb(folder, graphs, splits=("scaffold",)):
    def table(name, rows):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(file, "wt") as out:
            for row in rows:
                out.write(",".join(str(v) for v in np.atleast_1d(row).tolist()) + "\n")

    half = [g.edge_index.numpy()[:, : g.num_edges // 2].T for g in graphs]
    table("raw/num-node-list.csv.gz", [g.num_nodes for g in graphs])
    table("raw/num-edge-list.csv.gz", [len(h) for h in half])
    table("raw/edge.csv.gz", np.concatenate(half))
    table("raw/node-feat.csv.gz", np.concatenate([g.z.numpy() for g in graphs]))
    bonds = [g.edge_attr.numpy()[: g.num_edges // 2] for g in graphs]
    table("raw/edge-feat.csv.gz", np.concatenate(bonds))
    table("raw/graph-label.csv.gz", [g.y.item() for g in graphs])
    for split in splits:
        order = np.arange(len(graphs))
        for name, part in zip(("train", "valid", "test"), np.split(order, [20, 30]), strict=True):
            table(f"split/{split}/{name}.csv.gz", part)
    return folder


def write(kind, folder, graphs):
    path = (
        folder
        / {"list": "a.pt", "dicts": "b.pt", "dataset": "c.pt", "npz": "d.npz", "hdf5": "e.h5"}[kind]
    )
    if kind == "list":
        torch.save(graphs, path)
    elif kind == "dicts":
        torch.save([g.to_dict() for g in graphs], path)
    elif kind == "dataset":
        InMemoryDataset.save(graphs, str(path))
    elif kind == "npz":
        np.savez(path, **stacked(graphs))
    else:
        with h5py.File(path, "w") as file:
            for name, array in stacked(graphs).items():
                file[name] = array
            file["y"].attrs["units"] = "eV"
    return path


@pytest.mark.parametrize("kind", ["list", "dicts", "dataset", "npz", "hdf5"])
def test_all_files_hold_the_same_graphs(kind, tmp_path):
    graphs = molecules()
    path = write(kind, tmp_path, graphs)
    assert is_graph_set(path)
    read = read_graphs(path)
    expected = stacked(graphs)
    assert np.array_equal(read.num_nodes, expected["num_nodes"])
    assert np.array_equal(read.edge_index, expected["edge_index"])
    assert np.array_equal(read.arrays["z"], expected["z"])
    assert np.array_equal(read.arrays["edge_attr"], expected["edge_attr"])
    assert np.array_equal(read.labels, expected["y"])
    assert read.units.get("y", "") == ("eV" if kind == "hdf5" else "")


def test_a_folder_of_ogb_stores_each_edge_once(tmp_path):
    graphs = molecules()
    folder = write_ogb(tmp_path / "mol", graphs)
    assert is_graph_set(folder)
    with pytest.raises(DataError, match="no edge runs in both directions"):
        read_graphs(folder)
    read = read_graphs(folder, undirected=True)
    assert {n: len(p) for n, p in read.parts.items()} == {"train": 20, "validation": 10, "test": 10}
    expected = stacked(graphs)
    for graph in (0, 7, 39):
        edges = slice(*read.first_edge[graph : graph + 2])
        mine = np.concatenate([read.edge_index[:, edges], read.arrays["edge_attr"][edges].T])
        plain = np.concatenate(
            [graphs[graph].edge_index.numpy(), graphs[graph].edge_attr.numpy().T]
        )
        assert np.array_equal(np.unique(mine, axis=1), np.unique(plain, axis=1))
    assert np.array_equal(read.arrays["x"][:, 0], expected["z"])
    two = write_ogb(tmp_path / "two", graphs, ("scaffold", "random"))
    with pytest.raises(DataError, match="splits random, scaffold"):
        read_graphs(two, undirected=True)
    assert len(read_graphs(two, undirected=True, split="random").parts["test"]) == 10


def test_a_self_loop_is_its_own_reverse():
    """As `to_undirected` of torch-geometric, which joins equal edges."""
    pairs = np.array([[0, 1, 0, 1], [1, 1, 0, 0]])
    graphs = StackedGraphs([2, 2], [2, 2], pairs, {"edge_weight": np.arange(4.0)}, np.zeros(2))
    both = graphs.with_reverse_edges()
    assert both.num_edges.tolist() == [3, 3]
    assert both.edge_index.T.tolist() == [[0, 1], [1, 1], [1, 0], [0, 0], [1, 0], [0, 1]]
    assert both.arrays["edge_weight"].tolist() == [0, 1, 0, 2, 3, 3]
    for graph in (0, 1):
        own = to_undirected(torch.from_numpy(pairs[:, 2 * graph : 2 * graph + 2]))
        ours = both.edge_index[:, 3 * graph : 3 * graph + 3]
        assert sorted(ours.T.tolist()) == sorted(own.T.tolist())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_nodes": np.zeros(40, int)}, "graph 0 has 0 nodes"),
        ({"num_nodes": np.full(40, 3)}, "graph . has|graph .* nodes|between nodes"),
        ({"z": np.zeros(3, int)}, r"z of shape \(3,\)"),
        ({"z": np.zeros(1, "U1")}, "z of"),
        ({"u": np.zeros(40)}, "u, which is not read.*ignore"),
        ({"y": np.zeros((7, 1))}, r"values of shape \(7, 1\)"),
        ({"train": np.array([0, 0])}, "names a graph twice"),
        ({"train": np.array([0, 1]), "test": np.array([1])}, "graph 1 is in train and test"),
        ({"train": np.array([40])}, "names graph 40"),
    ],
)
def test_what_does_not_fit_is_refused(change, message, tmp_path):
    np.savez(tmp_path / "a.npz", **stacked(molecules(), **change))
    with pytest.raises(DataError, match=message):
        read_graphs(tmp_path / "a.npz")


def test_nodes_numbered_through_all_graphs_are_refused(tmp_path):
    graphs = molecules()
    arrays = stacked(graphs)
    first = np.cumsum(arrays["num_nodes"]) - arrays["num_nodes"]
    arrays["edge_index"] = arrays["edge_index"] + np.repeat(first, arrays["num_edges"])
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match="numbered from 0 within each graph"):
        read_graphs(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["x", "pos", "edge_weight"])
def test_a_number_that_is_not_finite_is_refused_with_its_graph(name, tmp_path):
    arrays = stacked(molecules())
    rows = len(arrays["z"]) if name != "edge_weight" else len(arrays["edge_attr"])
    values = np.ones(rows if name == "edge_weight" else (rows, 2))
    values[-1] = np.nan
    np.savez(tmp_path / "a.npz", **arrays, **{name: values})
    with pytest.raises(DataError, match=f"{name} of graph 39 has NaN"):
        read_graphs(tmp_path / "a.npz")


def test_objects_in_a_file_are_refused_without_running_them(tmp_path):
    torch.save(Batch.from_data_list(molecules(3)), tmp_path / "batch.pt")
    with pytest.raises(DataError, match="could run code"):
        read_graphs(tmp_path / "batch.pt")


def test_a_target_of_nodes_is_no_target_of_graphs(tmp_path):
    graphs = molecules()
    for graph in graphs:
        graph.y = torch.zeros(graph.num_nodes)
    torch.save(graphs, tmp_path / "a.pt")
    with pytest.raises(DataError, match="no target of whole graphs"):
        read_graphs(tmp_path / "a.pt")


def test_graphs_with_other_entries_are_refused(tmp_path):
    graphs = molecules(smiles=lambda r, n, pair: "CCO")
    torch.save(graphs, tmp_path / "a.pt")
    with pytest.raises(DataError, match=r"smiles, which is not read.*data.ignore=\[smiles\]"):
        read_graphs(tmp_path / "a.pt")
    assert len(read_graphs(tmp_path / "a.pt", ignore=["smiles"])) == 40
    del graphs[3].edge_attr
    torch.save(graphs, tmp_path / "a.pt")
    with pytest.raises(DataError, match="graph 3 differs from graph 0 in having edge_attr"):
        read_graphs(tmp_path / "a.pt", ignore=["smiles"])


def measured(graphs, config):
    """Return the tables of all graphs."""
    nodes, edges = graphs.rows(np.arange(len(graphs)))
    of_edges = edge_columns(graphs, config)
    return {
        "node": node_columns(graphs, config).measured(nodes, ""),
        "edge": None if of_edges is None else of_edges.measured(edges, ""),
    }


def test_a_batch_is_that_of_torch_geometric(tmp_path):
    pos = {"pos": lambda r, n, pair: torch.from_numpy(r.normal(size=(n, 3)).astype(np.float32))}
    graphs = molecules(**pos)
    torch.save(graphs, tmp_path / "a.pt")
    config = GraphSetDataConfig(path=tmp_path / "a.pt")
    read = read_graphs(tmp_path / "a.pt")
    rows = np.array([5, 0, 39, 17])
    batch = GraphBatches(read, config, rows, measured(read, config)).read(np.array([3, 0, 1]))
    plain = Batch.from_data_list([graphs[i] for i in (17, 5, 0)])
    for name in ("edge_index", "batch", "z", "pos", "y"):
        assert np.array_equal(batch[name], plain[name].numpy()), name
    assert np.array_equal(batch["edge_categories"], plain.edge_attr.numpy() + 1)
    assert batch["num_graphs"] == 3


def test_positions_as_features_of_edges(tmp_path):
    pos = {"pos": lambda r, n, pair: torch.from_numpy(r.normal(size=(n, 2)))}
    torch.save(molecules(**pos), tmp_path / "a.pt")
    read = read_graphs(tmp_path / "a.pt")
    for positions, width in (("offsets", 3), ("distances", 1)):
        config = GraphSetDataConfig(path=tmp_path / "a.pt", positions=positions)
        numbers = edge_columns(read, config).numbers
        assert numbers.shape == (read.edge_index.shape[1], width)
        start = read.first_node[4]
        a, b = read.edge_index[:, read.first_edge[4]]
        offset = read.arrays["pos"][start + b] - read.arrays["pos"][start + a]
        got = numbers[read.first_edge[4]]
        assert np.allclose(got[-1], np.linalg.norm(offset))
        assert width == 1 or np.allclose(got[:2], offset)


def test_positions_as_features_of_nodes(tmp_path):
    pos = {"pos": lambda r, n, pair: torch.from_numpy(r.normal(size=(n, 2)))}
    torch.save(molecules(**pos), tmp_path / "a.pt")
    read = read_graphs(tmp_path / "a.pt")
    config = GraphSetDataConfig(path=tmp_path / "a.pt", positions="features")
    assert np.array_equal(node_columns(read, config).numbers, read.arrays["pos"].astype("f4"))
    assert edge_columns(read, config).numbers.shape[1] == 0  # those of the file are categories
    torch.save(molecules(), tmp_path / "b.pt")
    with pytest.raises(DataError, match="no pos"):
        node_columns(read_graphs(tmp_path / "b.pt"), config)


def test_categories_that_the_training_does_not_have_count_as_none():
    embedding = InputEmbedding(4, [], [], [3])
    out = embedding(torch.zeros(2, 0), torch.tensor([[0], [1]]))
    assert torch.equal(out[0], embedding.bias)
    assert not torch.equal(out[1], embedding.bias)


@pytest.mark.parametrize(
    ("network", "inputs", "message"),
    [
        (pyg_models.GIN(8, 8, 2), ["edge_attr"], "edge_attr, which GIN does not accept"),
        (pyg_models.GCN(8, 8, 2), ["pos"], "pos, which GCN does not accept"),
        (pyg_models.SchNet(8, 8, 1), ["z"], "SchNet needs pos"),
    ],
)
def test_inputs_that_a_network_does_not_take_are_refused(network, inputs, message):
    nodes = InputEmbedding(8, [0.0], [1.0], [])
    with pytest.raises(ConfigError, match=message):
        GraphSetModel(nodes, None, network, "mean", 8, 1, {"inputs": inputs})


def test_a_package_that_a_network_lacks_is_named():
    class Searching(nn.Module):
        def forward(self, z, pos, batch):
            raise ImportError("'radius_graph' requires 'pyg-lib'")

    nodes = InputEmbedding(8, [0.0], [1.0], [])
    model = GraphSetModel(nodes, None, Searching(), "none", 8, 1, {"inputs": ["z", "pos"]})
    batch = {n: torch.zeros(1) for n in ("z", "pos", "batch")} | {"num_graphs": torch.tensor(1)}
    with pytest.raises(BackendError, match="Searching: 'radius_graph' requires 'pyg-lib'"):
        model(batch)


def test_networks_of_torch_geometric_by_name():
    deg = {"aggregators": ["mean"], "scalers": ["identity"], "deg": [0, 3, 2]}
    made = OfPyG(network="PNA", hidden=4, arguments=deg).build(3, 2)
    assert made(torch.ones(2, 3), torch.tensor([[0, 1], [1, 0]])).shape == (2, 2)
    with pytest.raises(ConfigError, match=r"no network 'Graphsage'\. Fix: GraphSAGE"):
        OfPyG(network="Graphsage").build(3, 2)
    with pytest.raises(ConfigError, match=r"AttentiveFP cannot be made.*num_timesteps"):
        OfPyG(network="AttentiveFP").build(3, 2)


def test_a_network_that_pools_itself_is_told_from_one_that_does_not():
    batch = {"num_graphs": torch.tensor(2), "batch": torch.tensor([0, 0, 1])}
    batch |= {"edge_index": torch.tensor([[0, 1], [1, 0]]), "node_numbers": torch.ones(3, 1)}
    batch["node_categories"] = torch.zeros(3, 0, dtype=torch.long)

    def model(pooling, outputs=8):
        nodes = InputEmbedding(8, [0.0], [1.0], [])
        return GraphSetModel(
            nodes, None, pyg_models.GIN(8, 8, 2), pooling, 8, outputs, {"inputs": []}
        )

    assert model("mean", 3)(batch).shape == (2, 3)
    with pytest.raises(ConfigError, match="a row for each of 2 graphs"):
        model("none")(batch)


class TestGraphSets(JobContract):
    domain = "graph_sets"
    several_processes = True

    def case(self, folder):
        return {
            "data": {"path": str(write("npz", folder, molecules()))},
            "model": {"name": "gine", "hidden": 8, "layers": 2, "dropout": 0},
            "members": 2,
            "weights_dtype": "float16",
            "training": {"epochs": 2, "batch_size": 8},
        }

    def source(self, folder):
        return folder / "d.npz"


def run_of(folder, path, *settings):
    """Train the configuration that `init` writes; return the run directory."""
    text = starter(DataToStart([str(path)], [str(path)]))
    (folder / "case.yaml").write_text(text + f"run: {{root: {folder}/runs}}\n")
    short = ["training.epochs=3", "model.hidden=8", "model.layers=2"]
    done = scitoolkit("train", folder / "case.yaml", *short, *settings, "--json")
    assert done.code == 0, done.err
    return Path(json.loads(done.out)["run"])


def test_init_writes_what_trains(tmp_path):
    graphs = molecules(name=lambda r, n, pair: "a", idx=lambda r, n, pair: torch.tensor([1]))
    torch.save(graphs, tmp_path / "a.pt")
    run = run_of(tmp_path, tmp_path / "a.pt")
    text = (run / "config.yaml").read_text()
    assert "ignore" in text
    assert "gine" in text
    torch.save(molecules(9, seed=2), tmp_path / "new.pt")
    GraphSetJob().predict(run, tmp_path / "new.pt", tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as out:
        assert out.value.shape == (9, 1)


@pytest.mark.parametrize("target", ["classes", "labels", "values"])
def test_a_row_for_each_graph(target, tmp_path):
    graphs = molecules()
    for number, graph in enumerate(graphs):
        many = [number % 2, number % 3 == 0]
        graph.y = {
            "classes": torch.tensor([number % 3]),
            "labels": torch.tensor([many]).long(),
            "values": torch.tensor([[0.5 * number, 1e3 - number]]),
        }[target]
    torch.save(graphs, tmp_path / "a.pt")
    run = run_of(tmp_path, tmp_path / "a.pt")
    assert f"target: {target}" in (run / "config.yaml").read_text()
    for graph in graphs:
        del graph.y
    torch.save(graphs[:7], tmp_path / "new.pt")
    job = GraphSetJob()
    job.predict(run, tmp_path / "new.pt", tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as out:
        assert out.sizes["graph"] == 7
        assert out.sizes["label"] == {"classes": 3, "labels": 2, "values": 2}[target]
    results = job.evaluate(run)
    assert results.verdict is not None
    merit = {"classes": "accuracy", "labels": "micro_f1", "values": "rmse"}[target]
    assert np.isfinite(results.metrics[merit])
    assert np.isfinite(results.metrics[f"{merit}_composition"])


def test_other_inputs_than_those_of_the_training_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", **stacked(molecules()))
    run = run_of(tmp_path, tmp_path / "a.npz")
    for change, message in (
        ({"edge_weight": np.ones(len(stacked(molecules())["edge_attr"]))}, "edge_weight"),
        ({"edge_attr": stacked(molecules())["edge_attr"] * 0.5}, "edge_attr"),
    ):
        np.savez(tmp_path / "b.npz", **stacked(molecules(), **change))
        with pytest.raises(DataError, match=message):
            GraphSetJob().predict(run, tmp_path / "b.npz", tmp_path / "out.nc")


def test_numbers_far_from_those_of_the_training_are_told(tmp_path, capsys):
    arrays = stacked(molecules())
    count = int(arrays["num_nodes"].sum())
    x = np.random.default_rng(0).normal([300, 0], [5, 1], (count, 2)).astype("f4")
    bonds = arrays["edge_attr"].astype("f4")
    np.savez(tmp_path / "a.npz", **{**arrays, "x": x, "edge_attr": bonds})
    run = run_of(tmp_path, tmp_path / "a.npz")
    for name, change in (("", {}), ("1 of nodes", {"x": x[:, ::-1]}), ("0 of nodes", {"x": x * 9})):
        capsys.readouterr()
        np.savez(tmp_path / "b.npz", **{**arrays, "x": x, "edge_attr": bonds, **change})
        GraphSetJob().predict(run, tmp_path / "b.npz", tmp_path / "out.nc")
        told = capsys.readouterr().err
        assert ("standard deviations" in told) == bool(name)
        assert f"column {name}" in told or not name
    np.savez(tmp_path / "b.npz", **{**arrays, "x": x, "edge_attr": 1000 * bonds})
    GraphSetJob().predict(run, tmp_path / "b.npz", tmp_path / "out.nc")
    assert "column 0 of edges" in capsys.readouterr().err


def test_the_composition_predicts_a_sum_over_nodes(tmp_path):
    graphs = molecules(60)
    for graph in graphs:
        graph.y = (graph.z.double() ** 2).sum().float()[None]
    torch.save(graphs, tmp_path / "a.pt")
    results = GraphSetJob().evaluate(run_of(tmp_path, tmp_path / "a.pt"))
    assert results.metrics["rmse_composition"] < 1e-3 * results.metrics["rmse_mean"]
    # What is learned is the rest.
    assert results.metrics["rmse"] < 1e-2 * results.metrics["rmse_mean"]


def test_sizes_are_read_from_the_set():
    graphs = StackedGraphs([2, 1], [1, 0], [[0], [1]], {"z": [6, 8, 1]}, [0.5, 0.1])
    assert len(graphs) == 2
    assert not graphs.has_reverse_edges()
    assert graphs.with_reverse_edges().edge_index.tolist() == [[0, 1], [1, 0]]


def test_ranks_reach_what_one_reaches(tmp_path):
    # 33 training graphs in batches of 6: the last batch of an epoch leaves no two for each rank.
    torch.save(molecules(41), tmp_path / "a.pt")
    # Batch normalisation counts the nodes of all ranks; it removes a bias, whose gradient is noise.
    arguments = {"norm": "batch_norm", "bias": False}
    model = {"name": "pyg", "network": "GAT", "hidden": 6, "arguments": arguments}
    document = {"domain": "graph_sets", "data": {"path": str(tmp_path / "a.pt")}, "model": model}
    document["training"] = {"epochs": 3, "batch_size": 6}
    document["run"] = {"root": str(tmp_path / "runs")}
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(document))
    one = scitoolkit("train", tmp_path / "case.yaml", "--json")
    assert one.code == 0, one.err
    several = run_process(tmp_path, "train", tmp_path / "case.yaml", "--nproc", "3", "--json")
    assert several.code == 0, several.err
    runs = [Path(json.loads(out)["run"]) for out in (one.out, several.out)]
    weights = [ModelFolder(run).load_weights() for run in runs]
    assert runs[0] != runs[1]
    for name, expected in weights[0].items():
        torch.testing.assert_close(weights[1][name], expected, rtol=1e-4, atol=2e-6)


def test_another_unit_of_the_target_is_refused(tmp_path):
    path = write("hdf5", tmp_path, molecules())
    run = run_of(tmp_path, path)
    with h5py.File(path, "r+") as file:
        file["y"].attrs["units"] = "J"
    with pytest.raises(DataError, match="eV"):
        GraphSetJob().evaluate(run, path)


def test_graphs_of_the_test_part_that_were_trained_on_are_told(tmp_path):
    graphs = molecules()
    order = {"train": np.arange(30), "val": np.arange(30, 35), "test": np.arange(35, 40)}
    for number, (repeated, count) in enumerate((([], 0), ([3, 7], 2))):
        chosen = [*graphs[: 40 - len(repeated)], *(graphs[i] for i in repeated)]
        np.savez(tmp_path / f"{number}.npz", **stacked(chosen), **order)
        config = GraphSetConfig(data={"path": tmp_path / f"{number}.npz"})
        findings = [f for f in GraphSetJob().validate(config) if f.level == "warning"]
        assert [f"{count} graphs of the test part" in f.message for f in findings] == [True] * (
            count > 0
        )


def test_a_trial_of_a_search_is_scored_on_the_validation_part(tmp_path):
    np.savez(tmp_path / "a.npz", **stacked(molecules()))
    training = {"epochs": 1, "batch_size": 8}
    model = {"name": "gine", "hidden": 4, "layers": 1, "dropout": 0}
    config = GraphSetConfig(data={"path": tmp_path / "a.npz"}, model=model, training=training)
    scores = GraphSetJob().search_trial(config, RunDirectory.create(tmp_path, "trial", config))
    assert np.isfinite(scores["rmse"])


def test_intervals_of_values_cover_other_graphs(tmp_path):
    """Within three standard deviations, of the calibration and of the test (binomial)."""
    torch.save(molecules(400), tmp_path / "a.pt")
    parts = ["split.validation=0.3", "split.test=0.3", "data.target=values"]
    run = run_of(tmp_path, tmp_path / "a.pt", *parts, "intervals.coverage=0.8")
    results = GraphSetJob().evaluate(run)
    spread = np.sqrt(0.8 * 0.2 / 120)
    assert abs(results.metrics["coverage_value"] - 0.8) < 3 * np.sqrt(2) * spread
    torch.save(molecules(500, seed=9), tmp_path / "new.pt")
    GraphSetJob().predict(run, tmp_path / "new.pt", tmp_path / "out.nc")
    truth = np.array([[float(graph.y)] for graph in molecules(500, seed=9)])
    with xr.open_dataset(tmp_path / "out.nc") as out:
        inside = (out.value_low <= truth) & (truth <= out.value_high)
        width = float((out.value_high - out.value_low).mean())
    assert abs(float(inside.mean()) - 0.8) < 3 * np.sqrt(spread**2 + 0.8 * 0.2 / 500)
    assert width == pytest.approx(results.metrics["width_value"], rel=1e-5)
    done = scitoolkit("train", run / "config.yaml", "split.validation=0.005")
    assert "intervals.coverage" in done.err
    assert "at least 4 samples" in done.err


def test_classes_have_no_intervals():
    with pytest.raises(ValueError, match=r"intervals: not used with data\.target: classes"):
        GraphSetConfig(data={"path": "a.npz", "target": "classes"}, intervals={"coverage": 0.5})
