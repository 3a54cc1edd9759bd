"""The keys that every domain's configuration has in common."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from scitoolkit.core.config import Config, DataPath
from scitoolkit.core.resume import FREE_ON_RESUME


class RunConfig(Config):
    """Where runs are kept: `root/<workflow>/<UTC>-<hash>/`."""

    root: DataPath = Path("runs")


class JobConfig(Config):
    """Base of the top-level configuration of a domain.

    Attributes:
        domain: as registered under the entry-point group `scitoolkit.domain`.
        workflow: name of the folder of runs; the workflow's own folder unless stated.
        run: where runs are kept.
    """

    renamed: ClassVar[Mapping[str, str]] = {"surrogate": "domain"}

    domain: str
    workflow: str = "run"
    run: Annotated[RunConfig, FREE_ON_RESUME] = RunConfig()
