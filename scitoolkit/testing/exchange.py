"""Contract suite of exchanges, to inherit in tests.

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

from scitoolkit.core.plugins import kinds
from scitoolkit.training.exchange.buckets import GradientBuckets
from scitoolkit.training.exchange.config import ExchangeConfig, exchanges
from scitoolkit.training.launch import launch

RANKS = 2


class ExchangeContract:
    """What every registered exchange must do; give it a fixture `exchange`."""

    @pytest.fixture
    def exchange(self) -> ExchangeConfig:
        """Return the exchange's configuration, which is found by its name."""
        raise NotImplementedError("override the fixture `exchange`")

    @pytest.mark.multiproc
    def test_sums_are_near_equal_on_all_ranks_and_repeatable(
        self, exchange: ExchangeConfig, tmp_path: Path
    ) -> None:
        """Within `relative_error`, with the same bits on all ranks and for any timing.

        A parameter without gradient counts as 0, gradients of zeros and of huge range stay finite,
        and one rank's failure is known on all.
        """
        given = json.dumps({"folder": str(tmp_path), "exchange": exchange.model_dump()})
        assert launch(RANKS, [given], module="scitoolkit.testing.exchange") == 0
        ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(RANKS)]
        for name, first in ranks[0].items():
            for other in ranks[1:]:
                assert torch.equal(first, other[name]), f"{name} differs between ranks"
        assert torch.equal(ranks[0]["sums"], ranks[0]["sums at another timing"])
        assert ranks[0]["failed"].tolist() == [0.0, 1.0]
        exact, scale = exact_sums()
        error = (ranks[0]["sums"] - exact).norm() / scale.norm()
        assert error <= exchange.relative_error
        assert error > 0 or exchange.relative_error < 1e-5


def gradients(rank: int) -> list[torch.Tensor | None]:
    """Return the gradients of a rank: of zeros, of a huge range, and one that one rank lacks."""
    generator = torch.Generator().manual_seed(rank)
    wide = torch.randn(300, generator=generator) * torch.logspace(-12, 6, 300)
    plain = torch.randn(40, 30, generator=generator)
    return [plain, torch.zeros(17), wide, None if rank else torch.ones(5)]


def exact_sums() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums over the ranks, and the sums of absolute values, in float64."""
    sizes = [1200, 17, 300, 5]
    parts = [
        torch.cat([
            torch.zeros(size) if g is None else g.flatten()
            for g, size in zip(gradients(rank), sizes, strict=True)
        ]).double()
        for rank in range(RANKS)
    ]  # fmt: skip
    stacked = torch.stack(parts)
    return stacked.sum(0), stacked.abs().sum(0)


def _exchanged(exchange: ExchangeConfig, rank: int, delay: float, failed: bool) -> Any:
    shapes = [(40, 30), (17,), (300,), (5,)]
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    # 1 KiB, so that there are several buckets.
    buckets = GradientBuckets(parameters, exchange.build(), 2**-10)
    buckets.begin()
    for parameter, gradient in zip(reversed(parameters), reversed(gradients(rank)), strict=True):
        time.sleep(delay * ((rank + parameter.numel()) % 2))
        if gradient is not None:
            (parameter * gradient).sum().backward()
    told = buckets.finish(failed)
    sums = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
    return sums.double(), told


def main() -> None:
    """Be one rank of the contract."""
    import sys

    from scitoolkit.training.config import TrainingConfig
    from scitoolkit.training.launch import leave
    from scitoolkit.training.processes import process_group

    options = json.loads(sys.argv[1])
    kinds()
    section = options["exchange"]
    exchange = exchanges.get(section["name"]).model_validate(section)
    rank = int(os.environ["RANK"])
    with process_group(TrainingConfig(device="cpu", timeout_seconds=60)):
        sums, _ = _exchanged(exchange, rank, 0.0, False)
        again, clean = _exchanged(exchange, rank, 0.05, False)
        _, told = _exchanged(exchange, rank, 0.0, rank == 1)
        out = {
            "sums": sums,
            "sums at another timing": again,
            "failed": torch.tensor([float(clean), float(told)]),
        }
        torch.save(out, Path(options["folder"]) / f"{rank}.pt")
    leave(0)


if __name__ == "__main__":
    main()
