"""Parts of graphs for tests."""

from __future__ import annotations

import numpy as np
from torch import nn

from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.training.ranks.communicator import SingleProcess


def to_prove(graph: Graph, size: int) -> GraphPart:
    """Return a whole graph as the part of one process, to be proven on `size` simulated ranks."""
    part = GraphPart(graph, np.zeros(graph.num_nodes, int), ProcessGrid(1), SingleProcess())
    part.grid = ProcessGrid(size)
    return part


class OnSections(nn.Module):
    """A convolution, then a function of its rows and the edges."""

    def __init__(self, function):
        from torch_geometric.nn import SAGEConv

        super().__init__()
        self.conv, self.function = SAGEConv(6, 6), function

    def forward(self, x, edge_index):
        return self.function(self.conv(x, edge_index).tanh(), edge_index)
