"""Configuration keys shared by all domains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import NonNegativeInt, model_validator

from scitoolkit.core.config import Config, OutputPath
from scitoolkit.core.resume import FREE_ON_RESUME


class RunConfig(Config):
    """Location of the run directories: `root/<workflow>/<UTC>-<hash>/`."""

    root: OutputPath = Path("runs")


class JobConfig(Config):
    """Base of the top-level configuration of a domain.

    Attributes:
        domain: name registered in the entry-point group `scitoolkit.domain`.
        workflow: name of the folder of runs; by default the name of the workflow's folder.
        run: location of the run directories.
    """

    renamed: ClassVar[Mapping[str, str]] = {"surrogate": "domain"}

    domain: str
    workflow: str = "run"
    run: Annotated[RunConfig, FREE_ON_RESUME] = RunConfig()


class SeededConfig(JobConfig):
    """Base of the configuration of a domain that draws random numbers.

    Attributes:
        seed: seed of all random draws. A section that sets its own `seed` keeps it.
    """

    seed: NonNegativeInt = 0

    def seeded_sections(self) -> tuple[str, ...]:
        """Return the names of the sections that inherit `seed` unless they set it."""
        return ("model", "training")

    @model_validator(mode="after")
    def _seed_sections(self) -> Self:
        for name in self.seeded_sections():
            section = getattr(self, name, None)
            if (
                isinstance(section, Config)
                and "seed" in type(section).model_fields
                and "seed" not in section.model_fields_set
            ):
                self.__dict__[name] = section.model_copy(update={"seed": self.seed})
        return self
