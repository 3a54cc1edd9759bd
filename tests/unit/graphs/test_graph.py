import numpy as np
import pytest

from scitoolkit.core.errors import DataError
from scitoolkit.graphs.graph import (
    Graph,
    from_data,
    graph_from_arrays,
    read_graph,
    write_graph,
)
from scitoolkit.graphs.weighting import require_positive_degrees, weighted_adjacency
from scitoolkit.testing.job import scitoolkit


def test_written_and_read_again(graph, tmp_path):
    path = tmp_path / "graph.npz"
    write_graph(graph, path)
    again = read_graph(path)
    edges = sorted(zip(graph.source, graph.target, strict=True))
    assert sorted(zip(again.source, again.target, strict=True)) == edges
    assert np.array_equal(again.dense_features(np.arange(50)), graph.features)
    assert np.array_equal(again.labels, graph.labels)
    assert again.parts.keys() == graph.parts.keys()


def test_torch_geometric_data(graph):
    data = pytest.importorskip("torch_geometric.data", exc_type=ImportError)
    import torch

    mask = torch.zeros(50, dtype=torch.bool)
    mask[:20] = True
    made = from_data(
        data.Data(
            x=torch.from_numpy(graph.features),
            edge_index=torch.from_numpy(np.stack([graph.source, graph.target])),
            y=torch.from_numpy(graph.labels),
            train_mask=mask,
        )
    )
    assert np.array_equal(made.parts["train"], np.arange(20))
    assert np.array_equal(made.source, graph.source)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.filterwarnings("ignore:Sparse CSC tensor support is in beta state")
@pytest.mark.parametrize(
    "stored", ["to_sparse", "to_sparse_csr", "to_sparse_csc", "requires_grad_", "bfloat16"]
)
def test_features_of_any_layout_are_those_of_dense_ones(stored):
    data = pytest.importorskip("torch_geometric.data", exc_type=ImportError)
    import torch

    dense = torch.tensor([[0.0, 2.0, 0.0], [1.5, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 0.0, 4.0]])
    x, ring = getattr(dense.clone(), stored)(), torch.tensor([[0, 1, 2], [1, 2, 0]])
    made = from_data(data.Data(x=x, edge_index=ring, y=torch.tensor([0, 1, 0, 1])))
    assert made.num_nodes == 4
    assert np.array_equal(made.dense_features(np.arange(4)), dense.numpy())
    several = data.HeteroData()
    several["a"].x, several["a"].y, several["b"].x = x, torch.tensor([0, 1, 0, 1]), dense
    several["a", "of", "b"].edge_index = ring
    assert np.array_equal(from_data(several).dense_features(np.arange(4))[:, :3], dense.numpy())


def test_gcn_weights_are_those_of_torch_geometric(graph):
    conv = pytest.importorskip("torch_geometric.nn.conv.gcn_conv", exc_type=ImportError)
    import torch

    index = torch.from_numpy(np.stack([graph.source, graph.target]))
    edges, weight = conv.gcn_norm(index, num_nodes=50)
    dense = torch.zeros(50, 50).index_put((edges[1], edges[0]), weight, accumulate=True)
    assert np.allclose(weighted_adjacency(graph, "gcn").toarray(), dense.numpy(), atol=1e-6)


X = np.zeros((3, 2), np.float32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], [3], 3, X), "target nodes run from 3 to 3.*0 to 2"),
        (([-1], [0], 3, X), "source nodes run from -1"),
        (([0, 1], [1], 3, X), "two vectors of one length"),
        (([0], [1], 3, X[:2]), r"features of shape \(2, 2\)"),
        (([0], [1], 3, X * np.nan), "6 features are NaN"),
        (([0], [1], 3, np.where(X == X[:1] + np.arange(2), 1e20, 1.0)), "3 values are 1e[+]20"),
        (([0], [1], 3, X, [0, 1]), r"labels of shape \(2,\)"),
        (([0], [1], 3, X, [0, 1, -1], {"test": [2]}), "nodes without a label"),
        (([0], [1], 3, X, None, {"test": [2]}), "nodes without a label"),
        (([0], [1], 3, X, [0, 1, 1], {"test": [5]}), "names node 5"),
        (([0], [1], 3, X, [0, 1, 1], {"test": [1, 1]}), "twice"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        Graph(*arguments)


def test_files_that_are_no_graph(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_graph(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("no zip")
    with pytest.raises(DataError, match="not a readable npz"):
        read_graph(tmp_path / "text.npz")
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    with pytest.raises(DataError, match="not a readable npz"):
        read_graph(tmp_path / "objects.npz")
    for arrays, message in (
        ({"x": X}, "no edges in the file"),
        ({"edge_index": np.zeros((3, 4), int), "x": X}, r"edge_index of shape \(3, 4\)"),
        ({"edge_index": np.zeros((2, 1), int), "y": np.zeros(3)}, "no features: x_indptr"),
        ({"adj_indptr": np.array([0, 2, 1]), "adj_indices": np.array([0]), "x": X}, "rise"),
        (
            {
                "edge_index": np.zeros((2, 1), int),
                "y": np.zeros(2),
                "x_indptr": np.array([0, 1, 1]),
                "x_indices": np.array([9]),
                "x_data": np.ones(1),
                "n_feat": 3,
            },
            "sparse features do not fit",
        ),
    ):
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(DataError, match=message):
            read_graph(tmp_path / "bad.npz")


def test_weights_of_edges_are_written_and_read(tmp_path):
    graph = Graph([2, 0, 1], [0, 1, 2], 3, np.zeros((3, 1)))
    graph.edge_weight = np.array([1.0, 2.0, 3.0], np.float32)
    graph.edge_attr = np.array([[1.0], [2.0], [3.0]], np.float32)
    write_graph(graph, tmp_path / "graph.npz")
    again = read_graph(tmp_path / "graph.npz")
    assert dict(zip(again.source.tolist(), again.edge_weight.tolist(), strict=True)) == {
        2: 1.0,
        0: 2.0,
        1: 3.0,
    }
    assert again.edge_attr[:, 0].tolist() == again.edge_weight.tolist()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"edge_weight": [1.0]}, r"edge_weight of shape \(1,\).*2 edges"),
        ({"edge_weight": [1.0, np.nan]}, "edge_weight has NaN"),
        ({"edge_attr": np.zeros((3, 2))}, "edge_attr of shape"),
        ({"labels": [0, 0.5, 1]}, "labels include 0.5"),
        ({"labels": [0, -3, 1]}, "labels include -3"),
        ({"labels": [[0], [1], [1]]}, r"labels of shape \(3, 1\).*data.target=labels"),
        ({"labels": [[0], [2], [1]], "target_name": "labels"}, "labels include 2"),
        ({"labels": [[0, -1], [1, 1], [1, 0]], "target_name": "labels"}, "labels include -1"),
        ({"labels": [0.5, np.inf, 1], "target_name": "values"}, "values include Inf"),
        (
            {"labels": [0.5, np.nan, 1], "target_name": "values", "parts": {"train": [1]}},
            "nodes without a label",
        ),
        ({"labels": ["cat", "dog", "cat"]}, r"labels of <U3, such as cat.*np\.unique"),
        ({"labels": ["0", "1", "1"]}, "labels of <U1, such as 0"),
        ({"labels": [0, 1j, 1]}, "labels of complex128"),
        ({"labels": [["a"], ["b"], ["a"]], "target_name": "labels"}, "labels of <U1"),
        ({"labels": ["0.5", "1", "2"], "target_name": "values"}, "values of <U3"),
        ({"labels": [0, 1j, 1], "target_name": "values"}, "values of complex128"),
        ({"source": ["a", "b"]}, r"source nodes of <U1, such as a.*np\.unique"),
        ({"edge_type": ["cites", "likes"]}, "edge_type of <U5, such as cites"),
        ({"labels": [0, 1, 1], "parts": {"train": ["0", "1"]}}, "nodes of part train of <U1"),
        ({"source": [0, 1.4]}, "source nodes include 1.4"),
        ({"source": [0, -1]}, "source nodes run from -1"),
        (
            {"labels": [0, 1, 1], "parts": {"train": [0, 1], "test": [1, 2]}},
            "parts train and test share 1 nodes, such as 1",
        ),
    ],
)
def test_graphs_that_would_train_on_the_wrong_thing_are_refused(more, message):
    given = {"source": [0, 1], "target": [1, 0], "num_nodes": 3, "features": np.zeros((3, 1))}
    with pytest.raises(DataError, match=message):
        Graph(**(given | more))


@pytest.mark.parametrize("dtype", [bool, "i1", "u8", "f2", "f8"])
def test_labels_of_any_real_dtype_are_classes(dtype):
    graph = Graph([0, 1], [1, 0], 3, np.zeros((3, 1)), np.array([0, 1, 1], dtype))
    assert graph.labels.dtype == np.int64
    assert graph.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"train": [0.6, 1.9]}, "nodes of part train include 0.6"),
        ({"train": [True, False]}, r"mask of shape \(2,\).*\(3,\)"),
        ({"train": np.eye(3, 2, dtype=bool)}, r"mask of shape \(3, 2\).*one column"),
        ({"train": [[0], [1]]}, r"array of shape \(2, 1\)"),
        ({"train": [-1, 0]}, "names node -1"),
    ],
)
def test_parts_that_name_other_nodes_than_meant_are_refused(parts, message):
    with pytest.raises(DataError, match=message):
        Graph([0, 1], [1, 0], 3, np.zeros((3, 1)), [0, 1, 1], parts)


def test_a_mask_of_several_splits_of_torch_geometric_is_refused():
    geometric = pytest.importorskip("torch_geometric.data", exc_type=ImportError)
    import torch

    data = geometric.Data(
        x=torch.zeros(3, 1),
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        y=torch.tensor([0, 1, 1]),
        train_mask=torch.eye(3, 2, dtype=torch.bool),
    )
    with pytest.raises(DataError, match=r"2 splits.*data\.split=0"):
        from_data(data)


@pytest.mark.parametrize("labelled", [[0, 2], [0, 1, 2]])
def test_numbers_of_labelled_nodes_are_no_mask(labelled):
    arrays = {
        "edge_index": np.array([[0, 1], [1, 0]]),
        "x": np.zeros((3, 1)),
        "y": np.array([0, 1, 1]),
        "labelled": np.array(labelled),
    }
    with pytest.raises(DataError, match=r"labelled of shape.*0 and 1, shape \(3,\)"):
        graph_from_arrays(arrays)


def test_sparse_features_tell_the_number_of_nodes():
    graph = graph_from_arrays(
        {
            "edge_index": np.array([[0, 1], [1, 0]]),
            "x_indptr": np.array([0, 1, 1, 1]),
            "x_indices": np.array([0]),
            "x_data": np.array([1.0]),
            "n_feat": np.int64(2),
        }
    )
    assert graph.num_nodes == 3


LAYOUTS = {
    "real": {"y": np.linspace(0, 1, 60) ** 2},
    "several": {"y": np.linspace(0, 1, 120).reshape(60, 2)},
    "one-hot": {"y": np.eye(3, dtype=int)[np.arange(60) % 3]},
    "whole, one column": {"y": np.arange(60)[:, None]},
    "pairs": {"edge_index": lambda edges: edges.T},
    "masks": {},
    "masks of 0 and 1": {},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_init_writes_a_job_that_runs_for_any_layout(name, tmp_path):
    r, nodes = np.random.default_rng(0), np.arange(60)
    masks = {"train": nodes < 30, "val": (nodes >= 30) & (nodes < 40), "test": nodes >= 40}
    if name.startswith("masks"):
        dtype = int if "0" in name else bool
        masks = {f"{part}_mask": mask.astype(dtype) for part, mask in masks.items()}
    arrays = {"x": r.normal(size=(60, 3)), "edge_index": r.integers(0, 60, (2, 200))}
    arrays |= {"y": nodes % 3, **masks}
    for key, value in LAYOUTS[name].items():
        arrays[key] = value(arrays[key]) if callable(value) else value
    np.savez(tmp_path / "g.npz", **arrays)
    done = scitoolkit("init", "graph", tmp_path / "g.npz", "-o", tmp_path / "g.yaml")
    assert done.code == 0, done.err
    done = scitoolkit(
        "train", tmp_path / "g.yaml", "training.epochs=2", f"run.root={tmp_path}/runs"
    )
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -3.0, 1.0], r"edges into node 0 and its self-loop sum to -2.*model\.name=gcn"),
        ([1.0, 1.0, -1.5], r"edges into node 2 and its self-loop sum to -1\.5"),
        ([1.0, -1.0, 0.0], ""),
        ([1.0, -0.5, 1.0], ""),
    ],
)
def test_weights_without_roots_are_refused(weights, message):
    graph = Graph([0, 1, 2], [1, 0, 2], 3, np.zeros((3, 1)), edge_weight=np.array(weights))
    if not message:
        require_positive_degrees(graph)
        return
    with pytest.raises(DataError, match=message):
        require_positive_degrees(graph)
