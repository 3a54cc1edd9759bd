"""The `training:` section of every configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from logging import Logger
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.log import get_logger
from scitoolkit.core.processes import process_environment
from scitoolkit.core.resume import FREE_ON_RESUME
from scitoolkit.core.suggest import did_you_mean
from scitoolkit.training.exchange.config import AnyExchange, Full
from scitoolkit.training.loggers import AnyLogger
from scitoolkit.training.memory.config import MemoryConfig, PruningConfig
from scitoolkit.training.optim.groups import ParameterGroup
from scitoolkit.training.optim.optimizers import AdamW, AnyOptimizer, optimizers
from scitoolkit.training.optim.schedules import AnySchedule, Constant
from scitoolkit.training.requirements import (
    TrainingPart,
    changed_keys,
    optimizer_refusals,
    refusals,
)
from scitoolkit.training.strategies.config import (
    DataParallel,
    Precision,
    ShardingConfig,
    Single,
    StrategyConfig,
    training_strategies,
)
from scitoolkit.training.strategies.mesh.axes import MeshAxes

log: Logger = get_logger(__name__)


class EarlyStopping(Config):
    """Stop when the validation loss has not improved by `min_delta` for `patience` epochs.

    Attributes:
        target: validation loss at which the training ends at once.
    """

    patience: PositiveInt = 10
    min_delta: float = Field(default=0.0, ge=0)
    target: PositiveFloat | None = None


class BestWeights(Config):
    """Which validation metric chooses the best weights; early stopping follows the loss.

    Attributes:
        metric: a metric that the validation reports.
        mode: whether lower (`min`) or higher (`max`) values are better.
    """

    metric: str = "loss"
    mode: Literal["min", "max"] = "min"


class CheckpointConfig(Config):
    """When to save, in addition to signals and the end; keeps the best and the last few."""

    every_steps: PositiveInt | None = Field(default=None, description="save every so many steps")
    every_epochs: PositiveInt | None = Field(default=1, description="save every so many epochs")
    keep_last: PositiveInt = Field(default=2, description="checkpoints to keep besides the best")


class TrainingConfig(Config):
    """Settings of the trainer.

    `batch_size` counts the samples of one batch over all processes; a step uses `accumulate`
    batches. Halving one and doubling the other gives the same training with less memory.

    Example:
        >>> config = TrainingConfig(epochs=3, optimizer={"name": "sgd", "lr": 0.1})
        >>> config.optimizer.name, config.schedule.name, config.batch_size
        ('sgd', 'constant', 32)
    """

    epochs: Annotated[PositiveInt, FREE_ON_RESUME] = Field(
        default=100, description="passes over the training set"
    )
    steps: Annotated[PositiveInt | None, FREE_ON_RESUME] = Field(
        default=None, description="stop after this many steps; `epochs` is then ignored"
    )
    batch_size: PositiveInt = Field(default=32, description="samples per batch, all processes")
    accumulate: PositiveInt = Field(default=1, description="batches per optimizer step")
    seed: NonNegativeInt = 0
    strategy: Annotated[str, FREE_ON_RESUME] = Field(
        default="auto", description="how processes share the training"
    )
    sharding: Annotated[ShardingConfig, FREE_ON_RESUME] = Field(
        default=ShardingConfig(), description="ZeRO stage of strategy sharded"
    )
    mesh: Annotated[MeshAxes, FREE_ON_RESUME] = Field(
        default=MeshAxes(), description="axes of strategy mesh"
    )
    exchange: AnyExchange = Field(default=Full(), description="sums gradients over processes")
    device: Annotated[Literal["auto", "cpu", "cuda"], FREE_ON_RESUME] = "auto"
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    gather_precision: Precision = Field(
        default="float32", description="precision in which sharding.stage 3 gathers parameters"
    )
    optimizer: AnyOptimizer = AdamW()
    schedule: AnySchedule = Constant()
    clip_norm: PositiveFloat | None = Field(default=None, description="largest gradient norm")
    ema_decay: float | None = Field(default=None, gt=0, lt=1, description="average the weights")
    swa_start: float | None = Field(
        default=None, ge=0, lt=1, description="average the weights equally after this fraction"
    )
    parameter_groups: tuple[ParameterGroup, ...] = Field(
        default=(), description="learning rate and weight decay by parameter name"
    )
    pruning: PruningConfig | None = Field(
        default=None, description="train only the unpruned entries of matrices"
    )
    early_stopping: Annotated[EarlyStopping | None, FREE_ON_RESUME] = None
    best: Annotated[BestWeights, FREE_ON_RESUME] = BestWeights()
    memory: MemoryConfig | None = Field(default=None, description="compressed activations")
    checkpoint: Annotated[CheckpointConfig, FREE_ON_RESUME] = CheckpointConfig()
    log_every: Annotated[PositiveInt, FREE_ON_RESUME] = Field(
        default=50, description="steps between lines of metrics.jsonl"
    )
    timeout_seconds: Annotated[PositiveFloat, FREE_ON_RESUME] = Field(
        default=600.0, description="wait for other processes"
    )
    compile: Annotated[bool, FREE_ON_RESUME] = False
    profile: Annotated[bool, FREE_ON_RESUME] = Field(
        default=False, description="write a torch.profiler trace into the run"
    )
    noise_scale: Annotated[bool, FREE_ON_RESUME] = Field(
        default=False, description="log the gradient noise scale (largest useful batch size)"
    )
    count_traffic: Annotated[bool, FREE_ON_RESUME] = Field(
        default=False, description="write bytes and messages by collective into the run"
    )
    loggers: Annotated[tuple[AnyLogger, ...], FREE_ON_RESUME] = Field(
        default=(), description="loggers in addition to metrics.jsonl"
    )
    progress: Annotated[bool, FREE_ON_RESUME] = True

    @model_validator(mode="before")
    @classmethod
    def _former_tensorboard(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "tensorboard" not in data:
            return data
        out = dict(data)
        if out.pop("tensorboard"):
            log.warning("configuration key 'tensorboard' is now written loggers: [tensorboard]")
            out["loggers"] = [*out.get("loggers", ()), "tensorboard"]
        return out

    @model_validator(mode="before")
    @classmethod
    def _strategy_with_settings(cls, data: Any) -> Any:
        """Read `strategy: {name: mesh, tensor: 2}` as `strategy: mesh` and its section."""
        strategy = data.get("strategy") if isinstance(data, Mapping) else None
        if not isinstance(strategy, Mapping):
            return data
        sections = {"mesh": "mesh", "sharded": "sharding"}
        settings = {key: value for key, value in strategy.items() if key != "name"}
        section = sections.get(str(strategy.get("name")))
        if settings and section is None:
            raise ValueError(f"strategy {strategy.get('name')!r} has no settings {list(settings)}")
        out = {**data, "strategy": strategy.get("name", "auto")}
        return {**out, section: {**data.get(section, {}), **settings}} if section else out

    @field_validator("loggers", mode="before")
    @classmethod
    def _named_loggers(cls, value: Any) -> Any:
        entries = value if isinstance(value, list | tuple) else [value]
        return [{"name": entry} if isinstance(entry, str) else entry for entry in entries]

    @field_validator("strategy")
    @classmethod
    def _known_strategy(cls, name: str) -> str:
        names = cls.strategy_names()
        if name not in names:
            raise ValueError(
                f"{name!r} is not one of {', '.join(names)}{did_you_mean(name, names)}"
            )
        return name

    @model_validator(mode="after")
    def _possible(self) -> TrainingConfig:
        """Refuse choices that do not work together, by what each part says of itself."""
        if self.ema_decay is not None and self.swa_start is not None:
            raise ValueError("ema_decay and swa_start both average the weights: remove one")
        optimizer, strategy, changed = self.optimizer, self.named_strategy(), changed_keys(self)
        for label, part, needs in self._parts(strategy):
            reasons = optimizer_refusals(
                label, needs, optimizer, {name: optimizers.get(name) for name in optimizers}
            )
            for why in (*reasons, *refusals(label, part, changed)):
                raise ValueError(why)
        if self.parameter_groups and not optimizer.grouped:
            raise ValueError(f"optimizer {optimizer.name} takes no parameter_groups")
        if any(g.weight_decay is not None for g in self.parameter_groups):
            if "weight_decay" not in type(optimizer).model_fields:
                raise ValueError(f"optimizer {optimizer.name} has no weight_decay to set in groups")
        if refusal := (strategy or DataParallel()).refusal(self.exchange):
            raise ValueError(refusal)
        self._read_by((strategy or DataParallel()).name, changed)
        if self.gather_precision not in ("float32", self.precision):
            raise ValueError("gather_precision bf16 computes in bf16: it needs precision bf16")
        if self.sharding.offload and self.device == "cpu":
            raise ValueError("sharding.offload needs a GPU to offload from, device is cpu")
        if self.precision not in optimizer.precisions:
            raise ValueError(
                f"optimizer {optimizer.name} needs precision {' or '.join(optimizer.precisions)}, "
                f"not {self.precision}"
            )
        return self

    def _parts(
        self, strategy: StrategyConfig | None
    ) -> Iterator[tuple[str, TrainingPart, tuple[str, ...]]]:
        """Yield the name of each chosen part, the part, and the capabilities that it needs."""
        if strategy is not None:
            yield f"strategy {strategy.name}", strategy, strategy.optimizer_needs()
        yield f"optimizer {self.optimizer.name}", self.optimizer, ()
        if self.pruning is not None:
            yield "pruning", self.pruning, self.pruning.needs
        if self.memory is not None:
            yield "memory.activations", self.memory, self.memory.needs

    def _read_by(self, strategy: str, changed: set[str]) -> None:
        """Refuse settings of other strategies than the chosen one."""
        shared = type(self).model_fields.keys()
        members = {name: training_strategies.get(name) for name in training_strategies}
        for key in sorted(changed & shared):
            readers = {
                name: f"{name} {member.reads_at.get(key, '')}".rstrip()
                for name, member in members.items()
                if key in member.model_fields
            }
            if readers and strategy not in readers:
                allowed = " or ".join(readers.values())
                raise ValueError(f"{key} is only read by strategy {allowed}: remove it")

    @classmethod
    def strategy_names(cls) -> list[str]:
        """Return the allowed values of `strategy`; domains with other strategies override it."""
        return ["auto", *training_strategies.names()]

    @property
    def reads_epochs(self) -> bool:
        """Whether `epochs` sets the length of the training; `steps` takes precedence."""
        return self.steps is None

    def named_strategy(self) -> StrategyConfig | None:
        """Return the configured strategy, or None for `auto`."""
        if self.strategy == "auto":
            return None
        member = training_strategies.get(self.strategy)
        shared = type(self).model_fields.keys() & member.model_fields.keys()
        return member(**{name: getattr(self, name) for name in shared})

    def share_of_batch(self) -> tuple[int, int]:
        """Return which share of a batch this process reads, and the number of shares.

        Ranks that hold parts of one network read the same samples.

        Raises:
            ConfigError: as `strategy_on`.
        """
        place = process_environment()
        strategy = self.strategy_on(place.world_size)
        return strategy.share_of_batch(place.rank, place.world_size)

    def strategy_on(self, processes: int) -> StrategyConfig:
        """Return the strategy for a number of processes, without communication.

        Raises:
            ConfigError: `batch_size` is not divisible by the number of processes, or the strategy
                supports one process only.

        Example:
            >>> TrainingConfig().strategy_on(1).name, TrainingConfig().strategy_on(2).name
            ('single', 'ddp')
        """
        strategy = self.named_strategy() or (Single() if processes == 1 else DataParallel())
        if strategy.single_process and processes > 1:
            several = [
                n for n in training_strategies if not training_strategies.get(n).single_process
            ]
            raise ConfigError(
                f"strategy {strategy.name!r} with {processes} processes",
                where="training.strategy",
                allowed=", ".join(["auto", *several]),
                fix="training.strategy=auto",
            )
        _, shares = strategy.share_of_batch(0, processes)
        if self.batch_size % shares:
            near = max(shares, round(self.batch_size / shares) * shares)
            raise ConfigError(
                f"batch_size {self.batch_size} is not divisible by {shares} processes",
                where="training.batch_size",
                fix=f"training.batch_size={near}",
            )
        return strategy
