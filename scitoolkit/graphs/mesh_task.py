"""Task and loader of mesh jobs: a batch is some trajectories on the whole mesh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.devices import CPU, device_of
from scitoolkit.core.errors import CheckpointError, DataError
from scitoolkit.graphs import sharing
from scitoolkit.graphs.mesh_data import MeshFile, MeshGeometry, MeshRows, MeshSet
from scitoolkit.graphs.mesh_model import step
from scitoolkit.graphs.moved_part import MeshPart, part_on
from scitoolkit.graphs.part import GraphPart
from scitoolkit.training.processes import raise_together
from scitoolkit.training.ranks.collectives import gather_counts, gather_on_first

Array = np.ndarray


class FlowLoader:
    """Loader of batches of trajectories, the same on every process.

    Args:
        flows: numbers of the trajectories.
        size: trajectories per batch.
        seed: seed of the order; None keeps the given order.
    """

    def __init__(self, flows: Array, size: int, seed: int | None = None) -> None:
        self._flows, self._size, self._seed = np.asarray(flows), size, seed
        self._epoch = self._cursor = self._handed_out = 0

    def __len__(self) -> int:
        """Batches of an epoch."""
        return -(-len(self._flows) // self._size)

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of an epoch."""
        self._epoch, self._cursor = epoch, 0

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the rest of the epoch."""
        order = self._flows
        if self._seed is not None:
            order = np.random.default_rng((self._seed, self._epoch)).permutation(order)
        while self._cursor < len(self):
            begin = self._cursor * self._size
            # Number of the batch over all epochs, from which its random rotation follows: a resumed
            # run and any process turn it alike.
            draw = self._epoch * len(self) + self._cursor
            self._cursor += 1
            self._handed_out += 1
            chosen = torch.from_numpy(order[begin : begin + self._size].copy())
            yield {"flow": chosen, "draw": torch.tensor(draw)}

    def state_dict(self) -> dict[str, Any]:
        """Return the cursor."""
        return {"epoch": self._epoch, "batch": self._cursor, "flows": len(self._flows)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move to a saved cursor.

        Raises:
            CheckpointError: the number of trajectories differs.
        """
        if state.get("flows") != len(self._flows):
            raise CheckpointError(
                f"the checkpoint's set has {state.get('flows')} trajectories, "
                f"this {len(self._flows)}"
            )
        self._epoch, self._cursor = int(state["epoch"]), int(state["batch"])

    def explain(self) -> dict[str, Any]:
        """Return the numbers of trajectories and batches."""
        return {"trajectories": len(self._flows), "batch": self._size, "batches": len(self)}

    def stats(self) -> dict[str, Any]:
        """Return the number of batches handed out."""
        return {"batches": self._handed_out}


@dataclass(frozen=True)
class _Local:
    """Rows of local nodes and edges on one device.

    Attributes:
        part: this process's part of the meshes' graph.
        tracer: (flows, times, n_own).
        velocity: (flows, n_own, 2).
        flag: (n_own, features).
        edges: (E_own, 3), see `edge_features`.
    """

    part: MeshPart
    tracer: Tensor
    velocity: Tensor
    flag: Tensor
    edges: Tensor

    def to(self, device: torch.device) -> _Local:
        tensors = (self.tracer, self.velocity, self.flag, self.edges)
        part = cast("MeshPart", part_on(self.part, device))
        return _Local(part, *(tensor.to(device) for tensor in tensors))


class MeshDynamics:
    """Task with the errors of short rollouts from every time of a trajectory, on several ranks.

    Args:
        model: a `MeshTransport` with 3 node and 3 edge inputs.
        meshes: the meshes and their trajectories; only rows of local nodes are read.
        part: this process's part of the meshes' graph.
        scale: divisor of squared errors; ignored if `scaled_by` is given.
        unrolled: number of steps of the training rollouts.
        seed: seed of the random rotations.
        scaled_by: numbers of the trajectories whose variance of one-step changes, over the nodes of
            all processes, is the scale.

    Raises:
        DataError: NaN at local nodes of any process, raised on all of them.
    """

    def __init__(
        self,
        model: nn.Module,
        meshes: MeshSet | MeshFile,
        part: GraphPart,
        scale: float = 1.0,
        unrolled: int = 2,
        seed: int = 0,
        scaled_by: Array | None = None,
    ) -> None:
        self.model: nn.Module = model
        self.part: GraphPart = part
        self._scale, self._unrolled, self._seed = scale, unrolled, seed
        own = part.nodes.numpy()
        rows = _rows(meshes, own)
        local = _Local(
            part,
            torch.from_numpy(rows.tracer),
            torch.from_numpy(rows.velocity),
            torch.from_numpy(meshes.geometry.graph.features[own]),
            edge_features(meshes.geometry, part),
        )
        self._copies = {CPU: local}
        if scaled_by is not None:
            # This variance is nearly the squared error of persistence over one step: a loss of 1 is
            # as good as no change.
            _, deviation = sharing.moments([lambda: _changes(rows, scaled_by)], part.ranks)
            self._scale = float(deviation[0] ** 2)

    @property
    def _local(self) -> _Local:
        """The rows on the device of the model."""
        device = device_of(self.model)
        if device not in self._copies:
            self._copies[device] = self._copies[CPU].to(device)
        return self._copies[device]

    @property
    def velocity(self) -> Tensor:
        """Velocity at local nodes in mean edge lengths per step, shape (K, n_own, 2)."""
        return self._copies[CPU].velocity

    def coefficients(self, flows: Tensor, turn: Tensor | None = None) -> Tensor:
        """Return the coefficients for some trajectories, shape (stages, E_own, K).

        Args:
            flows: numbers of trajectories, shape (K,).
            turn: orthogonal matrix (2, 2) that rotates or mirrors velocities and edges.
        """
        here = self._local
        velocity, edges = here.velocity[flows].transpose(0, 1), here.edges
        if turn is not None:
            turn = turn.to(edges.device)
            velocity = velocity @ turn
            edges = torch.cat([edges[:, :2] @ turn, edges[:, 2:]], dim=1)
        flag = here.flag[:, None].expand(-1, len(flows), -1)
        return self.model(torch.cat([velocity, flag], dim=-1), edges, here.part)

    def _loss(self, batch: Batch, turn: Tensor | None, steps: int) -> Tensor:
        here = self._local
        truth = here.tracer[batch["flow"]].permute(2, 0, 1)  # node, flow, time
        coefficients = self.coefficients(batch["flow"], turn)
        steps = min(steps, truth.shape[2] - 1)
        # All start times t = 0 .. T - steps are rolled out at once: coefficients do not depend on
        # time.
        last = truth.shape[2] - steps
        state, total = truth[:, :, :last], truth.new_zeros(())
        for ahead in range(1, steps + 1):
            state = step(coefficients, state, here.part)
            error = state - truth[:, :, ahead : ahead + last]
            total = total + error.square().sum() / max(1, error.numel())
        return total / (steps * self._scale)

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Return the mean squared error of local nodes, in units of the scale."""
        turn = _random_turn(np.random.default_rng((self._seed, int(batch["draw"]))))
        return self._loss(batch, turn, self._unrolled), {}

    def metrics(self, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return the mean squared error of one step, in units of the scale."""
        return {"loss": self._loss(batch, None, 1)}

    def batch_size(self, batch: Batch) -> int:
        """Return the number of local nodes."""
        return len(self.part.nodes)

    @torch.no_grad()
    def states(self, flows: Array, steps: int) -> Iterator[Tensor]:
        """Yield the states of local nodes after 1..steps steps from each initial state, (K, n_own).

        The states are on the CPU. Nodes are in ascending order. Collective over all processes.
        """
        ascending = self.part.nodes.argsort()
        here, chosen = self._local, torch.as_tensor(flows)
        coefficients = self.coefficients(chosen)
        state = here.tracer[chosen, 0].T[..., None]
        for _ in range(steps):
            state = step(coefficients, state, here.part)
            yield state[ascending, :, 0].T.cpu()

    def rollout(self, flows: Array, steps: int) -> Tensor:
        """Return `states` as one tensor, (steps, K, n_own)."""
        return torch.stack(list(self.states(flows, steps)))

    def whole_rollout(self, flows: Array, steps: int) -> Tensor | None:
        """Return the rollout at all nodes, (steps, K, N), on rank 0, None elsewhere."""
        ranks, nodes = self.part.ranks, self.part.nodes.sort().values
        counts = gather_counts(ranks, len(nodes))
        every = gather_on_first(nodes, ranks, counts)
        whole = None
        for number, own in enumerate(self.states(flows, steps)):
            state = gather_on_first(own.T.contiguous(), ranks, counts)
            if state is None or every is None:
                continue
            if whole is None:
                whole = state.new_empty(steps, len(flows), self.part.num_nodes)
            whole[number][:, every] = state.T
        return whole


def _rows(meshes: MeshSet | MeshFile, own: Array) -> MeshRows:
    """Return the rows of local nodes; an error of one process is raised on all."""
    rows, error = None, None
    try:
        rows = meshes.rows(own)
    except DataError as found:
        error = found
    raise_together(error)
    assert rows is not None
    return rows


def _changes(rows: MeshRows, flows: Array) -> Array:
    """Return one-step changes, (n, 1)."""
    return np.diff(rows.tracer[flows], axis=1).reshape(-1, 1)


def _random_turn(random: np.random.Generator) -> Tensor:
    """Return a random rotation or reflection; the equation is isotropic."""
    angle, mirror = random.uniform(0, 2 * np.pi), random.choice([-1.0, 1.0])
    cosine, sine = np.cos(angle), np.sin(angle)
    return torch.tensor([[cosine, sine], [-mirror * sine, mirror * cosine]], dtype=torch.float32)


def edge_features(meshes: MeshGeometry, part: GraphPart) -> Tensor:
    """Return offset and length of each edge into local nodes, in mean edges, shape (E_own, 3)."""
    own = torch.from_numpy(meshes.positions)[part.nodes]
    source, target = part.edge_index
    with torch.no_grad():
        offset = part.with_halo(own)[source] - own[target]
    return torch.cat([offset, offset.norm(dim=1, keepdim=True)], dim=1)
