"""Types of nodes and edges, positions, and heterogeneous data on one and several ranks."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.graphs.facts import require_types
from scitoolkit.graphs.graph import Graph, from_data, read_graph, write_graph
from scitoolkit.graphs.graph_set_config import GraphSetDataConfig
from scitoolkit.graphs.graph_set_files import read_graphs
from scitoolkit.graphs.graph_set_inputs import node_columns
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.models import GCN, HAN, RGCN
from scitoolkit.graphs.networks import TypedNodeModel
from scitoolkit.graphs.node_graph import NodeGraph
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.partitioner import partition_edges
from scitoolkit.graphs.proof import attach, prove
from scitoolkit.graphs.stored_part import StoredPart
from scitoolkit.training.ranks.communicator import SingleProcess
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic

pyg = pytest.importorskip("torch_geometric.nn", exc_type=ImportError)
from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.transforms import (  # noqa: E402
    AddLaplacianEigenvectorPE,
    AddRandomWalkPE,
)


class Everything(nn.Module):
    """Reads types of nodes and edges, positions and features of edges by name."""

    def __init__(self, layer):
        super().__init__()
        self.kind, self.first = nn.Embedding(4, 6), layer
        self.last = nn.Linear(8, 3)

    def forward(self, x, edge_index, edge_type, node_type, pos):
        a, b = edge_index
        stretched = (pos[a] - pos[b]).square().sum(-1, keepdim=True)
        h = self.first(x + self.kind(node_type), edge_index, edge_type)
        far = torch.zeros_like(pos[:, :1]).index_add(0, b, stretched)
        return self.last(torch.cat([h, pos, far.sqrt()], -1))


def typed(seed=0, nodes=50, edges=220):
    r = np.random.default_rng(seed)
    source, target = r.integers(nodes, size=(2, edges))
    graph = Graph(source, target, nodes, r.normal(size=(nodes, 6)))
    graph.edge_type = r.integers(3, size=edges)
    graph.node_type = r.integers(4, size=nodes)
    graph.pos = r.normal(size=(nodes, 2)).astype(np.float32)
    graph.__post_init__()
    return graph


LAYERS = {
    "RGCN": lambda: pyg.RGCNConv(6, 5, 3),
    "RGCN bases": lambda: pyg.RGCNConv(6, 5, 3, num_bases=2, aggr="add"),
    "RGCN blocks": lambda: pyg.RGCNConv(6, 6, 3, num_blocks=3),
    "FastRGCN": lambda: pyg.FastRGCNConv(6, 5, 3),
    "RGAT": lambda: pyg.RGATConv(6, 5, 3),
    "FiLM": lambda: pyg.FiLMConv(6, 5, 3),
}


@pytest.mark.parametrize("name", LAYERS)
def test_inputs_by_name_reach_every_rank(name):
    graph, layer = typed(), LAYERS[name]
    torch.manual_seed(0)
    model = Everything(layer())
    if name == "RGCN blocks":
        model.last = nn.Linear(9, 3)
    names = ("edge_type", "node_type", "pos")
    inputs = [torch.from_numpy(getattr(graph, n)) for n in names]
    x = torch.from_numpy(graph.features).float()
    pair = torch.from_numpy(np.stack([graph.source, graph.target]))
    plain = model(x, pair, *inputs).detach()

    def work(ranks):
        part = GraphPart(
            graph, np.arange(graph.num_nodes) % ranks.size, ProcessGrid(ranks.size), ranks
        )
        with torch.no_grad():
            return attach(copy.deepcopy(model), part)(x[part.nodes]) - plain[part.nodes]

    for size in (1, 3):
        offs = [work(SingleProcess())] if size == 1 else run_ranks(size, work, Traffic)
        assert max(float(off.abs().max()) for off in offs) < 1e-5


@pytest.mark.parametrize(
    "layer",
    [
        lambda a, b: pyg.RGCNConv(a, b, 3),
        lambda a, b: pyg.FastRGCNConv(a, b, 3, num_bases=2, aggr="add", bias=False),
    ],
)
def test_relational_layers_fetch_the_halo_once_and_store_rows_once(layer):
    """Sparse products equal the layers, forwards and backwards."""
    graph = typed()
    torch.manual_seed(0)
    plain = TypedNodeModel([layer(6, 8), layer(8, 4)], 0.0, nn.ReLU()).double()
    x = torch.from_numpy(graph.features).double()
    pair = torch.from_numpy(np.stack([graph.source, graph.target]))
    plain(x, pair, edge_type=torch.from_numpy(graph.edge_type)).square().sum().backward()
    wanted = [p.grad for p in plain.parameters()]
    for parameter in plain.parameters():
        parameter.grad = None
    graph.node_type = graph.pos = None

    def work(ranks):
        part = GraphPart(
            graph, np.arange(graph.num_nodes) % ranks.size, ProcessGrid(ranks.size), ranks
        )
        model, own, stored = copy.deepcopy(plain), x[part.nodes], {}
        proof = prove(model, part)
        assert proof.fast == ("layers.0", "layers.1")
        proof.attach(model, part)
        part.edges  # noqa: B018 - numbers the halo, which is an exchange as well
        before = ranks.traffic.bytes

        def pack(tensor):
            stored[tensor.data_ptr()] = tensor.numel() if tensor.is_floating_point() else 0
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = model(own)
        rows = len(own) + part.halo.rows_received
        assert ranks.traffic.bytes - before == part.halo.rows_received * (6 + 8) * 8
        # Rows before each layer, and those of the nodes for the products with `root`.
        weights = sum(p.numel() for p in model.parameters())
        assert sum(stored.values()) <= (rows + len(own)) * (6 + 8) + len(own) * 8 + weights * 2
        out.square().sum().backward()
        return [p.grad for p in model.parameters()]

    for size in (1, 3):
        grads = [work(SingleProcess())] if size == 1 else run_ranks(size, work, Traffic)
        for own, total in zip(zip(*grads, strict=True), wanted, strict=True):
            assert torch.allclose(sum(own), total, rtol=1e-11, atol=1e-11)


def test_a_model_that_reads_no_types_is_refused():
    graph = typed()
    part = GraphPart(graph, np.zeros(50, int), ProcessGrid(1), SingleProcess())
    with pytest.raises(ConfigError, match="edge_type, which"):
        attach(GCN().build(6, 3), part)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("edge_type", np.zeros(3, int), r"edge_type of shape \(3,\)"),
        ("edge_type", np.full(220, -1), "edge_type"),
        ("edge_type", np.full(220, 0.5), "edge_type"),
        ("node_type", np.zeros(3, int), r"node_type of shape \(3,\)"),
        ("pos", np.zeros(50), r"pos of shape \(50,\)"),
        ("pos", np.full((50, 2), np.nan), "pos has NaN"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(name, values, message):
    graph = typed()
    setattr(graph, name, values)
    with pytest.raises(DataError, match=message):
        graph.__post_init__()


def papers():
    """Papers cite papers, authors write papers; venues have no features."""
    r = np.random.default_rng(0)
    data = HeteroData()
    data["paper"].x = torch.from_numpy(r.normal(size=(30, 4)).astype(np.float32))
    data["author"].x = torch.from_numpy(r.normal(size=(20, 3)).astype(np.float32))
    data["venue"].num_nodes = 5
    data["paper"].y = torch.from_numpy(r.integers(3, size=30))
    mask = torch.arange(30) % 3
    data["paper"].train_mask, data["paper"].val_mask = mask == 0, mask == 1
    data["paper"].test_mask = mask == 2
    for kind, (a, b) in {
        ("paper", "cites", "paper"): (30, 30),
        ("author", "writes", "paper"): (20, 30),
        ("paper", "in", "venue"): (30, 5),
    }.items():
        ends = np.stack([r.integers(a, size=60), r.integers(b, size=60)])
        data[kind].edge_index = torch.from_numpy(ends)
    return data


def test_heterogeneous_data_as_one_graph(tmp_path):
    data = papers()
    graph = from_data(data)
    assert graph.num_nodes == 55
    assert graph.inputs.edge_types == 3
    assert graph.inputs.num_features == 4 + 3 + 3
    x = graph.dense_features(np.arange(55))
    assert np.array_equal(x[:30, :4], data["paper"].x.numpy())
    assert np.array_equal(x[30:50, 5:8], data["author"].x.numpy())
    assert (x[50:, :9] == 0).all()
    assert (x[50:, 9] == 1).all()
    writes = graph.edge_type == 1
    pair = data["author", "writes", "paper"].edge_index.numpy()
    assert np.array_equal(graph.source[writes], pair[0] + 30)
    assert np.array_equal(graph.target[writes], pair[1])
    assert np.array_equal(graph.labels[:30], data["paper"].y.numpy())
    assert (graph.labels[30:] == -1).all()
    assert np.array_equal(graph.parts["train"], np.arange(0, 30, 3))
    write_graph(graph, tmp_path / "papers.npz")
    again = read_graph(tmp_path / "papers.npz")
    order = np.lexsort((graph.source, graph.target))
    assert np.array_equal(again.edge_type, graph.edge_type[order])
    assert np.array_equal(again.labels, graph.labels)


def test_a_type_that_lacks_in_a_graph_keeps_its_number(tmp_path):
    """Types are known by name: without edges, on one process, and in another graph."""
    data = papers()
    trained = from_data(data).inputs
    data["author", "writes", "paper"].edge_index = torch.zeros(2, 0, dtype=torch.long)
    data["paper", "in", "venue"].edge_index = torch.zeros(2, 0, dtype=torch.long)
    few = from_data(data)
    assert few.inputs == trained
    assert trained.receivers == (0, 0, 2)
    assert trained.type_names[2:4] == ("venue", "paper cites paper")
    write_graph(few, tmp_path / "few.npz")
    assert read_graph(tmp_path / "few.npz").inputs == trained
    require_types(trained.measured(), few.inputs, "few")
    del data["author", "writes", "paper"]  # the edges to venues would get the weights of authors
    with pytest.raises(DataError, match=r"paper in venue.*in their order: paper, author, venue.*"):
        require_types(trained.measured(), from_data(data).inputs, "fewer")
    with pytest.raises(DataError, match="3 types of edges"):
        require_types(from_data(data).inputs.measured(), trained, "more")

    # HAN divides by the number of relations into each type, and rank 1 has no edge of a type.
    model = HAN(hidden=8, heads=2).build_for(trained.measured(), 3).double()
    few.edge_type[few.target % 2 == 1] = 0
    x = torch.from_numpy(few.dense_features(np.arange(55))).double()
    pair = torch.from_numpy(np.stack([few.source, few.target]))
    types = {n: torch.from_numpy(getattr(few, n)) for n in ("edge_type", "node_type")}
    plain = model.eval()(x, pair, **types).detach()

    def work(ranks):
        part = GraphPart(few, np.arange(55) % 2, ProcessGrid(2), ranks)
        out = attach(copy.deepcopy(model), part)(x[part.nodes]).detach()
        return float((out - plain[part.nodes]).abs().max())

    assert max(run_ranks(2, work, Traffic)) < 1e-12


@pytest.mark.parametrize("name", [None, "laplacian_eigenvector_pe"])
def test_positional_encodings_of_transforms_are_features(name, tmp_path):
    ring = torch.stack([torch.arange(9), (torch.arange(9) + 1) % 9])
    data = Data(x=torch.ones(9, 2), edge_index=torch.cat([ring, ring.flip(0)], 1))
    written = AddLaplacianEigenvectorPE(3, attr_name=name)(data.clone())
    x = from_data(written).features
    assert x.shape == (9, 5)
    torch.save([written, written], tmp_path / "two.pt")
    graphs = read_graphs(tmp_path / "two.pt")
    columns = node_columns(graphs, GraphSetDataConfig(path=tmp_path / "two.pt"))
    assert np.array_equal(columns.numbers, np.concatenate([x, x]))
    alone = AddRandomWalkPE(2)(data.clone())
    del alone.x
    assert from_data(alone).features.shape == (9, 2)


def test_entries_of_heterogeneous_data_that_are_not_read_are_refused(tmp_path):
    torch.save([papers(), papers()], tmp_path / "list.pt")
    with pytest.raises(DataError, match=r"a list of HeteroData.*edge_type"):
        read_graphs(tmp_path / "list.pt")
    data = papers()
    data["author", "writes", "paper"].edge_attr = torch.zeros(60, 1)
    with pytest.raises(DataError, match="has edge_attr, which are not read"):
        from_data(data)
    data = papers()
    data["author"].y = torch.zeros(20)
    with pytest.raises(DataError, match="node types paper, author have y"):
        from_data(data)


def test_data_with_types_and_positions():
    graph = typed()
    pair = torch.from_numpy(np.stack([graph.source, graph.target]))
    names = ("edge_type", "node_type", "pos")
    inputs = {n: torch.from_numpy(getattr(graph, n)) for n in names}
    read = from_data(Data(x=torch.from_numpy(graph.features), edge_index=pair, **inputs))
    for name in names:
        assert np.array_equal(getattr(read, name), getattr(graph, name))


def test_relations_follow_from_the_graph():
    assert RGCN().for_graph(3).build(6, 2).layers[0].num_relations == 3
    assert RGCN(relations=5).for_graph(3).build(6, 2).layers[0].num_relations == 5
    with pytest.raises(ConfigError, match="needs types of edges"):
        RGCN().for_graph(0)
    with pytest.raises(ConfigError, match="3 types of edges"):
        RGCN(relations=2).for_graph(3)


def test_whole_numbers_as_values_of_one_type_of_nodes():
    graph = from_data(papers(), "values")
    assert np.array_equal(graph.labels[:30, 0], papers()["paper"].y.numpy())
    assert np.isnan(graph.labels[30:]).all()


def two_splits(mask):
    return torch.stack([mask, ~mask], 1)


def test_one_of_several_splits(tmp_path):
    graph = typed()
    pair = torch.from_numpy(np.stack([graph.source, graph.target]))
    first = torch.arange(50) % 2 == 0
    data = Data(x=torch.from_numpy(graph.features), edge_index=pair, y=torch.arange(50) % 3)
    data.train_mask, data.test_mask = two_splits(first), two_splits(~first)
    for split, even in ((0, "train"), (1, "test")):
        parts = from_data(data, split=split).parts
        assert np.array_equal(parts[even], np.arange(0, 50, 2))
    for split in (None, 2):
        with pytest.raises(DataError, match=r"2 splits.*data\.split=0"):
            from_data(data, split=split)
    np.savez(
        tmp_path / "a.npz",
        **{k: v.numpy() for k, v in data.to_dict().items() if k[0] != "t"},
        train=data.train_mask.numpy(),
        test=(~first).numpy(),
    )
    # A mask of one column belongs to every split.
    assert np.array_equal(
        read_graph(tmp_path / "a.npz", split=0).parts["test"], np.arange(1, 50, 2)
    )
    with pytest.raises(DataError, match="share 25 nodes"):
        read_graph(tmp_path / "a.npz", split=1)
    data.train_mask, data.test_mask = first, ~first
    with pytest.raises(DataError, match=r"data\.split left out"):
        from_data(data, split=0)


def test_one_of_several_splits_of_heterogeneous_data():
    data = papers()
    first = torch.arange(30) % 2 == 0
    del data["paper"].val_mask
    data["paper"].train_mask, data["paper"].test_mask = two_splits(first), two_splits(~first)
    assert np.array_equal(from_data(data, split=1).parts["test"], np.arange(0, 30, 2))
    with pytest.raises(DataError, match="2 splits"):
        from_data(data)


@pytest.mark.parametrize("parts", [1, 3])
def test_relations_of_a_partitioned_graph_are_those_of_the_file(tmp_path, parts):
    """Each process reads the types of its edges; values are those of one process."""
    graph = typed()
    pairs = np.stack([graph.source, graph.target])
    np.savez(tmp_path / "edges.npz", edge_index=pairs, edge_type=graph.edge_type)
    np.savez(tmp_path / "nodes.npz", x=graph.features, y=np.zeros(50, int))
    stored = partition_edges(
        tmp_path / "edges.npz", tmp_path / "parts", parts, nodes=tmp_path / "nodes.npz"
    )
    torch.manual_seed(0)
    model = RGCN(hidden=8).for_graph(3).build(6, 4).double().eval()
    x = torch.from_numpy(graph.features).double()
    types = torch.from_numpy(graph.edge_type)
    expected = model(x, torch.from_numpy(pairs), edge_type=types).detach()

    def work(ranks):
        part = StoredPart(stored, ranks)
        assert part.inputs.edge_types == 3
        out = attach(copy.deepcopy(model), part)(x[part.nodes])
        return (out - expected[part.nodes]).abs().max().item()

    assert max(run_ranks(parts, work, Traffic)) < 1e-12


@pytest.mark.parametrize(("use", "types"), [("use", 3), ("ignore", 0)])
def test_types_of_a_partitioned_graph_are_inputs_unless_ignored(tmp_path, use, types):
    """The model is built for the inputs that the part then passes."""
    graph = typed()
    pairs = np.stack([graph.source, graph.target])
    np.savez(tmp_path / "edges.npz", edge_index=pairs, edge_type=graph.edge_type)
    split = {name: np.arange(50) % 3 == k for k, name in enumerate(("train", "validation", "test"))}
    np.savez(tmp_path / "nodes.npz", x=graph.features, y=np.arange(50) % 4, **split)
    partition_edges(tmp_path / "edges.npz", tmp_path / "parts", 1, nodes=tmp_path / "nodes.npz")
    config = GraphConfig.model_validate(
        {"data": {"path": str(tmp_path / "parts"), "edge_inputs": use}}
    )
    opened = NodeGraph(config, tmp_path / "parts")
    assert opened.inputs.edge_types == opened.own.part.inputs.edge_types == types
    chosen = RGCN(hidden=8) if types else GCN(hidden=8)
    model = chosen.for_graph(opened.inputs.edge_types).build(6, 4).double().eval()
    x, named = torch.from_numpy(graph.features).double(), {}
    if types:
        named["edge_type"] = torch.from_numpy(graph.edge_type)
    expected = model(x, torch.from_numpy(pairs), **named)
    out = attach(copy.deepcopy(model), opened.own.part)(x)
    assert torch.allclose(out, expected, rtol=1e-12, atol=1e-12)
