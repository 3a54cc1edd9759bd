"""Protocols between the components of a training: task, loader, progress.

Data flow: file -> source -> split -> loader -> batch -> Task -> Trainer -> checkpoint -> evaluate
-> run directory -> report. Components interact only through these protocols, so a loader, a model
or a domain (`core.job.Job`) can be replaced without changes to the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

Batch = dict[str, "Tensor"]
"""A batch: documented keys, first dimension = sample. The optional key `num_valid` (int64 scalar)
counts the samples that contribute to the loss; it is 0 on a rank that received a filler sample
because the last global batch had fewer samples than there are ranks."""


@runtime_checkable
class Task(Protocol):
    """Interface of a domain to the trainer: model, loss and metrics.

    `model` is written for one device: `forward` uses no rank, file or logger.
    """

    model: Any  # an nn.Module: any subclass, so a domain may declare its exact class

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Return the mean loss over the batch's samples, and scalars to log (also means)."""

    def metrics(self, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return validation metrics, each a mean over the samples; `loss` must be one of them."""

    def batch_size(self, batch: Batch) -> int:
        """Return the number of samples over which `loss` and `metrics` are averaged."""


@runtime_checkable
class ResidualTask(Protocol):
    """A `Task` with a least-squares loss, for optimizers that use the residuals."""

    def residual(self, parameters: Mapping[str, Tensor], sample: Batch) -> Tensor:
        """Return the residuals of one sample, a scalar or a vector.

        The function is batched by `torch.func.vmap`, so it must not branch on data. Derivatives
        inside it must use reverse mode (`torch.func.grad`).

        Args:
            parameters: trainable parameters by name, for `torch.func.functional_call`.
            sample: the batch's tensors without their first dimension.
        """


@dataclass(frozen=True)
class Progress:
    """Progress of a training.

    Attributes:
        step: completed optimizer steps.
        total_steps: optimizer steps of the whole training.
        epoch: completed epochs.

    Example:
        >>> Progress(step=25, total_steps=100, epoch=1).share
        0.25
    """

    step: int
    total_steps: int
    epoch: int

    @property
    def share(self) -> float:
        """Return the completed fraction of the training, 0 to 1."""
        return self.step / max(self.total_steps, 1)


@runtime_checkable
class ProgressAware(Protocol):
    """A `Task` whose loss changes during the training, for example by a curriculum.

    The loss must be a function of the progress alone, so that a resumed training continues with
    the same loss.
    """

    def at(self, progress: Progress) -> None:
        """Receive the progress before every optimizer step and every validation."""


@runtime_checkable
class Loader(Protocol):
    """An iterable of batches that can be stopped at any step and resumed elsewhere.

    A batch is this rank's share of one global batch. The samples of every global batch depend only
    on (seed, epoch, number of samples, global batch size), never on the world size.
    """

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the rest of the current epoch, starting at the cursor."""

    def __len__(self) -> int:
        """Return the number of global batches in a whole epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Move the cursor to the first batch of `epoch`."""

    def state_dict(self) -> dict[str, Any]:
        """Return the cursor (JSON types, under 1 kB); it counts yielded, not prefetched batches."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved cursor, at any world size that divides the global batch size."""

    def explain(self) -> dict[str, Any]:
        """Return the plan of an epoch: samples, batches, predicted reads, memory."""

    def stats(self) -> dict[str, Any]:
        """Return counters: batches, samples, bytes read, seconds waited."""
