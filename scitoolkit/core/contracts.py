"""What the parts of a training promise each other, as protocols; a domain is a `core.job.Job`.

The way of the data is: file -> source -> split -> loader -> batch -> Task -> Trainer -> checkpoint
-> evaluate -> run directory -> report. A part knows its neighbours only through these protocols,
so a loader, a model or a whole domain can be replaced without touching the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

Batch = dict[str, "Tensor"]
"""A batch: documented keys, first dimension = sample. The optional key `num_valid` (int64 scalar)
counts the samples that are to weigh in; it is 0 on a rank that was given a filler because the
last global batch had fewer samples than there are ranks."""


@runtime_checkable
class Task(Protocol):
    """A domain's whole duty to the trainer.

    `model` is written for one device: no rank, no file and no logger inside `forward`.
    """

    model: Any  # an nn.Module: any subclass, so a domain may declare its exact class

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Return the mean loss over the batch's samples, and scalars to log (means too)."""

    def metrics(self, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return validation scalars, each a mean over the samples; `loss` must be one of them."""

    def batch_size(self, batch: Batch) -> int:
        """Return the number of samples that the means of `loss` and `metrics` are taken over."""


@runtime_checkable
class ResidualTask(Protocol):
    """A `Task` whose loss is a mean of squares, for optimizers that use its residuals."""

    def residual(self, parameters: Mapping[str, Tensor], sample: Batch) -> Tensor:
        """Return the residuals of one sample, a scalar or a vector.

        It is batched by `torch.func.vmap`: no data-dependent branch. Derivatives inside it must be
        taken in reverse mode (`torch.func.grad`).

        Args:
            parameters: trained parameters by name, for `torch.func.functional_call`.
            sample: the batch's tensors without their first dimension.
        """


@dataclass(frozen=True)
class Progress:
    """Position of a training.

    Attributes:
        step: optimizer steps done.
        total_steps: optimizer steps of the whole training.
        epoch: epochs done.

    Example:
        >>> Progress(step=25, total_steps=100, epoch=1).share
        0.25
    """

    step: int
    total_steps: int
    epoch: int

    @property
    def share(self) -> float:
        """Return the fraction of the training that is done, 0 to 1."""
        return self.step / max(self.total_steps, 1)


@runtime_checkable
class ProgressAware(Protocol):
    """A `Task` whose loss changes during the training, such as by a curriculum.

    What a task derives from the position must depend on nothing else, so that a resumed training
    continues with the same loss.
    """

    def at(self, progress: Progress) -> None:
        """Receive the position, before every optimizer step and before every validation."""


@runtime_checkable
class Loader(Protocol):
    """An iterable of batches that can be stopped at any step and continued elsewhere.

    A batch is this rank's share of one global batch; the set of samples in every global batch
    depends on (seed, epoch, size of the set, global batch size) alone, never on the world size.
    """

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the rest of the current epoch, from the cursor."""

    def __len__(self) -> int:
        """Return the number of global batches in a whole epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Move the cursor to the first batch of `epoch`."""

    def state_dict(self) -> dict[str, Any]:
        """Return the cursor (JSON types, under 1 kB): the batches handed out, not those fetched."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move to a saved cursor, at any world size that divides the global batch."""

    def explain(self) -> dict[str, Any]:
        """Return what is going to happen: samples, batches, predicted reads, memory."""

    def stats(self) -> dict[str, Any]:
        """Return what has happened: batches, samples, bytes read, seconds waited."""
