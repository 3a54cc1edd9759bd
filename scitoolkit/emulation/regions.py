"""Scores by region: root mean square errors and correlations of anomalies, weighted by area."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data
from scitoolkit.emulation.rollout import Frames
from scitoolkit.emulation.variables import LATITUDE, LONGITUDE

WHOLE = "whole grid"
BANDS: Mapping[str, tuple[float, float]] = {
    "northern extratropics": (20.0, 90.0),
    "tropics": (-20.0, 20.0),
    "southern extratropics": (-90.0, -20.0),
}
"""Latitudes of the regions if the configuration names none, as in WeatherBench 2."""


@dataclass(frozen=True)
class ScoredRegion:
    """Cells whose scores are listed together.

    Attributes:
        name: of the region.
        weights: (*grid), of sum 1; 0 outside.
    """

    name: str
    weights: np.ndarray


def regions_of(config: EmulationConfig, data: Data) -> list[ScoredRegion]:
    """Return the whole grid and the regions of a job, in the order of the configuration.

    Raises:
        ConfigError: a region of an unknown dim, or without cells.
    """
    weights = data.layout.weights()
    regions = [ScoredRegion(WHOLE, weights / weights.sum())]
    for name, limits in config.regions.items():
        inside = _inside(data, name, limits)
        if not (weights * inside).sum() > 0:
            raise ConfigError(
                "no cell with values is in it", where=f"regions.{name}", allowed=_extent(data)
            )
        regions.append(ScoredRegion(name, weights * inside / (weights * inside).sum()))
    if config.regions or LATITUDE not in data.dataset.coords or data.layout.areas is None:
        return regions
    for name, band in BANDS.items():
        inside = weights * _inside(data, name, {"latitude": band})
        if 0 < inside.sum() < weights.sum():
            regions.append(ScoredRegion(name, inside / inside.sum()))
    return regions


def _positions(data: Data) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Return the coordinates that limit a region: {name: (dims, values)}."""
    masks: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        d: ((d,), np.asarray(x)) for d, x in data.layout.coordinates.items()
    }
    for name, coordinate in (("latitude", LATITUDE), ("longitude", LONGITUDE)):
        if coordinate in data.dataset.coords:
            array = data.dataset[coordinate]
            masks[name] = tuple(map(str, array.dims)), array.values
    return masks


def _inside(data: Data, name: str, limits: Mapping[str, tuple[float, float]]) -> np.ndarray:
    """Return the cells of a region, (*grid) bool."""
    positions, grid = _positions(data), list(data.layout.grid)
    inside = np.ones(tuple(data.layout.grid.values()), bool)
    for dim, (low, high) in limits.items():
        if dim not in positions:
            raise ConfigError(
                f"{dim!r} is no coordinate of the grid",
                where=f"regions.{name}",
                allowed=", ".join(positions) or "none: the grid has no coordinates",
            )
        dims, values = positions[dim]
        within = (values >= low) & (values <= high)
        if dim == "longitude":  # from `low` eastward to `high`, in whichever branch
            width = high - low if high - low >= 360 else (high - low) % 360
            within = (values - low) % 360 <= width
        order = sorted(range(len(dims)), key=lambda k: grid.index(dims[k]))
        missing = tuple(axis for axis, d in enumerate(grid) if d not in dims)
        inside &= np.expand_dims(within.transpose(order), missing)
    return inside


def _extent(data: Data) -> str:
    return ", ".join(
        f"{name} from {np.min(values):.4g} to {np.max(values):.4g}"
        for name, (_, values) in _positions(data).items()
    )


class RegionalScores:
    """Sums over samples and cells of squared errors and of products of anomalies.

    As in WeatherBench-X, means over samples and cells are taken before roots and ratios.

    Args:
        regions: with weights of sum 1.
        fields: names of the outputs on the grid.
    """

    def __init__(self, regions: Sequence[ScoredRegion], fields: Sequence[str]) -> None:
        self.regions = regions
        self.fields = fields
        self._sums: dict[tuple[str, str, str, int], np.ndarray] = defaultdict(lambda: np.zeros(5))

    def where(self, valid: np.ndarray) -> RegionalScores:
        """Return scores that add to the same sums, of valid cells (*grid) only."""
        out = copy.copy(self)
        out.regions = [replace(r, weights=r.weights * valid) for r in self.regions]
        return out

    def add(
        self, forecast: str, step: int, truth: Frames, frame: Frames, normal: Frames | None
    ) -> None:
        """Add a sample.

        Args:
            forecast: its name.
            step: number of the step.
            truth: the fields of the file.
            frame: the fields of the forecast.
            normal: the climatology at that time; None for no anomalies.
        """
        for name in self.fields:
            right = truth[name].astype(np.float64)
            own = frame[name].astype(np.float64)
            products = [np.ones_like(right), (own - right) ** 2]
            if normal is not None:
                a, b = own - normal[name], right - normal[name]
                products += [a * b, a * a, b * b]
            for region in self.regions:
                sums = [float((p * region.weights).sum()) for p in products]
                self._sums[region.name, forecast, name, step][: len(sums)] += sums

    def rmse(self, region: str, forecast: str, name: str, step: int = 0) -> float | None:
        """Return the root mean square error; None if no sample was added."""
        sums = self._sums.get((region, forecast, name, step))
        return None if sums is None else float(np.sqrt(sums[1] / sums[0]))

    def acc(self, region: str, forecast: str, name: str, step: int = 0) -> float | None:
        """Return the anomaly correlation coefficient; None without anomalies."""
        sums = self._sums.get((region, forecast, name, step))
        if sums is None or not (sums[3] > 0 and sums[4] > 0):
            return None
        return float(sums[2] / np.sqrt(sums[3] * sums[4]))
