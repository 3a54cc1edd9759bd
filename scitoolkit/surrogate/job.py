"""A domain of the command line whose life is that of `lifecycle`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from scitoolkit.core.data_facts import problems
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.job import Artifacts, Finding
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.traced import TracedFunction
from scitoolkit.surrogate.lifecycle import fit, load, open_checked, save, start, test_rows
from scitoolkit.surrogate.stages import Stages, Traceable
from scitoolkit.training import TrainingJob, current_rank


class SurrogateJob(TrainingJob):
    """A job that a domain completes with `stages` and `config_class`.

    Example:
        class SteadyJob(SurrogateJob):
            config_class = SteadyConfig
            stages = SteadyStages()
    """

    stages: ClassVar[Stages]

    def validate(self, config: Any) -> Sequence[Finding]:
        """Open the data and report what is wrong with them."""
        data = self.stages.open(config, config.data.path)
        facts, accepts = self.stages.facts(config, data), self.stages.accepts(config)
        differences = [
            Finding(str(d), "data", "error" if d.level == "error" else "warning")
            for d in problems(facts, accepts)
        ]
        return [*super().validate(config), *differences]

    def check(self, config: Any) -> Mapping[str, Any]:
        """Do everything up to the loss of one batch; write nothing."""
        begun = start(self.stages, config, sample=True)
        loader = self.stages.loader(config, begun.opened, "train", begun.model)
        loss, _ = begun.task.loss(next(iter(loader)))
        return {
            "samples": {part: len(rows) for part, rows in begun.opened.parts.items()},
            "units": {v.name: v.units for v in begun.opened.facts.variables},
            "parameters": sum(p.numel() for p in begun.model.parameters()),
            "first_loss": float(loss.detach()),
        }

    def train(self, config: Any, run: RunDirectory, *, resume: bool = False) -> None:
        """Train, and save the best weights in `model/`."""
        begun = start(self.stages, config)
        trainer = fit(self.stages, config, begun, run, resume=resume)
        if current_rank() == 0:
            record = {"best": trainer.best, "steps": trainer.step}
            save(self.stages, config, begun, run, record)

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Score the test part of a run, or all samples of another file."""
        trained = load(self.stages, self.config_class, directory)
        path = trained.config.data.path if data is None else data
        opened = open_checked(self.stages, trained.config, path, trained.facts)
        rows = test_rows(trained.folder) if data is None else None
        results = self.stages.evaluate(trained.config, trained.model, opened, rows)
        trained.folder.write_results(results, data)
        return results

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Apply a surrogate to a file."""
        trained = load(self.stages, self.config_class, directory)
        opened = open_checked(self.stages, trained.config, source, trained.facts)
        self.stages.predict(trained.config, trained.model, opened, output)

    def traced(self, directory: Path) -> Sequence[TracedFunction]:
        """Return the surrogate as functions of arrays.

        Raises:
            ConfigError: the domain's models are no functions of plain arrays.
        """
        if not isinstance(self.stages, Traceable):
            raise ConfigError(
                "the models of this domain take no plain arrays", where=str(directory)
            )
        trained = load(self.stages, self.config_class, directory)
        return self.stages.traced(trained.config, trained.facts, trained.model)

    def search_trial(
        self, config: Any, run: RunDirectory, *, resume: bool = False
    ) -> Mapping[str, float]:
        """Train a trial; return its scores on the validation part, never on the test part."""
        begun = start(self.stages, config)
        fit(self.stages, config, begun, run, resume=resume)
        if current_rank() != 0:
            return {}
        opened = begun.opened
        rows = [int(row) for row in opened.parts.get("validation", ())] or opened.parts["train"]
        results = self.stages.evaluate(config, begun.model.eval(), opened.data, rows)
        numbers = {n: v for n, v in results.metrics.items() if isinstance(v, (int, float))}
        return {name: float(value) for name, value in numbers.items()}

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the files to publish."""
        del directory
        return Artifacts()
