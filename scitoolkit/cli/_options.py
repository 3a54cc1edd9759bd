"""Options and helpers shared by several commands."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from scitoolkit.core.errors import ConfigError

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...", help="Settings that override the file: section.key=value"
    ),
]
Config = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG", help="A YAML file, a workflow folder, or the name of a workflow."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object.")]
NProc = Annotated[int, typer.Option("--nproc", min=1, help="Number of processes on this machine.")]
Device = Annotated[
    str, typer.Option("--device", help="Where the model runs: auto (a GPU if any), cpu or cuda.")
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue the newest run of this configuration, bit for bit."),
]
RunDir = Annotated[
    Path | None, typer.Option("--run-dir", help="With --resume: the run directory to continue.")
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Open the data, build the model and run one batch; write nothing."
    ),
]
Multirun = Annotated[
    bool,
    typer.Option("--multirun", help="One run for each combination of values: key=1,2,3 key=a,b."),
]
Jobs = Annotated[
    int, typer.Option("--jobs", min=1, help="With --multirun: number of runs at the same time.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more details.")]


class CommandGroup(TyperGroup):
    """Command group whose help shows whole sentences, which click would cut at 45 characters."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one wrapped paragraph per command."""
        rows = [
            (name, command.get_short_help_str(limit=1000))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def print_json(value: Any) -> None:
    """Print one JSON object on stdout; NaN and infinities, which JSON lacks, become null."""
    print(json.dumps(_finite(value), default=str, allow_nan=False))


def print_lines(value: Any) -> None:
    """Print a nested mapping on stdout as indented lines `key: value`, which are also YAML."""
    import yaml

    class BlockStyle(yaml.SafeDumper):
        """Block style, with lists of scalars in one line."""

    def sequence(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
        flow = not any(isinstance(item, dict | list) for item in items)
        return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flow)

    BlockStyle.add_representer(list, sequence)
    plain = json.loads(json.dumps(value, default=str))
    text = yaml.dump(plain, Dumper=BlockStyle, sort_keys=False, allow_unicode=True, width=100)
    print(text, end="")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def make_folder(path: Path) -> None:
    """Create a folder for output.

    Raises:
        ConfigError: the folder cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot be written ({error.strerror})",
            where=str(path),
            fix="another folder, in which you may write",
        ) from None


def no_settings() -> list[str]:
    """Return no settings, for a command without additional options."""
    return []


def relaunch(nproc: int) -> int:
    """Run this command again as `nproc` ranks of one job; return its exit code."""
    from scitoolkit.training.launch import launch

    arguments = sys.argv[1:]
    passed_on = [
        argument
        for position, argument in enumerate(arguments)
        if not argument.startswith("--nproc")
        and (position == 0 or arguments[position - 1] != "--nproc")
    ]
    return launch(nproc, passed_on)


def is_main_rank() -> bool:
    """Return whether this process is rank 0, which prints the output."""
    from scitoolkit.core.processes import current_rank

    return current_rank() == 0
