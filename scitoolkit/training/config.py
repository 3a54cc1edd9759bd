"""The `training:` section of every configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from scitoolkit.core.config import Config
from scitoolkit.core.resume import FREE_ON_RESUME
from scitoolkit.training.memory_config import MemoryConfig
from scitoolkit.training.optim.optimizers import AdamW, AnyOptimizer
from scitoolkit.training.optim.schedules import AnySchedule, Constant


class EarlyStopping(Config):
    """Stop when the validation loss has not improved by `min_delta` for `patience` epochs."""

    patience: PositiveInt = 10
    min_delta: float = Field(default=0.0, ge=0)


class CheckpointConfig(Config):
    """When to save, besides on a signal and at the end; the best and the last few are kept."""

    every_steps: PositiveInt | None = Field(default=None, description="save every so many steps")
    every_epochs: PositiveInt | None = Field(default=1, description="save every so many epochs")
    keep_last: PositiveInt = Field(default=2, description="checkpoints kept besides the best one")


class TrainingConfig(Config):
    """How to train.

    `batch_size` counts the samples of one batch over all processes; a step takes `accumulate`
    of them. Halving the one and doubling the other gives the same training in less memory.

    Example:
        >>> config = TrainingConfig(epochs=3, optimizer={"name": "sgd", "lr": 0.1})
        >>> config.optimizer.name, config.schedule.name, config.batch_size
        ('sgd', 'constant', 32)
    """

    epochs: Annotated[PositiveInt, FREE_ON_RESUME] = Field(
        default=100, description="passes over the training set"
    )
    steps: Annotated[PositiveInt | None, FREE_ON_RESUME] = Field(
        default=None, description="stop after so many steps instead"
    )
    batch_size: PositiveInt = Field(default=32, description="samples per batch, all processes")
    accumulate: PositiveInt = Field(default=1, description="batches per optimizer step")
    seed: NonNegativeInt = 0
    strategy: Annotated[Literal["auto", "single", "ddp", "sharded", "graph"], FREE_ON_RESUME] = (
        "auto"
    )
    device: Annotated[Literal["auto", "cpu", "cuda"], FREE_ON_RESUME] = "auto"
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    optimizer: AnyOptimizer = AdamW()
    schedule: AnySchedule = Constant()
    clip_norm: PositiveFloat | None = Field(default=None, description="gradient norm at most")
    ema_decay: float | None = Field(default=None, gt=0, lt=1, description="average the weights")
    early_stopping: Annotated[EarlyStopping | None, FREE_ON_RESUME] = None
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
    tensorboard: Annotated[bool, FREE_ON_RESUME] = False
    progress: Annotated[bool, FREE_ON_RESUME] = True

    @model_validator(mode="after")
    def _possible(self) -> TrainingConfig:
        if self.optimizer.uses_closure and self.strategy == "sharded":
            raise ValueError("optimizer lbfgs needs strategy single or ddp, not sharded")
        if self.optimizer.name == "muon" and self.strategy == "sharded":
            raise ValueError("optimizer muon needs strategy single or ddp: whole matrices")
        if self.memory is not None and self.compile:
            raise ValueError("memory.activations needs compile: false")
        if self.optimizer.uses_closure and self.precision == "fp16":
            raise ValueError("optimizer lbfgs needs precision float32 or bf16, not fp16")
        return self
