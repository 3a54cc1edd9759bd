"""Trials that train a surrogate: the evaluation of a search over any registered configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scitoolkit.core.config import Config, Document, config_keys, dump_config, read_document
from scitoolkit.core.errors import ConfigError, ScitoolkitError
from scitoolkit.core.job import Job, Searchable
from scitoolkit.core.jobs import checked_job, job_of
from scitoolkit.core.processes import current_rank
from scitoolkit.core.run_directory import RunDirectory, write_atomic
from scitoolkit.search.trial import TrialContext

FIGURES = "figures.json"
_SEED_RANGE = 2**31
_SILENT = {"training.progress": False}


@dataclass(frozen=True)
class TrainedTrial:
    """Trains the configuration that a file and a point of the space make together.

    Attributes:
        path: YAML file of the surrogate.
        settings: `section.key=value` settings that win over it.
        seed_keys: keys that get the trial's seed, where the configuration has them.
        budget_key: key that gets the trial's budget.
        processes: processes that train one trial together.
    """

    path: str
    settings: tuple[str, ...] = ()
    seed_keys: tuple[str, ...] = ("seed", "training.seed")
    budget_key: str = "training.epochs"
    processes: int = 1

    def __call__(self, configuration: dict[str, Any], trial: TrialContext) -> dict[str, float]:
        """Train in the trial's folder, from its checkpoint if there is one; return figures."""
        job, config = self.resolve(configuration, seed=trial.seed, budget=trial.budget)
        run = open_run(trial.directory, config)
        resume = trial.resumed and any(run.checkpoints.iterdir())
        if self.processes > 1:
            figures = _train_together(run, self.processes, resume)
        else:
            figures = train_for_figures(job, config, run, resume)
        for row in _epochs(run):
            trial.report(**row)
        return figures

    def resolve(
        self,
        configuration: Mapping[str, Any],
        *,
        seed: int | None = None,
        budget: float | None = None,
    ) -> tuple[Job, Any]:
        """Return the job and the whole configuration of a point of the space.

        Raises:
            ConfigProblems: the point is no valid configuration.
        """
        document = read_document(self.path, self.settings)
        known = set(config_keys(job_of(document).config_class))
        values: dict[str, Any] = dict(_SILENT)
        if seed is not None:
            values |= dict.fromkeys(self.seed_keys, seed % _SEED_RANGE)
        values = {key: value for key, value in values.items() if key in known}
        if budget is not None:
            values[self.budget_key] = int(budget)
        for key, value in {**values, **configuration}.items():
            set_key(document, key, value)
        document.raw.setdefault("workflow", "trial")
        job, config = checked_job(document)
        if budget is not None and self.budget_key == "training.epochs":
            _refuse_unread_epochs(config)
        return job, config

    def cost(self, configuration: Mapping[str, Any]) -> Mapping[str, float]:
        """Return what is known of a configuration without training it."""
        job, config = self.resolve(configuration)
        return job.search_cost(config) if isinstance(job, Searchable) else {}


def _refuse_unread_epochs(config: Any) -> None:
    """Refuse a budget of epochs where the length of the training is set in steps."""
    if not config.training.reads_epochs:
        raise ConfigError(
            "budget_key training.epochs is not read, as the searched configuration sets "
            "training.steps",
            where="budget_key",
            fix="budget_key: training.steps, or settings: [training.steps=]",
        )


def set_key(document: Document, dotted: str, value: Any) -> None:
    """Set a dotted key of a document that was read."""
    *parents, leaf = dotted.split(".")
    section = document.raw
    for part in parents:
        section = section.setdefault(part, {})
        if not isinstance(section, dict):
            raise ConfigError(f"{part!r} is a value, not a section", where=f"space.{dotted}")
    section[leaf] = value
    document.origins[dotted] = "space"


def open_run(folder: Path, config: Config) -> RunDirectory:
    """Return the run directory of a trial, made when it is not there."""
    run = RunDirectory(folder)
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    write_atomic(run.config_path, dump_config(config))
    return run


def train_for_figures(job: Job, config: Any, run: RunDirectory, resume: bool) -> dict[str, float]:
    """Train and return the figures that a search compares."""
    if isinstance(job, Searchable):
        return dict(job.search_trial(config, run, resume=resume))
    job.train(config, run, resume=resume)
    losses = [
        row["value"]
        for row in run.read_metrics()
        if row["name"] == "validation/loss" and row["value"] is not None
    ]
    return {"validation_loss": min(losses)} if losses else {}


def _epochs(run: RunDirectory) -> Sequence[dict[str, Any]]:
    """Return the validation figures of every epoch, as `TrialContext.report` takes them."""
    rows: dict[int, dict[str, Any]] = {}
    for row in run.read_metrics():
        part, _, name = row["name"].rpartition("/")
        if part == "validation" and row["value"] is not None:
            rows.setdefault(row["step"], {"epoch": len(rows) + 1})[name] = row["value"]
    return list(rows.values())


def _train_together(run: RunDirectory, processes: int, resume: bool) -> dict[str, float]:
    from scitoolkit.training.launch import launch

    figures = run.path / FIGURES
    figures.unlink(missing_ok=True)
    arguments = [str(run.path), *(["--resume"] if resume else [])]
    code = launch(processes, arguments, module="scitoolkit.search.objective")
    if code or not figures.exists():
        raise ScitoolkitError(f"the {processes} processes ended with exit code {code}")
    return json.loads(figures.read_text(encoding="utf-8"))


def rank_main(arguments: Sequence[str]) -> None:
    """Train one trial as one of several ranks; rank 0 writes the figures."""
    folder, resume = Path(arguments[0]), "--resume" in arguments
    job, config = checked_job(read_document(folder / "config.yaml"))
    run = RunDirectory(folder)
    with job.processes(config):
        figures = train_for_figures(job, config, run, resume)
        if current_rank() == 0:
            write_atomic(run.path / FIGURES, json.dumps(figures))


if __name__ == "__main__":
    import sys

    rank_main(sys.argv[1:])
    os._exit(0)
