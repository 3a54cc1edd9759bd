"""What this machine does with all ranks at work: arithmetic, optimizer steps, messages."""

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
    """Rates of a rank while all ranks do the same.

    Attributes:
        step_seconds: forward and backward pass of a step, however few its samples are.
        sample_seconds: of a sample more.
        optimizer_seconds: an AdamW step over all parameters.
        optimizer_fixed_seconds: of it, what does not grow with the parameters' size.
        sharded_fixed_seconds: the same over sharded tensors.
        copy_seconds: of all parameters, once.
        flops_per_sample: of forward and backward pass.
        activation_bytes: kept for the backward pass, of a sample.
        networks: after a little arithmetic and after more, latency and seconds a byte by
            collective, "" for all together; None on one rank.
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
    found = {}
    for name, rows in (("little", -(-samples // 16)), ("more", samples)):
        work = step(rows)
        found[name] = AfterArithmetic(_slowest(work), networks(work))
    return found


def averaged(several: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the median of each number of rates that were measured one after the other.

    Example:
        >>> averaged([{"a": 1.0, "b": {"c": 2.0}}, {"a": 3.0, "b": {"c": 4.0}}])
        {'a': 2.0, 'b': {'c': 3.0}}
    """
    out: dict[str, Any] = {}
    for name, first in several[0].items():
        values = [each[name] for each in several]
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
        model: its parameters, which get gradients.
        small: as many parameters of one number each: what a step costs besides its numbers.
        sharded: as the sharded tensors that strategies step.
    """
    parameters = list(model.parameters())
    if small:
        parameters = [nn.Parameter(torch.zeros(1)) for _ in parameters]
        if sharded and dist.is_initialized() and dist.get_world_size() > 1:
            mesh = init_device_mesh("cpu", (dist.get_world_size(),))
            split = [DTensor.from_local(p.data, mesh, [Shard(0)]) for p in parameters]
            parameters = [nn.Parameter(each) for each in split]
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
    return _slowest(torch.optim.AdamW(parameters).step)


def _copy_seconds(model: nn.Module) -> float:
    """Return the seconds of copying all parameters, one after the other."""
    pairs = [(p.detach(), torch.empty_like(p)) for p in model.parameters()]

    def copy() -> None:
        for source, target in pairs:
            target.copy_(source)

    return _slowest(copy)


def _slowest(call: Callable[[], object]) -> float:
    """Return the median over rounds of the time of the slowest rank, with which a step ends."""
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
