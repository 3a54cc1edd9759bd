"""The configuration of a search: `domain: search` at the top of a YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from scitoolkit.core.config import Config, ConfigProblems, DataPath, refuse_unused
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.job_config import SeededConfig
from scitoolkit.core.plugins import Choice
from scitoolkit.core.resume import FREE_ON_RESUME
from scitoolkit.core.units import parse_bytes
from scitoolkit.search.evaluators import EvaluatorConfig, Limits, Resources, evaluators
from scitoolkit.search.evaluators.processes import ProcessesConfig
from scitoolkit.search.space import Space
from scitoolkit.search.strategies import StrategyConfig, strategies
from scitoolkit.search.strategies.gaussian_process.config import GaussianProcessConfig
from scitoolkit.search.trial import Objective


class ConstraintConfig(Config):
    """A limit on a figure; see `scitoolkit.search.Objective`."""

    name: str
    direction: Literal["min", "max"] = "min"
    limit: float


class ObjectiveConfig(ConstraintConfig):
    """A figure to make small or large; see `scitoolkit.search.Objective`."""

    limit: float | None = None  # type: ignore[assignment]


class BudgetConfig(Config):
    """How much to search, and with what; all of it may change when a search is resumed.

    Attributes:
        trials: configurations to try.
        seconds: time to search; running trials then end.
        workers: processes of this machine; 1 without limits stays in this process.
        evaluator: where trials run: `processes`, `serial`, `ray` or `mpi` (`ls evaluator`).
        threads: numerical threads of a worker.
        gpus: ids of GPUs to deal out to the workers.
        processes_per_trial: processes that train one trial together.
        trial_seconds: limit on one trial.
        trial_memory: limit on the memory of one worker process, such as `4GiB`.
    """

    trials: PositiveInt | None = None
    seconds: PositiveFloat | None = None
    workers: PositiveInt = 1
    evaluator: Annotated[EvaluatorConfig, Choice(evaluators)] = ProcessesConfig()
    threads: PositiveInt = 1
    gpus: list[int] = Field(default=[])
    processes_per_trial: PositiveInt = 1
    trial_seconds: PositiveFloat | None = None
    trial_memory: str | None = None

    @field_validator("trial_memory")
    @classmethod
    def _memory_is_readable(cls, text: str | None) -> str | None:
        try:
            _ = parse_bytes(text, key="trial_memory") if text is not None else None
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return text

    @model_validator(mode="after")
    def _every_key_is_read(self) -> BudgetConfig:
        fields = type(self).model_fields
        for key in ("workers", "threads", "gpus", "trial_seconds", "trial_memory"):
            if key not in self.evaluator.reads and getattr(self, key) != fields[key].default:
                raise ValueError(
                    f"`{key}` is not read by the evaluator {self.evaluator.name!r}, which reads "
                    f"{', '.join(sorted(self.evaluator.reads))}"
                )
        return self

    def limits(self) -> Limits:
        """Return the limits of a trial."""
        memory = None if self.trial_memory is None else parse_bytes(self.trial_memory)
        return Limits(self.trial_seconds, memory)

    def resources(self, logs: Path | None = None) -> Resources:
        """Return what an evaluator may use; workers print into the folder `logs`."""
        return Resources(self.workers, self.limits(), self.threads, tuple(self.gpus), logs)


class FinalConfig(Config):
    """What happens to the best configurations after the search.

    Attributes:
        finalists: number that are trained again before they are ranked.
        seeds: trainings of each.
        train: whether the winner is then trained as its own configuration says and, once,
            evaluated on the test part.
        ensemble: number of best configurations, the winner among them, that are trained so and
            predict together: the mean, and how far it is uncertain.
        settings: `section.key=value` settings for that training, such as more epochs or a larger
            ensemble than the trials had.
    """

    finalists: NonNegativeInt = 3
    seeds: PositiveInt = 3
    train: bool = True
    ensemble: PositiveInt = 1
    settings: list[str] = Field(default=[])

    @model_validator(mode="after")
    def _every_key_is_read(self) -> FinalConfig:
        if not self.finalists:
            refuse_unused(self, "finalists: 0", "seeds")
        if not self.train:
            refuse_unused(self, "train: false", "settings", "ensemble")
        return self


class SearchConfig(SeededConfig):
    """A search over the configuration of any surrogate.

    Attributes:
        config: YAML file that is searched; everything the space does not name stays as it is.
        settings: `section.key=value` settings that win over that file.
        space: name of a known space, or parameters by the key that they set.
        objectives: the first ranks; with several the Pareto front is kept.
        constraints: limits on other figures of a trial, known before or after it.
        strategy: what proposes.
        budget: how much, and with what.
        final: retraining of the best.
        budget_key: what successive halving sets.
        seed_keys: keys that a trial's seed is written to, where the configuration has them.
        keep: number of best trials whose checkpoints are kept.
    """

    domain: Literal["search"] = "search"
    config: DataPath
    settings: list[str] = Field(default=[])
    space: str | dict[str, Any]
    objectives: list[ObjectiveConfig] = Field(min_length=1)
    constraints: list[ConstraintConfig] = Field(default=[])
    strategy: Annotated[StrategyConfig, Choice(strategies)] = GaussianProcessConfig()
    budget: Annotated[BudgetConfig, FREE_ON_RESUME] = BudgetConfig()
    final: FinalConfig = FinalConfig()
    budget_key: str = "training.epochs"
    seed_keys: list[str] = Field(default=["seed", "training.seed"])
    keep: PositiveInt = 5

    @field_validator("space")
    @classmethod
    def _space_is_one(cls, space: str | dict[str, Any]) -> str | dict[str, Any]:
        try:
            _ = make_space(space)
        except ConfigProblems as error:
            raise ValueError("; ".join(map(str, error.problems))) from None
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return space

    def made_objectives(self) -> list[Objective]:
        """Return the objectives, then the constraints."""
        made = [Objective(o.name, o.direction, o.limit) for o in self.objectives]
        return made + [Objective(o.name, o.direction, o.limit, True) for o in self.constraints]


def make_space(space: str | dict[str, Any]) -> Space:
    """Return the space of a name or of parameters.

    A key `base` with a name names a space that the others are added to; with choices it is a
    parameter like any other.
    """
    from scitoolkit.search import spaces

    if isinstance(space, str):
        return spaces.get(space)
    parameters = dict(space)
    named = isinstance(parameters.get("base"), str)
    start = spaces.description(parameters.pop("base")) if named else {}
    return Space({**start, **parameters})
