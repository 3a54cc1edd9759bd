"""What a domain gives for a surrogate to be written as C: modules on plain arrays, described."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, eq=False)
class ArraySpec:
    """One array of a call.

    Attributes:
        name: for documentation and errors.
        dims: of one sample.
        shape: of one sample.
        units: text for people.
        low, high: box of the training inputs, each broadcasting to `shape`; None for no box.
        shared: one array for all samples of a call.

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


@dataclass(frozen=True, eq=False)
class TracedFunction:
    """A module that maps float32 arrays of samples to arrays of samples.

    Attributes:
        module: from tensors (samples, *shape), of shared arrays (*shape), to one tensor or several.
        inputs, outputs: arrays in order.
        examples: typical inputs, one tensor (samples, *shape) an input; drawn from the box or from
            a normal distribution unless given.
        held_out: inputs that the model was not fitted to, as `examples`, for the error of a
            compression; drawn like examples unless given.
        typical: inputs that the model was fitted to, as `examples`, which a compression is fitted
            to; the examples unless given.
        name: suffix of the C function, "" for the only one.
    """

    module: nn.Module
    inputs: Sequence[ArraySpec]
    outputs: Sequence[ArraySpec]
    examples: Sequence[np.ndarray] = ()
    name: str = ""
    held_out: Sequence[np.ndarray] = ()
    typical: Sequence[np.ndarray] = ()


@runtime_checkable
class Traceable(Protocol):
    """A job whose surrogates are functions of arrays, which `scitoolkit.deploy` writes as C."""

    def traced(self, directory: Path) -> Sequence[TracedFunction]:
        """Return the functions of a run's or surrogate's model.

        Raises:
            ConfigError: a model without such a form, named.
        """
