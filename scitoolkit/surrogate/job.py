"""A domain of the command line whose life is that of `lifecycle`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from scitoolkit.core.data_differences import problems
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.job import Finding
from scitoolkit.core.lazy import load_name
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.traced import TracedFunction
from scitoolkit.training import TrainingJob

if TYPE_CHECKING:
    from scitoolkit.surrogate.stages import DataStages, Stages


class StagesAt:
    """Stages that are imported when a job first reads them, as torch takes a second to import.

    Args:
        name: `module:Class`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._stages: Stages | None = None

    def __get__(self, job: object, kind: type) -> Stages:
        if self._stages is None:
            self._stages = load_name(self._name)()
        assert self._stages is not None
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

    # Functions import what imports torch: `validate --no-data` and `ls` do without.

    def validate(self, config: Any) -> Sequence[Finding]:
        """Open the data and report what is wrong with them."""
        from scitoolkit.surrogate.opening import close, opened
        from scitoolkit.surrogate.stages import Examines

        stages = self.data_stages or self.stages
        data = opened(stages, config, config.data.path, keep=False)
        try:
            facts, accepts = stages.facts(config, data), stages.accepts(config)
            findings = [
                Finding(str(d), "data", "error" if d.level == "error" else "warning")
                for d in problems(facts, accepts)
            ]
            if isinstance(stages, Examines) and not any(f.level == "error" for f in findings):
                findings += stages.examine(config, data)
        finally:
            close(data)
        return [*super().validate(config), *findings]

    def check(self, config: Any) -> Mapping[str, Any]:
        """Do everything up to the loss of one batch; write nothing."""
        from scitoolkit.surrogate.lifecycle import first_step, sizes, start
        from scitoolkit.surrogate.stages import Describes

        with TemporaryDirectory() as folder:
            begun = start(self.stages, config, Path(folder), sample=True)
            try:
                opened = begun.opened
                told = self.stages.describe(opened) if isinstance(self.stages, Describes) else {}
                return {
                    "units": {v.name: v.units for v in opened.facts.variables},
                    **told,
                    "samples": sizes(opened.parts),
                    **first_step(begun, config.training.steps),
                }
            finally:
                begun.close()

    def train(self, config: Any, run: RunDirectory, *, resume: bool = False) -> None:
        """Train, and save the best weights in `model/`."""
        from scitoolkit.surrogate.lifecycle import train

        train(self.stages, config, run, resume=resume)

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Score the test part of a run, or all samples of another file."""
        from scitoolkit.surrogate.lifecycle import evaluate

        return evaluate(self.stages, self.config_class, directory, data)

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Apply a surrogate to a file."""
        from scitoolkit.io.fields import write_fields
        from scitoolkit.surrogate import intervals
        from scitoolkit.surrogate.lifecycle import load
        from scitoolkit.surrogate.opening import close, open_checked

        trained = load(self.stages, self.config_class, directory)
        opened = open_checked(self.stages, trained.config, source, trained.facts)
        try:
            fields = self.stages.predict(trained.config, trained.model, opened, output)
        finally:
            close(opened)
        if fields is not None:
            write_fields(intervals.around(fields, intervals.load(trained.folder)), output)

    def traced(self, directory: Path) -> Sequence[TracedFunction]:
        """Return the surrogate as functions of arrays.

        Raises:
            ConfigError: the domain's models are no functions of plain arrays.
        """
        from scitoolkit.surrogate.lifecycle import load
        from scitoolkit.surrogate.stages import TraceableStages

        if not isinstance(self.stages, TraceableStages):
            raise ConfigError(
                "the models of this domain take no plain arrays", where=str(directory)
            )
        trained = load(self.stages, self.config_class, directory)
        return self.stages.traced(trained.config, trained.facts, trained.model)

    def search_trial(
        self, config: Any, run: RunDirectory, *, resume: bool = False
    ) -> Mapping[str, float]:
        """Train a trial; return its scores on the validation part, never on the test part."""
        from scitoolkit.surrogate.lifecycle import fit, start
        from scitoolkit.training import current_rank

        begun = start(self.stages, config, run.path)
        try:
            fit(self.stages, config, begun, run, resume=resume)
            if current_rank() != 0:
                return {}
            opened = begun.opened
            rows = opened.parts["validation" if "validation" in begun.loaders else "train"]
            results = self.stages.evaluate(config, begun.model.eval(), opened.data, rows)
        finally:
            begun.close()
        numbers = {n: v for n, v in results.metrics.items() if isinstance(v, (int, float))}
        return {name: float(value) for name, value in numbers.items()}
