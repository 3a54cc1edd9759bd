"""The epoch loop: steps, validation, checkpoints and stopping, in agreement of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from logging import Logger
from typing import Any

from scitoolkit.core.contracts import Batch, Progress, ProgressAware
from scitoolkit.core.errors import DataError, Interrupted
from scitoolkit.core.log import get_logger
from scitoolkit.training.batches import ORDER_BITS
from scitoolkit.training.callbacks import Callback
from scitoolkit.training.checkpoint import Checkpoints
from scitoolkit.training.fit import Fit
from scitoolkit.training.processes import gather_objects, raise_together
from scitoolkit.training.signals import StopSignals
from scitoolkit.training.step import StepBatches
from scitoolkit.training.validation import agree_on
from scitoolkit.training.view import TrainingView

log: Logger = get_logger(__name__)


class TrainingLoop:
    """Runs a training from its current position to the end.

    Args:
        view: the view passed to callbacks.
        fit: state of the training run.
        callbacks: callbacks of this rank.
        checkpoints: where to save; None to save nothing.
        signals: polled between steps.
        validate: returns the validation metrics; None for no validation.
        remember: called after each new lowest validation loss, before saving.
        saved_step: step of the checkpoint that the training continues from, or -1.
    """

    def __init__(
        self,
        view: TrainingView,
        fit: Fit,
        *,
        callbacks: Sequence[Callback],
        checkpoints: Checkpoints | None,
        signals: StopSignals,
        validate: Callable[[], dict[str, float]] | None,
        remember: Callable[[], None],
        saved_step: int,
    ) -> None:
        self._view, self._fit, self._position = view, fit, fit.position
        self._callbacks, self._checkpoints, self._signals = callbacks, checkpoints, signals
        self._each_step = [c for c in callbacks if c.wants_every_step]
        self._validation, self._remember, self._saved_step = validate, remember, saved_step
        self._task = fit.task if isinstance(fit.task, ProgressAware) else None
        self._pending: Exception | None = None
        self._end_cursor: dict[str, Any] | None = None

    def run(self) -> None:
        """Train and save the last step; `on_fit_end` is called even after an error."""
        try:
            self._notify("on_fit_start")
            self._epochs()
        except BaseException:
            self._end_after_error()
            raise
        self._notify("on_fit_end")
        if self._saved_step != self._position.step:
            self._save()

    def _epochs(self) -> None:
        fit, position = self._fit, self._position
        config = fit.config
        resumed = position.step > 0  # perhaps from a stop after the last batch of an epoch
        while position.step < position.total_steps and (
            config.steps or position.epoch < config.epochs
        ):
            if fit.best.exhausted():
                best = fit.best.found or {}
                log.info(
                    "early stopping at step %d: lowest validation loss %.4g at step %d",
                    position.step,
                    best.get("loss", float("nan")),
                    best.get("step", 0),
                )
                return
            fit.train_mode()
            before = position.step
            begins = before % fit.steps_per_epoch == 0 and not resumed
            resumed = False
            finished = self._epoch()
            if finished and begins and position.step == before:
                raise DataError(
                    f"epoch {position.epoch} has no batch, though the loader's length is "
                    f"{len(fit.loader)}",
                    where="the training loader",
                    allowed="as many batches as its length in every epoch",
                )
            ended = self._end_cursor is not None
            # Before the validation, which moves a loader that serves for both.
            cursor = self._end_cursor or fit.loader.state_dict()
            improved = False
            if self._validation is not None and not (ended and position.step == before):
                improved = self._validate()
            if ended:
                log.info("ended by a callback at step %d", position.step)
            if not finished:
                return self._save(improved=improved, cursor=cursor)
            position.epoch += 1
            fit.loader.set_epoch(position.epoch)
            every = config.checkpoint.every_epochs
            if improved or (every and position.epoch % every == 0):
                self._save(improved=improved)

    def _epoch(self) -> bool:
        """Train the rest of the epoch; return False if the training ends within it."""
        fit, position, signals = self._fit, self._position, self._signals
        config, stepper, iterator = fit.config, fit.stepper, iter(fit.loader)
        lone, averages = fit.strategy.world == 1, bool(fit.average.tensors)
        every = config.checkpoint.every_steps
        while position.step < position.total_steps:
            if lone:
                if signals.received:
                    self._interrupt(fit.loader.state_dict())
                if self._callback_ends():
                    self._end_cursor = fit.loader.state_dict()
                    return False
                batches = stepper.fetch(iterator)
            else:
                batches = self._fetch_together(iterator, fit.loader.state_dict())
            if self._end_cursor is not None:
                return False
            if not batches.batches:
                return True
            if self._task is not None:
                self._task.at(self._progress())
            rate = fit.rate.apply(position.step)
            logged = (position.step + 1) % config.log_every == 0
            with fit.compiling(lambda: signals.received):
                outcome = stepper.run(batches, position.step, logged)
            position.step += 1
            if averages:
                fit.average.update(position.step / max(1, position.total_steps))
            if logged or self._each_step:
                self._after_step(logged, {**outcome, "learning_rate": rate})
            if every and position.step % every == 0:
                self._save()
        return position.step % fit.steps_per_epoch == 0

    def _progress(self) -> Progress:
        position = self._position
        return Progress(position.step, position.total_steps, position.epoch)

    def _after_step(self, logged: bool, values: Mapping[str, float]) -> None:
        """Call the callbacks; with several ranks, defer an error to the next agreement."""
        try:
            if logged:
                self._notify("on_log", values)
            for callback in self._each_step:
                callback.on_step(self._view)
        except Exception as error:
            if self._fit.strategy.world == 1:
                raise
            self._pending = error

    def _fetch_together(self, iterator: Iterator[Batch], cursor: dict[str, Any]) -> StepBatches:
        """Fetch batches; agree on samples, stopping and errors in one small all-reduce."""
        error, self._pending = self._pending, None
        batches = StepBatches([], [], 0)
        try:
            if error is None:
                batches = self._fit.stepper.fetch(iterator)
        except Exception as caught:
            error = caught
        # Ranks with other numbers of batches would wait for each other.
        order = getattr(self._fit.loader, "order_digest", 0) ^ len(batches.batches) * 40503
        samples, same, (stop, end, failed) = self._fit.strategy.agree(
            int(batches.samples),
            order % (1 << ORDER_BITS),
            bool(self._signals.received),
            self._callback_ends(),
            error is not None,
        )
        if failed:
            raise_together(error)
        if not same:
            numbers = gather_objects(len(batches.batches))
            if len(set(numbers)) > 1:
                raise DataError(
                    f"the processes have {', '.join(map(str, numbers))} batches for one step",
                    where="the training loader",
                    allowed="as many batches on every process",
                    fix="fillers with num_valid=0 on processes without samples",
                )
            raise DataError(
                "the DataLoader has another order on another process, so that rows would be left "
                "out and others drawn twice",
                where="the sampler of the training DataLoader",
                allowed="an order that torch's, Python's or numpy's default generator determines",
                fix="a sampler that draws from torch.randperm, or shuffle=True",
            )
        if stop:
            self._interrupt(cursor)
        if end:
            self._end_cursor = cursor
        batches.samples = samples
        return batches

    def _callback_ends(self) -> bool:
        return any(callback.should_stop for callback in self._callbacks)

    def _validate(self) -> bool:
        """Validate; return whether the weights are the best so far."""
        assert self._validation is not None
        if self._task is not None:
            self._task.at(self._progress())
        values = self._validation()
        error: Exception | None = None
        try:
            self._notify("on_validation", values)
        except Exception as caught:
            error = caught
        agree_on(error, self._fit.strategy)
        self._fit.rate.see_validation(values["loss"])
        improved = self._fit.best.update(values, self._position.step)
        if improved:
            self._remember()
        return improved

    def _interrupt(self, cursor: dict[str, Any]) -> None:
        name = self._signals.received or "a signal to another rank"
        step, run = self._position.step, self._view.run
        if self._saved_step != step:
            self._save(cursor=cursor)
        saved = f", saved in {run.checkpoints}" if run else ", nothing saved (no run)"
        raise Interrupted(
            f"stopped by {name} after step {step}{saved}",
            fix="continue with --resume" if run else "",
        )

    def _save(self, *, improved: bool = False, cursor: dict[str, Any] | None = None) -> None:
        if self._fit.strategy.world > 1:
            error, self._pending = self._pending, None
            raise_together(error)
        self._saved_step = self._position.step
        if self._checkpoints is None:
            return
        best_so_far = self._fit.best.found
        best = best_so_far["loss"] if improved and best_so_far else None
        self._checkpoints.save(self._position.step, self._fit.snapshot(cursor), best=best)

    def _notify(self, hook: str, *arguments: Mapping[str, float]) -> None:
        for callback in self._callbacks:
            getattr(callback, hook)(self._view, *arguments)

    def _end_after_error(self) -> None:
        """Call `on_fit_end` of all callbacks; log their errors, which must not hide the first."""
        for callback in self._callbacks:
            try:
                callback.on_fit_end(self._view)
            except Exception:
                log.warning("%s failed at the end", type(callback).__name__, exc_info=True)
