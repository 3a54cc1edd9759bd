"""Sampling of a campaign's parameters: Sobol points, a grid, or independent random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from scitoolkit.core.config import Config, refuse_unused
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.resume import FREE_ON_RESUME

FEWEST_STEPS = 2


class Prior(Config):
    """Distribution of one parameter: uniform, log-uniform, or normal truncated to [low, high].

    Attributes:
        low: smallest value.
        high: largest value.
        mean: mean of the normal distribution before truncation.
        std: standard deviation of the normal distribution before truncation.
    """

    distribution: Literal["uniform", "log_uniform", "normal"] = "uniform"
    low: float
    high: float
    mean: float = 0.0
    std: Annotated[float, Field(gt=0)] = 1.0

    @model_validator(mode="after")
    def _check(self) -> Prior:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}")
        if self.distribution == "log_uniform" and self.low <= 0:
            raise ValueError(f"low {self.low:g}: a log-uniform parameter must be positive")
        if self.distribution != "normal":
            refuse_unused(self, f"distribution {self.distribution!r}", "mean", "std")
        return self

    def ends(self) -> tuple[float, float]:
        """Return the smallest and the largest value that can be drawn."""
        return self.low, self.high

    def value(self, quantile: float) -> float:
        """Evaluate the quantile function (inverse cumulative distribution) at `quantile`.

        Example:
            >>> Prior(low=1, high=100, distribution="log_uniform").value(0.5)
            10.0
        """
        if self.distribution == "uniform":
            return self.low + quantile * (self.high - self.low)
        if self.distribution == "log_uniform":
            return float(self.low ** (1 - quantile) * self.high**quantile)
        from scipy.stats import truncnorm

        a, b = (self.low - self.mean) / self.std, (self.high - self.mean) / self.std
        return float(truncnorm.ppf(quantile, a, b, self.mean, self.std))


class DrawConfig(Config):
    """Sampling plan of a campaign.

    Attributes:
        method: `sobol` (scrambled Sobol sequence, evenly distributed for any number of samples),
            `grid` (the same number of points in every direction, ends included) or `random`.
        samples: number of samples; a campaign can be extended later, except on a grid.
        parameters: a prior or a list of values for each sampled parameter; the others keep the
            generator's values.
    """

    method: Literal["sobol", "grid", "random"] = "sobol"
    samples: Annotated[PositiveInt, FREE_ON_RESUME] = 16
    parameters: dict[str, Prior | Annotated[list[float], Field(min_length=1)]] = Field(
        default_factory=dict
    )

    @model_validator(mode="after")
    def _check(self) -> DrawConfig:
        if self.method == "grid":
            self.grid_points()
        return self

    def grid_points(self) -> int:
        """Return the number of grid points along each prior.

        Raises:
            ValueError: no full grid has `samples` points; the message names the nearest size.
        """
        lists = math.prod(len(p) for p in self.parameters.values() if isinstance(p, list))
        priors = sum(isinstance(p, Prior) for p in self.parameters.values())
        points = max(FEWEST_STEPS, round((self.samples / lists) ** (1 / max(priors, 1))))
        needed = lists * points**priors
        if needed != self.samples:
            raise ValueError(
                f"samples {self.samples} does not form a full grid; the nearest is {needed}"
            )
        return points

    def ends(self) -> list[dict[str, float]]:
        """Return two parameter sets: all smallest values, and all largest values."""
        pairs = {
            key: (min(p), max(p)) if isinstance(p, list) else p.ends()
            for key, p in self.parameters.items()
        }
        return [{key: pair[i] for key, pair in pairs.items()} for i in (0, 1)]

    def require_valid(self, accept: Callable[[dict[str, float]], object]) -> None:
        """Raise ValueError if the priors extend beyond the values that `accept` allows.

        Args:
            accept: called with both ends of the priors; raises ConfigError for invalid values.

        Raises:
            ValueError: with the message of `accept`.
        """
        for values in self.ends():
            try:
                accept(values)
            except ConfigError as error:
                raise ValueError(f"draw.parameters: {error}") from None

    def draw(self, seed: int = 0) -> list[dict[str, float]]:
        """Return the parameters of every sample; a larger plan starts with the same samples.

        Args:
            seed: seed of the points; unused for a grid.

        Example:
            >>> config = DrawConfig(samples=4, method="grid", parameters={
            ...     "a": {"low": 0, "high": 1}, "b": [2.0, 3.0]})
            >>> config.draw()[:2]
            [{'a': 0.0, 'b': 2.0}, {'a': 0.0, 'b': 3.0}]
        """
        return [self.values(point) for point in self._points(seed)]

    def values(self, point: Sequence[float]) -> dict[str, float]:
        """Return the parameters at a point of the unit cube with one coordinate per parameter.

        Example:
            >>> DrawConfig(parameters={"a": {"low": 0, "high": 4}}).values([0.5])
            {'a': 2.0}
        """
        return {
            key: float(p[min(int(u * len(p)), len(p) - 1)]) if isinstance(p, list) else p.value(u)
            for (key, p), u in zip(self.parameters.items(), point, strict=True)
        }

    def _points(self, seed: int) -> list[list[float]]:
        """Return points of the unit cube, one per sample."""
        import numpy as np

        dims = len(self.parameters)
        if not dims:
            return [[] for _ in range(self.samples)]
        if self.method == "grid":
            return _grid(self.parameters, self.grid_points())
        if self.method == "random":
            return np.random.default_rng(seed).random((self.samples, dims)).tolist()
        from scipy.stats import qmc

        # Sobol points are balanced at powers of two; a longer sequence starts with the same points.
        sequence = qmc.Sobol(dims, rng=np.random.default_rng(seed))
        return sequence.random_base2((self.samples - 1).bit_length())[: self.samples].tolist()


def _grid(parameters: Mapping[str, Prior | list[float]], points: int) -> list[list[float]]:
    import itertools

    axes = [
        [(i + 0.5) / len(p) for i in range(len(p))]
        if isinstance(p, list)
        else [i / (points - 1) for i in range(points)]
        for p in parameters.values()
    ]
    return [list(point) for point in itertools.product(*axes)]
