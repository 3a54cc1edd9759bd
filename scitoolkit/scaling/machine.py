"""Measured rates of this machine with all ranks busy: arithmetic, optimizer steps, messages."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.utils.flop_counter import FlopCounterMode

from scitoolkit.scaling.collectives import AfterArithmetic, networks
from scitoolkit.training.memory.parts import observe
from scitoolkit.training.processes import gather_objects

ROUNDS = 7


@dataclass(frozen=True)
class Rates:
    """Rates of a rank while all ranks do the same work.

    Attributes:
        step_seconds: forward and backward pass, extrapolated to zero samples.
        sample_seconds: additional seconds per sample.
        optimizer_seconds: an AdamW step over all parameters.
        optimizer_fixed_seconds: part of it that does not grow with the size of the parameters.
        sharded_fixed_seconds: the same for sharded tensors.
        copy_seconds: copying all parameters once.
        flops_per_sample: floating-point operations of forward and backward pass.
        activation_bytes: bytes per sample saved for the backward pass.
        networks: latency and seconds per byte of each collective, "" for all together, after
            little and after more arithmetic; None on one rank.
    """

    step_seconds: float
    sample_seconds: float
    optimizer_seconds: float
    optimizer_fixed_seconds: float
    sharded_fixed_seconds: float
    copy_seconds: float
    flops_per_sample: float
    activation_bytes: float
    networks: dict[str, AfterArithmetic] | None

    def as_dict(self) -> dict[str, Any]:
        """Return the rates as JSON types."""
        return asdict(self)


def measured(model: nn.Module, width: int, samples: int) -> Rates:
    """Measure the rates of this machine; times are those of the slowest rank.

    Must be called on all ranks.

    Args:
        model: maps inputs of shape (samples, width) to outputs of the same shape.
        width: features of an input.
        samples: samples of a usual step.
    """

    def step(rows: int) -> Callable[[], None]:
        x = torch.randn(rows, width, generator=torch.Generator().manual_seed(1))
        return lambda: _loss(model, x).backward()

    # Two sizes give a straight line: its slope is the time of a sample, its intercept the overhead.
    few, many = 1, 8 * samples
    with FlopCounterMode(display=False) as counted:
        step(samples)()
    seen = observe(model, step(samples))[""]
    times = {rows: _slowest(step(rows)) for rows in (few, many)}
    per_sample = max((times[many] - times[few]) / (many - few), 1e-12)
    several = dist.is_initialized() and dist.get_world_size() > 1
    return Rates(
        step_seconds=max(times[few] - few * per_sample, 0.0),
        sample_seconds=per_sample,
        optimizer_seconds=_optimizer_seconds(model),
        optimizer_fixed_seconds=_optimizer_seconds(model, small=True),
        sharded_fixed_seconds=_optimizer_seconds(model, small=True, sharded=True),
        copy_seconds=_copy_seconds(model),
        flops_per_sample=counted.get_total_flops() / samples,
        activation_bytes=seen.saved / samples,
        networks=_networks(step, samples) if several else None,
    )


def _networks(
    step: Callable[[int], Callable[[], None]], samples: int
) -> dict[str, AfterArithmetic]:
    measured_networks = {}
    for name, rows in (("little", -(-samples // 16)), ("more", samples)):
        work = step(rows)
        measured_networks[name] = AfterArithmetic(_slowest(work), networks(work))
    return measured_networks


def averaged(several: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the median of each number over several measurements.

    Example:
        >>> averaged([{"a": 1.0, "b": {"c": 2.0}}, {"a": 3.0, "b": {"c": 4.0}}])
        {'a': 2.0, 'b': {'c': 3.0}}
    """
    out: dict[str, Any] = {}
    for name, first in several[0].items():
        values = [rates[name] for rates in several]
        if isinstance(first, Mapping):
            out[name] = averaged(values)
        else:
            out[name] = None if first is None else statistics.median(values)
    return out


def _loss(model: nn.Module, x: Tensor) -> Tensor:
    return (model(x) - x.roll(1, 1)).square().mean()


def _optimizer_seconds(model: nn.Module, *, small: bool = False, sharded: bool = False) -> float:
    """Return the seconds of an AdamW step.

    Args:
        model: its parameters, with gradients.
        small: use the same number of parameters with one element each, to measure the overhead.
        sharded: use sharded tensors, as the sharding strategies do.
    """
    parameters = list(model.parameters())
    if small:
        parameters = [nn.Parameter(torch.zeros(1)) for _ in parameters]
        if sharded and dist.is_initialized() and dist.get_world_size() > 1:
            mesh = init_device_mesh("cpu", (dist.get_world_size(),))
            split = [DTensor.from_local(p.data, mesh, [Shard(0)]) for p in parameters]
            parameters = [nn.Parameter(part) for part in split]
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
    return _slowest(torch.optim.AdamW(parameters).step)


def _copy_seconds(model: nn.Module) -> float:
    """Return the seconds of copying all parameters one by one."""
    pairs = [(p.detach(), torch.empty_like(p)) for p in model.parameters()]

    def copy() -> None:
        for source, target in pairs:
            target.copy_(source)

    return _slowest(copy)


def _slowest(call: Callable[[], object]) -> float:
    """Return the median over rounds of the time of the slowest rank."""
    several = dist.is_initialized() and dist.get_world_size() > 1
    seconds = []
    for number in range(ROUNDS + 2):
        if several:
            dist.barrier()
        started = time.perf_counter()
        call()
        if number >= 2:
            seconds.append(time.perf_counter() - started)
    return statistics.median(map(max, zip(*gather_objects(seconds), strict=True)))
