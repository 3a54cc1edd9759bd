"""Stages: what a domain writes, and the capabilities that it may have beyond them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from scitoolkit.core.contracts import Loader, Task
from scitoolkit.core.data_differences import Accepts, Difference
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.job import Finding
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.traced import TracedFunction
from scitoolkit.io.facts import convert

if TYPE_CHECKING:
    import xarray as xr
    from torch import nn

T = TypeVar("T")
Rows = Sequence[int] | Sequence[range]
"""Samples, or ranges of consecutive samples."""
Parts = Mapping[str, Rows]
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
        directory: of the run; None outside of runs.
    """

    data: Any
    facts: DataFacts
    parts: Parts
    measured: Mapping[str, Any]
    sample: bool = False
    directory: Path | None = None
    _shared: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what the members of an ensemble share, made for the first of them."""
        if name not in self._shared:
            self._shared[name] = make()
        shared: T = self._shared[name]
        return shared


@dataclass(frozen=True)
class Trained:
    """A stored surrogate.

    Attributes:
        config: of the run.
        model: with its weights, in evaluation mode.
        facts: of the training data; None if it was stored before facts were.
        folder: where it is stored.
    """

    config: Any
    model: Any
    facts: DataFacts | None
    folder: ModelFolder


class DataStages(Protocol):
    """What a domain writes about its data.

    The class may be separate, in a module that imports no torch, so that `validate` takes no
    time to import it: `SurrogateJob.data_stages`.
    """

    def open(self, config: Any, path: Any) -> Any:
        """Open data lazily: headers and coordinates, no values."""

    def facts(self, config: Any, data: Any) -> DataFacts:
        """Describe opened data."""

    def accepts(self, config: Any) -> Accepts:
        """Return which differences from the training data a model allows; none by default."""
        return Accepts()

    def convert(
        self, data: Any, differences: Sequence[Difference], trained: DataFacts | None
    ) -> Any:
        """Return the data in units and directions of the training; an xarray.Dataset by default.

        Args:
            data: what `open` returned.
            differences: none of which is an error.
            trained: facts of the training data; None in the training itself.
        """
        return convert(data, differences)

    def split(self, config: Any, data: Any) -> Parts:
        """Return the samples of train, validation and test."""


class Stages(DataStages, Protocol):
    """What a domain writes. `build` reads no data: the same call makes and loads a model.

    Attributes:
        start_settings: dotted keys of the settings that the meaning of weights depends on, for
            domains with a section `start` whose weights are adopted as they are.
        remeasured: keys of `measure` that a training from `start` measures on the new data; the
            others are those of the weights.
    """

    start_settings: Sequence[str] = ()
    remeasured: Sequence[str] = ()

    def measure(self, config: Any, data: Any, rows: Rows) -> Mapping[str, Any]:
        """Measure on training samples what `build` needs beyond configuration and facts.

        Returns:
            JSON types, stored with the model; arrays are buffers of the model instead.
        """
        return {}

    def build(
        self, config: Any, facts: DataFacts | None, measured: Mapping[str, Any], seed: int
    ) -> nn.Module:
        """Return an untrained model; statistics are buffers, so that weights hold them.

        `facts` is None for a surrogate that was stored before facts were.
        """

    def completed(self, trained: Trained) -> Trained:
        """Return a stored surrogate with what its training found out or older folders lack.

        Such as the names of all fields, where the configuration names none; by default as it is.
        """
        return trained

    def initialise(self, config: Any, opened: Opened, model: Any) -> None:
        """Set buffers and initial weights from training samples; nothing by default."""

    def task(self, config: Any, opened: Opened, model: Any) -> Task | None:
        """Return loss and metrics of one model; None for one that is fitted without steps."""

    def loader(self, config: Any, opened: Opened, part: str, model: Any) -> Loader:
        """Return the batches of this process of a part of the split."""

    def evaluate(self, config: Any, model: Any, data: Any, rows: Rows | None) -> Results:
        """Score a trained model on some samples; on all if `rows` is None."""

    def predict(self, config: Any, model: Any, data: Any, output: Path) -> xr.Dataset | None:
        """Write predictions, or return them to be written; None also where another process does."""


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
class Errs(Protocol):
    """Stages whose predictions have intervals, with a section `intervals` of the configuration."""

    def errors(self, config: Any, model: Any, data: Any, rows: Rows | None) -> xr.Dataset:
        """Return the errors of predictions on some samples or on all; see `intervals`."""


@runtime_checkable
class Stores(Protocol):
    """Stages with their own file of a model, such as a fit whose arrays are packed."""

    def store(self, model: Any, folder: ModelFolder) -> None:
        """Write the model into the folder."""

    def restored(self, config: Any, folder: ModelFolder) -> Any:
        """Return the model of a folder, in evaluation mode.

        Raises:
            CheckpointError: weights that are missing, damaged or of another configuration.
        """


@runtime_checkable
class TraceableStages(Protocol):
    """Stages whose models are functions of plain arrays, which C, Fortran and pools call."""

    def traced(
        self, config: Any, facts: DataFacts | None, model: nn.Module
    ) -> Sequence[TracedFunction]:
        """Return the functions; names and units of arrays come from the facts."""


@runtime_checkable
class Indexes(Protocol):
    """Stages that keep an index of the training files next to the runs."""

    def open_indexed(self, config: Any, path: Any, keep: bool) -> Any:
        """Open training data like `Stages.open`; store a new index if `keep`."""


@runtime_checkable
class Produces(Protocol):
    """Stages that compute their data, or some of them, before the training."""

    def files(self, config: Any, directory: Path) -> Path | Sequence[Path] | None:
        """Return the path of the files of a run; None if the configuration names them."""

    def produce(self, config: Any, directory: Path, sample: bool) -> None:
        """Compute the files of a run that do not exist yet; nothing if there are none to compute.

        Every process of the training calls it. For a dry run, `sample`, a few may do.
        """


@runtime_checkable
class Examines(Protocol):
    """Stages that check the data beyond their facts."""

    def examine(self, config: Any, data: Any) -> Sequence[Finding]:
        """Return what is wrong with the data, or worth telling, before a training."""


@runtime_checkable
class Describes(Protocol):
    """Stages with more to tell in a dry run than sizes and the first loss."""

    def describe(self, opened: Opened) -> Mapping[str, Any]:
        """Return {name: JSON types} of opened data."""


@runtime_checkable
class Records(Protocol):
    """Stages that record something of the data with a run before it trains."""

    def record(self, config: Any, opened: Opened, run: RunDirectory, resume: bool) -> None:
        """Write it on rank 0; compare that of a resumed run.

        Raises:
            DataError: the data changed since the run began.
        """


@runtime_checkable
class Settles(Protocol):
    """Stages whose training settles keys of the configuration, such as `auto`.

    The folder of the model states what it settled; `build` is given that configuration then.
    """

    def settled(self, config: Any, measured: Mapping[str, Any]) -> Any:
        """Return the configuration with what was measured, from which a run could be repeated."""


@runtime_checkable
class Concludes(Protocol):
    """Stages with more to record of a finished training, or to do once after it.

    Unlike `Finalises`, a trial of a search leaves this out.
    """

    def conclude(self, config: Any, opened: Opened, model: Any) -> Mapping[str, Any]:
        """Return what is added to the record of the fit (JSON types); every process calls it."""


@runtime_checkable
class Ensembles(Protocol):
    """Stages whose ensembles have more than the mean of the members' outputs."""

    def joined(self, members: Sequence[Any]) -> nn.Module:
        """Return the ensemble, with its members as `members`."""


@runtime_checkable
class Reports(Protocol):
    """Stages whose evaluation reads more of a stored surrogate than its model, or writes fields."""

    def report(
        self, trained: Trained, data: Any, rows: Rows | None
    ) -> tuple[Results, xr.Dataset | None]:
        """Score a surrogate as `Stages.evaluate` does; also return the fields of results.nc."""
