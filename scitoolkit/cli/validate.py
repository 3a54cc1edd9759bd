"""`scitoolkit validate`: every error of a configuration at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options

NAME = "validate"


def command(
    config: Annotated[Path, typer.Argument(help="A YAML file, a workflow folder, or a name.")],
    overrides: options.Overrides = None,
    resolved: Annotated[bool, typer.Option("--resolved", help="Print all settings.")] = False,
    as_json: options.Json = False,
) -> int | None:
    """List every error of a configuration, each with the nearest valid key."""
    from scitoolkit import api
    from scitoolkit.core.config import ConfigProblems, dump_config

    try:
        _, checked = api.load(config, overrides or [])
    except ConfigProblems as error:
        if not as_json:
            raise
        problems = [{"key": p.key, "where": p.where, "message": p.message} for p in error.problems]
        options.print_json({"valid": False, "problems": problems})
        return error.exit_code
    if as_json:
        options.print_json({"valid": True, "config": checked.model_dump(mode="json")})
    elif resolved:
        print(dump_config(checked), end="")
    else:
        print(f"{api.config_file(config)}: valid")
    return None
