"""`scitoolkit init`: a short configuration for the user's data."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.errors import ConfigError

NAME = "init"


def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="TASK", help="emulate, superres, forecast, compress, potential or graph."
        ),
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILES", help="Files, a folder, or a quoted pattern."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write; printed by default.")
    ] = None,
    dims: Annotated[
        str,
        typer.Option(help="Dim names for files that store none, e.g. simulation,time,y,x."),
    ] = "",
    sample_dim: Annotated[
        str,
        typer.Option(help="The dim that counts samples, where the files do not say which."),
    ] = "",
    level: Annotated[
        str,
        typer.Option(help="The level to read, such as 500, or `channels`: each is a channel."),
    ] = "",
    member: Annotated[str, typer.Option(help="The member of an ensemble to read, such as 0.")] = "",
    as_json: options.Json = False,
) -> None:
    """Inspect data and write a short commented configuration for them, ready to run."""
    from scitoolkit.core.content import shipped_path
    from scitoolkit.core.files import write_atomic
    from scitoolkit.core.jobs import job_for_task, tasks
    from scitoolkit.core.starter import DataToStart

    if not files:
        is_task = what in tasks() and not Path(what).exists()
        raise ConfigError(
            "no file" if is_task else "no task",
            where=f"scitoolkit init {what}",
            allowed="" if is_task else ", ".join(tasks()),
            fix=f"scitoolkit init {what} FILES"
            if is_task
            else f"scitoolkit init TASK {shlex.quote(what)}",
        )
    if output is not None and output.exists():
        raise ConfigError("already exists", where=str(output), fix="choose another name with -o")
    # Paths in a configuration are relative to it.
    folder = Path() if output is None else output.parent
    sources = [str(shipped_path(f)) for f in files]
    written = [
        named if os.path.isabs(named) or file != named else os.path.relpath(named, folder)
        for named, file in zip(files, sources, strict=True)
    ]
    names = [d for d in dims.split(",") if d]
    job = job_for_task(what)
    chosen = {"--sample-dim": sample_dim, "--level": level, "--member": member}
    unused = [option for option, value in chosen.items() if value]
    if unused and job.task != "emulate":
        raise ConfigError(
            f"{unused[0]} is for init emulate",
            where=f"scitoolkit init {what}",
            fix=f"leave {unused[0]} out, and state it under `data:` of the configuration",
        )
    text = job.starter(DataToStart(sources, written, names, sample_dim, level, member))
    if as_json:
        options.print_json({"path": str(output) if output else None, "text": text})
    if output is None:
        if not as_json:
            print(text, end="")
        return
    options.make_folder(output.parent)
    write_atomic(output, text)
    if not as_json:
        print(f"{output}\nnext: scitoolkit run {shlex.quote(str(output))} --dry-run")
