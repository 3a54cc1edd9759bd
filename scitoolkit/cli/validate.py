"""`scitoolkit validate`: all errors of a configuration, and the checks of its domain."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.errors import EXIT_USAGE

NAME = "validate"


def command(
    config: options.Config,
    overrides: options.Overrides = None,
    resolved: Annotated[bool, typer.Option("--resolved", help="Print all settings.")] = False,
    as_json: options.Json = False,
) -> int | None:
    """List all errors of a configuration, each with the nearest valid key."""
    from scitoolkit import api
    from scitoolkit.core.config import ConfigProblems, dump_config

    try:
        checked, findings = api.validate(config, overrides or [])
    except ConfigProblems as error:
        if not as_json:
            raise
        problems = [{"key": p.key, "where": p.where, "message": p.message} for p in error.problems]
        options.print_json({"valid": False, "problems": problems})
        return error.exit_code
    wrong = any(finding.level == "error" for finding in findings)
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
            print(f"{api.config_file(config)}: {'not valid' if wrong else 'valid'}")
    return EXIT_USAGE if wrong else None
