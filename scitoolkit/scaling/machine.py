"""What this machine does with all ranks at work: arithmetic, optimizer steps, messages."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from scitoolkit.scaling.costs import Network, fitted, ring_counts
from scitoolkit.training.memory.parts import observe
from scitoolkit.training.processes import gather_objects

MESSAGE_BYTES = (64, 4096, 65536, 1 << 20, 4 << 20)
ROUNDS = 7


@dataclass(frozen=True)
class Rates:
    """Rates of a rank while all ranks do the same.

    Attributes:
        step_seconds: forward and backward pass of a step, however few its samples are.
        sample_seconds: of a sample more.
        optimizer_seconds: an AdamW step over all parameters.
        flops_per_sample: of forward and backward pass.
        activation_bytes: kept for the backward pass, of a sample.
        network: latency and seconds a byte; None on one rank.
    """

    step_seconds: float
    sample_seconds: float
    optimizer_seconds: float
    flops_per_sample: float
    activation_bytes: float
    network: Network | None

    def as_dict(self) -> dict[str, Any]:
        """Return JSON types."""
        return asdict(self)


def measured(model: nn.Module, width: int, samples: int) -> Rates:
    """Return the rates of this machine; on all ranks together, the slowest rank's.

    Args:
        model: from inputs of `width` numbers to as many.
        width: of an input.
        samples: of a usual step.
    """

    def step(rows: int) -> Callable[[], None]:
        x = torch.randn(rows, width, generator=torch.Generator().manual_seed(1))
        return lambda: _loss(model, x).backward()

    few, many = 1, 8 * samples
    with FlopCounterMode(display=False) as counted:
        step(samples)()
    seen = observe(model, step(samples))[""]
    times = {rows: _slowest(step(rows)) for rows in (few, many)}
    per_sample = max((times[many] - times[few]) / (many - few), 1e-12)
    optimizer = torch.optim.AdamW(model.parameters())
    return Rates(
        step_seconds=max(times[few] - few * per_sample, 0.0),
        sample_seconds=per_sample,
        optimizer_seconds=_slowest(optimizer.step),
        flops_per_sample=counted.get_total_flops() / samples,
        activation_bytes=seen.saved / samples,
        network=_network() if dist.is_initialized() and dist.get_world_size() > 1 else None,
    )


def _loss(model: nn.Module, x: Tensor) -> Tensor:
    return (model(x) - x.roll(1, 1)).square().mean()


def _network() -> Network:
    """Return latency and bandwidth, from reductions, gathers and all-to-alls of several sizes."""
    ranks = dist.get_world_size()
    points = []
    for size in MESSAGE_BYTES:
        count = -(-size // (4 * ranks)) * ranks
        x, y = torch.zeros(count), torch.zeros(count)
        share, parts = x[: count // ranks], list(y.view(ranks, -1))
        calls: dict[str, Callable[[], object]] = {
            "all_reduce": functools.partial(dist.all_reduce, x),
            "all_gather": functools.partial(dist.all_gather, parts, share),
            "all_to_all_single": functools.partial(dist.all_to_all_single, y, x),
        }
        for name, call in calls.items():
            messages, moved = ring_counts(name, 1, 4.0 * count, ranks)
            points.append((messages, moved, _slowest(call)))
    return fitted(points)


def _slowest(call: Callable[[], object]) -> float:
    """Return the median time of a call, of the rank on which it is longest."""
    several = dist.is_initialized() and dist.get_world_size() > 1
    seconds = []
    for number in range(ROUNDS + 2):
        if several:
            dist.barrier()
        started = time.perf_counter()
        call()
        if number >= 2:
            seconds.append(time.perf_counter() - started)
    return max(gather_objects(statistics.median(seconds)))
