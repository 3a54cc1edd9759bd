"""HGT and HAN on one graph: equal to torch-geometric, and on several ranks to one."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.starter import DataToStart
from scitoolkit.graphs.graph import from_data
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.job import GraphJob
from scitoolkit.graphs.models import HAN, HGT, RGCN
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.proof import attach
from scitoolkit.graphs.starter import starter
from scitoolkit.testing.job import scitoolkit
from scitoolkit.training.ranks.communicator import SingleProcess
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic

pyg = pytest.importorskip("torch_geometric.nn", exc_type=ImportError)
from torch_geometric.data import HeteroData  # noqa: E402

from scitoolkit.graphs.hetero_layers import HANLayer, HGTLayer  # noqa: E402

WIDTH = 8


def papers(seed=0, sizes=(30, 20, 5)):
    """Every type of nodes receives messages, papers from two types of edges."""
    r = np.random.default_rng(seed)
    data = HeteroData()
    counts = dict(zip(("paper", "author", "venue"), sizes, strict=True))
    for kind, count in counts.items():
        data[kind].x = torch.from_numpy(r.normal(size=(count, WIDTH)).astype(np.float32))
    data["paper"].y = torch.from_numpy(r.integers(3, size=counts["paper"]))
    for kind in (
        ("paper", "cites", "paper"),
        ("author", "writes", "paper"),
        ("paper", "by", "author"),
        ("paper", "in", "venue"),
    ):
        ends = np.stack(
            [r.integers(counts[kind[0]], size=70), r.integers(counts[kind[2]], size=70)]
        )
        data[kind].edge_index = torch.from_numpy(ends)
    return data


def typed_linear(ours, theirs):
    """Copy weights of a linear layer for each type."""
    for layer, (weight, bias) in zip(ours.layers, theirs, strict=True):
        layer.weight.data, layer.bias.data = weight.clone(), bias.clone()


def inputs_of(graph):
    pair = np.stack([graph.source, graph.target])
    return [torch.from_numpy(a) for a in (pair, graph.edge_type, graph.node_type)]


@pytest.mark.parametrize("heads", [1, 2])
def test_hgt_is_that_of_torch_geometric(heads):
    data = papers()
    torch.manual_seed(0)
    theirs = pyg.HGTConv(WIDTH, WIDTH, data.metadata(), heads=heads)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours = HGTLayer(WIDTH, 3, 4, heads)
    kinds = data.node_types
    for first, name in enumerate(("keys", "queries", "values")):
        rows = slice(first * WIDTH, (first + 1) * WIDTH)
        lins = [theirs.kqv_lin.lins[k] for k in kinds]
        typed_linear(getattr(ours, name), [(lin.weight[rows], lin.bias[rows]) for lin in lins])
    typed_linear(
        ours.out, [(theirs.out_lin.lins[k].weight, theirs.out_lin.lins[k].bias) for k in kinds]
    )
    dim = WIDTH // heads
    for mine, other in ((ours.of_keys, theirs.k_rel), (ours.of_values, theirs.v_rel)):
        mine.data = other.weight.view(heads, 4, dim, dim).transpose(0, 1).clone()
    ours.prior.data = torch.cat([theirs.p_rel["__".join(k)] for k in data.edge_types]).detach()
    ours.skip.data = torch.stack([theirs.skip[k] for k in kinds]).detach()
    x_dict = {kind: x.double() for kind, x in data.x_dict.items()}
    expected = theirs.double()(x_dict, data.edge_index_dict)
    out = ours.double()(torch.cat([x_dict[k] for k in kinds]), *inputs_of(from_data(data)))
    torch.testing.assert_close(out, torch.cat([expected[k] for k in kinds]))


@pytest.mark.parametrize("heads", [1, 2])
def test_han_is_that_of_torch_geometric(heads):
    data = papers()
    torch.manual_seed(0)
    theirs = pyg.HANConv(WIDTH, WIDTH, data.metadata(), heads=heads)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    graph = from_data(data)
    ours = HANLayer(WIDTH, 3, graph.inputs.receivers, heads)
    kinds, relations = data.node_types, ["__".join(k) for k in data.edge_types]
    typed_linear(ours.project, [(theirs.proj[k].weight, theirs.proj[k].bias) for k in kinds])
    ours.of_senders.data = torch.stack([theirs.lin_src[r] for r in relations]).detach()
    ours.of_receivers.data = torch.stack([theirs.lin_dst[r] for r in relations]).detach()
    ours.semantic.load_state_dict(theirs.k_lin.state_dict())
    ours.query.data = theirs.q.detach()
    x_dict = {kind: x.double() for kind, x in data.x_dict.items()}
    expected = theirs.double()(x_dict, data.edge_index_dict)
    out = ours.double()(torch.cat([x_dict[k] for k in kinds]), *inputs_of(graph))
    torch.testing.assert_close(out, torch.cat([expected[k] for k in kinds]))


@pytest.mark.parametrize("config", [HGT(hidden=8, heads=2), HAN(hidden=8, heads=4), RGCN(hidden=8)])
def test_ranks_reach_what_one_reaches(config):
    graph = from_data(papers())
    inputs = graph.inputs
    assert inputs.receivers == (0, 0, 1, 2)
    torch.manual_seed(1)
    made = config.for_graph(inputs.edge_types, 0, inputs.node_types, inputs.receivers)
    model = made.build(inputs.num_features, 3).eval()
    x = torch.from_numpy(graph.dense_features(np.arange(graph.num_nodes)))
    pair, edge_type, node_type = inputs_of(graph)
    named = {"edge_type": edge_type}
    if not isinstance(config, RGCN):  # its types are columns of the features
        named["node_type"] = node_type
    plain = model(x, pair, **named)
    plain.square().sum().backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters()}

    def work(ranks):
        part = GraphPart(
            graph, np.arange(graph.num_nodes) % ranks.size, ProcessGrid(ranks.size), ranks
        )
        own = copy.deepcopy(model)
        own.zero_grad()
        out = attach(own, part)(x[part.nodes], None)
        out.square().sum().backward()
        return (out - plain[part.nodes]).detach(), {n: p.grad for n, p in own.named_parameters()}

    for size in (1, 2, 3):
        results = [work(SingleProcess())] if size == 1 else run_ranks(size, work, Traffic)
        assert max(float(off.abs().max()) for off, _ in results) < 1e-4
        for name, gradient in gradients.items():
            total = sum(own[name] for _, own in results)
            torch.testing.assert_close(total, gradient, rtol=1e-3, atol=1e-3)


def test_a_graph_that_lacks_types_is_refused():
    with pytest.raises(ConfigError, match="hgt needs types of nodes and edges"):
        HGT().for_graph(3)
    with pytest.raises(ConfigError, match="edges of type 1 end at nodes of several types"):
        HAN().for_graph(2, 0, 2, (0, -1)).build(4, 2)
    with pytest.raises(ValueError, match="multiple of heads"):
        HGT(hidden=10, heads=4)


@pytest.mark.parametrize("name", ["rgcn", "hgt", "han"])
def test_a_file_of_heterogeneous_data_is_a_job(name, tmp_path):
    data = papers()
    for number, part in enumerate(("train_mask", "val_mask", "test_mask")):
        data["paper"][part] = torch.arange(30) % 3 == number
    torch.save(data, tmp_path / "papers.pt")
    text = starter(DataToStart([str(tmp_path / "papers.pt")], [str(tmp_path / "papers.pt")]))
    assert "name: rgcn" in text
    (tmp_path / "case.yaml").write_text(text + f"run: {{root: {tmp_path}/runs}}\n")
    model = f"model={{name: {name}, hidden: 8, layers: 2}}"
    done = scitoolkit("train", tmp_path / "case.yaml", "training.epochs=2", model, "--json")
    assert done.code == 0, done.err
    run = Path(json.loads(done.out)["run"])
    assert 0 <= GraphJob().evaluate(run).metrics["test_accuracy"] <= 1
    GraphJob().predict(run, tmp_path / "papers.pt", tmp_path / "out.nc")
    # Another type of nodes has no weights.
    data["topic"].x = torch.zeros(2, WIDTH)
    data["topic", "of", "paper"].edge_index = torch.tensor([[0, 1], [0, 1]])
    torch.save(data, tmp_path / "more.pt")
    with pytest.raises(DataError):
        GraphJob().predict(run, tmp_path / "more.pt", tmp_path / "out.nc")
