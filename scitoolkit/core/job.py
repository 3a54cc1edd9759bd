"""The contract of a domain: what the command line, a search and the Python API ask of it.

A domain is one class derived from `Job`, listed in an entry-point group that `core.jobs` names.
Everything that is called or read from outside is declared here; `scitoolkit.testing.JobContract`
runs a domain through the command line.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast, runtime_checkable

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.lazy import load_name
from scitoolkit.core.processes import one_process

if TYPE_CHECKING:
    from scitoolkit.core.config import Config
    from scitoolkit.core.job_config import JobConfig
    from scitoolkit.core.results import Results
    from scitoolkit.core.run_directory import RunDirectory
    from scitoolkit.core.starter import DataToStart

TOLERANCE = 0.02
"""Relative difference of metrics between processors that is no cause for concern."""
CHAOTIC = 0.25
"""The same where training is chaotic: other sums end in other weights of the same quality."""


@dataclass(frozen=True)
class Finding:
    """One result of `Job.validate`.

    Attributes:
        message: what was found, in a sentence.
        key: the dotted configuration key it concerns, "" for the whole.
        level: `error` makes the configuration invalid; `warning` and `note` are only shown.

    Example:
        >>> print(Finding("the file has 3 time steps", key="data.path", level="warning"))
        warning: data.path: the file has 3 time steps
    """

    message: str
    key: str = ""
    level: Literal["error", "warning", "note"] = "error"

    def __str__(self) -> str:
        """Return the line shown to the user."""
        return ": ".join(part for part in (self.level, self.key, self.message) if part)


@dataclass(frozen=True)
class Artifacts:
    """What `scitoolkit publish` makes a shipped surrogate of.

    Attributes:
        files: names of the files of `model/` to copy; all but the metrics unless given.
        config: the configuration to publish; the run's own unless given.
        rows: rows of the card's table before those of the metrics.
        workflow_file: file of the workflow's folder that repeats the run, "" for its default.
        tolerance: relative difference of metrics that a repetition may show.
    """

    files: Sequence[str] = ()
    config: JobConfig | None = None
    rows: Sequence[str] = ()
    workflow_file: str = ""
    tolerance: float = TOLERANCE


class Job(ABC):
    """A domain: configuration, checks, training, evaluation and application of its models.

    All results go to the run directory, which alone a report reads.

    Attributes:
        config_class: schema of the configuration; its field `domain` names it.
        searches: `scitoolkit search` accepts the configuration.
        generates: `scitoolkit generate` accepts the configuration.
        continues_from: pattern of the files of a run that a resumed training reads.
        reports_while_running: `report` evaluates first, as results grow while the run goes on.
        task: the word of `scitoolkit init` for it, "" if it writes no configurations.
        starter_name: the function behind `starter`, as `module:name`.
    """

    config_class: ClassVar[type[JobConfig]]
    searches: ClassVar[bool] = False
    generates: ClassVar[bool] = False
    continues_from: ClassVar[str] = "checkpoints/*"
    reports_while_running: ClassVar[bool] = False
    task: ClassVar[str] = ""
    starter_name: ClassVar[str] = ""

    @abstractmethod
    def check(self, config: Any) -> Mapping[str, Any]:
        """Open the data, build the model, run one batch; write nothing. Used by `--dry-run`."""

    @abstractmethod
    def train(self, config: Any, run: RunDirectory, *, resume: bool = False) -> None:
        """Train into `run`; with `resume`, continue from its newest checkpoint.

        Every process of the job calls it; only rank 0 writes outside `run.checkpoints`.
        """

    @abstractmethod
    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Evaluate a run or surrogate directory on its own test part, or on another file.

        Without `data` the results are written into a run directory.
        """

    @abstractmethod
    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Apply a run or surrogate directory to a file and write a file that xarray opens."""

    def validate(self, config: Any) -> Sequence[Finding]:
        """Return what is wrong with a configuration that the schema cannot see, in seconds.

        Missing files and optional packages, settings that contradict the data, models too large
        for the memory. Nothing is trained and nothing is written.
        """
        del config
        return ()

    def starter(self, data: DataToStart) -> str:
        """Return a short commented configuration for some data that runs as it is.

        Raises:
            ConfigError: the domain writes none.
        """
        if self.starter_name:
            return str(load_name(self.starter_name)(data))
        raise ConfigError(
            f"no configuration is written for {self.config_class.__name__} from data alone",
            fix=f"scitoolkit cp a workflow, and set data.path={data.path}",
        )

    def processes(self, config: Any) -> AbstractContextManager[bool]:
        """Return the context in which the processes of a training work together.

        It yields whether this process takes part in `train`. A job runs in one process unless it
        overrides this; with a `training` section derive from `scitoolkit.training.TrainingJob`.
        """
        del config
        return one_process()

    def artifacts(self, directory: Path) -> Artifacts:
        """Return what `scitoolkit publish` copies from an evaluated run."""
        del directory
        return Artifacts()


class Pipeline(Protocol):
    """A module that does a domain's work; its functions are those of `Job`."""

    def check(self, config: Any) -> Mapping[str, Any]:
        """See `Job.check`."""

    def train(self, config: Any, run: RunDirectory, *, resume: bool = False) -> None:
        """See `Job.train`."""

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """See `Job.evaluate`."""

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """See `Job.predict`."""


class PipelineJob(Job):
    """Base of jobs whose work is done by a module that is imported when it is first needed.

    Attributes:
        pipeline_name: of the module, which has the functions of `Pipeline`.
    """

    pipeline_name: ClassVar[str]

    def _pipeline(self) -> Pipeline:
        return cast(Pipeline, importlib.import_module(self.pipeline_name))

    def check(self, config: Any) -> Mapping[str, Any]:
        """See `Job.check`."""
        return self._pipeline().check(config)

    def train(self, config: Any, run: RunDirectory, *, resume: bool = False) -> None:
        """See `Job.train`."""
        self._pipeline().train(config, run, resume=resume)

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """See `Job.evaluate`."""
        return self._pipeline().evaluate(directory, data)

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """See `Job.predict`."""
        self._pipeline().predict(directory, source, output)


@runtime_checkable
class Exporter(Protocol):
    """A job whose surrogates can be written for other programs to call.

    Attributes:
        export_options: schema of the options of an export.
    """

    export_options: ClassVar[type[Config]]

    def export(self, directory: Path, output: Path, options: Any) -> Mapping[str, Any]:
        """Write a run's or surrogate's model; return what a caller has to know of it.

        The mapping has `path` and `largest_difference`, from the surrogate; `inputs` and
        `outputs`, if any, list arrays by name, dims, shape and units.
        """


@runtime_checkable
class Stepper(Protocol):
    """A job whose surrogates advance a state, so that the length of a prediction is a choice."""

    def predict_steps(
        self, directory: Path, source: Path, output: Path, steps: int | None, lead: int | None
    ) -> None:
        """Go `steps` steps of `lead` samples beyond the last sample of a file, each if given.

        0 steps map every sample instead.
        """


@runtime_checkable
class Divisible(Protocol):
    """A job whose surrogates can be evaluated or applied by several processes together."""

    def check_divisible(self, directory: Path, command: str, steps: int | None = None) -> None:
        """Refuse a surrogate whose `command`, evaluate or predict, runs in one process only.

        Args:
            directory: the surrogate.
            command: evaluate or predict.
            steps: of a prediction, where they are given.

        Raises:
            ConfigError: with what would let several processes take part.
        """

    def joined(self, directory: Path) -> AbstractContextManager[None]:
        """Join the other processes for an evaluation or a prediction."""


@runtime_checkable
class Searchable(Protocol):
    """What a `Job` may offer to make a search of its configuration cheap and fair.

    Without it a search trains with `Job.train` and compares the lowest validation loss.
    """

    def search_trial(
        self, config: Any, run: RunDirectory, *, resume: bool = False
    ) -> Mapping[str, float]:
        """Train into `run` and return figures that are comparable between configurations.

        Only the validation part is looked at, never the test part; refits that a search does not
        need are left out. A figure `NAME_base` beside NAME is that without what is searched: the
        report says whether the winner beats it.
        """

    def search_cost(self, config: Any) -> Mapping[str, float]:
        """Return what is known without training, such as `parameters`.

        It is cheap and allocates no weights: `validate` calls it before sizes are checked.
        """
