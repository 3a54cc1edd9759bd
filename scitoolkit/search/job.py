"""Search job, run by `scitoolkit search` and by `scitoolkit run` for `domain: search`."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from logging import Logger
from pathlib import Path
from typing import Any, ClassVar

from scitoolkit.core.config import dump_config, load_config, read_document
from scitoolkit.core.errors import DataError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.job import Job
from scitoolkit.core.jobs import job_of
from scitoolkit.core.log import get_logger
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.search.config import SearchConfig, make_space
from scitoolkit.search.history import History, load_history
from scitoolkit.search.live import LiveTable
from scitoolkit.search.objective import TrainedTrial
from scitoolkit.search.trial import Trial

log: Logger = get_logger(__name__)
BEST = "best"
WINNER = "winner.json"
_TRAINED = "trained"


class SearchJob(Job):
    """Search over the configuration of another job."""

    config_class: ClassVar[type[SearchConfig]] = SearchConfig
    continues_from = "trials.jsonl"
    searches = reports_while_running = True

    def processes(self, config: SearchConfig) -> AbstractContextManager[bool]:
        """Return the evaluator's session; of several MPI ranks, only the first runs the search."""
        return config.budget.evaluator.session()

    def check(self, config: SearchConfig) -> Mapping[str, Any]:
        """Sample 20 configurations and validate each one; nothing is trained or written.

        Returns:
            Size and variables of the space, three samples with their costs, and the domain's
            configuration class.

        Raises:
            ConfigProblems: a sampled configuration is invalid.
        """
        import random

        space, trial = make_space(config.space), evaluation(config)
        rng = random.Random(config.seed)
        samples = [space.sample(rng) for _ in range(20)]
        costs = [dict(trial.cost(sample)) for sample in samples]
        return {
            "size": space.size,
            "variables": list(space.variables),
            "samples": samples[:3],
            "costs": costs[:3],
            "surrogate": type(trial.resolve(samples[0])[0]).__name__,
        }

    def train(self, config: SearchConfig, run: RunDirectory, *, resume: bool = False) -> None:
        """Run the search, retrain the finalists and train the winner into `best/`.

        Args:
            config: of the search.
            run: run directory.
            resume: continue the log in `run`.

        Raises:
            DataError: no trial has a result.
        """
        from scitoolkit.search.manager import Search

        trial = evaluation(config)
        search = Search(
            make_space(config.space),
            trial,
            directory=run.path,
            strategy=config.strategy.build(),
            objectives=config.made_objectives(),
            cost=trial.cost,
            seed=config.seed,
            limits=config.budget.limits(),
            keep=config.keep,
            patience=config.budget.patience,
            disk_patience=config.budget.disk_patience,
        )
        for path in config.imported:
            search.import_trials(path)
        budget, final = config.budget, config.final
        resources = budget.resources(run.path / "workers")
        with LiveTable() as live:
            history = search.run(
                trials=budget.trials,
                seconds=budget.seconds,
                resume=resume,
                workers=lambda: budget.evaluator.build(trial, resources),
                retrain=(final.finalists, final.seeds) if final.finalists else None,
                progress=live.update,
            )
        log.info("%s: %s", search.stopped_because, summary_line(history))
        winner = history.winner()
        if winner is None:
            raise DataError("no trial has a result", where=str(run.path))
        write_atomic(
            run.path / WINNER,
            json.dumps({"trial": winner.id, "configuration": winner.configuration}, indent=1)
            + "\n",
        )
        if final.train:
            trial = dataclasses.replace(trial, settings=(*trial.settings, *final.settings))
            members = choose_members(history, winner, final.ensemble)
            for folder, member in zip(_folders(run.path, len(members)), members, strict=True):
                self._train_member(trial, member, folder)

    def _train_member(self, trial: TrainedTrial, member: Trial, folder: Path) -> None:
        """Train a configuration with its full budget and the seeds of its file, unless done.

        A folder of another configuration, the winner before more trials, is replaced.
        """
        job, config = trial.resolve(member.configuration)
        done, best = folder / _TRAINED, RunDirectory(folder)
        if folder.exists():
            text = best.config_path.read_text() if best.config_path.is_file() else ""
            if text != dump_config(config):
                shutil.rmtree(folder)
            elif done.exists():
                return
        for path in (best.checkpoints, best.report):
            path.mkdir(parents=True, exist_ok=True)
        write_atomic(best.config_path, dump_config(config))
        job.train(config, best, resume=any(best.checkpoints.iterdir()))
        # Written last: a folder without it was interrupted and is continued from its checkpoint.
        write_atomic(done, "")

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Write the tables and figures of the search, with the winner's test scores.

        The winner is scored on the test part by the first call only; later calls read the stored
        scores. With `data`, the winner is evaluated on that file and nothing is written.

        Raises:
            DataError: `data` is given and the winner has not been trained.
        """
        from scitoolkit.search.results import search_results

        directory = Path(directory)
        config = load_config(SearchConfig, directory / "config.yaml")
        best = directory / BEST
        tested = None
        if (best / "config.yaml").is_file():
            job = job_of(read_document(best / "config.yaml"))
            if data is not None:
                return job.evaluate(best, data)
            # The test split is used once: figures that exist are read, not computed again.
            scored = (best / "results.json").is_file()
            tested = Results.read(best) if scored else job.evaluate(best)
            if not (best / "results.json").is_file():
                tested.write(best)
        elif data is not None:
            raise _no_winner(best)
        history = load_history(directory)
        assert history.space is not None
        results = search_results(history, history.space, tested, title=config.workflow)
        results.write(directory)
        return results

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Apply the winner, or the ensemble of the best configurations, to a file.

        Raises:
            DataError: the winner has not been trained, or the members' predictions cannot be
                averaged.
        """
        config = load_config(SearchConfig, Path(directory) / "config.yaml")
        folders = _folders(Path(directory), config.final.ensemble)
        folders = [f for f in folders if (f / _TRAINED).is_file()]
        if not folders:
            raise _no_winner(Path(directory) / BEST)
        if len(folders) == 1:
            _predict_alone(folders[0], source, output)
            return
        from scitoolkit.search.ensemble import join_predictions

        with tempfile.TemporaryDirectory(prefix="scitoolkit-") as scratch:
            files = [Path(scratch) / f"{folder.name}.nc" for folder in folders]
            for folder, file in zip(folders, files, strict=True):
                _predict_alone(folder, source, file)
            join_predictions(files, output)


def _predict_alone(folder: Path, source: Path, output: Path) -> None:
    job_of(read_document(folder / "config.yaml")).predict(folder, source, output)


def _folders(directory: Path, count: int) -> list[Path]:
    """Return the folders of the trained members: `best`, `best_2`, ..."""
    return [directory / (f"{BEST}_{n}" if n > 1 else BEST) for n in range(1, count + 1)]


def choose_members(history: History, winner: Trial, count: int) -> list[Trial]:
    """Return up to `count` distinct configurations: the winner, finalists, then other trials."""
    finalists = [history.trials[row["trial"]] for row in history.finalists()]
    members: list[Trial] = []
    for trial in (winner, *finalists, *history.ranked()):
        if all(trial.configuration != member.configuration for member in members):
            members.append(trial)
    if len(members) < count:
        log.warning(
            "the ensemble has %d members instead of %d: the search found no more usable "
            "configurations. Fix: a larger budget.trials",
            len(members),
            count,
        )
    return members[:count]


def _no_winner(folder: Path) -> DataError:
    return DataError("the winner has not been trained", where=str(folder), fix="final.train=true")


def evaluation(config: SearchConfig) -> TrainedTrial:
    """Return the evaluation of a point of the space: training with the merged configuration."""
    return TrainedTrial(
        str(config.config),
        tuple(config.settings),
        tuple(config.seed_keys),
        config.budget_key,
        config.budget.processes_per_trial,
    )


def summary_line(history: History) -> str:
    """Return a one-line summary: finished, failed and interrupted trials, busy share."""
    failed = history.failures()
    text = f"{len(history.done)} trials done"
    if failed:
        kinds = ", ".join(f"{count} {kind}" for kind, count in failed.most_common())
        text += f", {sum(failed.values())} failed ({kinds})"
    if history.num_pruned:
        text += f", {history.num_pruned} pruned"
    if history.interrupted:
        text += f", {len(history.interrupted)} interrupted"
    return f"{text}, busy share {history.busy_share():.3f}"
