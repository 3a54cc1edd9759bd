"""Choice of the run directory for a command: a new one, or the run that `--resume` continues."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from scitoolkit.core.config import Config, dump_config, read_document
from scitoolkit.core.errors import BackendError, ConfigError, DataError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.job_config import JobConfig
from scitoolkit.core.processes import current_rank, launch_name, was_restarted
from scitoolkit.core.resume import changed_settings, free_keys, identity
from scitoolkit.core.run_directory import RunDirectory

_FAILED_START = (ConfigError, DataError, BackendError)


def open_run(
    config: JobConfig, *, resume: bool, run_dir: Path | None = None, state: str
) -> RunDirectory:
    """Create a new run directory, or return the one to resume.

    Args:
        config: the validated configuration.
        resume: continue `run_dir`, or else the newest run of the same configuration that has saved
            state. Runs of other configurations and failed starts are ignored.
        run_dir: the run to continue.
        state: glob pattern, below the run directory, of the files that this kind of run resumes
            from.

    Raises:
        ConfigError: there is no run to continue, or only runs of other configurations.
    """
    if not resume:
        if run_dir is not None:
            raise ConfigError("--run-dir applies only to --resume", fix="add --resume")
        return RunDirectory.create(config.run.root, config.workflow, config)
    directory = _newest(config, state) if run_dir is None else RunDirectory.open(run_dir)
    changed = _changes(config, directory)
    if changed:
        raise ConfigError(
            "the configuration differs from that of the run to resume: " + "; ".join(changed),
            where=str(directory.config_path),
            allowed=f"changes in {', '.join(free_keys(type(config)))}",
            fix="undo the change, or start a new run without --resume",
        )
    return directory


@contextlib.contextmanager
def resumed(config: JobConfig, run: RunDirectory, state: str) -> Iterator[None]:
    """On rank 0, write the settings of a resumed run, the free ones of which may have changed.

    Only the job itself can compare some of them with what it resumes from: a space with a log, a
    schedule with a checkpoint. Where it ends before it has changed any of that, in a refusal for
    example, the former settings are written back, by which a later resume finds the run.

    Args:
        config: of the resumed run.
        run: the run, of `open_run`.
        state: glob pattern, below the run directory, of the files that it resumes from.
    """
    if current_rank() != 0:
        yield
        return
    former, before = run.config_path.read_text(encoding="utf-8"), _progress(run, state)
    write_atomic(run.config_path, dump_config(config))
    try:
        yield
    except BaseException:
        if _progress(run, state) == before:
            write_atomic(run.config_path, former)
        raise


def _progress(run: RunDirectory, state: str) -> set[tuple[Path, int, int]]:
    """Return size and time of the metrics and of the files that the run resumes from."""
    files = {run.metrics_path, *run.path.glob(state)} - {run.config_path}
    return {(p, p.stat().st_size, p.stat().st_mtime_ns) for p in files if p.exists()}


def run_of_restarted_launch(config: JobConfig) -> RunDirectory | None:
    """Return the run that this launch created before torchrun or Slurm restarted it.

    None for the first start, or if no run had been created yet. Runs of other launches with the
    same configuration are never returned.
    """
    name = launch_name()
    if not name or not was_restarted():
        return None
    base = Path(config.run.root) / config.workflow
    for path in sorted(base.glob("*"), reverse=True):
        run = RunDirectory(path)
        if run.config_path.is_file() and run.launch == name and _is_same(config, run):
            return run
    return None


def discard_failed_start(run: RunDirectory, error: BaseException) -> None:
    """Remove the directory of a run that failed on its data, settings or packages at the start.

    Otherwise a mistyped path would leave an empty run that looks like the newest one.
    """
    if not (run.is_empty() and isinstance(error, _FAILED_START)):
        return
    with contextlib.suppress(OSError):  # if another process holds a file open, the run remains
        shutil.rmtree(run.path)


def _newest(config: JobConfig, state: str) -> RunDirectory:
    """Return the newest run of this configuration with saved state, else the newest without."""
    base = Path(config.run.root) / config.workflow
    runs = [RunDirectory(p) for p in sorted(base.glob("*")) if (p / "config.yaml").is_file()]
    if not runs:
        raise ConfigError("no run to resume", where=str(base), fix="start without --resume")
    same = [run for run in runs if _is_same(config, run)]
    candidates = same or runs  # without a match, the error of the caller lists the differences
    saved = [run for run in candidates if any(run.path.glob(state))]
    return (saved or candidates)[-1]


def _is_same(config: Config, run: RunDirectory) -> bool:
    try:
        return not _changes(config, run)
    except ConfigError:  # written by a version with other settings
        return False


def _changes(config: Config, run: RunDirectory) -> list[str]:
    before = read_document(run.config_path).validate(type(config))
    return changed_settings(identity(before), identity(config))
