"""Configuration of `scitoolkit bench training`; importable without torch."""

from __future__ import annotations

from typing import Any

from pydantic import PositiveFloat, PositiveInt, field_validator

from scitoolkit.core.config import Config
from scitoolkit.scaling.patterns import PATTERNS
from scitoolkit.training.config import TrainingConfig


class ScalingConfig(Config):
    """Network to train, strategies to measure, and interconnect to predict for.

    Attributes:
        processes: largest number of processes; 1 and the powers of two below it are also measured.
        width, depth: the network has `depth` linear layers of `width` features.
        samples: samples per rank and step, except for METG.
        steps: measured steps per case, after `warm_up` steps.
        strategies: `STRATEGY[-STAGE][+EXCHANGE]`, such as ddp, ddp+bf16, sharded-3.
        patterns: communication patterns between the ranks for METG.
        step_seconds: useful time of the longest step tried for METG.
        latency_us, gb_per_s: latency and bandwidth of the interconnect to predict for; by default
            those measured on this machine.

    Example:
        >>> ScalingConfig(processes=6).counts
        [1, 2, 4, 6]
    """

    processes: PositiveInt = 4
    width: PositiveInt = 256
    depth: PositiveInt = 8
    samples: PositiveInt = 64
    steps: PositiveInt = 10
    warm_up: PositiveInt = 3
    strategies: tuple[str, ...] = ("ddp", "ddp+bf16", "sharded-1", "sharded-2", "sharded-3")
    patterns: tuple[str, ...] = ("trivial", "stencil_1d", "fft", "spread", "all_to_all")
    step_seconds: PositiveFloat = 0.25
    latency_us: PositiveFloat | None = None
    gb_per_s: PositiveFloat | None = None

    @field_validator("strategies")
    @classmethod
    def _possible(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            TrainingConfig.model_validate(case_settings(name))
        return names

    @field_validator("patterns")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in names if name not in PATTERNS]
        if unknown:
            raise ValueError(f"unknown pattern {unknown[0]!r}; known: {', '.join(PATTERNS)}")
        return names

    @property
    def counts(self) -> list[int]:
        """Numbers of processes to measure."""
        powers = [2**k for k in range(self.processes.bit_length())]
        return sorted({n for n in powers if n <= self.processes} | {self.processes})


def case_settings(name: str) -> dict[str, Any]:
    """Return the `training:` settings of a case.

    Example:
        >>> case_settings("sharded-2+sdp4bit")
        {'strategy': 'sharded', 'sharding': {'stage': 2}, 'exchange': {'name': 'sdp4bit'}}
    """
    head, _, exchange = name.partition("+")
    strategy, _, stage = head.partition("-")
    out: dict[str, Any] = {"strategy": strategy}
    if stage:
        out["sharding"] = {"stage": int(stage) if stage.isdigit() else stage}
    if exchange:
        out["exchange"] = {"name": exchange}
    return out
