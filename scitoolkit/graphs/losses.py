"""Losses and metrics of classes, labels and values, as sums over nodes or graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.targets import TargetName
from scitoolkit.training.ranks.collectives import SumOverRanks
from scitoolkit.training.ranks.communicator import Communicator


def class_sums(out: Tensor, label: Tensor, weights: Tensor | None = None) -> dict[str, Tensor]:
    """Return the sums of the cross-entropy and of the correct predictions.

    Args:
        out: logits, shape (n, classes).
        label: classes, shape (n,), int64.
        weights: factor of each class in the loss, shape (classes,); None for 1.
    """
    factors = None if weights is None else weights.to(out)
    loss = nn.functional.cross_entropy(out, label, factors, reduction="sum")
    return {"loss": loss, "accuracy": (out.argmax(1) == label).sum()}


def label_sums(out: Tensor, label: Tensor) -> dict[str, Tensor]:
    """Return sums of the means over labels of the binary cross-entropy and of correct predictions.

    Args:
        out: logits, shape (n, labels).
        label: 0 or 1, shape (n, labels).
    """
    loss = nn.functional.binary_cross_entropy_with_logits(
        out, label.to(out.dtype), reduction="none"
    )
    return {"loss": loss.mean(1).sum(), "accuracy": ((out > 0) == label).double().mean(1).sum()}


def value_sums(out: Tensor, label: Tensor, mean: Tensor, deviation: Tensor) -> dict[str, Tensor]:
    """Return the sums of the standardised squared error and of the absolute error.

    Args:
        out: standardised values, shape (n, D).
        label: values, shape (n, D).
        mean, deviation: of the values of the training, shape (D,); a deviation of 0 counts as 1.
    """
    scale = torch.where(deviation == 0, 1.0, deviation).to(out)
    error = out - (label.to(out.dtype) - mean.to(out)) / scale
    return {
        "loss": error.square().mean(1).sum(),
        "absolute_error": (error.abs() * scale).mean(1).sum(),
    }


def predictions(
    target: TargetName, out: Tensor, mean: Sequence[float] = (), deviation: Sequence[float] = ()
) -> np.ndarray:
    """Return probabilities of classes or labels, or values in their original unit.

    Args:
        target: what the model learned.
        out: its outputs, shape (n, outputs).
        mean, deviation: of the values of the training, shape (outputs,).
    """
    if target == "values":
        scale = np.array(deviation)
        return out.numpy() * np.where(scale == 0, 1, scale) + np.array(mean)
    return (out.softmax(1) if target == "classes" else out.sigmoid()).numpy()


def class_weights(
    asked: Literal["balanced"] | Sequence[float] | None,
    classes: int,
    labels: np.ndarray,
    ranks: Communicator,
) -> Tensor | None:
    """Return the factors of the classes, whose mean over the training labels of all ranks is 1.

    Args:
        asked: `balanced`, or a number for each class; None for none.
        classes: number of classes.
        labels: classes in the training part of this rank, shape (n,).
        ranks: the communicator of the ranks that hold the others.

    Returns:
        Shape (classes,), float64; None for 1.

    Raises:
        ConfigError: the list does not hold a number for each class.
    """
    if asked is None:
        return None
    counts = torch.from_numpy(np.bincount(labels, minlength=classes).astype(np.float64))
    counts = SumOverRanks.apply(counts, ranks)
    if asked == "balanced":
        # A class without training labels counts in the validation as much as any other.
        # w_c = n / (C n_c), with C classes that occur: sum_c n_c w_c = n, so that the mean over
        # nodes is 1 and the size of the loss, and with it the learning rate, does not change.
        return torch.where(counts > 0, counts.sum() / (counts > 0).sum() / counts, 1.0)
    if len(asked) != classes:
        raise ConfigError(
            f"{len(asked)} numbers for {classes} classes",
            where="data.class_weights",
            allowed=f"{classes} numbers above 0, or balanced",
        )
    weights = torch.tensor(asked, dtype=torch.float64)
    return weights * counts.sum() / (weights * counts).sum()
