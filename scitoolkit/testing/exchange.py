"""Contract suite of gradient exchanges, to inherit in tests.

Example:
    class TestMyExchange(ExchangeContract):
        @pytest.fixture
        def exchange(self):
            return MyExchange()
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor

from scitoolkit.core.plugins import kinds
from scitoolkit.training.exchange.buckets import GradientBuckets
from scitoolkit.training.exchange.config import ExchangeConfig, exchanges
from scitoolkit.training.exchange.shards import ShardBuckets
from scitoolkit.training.launch import launch
from scitoolkit.training.sharding import cut, local, whole

RANKS = 2


class ExchangeContract:
    """Contract suite of gradient exchanges; override the fixture `exchange`."""

    @pytest.fixture
    def exchange(self) -> ExchangeConfig:
        """Return the configuration of the exchange under test."""
        raise NotImplementedError("override the fixture `exchange`")

    def test_sums_are_near_equal_on_all_ranks_and_repeatable(
        self, exchange: ExchangeConfig, tmp_path: Path
    ) -> None:
        """Sums are within `relative_error` and bit-identical on all ranks, for any timing.

        A missing gradient counts as 0, zero gradients and those of huge range remain finite, NaN is
        propagated, and the failure of one rank is reported on all. Weights updated in parts are
        bit-identical on all ranks, and their errors do not accumulate.
        """
        request = json.dumps({"folder": str(tmp_path), "exchange": exchange.model_dump()})
        assert launch(RANKS, [request], module="scitoolkit.testing.exchange") == 0
        ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(RANKS)]
        kinds_of_sums = ["sums"] * exchange.sums + ["parts"] * exchange.shards
        assert kinds_of_sums, "an exchange returns sums, parts, or both"
        for name, first in ranks[0].items():
            for other in ranks[1:]:
                assert torch.equal(first, other[name]), f"{name} differs between ranks"
        exact, scale = exact_sums()
        for kind in kinds_of_sums:
            assert torch.equal(ranks[0][kind], ranks[0][f"{kind} at another timing"])
            assert ranks[0][f"{kind} failed"].tolist() == [0.0, 1.0]
            assert ranks[0][f"{kind} of NaN"].any()
            error = (ranks[0][kind] - exact).norm() / scale.norm()
            assert error <= exchange.relative_error
            assert error > 0 or exchange.relative_error < 1e-5
        if exchange.shards:
            assert ranks[0]["weights off"] <= exchange.relative_error
            assert ranks[0]["weights off after ten steps"] <= exchange.relative_error


def gradients(rank: int) -> list[torch.Tensor | None]:
    """Return the gradients of a rank: zeros, a huge range, and one missing on some ranks."""
    generator = torch.Generator().manual_seed(rank)
    wide = torch.randn(300, generator=generator) * torch.logspace(-12, 6, 300)
    plain = torch.randn(40, 30, generator=generator)
    return [plain, torch.zeros(17), wide, None if rank else torch.ones(5)]


def exact_sums() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums over the ranks, and the sums of absolute values, in float64."""
    sizes = [1200, 17, 300, 5]
    parts = [
        torch.cat(
            [
                torch.zeros(size) if g is None else g.flatten()
                for g, size in zip(gradients(rank), sizes, strict=True)
            ]
        ).double()
        for rank in range(RANKS)
    ]
    stacked = torch.stack(parts)
    return stacked.sum(0), stacked.abs().sum(0)


def parameters_of_ranks() -> list[tuple[str, nn.Parameter]]:
    """Return parameters with the shapes of the gradients, equal on all ranks."""
    shapes = [(40, 30), (17,), (300,), (5,)]
    return [(str(i), nn.Parameter(torch.zeros(shape))) for i, shape in enumerate(shapes)]


class _Sums:
    """Summed gradients of an exchange, whole on all ranks ("sums") or in parts."""

    def __init__(self, exchange: ExchangeConfig, kind: str) -> None:
        self.named = parameters_of_ranks()
        self.buckets: GradientBuckets | ShardBuckets
        if kind == "sums":
            # 1 KiB buckets, so that there are several of them.
            parameters = [p for _, p in self.named]
            self.buckets = GradientBuckets(parameters, exchange.build(), 2**-10)
        else:
            self.buckets = ShardBuckets(self.named, exchange.build_shards(), 2**-10, keep=False)

    def of(self, rank: int, delay: float = 0.0, failed: bool = False, bad: float = 1.0) -> Any:
        self.buckets.begin()
        for (_, parameter), gradient in zip(
            reversed(self.named), reversed(gradients(rank)), strict=True
        ):
            # Ranks are late for other parameters each, so that buckets are ready in another order
            # on each.
            time.sleep(delay * ((rank + parameter.numel()) % 2))
            if gradient is not None:
                (parameter * gradient * bad).sum().backward()
        told = self.buckets.finish(failed)
        moved = [p for _, p in self.named]
        if isinstance(self.buckets, ShardBuckets):
            moved = [self.buckets.parts[p] for p in moved]
        sums = [whole(p.grad).flatten() for p in moved if p.grad is not None]
        return torch.cat(sums).double(), told


def _published(sums: _Sums, steps: int) -> float:
    """Update the parts `steps` times; return the relative error of the published weights."""
    assert isinstance(sums.buckets, ShardBuckets)
    generator = torch.Generator().manual_seed(5)
    exact = [torch.zeros(p.shape) for _, p in sums.named]
    for _ in range(steps):
        for total, (_, parameter) in zip(exact, sums.named, strict=True):
            move = torch.randn(parameter.shape, generator=generator)
            total += move
            part = sums.buckets.parts[parameter]
            assert isinstance(part, DTensor)
            with torch.no_grad():
                local(part).add_(cut(move, part))
        sums.buckets.publish()
    flat = torch.cat([p.detach().flatten() for _, p in sums.named])
    expected = torch.cat([x.flatten() for x in exact])
    return float((flat - expected).norm() / expected.norm())


def main() -> None:
    """Run one rank of the contract suite."""
    import sys

    from scitoolkit.training.config import TrainingConfig
    from scitoolkit.training.launch import leave
    from scitoolkit.training.processes import process_group

    options = json.loads(sys.argv[1])
    kinds()
    section = options["exchange"]
    exchange = exchanges.get(section["name"]).model_validate(section)
    rank = int(os.environ["RANK"])
    out: dict[str, torch.Tensor] = {}
    with process_group(TrainingConfig(device="cpu", timeout_seconds=60)):
        for kind in ["sums"] * exchange.sums + ["parts"] * exchange.shards:
            out[kind], _ = _Sums(exchange, kind).of(rank)
            sums = _Sums(exchange, kind)
            out[f"{kind} at another timing"], clean = sums.of(rank, delay=0.05)
            _, told = sums.of(rank, failed=rank == 1)
            out[f"{kind} failed"] = torch.tensor([float(clean), float(told)])
            bad, _ = sums.of(rank, bad=float("nan") if rank else 1.0)
            out[f"{kind} of NaN"] = torch.where(bad.isnan(), 1.0, 0.0)
        if exchange.shards:
            for name, steps in (("weights off", 1), ("weights off after ten steps", 10)):
                sums = _Sums(exchange, "parts")
                out[name] = torch.tensor(_published(sums, steps))
                out[f"{name}: bits"] = torch.cat([p.detach().flatten() for _, p in sums.named])
        torch.save(out, Path(options["folder"]) / f"{rank}.pt")
    leave(0)


if __name__ == "__main__":
    main()
