"""Training of a plain model on inputs and targets, without a task class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import DataError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.trainer import Trainer

LossFunction = Callable[[Tensor, Tensor], Tensor]
Data = Dataset[Any] | DataLoader[Any] | tuple[Tensor, ...]


class Supervised:
    """Task of a model that is called with the inputs of a batch and compared with its target.

    Args:
        model: called with all tensors of a batch but the last.
        loss: mean over samples of (prediction, target); None for the cross-entropy of integer
            targets, and the mean squared error of others.
    """

    def __init__(self, model: nn.Module, loss: LossFunction | None = None) -> None:
        self.model: nn.Module = model
        self._loss = loss

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Return the loss, and nothing else to log."""
        return self._compared(*self._outputs(batch)), {}

    def metrics(self, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return the loss, and the share of correct classes for the default loss of classes."""
        prediction, target = self._outputs(batch)
        values: dict[str, Tensor | float] = {"loss": self._compared(prediction, target)}
        if self._loss is None and not target.is_floating_point():
            values["accuracy"] = (prediction.argmax(1) == target).double().mean()
        return values

    def batch_size(self, batch: Batch) -> int:
        """Return the number of samples."""
        return len(next(iter(batch.values())))

    def _outputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        names = [str(n) for n in range(len(batch) - ("num_valid" in batch))]
        if len(names) < 2 or names[-1] not in batch:
            raise DataError(
                f"a batch has {', '.join(batch)}",
                where="data",
                allowed="tuples of inputs and a target",
                fix="a task with `loss`, `metrics` and `batch_size`, for Trainer",
            )
        inputs = [batch[name] for name in names[:-1]]
        try:
            return self.model(*inputs), batch[names[-1]]
        except RuntimeError as error:
            weights = next((p.dtype for p in self.model.parameters()), None)
            kinds = [x.dtype for x in inputs]
            if "type" not in str(error) or all(kind == weights for kind in kinds):
                raise
            raise DataError(
                f"inputs of {', '.join(map(str, kinds))}: {str(error).splitlines()[0]}",
                where="data",
                allowed=f"{weights}, as the weights of the model",
                fix=f"inputs.to({weights})",
            ) from None

    def _compared(self, prediction: Tensor, target: Tensor) -> Tensor:
        if self._loss is not None:
            return self._loss(prediction, target)
        if not target.is_floating_point():
            return _cross_entropy(prediction, target)
        if prediction.shape != target.shape:
            # Broadcasting would compare every prediction with every target.
            raise DataError(
                f"predictions of shape {tuple(prediction.shape)} and targets of shape "
                f"{tuple(target.shape)}",
                where="data",
                allowed="equal shapes",
                fix="target[:, None], or prediction.squeeze(1) in the model",
            )
        return nn.functional.mse_loss(prediction, target)


def _cross_entropy(prediction: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross-entropy of classes.

    Raises:
        DataError: targets that are no classes, or of another shape.
    """
    fix = "target.float(), with a loss for such numbers, for targets that are no classes"
    shape = (*prediction.shape[:1], *prediction.shape[2:])
    if target.dtype == torch.bool or target.is_complex():
        what = f"targets of {target.dtype}"
    elif target.shape != shape or prediction.ndim < 2:
        what = f"whole-number targets of shape {tuple(target.shape)}"
        if target.shape == prediction.shape:
            fix = f"target.argmax(1), if they are one-hot; {fix}"
    else:
        try:
            return nn.functional.cross_entropy(prediction, target.long())
        except IndexError as error:
            what = f"classes from {int(target.min())} to {int(target.max())} ({error})"
    raise DataError(
        f"{what}, predictions of shape {tuple(prediction.shape)}",
        where="data",
        allowed="classes from 0 to C - 1 of shape (N,) for predictions (N, C)",
        fix=fix,
    )


def fit_model(
    model: nn.Module,
    data: Data,
    loss: LossFunction | None = None,
    *,
    validation: Data | None = None,
    folder: Path | str | None = None,
    resume: bool = False,
    **settings: Any,
) -> Trainer:
    """Train a model on inputs and targets; it has the best weights afterwards.

    The same call runs on several processes under `torchrun` and reaches the same weights.

    Args:
        model: called with the inputs of a batch; trained in place.
        data: a torch Dataset or DataLoader of tuples (inputs..., target), or such a tuple of
            tensors or NumPy arrays with a sample per row.
        loss: mean over samples of (prediction, target); None for the cross-entropy of integer
            targets, and the mean squared error of others.
        validation: data that selects the best weights; None for the last weights.
        folder: run directory with metrics and checkpoints; None keeps nothing.
        resume: continue from the newest checkpoint in `folder`.
        settings: keys of `TrainingConfig`; `batch_size` is that of a DataLoader if `data` is one.

    Returns:
        The trainer, after `fit` and `load_best`.

    Raises:
        ConfigError: unknown or unsuitable settings.
        DataError: batches that are not tuples of inputs and a target, no rows, other shapes or
            dtypes, or targets that are no classes of the model.

    Example:
        >>> import torch
        >>> x = torch.linspace(-1, 1, 64)[:, None]
        >>> model = nn.Linear(1, 1)
        >>> trainer = fit_model(model, (x, 3 * x), epochs=80, validation=(x, 3 * x),
        ...     optimizer={"name": "adam", "lr": 0.1}, progress=False)
        >>> trainer.best["loss"] < 0.1
        True
    """
    if isinstance(data, DataLoader) and data.batch_size is not None:
        settings = {"batch_size": data.batch_size, **settings}
    config = TrainingConfig(**settings)
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    run = RunDirectory(Path(folder)) if folder is not None else None
    trainer = Trainer(Supervised(model, loss), config, run=run)
    train = _loader(data, config.batch_size, shuffle=True)
    measured = None if validation is None else _loader(validation, config.batch_size, shuffle=False)
    trainer.fit(train, measured, resume=resume)
    trainer.load_best()
    return trainer


def _loader(data: Data, batch_size: int, *, shuffle: bool) -> DataLoader[Any]:
    if isinstance(data, DataLoader):
        return data
    if isinstance(data, tuple):
        data = tuple(torch.as_tensor(array) for array in data)
        rows = {len(tensor) for tensor in data}
        if len(rows) != 1:
            raise DataError(
                f"tensors of {', '.join(map(str, sorted(rows)))} rows",
                where="data",
                allowed="a sample per row in each",
            )
        data = TensorDataset(*data)
    if isinstance(data, Sized) and not len(data):
        raise DataError("no rows", where="data", allowed="at least one sample")
    return DataLoader(data, batch_size, shuffle=shuffle)
