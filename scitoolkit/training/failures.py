"""Error reports of a training: non-finite values, out of memory, lost ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError, NumericalError, ScitoolkitError
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.rank_reports import LostRank
from scitoolkit.training.sharding import local

_LOST = ("connection closed", "connection reset", "broken pipe", "timed out", "timeout", "gloo")


@contextlib.contextmanager
def explained(config: TrainingConfig, step: Callable[[], int]) -> Iterator[None]:
    """Translate out-of-memory errors and lost ranks into errors with a suggested fix.

    Args:
        config: the `training:` section.
        step: returns the number of completed optimizer steps.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if memory or "can't allocate memory" in str(error):
            raise ScitoolkitError(
                f"out of memory at step {step() + 1} ({lines[0][:200]})",
                fix=f"training.batch_size={max(1, config.batch_size // 2)} with "
                f"training.accumulate={config.accumulate * 2} (the same training), "
                "training.strategy=sharded on more processes, or training.precision=bf16",
            ) from error
        if "mixed torch.Tensor and DTensor" in str(error):
            raise ConfigError(
                "the task computes with parts of the model, which are gathered only while the "
                "whole model runs",
                where="training.sharding.stage",
                allowed="tasks that call task.model(...)",
                fix="training.sharding.stage=2",
            ) from error
        if dist.is_initialized() and any(s in str(error).lower() for s in _LOST):
            raise LostRank(
                f"rank {dist.get_rank()} lost another rank at step {step() + 1} ({lines[0][:200]})"
            ) from None
        raise


def not_finite(
    where: str,
    losses: Sequence[float],
    batches: Sequence[Batch],
    named: Sequence[tuple[str, nn.Parameter]],
) -> NumericalError:
    """Return the error for a step whose loss or gradient is NaN or Inf.

    Args:
        where: step and rank.
        losses: loss of each micro-batch.
        batches: the micro-batches.
        named: trainable parameters with their names.
    """
    bad_inputs = sorted(
        {key for batch in batches for key, value in batch.items() if not _finite(value)}
    )
    bad_parameter = next(
        (name for name, p in named if p.grad is not None and not _finite(local(p.grad))),
        "none on this rank",
    )
    keys = ", ".join(sorted(batches[0]))
    source = f"NaN or Inf in batch tensor {', '.join(bad_inputs)}" if bad_inputs else ""
    return NumericalError(
        f"loss {losses[0] if len(losses) == 1 else list(losses)} or its gradient is not finite; "
        f"batch keys: {keys} ({source or 'all finite'}); "
        f"first parameter with a bad gradient: {bad_parameter}",
        where=where,
        fix="mask or repair the data"
        if bad_inputs
        else "a smaller training.optimizer.lr, training.clip_norm=1, or precision=float32",
    )


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def unusable_loss(returned: Any) -> ConfigError:
    """Return the error for what a task's `loss` returned, which cannot be trained on."""
    pair = isinstance(returned, tuple) and len(returned) == 2
    loss = returned[0] if pair else returned
    what = type(loss).__name__
    if isinstance(loss, Tensor):
        gradient = "" if loss.requires_grad else ", without a gradient"
        what = f"a tensor of shape {tuple(loss.shape)}{gradient}"
    return ConfigError(
        f"the loss is {what}" if pair else f"`loss` returns {what}, no pair",
        where="task.loss",
        allowed="(tensor with one element that depends on parameters, dict of numbers)",
        fix="return loss.mean(), {}",
    )
