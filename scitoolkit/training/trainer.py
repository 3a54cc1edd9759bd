"""The trainer: training that can stop after any step and resume bit-identically."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from logging import Logger
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from scitoolkit.core.contracts import Loader, Task
from scitoolkit.core.devices import CPU, choose_device, device_of, lent
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.log import get_logger
from scitoolkit.core.processes import process_environment
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.training.agreement import check_ranks_agree
from scitoolkit.training.batches import as_loader
from scitoolkit.training.callbacks import Callback
from scitoolkit.training.checkpoint import Checkpoints, model_weights
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.default_callbacks import default_callbacks
from scitoolkit.training.failures import explained
from scitoolkit.training.fit import Fit, Position
from scitoolkit.training.loop import TrainingLoop
from scitoolkit.training.memory.store import ActivationStore
from scitoolkit.training.processes import gather_objects, on_rank_zero, process_group
from scitoolkit.training.signals import StopSignals
from scitoolkit.training.strategies.base import TrainingStrategy
from scitoolkit.training.validation import validate

log: Logger = get_logger(__name__)


class Trainer:
    """Trainer of a task's model.

    Args:
        task: provides model, loss and metrics.
        config: the `training:` section.
        run: run directory for metrics and checkpoints; None keeps everything in memory.
        callbacks: called in addition to those selected by the configuration.

    Attributes:
        task, config, run: as given; all ranks use rank 0's run directory.
        strategy: how ranks share the training; set by `fit`.

    Raises:
        ConfigError: from `fit`, when the number of processes and the configuration do not fit.

    Example:
        >>> from scitoolkit.testing.loaders import TensorLoader
        >>> from torch import nn
        >>> class Line:
        ...     def __init__(self):
        ...         self.model = nn.Linear(1, 1)
        ...     def loss(self, batch):
        ...         return ((self.model(batch["x"]) - batch["y"]) ** 2).mean(), {}
        ...     def metrics(self, batch):
        ...         return {"loss": self.loss(batch)[0]}
        ...     def batch_size(self, batch):
        ...         return len(batch["x"])
        >>> x = torch.linspace(-1, 1, 64)[:, None]
        >>> data = TensorLoader({"x": x, "y": 3 * x}, batch_size=16)
        >>> trainer = Trainer(Line(), TrainingConfig(epochs=20, optimizer={"name": "adam",
        ...     "lr": 0.1}, progress=False))
        >>> trainer.fit(data, data)
        >>> trainer.step, trainer.best["loss"] < 0.1
        (80, True)
    """

    strategy: TrainingStrategy

    def __init__(
        self,
        task: Task,
        config: TrainingConfig | None = None,
        *,
        run: RunDirectory | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.task: Task = task
        self.config: TrainingConfig | Any = config or TrainingConfig()
        self.run = run
        self._user_callbacks = list(callbacks)
        self._position = Position()
        self._fit: Fit | None = None
        self._is_fitting = False
        self._best_in_memory: dict[str, Tensor] = {}
        self._has_best = False

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return self._position.step

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self._position.epoch

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole training."""
        return self._position.total_steps

    @property
    def best(self) -> dict[str, float] | None:
        """Lowest validation loss so far (key `loss`) and its `step`, or None."""
        return self._fit.best.found if self._fit else None

    @property
    def activation_store(self) -> ActivationStore | None:
        """The activation store configured by `training.memory`, or None."""
        return self._fit.memory.store if self._fit else None

    def fit(
        self,
        train_loader: Loader | DataLoader[Any],
        validation_loader: Loader | DataLoader[Any] | None = None,
        *,
        resume: bool = False,
    ) -> None:
        """Train for the configured epochs or steps, or until the validation loss stops improving.

        Args:
            train_loader: this rank's share of the training batches, or a torch DataLoader of
                global batches (dicts or tuples of tensors, see `batches.DataLoaderBatches`).
            validation_loader: the same for validation, once per epoch; None for no validation.
            resume: continue from the run's newest checkpoint, or start if there is none.

        Raises:
            Interrupted: a signal stopped the run, after its state was saved.
            NumericalError: NaN or Inf in loss or gradients; the failed step is not saved.
            CheckpointError: the newest checkpoint cannot be restored completely.
            ConfigError: resumed with another configuration or model.
        """
        with (
            process_group(self.config),
            StopSignals() as signals,
            explained(self.config, lambda: self.step),
            self._home(),
            contextlib.closing(self._prepare(train_loader)) as fit,
        ):
            checkpoints = self._checkpoints()
            continued = resume and self._restored(fit, checkpoints)
            measured = None
            if validation_loader is None:
                self._warn_of_no_validation()
            else:
                measured = self._as_loader(validation_loader)
            TrainingLoop(
                self,
                fit,
                callbacks=default_callbacks(self) + self._user_callbacks,
                checkpoints=checkpoints,
                signals=signals,
                validate=(lambda: self.validate(measured)) if measured is not None else None,
                remember=self._remember,
                saved_step=self.step if continued else -1,
            ).run()
            self._finish()

    def validate(self, loader: Loader | DataLoader[Any]) -> dict[str, float]:
        """Return the task's metrics as means over all samples of all ranks, during or after `fit`.

        Args:
            loader: as the validation loader of `fit`.

        Raises:
            NumericalError: the loss is not finite.
            DataError: there are no samples, or no metric `loss`.
        """
        fit, loader = self._prepared(), self._as_loader(loader)
        # After `fit` the model is back where it was found, which need not be the training device.
        lending = lent(self.task.model, self.strategy.device)
        # The ranks have left their group, too; within `fit` joining does nothing.
        with contextlib.nullcontext() if self._is_fitting else lending, process_group(self.config):
            # `load_best` has loaded averages already.
            loaded = self._has_best and not self._is_fitting
            weights = contextlib.nullcontext() if loaded else fit.average.swapped()
            return validate(self.task, loader, fit.stepper, self.strategy, weights, self.step)

    def load_best(self) -> None:
        """Load the weights with the lowest validation loss (the averaged ones, with an EMA).

        Without validation these are the last weights. Call it after `fit`, on any ranks.

        Raises:
            CheckpointError: the checkpoint is damaged.
        """
        if self.run is not None:
            checkpoints = Checkpoints(self.run.checkpoints, self.strategy)
            path = checkpoints.best() or checkpoints.newest()
            weights = model_weights(checkpoints.open(path)) if path else {}
        else:
            weights = self._best_in_memory
        self._has_best = True
        if weights:
            targets: dict[str, Tensor] = dict(self.task.model.named_parameters())
            targets.update(dict(self.task.model.named_buffers()))
            with torch.no_grad():
                for name, target in targets.items():
                    target.copy_(weights[name])

    def averaged_weights(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the model has the averaged weights, if any."""
        return self._prepared().average.swapped()

    @contextlib.contextmanager
    def _home(self) -> Iterator[None]:
        """Bring the model back to the device where it was found, also after an error.

        What its owner does next, with batches on that device, does not know of the training's.
        """
        place = device_of(self.task.model)
        self._is_fitting = True
        try:
            yield
        finally:
            self._is_fitting = False
            # Shards of a training that failed stay: only all ranks together could gather them.
            # Gathered parameters of FSDP2 do not show it, its methods do.
            if not hasattr(self.task.model, "set_custom_all_gather"):
                self.task.model.to(CPU if place.type == "meta" else place)

    def _prepare(self, train_loader: Any) -> Fit:
        """Return the initial state of a new training run."""
        self._has_best = False
        world = process_environment().world_size
        self.strategy = self.config.strategy_on(world).build(
            choose_device(self.config.device, "training.device")
        )
        if self.strategy.world > 1:
            path = gather_objects(self.run.path if self.run else None)[0]
            self.run = RunDirectory(path) if path else None
        loader = self._as_loader(train_loader)
        if self.strategy.world > 1:
            check_ranks_agree(self.task.model, self.config, len(loader))
        self._fit = Fit(self.task, self.config, self.strategy, loader, self._position)
        loader.set_epoch(0)
        return self._fit

    def _as_loader(self, loader: Any) -> Any:
        return as_loader(loader, self.config.seed, *self.config.share_of_batch())

    def _prepared(self) -> Fit:
        if self._fit is None:
            raise ConfigError("nothing was trained yet", fix="call fit first")
        return self._fit

    def _warn_of_no_validation(self) -> None:
        unread = {
            "early_stopping": self.config.early_stopping is not None,
            "schedule": self.config.schedule.reads_validation,
        }
        for key in (k for k, is_set in unread.items() if is_set):
            log.warning("training.%s has no effect without a validation set", key)

    def _checkpoints(self) -> Checkpoints | None:
        if self.run is None:
            return None
        keep = self.config.checkpoint.keep_last
        return Checkpoints(self.run.checkpoints, self.strategy, keep)

    def _restored(self, fit: Fit, checkpoints: Checkpoints | None) -> bool:
        """Restore the newest checkpoint; return whether there is one."""
        # Rank 0 chooses, so that all ranks read the same checkpoint.
        path = on_rank_zero(checkpoints.recovered) if checkpoints else None
        if checkpoints is None or path is None:
            log.info("no checkpoint yet: starting from the beginning")
            return False
        fit.restore(checkpoints.open(path))
        log.info("continuing after step %d from %s", self.step, path)
        return True

    def _remember(self) -> None:
        """Store the best weights in memory if there is no run directory."""
        if self.run is None:
            with self.averaged_weights():
                named = [*self.task.model.named_parameters(), *self.task.model.named_buffers()]
                self._best_in_memory = {n: t.detach().clone() for n, t in named}

    def _finish(self) -> None:
        self._best_in_memory = {n: self.strategy.whole(t) for n, t in self._best_in_memory.items()}
        self.task.model = self.strategy.restore(self.task.model)
