"""Drawing the parameters of a campaign: Sobol points, a grid, or independent random numbers."""

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
    """Distribution of one parameter: uniform, log-uniform, or normal cut off at `low` and `high`.

    Attributes:
        low: smallest value.
        high: largest value.
        mean: of the normal distribution before it is cut off.
        std: its standard deviation.
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
            raise ValueError(f"low {self.low:g}: a log-uniform parameter is positive")
        if self.distribution != "normal":
            refuse_unused(self, f"distribution {self.distribution!r}", "mean", "std")
        return self

    def ends(self) -> tuple[float, float]:
        """Return the smallest and the largest value that can be drawn."""
        return self.low, self.high

    def value(self, quantile: float) -> float:
        """Return the value below which `quantile` of the distribution lies.

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
    """Which samples a campaign has.

    Attributes:
        method: `sobol` (scrambled, fills the box evenly at any number), `grid` (the same number
            of points in every direction, ends included) or `random`.
        samples: number of samples; a campaign may be continued with more, but a grid.
        parameters: for each parameter a prior or a list of values; the others keep the values of
            the generator.
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
        """Return the points of a grid along each prior.

        Raises:
            ValueError: `samples` is no such grid; the message names the nearest that is.
        """
        lists = math.prod(len(p) for p in self.parameters.values() if isinstance(p, list))
        priors = sum(isinstance(p, Prior) for p in self.parameters.values())
        points = max(FEWEST_STEPS, round((self.samples / lists) ** (1 / max(priors, 1))))
        needed = lists * points**priors
        if needed != self.samples:
            raise ValueError(f"samples {self.samples} is no full grid; the nearest is {needed}")
        return points

    def ends(self) -> list[dict[str, float]]:
        """Return the two parameter sets with all smallest and all largest values."""
        pairs = {
            key: (min(p), max(p)) if isinstance(p, list) else p.ends()
            for key, p in self.parameters.items()
        }
        return [{key: pair[i] for key, pair in pairs.items()} for i in (0, 1)]

    def require_valid(self, accept: Callable[[dict[str, float]], object]) -> None:
        """Refuse priors that reach beyond what `accept` takes.

        Args:
            accept: is called with both ends of the priors; raises ConfigError.

        Raises:
            ValueError: its message.
        """
        for values in self.ends():
            try:
                accept(values)
            except ConfigError as error:
                raise ValueError(f"draw.parameters: {error}") from None

    def draw(self, seed: int = 0) -> list[dict[str, float]]:
        """Return the parameters of every sample; more samples begin with the same ones.

        Args:
            seed: of the points; a grid needs none.

        Example:
            >>> config = DrawConfig(samples=4, method="grid", parameters={
            ...     "a": {"low": 0, "high": 1}, "b": [2.0, 3.0]})
            >>> config.draw()[:2]
            [{'a': 0.0, 'b': 2.0}, {'a': 0.0, 'b': 3.0}]
        """
        return [self.values(point) for point in self._points(seed)]

    def values(self, point: Sequence[float]) -> dict[str, float]:
        """Return the parameters at a point of the unit cube, one coordinate a parameter.

        Example:
            >>> DrawConfig(parameters={"a": {"low": 0, "high": 4}}).values([0.5])
            {'a': 2.0}
        """
        return {
            key: float(p[min(int(u * len(p)), len(p) - 1)]) if isinstance(p, list) else p.value(u)
            for (key, p), u in zip(self.parameters.items(), point, strict=True)
        }

    def _points(self, seed: int) -> list[list[float]]:
        """Return points of the unit cube, one a sample."""
        import numpy as np

        dims = len(self.parameters)
        if not dims:
            return [[] for _ in range(self.samples)]
        if self.method == "grid":
            return _grid(self.parameters, self.grid_points())
        if self.method == "random":
            return np.random.default_rng(seed).random((self.samples, dims)).tolist()
        from scipy.stats import qmc

        # A power of two, as other counts are not balanced; a longer sequence begins the same.
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
