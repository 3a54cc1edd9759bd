"""Facts of graphs and meshes, and what is refused in other data."""

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from scitoolkit.core.data_differences import compare, problems, refuse
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.graphs.facts import ACCEPTS, mesh_facts, node_facts
from scitoolkit.graphs.graph import Graph, GraphInputs, from_data
from scitoolkit.graphs.mesh_stages import MeshStages
from scitoolkit.graphs.sharing import normalised_features


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("lowest", [-1.0 + 1e-3, -1e-6, -5.0])
def test_rows_of_signed_features_are_refused_on_every_process(lowest, sparse, dtype):
    x = np.array([[1.0, lowest, 0.0], [2.0, 0.0, 0.5], [1.0, 1.0, 1.0]], dtype)
    graph = Graph([0], [1], 3, sp.csr_matrix(x) if sparse else x)
    for nodes in (np.arange(3), np.array([2])):  # the rows of a process without negative ones
        with pytest.raises(ConfigError, match="negative"):
            normalised_features(graph, "rows", nodes)
    assert normalised_features(graph, "none", np.arange(3)).shape == (3, 3)


@pytest.mark.parametrize("name", ["x", "edge_weight", "pos"])
@pytest.mark.parametrize("kind", ["c16", "U8"])
def test_only_real_numbers_are_inputs(name, kind):
    arrays = {"x": np.ones((3, 2)), "edge_weight": np.ones(1), "pos": np.ones((3, 2))}
    arrays[name] = arrays[name].astype(kind)
    features = arrays.pop("x")
    with pytest.raises(DataError, match=rf"{name} of .*real numbers"):
        Graph([0], [1], 3, features, **arrays)


@pytest.mark.parametrize("key", ["edge_type", "pos", "batch", "train_idx", "anything"])
def test_an_entry_of_data_that_is_not_read_is_refused(key):
    data = pytest.importorskip("torch_geometric.data").Data(
        x=torch.rand(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]])
    )
    assert from_data(data).num_nodes == 3
    data[key] = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(DataError, match=key):
        from_data(data)


def require_trained(trained, facts, where):
    refuse(compare(trained, facts, ACCEPTS), where)


TRAINED = {"num_features": 4, "edge_weight": False, "edge_attr": None}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_features": 5}, "variable x"),
        ({"edge_weight": True}, "edge_weight"),
        ({"edge_attr": ()}, "edge_attr"),
        ({"edge_attr": (3,)}, "edge_attr"),
    ],
)
def test_other_inputs_than_in_training_are_refused(change, words):
    trained = node_facts(GraphInputs(**TRAINED), "classes", 3)
    require_trained(trained, node_facts(GraphInputs(**TRAINED), "classes", None), "graph")
    other = node_facts(GraphInputs(**{**TRAINED, **change}), "classes", 3)
    with pytest.raises(DataError, match=words):
        require_trained(trained, other, "graph")
    with pytest.raises(DataError, match=words):
        require_trained(other, trained, "graph")


@pytest.mark.parametrize("target", ["labels", "values"])
def test_another_number_of_outputs_is_refused(target):
    trained = node_facts(GraphInputs(2), target, 3)
    with pytest.raises(DataError, match=target):
        require_trained(trained, node_facts(GraphInputs(2), target, 4), "graph")


def mesh_file(path, dtype=np.float32, **units):
    with h5py.File(path, "w") as file:
        for group in ("a", "b"):
            shapes = {"positions": (4, 2), "velocity": (1, 4, 2), "tracer": (1, 3, 4)}
            for name, shape in shapes.items():
                data = file.create_dataset(f"{group}/{name}", data=np.zeros(shape, dtype))
                if name in units:
                    data.attrs["units"] = units[name]
    return path


@pytest.mark.parametrize("unit", ["km", "s", "cm"])
def test_meshes_in_other_units_are_refused(tmp_path, unit):
    trained = mesh_facts(mesh_file(tmp_path / "a.h5", positions="m"), ("a", "b"))
    other = mesh_facts(mesh_file(tmp_path / "b.h5", positions=unit), ("a",))
    accepts = MeshStages().accepts(None)
    refuse([*problems(trained, accepts), *compare(trained, trained, accepts)], "mesh")
    with pytest.raises(DataError, match="positions"):
        refuse(compare(trained, other, accepts), "mesh")


def test_complex_meshes_are_refused(tmp_path):
    facts = mesh_facts(mesh_file(tmp_path / "c.h5", np.complex64), ("a",))
    with pytest.raises(DataError, match="complex"):
        refuse(problems(facts, MeshStages().accepts(None)), "mesh")
