"""Evaluation of a search over a registered job: a trial trains a surrogate."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scitoolkit.core.config import Config, Document, config_keys, dump_config, read_document
from scitoolkit.core.errors import EXIT_FAILURE, EXIT_INTERRUPTED, ConfigError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.job import Job, Searchable
from scitoolkit.core.jobs import checked_job, job_of
from scitoolkit.core.processes import current_rank, leave
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.search.reports import run_epochs
from scitoolkit.search.trial import INTERRUPTED, TrialContext
from scitoolkit.search.worker import ProcessesFailed, failure_kind

FIGURES = "figures.json"
_SEED_RANGE = 2**31
_EXIT_CODES = {
    "raised": 20,
    "memory": 21,
    "disk": 22,
    "machine": 23,
    INTERRUPTED: EXIT_INTERRUPTED,
}
"""Exit code of a rank by kind of failure; ranks that a signal ended have none of them."""
_SILENT = {"training.progress": False}


@dataclass(frozen=True)
class TrainedTrial:
    """Evaluation that trains a configuration file merged with a point of the space.

    Attributes:
        path: YAML file of the surrogate.
        settings: `section.key=value` settings that override the file.
        seed_keys: keys that receive the trial's seed, where the configuration has them.
        budget_key: key that receives the trial's budget.
        processes: number of processes that train one trial.
    """

    path: str
    settings: tuple[str, ...] = ()
    seed_keys: tuple[str, ...] = ("seed", "training.seed")
    budget_key: str = "training.epochs"
    processes: int = 1

    def __call__(self, configuration: dict[str, Any], trial: TrialContext) -> dict[str, float]:
        """Train in the trial's folder, from its checkpoint if it has one; return the metrics.

        Raises:
            ConfigProblems: the merged configuration is invalid.
            ProcessesFailed: one of several training processes failed.
        """
        job, config = self.resolve(configuration, seed=trial.seed, budget=trial.budget)
        run = open_run(trial.directory, config)
        resume = trial.resumed and any(run.checkpoints.iterdir())
        if self.processes > 1:
            figures = _train_together(run, self.processes, resume)
        else:
            figures = train_for_figures(job, config, run, resume)
        for row in run_epochs(run):
            trial.report(**row)
        return figures

    def resolve(
        self,
        configuration: Mapping[str, Any],
        *,
        seed: int | None = None,
        budget: float | None = None,
    ) -> tuple[Job, Any]:
        """Return the job and the complete configuration of a point of the space.

        Args:
            configuration: values by dotted key.
            seed: written to `seed_keys`; None keeps the seeds of the file.
            budget: written to `budget_key`; None keeps the budget of the file.

        Raises:
            ConfigProblems: the merged configuration is invalid.
            ConfigError: a budget in epochs for a training whose length is set in steps.
        """
        document = read_document(self.path, self.settings)
        accepted = set(config_keys(job_of(document).config_class))
        values: dict[str, Any] = dict(_SILENT)
        if seed is not None:
            values |= dict.fromkeys(self.seed_keys, seed % _SEED_RANGE)
        # Not every job has a progress bar or a training seed, and unknown keys would be refused.
        values = {key: value for key, value in values.items() if key in accepted}
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
        """Return the metrics of a configuration that are known without training."""
        job, config = self.resolve(configuration)
        return job.search_cost(config) if isinstance(job, Searchable) else {}


def _refuse_unread_epochs(config: Any) -> None:
    """Raise ConfigError for a budget in epochs if the training's length is set in steps."""
    if not config.training.reads_epochs:
        raise ConfigError(
            "budget_key training.epochs has no effect because the searched configuration sets "
            "training.steps",
            where="budget_key",
            fix="budget_key: training.steps, or settings: [training.steps=]",
        )


def set_key(document: Document, dotted: str, value: Any) -> None:
    """Set a dotted key of a document.

    Raises:
        ConfigError: a parent of the key is a value, not a section.
    """
    *parents, leaf = dotted.split(".")
    section = document.raw
    for part in parents:
        section = section.setdefault(part, {})
        if not isinstance(section, dict):
            raise ConfigError(f"{part!r} is a value, not a section", where=f"space.{dotted}")
    section[leaf] = value
    document.origins[dotted] = "space"


def open_run(folder: Path, config: Config) -> RunDirectory:
    """Create the run directory of a trial if necessary, write its configuration, return it."""
    run = RunDirectory(folder)
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    write_atomic(run.config_path, dump_config(config))
    return run


def train_for_figures(job: Job, config: Any, run: RunDirectory, resume: bool) -> dict[str, float]:
    """Train and return the metrics of a trial; without `search_trial`, the least validation loss.

    Args:
        job: that trains.
        config: its configuration.
        run: run directory of the trial.
        resume: whether to continue from the checkpoint.
    """
    if isinstance(job, Searchable):
        return dict(job.search_trial(config, run, resume=resume))
    job.train(config, run, resume=resume)
    losses = [
        row["value"]
        for row in run.read_metrics()
        if row["name"] == "validation/loss" and row["value"] is not None
    ]
    return {"validation_loss": min(losses)} if losses else {}


def _train_together(run: RunDirectory, processes: int, resume: bool) -> dict[str, float]:
    from scitoolkit.training.launch import launch

    figures = run.path / FIGURES
    figures.unlink(missing_ok=True)
    arguments = [str(run.path), *(["--resume"] if resume else [])]
    code = launch(processes, arguments, module="scitoolkit.search.objective")
    if code:
        failure = next((kind for kind, c in _EXIT_CODES.items() if c == code), "worker died")
        raise ProcessesFailed(
            f"training by {processes} processes ended with exit code {code} ({failure})", failure
        )
    if not figures.exists():
        raise ProcessesFailed(f"training by {processes} processes wrote no metrics", "raised")
    return json.loads(figures.read_text(encoding="utf-8"))


def rank_main(arguments: Sequence[str]) -> None:
    """Train one trial as one of several ranks; rank 0 writes the metrics to `FIGURES`."""
    folder, resume = Path(arguments[0]), "--resume" in arguments
    job, config = checked_job(read_document(folder / "config.yaml"))
    run = RunDirectory(folder)
    with job.processes(config):
        figures = train_for_figures(job, config, run, resume)
        if current_rank() == 0:
            write_atomic(run.path / FIGURES, json.dumps(figures))


def rank_exit_code(error: BaseException) -> int:
    """Return the exit code by which a rank reports its kind of failure to the search.

    Example:
        >>> rank_exit_code(OSError(28, "No space left on device"))
        22
    """
    from scitoolkit.training.rank_reports import LostRank

    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    kind = failure_kind(error)
    # `launch` prefers the code of the rank that was the cause to that of the ranks that lost it.
    return EXIT_FAILURE if kind == "raised" and isinstance(error, LostRank) else _EXIT_CODES[kind]


if __name__ == "__main__":
    import sys
    import traceback

    try:
        rank_main(sys.argv[1:])
    except (Exception, KeyboardInterrupt) as error:
        traceback.print_exc()
        leave(rank_exit_code(error))
    os._exit(0)
