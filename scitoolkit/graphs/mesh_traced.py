"""Traced functions of a mesh scheme for `deploy`, on the training meshes.

`coefficients` maps a velocity to coefficients of the scheme; `step` advances a state with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.mesh_config import MeshConfig
from scitoolkit.graphs.mesh_data import read_meshes
from scitoolkit.graphs.mesh_model import MeshTransport, step
from scitoolkit.graphs.mesh_task import edge_features
from scitoolkit.graphs.part import GraphPart
from scitoolkit.training.ranks.communicator import SingleProcess


def traced(model: MeshTransport, config: MeshConfig) -> Sequence[TracedFunction]:
    """Return `coefficients` and `step` on the meshes of the configuration.

    Args:
        model: the trained network.
        config: configuration of the job; its data file contains the meshes.

    Raises:
        DataError: the file does not exist.
    """
    meshes = read_meshes(config.data.path, config.data.meshes)
    owner = np.zeros(meshes.graph.num_nodes, np.int64)
    part = GraphPart(meshes.graph, owner, ProcessGrid(1), SingleProcess())
    nodes, edges = meshes.graph.num_nodes, part.edges.shape[1]
    test = meshes.tracer.shape[0] - config.split.test
    velocity = ArraySpec(
        "velocity",
        ("node", "component"),
        (nodes, 2),
        "mean edges per step",
        meshes.velocity[:test].min((0, 1)),
        meshes.velocity[:test].max((0, 1)),
    )
    scheme = ArraySpec("coefficients", ("stage", "edge"), (config.model.stages, edges), "1")
    state = ArraySpec(
        "tracer", ("node",), (nodes,), "1", meshes.tracer[:test].min(), meshes.tracer[:test].max()
    )
    flag = torch.from_numpy(meshes.graph.features)[part.nodes]
    first = _Coefficients(
        model.eval(), _FixedMesh(part), flag, edge_features(meshes.geometry, part)
    )
    flows = meshes.velocity[:2]
    with torch.no_grad():
        outputs = first(torch.from_numpy(flows)).numpy()
    return [
        TracedFunction(
            first,
            [velocity],
            [scheme],
            [flows],
            "coefficients",
            [meshes.velocity[test - config.split.validation : test]],
        ),
        TracedFunction(
            _Step(_FixedMesh(part)),
            [scheme, state],
            [ArraySpec("tracer", ("node",), (nodes,), "1")],
            [outputs, meshes.tracer[:2, 0]],
            "step",
        ),
    ]


class _FixedMesh:
    """The whole graph as a part, with constant edges."""

    def __init__(self, part: GraphPart) -> None:
        self.nodes: Tensor = part.nodes
        self.edge_index: Tensor = part.edge_index

    def with_halo(self, x: Tensor) -> Tensor:
        """Return `x`, because there is no halo."""
        return x


class _Coefficients(nn.Module):
    """(B, node, 2) velocities to (B, stage, edge)."""

    flag: Tensor
    edges: Tensor

    def __init__(self, model: MeshTransport, mesh: _FixedMesh, flag: Tensor, edges: Tensor) -> None:
        super().__init__()
        self.model, self.mesh = model, mesh
        self.register_buffer("flag", flag)
        self.register_buffer("edges", edges)

    def forward(self, velocity: Tensor) -> Tensor:
        own = velocity[:, self.mesh.nodes].transpose(0, 1)
        flag = self.flag[:, None].expand(-1, velocity.shape[0], -1)
        coefficients = self.model(torch.cat([own, flag], -1), self.edges, self.mesh)
        return coefficients.permute(2, 0, 1)


class _Step(nn.Module):
    """(B, stage, edge) coefficients and (B, node) states to (B, node)."""

    def __init__(self, mesh: _FixedMesh) -> None:
        super().__init__()
        self.mesh = mesh
        # Solvers number nodes as the file does, the part in the order of its cache: `nodes` leads
        # there, its inverse permutation back.
        self.place: Tensor = mesh.nodes.argsort()

    def forward(self, coefficients: Tensor, tracer: Tensor) -> Tensor:
        state = tracer[:, self.mesh.nodes].T[..., None]
        after = step(coefficients.permute(1, 2, 0), state, self.mesh)  # type: ignore[arg-type]
        return after[self.place, :, 0].T
