"""Configuration of `scitoolkit generate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import NonNegativeInt, PositiveInt, model_validator

from scitoolkit.core.config import OutputPath
from scitoolkit.core.draw import DrawConfig
from scitoolkit.core.job_config import SeededConfig
from scitoolkit.core.plugins import Choice
from scitoolkit.core.resume import FREE_ON_RESUME
from scitoolkit.generators.base import Generator, generators
from scitoolkit.generators.executors import Place


class GenerateConfig(SeededConfig):
    """A campaign of samples of one generator.

    Attributes:
        generator: the generator, with the values of parameters that are not drawn.
        draw: distribution of the parameters of the samples.
        seeds: one for each sample; by default derived from `seed` and the number.
        processes: number of samples that are made in parallel.
        executor: `processes` of this machine, workers of `ray` (the cluster at RAY_ADDRESS, else
            this machine), or `mpi`: all ranks of mpirun but the first. All workers must have
            access to the campaign's folder.
        output: folder of the campaign, such as `datasets/NAME`; by default `campaign` in the run
            directory.
    """

    renamed: ClassVar[Mapping[str, str]] = {"draw.seed": "seed"}

    domain: Literal["generate"] = "generate"
    generator: Annotated[Generator, Choice(generators)]
    draw: DrawConfig = DrawConfig()
    seeds: Annotated[list[NonNegativeInt] | None, FREE_ON_RESUME] = None
    processes: Annotated[PositiveInt, FREE_ON_RESUME] = 1
    executor: Annotated[Place, FREE_ON_RESUME] = "processes"
    output: OutputPath | None = None

    @model_validator(mode="after")
    def _a_seed_each(self) -> GenerateConfig:
        if self.seeds is not None and len(self.seeds) != self.draw.samples:
            raise ValueError(f"{len(self.seeds)} seeds for {self.draw.samples} samples")
        return self

    @model_validator(mode="after")
    def _ends_are_valid(self) -> GenerateConfig:
        """Refuse priors that extend beyond the valid parameters."""
        self.draw.require_valid(self.generator.with_parameters)
        return self
