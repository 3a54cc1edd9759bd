"""The one trainer: an epoch loop over batches that can stop at any step and continue exactly."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from scitoolkit.core.contracts import Batch, Loader, Task
from scitoolkit.core.errors import (
    BackendError,
    CheckpointError,
    ConfigError,
    Interrupted,
    NumericalError,
    ScitoolkitError,
)
from scitoolkit.core.log import get_logger
from scitoolkit.core.resume import changed_settings, identity
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.seeds import derive_seed, rng_state, seed_everything, set_rng_state
from scitoolkit.training.callbacks import Callback, default_callbacks
from scitoolkit.training.checkpoint import Checkpoints, Reader, Snapshot, model_weights
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.memory import ActivationMemory
from scitoolkit.training.optim.schedules import LearningRate
from scitoolkit.training.signals import StopSignals
from scitoolkit.training.state import (
    load_tensors,
    model_tensors,
    pack_optimizer,
    unpack_optimizer,
)
from scitoolkit.training.step import Stepper, Work
from scitoolkit.training.strategy import (
    gather_objects,
    local,
    make_strategy,
    on_rank_zero,
    process_group,
    raise_together,
)

log = get_logger(__name__)


class Trainer:
    """Trains the model of a task.

    Args:
        task: model, loss and metrics.
        config: the `training:` section.
        run: where metrics and checkpoints go; None keeps everything in memory.
        callbacks: added to those that the configuration asks for.

    Attributes:
        step: optimizer steps done. epoch: epochs done. total_steps: steps of the whole training.
        best: lowest validation loss so far and its step, or None.

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

    def __init__(
        self,
        task: Task,
        config: TrainingConfig | None = None,
        *,
        run: RunDirectory | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.task, self.config, self.run = task, config or TrainingConfig(), run
        self.step, self.epoch, self.total_steps = 0, 0, 0
        self.best: dict[str, float] | None = None
        self._user_callbacks = list(callbacks)
        self._bad_epochs = 0
        self._best_in_memory: dict[str, Tensor] = {}
        self._ema: dict[str, Tensor] = {}
        self._pending: Exception | None = None

    # --- the public verbs -------------------------------------------------------------------

    def fit(
        self,
        train_loader: Loader,
        validation_loader: Loader | None = None,
        *,
        resume: bool = False,
    ) -> None:
        """Train until the configured epochs or steps, or until validation stops improving.

        Args:
            train_loader: this rank's share of the training batches.
            validation_loader: likewise for validation, once per epoch; None for none.
            resume: continue from the run's newest checkpoint; from the start if there is none.

        Raises:
            Interrupted: a signal stopped the run, after its state was saved.
            NumericalError: NaN or Inf in loss or gradients; nothing is saved from then on.
            CheckpointError: the newest checkpoint cannot be restored completely.
            ConfigError: resumed with another configuration or model.
        """
        with process_group(self.config), StopSignals() as self._signals:
            with self._explained():
                self._prepare(train_loader, validation_loader, resume)
                try:
                    self._notify("on_fit_start")
                    self._train()
                except BaseException:
                    self._end_after_error()
                    raise
                self._notify("on_fit_end")
                self._finish()

    def load_best(self) -> None:
        """Load the weights with the lowest validation loss (the averaged ones, with an EMA).

        Without validation these are the last weights. Call it after `fit`, on any ranks.

        Raises:
            CheckpointError: the checkpoint is damaged.
        """
        if self.run is not None:
            kept = Checkpoints(self.run.checkpoints, self.strategy)
            path = kept.best() or kept.newest()
            weights = model_weights(kept.open(path)) if path else {}
        else:
            weights = self._best_in_memory
        if weights:
            targets: dict[str, Tensor] = dict(self.task.model.named_parameters())
            targets.update(dict(self.task.model.named_buffers()))
            with torch.no_grad():
                for name, target in targets.items():
                    target.copy_(weights[name])

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Within it the model has the averaged weights, if the configuration keeps an average."""
        pairs = [(local(p), self._ema[n]) for n, p in self._named if n in self._ema]

        def swap() -> None:
            self.strategy.reshard(self.task.model)
            with torch.no_grad():
                for weight, average in pairs:
                    kept = weight.clone()
                    weight.copy_(local(average))
                    local(average).copy_(kept)

        swap()
        try:
            yield
        finally:
            swap()

    # --- before and after -------------------------------------------------------------------

    def _prepare(self, train: Loader, validation: Loader | None, resume: bool) -> None:
        config = self.config
        self.strategy = make_strategy(config)
        self._share_run()
        self._train_loader, self._validation_loader = train, validation
        seed_everything(config.seed, rank=self.strategy.rank)
        self.task.model = self.strategy.prepare(self.task.model)
        if config.compile:
            self.task.model.compile()
        self._named = [(n, p) for n, p in self.task.model.named_parameters() if p.requires_grad]
        if not self._named:
            raise ConfigError("the model has no parameters to train", where="model")
        self._optimizer = config.optimizer.build([p for _, p in self._named])
        per_epoch = -(-len(train) // config.accumulate)
        self.total_steps = config.steps or config.epochs * per_epoch
        self.step, self.epoch, self.best, self._bad_epochs = 0, 0, None, 0
        self._rate = LearningRate(config.schedule, self._optimizer, self.total_steps)
        self._ema = {}
        if config.ema_decay:
            self._ema = {n: p.detach().clone() for n, p in self._named}
        self._averages = [local(average) for average in self._ema.values()]
        self._memory = ActivationMemory(self.task.model, config.memory, self.strategy, self._named)
        self._stepper = Stepper(
            self.task, config, self.strategy, self._optimizer, self._named, self._memory
        )
        self._checkpoints = None
        if self.run is not None:
            self._checkpoints = Checkpoints(
                self.run.checkpoints, self.strategy, config.checkpoint.keep_last
            )
        train.set_epoch(0)
        if resume:
            self._resume()
        self._saved_step = self.step if resume else -1
        self._callbacks = default_callbacks(self) + self._user_callbacks
        self._each_step = [c for c in self._callbacks if c.wants_every_step]

    def _share_run(self) -> None:
        """Let all ranks use rank 0's run directory."""
        if self.strategy.world > 1:
            path = gather_objects(self.run.path if self.run else None)[0]
            self.run = RunDirectory(path) if path else None

    def _finish(self) -> None:
        if self._saved_step != self.step:
            self._save()
        memory = self._best_in_memory if self.run is None else {}
        self.task.model = self.strategy.restore(self.task.model)
        if memory:
            self._best_in_memory = {
                n: t.full_tensor() if hasattr(t, "full_tensor") else t for n, t in memory.items()
            }

    # --- the loop ---------------------------------------------------------------------------

    def _train(self) -> None:
        steps = self.config.steps
        while self.step < self.total_steps and (steps or self.epoch < self.config.epochs):
            if self._stopped_early():
                log.info("early stopping at step %d: best %s", self.step, self.best)
                return
            self.task.model.train()
            finished = self._train_epoch()
            improved = self._validate() if self._validation_loader is not None else False
            if not finished:
                return self._save(improved=improved)
            self.epoch += 1
            self._train_loader.set_epoch(self.epoch)
            every = self.config.checkpoint.every_epochs
            if improved or (every and self.epoch % every == 0):
                self._save(improved=improved)

    def _train_epoch(self) -> bool:
        """Train the rest of the epoch; return False when the steps ran out inside it."""
        config, iterator, ran = self.config, iter(self._train_loader), 0
        alone, signals, stepper = self.strategy.world == 1, self._signals, self._stepper
        every = config.checkpoint.every_steps
        while self.step < self.total_steps:
            cursor = None
            if alone:
                if signals.received:
                    self._interrupt(self._train_loader.state_dict())
                work = stepper.fetch(iterator)
            else:
                cursor = self._train_loader.state_dict()
                work = self._fetch_together(iterator, cursor)
            if not work.batches:
                return True
            rate = self._rate.apply(self.step)
            logged = (self.step + 1) % config.log_every == 0
            outcome = stepper.run(work, self.step, logged)
            self.step += 1
            ran += 1
            if self._averages:
                self._average()
            if logged or self._each_step:
                self._after_step(logged, {**outcome, "learning_rate": rate})
            if every and self.step % every == 0:
                self._save()
        return self._epoch_is_over()

    def _after_step(self, logged: bool, values: Mapping[str, float]) -> None:
        """Call the callbacks; with several ranks an error waits for the next agreement."""
        try:
            if logged:
                self._notify("on_log", values)
            for callback in self._each_step:
                callback.on_step(self)
        except Exception as error:
            if self.strategy.world == 1:
                raise
            self._pending = error

    def _epoch_is_over(self) -> bool:
        return self.step % (-(-len(self._train_loader) // self.config.accumulate)) == 0

    def _fetch_together(self, iterator: Iterator[Batch], cursor: dict[str, Any]) -> Work:
        """Fetch and agree on samples, stopping and errors, in one small all-reduce."""
        error, self._pending = self._pending, None
        work = Work([], [], 0)
        try:
            if error is None:
                work = self._stepper.fetch(iterator)
        except Exception as caught:
            error = caught
        samples, stop, failed = self.strategy.agree(
            int(work.samples), bool(self._signals.received), error is not None
        )
        if failed:
            raise_together(error)
        if stop:
            self._interrupt(cursor)
        work.samples = samples
        return work

    def _average(self) -> None:
        decay = self.config.ema_decay
        assert decay is not None
        with torch.no_grad():
            weights = [local(p) for _, p in self._named]
            torch._foreach_lerp_(self._averages, weights, 1 - decay)

    def _interrupt(self, cursor: dict[str, Any]) -> None:
        name = self._signals.received or "a signal to another rank"
        if self._saved_step != self.step:
            self._save(cursor=cursor)
        saved = f", saved in {self.run.checkpoints}" if self.run else ", nothing saved (no run)"
        raise Interrupted(
            f"stopped by {name} after step {self.step}{saved}",
            fix="continue with --resume" if self.run else "",
        )

    # --- validation -------------------------------------------------------------------------

    def _validate(self) -> bool:
        """Measure on the whole validation set; return whether it is the best so far."""
        values = self.validate(self._validation_loader)
        loss = values["loss"]
        error: Exception | None = None
        try:
            self._notify("on_validation", values)
        except Exception as caught:
            error = caught
        self._agree_on(error)
        self._rate.see_validation(loss)
        stopping = self.config.early_stopping
        least = stopping.min_delta if stopping else 0.0
        if self.best is None or loss < self.best["loss"] - least:
            self.best, self._bad_epochs = {"loss": loss, "step": self.step}, 0
            if self.run is None:
                self._remember()
            return True
        self._bad_epochs += 1
        return False

    def validate(self, loader: Any) -> dict[str, float]:
        """Return the task's metrics as means over all samples of all ranks.

        Raises:
            NumericalError: the loss is not finite.
        """
        loader.set_epoch(0)
        model = self.task.model
        model.eval()
        sums: dict[str, float] = {}
        total = 0
        error: Exception | None = None
        # `no_grad` and not `inference_mode`, whose tensors FSDP2's gathered weights would become.
        with torch.no_grad(), self.averaged_weights(), self._stepper.autocast():
            try:
                for batch in loader:
                    count = self._stepper.count(batch)
                    for name, value in self.task.metrics(self._stepper.to_device(batch)).items():
                        sums[name] = sums.get(name, 0.0) + (float(value) * count if count else 0.0)
                    total += count
            except Exception as caught:
                error = caught
        model.train()
        self._agree_on(error)
        names = sorted(sums)
        *sums_all, total_all = self.strategy.sum([*(sums[n] for n in names), float(total)])
        values = {n: s / total_all for n, s in zip(names, sums_all, strict=True)}
        if not math.isfinite(values["loss"]):
            raise NumericalError(
                f"the validation loss is {values['loss']} after step {self.step}",
                fix="a smaller training.optimizer.lr, training.clip_norm=1, or check the data",
            )
        return values

    def _agree_on(self, error: Exception | None) -> None:
        """Raise on all ranks when any has an error; inside FSDP2's collectives only here."""
        if error is not None and not self.strategy.agrees_on_errors:
            raise error
        if self.strategy.agrees_on_errors:
            raise_together(error)

    def _stopped_early(self) -> bool:
        stopping = self.config.early_stopping
        return stopping is not None and self._bad_epochs >= stopping.patience

    def _remember(self) -> None:
        with self.averaged_weights():
            named = [*self.task.model.named_parameters(), *self.task.model.named_buffers()]
            self._best_in_memory = {n: t.detach().clone() for n, t in named}

    # --- state ------------------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        """Return what a resumed run must have in common with the saved one."""
        shapes = {n: list(p.shape) for n, p in self.task.model.named_parameters()}
        return {"training": identity(self.config), "model": shapes}

    def _save(self, *, improved: bool = False, cursor: dict[str, Any] | None = None) -> None:
        if self.strategy.world > 1:
            error, self._pending = self._pending, None
            raise_together(error)
        self._saved_step = self.step
        if self._checkpoints is None:
            return
        names = [n for n, _ in self._named]
        tensors, tree = pack_optimizer(self._optimizer, names)
        tensors.update(model_tensors(self.task.model))
        tensors.update({f"ema.{n}": t for n, t in self._ema.items()})
        state = {
            "identity": self._identity(),
            "step": self.step,
            "epoch": self.epoch,
            "best": self.best,
            "bad_epochs": self._bad_epochs,
            "optimizer": tree,
            "rate": self._rate.state_dict(),
            "scaler": self._stepper.scaler_state(),
            "memory": self._memory.state_dict(),
            "loader": cursor or self._train_loader.state_dict(),
        }
        rng = rng_state()
        rank_tensors = {k: v for k, v in rng.items() if isinstance(v, Tensor)}
        rank_state = {k: v for k, v in rng.items() if not isinstance(v, Tensor)}
        snapshot = Snapshot(tensors, state, rank_state, rank_tensors)
        best = self.best["loss"] if improved and self.best else None
        self._checkpoints.save(self.step, snapshot, best=best)

    def _resume(self) -> None:
        kept = self._checkpoints
        # Rank 0 decides, so that all ranks read the same one.
        path = on_rank_zero(kept.recovered) if kept else None
        if self._checkpoints is None or path is None:
            log.info("no checkpoint yet: starting from the beginning")
            return
        reader = self._checkpoints.open(path)
        self._check_identity(reader)
        targets = model_tensors(self.task.model)
        targets.update({f"ema.{n}": t for n, t in self._ema.items()})
        load_tensors(targets, reader)
        state = reader.state
        try:
            unpack_optimizer(
                self._optimizer, [n for n, _ in self._named], state["optimizer"], reader
            )
            self.step, self.epoch = int(state["step"]), int(state["epoch"])
            self.best, self._bad_epochs = state["best"], int(state["bad_epochs"])
            self._rate.load_state_dict(state["rate"])
            self._stepper.load_scaler_state(state["scaler"])
            self._memory.load_state_dict(state.get("memory"))
            self._train_loader.load_state_dict(state["loader"])
            self._restore_rng(reader)
        except KeyError as error:
            raise CheckpointError(f"{error} is missing", where=str(path / "state.json")) from None
        log.info("continuing after step %d from %s", self.step, path)

    def _restore_rng(self, reader: Reader) -> None:
        if reader.world_size == self.strategy.world:
            state, tensors = reader.rank(self.strategy.rank)
            set_rng_state({**state, **tensors})
        else:
            # Other ranks than before: streams of their own, the same whenever this is repeated.
            seed_everything(derive_seed(self.config.seed, self.step), rank=self.strategy.rank)

    def _check_identity(self, reader: Reader) -> None:
        changed = changed_settings(reader.state.get("identity", {}), self._identity())
        if changed:
            raise ConfigError(
                "resumed with another configuration: " + "; ".join(changed[:8]),
                where=str(reader.path),
                fix="undo the change, or start a new run without --resume",
            )

    # --- helpers ----------------------------------------------------------------------------

    def _notify(self, hook: str, *arguments: Mapping[str, float]) -> None:
        for callback in self._callbacks:
            getattr(callback, hook)(self, *arguments)

    def _end_after_error(self) -> None:
        """Let the callbacks close what they hold; their own errors must not hide the first."""
        for callback in self._callbacks:
            try:
                callback.on_fit_end(self)
            except Exception:
                log.warning("%s failed at the end", type(callback).__name__, exc_info=True)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn out-of-memory and lost peers into messages that say what to do."""
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            text = str(error)
            memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
            if memory or "can't allocate memory" in text:
                raise ScitoolkitError(
                    f"out of memory at step {self.step + 1} ({text.splitlines()[0][:200]})",
                    fix=f"training.batch_size={max(1, self.config.batch_size // 2)} with "
                    f"training.accumulate={self.config.accumulate * 2} (the same training), "
                    "training.strategy=sharded on more processes, or training.precision=bf16",
                ) from error
            if dist.is_initialized() and any(s in text.lower() for s in _LOST):
                raise BackendError(
                    f"rank {dist.get_rank()} lost another rank at step {self.step + 1} "
                    f"({text.splitlines()[0][-200:]})",
                    fix="see the first error of the other ranks",
                ) from None
            raise


_LOST = ("connection closed", "connection reset", "broken pipe", "timed out", "timeout", "gloo")
