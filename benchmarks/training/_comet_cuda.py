"""Compressed activations of 50 convolutions on a GPU: memory, time of a step, speed of the codec.

Memory is the growth of the peak of allocated memory within a step. The steps of the codec are
adapted to a gradient error of 1 % first. Times are medians of GPU events. The rival is torch's
checkpointing of groups of seven convolutions, the square root of their number.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from scitoolkit.training.memory.block_codec import Encoding, decode
from scitoolkit.training.memory.comet import Comet
from scitoolkit.training.memory.config import MemoryConfig
from scitoolkit.training.memory.device_time import Moment
from scitoolkit.training.memory.live_bytes import peak_live_bytes

ROUNDS, REPEATS = 12, 9


class Convolutions(nn.Module):
    """Convolutions and ReLUs, `group` of them per recomputed part; none is recomputed if 0."""

    def __init__(self, depth: int, channels: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(1, channels, 1), nn.Conv2d(channels, 1, 1)
        layers = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(depth)]
        for layer in layers:  # activations of the same size in all layers
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        self.layers = nn.ModuleList(nn.Sequential(layer, nn.ReLU()) for layer in layers)
        self.group = 0

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for start in range(0, len(self.layers), self.group or len(self.layers)):
            part = self.layers[start : start + (self.group or len(self.layers))]
            run = nn.Sequential(*part)
            x = checkpoint(run, x, use_reentrant=False) if self.group else run(x)
        return self.head(x)


def run(
    device: torch.device, depth: int = 50, channels: int = 64, side: int = 256, batch: int = 8
) -> dict[str, object]:
    """Return the figures of a network of `depth` convolutions on fields of `side` x `side`."""
    torch.manual_seed(0)
    net = Convolutions(depth, channels).to(device)
    axis = torch.linspace(0, 9, side, device=device)
    phase = torch.arange(batch, device=device)[:, None, None, None]
    x = (axis[:, None] + phase).sin() * (2 * axis + phase).cos()
    store = Comet(net, MemoryConfig(activations="comet"))

    def step(context: Callable[[], AbstractContextManager]) -> dict[str, Tensor]:
        net.zero_grad()
        with context():
            loss = (net(x) - x).square().mean()
        loss.backward()
        return {name: p.grad.clone() for name, p in net.named_parameters()}

    def comet() -> dict[str, Tensor]:
        return step(lambda: store.saving({"x": x}, 1.0))

    def recomputed() -> dict[str, Tensor]:
        net.group = 7
        try:
            return step(contextlib.nullcontext)
        finally:
            net.group = 0

    ways = {"exact": lambda: step(contextlib.nullcontext), "comet": comet, "recomputed": recomputed}
    error = adapted(store, comet, ways["exact"]())
    mib = {name: peak_live_bytes(way, device) / 2**20 for name, way in ways.items()}
    seconds = {name: median(way, device) for name, way in ways.items()}
    return {
        "comet_memory_ratio": mib["exact"] / mib["comet"],
        "comet_step_time_ratio": seconds["comet"] / seconds["exact"],
        "recomputed_memory_ratio": mib["exact"] / mib["recomputed"],
        "recomputed_step_time_ratio": seconds["recomputed"] / seconds["exact"],
        "gradient_error": error,
        "packed_ratio": store.raw_bytes / max(store.kept_bytes, 1),
        "mib": mib,
        "step_seconds": seconds,
        **codec(x.expand(-1, channels, -1, -1).contiguous(), device),
    }


def adapted(
    store: Comet, step: Callable[[], Mapping[str, Tensor]], exact: Mapping[str, Tensor]
) -> float:
    """Adapt the quantisation steps; return the last error of the whole gradient."""
    error = 0.0
    for _ in range(ROUNDS):
        found = step()
        pairs = {
            name: (float((found[name] - g).square().sum()), float(g.square().sum()))
            for name, g in exact.items()
        }
        error = (sum(e for e, _ in pairs.values()) / sum(n for _, n in pairs.values())) ** 0.5
        store.adapt(pairs)
    return error


def codec(x: Tensor, device: torch.device) -> dict[str, float]:
    """Return speed and ratio of the codec on smooth fields with a step of a tenth of their RMS."""
    blocks = Encoding(x, 0.1).finish()
    assert blocks is not None
    return {
        "encode_gb_per_second": x.nbytes / 1e9 / median(lambda: Encoding(x, 0.1).finish(), device),
        "decode_gb_per_second": x.nbytes / 1e9 / median(lambda: decode(blocks), device),
        "smooth_ratio": x.nbytes / blocks.num_bytes,
    }


def median(call: Callable[[], object], device: torch.device) -> float:
    """Return the median duration of a call, in seconds."""
    call()
    found = []
    for _ in range(REPEATS):
        begin = Moment(device)
        call()
        found.append(begin.seconds_until(Moment(device)))
    return statistics.median(found)
