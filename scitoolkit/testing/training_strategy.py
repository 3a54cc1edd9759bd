"""Contract suite of training strategies, to inherit in tests.

Example:
    class TestMyStrategy(TrainingStrategyContract):
        @pytest.fixture
        def strategy(self):
            return MyStrategy()
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from scitoolkit.core.config import Config
from scitoolkit.core.devices import CPU, device_of
from scitoolkit.core.errors import ConfigError, DataError, NumericalError, ScitoolkitError
from scitoolkit.core.plugins import kinds
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.testing.device import check_near, device_part, require_gpu, require_real_gpu
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.testing.member import check_registered
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.launch import current_rank, launch, leave, world_size
from scitoolkit.training.processes import process_group
from scitoolkit.training.strategies.config import Single, StrategyConfig, training_strategies
from scitoolkit.training.trainer import Trainer

RANKS, BATCH, SAMPLES = 3, 12, 38  # the last batch has fewer samples than there are ranks
STEPS, STOPPED = 6, 3
FAILURES = {"data": DataError, "nan": NumericalError}


class RankSensitiveNetwork(nn.Module):
    """Network whose result easily depends on the number of processes.

    Batch normalisation couples the samples, one layer is frozen, and two may share their weights.

    Args:
        tied: share the weights of two layers.
        conditional: call a layer only if a sample of the batch needs it.
    """

    def __init__(self, *, tied: bool, conditional: bool) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8)
        self.layers: nn.ModuleList = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        if tied:
            self.layers[1].weight = self.layers[0].weight
        self.conditional = conditional
        self.rare, self.head = nn.Linear(8, 1), nn.Linear(8, 1)
        self.frozen: nn.Linear = nn.Linear(1, 1).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 1) of (B, 3)."""
        hidden = self.norm(self.first(x))
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        out, needed = self.head(hidden), x[:, :1] > 0.5
        if not self.conditional or bool(needed.any()):
            out = out + needed * self.rare(hidden)
        return self.frozen(out)


class Regression:
    """Task of the contract suite, with different initial weights on each rank."""

    def __init__(
        self,
        *,
        device: str = "cpu",
        tied: bool = False,
        conditional: bool = False,
        failure: str = "",
    ) -> None:
        torch.manual_seed(current_rank())
        with torch.device(device):
            self.model: nn.Module = RankSensitiveNetwork(
                tied=tied, conditional=conditional
            ).double()
        self.failure = failure

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean squared error; fail in the first call only."""
        failure, self.failure = self.failure, ""
        if failure == "data":
            raise DataError("a sample that cannot be used")
        loss = (self.model(batch["x"]) - batch["y"]).square().mean()
        return loss * (torch.nan if failure == "nan" else 1.0), {}

    def metrics(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the mean squared error."""
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch: dict[str, Tensor]) -> int:
        """Return the number of samples."""
        return len(batch["x"])


def training(strategy: StrategyConfig, **settings: Any) -> TrainingConfig:
    """Return a training in which samples, norms, averages and shapes of all ranks matter."""
    keys = TrainingConfig.model_fields
    of_training = {k: v for k, v in strategy.model_dump().items() if k in keys}
    # LAMB needs the norms of whole parameters.
    optimizer = "adamw" if strategy.shards_parameters else "lamb"
    return TrainingConfig.model_validate(
        {
            "strategy": strategy.name,
            "optimizer": {"name": optimizer, "lr": 0.02},
            "steps": STEPS,
            "batch_size": BATCH,
            "accumulate": 2,
            "clip_norm": 0.1,
            "ema_decay": 0.5,
            "device": "cpu",
            "progress": False,
            "timeout_seconds": 60,
            **of_training,
            **settings,
        }
    )


def fit(
    config: TrainingConfig,
    task: Regression,
    run: RunDirectory | None = None,
    *,
    resume: bool = False,
) -> dict[str, Tensor]:
    """Train on this rank; return the state of the model and the lowest validation loss."""
    x = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(9)).double()
    loaders = [
        TensorLoader(
            {"x": x, "y": x.sin().sum(1, keepdim=True)},
            BATCH,
            rank=current_rank(),
            world_size=world_size(),
        )
        for _ in range(2)
    ]
    trainer = Trainer(task, config, run=run)
    trainer.fit(*loaders, resume=resume)
    assert trainer.best is not None
    state = {name: tensor.detach().clone() for name, tensor in task.model.state_dict().items()}
    return {**state, "best loss": torch.tensor(trainer.best["loss"], dtype=torch.float64)}


def results(config: TrainingConfig, folder: Path, *, conditional: bool) -> dict[str, Tensor]:
    """Return the results of four trainings on this rank; one is stopped and resumed."""
    task = Regression(conditional=conditional)
    with process_group(config):
        weights = {"whole": fit(config, task), "deferred": fit(config, Regression(device="meta"))}
        run = RunDirectory.create(folder, "run", Config()) if current_rank() == 0 else None
        part = config.model_copy(update={"steps": STOPPED})
        fit(part, Regression(conditional=conditional), run)
        if run is not None:
            shutil.copytree(run.path, folder / "stopped")
        weights["resumed"] = fit(config, Regression(conditional=conditional), run, resume=True)
        with contextlib.suppress(ConfigError):
            weights["tied"] = fit(config, Regression(tied=True))
    # Without the other ranks, with which the model must not communicate any more.
    x = torch.ones(2, 3).double()
    task.loss({"x": x, "y": x[:, :1]})[0].backward()
    assert not any(isinstance(p.grad, DTensor) for p in task.model.parameters())
    return {f"{case} {name}": x for case, tensors in weights.items() for name, x in tensors.items()}


def fail(config: TrainingConfig, failure: str) -> None:
    """Train a model with a failure on the last rank."""
    task = Regression(failure=failure if current_rank() == world_size() - 1 else "")
    # Without a layer that communicates, so that the other ranks complete their gradients.
    task.model.norm = nn.Identity()
    fit(config, task)


class TrainingStrategyContract:
    """Contract suite of training strategies; override the fixture `strategy`.

    The strategy runs on `RANKS` processes, which find it by its entry point, or with
    `single_process` in the process of the tests.

    Attributes:
        conditional: whether ranks may call different layers of a model in the same step.
    """

    conditional: ClassVar[bool] = True

    @pytest.fixture
    def strategy(self) -> StrategyConfig:
        """Return the configuration of the strategy under test."""
        raise NotImplementedError("override the fixture `strategy`")

    def test_the_training_section_selects_it_with_its_settings(
        self, strategy: StrategyConfig
    ) -> None:
        """The name is registered, and each field is a key of the section, which sets it."""
        check_registered(training_strategies, strategy)
        assert training(strategy).named_strategy() == strategy

    @device_part
    def test_one_process_on_a_gpu(self, strategy: StrategyConfig) -> None:
        """Weights, buffers and losses are those of the CPU, and are on the CPU after the training.

        The model is there also after an error.
        """
        if strategy.shards_parameters:
            require_real_gpu("FSDP2 keeps parameters on the meta device")
        require_gpu()
        tasks = [Regression(), Regression()]
        expected, computed = (
            fit(training(strategy, device=device), task)
            for device, task in zip(("cpu", "cuda"), tasks, strict=True)
        )
        check_near(computed, expected, CPU)
        assert device_of(tasks[1].model).type == "cpu"
        failing = Regression(failure="nan")
        with pytest.raises(NumericalError):
            fit(training(strategy, device="cuda"), failing)
        if not any(isinstance(p, DTensor) for p in failing.model.parameters()):
            assert device_of(failing.model).type == "cpu"

    def test_results_do_not_depend_on_the_number_of_processes(
        self, strategy: StrategyConfig, tmp_path: Path
    ) -> None:
        """Weights, buffers and validation losses are those of strategy `single`.

        They are bit-identical on all ranks and after a resume, and one process continues a run of
        several. A model on the meta device is initialised, tied weights are trained or refused, and
        after the training the model is whole and does not communicate.
        """
        config = training(strategy)
        single = training(Single(), optimizer=config.optimizer)
        conditional = self.conditional
        expected = results(single, tmp_path / "single", conditional=conditional)
        folders = [tmp_path / "one"]
        ranks = [results(config, folders[0], conditional=conditional)]
        if not strategy.single_process:
            folders.append(tmp_path / "several")
            assert _launched(strategy, folders[1], conditional=conditional) == 0
            ranks += [torch.load(folders[1] / f"{rank}.pt") for rank in range(RANKS)]
        for outcome in ranks:
            assert all(name.startswith("tied ") for name in expected.keys() - outcome.keys())
            for name, tensor in outcome.items():
                assert _close(tensor, expected[name]), name
                if name.startswith("whole "):
                    assert torch.equal(outcome[name.replace("whole", "resumed")], tensor), name
        for outcome in ranks[2:]:
            assert all(torch.equal(tensor, ranks[1][name]) for name, tensor in outcome.items())
        for folder in folders:
            run = RunDirectory(folder / "stopped")
            continued = fit(single, Regression(conditional=conditional), run, resume=True)
            for name, tensor in continued.items():
                assert _close(tensor, expected[f"whole {name}"]), name

    @pytest.mark.parametrize("failure", FAILURES)
    def test_the_error_of_one_rank_ends_all(
        self, strategy: StrategyConfig, failure: str, tmp_path: Path
    ) -> None:
        """An error or a NaN on the last rank ends the training with the error's exit code."""
        error = FAILURES[failure]
        if strategy.single_process:
            with pytest.raises(error):
                fail(training(strategy), failure)
        else:
            assert _launched(strategy, tmp_path, failure=failure) == error.exit_code


def _close(x: Tensor, y: Tensor) -> bool:
    return torch.allclose(x, y, rtol=1e-8, atol=1e-10)


def _launched(strategy: StrategyConfig, folder: Path, **options: Any) -> int:
    folder.mkdir(exist_ok=True)
    request = {"folder": str(folder), "strategy": strategy.model_dump(), **options}
    return launch(RANKS, [json.dumps(request)], module="scitoolkit.testing.training_strategy")


def main() -> int:
    """Run one rank of the contract suite."""
    request = json.loads(sys.argv[1])
    kinds()
    section = request["strategy"]
    config = training(training_strategies.get(section["name"]).model_validate(section))
    folder, rank = Path(request["folder"]), current_rank()
    try:
        if "failure" in request:
            with process_group(config):
                fail(config, request["failure"])
        else:
            outcome = results(config, folder, conditional=request["conditional"])
            torch.save(outcome, folder / f"{rank}.pt")
    except ScitoolkitError as error:
        return error.exit_code
    return 0


if __name__ == "__main__":
    leave(main())
