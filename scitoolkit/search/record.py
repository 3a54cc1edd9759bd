"""State of a search: history, strategy, log on disk, and folders of trials.

All state changes pass through `apply`, live and on replay, so that a resumed search has the same
state as the search that wrote the log.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from logging import Logger
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import CheckpointError, ConfigError, ScitoolkitError
from scitoolkit.core.log import get_logger
from scitoolkit.search.history import DAMAGES, Event, History, checked_header, damaged_event
from scitoolkit.search.json_values import json_data
from scitoolkit.search.replay import Replay
from scitoolkit.search.reports import trial_folder
from scitoolkit.search.space import Codes, Space
from scitoolkit.search.strategies import Strategy
from scitoolkit.search.trial import Objective, Trial
from scitoolkit.search.trial_log import TrialLog

log: Logger = get_logger(__name__)

VERSION = 1
STATE_EVERY = 50


class SearchRecord:
    """State of one search and its log.

    Args:
        space: search space.
        strategy: updated by every event.
        objectives: objectives and constraints.
        seed: of the search.
        directory: run directory; None stores everything in memory.
        keep: number of best trials whose folders are retained.
        disk_patience: seconds during which a failed write is retried.

    Attributes:
        history: all trials.
        trial_log: log on disk while the record is open, None without a directory.
    """

    def __init__(
        self,
        space: Space,
        strategy: Strategy,
        objectives: Sequence[Objective],
        *,
        seed: int,
        directory: Path | None,
        keep: int,
        disk_patience: float,
    ) -> None:
        self.space, self.strategy, self.objectives = space, strategy, tuple(objectives)
        self.seed, self.directory, self.keep = seed, directory, keep
        self.disk_patience = disk_patience
        self.history: History = History(self.objectives)
        self.trial_log: TrialLog | None = None
        self._best: list[tuple[Any, int]] = []
        self._changed_space = False
        self._replayed: Replay | None = None
        self._since_state = 0

    def open(
        self,
        resume: bool,
        admits: Callable[[Codes], bool],
        stack: contextlib.ExitStack,
        shared: bool = False,
    ) -> None:
        """Start the strategy and open the log; on resume, replay it.

        Args:
            resume: whether to continue an existing log.
            admits: whether codes satisfy the cost limits.
            stack: closes the log.
            shared: whether other managers may use the log, which this one begins or joins.

        Raises:
            ConfigError: resume without a directory, an existing log without `resume`, or a log
                of another search.
            CheckpointError: the log is damaged or of another version.
        """
        self._since_state = 0
        self.strategy.start(self.space, self.seed, admits)
        if self.directory is None:
            if resume or shared:
                raise ConfigError(
                    f"nothing to {'resume' if resume else 'share'}: the search has no directory",
                    fix="Search(..., directory=FOLDER)",
                )
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        self.trial_log = stack.enter_context(TrialLog(self.directory, shared=shared))
        events = self.trial_log.events
        if events and not (resume or shared):
            raise ConfigError(
                f"a search with {sum(e['event'] == 'finish' for e in events)} finished trials "
                "already exists",
                where=str(self.trial_log.path),
                fix="resume it, or use another folder",
            )
        if events:
            self._replay(events)

    def _replay(self, events: list[Event]) -> None:
        path = str(self.trial_log and self.trial_log.path)
        self._check_header(checked_header(events, where=path))
        self._replayed = replay = Replay(self.space, path)
        excluded: list[str] = []
        for event in events:
            trial = self._read_event(replay, event)
            if event["event"] == "issue" and trial is not None and "codes" in event:
                if not trial.outside and not self.space.allows(trial.codes):
                    excluded.append(f"trial {trial.id} {trial.configuration}")
        if excluded:
            more = f" and {len(excluded) - 3} more" if len(excluded) > 3 else ""
            raise ConfigError(
                f"`where` excludes configurations of the log: {'; '.join(excluded[:3])}{more}",
                where=path,
                allowed="the `where` with which the search began",
                fix="undo the change, or start a new search",
            )
        if replay.outside and not replay.inside:
            raise _other_search([f"space {line}" for line in replay.changes], path)
        if replay.outside:
            log.warning(
                "%d of %d trials of the log are outside the changed space (%s) and are set aside",
                replay.outside,
                replay.outside + replay.inside,
                "; ".join(replay.changes),
            )
        self._changed_space = not replay.same
        if self._changed_space and self.shared:
            raise _other_search([f"space {line}" for line in replay.changes], path)

    def _read_event(self, replay: Replay, event: Event) -> Trial | None:
        """Apply an event of the log; return its trial."""
        try:
            event = replay(event)
            trial = self.apply(event)
        except ScitoolkitError:
            raise
        except DAMAGES as error:
            name = f"event `{event.get('event')}` of trial {event.get('trial')}"
            raise damaged_event(name, error, replay.where) from None
        # In another space the strategy received other trials.
        if event["event"] == "state" and replay.same:
            if event["strategy"] != self.strategy.state():
                raise CheckpointError(
                    "the log does not lead to the state that it records",
                    where=replay.where,
                    fix="resume with the version of scitoolkit that wrote it",
                )
        if event["event"] == "finish" and trial is not None:
            self.rank(trial)
        return trial

    @property
    def shared(self) -> bool:
        """Whether other managers may use the log."""
        return self.trial_log is not None and self.trial_log.shared

    @property
    def manager(self) -> str:
        """Name of this manager in a shared log, "" otherwise."""
        return "" if self.trial_log is None else self.trial_log.manager

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Apply what other managers of a shared log have written, and keep them out meanwhile.

        Everything that reads the state to decide on events, and writes them, happens in a turn.
        """
        if self.trial_log is None or not self.trial_log.shared:
            yield
            return
        with self.trial_log.turn():
            for event in self.trial_log.read_new():
                if self._replayed is None:  # the log began after this manager had opened it
                    self._check_header(checked_header([event], where=str(self.trial_log.path)))
                    self._replayed = Replay(self.space, str(self.trial_log.path))
                self._read_event(self._replayed, event)
            yield

    def orphans(self) -> list[Trial]:
        """Return the running trials whose manager has ended; all of them in a log of one."""
        running = [t for t in self.history.running if t.manager != self.manager or not self.shared]
        if self.trial_log is None or not self.shared:
            return running
        alive = {name: self.trial_log.is_alive(name) for name in {t.manager for t in running}}
        return [t for t in running if not alive[t.manager]]

    def _check_header(self, header: Event) -> None:
        where = str(self.trial_log and self.trial_log.path)
        if header["version"] != VERSION:
            raise CheckpointError(
                f"a log of version {header['version']}",
                where=where,
                allowed=f"version {VERSION}",
                fix="resume with the version of scitoolkit that wrote it, or start a new search",
            )
        mine = self._settings()
        changed = [
            f"{name}: {header[name]} -> {mine[name]}"
            for name in mine
            if name != "space" and header.get(name) != mine[name]
        ]
        if changed:
            spaces = [f"space {line}" for line in self.space.difference(header["space"])]
            raise _other_search(spaces + changed, where)

    def _settings(self) -> dict[str, Any]:
        objectives = [
            {"name": o.name, "direction": o.direction, "limit": o.limit}
            | ({"constraint": True} if o.constraint else {})
            | ({"tolerance": o.tolerance} if o.tolerance else {})
            for o in self.objectives
        ]
        return {
            "space": json_data(self.space.describe()),
            "seed": self.seed,
            "strategy": self.strategy.describe(),
            "objectives": objectives,
        }

    def header(self, workers: int) -> Event:
        """Return the event that opens or resumes the log."""
        stamp: Event = {"workers": workers, "time": time.time(), "t": self.history.clock}
        if self.shared:
            stamp["manager"] = self.manager
        if self._replayed is not None or self.history.trials:
            space = {"space": json_data(self.space.describe())} if self._changed_space else {}
            return {"event": "resume", **space, **stamp}
        return {"event": "open", "version": VERSION, **self._settings(), **stamp}

    def state_event(self) -> Event:
        """Return the event with the strategy's state, against which a replay is checked."""
        return {"event": "state", "strategy": self.strategy.state()}

    def last_events(self) -> list[Event]:
        """Return the events that end a session."""
        left: list[Event] = [{"event": "leave", "manager": self.manager}] if self.shared else []
        return [self.state_event(), *left]

    def write(self, events: list[Event]) -> None:
        """Write events to the log, retrying a failed write for `disk_patience` seconds.

        Raises:
            ScitoolkitError: the log still cannot be written.
        """
        self._since_state += sum(e["event"] == "finish" for e in events)
        if self._since_state >= STATE_EVERY:
            self._since_state = 0
            events = [*events, self.state_event()]
        if events and events[0]["event"] in ("open", "resume"):
            self.history.apply(events[0])
            self._replayed = self._replayed or Replay(self.space)
        if self.trial_log is None or not events:
            return
        until, told = time.monotonic() + self.disk_patience, False
        while True:
            try:
                return self.trial_log.append(events)
            except ScitoolkitError as error:
                if time.monotonic() >= until:
                    raise
                if not told:
                    log.warning("%s; trying again for %.0f s", error, self.disk_patience)
                    told = True
                time.sleep(min(1.0, self.disk_patience / 10))

    def apply(self, event: Event) -> Trial | None:
        """Apply an event to history and strategy, live or on replay; return its trial."""
        trial = self.history.apply(event)
        if trial is not None and trial.of is None and not trial.outside:
            if event["event"] == "issue":
                self.strategy.on_issue(trial)
            elif event["event"] == "finish":
                self.strategy.observe(trial)
        return trial

    def folder(self, trial: Trial) -> Path | None:
        """Return the folder of a trial, which may not exist; None without a directory."""
        if self.directory is None:
            return None
        return trial_folder(self.directory, trial.id)

    def rank(self, trial: Trial) -> None:
        """Rank a finished trial; remove the folders of trials that are not among the best."""
        if trial.of is not None or trial.outside:
            return
        if trial.status == "done":
            # Larger budgets first, as in `History.ranked`: otherwise the folder of the winner is
            # removed.
            self._best.append(((-trial.reached, trial.values), trial.id))
            self._best.sort()
        if self.strategy.budgets:
            return  # any trial may still be promoted; `remove_folders` runs at the end
        out = [trial.id] if trial.status in ("failed", "pruned") else []
        out += [number for _, number in self._best[self.keep :]]
        del self._best[self.keep :]
        for number in out:
            self._remove(number)

    def _remove(self, number: int) -> None:
        folder = self.folder(self.history.trials[number])
        if folder is not None and folder.exists():
            shutil.rmtree(folder, ignore_errors=True)

    def remove_folders(self) -> None:
        """Remove the folders of all finished trials except the best and retrained ones."""
        if self.directory is None:
            return
        retained = {t.id for t in self.history.ranked()[: self.keep]}
        retained |= {t.id for t in self.history.trials.values() if t.of is not None}
        for trial in self.history.trials.values():
            if trial.id not in retained and trial.status != "running":
                self._remove(trial.id)


def _other_search(changed: list[str], where: str) -> ConfigError:
    return ConfigError(
        "the log belongs to another search: " + "; ".join(changed),
        where=where,
        fix="undo the change, or start a new search",
    )
