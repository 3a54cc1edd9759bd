"""Commands that run a job of a configuration: train, run, search, generate."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scitoolkit.cli import _options as options
from scitoolkit.cli.sweep import array_task, sweep
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.log import setup_logging


def job_command(
    action: str,
    about: str,
    show: Callable[[Path, bool], int | None],
    *,
    config: Any = options.Config,
    settings: Callable[..., list[str]] = options.no_settings,
    ranks: bool = False,
    sweeps: bool = False,
) -> Callable[..., int | None]:
    """Return a command that calls `scitoolkit.api.ACTION`, with --dry-run and --resume.

    Args:
        action: name of the function of `scitoolkit.api`.
        about: help text of the command.
        show: prints the outcome of a run directory as JSON or text on rank 0 and returns the exit
            code.
        config: annotation of the first argument.
        settings: converts the command's additional options, which are its parameters, into
            `key=value` settings.
        ranks: whether the command has the option --nproc.
        sweeps: whether it has the options --multirun and --jobs.
    """
    more = inspect.signature(settings, eval_str=True).parameters

    def command(**values: Any) -> int | None:
        from scitoolkit import api

        setup_logging(verbose=values["verbose"])
        path = values["config"]
        changes = [*(values["overrides"] or []), *settings(**{name: values[name] for name in more})]
        if values.get("multirun"):
            if values["resume"] or values["dry_run"] or values["nproc"] > 1:
                raise ConfigError(
                    "--multirun together with --resume, --dry-run or --nproc",
                    fix="resume one run with --run-dir; --jobs N runs N at a time",
                )
            task = array_task(changes)
            if task is None:
                return sweep(path, changes, values["jobs"], values["as_json"])
            changes = task
        elif "multirun" in values:
            _refuse_several(path, changes)
        if values["dry_run"]:
            facts = dict(api.check(path, changes))
            if "training" in facts:  # the duration last, where a terminal shows it
                facts["training"] = facts.pop("training")
            options.print_json(facts) if values["as_json"] else options.print_lines(facts)
            return None
        if values.get("nproc", 1) > 1:
            api.load(path, changes)  # report configuration errors once, not on every rank
            return options.relaunch(values["nproc"])
        do = getattr(api, action)
        run = do(path, changes, resume=values["resume"], run_dir=values["run_dir"])
        return (
            show(run.path, values["as_json"])
            if run is not None and options.is_main_rank()
            else None
        )

    def parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(name, kind, default=default, annotation=annotation)

    # Typer reads arguments and options from the signature.
    parameters = [
        parameter("config", config, inspect.Parameter.empty),
        parameter("overrides", options.Overrides, None),
        *(parameter(p.name, p.annotation, p.default) for p in more.values()),
        *([parameter("nproc", options.NProc, 1)] if ranks else []),
        *(
            [parameter("multirun", options.Multirun, False), parameter("jobs", options.Jobs, 1)]
            if sweeps
            else []
        ),
        parameter("resume", options.Resume, False),
        parameter("run_dir", options.RunDir, None),
        parameter("dry_run", options.DryRun, False),
        parameter("as_json", options.Json, False),
        parameter("verbose", options.Verbose, False),
    ]
    command.__doc__ = about
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _refuse_several(path: Path, changes: list[str]) -> None:
    """Raise ConfigError if settings are valid only as several values, each for one run.

    Raises:
        ConfigError: with --multirun as the fix.
    """
    from scitoolkit import api
    from scitoolkit.core.config import ConfigProblems
    from scitoolkit.core.sweep import combinations, swept

    keys = swept(changes)
    if not keys:
        return
    try:
        api.load(path, changes)
    except ConfigProblems as error:
        runs = combinations(changes)
        api.load(path, runs[0])
        raise ConfigError(
            error.what, fix=f"--multirun, for {len(runs)} runs with one value of {', '.join(keys)}"
        ) from None
