"""Contract suite of optimizers, to inherit in tests.

Example:
    class TestMyOptimizer(OptimizerContract):
        @pytest.fixture
        def optimizer(self):
            return MyOptimizer()
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scitoolkit.core.config import Config
from scitoolkit.core.devices import CPU
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.testing.device import check_near, device_part, require_gpu
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.optim.optimizers import OptimizerConfig
from scitoolkit.training.trainer import Trainer

PRECISIONS = ("float32", "bf16", "fp16")
STEPS = 9  # of three epochs


class Curve:
    """Task of the contract suite: a small network with square matrices fits a sine."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.model: nn.Module = nn.Sequential(
            nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1)
        )

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean squared error."""
        return (self.model(batch["x"]) - batch["y"]).square().mean(), {}

    def metrics(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the mean squared error."""
        return {"loss": self.loss(batch)[0]}

    def residual(self, parameters: dict[str, Tensor], sample: dict[str, Tensor]) -> Tensor:
        """Return the error at one point."""
        prediction = torch.func.functional_call(self.model, parameters, (sample["x"][None],))
        return prediction[0] - sample["y"]

    def batch_size(self, batch: dict[str, Tensor]) -> int:
        """Return the number of samples."""
        return len(batch["x"])


def curve_loader() -> TensorLoader:
    """Return three shuffled batches of samples of the curve."""
    x = torch.linspace(-2, 2, 36)[:, None]
    return TensorLoader({"x": x, "y": (2 * x).sin()}, 12)


class OptimizerContract:
    """Contract suite of optimizers; override the fixture `optimizer`."""

    @pytest.fixture
    def optimizer(self) -> OptimizerConfig:
        """Return the configuration of the optimizer under test."""
        raise NotImplementedError("override the fixture `optimizer`")

    def fit(
        self,
        optimizer: OptimizerConfig,
        run: RunDirectory | None = None,
        *,
        resume: bool = False,
        **settings: Any,
    ) -> Trainer:
        """Train the curve."""
        config = TrainingConfig(
            optimizer=optimizer, batch_size=12, progress=False, **{"epochs": 3, **settings}
        )
        trainer = Trainer(Curve(), config, run=run)
        trainer.fit(curve_loader(), resume=resume)
        return trainer

    def test_it_resumes_bit_for_bit_at_any_step(
        self, optimizer: OptimizerConfig, tmp_path: Path
    ) -> None:
        """State per parameter and per group is restored while a schedule changes the rate."""
        # Optimizers of residuals have no learning rate that a schedule could change.
        schedule = {"name": "constant" if optimizer.uses_residuals else "exponential"}
        whole = self.fit(optimizer, schedule=schedule)
        run = RunDirectory.create(tmp_path, "optimizer", Config())
        keep = {"every_steps": 1, "keep_last": STEPS}
        trained = self.fit(optimizer, run, schedule=schedule, checkpoint=keep)
        assert trained.step == STEPS
        for step in (5, 3, 1):  # a resumed training writes no checkpoint of an earlier step
            for folder in run.checkpoints.glob("step-*"):
                if int(folder.name.removeprefix("step-")) > step:
                    shutil.rmtree(folder)
            resumed = self.fit(optimizer, run, resume=True, schedule=schedule, checkpoint=keep)
            assert resumed.step == STEPS
            assert _same_weights(whole, resumed), f"resumed at step {step}"

    def test_it_learns(self, optimizer: OptimizerConfig) -> None:
        """The loss decreases with default settings and without a schedule."""
        batch = next(iter(curve_loader()))
        first = Curve().loss(batch)[0].item()
        assert self.fit(optimizer, epochs=30).task.loss(batch)[0].item() < 0.9 * first

    def test_closure(self, optimizer: OptimizerConfig) -> None:
        """With `uses_closure` a step evaluates the loss; otherwise it needs no closure.

        With `uses_residuals` a step without residuals raises TypeError.
        """
        weight = nn.Parameter(torch.ones(20, 20))
        built = optimizer.build([weight])
        if optimizer.uses_residuals:
            with pytest.raises(TypeError, match="residuals"):
                built.step()
            return
        calls = 0

        def closure() -> Tensor:
            nonlocal calls
            calls += 1
            built.zero_grad()
            loss = (weight**2).sum() + weight.sum()
            loss.backward()
            return loss.detach()

        if optimizer.uses_closure:
            built.step(closure)  # type: ignore[arg-type]
            assert calls > 1
        else:
            closure()
            built.step()
        assert torch.isfinite(weight).all()
        assert not torch.equal(weight.detach(), torch.ones(20, 20))

    @device_part
    def test_a_gpu_gives_the_same_weights(self, optimizer: OptimizerConfig) -> None:
        """Three steps on a GPU are three steps on the CPU, and the model is back where it was."""
        require_gpu()
        whole, moved = (self.fit(optimizer, epochs=1, device=d) for d in ("cpu", "cuda"))
        if optimizer.uses_closure:  # a line search magnifies rounding: compare the losses
            batch = next(iter(curve_loader()))
            ours, theirs = (t.task.loss(batch)[0].item() for t in (moved, whole))
            assert ours == pytest.approx(theirs, rel=0.05)
            return
        names = [name for name, _ in whole.task.model.named_parameters()]
        weights, own = (
            dict(zip(names, (p.detach() for p in t.task.model.parameters()), strict=True))
            for t in (whole, moved)
        )
        check_near(own, weights, CPU)

    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_precisions(self, optimizer: OptimizerConfig, precision: str) -> None:
        """Declared precisions work; the others are refused with the optimizer's name."""
        if precision in optimizer.precisions:
            trainer = self.fit(optimizer, epochs=1, precision=precision)
            assert all(bool(torch.isfinite(p).all()) for p in trainer.task.model.parameters())
        else:
            with pytest.raises(ConfigError, match=f"optimizer {optimizer.name} needs precision"):
                TrainingConfig(optimizer=optimizer, precision=precision)

    def test_sharding(self, optimizer: OptimizerConfig) -> None:
        """Sharded and whole parameters give equal weights, or sharding is refused."""
        if not optimizer.shardable:
            with pytest.raises(ConfigError, match=f"optimizer {optimizer.name} needs whole"):
                TrainingConfig(optimizer=optimizer, strategy="sharded")
            return
        whole = self.fit(optimizer)
        sharded = self.fit(optimizer, strategy="sharded", device="cpu")
        for a, b in zip(
            whole.task.model.parameters(), sharded.task.model.parameters(), strict=True
        ):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def _same_weights(first: Trainer, second: Trainer) -> bool:
    pairs = zip(first.task.model.parameters(), second.task.model.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
