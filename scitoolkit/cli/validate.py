"""`scitoolkit validate`: all errors of a configuration, and the checks of its domain."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.errors import EXIT_DATA

NAME = "validate"


def command(
    config: options.Config,
    overrides: options.Overrides = None,
    resolved: Annotated[bool, typer.Option("--resolved", help="Print all settings.")] = False,
    no_data: Annotated[
        bool,
        typer.Option("--no-data", help="The data are on another machine: leave out their checks."),
    ] = False,
    as_json: options.Json = False,
) -> int | None:
    """List all errors of a configuration, each with the nearest valid key."""
    from scitoolkit import api
    from scitoolkit.core.config import ConfigProblems, dump_config

    try:
        checked, findings = api.validate(config, overrides or [], data=not no_data)
    except ConfigProblems as error:
        if not as_json:
            raise
        problems = [asdict(problem) for problem in error.problems]
        options.print_json({"valid": False, "problems": problems})
        return error.exit_code
    errors = [finding.exit_code for finding in findings if finding.level == "error"]
    wrong = bool(errors)
    apart = any(finding.exit_code == EXIT_DATA for finding in findings) and not wrong
    if as_json:
        rows = [{"key": f.key, "level": f.level, "message": f.message} for f in findings]
        dumped = checked.model_dump(mode="json")
        options.print_json({"valid": not wrong, "findings": rows, "config": dumped})
    elif resolved:
        print(dump_config(checked), end="")
    if not as_json:
        for finding in findings:
            print(finding, file=sys.stderr)
        if not resolved:
            outcome = "not valid" if wrong else "valid"
            if wrong and all(code == EXIT_DATA for code in errors):
                outcome += "; --no-data leaves out checks of data that are on another machine"
            outcome += ", apart from data that are not here" if apart else ""
            print(f"{api.config_file(config)}: {outcome}")
    return min(errors, default=None)
