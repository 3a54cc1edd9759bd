"""One optimizer step: forward and backward pass, gradient exchange, checks, update."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from scitoolkit.core.contracts import Batch, Task
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.failures import not_finite, unusable_loss
from scitoolkit.training.means import add, agreed_means
from scitoolkit.training.memory.store import ActivationMemory
from scitoolkit.training.optim.residuals import StepResiduals
from scitoolkit.training.processes import raise_together
from scitoolkit.training.sharding import local
from scitoolkit.training.strategies.base import TrainingStrategy

FP16_OVERFLOW = 65520.0  # the smallest number that fp16 rounds to infinity
SMALLEST_SCALE = 2.0**-16


@dataclass
class StepBatches:
    """The micro-batches of one step on this rank, their samples, and the samples of the step."""

    batches: list[Batch]
    counts: list[int]
    samples: float


class LossScale:
    """Dynamic loss scale, which keeps fp16 gradients from underflowing.

    A weight gradient is a sum over samples, which fp16 holds up to 65504. Each rank and micro-batch
    sums its own samples only, and its smaller sums would overflow in fewer steps than those of one
    batch. So an overflow is decided by the sums over all of them, which are in float32.

    Parts that overflow where those of other ranks would have cancelled them still end in a skipped
    step, and parts are rounded to fp16 one by one: a gradient within 0.1 % of the limit may be
    taken for an overflow on some numbers of ranks only.

    All ranks have the same value, because they see the same global gradient norm.
    """

    def __init__(self) -> None:
        self.scale, self.good_steps = 2.0**16, 0

    def unscale(self, gradients: list[Tensor]) -> None:
        """Divide summed gradients by the scale, or make them non-finite if fp16 overflows."""
        if filled := [g for g in gradients if g.numel()]:
            overflows = torch.stack(torch._foreach_norm(filled, math.inf)).max() >= FP16_OVERFLOW
            torch._foreach_mul_(filled, torch.where(overflows, math.inf, 1.0 / self.scale))

    def update(self, finite: bool) -> None:
        """Halve after an overflow, double after 2000 steps without one."""
        self.good_steps = self.good_steps + 1 if finite else 0
        if not finite:
            self.scale /= 2
        elif self.good_steps == 2000:
            self.scale, self.good_steps = self.scale * 2, 0


def read(numbers: list[Tensor]) -> list[float]:
    """Return the values of tensors of one element; for those on a GPU the host waits once.

    Example:
        >>> read([torch.tensor(1.5), torch.tensor([2.0])])
        [1.5, 2.0]
    """
    home = next((number.device for number in numbers if not number.is_cpu), None)
    if home is None:
        return [number.item() for number in numbers]
    return torch.stack([n.detach().reshape(()).to(home, torch.float64) for n in numbers]).tolist()


class OptimizerStep:
    """Runs optimizer steps: gradients of all micro-batches, checks, clipping, update.

    Args:
        task: provides the loss.
        config: accumulation, precision, clipping.
        strategy: how ranks share the work.
        optimizer: optimizer of the parameters in `moved`.
        named: trainable parameters of the model with their names.
        moved: parameters that the optimizer updates on this process, from the strategy's `attach`.
        memory: storage of activations.
        publish: copies updated parameters into the model.
    """

    def __init__(
        self,
        task: Task,
        config: TrainingConfig,
        strategy: TrainingStrategy,
        optimizer: Optimizer,
        named: list[tuple[str, nn.Parameter]],
        moved: list[tuple[str, nn.Parameter]],
        memory: ActivationMemory,
        publish: Callable[[], None],
    ) -> None:
        self._task, self._config, self._strategy = task, config, strategy
        self._memory = memory
        self._optimizer, self._named = optimizer, named
        self._parameters = [p for _, p in named]
        self._moved, self._publish = moved, publish
        model = set(self._parameters)
        self._apart = [p for _, p in moved if p not in model]
        self._buffers = [b for b in task.model.buffers() if b.is_floating_point()]
        self._device = strategy.device
        home = local(moved[0][1]).device if moved else self._device
        self._found = torch.zeros((), device=home)
        self._one = torch.ones((), device=home)
        self._scaler = LossScale() if config.precision == "fp16" else None
        self._is_float32 = config.precision == "float32"

    def scaler_state(self) -> dict[str, float] | None:
        """Return the state of the loss scale, or None without fp16."""
        scaler = self._scaler
        return {"scale": scaler.scale, "good_steps": scaler.good_steps} if scaler else None

    def load_scaler_state(self, state: dict[str, float] | None) -> None:
        """Restore the result of `scaler_state`."""
        if self._scaler is not None and state is not None:
            self._scaler.scale = float(state["scale"])
            self._scaler.good_steps = int(state["good_steps"])

    def autocast(self) -> Any:
        """Return the autocast context of the configured precision."""
        if self._is_float32:
            return contextlib.nullcontext()
        dtype = torch.bfloat16 if self._config.precision == "bf16" else torch.float16
        return torch.autocast(self._device.type, dtype=dtype)

    def count(self, batch: Batch) -> int:
        """Return the number of samples of a batch; 0 for a filler."""
        valid = batch.get("num_valid")
        return 0 if valid is not None and int(valid) == 0 else self._task.batch_size(batch)

    def to_device(self, batch: Batch) -> Batch:
        """Return the batch on the training device."""
        if self._device.type == "cpu":
            return batch
        return {k: v.to(self._device, non_blocking=True) for k, v in batch.items()}

    def fetch(self, iterator: Iterator[Batch]) -> StepBatches:
        """Return the micro-batches of the next step; none at the end of the epoch."""
        batches: list[Batch] = []
        for _ in range(self._config.accumulate):
            batch = next(iterator, None)
            if batch is None:
                break
            batches.append(batch)
        counts = [self.count(batch) for batch in batches]
        return StepBatches(batches, counts, sum(counts))

    def run(self, work: StepBatches, step: int, logged: bool) -> dict[str, float]:
        """Run step number `step` (from 0).

        Returns:
            Global means of loss and logged scalars, and the gradient norm, if `logged`; else {}.

        Raises:
            NumericalError: loss or gradients are not finite, on every rank; weights unchanged.
        """
        work.batches = [self.to_device(batch) for batch in work.batches]
        if self._config.optimizer.uses_residuals:
            return self._residual_step(work, step)
        norm = math.nan
        needed = logged or self._config.clip_norm is not None or self._scaler is not None
        parts: list[tuple[int, Tensor, Any]] = []
        measured = self._memory.measures(step)

        def closure() -> float:
            nonlocal norm, parts, measured
            parts = self._backward(work, measured)
            measured = False
            norm = self._checked_norm(work, parts, step, needed)
            return self._means(parts)["loss"] if self._config.optimizer.uses_closure else 0.0

        if self._config.optimizer.uses_closure:
            self._optimizer.step(closure)
        else:
            closure()
            if math.isfinite(norm):
                self._optimizer.step()
                self._publish()
        if self._buffers:
            self._strategy.sync_buffers(self._buffers)
        return {**self._means(parts), "gradient_norm": norm} if logged else {}

    def _residual_step(self, work: StepBatches, step: int) -> dict[str, float]:
        batches = [b for b, n in zip(work.batches, work.counts, strict=True) if n]
        names = [name for name, _ in self._named]
        task: Any = self._task  # a ResidualTask, as `Fit` has checked
        optimizer: Any = self._optimizer
        residuals = StepResiduals(task, names, batches, work.samples, self._strategy.total)
        loss, norm = optimizer.step(residuals)
        if not math.isfinite(loss + norm):
            raise not_finite(f"step {step + 1}", [loss], work.batches, self._named)
        return {"loss": loss, "gradient_norm": norm}

    def _backward(self, work: StepBatches, measured: bool) -> list[tuple[int, Tensor, Any]]:
        for parameter in (*self._parameters, *self._apart):
            parameter.grad = None
        self._memory.prepare(lambda: self._accumulate(work, []))
        coarser = None
        if measured:
            coarser = self._memory.coarser_gradients(lambda: self._accumulate(work, []))
        parts: list[tuple[int, Tensor, Any]] = []
        error: Exception | None = None
        try:
            self._accumulate(work, parts, last=not measured)
        except Exception as caught:
            if not self._strategy.agrees_on_errors:
                raise
            error = caught
        compared = self._memory.compare(coarser) if measured else []
        if self._strategy.reduce_gradients(error is not None):
            raise_together(error)
        if measured:
            self._memory.adapt(compared)
        return parts

    def _accumulate(
        self, work: StepBatches, parts: list[tuple[int, Tensor, Any]], *, last: bool = False
    ) -> None:
        """Accumulate gradients over this rank's micro-batches; `last`: the exchange may begin."""
        scale = self._scaler.scale if self._scaler else 1.0
        for batch, count in zip(work.batches, work.counts, strict=True):
            self._strategy.weigh(count)
            with self._memory.saving(batch):
                if self._is_float32:
                    returned = self._task.loss(batch)
                else:
                    with self.autocast():
                        returned = self._task.loss(batch)
            try:
                loss, logs = returned
                loss_value = loss.detach()
                usable = loss.requires_grad and loss.numel() == 1
            except (TypeError, ValueError, RuntimeError, AttributeError):
                usable = False
            if not usable:
                raise unusable_loss(returned)
            # A non-finite loss makes every gradient NaN (0 * inf), so that all ranks see it after
            # the gradient exchange without another message.
            share = count / work.samples
            if last and len(parts) == len(work.batches) - 1:
                self._strategy.begin_exchange()
            if self._strategy.world == 1 and scale * share == 1.0:
                loss.backward()
            else:
                # A loss in fp16 overflows at the same scale whatever its share.
                weight = loss_value.new_tensor(scale) * share
                loss.backward(torch.add(weight, loss_value, alpha=0.0))
            parts.append((count, loss_value, logs))

    def _checked_norm(self, work: StepBatches, parts: Any, step: int, needed: bool) -> float:
        """Return the global gradient norm after unscaling; clip; raise when it is not finite."""
        gradients = [local(p.grad) for _, p in self._moved if p.grad is not None]
        if self._scaler is not None:
            self._scaler.unscale(gradients)
        alone = self._strategy.world == 1
        only_checked = alone and not needed
        if only_checked:
            measured = self._any_not_finite(gradients)
        else:
            measured = self._strategy.norm(gradients) if gradients else self._found
        norm, *losses = read([measured, *(loss for _, loss, _ in parts if alone)])
        if only_checked and norm:
            self._found.zero_()
            norm = math.inf
        finite = math.isfinite(norm) and all(map(math.isfinite, losses))
        if self._scaler is not None:
            self._scaler.update(finite)
            if not finite and self._scaler.scale >= SMALLEST_SCALE:
                return norm  # fp16 overflow: skip this step
        if not finite:
            where = f"step {step + 1}"
            if self._strategy.world > 1:
                where += f", rank {self._strategy.rank}"
            losses = [float(loss) for _, loss, _ in parts]
            raise not_finite(where, losses, work.batches, self._moved)
        limit = self._config.clip_norm
        if limit is not None and norm > limit:
            torch._foreach_mul_(gradients, limit / (norm + 1e-6))
        return norm

    def _any_not_finite(self, gradients: list[Tensor]) -> Tensor:
        """Return 0 if all gradients are finite, else 1; cheaper than the norm."""
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, self._found, self._one)
        return self._found  # 0 until it is set

    def _means(self, parts: list[tuple[int, Tensor, Any]]) -> dict[str, float]:
        sums: dict[str, list[float]] = {}
        for count, loss, logs in parts:
            for name, number in {**logs, "loss": loss}.items():
                add(sums, name, number, count)
        total = float(sum(count for count, _, _ in parts))
        return agreed_means(sums, total, self._strategy)[0]
