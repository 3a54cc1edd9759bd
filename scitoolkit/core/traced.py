"""Surrogates as functions of plain arrays: the interface between domains and the export to C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np

from scitoolkit.core.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from scitoolkit.core.data_facts import DataFacts


@dataclass(frozen=True, eq=False)
class ArraySpec:
    """Description of one input or output array.

    Attributes:
        name: name in documentation and errors.
        dims: dims of one sample.
        shape: shape of one sample.
        units: unit, for documentation.
        low, high: range of the training inputs, broadcast to `shape`; None if unknown.
        shared: whether all samples of a call share one array.

    Example:
        >>> ArraySpec("u", ("x",), (64,), "m s-1").shape
        (64,)
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    units: str = ""
    low: np.ndarray | float | None = None
    high: np.ndarray | float | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigError if a limit of the box is NaN, or the box is empty."""
        low, high = (np.asarray(0.0 if b is None else b, np.float64) for b in (self.low, self.high))
        empty = self.low is not None and self.high is not None and not (low <= high).all()
        if np.isnan(low).any() or np.isnan(high).any() or empty:
            raise ConfigError(
                f"the box of {self.name} is from {low} to {high}",
                where=self.name,
                allowed="low <= high, of numbers or infinite; None if it is unknown",
            )


@dataclass(frozen=True, eq=False)
class TracedFunction:
    """A module that maps arrays of samples to arrays of samples.

    Attributes:
        module: maps tensors of shape (samples, *shape), or (*shape) for shared arrays, to one or
            several tensors.
        inputs, outputs: descriptions of the arrays, in order.
        examples: typical inputs, one array (samples, *shape) per input; if empty, drawn from the
            range of the inputs or from a normal distribution.
        held_out: inputs outside the training set, in the form of `examples`, on which the error of
            a compression is measured; if empty, drawn like `examples`.
        typical: inputs of the training set, in the form of `examples`, to which a compression is
            fitted; `examples` if empty.
        name: suffix of the C function, "" if there is only one.
        dtype: of the arrays and of the weights of the module.
        facts: of the training data; None if unknown. For a function that advances a state, the step
            of its time is that of the function.
    """

    module: nn.Module
    inputs: Sequence[ArraySpec]
    outputs: Sequence[ArraySpec]
    examples: Sequence[np.ndarray] = ()
    name: str = ""
    held_out: Sequence[np.ndarray] = ()
    typical: Sequence[np.ndarray] = ()
    dtype: Literal["float32", "float64"] = "float32"
    facts: DataFacts | None = None


@runtime_checkable
class Traceable(Protocol):
    """A job whose surrogates are functions of arrays, which `scitoolkit.deploy` exports as C."""

    def traced(self, directory: Path) -> Sequence[TracedFunction]:
        """Return the functions of the model of a run or surrogate.

        Raises:
            ConfigError: the model cannot be written as a function of arrays.
        """
