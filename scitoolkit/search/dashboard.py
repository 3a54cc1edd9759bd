"""A search as a study of Optuna, which optuna-dashboard shows while the search runs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from datetime import datetime
from logging import Logger
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import BackendError, ConfigError, missing_extra
from scitoolkit.core.log import get_logger
from scitoolkit.search.history import History
from scitoolkit.search.json_values import json_data
from scitoolkit.search.parameters import Categorical, Integer, Variable
from scitoolkit.search.reports import read_reports, trial_folder
from scitoolkit.search.trial import Trial
from scitoolkit.search.trial_log import read_events

log: Logger = get_logger(__name__)
_EVERY = 2.0


class OptunaCopy:
    """Copy of a search's log in a storage of Optuna, which `update` brings up to date.

    Trials have the names, ranges and values of the parameters; a chain has one for each node and
    skip. Metrics that are no objectives, seed, origin and failure are attributes of a trial.
    Retrained finalists, and trials outside a changed space, are left out. A running trial has the
    epochs that it has reported so far: the first objective, or the first metric where that is not
    reported.

    Args:
        directory: run directory of the search, which may be running.
        storage: of Optuna, for example `InMemoryStorage()`.

    Raises:
        CheckpointError: the log is missing or damaged.
    """

    def __init__(self, directory: Path, storage: Any) -> None:
        self.directory, self.storage = Path(directory), storage
        self._space: Mapping[str, Any] | None = None
        self._spaces = 0
        self._copied: dict[int, int] = {}
        self._finished: set[int] = set()
        self.update()

    def update(self) -> None:
        """Read the log and add what is new; a space that changed begins another study."""
        events = read_events(self.directory)
        history = History.from_events(events)
        assert history.space is not None
        # Optuna refuses a second range of one name in a study: a changed space needs another one.
        described = json_data(history.space.describe())
        if described != self._space:
            self._begin(history)
            self._space = described
        kinds = history.space.variables
        for trial in history.searched:
            if trial.outside or trial.id in self._finished:
                continue
            # The log has the epochs of ended trials; those of running ones are in their folders.
            if trial.status == "running":
                trial.epochs += read_reports(trial_folder(self.directory, trial.id))
            made = _optuna_trial(trial, kinds, history, float(events[0].get("time", 0.0)))
            if trial.id not in self._copied:
                self._copied[trial.id] = self.storage.create_new_trial(self._study, made)
            else:
                self._move(self._copied[trial.id], made)
            self._finished |= {trial.id} if made.state.is_finished() else set()

    def _begin(self, history: History) -> None:
        import optuna

        self._spaces += 1
        later = f", space {self._spaces}" if self._spaces > 1 else ""
        study = optuna.create_study(
            storage=self.storage,
            study_name=f"{self.directory.resolve().name}{later}",
            directions=[
                "maximize" if o.direction == "max" else "minimize" for o in history.objectives
            ],
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names([o.name for o in history.objectives])
        self._study: int = self.storage.get_study_id_from_name(study.study_name)
        self._copied, self._finished = {}, set()

    def _move(self, number: int, made: Any) -> None:
        """Add new epochs to a trial that was running, and its result if it has finished."""
        before = self.storage.get_trial(number).intermediate_values
        for epoch, value in made.intermediate_values.items():
            if before.get(epoch) != value:
                self.storage.set_trial_intermediate_value(number, epoch, value)
        if not made.state.is_finished():
            return
        # A finished trial cannot be changed: its state is the last thing that is written.
        for name, value in made.user_attrs.items():
            self.storage.set_trial_user_attr(number, name, value)
        self.storage.set_trial_state_values(number, made.state, made.values)


def _optuna_trial(
    trial: Trial, kinds: Mapping[str, Variable], history: History, begun: float
) -> Any:
    """Return a trial in Optuna's form; `begun` is the time of the search's first second."""
    from optuna.trial import TrialState, create_trial

    states = {"done": "COMPLETE", "failed": "FAIL", "pruned": "PRUNED", "running": "RUNNING"}
    coded = zip(kinds.items(), trial.codes, strict=True)
    active = {name: (kind, code) for (name, kind), code in coded if code is not None}
    names = [o.name for o in history.objectives]
    attributes = {
        **{name: value for name, value in trial.metrics.items() if name not in names},
        "trial": trial.id,
        "origin": trial.origin,
        "seed": trial.seed,
        **({"failure": trial.failure} if trial.failure else {}),
    }
    # Losses are negated values of what is maximised; Optuna has the values and the direction.
    values = [
        -loss if o.direction == "max" else loss
        for o, loss in zip(history.objectives, trial.values, strict=False)
    ]
    made = create_trial(
        state=TrialState[states[trial.status]],
        params={name: _shown(kind, code) for name, (kind, code) in active.items()},
        distributions={name: _distribution(kind) for name, (kind, _) in active.items()},
        values=values if trial.status == "done" else None,
        intermediate_values=_curve(trial, names[0]),
        user_attrs=attributes,
    )
    if trial.spans:
        made.datetime_start = datetime.fromtimestamp(begun + trial.spans[0][0])
    if trial.spans and made.state.is_finished():
        made.datetime_complete = datetime.fromtimestamp(begun + trial.spans[-1][1])
    return made


def _curve(trial: Trial, objective: str) -> dict[int, float]:
    """Return the values of the epochs: of the objective, else of the first metric reported."""
    reported = [name for row in trial.epochs for name in row if name != "epoch"]
    shown = objective if objective in reported else next(iter(reported), objective)
    rows = [(int(row["epoch"] or 0), row.get(shown)) for row in trial.epochs]
    return {epoch: value for epoch, value in rows if value is not None}


def _distribution(kind: Variable) -> Any:
    """Return Optuna's distribution of the values, of which `_shown` returns one."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(kind, Categorical):
        return CategoricalDistribution([_shown(kind, code) for code in range(kind.levels)])
    if isinstance(kind, Integer):  # with a logarithm Optuna has no steps
        return IntDistribution(kind.low, kind.high, kind.log, 1 if kind.log else kind.step)
    return FloatDistribution(kind.low, kind.high, kind.log)


def _shown(kind: Variable, code: Any) -> Any:
    value = kind.value(code)
    if isinstance(kind, Categorical) and not isinstance(value, str | int | float | bool | None):
        return str(json_data(value))
    return value


def exported(directory: Path, output: Path) -> Path:
    """Write a search to a new journal of Optuna, which `optuna-dashboard FILE` opens.

    Raises:
        BackendError: Optuna is not installed.
        CheckpointError: the log is missing or damaged.
        ConfigError: the file exists.
    """
    storages = _optuna().storages
    if output.exists():
        raise ConfigError("exists", where=str(output), fix="another name")
    journal = storages.journal.JournalFileBackend(str(output))
    OptunaCopy(directory, storages.JournalStorage(journal))
    return output


def serve_dashboard(directory: Path, host: str, port: int) -> None:
    """Show a search, which may be running, in optuna-dashboard until it is interrupted.

    Raises:
        BackendError: Optuna or optuna-dashboard is not installed.
        CheckpointError: the log is missing or damaged.
    """
    storages = _optuna().storages
    try:
        from optuna_dashboard import run_server
    except ImportError:
        raise BackendError(
            "the dashboard needs the package 'optuna-dashboard'",
            fix="pip install optuna-dashboard, or `scitoolkit report RUN` for a page of now",
        ) from None
    copy = OptunaCopy(directory, storages.InMemoryStorage())
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(_EVERY):
            try:
                copy.update()
            except Exception as error:  # the page stays up, and the next turn reads again
                log.warning("%s", error)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    log.info("http://%s:%d (end with Ctrl-C)", host, port)
    try:
        run_server(copy.storage, host=host, port=port)
    finally:
        ended.set()
        thread.join()


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise missing_extra("optuna", "search", "a dashboard") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
