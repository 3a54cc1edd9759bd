"""What a search has done so far: history, state of the strategy, log on disk, folders of trials.

All changes pass `apply`, on replay of a log too, so that a resumed search is in the state that the
log leads to.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from logging import Logger
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import CheckpointError, ConfigError, ScitoolkitError
from scitoolkit.core.log import get_logger
from scitoolkit.search.history import Event, History, checked_header
from scitoolkit.search.space import Codes, Space
from scitoolkit.search.strategies import Strategy
from scitoolkit.search.trial import Objective, Trial
from scitoolkit.search.trial_log import TrialLog

log: Logger = get_logger(__name__)

VERSION = 1
STATE_EVERY = 50


class SearchRecord:
    """The record of one search.

    Args:
        space: what is searched.
        strategy: learns from every event.
        objectives: of the trials.
        seed: of the search.
        directory: run directory; None keeps everything in memory.
        keep: number of best trials whose folders are kept.
        disk_patience: seconds to wait for space when the disk is full.

    Attributes:
        history: the trials.
        trial_log: the log on disk while the record is open, None without a directory.
    """

    def __init__(
        self, space: Space, strategy: Strategy, objectives: Sequence[Objective], *, seed: int,
        directory: Path | None, keep: int, disk_patience: float,
    ) -> None:  # fmt: skip
        self.space, self.strategy, self.objectives = space, strategy, tuple(objectives)
        self.seed, self.directory, self.keep = seed, directory, keep
        self.disk_patience = disk_patience
        self.history: History = History(self.objectives)
        self.trial_log: TrialLog | None = None
        self._kept: list[tuple[Any, int]] = []
        self._since_state = 0

    def open(
        self, resume: bool, admits: Callable[[Codes], bool], stack: contextlib.ExitStack
    ) -> None:
        """Open the log, and replay it where the search is resumed; `stack` closes it.

        Raises:
            ConfigError: there is nothing to resume, or a log and no wish to, or of another search.
            CheckpointError: the log is damaged or of another version.
        """
        self._since_state = 0
        self.strategy.start(self.space, self.seed, admits)
        if self.directory is None:
            if resume:
                raise ConfigError("nothing to resume: the search keeps no files",
                                  fix="Search(..., directory=FOLDER)")  # fmt: skip
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        self.trial_log = stack.enter_context(TrialLog(self.directory))
        events = self.trial_log.events
        if events and not resume:
            raise ConfigError(
                f"there is a search of {sum(e['event'] == 'finish' for e in events)} finished "
                "trials already", where=str(self.trial_log.path),
                fix="resume it, or use another folder",
            )  # fmt: skip
        if events:
            self._replay(events)

    def _replay(self, events: list[Event]) -> None:
        self._check_header(
            checked_header(events, where=str(self.trial_log and self.trial_log.path))
        )
        for event in events:
            trial = self.apply(event)
            if event["event"] == "state" and event["strategy"] != self.strategy.state():
                raise CheckpointError(
                    "the log does not lead to the state that it states",
                    where=str(self.trial_log and self.trial_log.path),
                    fix="resume with the version of scitoolkit that wrote it",
                )
            if event["event"] == "finish" and trial is not None:
                self.rank(trial)

    def _check_header(self, header: Event) -> None:
        where = str(self.trial_log and self.trial_log.path)
        if header["version"] != VERSION:
            raise CheckpointError(
                f"a log of version {header['version']}", where=where, allowed=f"version {VERSION}",
                fix="resume with the version of scitoolkit that wrote it, or start a new search",
            )  # fmt: skip
        changed = [f"space {line}" for line in self.space.difference(header["space"])]
        mine = self._settings()
        changed += [
            f"{name}: {header[name]} -> {mine[name]}"
            for name in mine
            if name != "space" and header.get(name) != mine[name]
        ]
        if changed:
            raise ConfigError(
                "resumed with another search: " + "; ".join(changed), where=where,
                fix="undo the change, or start a new search",
            )  # fmt: skip

    def _settings(self) -> dict[str, Any]:
        objectives = [
            {"name": o.name, "direction": o.direction, "limit": o.limit}
            | ({"constraint": True} if o.constraint else {})
            for o in self.objectives
        ]
        return {"space": plain(self.space.describe()), "seed": self.seed,
                "strategy": self.strategy.describe(), "objectives": objectives}  # fmt: skip

    def header(self, resume: bool, workers: int) -> Event:
        """Return the event that opens or resumes the log."""
        stamp = {"workers": workers, "time": time.time(), "t": self.history.clock}
        if self.history.trials or (resume and self.trial_log is not None and self.trial_log.events):
            return {"event": "resume", **stamp}
        return {"event": "open", "version": VERSION, **self._settings(), **stamp}

    def state_event(self) -> Event:
        """Return the event that proves where a replay must lead."""
        return {"event": "state", "strategy": self.strategy.state()}

    def write(self, events: list[Event]) -> None:
        """Write events to the log; when the disk is full, wait for space before giving up.

        Raises:
            ScitoolkitError: the disk stays full.
        """
        self._since_state += sum(e["event"] == "finish" for e in events)
        if self._since_state >= STATE_EVERY:
            self._since_state = 0
            events = [*events, self.state_event()]
        if events and events[0]["event"] in ("open", "resume") and not self.history.trials:
            self.history.apply(events[0])
        if self.trial_log is None or not events:
            return
        until = time.monotonic() + self.disk_patience
        while True:
            try:
                return self.trial_log.append(events)
            except ScitoolkitError as error:
                if time.monotonic() >= until:
                    raise
                log.warning("%s; trying again", error)
                time.sleep(min(1.0, self.disk_patience / 10))

    def apply(self, event: Event) -> Trial | None:
        """Apply an event to history and strategy; all state changes pass here, on replay too."""
        trial = self.history.apply(event)
        if trial is not None and trial.of is None:
            if event["event"] == "issue":
                self.strategy.on_issue(trial)
            elif event["event"] == "finish":
                self.strategy.observe(trial)
        return trial

    def folder(self, trial: Trial) -> Path | None:
        """Return the folder of a trial, which may not exist."""
        if self.directory is None:
            return None
        return self.directory / "trials" / f"{trial.id:06d}"

    def rank(self, trial: Trial) -> None:
        """Note a finished trial among the best, and remove the folder of who fell out."""
        if trial.of is not None:
            return
        if trial.status == "done":
            self._kept.append(((-trial.reached, trial.values), trial.id))
            self._kept.sort()
        if self.strategy.budgets:
            return  # any of them may go on; folders are removed at the end
        out = [trial.id] if trial.status == "failed" else []
        out += [number for _, number in self._kept[self.keep :]]
        del self._kept[self.keep :]
        for number in out:
            self._remove(number)

    def _remove(self, number: int) -> None:
        folder = self.folder(self.history.trials[number])
        if folder is not None and folder.exists():
            shutil.rmtree(folder, ignore_errors=True)

    def remove_folders(self) -> None:
        """Remove the folders of all finished trials but the best and those trained again."""
        if self.directory is None:
            return
        kept = {t.id for t in self.history.ranked()[: self.keep]}
        kept |= {t.id for t in self.history.trials.values() if t.of is not None}
        for trial in self.history.trials.values():
            if trial.id not in kept and trial.status != "running":
                self._remove(trial.id)


def plain(value: Any) -> Any:
    """Return data as it looks after JSON."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value
