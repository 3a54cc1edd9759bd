"""Listing, comparison and cleaning of the run directories below a root folder."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from scitoolkit.core.config import read_document
from scitoolkit.core.errors import ConfigError, DataError, ScitoolkitError
from scitoolkit.core.results import FILE_NAME, Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.suggest import nearest_name

Status = Literal["evaluated", "trained", "stopped", "empty"]
STAMP = "%Y%m%dT%H%M%SZ"
MODEL = "model"
RECENT_SECONDS = 3600.0
"""A run that changed within this time may still be running."""


@dataclass(frozen=True)
class RunSummary:
    """One run below a root folder.

    Attributes:
        path: the run directory.
        workflow: name of the folder of the run.
        started: UTC time of the start, ISO 8601.
        status: `evaluated` (has results), `trained` (has a model), `stopped` (has other output,
            such as checkpoints) or `empty`.
        recent: whether files other than results have changed within `RECENT_SECONDS` and since the
            last evaluation, so that the run may still be running.
        bytes: size of all files.
        verdict: main metric compared with the best baseline, "" without one.
        problem: why the results cannot be read, "" if they can.
    """

    path: Path
    workflow: str
    started: str
    status: Status
    recent: bool
    bytes: int
    verdict: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Removal:
    """A folder that `clean_runs` removes: a run, or the checkpoints of a run.

    Attributes:
        path: the folder.
        bytes: its size.
        reason: why it is removed.
    """

    path: Path
    bytes: int
    reason: str


@dataclass(frozen=True)
class Comparison:
    """Differences between runs.

    Attributes:
        runs: the run directories.
        settings: values of each setting that differs, in the order of `runs`; None where a run does
            not have the setting.
        metrics: values of each metric, in the order of `runs`; None where a run does not have it.
        units: unit of each metric that has one.
    """

    runs: tuple[Path, ...]
    settings: dict[str, list[Any]]
    metrics: dict[str, list[float | int | str | None]]
    units: dict[str, str]


def list_runs(root: Path | str = "runs", workflow: str = "") -> list[RunSummary]:
    """Return the runs in `root/<workflow>/`, the newest first.

    Args:
        root: folder of the runs, `run.root` of the configurations.
        workflow: list the runs of this workflow only.

    Raises:
        ConfigError: there is no run of that workflow.

    Example:
        >>> list_runs("no_such_folder")
        []
    """
    runs = [_summary(path) for path in _run_paths(Path(root))]
    if workflow:
        workflows = sorted({run.workflow for run in runs})
        runs = [run for run in runs if run.workflow == workflow]
        if not runs:
            raise ConfigError(
                f"no run of workflow {workflow!r}",
                where=str(root),
                allowed=", ".join(workflows),
                fix=nearest_name(workflow, workflows) or "",
            )
    return sorted(runs, key=lambda run: (run.started, str(run.path)), reverse=True)


def find_run(name: Path | str, root: Path | str = "runs") -> Path:
    """Return a run directory, given its path or the name of its folder below `root`.

    A unique beginning of the name is sufficient; the name of a workflow stands for its newest run.

    Raises:
        ConfigError: no run has that name, or several have.
    """
    if (Path(name) / "config.yaml").is_file():
        return Path(name)
    paths = sorted(_run_paths(Path(root)), key=lambda path: path.name)
    of_workflow = [path for path in paths if path.parent.name == str(name)]
    if of_workflow:
        return of_workflow[-1]
    text = str(name)
    matches = [p for p in paths if p.name.startswith(text)] if text else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        shown = ", ".join(p.name for p in matches[:5]) + (", ..." if len(matches) > 5 else "")
        what = f"{len(matches)} runs begin with {text!r}"
        raise ConfigError(what, where=str(root), allowed=shown)
    raise ConfigError(f"no run {text!r}", where=str(root), fix="scitoolkit runs")


def compare_runs(names: Sequence[Path | str], root: Path | str = "runs") -> Comparison:
    """Return the settings in which runs differ, and their metrics.

    Args:
        names: two or more runs, see `find_run`.
        root: folder of the runs.

    Raises:
        ConfigError: fewer than two runs, or an unknown one.
        DataError: a run has not been evaluated.
    """
    if len(names) < 2:
        raise ConfigError(f"{len(names)} run to compare", allowed="two or more runs")
    paths = tuple(find_run(name, root) for name in names)
    settings = [dict(_flat(read_document(path / "config.yaml").raw)) for path in paths]
    results = [Results.read(path) for path in paths]
    keys = dict.fromkeys(key for one in settings for key in one)
    values = {key: [one.get(key) for one in settings] for key in keys}
    differing = {k: v for k, v in values.items() if any(value != v[0] for value in v)}
    metrics = dict.fromkeys(name for result in results for name in result.metrics)
    units = {name: unit for result in reversed(results) for name, unit in result.units.items()}
    return Comparison(
        paths,
        differing,
        {name: [result.metrics.get(name) for result in results] for name in metrics},
        {name: unit for name, unit in units.items() if name in metrics},
    )


def clean_runs(
    root: Path | str = "runs",
    workflow: str = "",
    *,
    keep: int | None = None,
    checkpoints: bool = False,
    remove: bool = False,
) -> list[Removal]:
    """Remove empty runs and, if requested, old runs and checkpoints that are no longer needed.

    Runs that may still be running are never touched, see `RunSummary.recent`.

    Args:
        root: folder of the runs.
        workflow: clean the runs of this workflow only.
        keep: also remove all runs but the newest `keep` of each workflow.
        checkpoints: also remove the checkpoints of evaluated runs, which `--resume` needs but
            `evaluate`, `predict` and `report` do not.
        remove: remove the folders; otherwise only return them.

    Returns:
        The folders that are removed, or would be.

    Raises:
        ConfigError: `keep` is negative, or there is no run of that workflow.
        DataError: a folder cannot be removed.
    """
    if keep is not None and keep < 0:
        raise ConfigError(f"keep {keep}", allowed="0 or more")
    removals = list(_removals(list_runs(root, workflow), keep, checkpoints))
    for removal in removals if remove else ():
        try:
            shutil.rmtree(removal.path)
            if removal.path.name == "checkpoints":
                removal.path.mkdir()
        except OSError as error:
            raise DataError(
                f"cannot be removed ({error.strerror or error})",
                where=str(removal.path),
                fix="remove it with the rights of its owner",
            ) from None
    return removals


def _removals(runs: Sequence[RunSummary], keep: int | None, checkpoints: bool) -> Iterator[Removal]:
    complete: dict[str, int] = {}
    for run in runs:
        if run.recent:
            continue
        if run.status == "empty":
            yield Removal(run.path, run.bytes, "empty")
            continue
        complete[run.workflow] = complete.get(run.workflow, 0) + 1
        if keep is not None and complete[run.workflow] > keep:
            yield Removal(run.path, run.bytes, f"not one of the newest {keep}")
        elif checkpoints and run.status == "evaluated":
            folder = RunDirectory(run.path).checkpoints
            size = _size(folder)
            if size:
                yield Removal(folder, size, "checkpoints of an evaluated run")


def _run_paths(root: Path) -> Iterator[Path]:
    """Yield the run directories of all workflows; symbolic links are not followed."""
    if any(_is_run(folder) for folder in (root.resolve(), *root.resolve().parents)):
        raise ConfigError("a folder inside a run", where=str(root), fix="--root runs")
    for config in root.glob("*/*/config.yaml"):
        run = config.parent
        if _is_run(run) and not (run.is_symlink() or run.parent.is_symlink()):
            yield run


def _is_run(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("config.yaml", "env.json"))


def _summary(path: Path) -> RunSummary:
    run = RunDirectory(path)
    status: Status = "empty" if run.is_empty() else "stopped"
    if (path / MODEL).is_dir():
        status = "trained"
    verdict = problem = ""
    evaluated = 0.0
    with contextlib.suppress(OSError):
        evaluated = (path / FILE_NAME).stat().st_mtime
        status = "evaluated"
        try:
            results = Results.read(path)
            verdict = results.verdict.sentence if results.verdict else ""
        except ScitoolkitError as error:
            problem = error.what
    changed = _changed(run)
    recent = changed > evaluated and time.time() - changed < RECENT_SECONDS
    return RunSummary(
        path, path.parent.name, _started(path), status, recent, _size(path), verdict, problem
    )


def _started(path: Path) -> str:
    """Return the start of a run by the name of its folder, else by its configuration's age."""
    try:
        moment = datetime.strptime(path.name[:16], STAMP).replace(tzinfo=UTC)
    except ValueError:
        moment = datetime.fromtimestamp((path / "config.yaml").stat().st_mtime, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # removed meanwhile
            total += path.lstat().st_size if path.is_file() else 0
    return total


def _changed(run: RunDirectory) -> float:
    """Return when a file other than results was changed last, in seconds since the epoch."""
    latest = 0.0
    for path in run.path.rglob("*"):
        results = path.name.startswith("results.") or path.name in ("metrics.json", "run.log")
        if results or path.is_dir() or run.report in path.parents:
            continue
        with contextlib.suppress(OSError):  # removed meanwhile
            latest = max(latest, path.lstat().st_mtime)
    return latest


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
