"""Mutable state of a training run, saved and restored as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from scitoolkit.core.contracts import ResidualTask, Task
from scitoolkit.core.errors import CheckpointError, ConfigError, DataError
from scitoolkit.core.resume import changed_settings, identity
from scitoolkit.core.seeds import derive_seed, rng_state, seed_everything, set_rng_state
from scitoolkit.training.averaging import WeightAverage
from scitoolkit.training.checkpoint import Reader, Snapshot
from scitoolkit.training.compiled import CompiledModel, check_traceable
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.memory.store import ActivationMemory
from scitoolkit.training.optim.groups import grouped
from scitoolkit.training.optim.schedules import LearningRate
from scitoolkit.training.pruning import KeptEntries
from scitoolkit.training.state import OptimizerState, load_tensors, model_tensors
from scitoolkit.training.step import OptimizerStep
from scitoolkit.training.strategies.base import TrainingStrategy
from scitoolkit.training.validation import BestValidation


@dataclass
class Position:
    """Completed optimizer steps and epochs, and the total number of steps."""

    step: int = 0
    epoch: int = 0
    total_steps: int = 0


class Fit:
    """Model, optimizer, schedule, averages, loader and position of one training run.

    Args:
        task: provides the model; `strategy` may replace it by this rank's shard.
        config: the `training:` section.
        strategy: how ranks share the training.
        loader: the training batches of this rank.
        position: updated as the training proceeds.

    Raises:
        ConfigError: the model has no trainable parameters, or does not fit the optimizer.
        DataError: the loader has no batch.
    """

    def __init__(
        self,
        task: Task,
        config: TrainingConfig,
        strategy: TrainingStrategy,
        loader: Any,
        position: Position,
    ) -> None:
        self.task: Task = task
        self.config: TrainingConfig = config
        self.strategy: TrainingStrategy = strategy
        self.loader: Any = loader
        self.position: Position = position
        self.best: BestValidation = BestValidation(config.early_stopping, config.best)
        if config.compile:
            check_traceable(task.model)
        seed_everything(config.seed, rank=strategy.seed_rank)
        task.model = strategy.prepare(task.model, config.seed)
        # A module that was put in eval mode within a model in training mode stays so.
        if not task.model.training:
            task.model.train()
        self._modes = [(module, module.training) for module in task.model.modules()]
        named = [(n, p) for n, p in task.model.named_parameters() if p.requires_grad]
        if not named:
            raise ConfigError("the model has no parameters to train", where="model")
        for name, parameter in named:
            if parameter.is_complex():
                raise ConfigError(
                    f"parameter {name} is {parameter.dtype}",
                    where="model",
                    allowed="real parameters",
                    fix="torch.view_as_real of the parameter, and view_as_complex in forward",
                )
        if config.optimizer.uses_residuals and not isinstance(task, ResidualTask):
            raise ConfigError(
                f"optimizer {config.optimizer.name} needs a task with `residual`, "
                f"{type(task).__name__} has none",
                where="training.optimizer.name",
                fix="training.optimizer.name=lbfgs, which needs the loss alone",
            )
        self._kept = KeptEntries(named, config.pruning) if config.pruning else None
        if self._kept is None:
            moved = strategy.attach(named, config.exchange)
        else:
            moved = strategy.attach(self._kept.moved, config.exchange, self._kept.watch)
        whole = dict(moved)
        # Grouped by the model's parameters, because a rule may depend on their shapes.
        groups = grouped(named, config.parameter_groups, config.optimizer.lr)
        optimized: list[Any] = [{**g, "params": [whole[n] for n in names]} for names, g in groups]
        if not config.parameter_groups:
            optimized = list(whole.values())
        optimizer = config.optimizer.build(optimized)
        self._optimizer_state = OptimizerState(optimizer, [n for names, _ in groups for n in names])
        self._optimizer_state.pack()  # raises now if the state cannot be saved
        if not len(loader):
            raise DataError(
                "the training set has no batch",
                where="training.batch_size",
                allowed="at least one batch",
                fix="a smaller batch_size, or drop_last=False",
            )
        self.steps_per_epoch: int = -(-len(loader) // config.accumulate)
        position.step, position.epoch = 0, 0
        position.total_steps = config.steps or config.epochs * self.steps_per_epoch
        samples = config.batch_size * config.accumulate
        schedule = config.schedule.for_training(samples, self.steps_per_epoch, position.total_steps)
        self.rate: LearningRate = LearningRate(schedule, optimizer, position.total_steps)
        self.average: WeightAverage = WeightAverage(
            task.model, named, config.ema_decay, config.swa_start, strategy
        )
        self.memory: ActivationMemory = ActivationMemory(task.model, config.memory, strategy, named)
        self.stepper: OptimizerStep = OptimizerStep(
            task, config, strategy, optimizer, named, moved, self.memory, self._publish
        )
        self._compiled = CompiledModel(task.model) if config.compile else None

    def compiling(self, stop: Callable[[], str]) -> contextlib.AbstractContextManager[None]:
        """Return the context of a training step, the first of which may compile the model.

        Args:
            stop: returns the name of a received signal, or an empty string.
        """
        return self._compiled.told(stop) if self._compiled else contextlib.nullcontext()

    def train_mode(self) -> None:
        """Put the modules into the modes that they had at the start of the training."""
        for module, training in self._modes:
            module.training = training

    def close(self) -> None:
        """Remove hooks from the model, so that it can be used and trained further."""
        if self._compiled is not None:
            self._compiled.detach()
        if self._kept is not None:
            self._kept.detach()

    def snapshot(self, cursor: dict[str, Any] | None = None) -> Snapshot:
        """Return the complete state of this rank.

        Args:
            cursor: position of the loader to save instead of its current one.
        """
        tensors, optimizer = self._optimizer_state.pack()
        optimizer = {**optimizer, "state": self.strategy.merged(optimizer["state"])}
        tensors.update(self._weights())
        state = {
            "identity": self._identity(),
            "step": self.position.step,
            "total_steps": self.position.total_steps,
            "epoch": self.position.epoch,
            **self.best.state_dict(),
            "averaged": self.average.count,
            "optimizer": optimizer,
            "rate": self.rate.state_dict(),
            "scaler": self.stepper.scaler_state(),
            "memory": self.memory.state_dict(),
            "exchange": self.strategy.state_dict(),
            "streams": self.strategy.streams(),
            "loader": cursor or self.loader.state_dict(),
        }
        rng = rng_state()
        rank_tensors = {k: v for k, v in rng.items() if isinstance(v, Tensor)}
        rank_state = {k: v for k, v in rng.items() if not isinstance(v, Tensor)}
        return Snapshot(tensors, state, rank_state, rank_tensors)

    def restore(self, reader: Reader) -> None:
        """Restore a snapshot from a checkpoint.

        Raises:
            ConfigError: it was saved by another configuration or model.
            CheckpointError: an entry is missing or does not fit.
        """
        self._check_identity(reader)
        self._check_length(reader)
        load_tensors(self._stored_in(reader), reader)
        state = reader.state
        try:
            self._optimizer_state.unpack(state["optimizer"], reader)
            self.position.step, self.position.epoch = int(state["step"]), int(state["epoch"])
            self.best.load_state_dict(state)
            self.average.count = int(state.get("averaged", 0))
            self.rate.load_state_dict(state["rate"])
            self.stepper.load_scaler_state(state["scaler"])
            self.memory.load_state_dict(state["memory"])
            if self._kept is not None:
                self._kept.reload()
            self.strategy.load_state_dict(state.get("exchange", {}))
            self.loader.load_state_dict(state["loader"])
            self._restore_rng(reader)
        except KeyError as error:
            where = str(reader.path / "state.json")
            raise CheckpointError(f"{error} is missing", where=where) from None

    def _weights(self) -> dict[str, Tensor]:
        averages = {f"ema.{n}": t for n, t in self.average.tensors.items()}
        unpruned = self._kept.tensors() if self._kept is not None else {}
        return {**model_tensors(self.task.model), **averages, **self.strategy.tensors(), **unpruned}

    def _stored_in(self, reader: Reader) -> dict[str, Tensor]:
        """Return the tensors to read; earlier checkpoints have no averages of buffers."""
        buffers = {f"ema.{name}" for name, _ in self.task.model.named_buffers()}
        missing = buffers - set(reader.shapes)
        return {n: t for n, t in self._weights().items() if n not in missing}

    def _publish(self) -> None:
        """Copy the parameters that the optimizer has updated into the model."""
        self.strategy.publish()
        if self._kept is not None:
            self._kept.publish()

    def _restore_rng(self, reader: Reader) -> None:
        # The ranks that read the same samples must also draw the same random numbers.
        same_streams = reader.state.get("streams") == self.strategy.streams()
        if reader.world_size == self.strategy.world and same_streams:
            state, tensors = reader.rank(self.strategy.rank)
            set_rng_state({**state, **tensors})
        else:
            # Another number of ranks: new random streams, reproducible for this step.
            seed = derive_seed(self.config.seed, self.position.step)
            seed_everything(seed, rank=self.strategy.seed_rank)

    def _identity(self) -> dict[str, Any]:
        """Return settings and shapes that must be the same in a resumed run."""
        shapes = {n: list(p.shape) for n, p in self.task.model.named_parameters()}
        return {"training": identity(self.config), "model": shapes}

    def _check_length(self, reader: Reader) -> None:
        """Refuse another length of the training if the rates or averages depend on it."""
        now = self.position.total_steps
        before = int(reader.state.get("total_steps", now))  # not in older checkpoints
        averages = self.config.swa_start is not None
        if before == now or not (averages or self.rate.changes_with(before)):
            return
        reads = "training.swa_start" if averages else f"schedule {self.config.schedule.name}"
        length = "" if averages else f", or training.schedule.length={before} (or another number)"
        raise ConfigError(
            f"{reads} depends on the length of the training, which was {before} steps and is {now}",
            where=str(reader.path),
            allowed=f"{before} steps",
            fix=f"the former training.epochs or training.steps{length}",
        )

    def _check_identity(self, reader: Reader) -> None:
        changed = changed_settings(reader.state.get("identity", {}), self._identity())
        if changed:
            raise ConfigError(
                "resumed with another configuration: " + "; ".join(changed[:8]),
                where=str(reader.path),
                fix="undo the change, or start a new run without --resume",
            )
