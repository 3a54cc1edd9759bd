"""Workload of the benchmark: a network of equal layers, with messages between the steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.seeds import derive_seed
from scitoolkit.scaling.patterns import dependencies
from scitoolkit.scaling.step_clock import StepClock
from scitoolkit.training.ranks.communicator import Communicator
from scitoolkit.training.strategies.mesh.division import Division, GridAxis
from scitoolkit.training.strategies.mesh.plan import measured_products, mesh_plans


class LayerStack(nn.Sequential):
    """Linear layers, each followed by tanh, that a mesh of processes can divide."""

    def division(self) -> dict[str, Division]:
        """Return the layers' division: hidden values over y and x in turn."""
        axes: list[GridAxis | None] = ["y" if i % 2 == 0 else "x" for i in range(len(self) // 2)]
        ends = [None, *axes[:-1], None]
        return {
            f"{2 * i}": Division(inputs=inputs, outputs=outputs)
            for i, (inputs, outputs) in enumerate(itertools.pairwise(ends))
        }


def network(width: int, depth: int) -> nn.Module:
    """Return `depth` linear layers of `width` features, each followed by tanh."""
    torch.manual_seed(0)
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.Tanh())]
    return LayerStack(*layers)


def mesh_plan(width: int, depth: int, samples: int, processes: int) -> dict[str, Any]:
    """Return the mesh on which a process receives least, and data parallelism for comparison.

    Args:
        width, depth: the network.
        samples: samples of a step on all processes.
        processes: number of processes.
    """
    model = network(width, depth)
    products = measured_products(model, torch.zeros(1, width))
    plans = mesh_plans(model, products, samples, processes)
    shared = next(plan for plan in plans if plan.data == processes)
    best, item = plans[0], torch.zeros(()).element_size()
    return {
        "data": best.data,
        "tensor": list(best.tensor),
        "parameters_per_process": best.weights,
        "received_bytes": item * best.received,
        "data_parallel_bytes": item * shared.received,
    }


class PatternTask:
    """Task that fits a shift of the inputs, with messages between the ranks at every step.

    A rank adds to its inputs the mean of the received rows, which are outputs of other ranks in the
    previous step, as in a domain-decomposed solver.

    Args:
        model: see `network`.
        pattern: a key of `PATTERNS`.
        ranks: communicator of all ranks.
        clock: measures forward and backward pass.
    """

    def __init__(
        self, model: nn.Module, pattern: str, ranks: Communicator, clock: StepClock | None = None
    ) -> None:
        self.model: nn.Module = model
        self._pattern, self._ranks, self._clock, self._step = pattern, ranks, clock, 0
        self._row: Tensor | None = None

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """Return the mean squared error."""
        if self._clock is None:
            return self._loss(batch)
        return self._clock.computing(self._loss, batch)

    def metrics(self, batch: Batch) -> Mapping[str, Tensor]:
        """Return the loss."""
        return {"loss": self._loss(batch)[0]}

    def batch_size(self, batch: Batch) -> int:
        """Return the rows of the batch."""
        return len(batch["x"])

    def _loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        x = batch["x"]
        received = self._exchanged(x)
        output = self.model(x if received is None else x + 1e-3 * received.mean(0))
        self._row = output[0].detach()
        return (output - x.roll(1, 1)).square().mean(), {}

    def _exchanged(self, x: Tensor) -> Tensor | None:
        """Return the rows of the ranks this rank depends on, shape (dependencies, width)."""
        me, size, step = self._ranks.rank, self._ranks.size, self._step
        self._step += 1
        # Every rank derives the needs of all: who sends what follows without a message.
        wanted = [dependencies(self._pattern, step, rank, size) for rank in range(size)]
        if not any(wanted):
            return None
        row = x[0] if self._row is None else self._row
        width = len(row)
        sent = [width * (me in needs) for needs in wanted]
        receive = row.new_empty(len(wanted[me]) * width)
        received = [width * (rank in wanted[me]) for rank in range(size)]
        self._ranks.start(row.repeat(sum(map(bool, sent))), sent, receive, received)()
        return receive.view(-1, width) if wanted[me] else None


class RandomRows:
    """Loader of random rows of a table, different on each rank.

    Args:
        table: shape (rows, width).
        samples: samples per batch of a rank.
        batches: batches per epoch.
        rank: rank of this process.
        clock: measures the phase `data`.
    """

    def __init__(
        self, table: Tensor, samples: int, batches: int, rank: int, clock: StepClock | None = None
    ) -> None:
        self._table, self._samples, self._batches = table, samples, batches
        self._rank, self._clock, self._epoch, self._next = rank, clock, 0, 0

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[Batch]:
        while self._next < self._batches:
            if self._clock is not None:
                self._clock.begin("data")
            batch = {"x": self._table[self._chosen()]}
            self._next += 1
            if self._clock is not None:
                self._clock.end("data")
            yield batch
        self._next = 0

    def set_epoch(self, epoch: int) -> None:
        """Move to the first batch of an epoch."""
        self._epoch, self._next = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the cursor."""
        return {"epoch": self._epoch, "next": self._next}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a cursor."""
        self._epoch, self._next = int(state["epoch"]), int(state["next"])

    def explain(self) -> dict[str, Any]:
        """Return samples and batches."""
        return {"samples": self._samples * self._batches, "batches": self._batches}

    def stats(self) -> dict[str, Any]:
        """Return the number of yielded batches."""
        return {"batches": self._next}

    def _chosen(self) -> Tensor:
        seed = derive_seed(self._rank, self._epoch, self._next)
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(len(self._table), (self._samples,), generator=generator)
