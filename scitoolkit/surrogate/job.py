"""A domain of the command line whose life is that of `lifecycle`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from scitoolkit.core.data_differences import problems
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.job import Finding
from scitoolkit.core.lazy import LazyModule, load_name
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.traced import TracedFunction
from scitoolkit.io.split import sizes
from scitoolkit.training import TrainingJob

if TYPE_CHECKING:
    from scitoolkit.surrogate.stages import DataStages, Stages

# Imported on first use, as they import torch or xarray: `validate --no-data` and `ls` do without.
lifecycle, opening, protocols, intervals = (
    LazyModule(f"scitoolkit.surrogate.{name}")
    for name in ("lifecycle", "opening", "stages", "intervals")
)


class StagesAt:
    """Stages that are imported when a job first reads them, as torch takes a second to import.

    Args:
        name: `module:Class`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._stages: Stages | None = None

    def __get__(self, job: object, kind: type) -> Stages:
        self._stages = self._stages or load_name(self._name)()
        return self._stages


class SurrogateJob(TrainingJob):
    """A job that a domain completes with `stages` and `config_class`.

    Attributes:
        stages: an instance, or `StagesAt` that names their class.
        data_stages: those of the data alone, if their module imports no torch.

    Example:
        class SteadyJob(SurrogateJob):
            config_class = SteadyConfig
            stages = SteadyStages()
    """

    stages: ClassVar[Stages | StagesAt]
    data_stages: ClassVar[DataStages | StagesAt | None] = None

    def validate(self, config: Any) -> Sequence[Finding]:
        """Open the data and report what is wrong with them."""
        stages = self.data_stages or self.stages
        data = opening.opened(stages, config, config.data.path, keep=False)
        try:
            facts, accepts = stages.facts(config, data), stages.accepts(config)
            findings = [
                Finding(str(d), "data", "error" if d.level == "error" else "warning")
                for d in problems(facts, accepts)
            ]
            if isinstance(stages, protocols.Examines) and not any(
                f.level == "error" for f in findings
            ):
                findings += stages.examine(config, data)
        finally:
            opening.close(data)
        return [*super().validate(config), *findings]

    def check(self, config: Any) -> Mapping[str, Any]:
        """Do everything up to the loss of one batch; write nothing."""
        with TemporaryDirectory() as folder:
            begun = lifecycle.start(self.stages, config, Path(folder), sample=True)
            try:
                opened = begun.opened
                told = (
                    self.stages.describe(opened)
                    if isinstance(self.stages, protocols.Describes)
                    else {}
                )
                return {
                    "units": {v.name: v.units for v in opened.facts.variables},
                    **told,
                    "samples": sizes(opened.parts),
                    **lifecycle.first_step(begun, config.training.steps),
                }
            finally:
                begun.close()

    def train(self, config: Any, run: RunDirectory, *, resume: bool = False) -> None:
        """Train, and save the best weights in `model/`."""
        lifecycle.train(self.stages, config, run, resume=resume)

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Score the test part of a run, or all samples of another file."""
        return lifecycle.evaluate(self.stages, self.config_class, directory, data)

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Apply a surrogate to a file."""
        from scitoolkit.io.fields import write_fields

        trained = lifecycle.load(self.stages, self.config_class, directory)
        opened = opening.open_checked(self.stages, trained.config, source, trained.facts)
        try:
            fields = self.stages.predict(trained.config, trained.model, opened, output)
        finally:
            opening.close(opened)
        if fields is not None:
            write_fields(intervals.around(fields, intervals.load(trained.folder)), output)

    def traced(self, directory: Path) -> Sequence[TracedFunction]:
        """Return the surrogate as functions of arrays.

        Raises:
            ConfigError: the domain's models are no functions of plain arrays.
        """
        if not isinstance(self.stages, protocols.TraceableStages):
            raise ConfigError(
                "the models of this domain take no plain arrays", where=str(directory)
            )
        trained = lifecycle.load(self.stages, self.config_class, directory)
        return self.stages.traced(trained.config, trained.facts, trained.model)

    def search_trial(
        self, config: Any, run: RunDirectory, *, resume: bool = False
    ) -> Mapping[str, float]:
        """Train a trial; return its scores on the validation part, never on the test part."""
        from scitoolkit.training import current_rank

        begun = lifecycle.start(self.stages, config, run.path)
        try:
            lifecycle.fit(self.stages, config, begun, run, resume=resume)
            if current_rank() != 0:
                return {}
            opened = begun.opened
            rows = opened.parts["validation" if "validation" in begun.loaders else "train"]
            results = self.stages.evaluate(config, begun.model.eval(), opened.data, rows)
        finally:
            begun.close()
        return {n: float(v) for n, v in results.metrics.items() if isinstance(v, (int, float))}
