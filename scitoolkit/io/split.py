"""Train, validation and test parts as blocks of time that share no step.

Neighbouring windows of a time series overlap, so a random split puts nearly every validation
window's steps into the training part as well: measured on weekly sea-surface temperature, such a
validation score is 0.98 where the test score is 0.72. Blocks with a gap between them do not lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from scitoolkit.core.config import Config, refuse_unused
from scitoolkit.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    import xarray as xr

SPLITS = ("train", "validation", "test")


class SplitConfig(Config):
    """How a time series is divided, in the order train, validation, test.

    Attributes:
        name: `blocked`, or `random`, which leaks and needs `force`.
        train: fraction (a float) or number (an int) of steps.
        validation: likewise.
        test: likewise.
        validation_start: first date (or time) of the validation part, instead of sizes.
        test_start: first date (or time) of the test part, instead of sizes.
        gap: steps left out between two parts.
        seed: of the random split only.
        force: take a random split, although its scores mean little.
    """

    name: Literal["blocked", "random"] = "blocked"
    train: float | int = Field(default=0.7, gt=0)
    validation: float | int = Field(default=0.15, ge=0)
    test: float | int = Field(default=0.15, ge=0)
    validation_start: str | None = None
    test_start: str | None = None
    gap: int = Field(default=0, ge=0)
    seed: int = Field(default=0, ge=0)
    force: bool = False

    @model_validator(mode="after")
    def _check(self) -> SplitConfig:
        sizes = [self.train, self.validation, self.test]
        fractions = [s for s in sizes if isinstance(s, float)]
        if sum(fractions) > 1 + 1e-9:
            raise ValueError(
                f"the fractions add up to {sum(fractions):g}, more than 1 (counts of steps "
                "are whole numbers without a point)"
            )
        if (self.validation_start is None) != (self.test_start is None):
            raise ValueError("give both validation_start and test_start, or neither")
        if self.name == "random":
            refuse_unused(self, "name: random", "gap", "validation_start", "test_start")
        else:
            refuse_unused(self, "name: blocked", "seed", "force")
        if self.test_start is not None:
            refuse_unused(self, "test_start, which sets the sizes", "train", "validation", "test")
        return self


@dataclass(frozen=True)
class Split:
    """A divided time series.

    Attributes:
        steps: time steps of each part; None for a random split, whose parts overlap.
        starts: first step of every window of each part, int64.
    """

    steps: dict[str, range] | None
    starts: dict[str, np.ndarray]


def blocked_split(
    num_steps: int,
    inputs: int,
    leads: int,
    config: SplitConfig | None = None,
    *,
    breakpoints: Sequence[int] = (),
    times: xr.DataArray | None = None,
) -> Split:
    """Divide a time series into windows for train, validation and test.

    Args:
        num_steps: length of the series.
        inputs: input steps of a window.
        leads: target steps of a window.
        config: the division; default 70 / 15 / 15 %.
        breakpoints: steps that no window may start before and end at or after.
        times: decoded time coordinate, shape (num_steps,); needed for dates only.

    Raises:
        ConfigError: a part that is asked for gets no window, or a random split without force.

    Example:
        >>> split = blocked_split(20, 2, 1, SplitConfig(train=10, validation=4, test=4, gap=1))
        >>> split.steps["validation"], split.starts["validation"].tolist()
        (range(11, 15), [11, 12])
    """
    config = config or SplitConfig()
    if config.name == "random":
        return _random_split(num_steps, inputs, leads, config, breakpoints)
    steps = _blocks(num_steps, config, times)
    starts = {
        name: window_starts(block, inputs, leads, breakpoints) for name, block in steps.items()
    }
    for name, block in steps.items():
        if not len(starts[name]) and (getattr(config, name) or config.test_start):
            raise ConfigError(
                f"the {name} part has {len(block)} of {num_steps} steps and no whole window of "
                f"{inputs} + {leads} steps",
                where="split",
                fix="shorter windows, a smaller gap, or a larger part",
            )
    return Split(steps, starts)


def window_starts(
    steps: range, inputs: int, leads: int, breakpoints: Sequence[int] | None = None
) -> np.ndarray:
    """Return the first step of every window that lies in `steps` and crosses no breakpoint.

    Args:
        steps: consecutive time steps.
        inputs: input steps of a window.
        leads: target steps of a window.
        breakpoints: steps that no window may start before and end at or after.

    Returns:
        int64, shape (num_windows,).

    Example:
        >>> window_starts(range(2, 8), inputs=2, leads=1, breakpoints=[5]).tolist()
        [2, 5]
    """
    window = inputs + leads
    if inputs < 1 or leads < 0:
        raise ConfigError(f"a window of {inputs} + {leads} steps", allowed="inputs 1+, leads 0+")
    starts = np.arange(steps.start, steps.stop - window + 1, dtype=np.int64)
    for breakpoint in breakpoints or ():
        starts = starts[(starts >= breakpoint) | (starts + window <= breakpoint)]
    return starts


def _blocks(num_steps: int, config: SplitConfig, times: xr.DataArray | None) -> dict[str, range]:
    if config.validation_start is not None and config.test_start is not None:
        validation = _step_of(config.validation_start, "validation_start", times)
        test = _step_of(config.test_start, "test_start", times)
        ends = [validation - config.gap, test - config.gap, num_steps]
        begins = [0, validation, test]
    else:
        sizes = _sizes(num_steps, config)
        begins, ends, at = [], [], 0
        for size in sizes:
            begins.append(at)
            ends.append(at + size)
            at += size + (config.gap if size else 0)
    return {
        name: range(begin, max(begin, min(end, num_steps)))
        for name, begin, end in zip(SPLITS, begins, ends, strict=True)
    }


def _sizes(num_steps: int, config: SplitConfig) -> list[int]:
    """Return the steps of each part; gaps are taken off before fractions are."""
    wanted = [config.train, config.validation, config.test]
    usable = num_steps - config.gap * (sum(1 for w in wanted if w) - 1)
    # floor with a little slack: 0.15 + 0.15 + 0.7 must not lose a step to rounding
    sizes = [w if isinstance(w, int) else int(w * usable + 1e-9) for w in wanted]
    if sum(sizes) > usable:
        raise ConfigError(
            f"{sum(sizes)} steps and the gaps of {config.gap} are more than the series has "
            f"({num_steps})",
            where="split",
            allowed=f"at most {max(usable, 0)} steps in all",
        )
    return sizes


def _step_of(date: str, key: str, times: xr.DataArray | None) -> int:
    """Return the first step at or after a date."""
    if times is None:
        raise ConfigError("needs a field with dates", where=f"split.{key}")
    values = times.values
    try:
        limit = _limit(date, values)
    except ValueError:
        raise ConfigError(f"{date!r} is not a date", where=f"split.{key}") from None
    step = int(np.argmax(values >= limit)) if (values >= limit).any() else len(values)
    if not 0 < step < len(values):
        raise DataError(
            f"{date} is not inside the series ({values[0]} to {values[-1]})", where=f"split.{key}"
        )
    return step


def _limit(date: str, values: np.ndarray) -> Any:
    """Return a date as the type of `values`; in the file's calendar 30 February may exist."""
    if values.dtype.kind == "O":
        parts = [int(part) for part in date.partition("T")[0].split("-")]
        return values[0].replace(
            **dict(zip(("year", "month", "day"), [*parts, 1, 1], strict=False)),
            hour=0, minute=0, second=0, microsecond=0,
        )  # fmt: skip
    return np.datetime64(date) if values.dtype.kind == "M" else float(date)


def _random_split(
    num_steps: int, inputs: int, leads: int, config: SplitConfig, breakpoints: Sequence[int]
) -> Split:
    if not config.force:
        raise ConfigError(
            "a random split of overlapping windows puts the steps of nearly every validation "
            "window into the training part too; such a score was .98 where the test gave .72",
            where="split.name",
            allowed="blocked",
            fix="split.name=blocked, or split.force=true to do it all the same",
        )
    starts = window_starts(range(num_steps), inputs, leads, breakpoints)
    mixed = np.random.default_rng(config.seed).permutation(starts)
    sizes = _sizes(len(starts), config.model_copy(update={"gap": 0}))
    cuts = np.cumsum(sizes)
    parts = np.split(mixed[: cuts[-1]], cuts[:-1])
    return Split(None, {n: np.sort(p) for n, p in zip(SPLITS, parts, strict=True)})
