"""The run directory: configuration, environment, logs, checkpoints and results of one run.

`runs/<workflow>/<UTC>-<hash>/` holds config.yaml (resolved, itself a valid input), env.json,
run.log, metrics.jsonl, checkpoints/, results.json, results.nc, predictions.nc and report/.
Files are written under a temporary name and then renamed, so a reader never sees a partial file.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scitoolkit.core.config import Config, dump_config
from scitoolkit.core.environment import environment_report
from scitoolkit.core.errors import ConfigError, DataError, ScitoolkitError
from scitoolkit.core.files import append_lines, write_atomic
from scitoolkit.core.notebook import html_facts, html_page

RUN_ROOT = "run.root=FOLDER"
"""Setting by which the user chooses the folder of run directories."""
_WRITTEN_AT_START = frozenset(
    {"config.yaml", "env.json", "run.log", "checkpoints", "report", ".live"}
)


@dataclass(frozen=True)
class RunDirectory:
    """Paths and small files of one run; use `create` or `open`, on rank 0 only.

    Example:
        >>> import tempfile
        >>> run = RunDirectory.create(tempfile.mkdtemp(), "demo", Config())
        >>> run.log_metrics({"loss": 0.5}, step=1)
        >>> [(row["name"], row["value"], row["step"]) for row in run.read_metrics()]
        [('loss', 0.5, 1)]
    """

    path: Path

    def _repr_html_(self) -> str:
        """Return the path, and the results of an evaluated run, for a notebook."""
        from scitoolkit.core.results import FILE_NAME, Results

        evaluated = (self.path / FILE_NAME).is_file()
        results = Results.read(self.path)._repr_html_() if evaluated else ""
        facts = {"run": self.path, **({"report": self.report / "index.html"} if evaluated else {})}
        return html_page("Run", (), html_facts(facts), results)

    @classmethod
    def create(cls, root: Path | str, workflow: str, config: Config) -> RunDirectory:
        """Make a new run directory under `root/workflow` and write config.yaml and env.json.

        Raises:
            ConfigError: the folder cannot be written.
        """
        text = dump_config(config)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        base = Path(root) / workflow
        try:
            path = _new_folder(base, f"{stamp}-{digest}")
            run = cls(path)
            for folder in (run.checkpoints, run.report):
                folder.mkdir()
            write_atomic(run.config_path, text)
            write_atomic(path / "env.json", json.dumps(environment_report(), indent=1) + "\n")
        except OSError as error:
            raise ConfigError(
                f"the run directory cannot be written ({error.strerror})",
                where=str(base),
                fix=f"{RUN_ROOT} with write permission and free space",
            ) from None
        return run

    @classmethod
    def open(cls, path: Path | str) -> RunDirectory:
        """Open an existing run (or surrogate) directory.

        Raises:
            DataError: the folder does not exist or has no config.yaml.
        """
        path = Path(path)
        if not path.exists():
            raise DataError("no such run directory", where=str(path), fix="scitoolkit runs")
        if not (path / "config.yaml").is_file():
            raise DataError(
                "not a run directory (no config.yaml)",
                where=str(path),
                allowed="a folder made by `scitoolkit run` or `train`, or surrogates/NAME",
                fix=str(max((file.parent for file in path.glob("*/config.yaml")), default="")),
            )
        return cls(path)

    @property
    def config_path(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def report(self) -> Path:
        """The folder of the report."""
        return self.path / "report"

    @property
    def live(self) -> Path:
        """Marker of a run that can be evaluated while it is running; `report` does so first."""
        return self.path / ".live"

    @property
    def metrics_path(self) -> Path:
        """The metrics log, one JSON object per line: name, value, unit, step."""
        return self.path / "metrics.jsonl"

    @property
    def launch(self) -> str:
        """Identifier of the launch that made the run, see `launch_name`; "" if unknown."""
        try:
            environment = json.loads((self.path / "env.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ""
        return str(environment.get("launch", "")) if isinstance(environment, dict) else ""

    def is_empty(self) -> bool:
        """Return whether the run has produced nothing beyond the files of its start."""
        written = {path.name for path in self.path.iterdir()}
        folders = [folder for folder in (self.checkpoints, self.report) if folder.is_dir()]
        return written <= _WRITTEN_AT_START and not any(any(f.iterdir()) for f in folders)

    def log_metrics(
        self, values: Mapping[str, float], *, step: int, units: Mapping[str, str] | None = None
    ) -> None:
        """Append one line per metric; NaN and Inf are written as null."""
        units = units or {}
        lines = [
            json.dumps(
                {
                    "name": name,
                    "value": value if abs(value) < float("inf") else None,
                    "unit": units.get(name, ""),
                    "step": step,
                }
            )
            for name, value in ((n, float(v)) for n, v in values.items())
        ]
        append_lines(self.metrics_path, "".join(line + "\n" for line in lines))

    def read_metrics(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of the metrics log; a line truncated by a crash is skipped.

        A resumed run logs the steps after its checkpoint again; the later line replaces the first.

        Raises:
            DataError: a line is no metric.
        """
        if not self.metrics_path.exists():
            return
        latest: dict[tuple[str, int], dict[str, Any]] = {}
        for line in self.metrics_path.read_bytes().splitlines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            try:
                latest[row["name"], row["step"]] = row
            except (KeyError, TypeError):
                raise DataError(
                    "not a log of metrics",
                    where=str(self.metrics_path),
                    allowed="one JSON object a line with name, value, unit, step",
                ) from None
        yield from latest.values()


def _new_folder(base: Path, name: str) -> Path:
    """Create `name`, or `name-001`, ... so that names sort in the order of creation."""
    base.mkdir(parents=True, exist_ok=True)
    for attempt in range(1000):
        path = base / (f"{name}-{attempt:03d}" if attempt else name)
        try:
            path.mkdir()
            return path
        except FileExistsError:
            continue
    raise ScitoolkitError("no free name for a run directory", where=str(base), fix="start it again")
