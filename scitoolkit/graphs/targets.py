"""Prediction targets of nodes: one class, several labels, or values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np

from scitoolkit.core.errors import DataError

Array = np.ndarray
TargetName = Literal["classes", "labels", "values"]


class Target(ABC):
    """Base class of targets: validation, storage, decision and evaluation of `y`.

    Attributes:
        merit: name of the figure of merit.
        better: `min` or `max`, the direction of better values.
        plain: name of the baseline without edges.
        unknown: value in `y` of a node without a label.
    """

    merit: ClassVar[str]
    better: ClassVar[Literal["min", "max"]]
    plain: ClassVar[str]
    unknown: ClassVar[float] = -1

    @abstractmethod
    def checked(self, values: Array, num_nodes: int, where: str) -> Array:
        """Validate `y`; return it as stored.

        Raises:
            DataError: a wrong shape, or invalid values.
        """

    @abstractmethod
    def known(self, values: Array) -> Array:
        """Return the mask of rows with known labels, shape (n,), bool."""

    @abstractmethod
    def outputs(self, values: Array) -> int:
        """Return the number of model outputs per node."""

    @abstractmethod
    def columns(self, values: Array, outputs: int) -> Array:
        """Return rows as numbers to average, shape (n, outputs), float64."""

    @abstractmethod
    def decided(self, averages: Array) -> Array:
        """Return predictions in the form of `y`, from averages or probabilities."""

    @abstractmethod
    def figures(self, truth: Array, predicted: Array) -> dict[str, float]:
        """Return metrics, the figure of merit first."""

    @abstractmethod
    def variables(self, averages: Array, dim: str = "node") -> dict[str, Any]:
        """Return the xarray variables that `predict` writes, from averages or probabilities."""


class Classes(Target):
    """One class per node: `y` (N,), integers; -1 if unknown."""

    merit, better, plain = "accuracy", "max", "majority class"

    def checked(self, values: Array, num_nodes: int, where: str) -> Array:
        """Return int64, shape (N,)."""
        classes = whole_numbers("labels", values, where)
        if classes.shape != (num_nodes,):
            raise DataError(
                f"labels of shape {classes.shape}",
                where=where,
                allowed=f"({num_nodes},)",
                fix="data.target=labels or data.target=values" if classes.ndim == 2 else "",
            )
        if len(classes) and classes.min() < -1:
            raise DataError(
                f"labels include {classes.min()}", where=where, allowed="0 and above; -1: unknown"
            )
        return classes

    def known(self, values: Array) -> Array:
        """Return the mask of nodes with a class."""
        return values >= 0

    def outputs(self, values: Array) -> int:
        """Return the highest class + 1."""
        return int(values.max(initial=-1)) + 1

    def columns(self, values: Array, outputs: int) -> Array:
        """Return the one-hot encoding."""
        return np.eye(outputs)[values]

    def decided(self, averages: Array) -> Array:
        """Return the most probable class."""
        return averages.argmax(1)

    def figures(self, truth: Array, predicted: Array) -> dict[str, float]:
        """Return accuracy, and the mean F1 of the classes that occur in `truth`."""
        occurring = np.unique(truth)
        scores = [_f1(truth == c, predicted == c) for c in occurring]
        return {"accuracy": float((truth == predicted).mean()), "macro_f1": float(np.mean(scores))}

    def variables(self, averages: Array, dim: str = "node") -> dict[str, Any]:
        """Return classes and probabilities."""
        return {
            "class": (dim, self.decided(averages)),
            "probability": ((dim, "label"), averages, {"units": "1"}),
        }


class Labels(Target):
    """Several labels per node: `y` (N, L) of 0 and 1; rows of -1 if unknown."""

    merit, better, plain = "micro_f1", "max", "majority of each label"

    def checked(self, values: Array, num_nodes: int, where: str) -> Array:
        """Return int64, shape (N, L)."""
        labels = whole_numbers("labels", values, where)
        if labels.ndim != 2 or len(labels) != num_nodes:
            raise DataError(
                f"labels of shape {labels.shape}", where=where, allowed=f"({num_nodes}, labels)"
            )
        # -1 marks a whole row as unknown; in a row with known labels it would be a third value.
        wrong = (labels < -1) | (labels > 1) | ((labels < 0) & self.known(labels)[:, None])
        if wrong.any():
            raise DataError(
                f"labels include {labels[wrong][0]}",
                where=where,
                allowed="0 and 1, or -1 in a whole row",
            )
        return labels

    def known(self, values: Array) -> Array:
        """Return the mask of rows with a label other than -1."""
        return np.asarray((values >= 0).any(1))

    def outputs(self, values: Array) -> int:
        """Return the number of labels."""
        return values.shape[1]

    def columns(self, values: Array, outputs: int) -> Array:
        """Return the labels as float64."""
        return values.astype(np.float64)

    def decided(self, averages: Array) -> Array:
        """Return 1 for labels with a probability above 0.5."""
        return (averages > 0.5).astype(np.int64)

    def figures(self, truth: Array, predicted: Array) -> dict[str, float]:
        """Return micro F1, macro F1 (mean over labels), and the fraction of exact rows."""
        scores = [_f1(t == 1, f == 1) for t, f in zip(truth.T, predicted.T, strict=True)]
        return {
            "micro_f1": _f1(truth == 1, predicted == 1),
            "macro_f1": float(np.mean(scores)),
            "exact": float((truth == predicted).all(1).mean()),
        }

    def variables(self, averages: Array, dim: str = "node") -> dict[str, Any]:
        """Return labels and probabilities."""
        return {
            "has_label": ((dim, "label"), self.decided(averages)),
            "probability": ((dim, "label"), averages, {"units": "1"}),
        }


class Values(Target):
    """Real values per node: `y` (N,) or (N, D); rows with NaN if unknown."""

    merit, better, plain, unknown = "rmse", "min", "mean", float("nan")

    def checked(self, values: Array, num_nodes: int, where: str) -> Array:
        """Return float32 or float64, shape (N, D)."""
        real = real_numbers("values", values, where)
        real = real if real.dtype == np.float64 else real.astype(np.float32)
        if real.ndim not in (1, 2) or len(real) != num_nodes:
            raise DataError(
                f"values of shape {real.shape}",
                where=where,
                allowed=f"({num_nodes},) or ({num_nodes}, any width)",
            )
        if np.isinf(real).any():
            raise DataError("values include Inf", where=where, allowed="finite; NaN: unknown")
        return real.reshape(num_nodes, -1)

    def known(self, values: Array) -> Array:
        """Return the mask of rows without NaN."""
        return ~np.isnan(values).any(1)

    def outputs(self, values: Array) -> int:
        """Return the number of values."""
        return values.shape[1]

    def columns(self, values: Array, outputs: int) -> Array:
        """Return the values as float64."""
        return values.astype(np.float64)

    def decided(self, averages: Array) -> Array:
        """Return the values unchanged."""
        return averages

    def figures(self, truth: Array, predicted: Array) -> dict[str, float]:
        """Return RMSE, MAE and R2 over all values."""
        error = predicted.astype(np.float64) - truth
        # R2 = 1 - sum (y - f)^2 / sum (y - mean)^2, with the mean of each column. A constant truth
        # has no spread to explain: 0.
        spread = float(((truth - truth.mean(0, dtype=np.float64)) ** 2).mean())
        squared = float((error**2).mean())
        return {
            "rmse": float(np.sqrt(squared)),
            "mae": float(np.abs(error).mean()),
            "r2": 1 - squared / spread if spread else 0.0,
        }

    def variables(self, averages: Array, dim: str = "node") -> dict[str, Any]:
        """Return the values."""
        return {"value": ((dim, "label"), averages)}


TARGETS: dict[str, Target] = {"classes": Classes(), "labels": Labels(), "values": Values()}


def real_numbers(what: str, values: Any, where: str) -> Array:
    """Return an array; refuse complex numbers, of which a part would be lost, and text.

    Raises:
        DataError: with the dtype and a value.
    """
    values = np.asarray(values)
    if values.dtype.kind in "biuf":
        return values
    raise DataError(
        f"{what} of {values.dtype}, such as {values.flat[0] if values.size else values}",
        where=where,
        allowed="real numbers",
        fix="" if values.dtype.kind == "c" else "np.unique(NAMES, return_inverse=True)[1]",
    )


def whole_numbers(what: str, values: Any, where: str) -> Array:
    """Convert to int64.

    Raises:
        DataError: a number is not an integer, or values are text or complex.
    """
    values = real_numbers(what, values, where)
    # NaN and Inf become arbitrary integers here, which the comparison below finds to differ.
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    if values.dtype.kind == "f" and not np.array_equal(whole, values):
        wrong = values[whole != values].flat[0]
        raise DataError(f"{what} include {wrong}", where=where, allowed="whole numbers")
    return whole


def _f1(truth: Array, predicted: Array) -> float:
    """Return 2 TP / (2 TP + FP + FN), or 1 if there are no positives in either."""
    both = int(truth.sum()) + int(predicted.sum())
    return float(2 * (truth & predicted).sum() / both) if both else 1.0
