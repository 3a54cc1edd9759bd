"""Configuration of a search: a YAML file with `domain: search`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
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
    """Limit on a metric of a trial; see `scitoolkit.search.Objective`."""

    name: str
    direction: Literal["min", "max", "equal"] = "min"
    limit: float
    tolerance: NonNegativeFloat = 0.0

    @model_validator(mode="after")
    def _is_a_constraint(self) -> ConstraintConfig:
        try:
            _ = self.made()
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    def made(self) -> Objective:
        """Return the constraint."""
        return Objective(self.name, self.direction, self.limit, True, self.tolerance)


class ObjectiveConfig(Config):
    """Metric to minimise or maximise; see `scitoolkit.search.Objective`."""

    name: str
    direction: Literal["min", "max"] = "min"
    limit: float | None = None


class BudgetConfig(Config):
    """Budget and resources of a search; every key may change on `--resume`.

    Attributes:
        trials: number of configurations to evaluate.
        seconds: wall time of the search; running trials are completed.
        workers: number of worker processes; 1 without limits runs trials in the main process.
        evaluator: where trials run: `processes`, `serial`, `ray` or `mpi` (`ls evaluator`).
        threads: numerical threads per worker.
        gpus: ids of the GPUs that are assigned to the workers in turn.
        processes_per_trial: number of processes that train one trial in parallel.
        trial_seconds: wall-time limit of one trial.
        trial_memory: limit on the resident memory of a worker process, such as `4GiB`.
        patience: number of failures before the first success at which the search stops.
        disk_patience: seconds during which a log that cannot be written, as on a full disk, is
            retried before the search ends.
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
    patience: PositiveInt = 10
    disk_patience: PositiveFloat = 60.0

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
        # A value equal to the default counts as unset: resolved configurations state every key.
        fields = type(self).model_fields
        for key in ("workers", "threads", "gpus", "trial_seconds", "trial_memory"):
            if key not in self.evaluator.reads and getattr(self, key) != fields[key].default:
                raise ValueError(
                    f"`{key}` is not read by the evaluator {self.evaluator.name!r}, which reads "
                    f"{', '.join(sorted(self.evaluator.reads))}"
                )
        return self

    def limits(self) -> Limits:
        """Return the limits of a single trial."""
        memory = None if self.trial_memory is None else parse_bytes(self.trial_memory)
        return Limits(self.trial_seconds, memory)

    def resources(self, logs: Path | None = None) -> Resources:
        """Return the resources of an evaluator; workers write their output to the folder `logs`."""
        return Resources(self.workers, self.limits(), self.threads, tuple(self.gpus), logs)


class FinalConfig(Config):
    """Retraining of the best configurations after the search.

    Attributes:
        finalists: number of best configurations that are retrained before the final ranking.
        seeds: number of new seeds with which each finalist is retrained.
        train: whether the winner is then trained with its full configuration and evaluated once
            on the test part.
        ensemble: number of best configurations (including the winner) that are trained and
            combined into an ensemble, which predicts a mean and its uncertainty.
        settings: `section.key=value` overrides of the final training, such as more epochs or a
            larger ensemble than in the trials.
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
    """Search over the configuration of any surrogate.

    Attributes:
        config: YAML file whose keys are searched; keys outside the space keep their values.
        settings: `section.key=value` settings that override that file.
        space: name of a registered space, or a mapping from configuration keys to parameters.
        objectives: metrics to optimise; the first one ranks trials, and several give a Pareto
            front.
        constraints: limits on other metrics, known before the training (costs) or after it.
        strategy: proposes configurations.
        budget: number of trials, time and resources.
        final: retraining of the best configurations.
        budget_key: configuration key that successive halving sets.
        seed_keys: configuration keys that receive the trial's seed, where they exist.
        keep: number of best trials whose checkpoints are retained.
        imported: CSV files of finished trials that the strategy starts from, such as the
            `results.csv` of another search or of DeepHyper; see `Search.import_trials`.
    """

    domain: Literal["search"] = "search"
    config: DataPath
    settings: list[str] = Field(default=[])
    space: Annotated[str | dict[str, Any], FREE_ON_RESUME]
    objectives: list[ObjectiveConfig] = Field(min_length=1)
    constraints: list[ConstraintConfig] = Field(default=[])
    strategy: Annotated[StrategyConfig, Choice(strategies)] = GaussianProcessConfig()
    budget: Annotated[BudgetConfig, FREE_ON_RESUME] = BudgetConfig()
    final: FinalConfig = FinalConfig()
    budget_key: str = "training.epochs"
    seed_keys: list[str] = Field(default=["seed", "training.seed"])
    keep: PositiveInt = 5
    imported: Annotated[list[DataPath], FREE_ON_RESUME] = Field(default=[])

    @field_validator("space")
    @classmethod
    def _space_is_one(cls, space: str | dict[str, Any]) -> str | dict[str, Any]:
        # Made here only for its errors, so that they are reported with those of other keys.
        try:
            _ = make_space(space)
        except ConfigProblems as error:
            raise ValueError("; ".join(map(str, error.problems))) from None
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return space

    def made_objectives(self) -> list[Objective]:
        """Return the objectives followed by the constraints."""
        made = [Objective(o.name, o.direction, o.limit) for o in self.objectives]
        return made + [constraint.made() for constraint in self.constraints]


def make_space(space: str | dict[str, Any]) -> Space:
    """Return the space with a registered name, or the one described by a mapping.

    A string under the key `base` names a registered space that the other parameters extend; a
    list under `base` is an ordinary parameter.

    Raises:
        ConfigError: no space has that name.
        ConfigProblems: all errors of the description.
    """
    from scitoolkit.search import spaces

    if isinstance(space, str):
        return spaces.get(space)
    parameters = dict(space)
    # `base` may also be the name of a parameter, whose values are a list or a mapping.
    named = isinstance(parameters.get("base"), str)
    start = spaces.description(parameters.pop("base")) if named else {}
    return Space({**start, **parameters})
