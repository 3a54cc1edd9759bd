"""Publication of a run as a shipped surrogate: model, configuration and the metrics in its card.

The table between the `<!-- measured -->` marks of the card and the workflow's expected.json are
generated from the run's metrics.json, so that no number is copied by hand.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scitoolkit.core.config import dump_config
from scitoolkit.core.content import KINDS, content_root
from scitoolkit.core.errors import DataError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.job import Artifacts
from scitoolkit.core.job_config import JobConfig
from scitoolkit.core.model_folder import CONFIG, FACTS, FOLDER, METRICS

_TABLE = re.compile(r"<!-- measured -->.*<!-- /measured -->", re.DOTALL)


def publish(run: Path, destination: Path, config: JobConfig, artifacts: Artifacts) -> Path:
    """Copy the model of an evaluated run into `destination` and fill the card's table.

    If the run is one of a shipped workflow, its expected.json gets the metrics.

    Args:
        run: the run directory, evaluated.
        destination: the surrogate's folder; the table is written into its README.md.
        config: configuration of the run; its paths become relative to the destination.
        artifacts: the files and settings that the domain publishes.

    Raises:
        DataError: the run was not evaluated.
    """
    figures = copy_model(run, destination, config, artifacts)
    units = figures.pop("units")
    card = destination / "README.md"
    if card.is_file():
        table = f"<!-- measured -->\n{_table(figures, units, artifacts.rows)}\n<!-- /measured -->"
        write_atomic(card, _TABLE.sub(lambda _: table, card.read_text(encoding="utf-8")))
    workflow = content_root("workflows") / config.workflow
    if workflow.is_dir():
        named = (workflow / artifacts.workflow_file).is_file()
        command = f"workflows/{config.workflow}/{artifacts.workflow_file if named else ''}"
        expected = {
            "command": f"scitoolkit run {command}".rstrip("/"),
            "relative_tolerance": artifacts.tolerance,
            "metrics": {name: v for name, v in figures.items() if isinstance(v, float)},
            "units": units,
        }
        write_atomic(workflow / "expected.json", json.dumps(expected, indent=1))
    return destination


def copy_model(
    run: Path, destination: Path, config: JobConfig, artifacts: Artifacts
) -> dict[str, Any]:
    """Copy model, configuration and metrics of an evaluated run; return the metrics.

    Raises:
        DataError: the run was not evaluated.
    """
    model = Path(run) / FOLDER
    if not (model / METRICS).is_file():
        raise DataError("not an evaluated run", where=str(run), fix=f"scitoolkit evaluate {run}")
    destination.mkdir(parents=True, exist_ok=True)
    made = sorted(p.name for p in model.iterdir() if p.is_file() and p.name != CONFIG)
    facts = [FACTS] if FACTS in made else []
    for name in {*(artifacts.files or made), METRICS, *facts}:
        shutil.copyfile(model / name, destination / name)
    write_atomic(destination / CONFIG, _relative(artifacts.config or config, destination))
    figures: dict[str, Any] = json.loads((model / METRICS).read_text(encoding="utf-8"))
    return figures


def _relative(config: JobConfig, destination: Path) -> str:
    """Return the configuration as YAML with paths relative to the destination."""
    return _with_paths(config, lambda path: os.path.relpath(path, destination.resolve()))


def portable_config(config: JobConfig) -> str:
    """Return a configuration as YAML that holds in any folder and names none of this machine.

    Paths of shipped content are `datasets/...`, which is found from everywhere; of other files only
    the name is left.
    """
    content = content_root("datasets").parent.resolve()

    def shortened(path: Path) -> str:
        resolved = path.resolve()
        if resolved.is_relative_to(content):
            shipped = resolved.relative_to(content)
            if shipped.parts[:1] in [(kind,) for kind in KINDS]:
                return str(shipped)
        return path.name or "data"

    return _with_paths(config, shortened)


def _with_paths(config: JobConfig, shortened: Callable[[Path], str]) -> str:
    text = dump_config(config)
    for path in sorted(map(str, _paths(config.model_dump())), key=len, reverse=True):
        text = text.replace(path, "runs" if path == str(config.run.root) else shortened(Path(path)))
    return text


def _paths(value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _paths(inner)


def _table(figures: dict[str, Any], units: dict[str, str], rows: Sequence[str]) -> str:
    measured = [
        f"| {name} | {value:.4g} {units.get(name, '').removesuffix('1')}".rstrip() + " |"
        for name, value in figures.items()
        if isinstance(value, int | float)
    ]
    return "\n".join(["| figure | value |", "|---|---|", *rows, *measured])
