"""Learned transport scheme on a mesh (advection and diffusion).

Encoder and processor follow MeshGraphNets (Pfaff et al. 2021, section 3.2) and read the
time-independent inputs: velocity, boundary and edge geometry. The decoder returns coefficients of a
numerical scheme, as in learned discretisations (Bar-Sinai et al. 2019). A step has several stages

    u_i <- u_i + sum over edges j -> i of c_ij (u_j - u_i).

A step is therefore linear in u and preserves constants, like the transport equation, and a rollout
evaluates the network only once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scitoolkit.graphs.moved_part import MeshPart


def _perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs), nn.LayerNorm(outputs)
    )


class _Message(nn.Module):
    """One message-passing round: edge update from both end nodes, then node update.

    The last round has no node update, because coefficients are decoded from the edges.
    """

    def __init__(self, hidden: int, *, last: bool) -> None:
        super().__init__()
        # The first layer of the edge network, split by input: products with node features are
        # computed once per node instead of once per edge.
        self.by_edge = nn.Linear(hidden, hidden)
        self.by_source = nn.Linear(hidden, hidden, bias=False)
        self.by_target = nn.Linear(hidden, hidden, bias=False)
        self.edge = nn.Sequential(nn.GELU(), nn.Linear(hidden, hidden), nn.LayerNorm(hidden))
        self.node = None if last else _perceptron(2 * hidden, hidden, hidden)

    def forward(self, x: Tensor, edges: Tensor, part: MeshPart) -> tuple[Tensor, Tensor]:
        source, target = part.edge_index
        sent = part.with_halo(self.by_source(x).flatten(1)).unflatten(1, x.shape[1:])
        received = sent.index_select(0, source) + self.by_target(x).index_select(0, target)
        before = self.by_edge(edges) + received
        edges = edges + self.edge(before)
        if self.node is None:
            return x, edges
        total = torch.zeros_like(x).index_add(0, target, edges)
        return x + self.node(torch.cat([x, total], dim=-1)), edges


class MeshTransport(nn.Module):
    """Network that returns the coefficients of a transport scheme for K flows on one mesh.

    Args:
        node_inputs: number of node features.
        edge_inputs: number of edge features.
        hidden: width of the hidden layers.
        rounds: number of message-passing rounds.
        stages: number of stages of a step.

    Shape:
        nodes (n_own, K, node_inputs), edges (E_own, edge_inputs) -> (stages, E_own, K).
    """

    def __init__(
        self, node_inputs: int, edge_inputs: int, hidden: int, rounds: int, stages: int
    ) -> None:
        super().__init__()
        # Mean and standard deviation of the training's velocities, None where not stored: values
        # of another unit are recognised by them.
        self.speeds: tuple[float, float] | None = None
        self.encode_node: nn.Sequential = _perceptron(node_inputs, hidden, hidden)
        self.encode_edge: nn.Sequential = _perceptron(edge_inputs, hidden, hidden)
        self.rounds: nn.ModuleList = nn.ModuleList(
            _Message(hidden, last=i + 1 == rounds) for i in range(rounds)
        )
        self.decode: nn.Linear = nn.Linear(hidden, stages)
        # Coefficients of 0 leave the state as it is: the training begins at persistence, not at a
        # random and possibly unstable scheme.
        nn.init.zeros_(self.decode.weight)
        nn.init.zeros_(self.decode.bias)

    def forward(self, nodes: Tensor, edges: Tensor, part: MeshPart) -> Tensor:
        """Return the coefficients, shape (stages, E_own, K)."""
        x = self.encode_node(nodes)
        e = self.encode_edge(edges)[:, None].expand(-1, x.shape[1], -1)
        for layer in self.rounds:
            x, e = layer(x, e, part)
        return self.decode(e).movedim(-1, 0)


def step(coefficients: Tensor, state: Tensor, part: MeshPart) -> Tensor:
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
        flux = stage[..., None] * (sent.index_select(0, source) - state.index_select(0, target))
        state = state + torch.zeros_like(state).index_add(0, target, flux)
    return state
