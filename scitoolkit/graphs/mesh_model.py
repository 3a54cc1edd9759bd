"""A network on a mesh that learns how a quantity is carried and spread.

Encode and process as MeshGraphNets do (Pfaff et al. 2021, section 3.2), on what does not change
during a run: velocity, boundary and the edges' geometry. What is decoded are coefficients of a
scheme, as in learned discretisations (Bar-Sinai et al. 2019): a step is some rounds of

    u_i <- u_i + sum over edges j -> i of c_ij (u_j - u_i).

So a step is linear in u and leaves constants as they are, like the equation that it learns, and
a whole rollout needs the network once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scitoolkit.graphs.part import GraphPart


def _perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs), nn.LayerNorm(outputs)
    )


class _Message(nn.Module):
    """One round: every edge looks at both ends, then every node at its incoming edges.

    The last round needs no nodes, since coefficients are read off the edges.
    """

    def __init__(self, hidden: int, *, last: bool) -> None:
        super().__init__()
        # The first layer of the edges' network, cut by what it acts on: its products with node
        # features are done once a node instead of once an edge.
        self.by_edge = nn.Linear(hidden, hidden)
        self.by_source = nn.Linear(hidden, hidden, bias=False)
        self.by_target = nn.Linear(hidden, hidden, bias=False)
        self.edge = nn.Sequential(nn.GELU(), nn.Linear(hidden, hidden), nn.LayerNorm(hidden))
        self.node = None if last else _perceptron(2 * hidden, hidden, hidden)

    def forward(self, x: Tensor, edges: Tensor, part: GraphPart) -> tuple[Tensor, Tensor]:
        source, target = part.edge_index
        sent = part.with_halo(self.by_source(x).flatten(1)).unflatten(1, x.shape[1:])
        before = self.by_edge(edges) + sent[source] + self.by_target(x)[target]
        edges = edges + self.edge(before)
        if self.node is None:
            return x, edges
        total = torch.zeros_like(x).index_add(0, target, edges)
        return x + self.node(torch.cat([x, total], dim=-1)), edges


class MeshTransport(nn.Module):
    """Coefficients of a transport scheme, for several flows on one mesh at once.

    Args:
        node_inputs: features of a node.
        edge_inputs: features of an edge.
        hidden: width.
        rounds: of messages.
        stages: rounds of the scheme in a step.

    Shape:
        nodes (n_own, K, node_inputs), edges (E_own, edge_inputs) -> (stages, E_own, K).
    """

    def __init__(
        self, node_inputs: int, edge_inputs: int, hidden: int, rounds: int, stages: int
    ) -> None:
        super().__init__()
        self.encode_node: nn.Sequential = _perceptron(node_inputs, hidden, hidden)
        self.encode_edge: nn.Sequential = _perceptron(edge_inputs, hidden, hidden)
        self.rounds: nn.ModuleList = nn.ModuleList(
            _Message(hidden, last=i + 1 == rounds) for i in range(rounds)
        )
        self.decode: nn.Linear = nn.Linear(hidden, stages)
        nn.init.zeros_(self.decode.weight)
        nn.init.zeros_(self.decode.bias)

    def forward(self, nodes: Tensor, edges: Tensor, part: GraphPart) -> Tensor:
        """Return the coefficients."""
        x = self.encode_node(nodes)
        e = self.encode_edge(edges)[:, None].expand(-1, x.shape[1], -1)
        for layer in self.rounds:
            x, e = layer(x, e, part)
        return self.decode(e).movedim(-1, 0)


def step(coefficients: Tensor, state: Tensor, part: GraphPart) -> Tensor:
    """Return the state after a step.

    Args:
        coefficients: from `MeshTransport`, shape (stages, E_own, K).
        state: shape (n_own, K, S), S states of each of the K flows.
        part: this process's part of the mesh.

    Returns:
        Shape (n_own, K, S).
    """
    source, target = part.edge_index
    for stage in coefficients:
        sent = part.with_halo(state.flatten(1)).unflatten(1, state.shape[1:])
        flux = stage[..., None] * (sent[source] - state[target])
        state = state + torch.zeros_like(state).index_add(0, target, flux)
    return state
