"""Stages: what a domain writes, and the capabilities that it may have beyond them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import nn

from scitoolkit.core.contracts import Loader, Task
from scitoolkit.core.data_facts import Accepts, DataFacts, Difference
from scitoolkit.core.results import Results
from scitoolkit.core.traced import TracedFunction
from scitoolkit.io.facts import convert

Parts = Mapping[str, Sequence[int]]
"""Samples of `train`, `validation` and `test`."""


@dataclass(frozen=True)
class Opened:
    """Opened data, and everything known before a model exists.

    Attributes:
        data: what `Stages.open` returned, in the units of the training.
        facts: its description.
        parts: the split.
        measured: what `Stages.measure` returned.
        sample: whether statistics may be measured on a few samples, for a dry run.
    """

    data: Any
    facts: DataFacts
    parts: Parts
    measured: Mapping[str, Any]
    sample: bool = False


class Stages(Protocol):
    """What a domain writes. `build` reads no data: the same call makes and loads a model."""

    def open(self, config: Any, path: Any) -> Any:
        """Open data lazily: headers and coordinates, no values."""

    def facts(self, config: Any, data: Any) -> DataFacts:
        """Describe opened data."""

    def accepts(self, config: Any) -> Accepts:
        """Return which differences from the training data a model allows; none by default."""
        return Accepts()

    def convert(self, data: Any, differences: Sequence[Difference]) -> Any:
        """Return the data in units and directions of the training; an xarray.Dataset by default."""
        return convert(data, differences)

    def split(self, config: Any, data: Any) -> Parts:
        """Return the samples of train, validation and test."""

    def measure(self, config: Any, data: Any, rows: Sequence[int]) -> Mapping[str, Any]:
        """Measure on training samples what `build` needs beyond configuration and facts.

        Returns:
            JSON types, stored with the model; arrays are buffers of the model instead.
        """
        return {}

    def build(
        self, config: Any, facts: DataFacts, measured: Mapping[str, Any], seed: int
    ) -> nn.Module:
        """Return an untrained model; statistics are buffers, so that weights hold them."""

    def initialise(self, config: Any, opened: Opened, model: Any) -> None:
        """Set buffers and initial weights from training samples; nothing by default."""

    def task(self, config: Any, opened: Opened, model: Any) -> Task:
        """Return loss and metrics of one model."""

    def loader(self, config: Any, opened: Opened, part: str, model: Any) -> Loader:
        """Return the batches of this process of a part of the split."""

    def evaluate(self, config: Any, model: Any, data: Any, rows: Sequence[int] | None) -> Results:
        """Score a trained model on some samples; on all if `rows` is None."""

    def predict(self, config: Any, model: Any, data: Any, output: Path) -> None:
        """Write predictions."""


@runtime_checkable
class Finalises(Protocol):
    """Stages that change the best weights before they are saved, such as refitted energies."""

    def finalise(self, config: Any, opened: Opened, model: Any) -> None:
        """Change the best weights."""


@runtime_checkable
class Calibrates(Protocol):
    """Stages that measure something with the weights as delivered, after rounding."""

    def calibrate(self, config: Any, opened: Opened, model: Any, folder: Path) -> None:
        """Write what was measured on the validation part, such as intervals, into the folder."""


@runtime_checkable
class Traceable(Protocol):
    """Stages whose models are functions of plain arrays, which C, Fortran and pools call."""

    def traced(self, config: Any, facts: DataFacts, model: nn.Module) -> Sequence[TracedFunction]:
        """Return the functions; names and units of arrays come from the facts."""
