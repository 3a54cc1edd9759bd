"""Contract suite of graph models, to inherit in tests.

Example:
    class TestMyModel(GraphModelContract):
        @pytest.fixture
        def model(self):
            return MyModel(hidden=4)
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.models import NodeModelConfig, models
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.proof import prove
from scitoolkit.graphs.proof_trace import LIMIT
from scitoolkit.testing.device import check_module, device_part
from scitoolkit.testing.member import check_registered, check_settings
from scitoolkit.training.ranks.communicator import SingleProcess

NODES, EDGES, FEATURES, OUTPUTS = 30, 120, 6, 3
ISOLATED = NODES - 1

_MEMBER = '''\
"""The graph model `{name}`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from scitoolkit.graphs.models import NodeModelConfig

if TYPE_CHECKING:
    from torch import nn


class {cls}(NodeModelConfig):
    """One line for `scitoolkit ls graph_model`: what {name} does."""

    name: Literal["{name}"] = "{name}"

    def layer(self, inputs: int, outputs: int) -> nn.Module:
        """Return one layer: here the sum over the neighbours."""
        from torch_geometric.nn import GraphConv

        return GraphConv(inputs, outputs)
'''


class GraphModelContract:
    """Contract suite of graph models; override the fixture `model`."""

    member_template: ClassVar[str] = _MEMBER

    @pytest.fixture
    def model(self) -> NodeModelConfig:
        """Return the configuration of the model under test."""
        raise NotImplementedError("override the fixture `model`")

    @pytest.fixture
    def network(self, model: NodeModelConfig) -> nn.Module:
        """Return the network in float64, without dropout."""
        torch.manual_seed(0)
        return model.build(FEATURES, OUTPUTS).double().eval()

    def test_registered_under_its_name(self, model: NodeModelConfig) -> None:
        """The registry returns this class, which has a summary."""
        check_registered(models, model)

    def test_keys_of_others_are_refused(self, model: NodeModelConfig) -> None:
        """Unknown keys are refused; known ones are unchanged after they are written and read."""
        check_settings(model)

    def test_a_row_for_each_node(self, network: nn.Module) -> None:
        """The outputs are finite, also of a node without edges and of a graph without edges."""
        x, edges = _graph()
        for some in (edges, edges[:, :0]):
            out = network(x, some)
            assert out.shape == (NODES, OUTPUTS)
            assert torch.isfinite(out).all()

    def test_numbers_of_nodes_and_order_of_edges_have_no_meaning(self, network: nn.Module) -> None:
        """Renumbered nodes have renumbered outputs; edges may have any order."""
        x, edges = _graph()
        generator = torch.Generator().manual_seed(1)
        new = torch.randperm(NODES, generator=generator)  # node i becomes node new[i]
        moved = torch.empty_like(x)
        moved[new] = x
        shuffled = new[edges][:, torch.randperm(EDGES, generator=generator)]
        torch.testing.assert_close(network(moved, shuffled)[new], network(x, edges))

    def test_messages_follow_the_edges(self, model: NodeModelConfig, network: nn.Module) -> None:
        """A node depends on itself and on senders at most `layers` edges away, not on receivers.

        One that `reaches_all` depends on all nodes.
        """
        line = torch.stack([torch.arange(NODES - 1), torch.arange(1, NODES)])
        x = _graph()[0].requires_grad_()
        node = NODES // 2
        (slope,) = torch.autograd.grad(network(x, line)[node].square().sum(), x)
        reached = slope.abs().sum(1).nonzero().flatten().tolist()
        assert reached
        if model.reaches_all:
            assert reached == list(range(NODES))
            return
        assert set(reached) <= set(range(node - model.layers, node + 1))
        assert node - model.layers in reached

    def test_weights_of_edges_are_used_as_declared(
        self, model: NodeModelConfig, network: nn.Module
    ) -> None:
        """With `weighted_edges`, weights of 1 change nothing and others do, differentiably."""
        if not model.weighted_edges:
            with pytest.raises(TypeError):
                network(*_graph(), torch.ones(EDGES, dtype=torch.float64))
            return
        x, edges = _graph()
        weights = torch.ones(EDGES, dtype=torch.float64).requires_grad_()
        out = network(x, edges, weights)
        torch.testing.assert_close(out, network(x, edges))
        (slope,) = torch.autograd.grad(out.square().sum(), weights)
        assert slope.abs().max() > 0

    def test_all_weights_have_gradients(self, network: nn.Module) -> None:
        """Every trained parameter has a gradient; exchanges of gradients wait for all of them."""
        network(*_graph()).square().sum().backward()
        assert not [n for n, p in network.named_parameters() if p.requires_grad and p.grad is None]

    @device_part
    def test_a_gpu_gives_the_same_numbers(self, network: nn.Module) -> None:
        """Outputs and gradients are those of the CPU, and the network can be moved back."""
        x, edges = _graph()
        check_module(network, lambda device: network(x.to(device), edges.to(device)))

    def test_dropout_acts_in_training_only(self, model: NodeModelConfig) -> None:
        """Outputs are random while training with `dropout`, and repeatable in evaluation."""
        network = model.model_copy(update={"dropout": 0.5}).build(FEATURES, OUTPUTS).double()
        x, edges = _graph()
        assert not torch.equal(network(x, edges), network(x, edges))
        assert torch.equal(network.eval()(x, edges), network(x, edges))

    @pytest.mark.parametrize("size", [1, 3])
    def test_parts_of_a_graph_equal_the_whole_graph(
        self, model: NodeModelConfig, size: int
    ) -> None:
        """Loss, gradients, outputs and buffers on 1 and 3 simulated ranks are the plain ones."""
        x, edges = _graph()
        weights = np.random.default_rng(0).uniform(size=EDGES) if model.weighted_edges else None
        sender, receiver = edges.numpy()
        rows = np.arange(NODES)
        sets = {"train": rows[::3], "validation": rows[1::3], "test": rows[2::3]}
        graph = Graph(
            sender, receiver, NODES, x.float().numpy(), rows % OUTPUTS, sets, edge_weight=weights
        )
        part = GraphPart(graph, np.zeros(NODES, int), ProcessGrid(1), SingleProcess())
        part.grid = ProcessGrid(size)
        assert prove(model.build(FEATURES, OUTPUTS), part).error < LIMIT


def _graph() -> tuple[Tensor, Tensor]:
    """Return features and edges, with repeated edges, self edges and an isolated node."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(ISOLATED, (2, EDGES), generator=generator)
    edges[:, :3], edges[:, 3:6] = 4, torch.tensor([[7], [9]])
    return torch.randn(NODES, FEATURES, dtype=torch.float64, generator=generator), edges
