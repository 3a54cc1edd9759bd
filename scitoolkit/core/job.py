"""Interface of a domain to the command line, the search and the Python API.

A domain is one class derived from `Job`, registered in the entry-point group named in `core.jobs`.
Every method and attribute used from outside the domain is declared here;
`scitoolkit.testing.JobContract` runs a domain through the command line.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast, runtime_checkable

from scitoolkit.core.errors import EXIT_USAGE, ConfigError
from scitoolkit.core.lazy import load_name
from scitoolkit.core.notebook import html_page
from scitoolkit.core.processes import one_process

if TYPE_CHECKING:
    from scitoolkit.core.config import Config
    from scitoolkit.core.job_config import JobConfig
    from scitoolkit.core.results import Results
    from scitoolkit.core.run_directory import RunDirectory
    from scitoolkit.core.starter import DataToStart

TOLERANCE = 0.02
"""Relative difference of metrics that is acceptable between processors."""
CHAOTIC = 0.25
"""The same for chaotic training, where rounding leads to other weights of the same quality."""


@dataclass(frozen=True)
class Finding:
    """One result of `Job.validate`.

    Attributes:
        message: the finding, in a sentence.
        key: the dotted configuration key concerned, "" for the whole configuration.
        level: `error` makes the configuration invalid; `warning` and `note` are only shown.
        exit_code: exit code of a configuration that has only errors of this kind.

    Example:
        >>> print(Finding("the file has 3 time steps", key="data.path", level="warning"))
        warning: data.path: the file has 3 time steps
    """

    message: str
    key: str = ""
    level: Literal["error", "warning", "note"] = "error"
    exit_code: int = EXIT_USAGE

    def __str__(self) -> str:
        """Return the line shown to the user."""
        return ": ".join(part for part in (self.level, self.key, self.message) if part)

    def _repr_html_(self) -> str:
        """Return the finding for a notebook."""
        return html_page(self.level, [": ".join(filter(None, (self.key, self.message)))])


@dataclass(frozen=True)
class Artifacts:
    """Parts of a run from which `scitoolkit publish` makes a shipped surrogate.

    Attributes:
        files: names of the files in `model/` to copy; all except the metrics if empty.
        config: the configuration to publish; that of the run if None.
        rows: rows of the card's table above the metrics.
        workflow_file: file of the workflow's folder that reproduces the run, "" for its default.
        tolerance: allowed relative difference of the metrics of a repeated run.
    """

    files: Sequence[str] = ()
    config: JobConfig | None = None
    rows: Sequence[str] = ()
    workflow_file: str = ""
    tolerance: float = TOLERANCE


class Job(ABC):
    """A domain: configuration, checks, training, evaluation and application of its models.

    All results are written to the run directory; a report reads nothing else.

    Attributes:
        config_class: schema of the configuration; its field `domain` holds the domain's name.
        searches: `scitoolkit search` accepts the configuration.
        generates: `scitoolkit generate` accepts the configuration.
        continues_from: glob pattern of the files in a run from which a training is resumed.
        reports_while_running: `report` evaluates first, because results grow during the run.
        task: name of the task in `scitoolkit init`, "" if `init` does not support the domain.
        starter_name: the function that implements `starter`, as `module:name`.
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
        """Open the data, build the model and run one batch; write nothing. Used by `--dry-run`."""

    @abstractmethod
    def train(self, config: Any, run: RunDirectory, *, resume: bool = False) -> None:
        """Train into `run`; with `resume`, continue from its newest checkpoint.

        Called in every process of the job; only rank 0 writes outside `run.checkpoints`.
        """

    @abstractmethod
    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Evaluate a run or surrogate directory on its test part, or on another file.

        Without `data`, results of a run are written into the run directory.
        """

    @abstractmethod
    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Apply a run or surrogate directory to a file and write a file that xarray opens."""

    def validate(self, config: Any) -> Sequence[Finding]:
        """Return the problems of a configuration that its schema cannot detect, within seconds.

        For example settings that contradict the data. Missing files and packages and models too
        large for the memory are checked for every domain. Nothing is trained or written.
        """
        del config
        return ()

    def starter(self, data: DataToStart) -> str:
        """Return a short commented configuration for some data, which runs without edits.

        Raises:
            ConfigError: the domain does not support `scitoolkit init`.
        """
        if self.starter_name:
            return str(load_name(self.starter_name)(data))
        raise ConfigError(
            f"`init` does not support {self.config_class.__name__}",
            fix=f"copy a workflow with `scitoolkit cp`, and set data.path={data.path}",
        )

    def processes(self, config: Any) -> AbstractContextManager[bool]:
        """Return the context that joins the processes of a training.

        It yields whether this process takes part in `train`. The default allows one process only;
        domains with a `training` section derive from `scitoolkit.training.TrainingJob` instead.
        """
        del config
        return one_process()

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the parts of an evaluated run that `scitoolkit publish` copies."""
        del directory
        return Artifacts()


class Pipeline(Protocol):
    """Protocol of a module that implements the methods of `Job` as functions."""

    def check(self, config: Any) -> Mapping[str, Any]:
        """See `Job.check`."""

    def train(self, config: Any, run: RunDirectory, *, resume: bool = False) -> None:
        """See `Job.train`."""

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """See `Job.evaluate`."""

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """See `Job.predict`."""


class PipelineJob(Job):
    """Base of jobs implemented by a module that is imported on first use.

    Attributes:
        pipeline_name: name of the module, which has the functions of `Pipeline`.
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
    """A job whose surrogates can be exported for other programs.

    Attributes:
        export_options: schema of the export options.
    """

    export_options: ClassVar[type[Config]]

    def export(self, directory: Path, output: Path, options: Any) -> Mapping[str, Any]:
        """Export the model of a run or surrogate and return a description of its interface.

        The mapping has `path` and `largest_difference` (to the surrogate's outputs); `inputs` and
        `outputs`, if present, list the arrays with name, dims, shape and units.
        """


@runtime_checkable
class Stepper(Protocol):
    """A job whose surrogates advance a state, so that predictions can have any length."""

    def predict_steps(
        self,
        directory: Path,
        source: Path,
        output: Path,
        steps: int | None,
        lead: int | None,
        forcing: Path | None = None,
        times: str | None = None,
    ) -> None:
        """Predict `steps` steps of `lead` samples beyond the last sample of a file.

        None means the configured value. With 0 steps, every sample is advanced once instead.
        `forcing` holds inputs that change in time and that no step computes; `times` are those of
        the steps, where their length is an input.
        """


@runtime_checkable
class Divisible(Protocol):
    """A job whose surrogates can be evaluated or applied by several processes in parallel."""

    def check_divisible(self, directory: Path, command: str, steps: int | None = None) -> None:
        """Raise ConfigError for a surrogate whose `command` runs in one process only.

        Args:
            directory: the surrogate.
            command: evaluate or predict.
            steps: number of steps of a prediction, if given.

        Raises:
            ConfigError: the message names the setting that would allow several processes.
        """

    def joined(self, directory: Path) -> AbstractContextManager[None]:
        """Join the other processes for an evaluation or a prediction."""


@runtime_checkable
class Searchable(Protocol):
    """Optional methods of a `Job` that make a search over its configuration cheap and fair.

    Without them a search trains with `Job.train` and compares the lowest validation loss.
    """

    def search_trial(
        self, config: Any, run: RunDirectory, *, resume: bool = False
    ) -> Mapping[str, float]:
        """Train into `run` and return metrics that are comparable between configurations.

        Metrics are computed on the validation part, never on the test part; refits that a search
        does not need are skipped. A metric `NAME_base` is NAME of the model without the searched
        part; the report states whether the winner improves on it.
        """

    def search_cost(self, config: Any) -> Mapping[str, float]:
        """Return costs that are known without training, such as the number of `parameters`.

        It is cheap and allocates no weights: `validate` calls it before sizes are checked.
        """
