"""Training of the group-wise enhancer networks on the field being compressed."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.compression.enhancers.group_weights import INPUTS, GroupWeights
from scitoolkit.compression.kernel_arguments import extents, folded
from scitoolkit.compression.native.library import call, check
from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import NumericalError
from scitoolkit.io.loader import ArraySource, BatchLoader
from scitoolkit.training import Trainer
from scitoolkit.training.config import TrainingConfig

SAMPLES = 1 << 17
BATCH = 2048
LEAST_STEPS = 50


class GroupNetworks(nn.Module):
    """One two-layer network per group, evaluated as a batch on (samples, groups, 32)."""

    def __init__(self, groups: int, hidden: int) -> None:
        super().__init__()
        self.first: nn.Parameter = nn.Parameter(
            torch.randn(groups, hidden, INPUTS) * (2 / INPUTS) ** 0.5
        )
        self.bias: nn.Parameter = nn.Parameter(torch.zeros(groups, hidden))
        self.second: nn.Parameter = nn.Parameter(torch.zeros(groups, hidden))

    def forward(self, stencils: Tensor) -> Tensor:
        """Return corrections (samples, groups) in units of the bound."""
        states = torch.einsum("ngk,ghk->ngh", stencils, self.first) + self.bias
        return (states.relu() * self.second).sum(-1)


class EnhancerTask:
    """Predict the base codec's error; fulfils `contracts.Task`."""

    def __init__(self, model: GroupNetworks) -> None:
        self.model: nn.Module = model

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor | float]]:
        """Return the mean square error, in units of the squared bound."""
        return (self.model(batch["stencils"]) - batch["errors"]).square().mean(), {}

    def metrics(self, batch: Batch) -> dict[str, Tensor | float]:
        """Return the loss as the only metric."""
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch: Batch) -> int:
        """Return the number of samples."""
        return len(batch["errors"])


def train(
    values: np.ndarray, decoded: np.ndarray, bound: float, groups: int, hidden: int, seconds: float
) -> GroupWeights | None:
    """Return trained and quantised networks, or None if training diverged.

    Args:
        values: the original field.
        decoded: the base codec's decoded values.
        bound: absolute error bound, the unit of inputs and outputs.
        groups: number of value ranges, of equal population.
        hidden: width of the hidden layer.
        seconds: training time (s).
    """
    limits, stencils, errors = _samples(values, decoded, bound, groups)
    devices = torch.random.fork_rng(devices=[])
    with devices:
        torch.manual_seed(0)
        task = EnhancerTask(GroupNetworks(len(limits) + 1, hidden))
    loader = BatchLoader(ArraySource({"stencils": stencils, "errors": errors}), BATCH, seed=0)
    config = TrainingConfig(
        steps=_steps(task, stencils, errors, seconds),
        batch_size=BATCH,
        progress=False,
        optimizer={"name": "adam", "lr": 1e-2},
        schedule={"name": "cosine"},
        strategy="single",
        device="cpu",
    )
    try:
        Trainer(task, config).fit(loader)
    except NumericalError:
        return None
    parts = [p.detach().numpy() for p in (task.model.first, task.model.bias, task.model.second)]  # type: ignore[operator]
    if not all(np.isfinite(p).all() for p in parts):
        return None
    scales = np.array([max(float(np.abs(p).max()), 1e-12) / 127 for p in parts], np.float32)
    first, bias, second = (
        np.rint(p / s).astype(np.int8) for p, s in zip(parts, scales, strict=True)
    )
    return GroupWeights(limits, first, bias, second, scales)


def _steps(task: EnhancerTask, stencils: np.ndarray, errors: np.ndarray, seconds: float) -> int:
    """Return the number of training steps that fit into `seconds`, from a few timed passes."""
    batch = {
        "stencils": torch.from_numpy(stencils[:BATCH]),
        "errors": torch.from_numpy(errors[:BATCH]),
    }
    passes, start = 5, time.perf_counter()
    for _ in range(passes):
        task.loss(batch)[0].backward()
    task.model.zero_grad()
    # For so small a network, optimizer step and loader take about as long as the passes.
    per_step = 2 * (time.perf_counter() - start) / passes
    return max(int(seconds / per_step), LEAST_STEPS)


def _samples(
    values: np.ndarray, decoded: np.ndarray, bound: float, groups: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return group limits, stencils (N, G, 32) and errors (N, G) of rows spread over the field."""
    shape = folded(values.shape)
    num_rows, width = shape[0] * shape[1], shape[2]
    wanted = min(max(SAMPLES // width, 1), num_rows)
    rows = np.unique(np.linspace(0, num_rows - 1, wanted).astype(np.int64))
    stencils = np.empty((len(rows) * width, INPUTS), np.float32)
    field = (extents(shape), decoded, float(1 / bound))
    check(call("network_gather", decoded.dtype, *field, len(rows), rows, stencils))
    seen = decoded.reshape(num_rows, width)[rows].reshape(-1)
    errors = (values.reshape(num_rows, width)[rows].reshape(-1) - seen) / bound
    shares = np.arange(1, groups) / groups
    limits = np.unique(np.quantile(seen, shares).astype(np.float32))
    group = np.searchsorted(limits, seen, side="right")
    rng = np.random.default_rng(0)
    count = len(seen) // (len(limits) + 1)
    members = [np.flatnonzero(group == g) for g in range(len(limits) + 1)]
    # The networks are trained as one batch, so each needs as many samples: drawn with replacement
    # from its group, or from all points where a group has none.
    chosen = [rng.choice(m if m.size else np.arange(len(seen)), count) for m in members]
    order = np.stack(chosen, axis=1)
    return limits, stencils[order], errors[order].astype(np.float32)
