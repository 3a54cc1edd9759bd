"""Climatologies (mean, annual harmonics, trend) and anomaly persistence.

Models of anomalies are fitted to anomalies from a climatology of other years (cross-fitting). After
the training years a climatology has errors from sampling and drift, which in-sample anomalies do
not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeInt

from scitoolkit.forecasting.forecasters.base import Forecaster, ForecasterConfig, Memo, Setting
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows

NO_CALENDAR = "no calendar of two years or more"


class Climatology(Forecaster):
    """Mean, annual harmonics of the calendar year and, optionally, a linear trend.

    Args:
        harmonics: number of annual harmonics; fewer if the time step cannot resolve them, none if
            the record is shorter than two years or has no calendar.
        trend: whether to fit a linear trend; a trend over a few years extrapolates poorly.

    Example:
        >>> years = 2000 + np.arange(48) / 12
        >>> values = 15 + 3 * np.cos(2 * np.pi * years)[:, None]
        >>> model = Climatology(harmonics=2).fit([TimeSeries(values, years)])
        >>> float(np.abs(model.at(years) - values).max().round(6))
        0.0
    """

    def __init__(self, harmonics: int = 3, trend: bool = False) -> None:
        self.harmonics: int = harmonics
        self.trend: bool = trend

    def fit(self, segments: Sequence[TimeSeries], memo: Memo | None = None) -> Climatology:
        """Fit by least squares over all segments."""
        values = np.concatenate([s.values for s in segments])
        years = np.concatenate([s.years for s in segments])
        self.used_: int = min(self.harmonics, resolvable_harmonics(years))
        self.origin_: float = 0.0 if np.isnan(years).any() else float(years.mean())
        design = self._design(years)
        self.coefficients_: np.ndarray = np.linalg.lstsq(design, values, rcond=None)[0]
        return self

    def at(self, years: Array) -> Array:
        """Return the climatology (..., channel) at decimal years (...)."""
        return self._design(years) @ self.coefficients_

    def anomalies(self, series: TimeSeries) -> TimeSeries:
        """Return the series minus its climatology."""
        return TimeSeries(series.values - self.at(series.years), series.years)

    def predict(self, windows: Windows) -> Array:
        """Return the climatology at the forecast times, (window, lead, channel)."""
        return self.at(windows.output_years())

    def arrays(self) -> dict[str, np.ndarray]:
        """Return coefficients, number of harmonics used and origin of the trend."""
        return {
            "coefficients": self.coefficients_,
            "used": np.array(self.used_),
            "origin": np.array(self.origin_),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Climatology:
        """Restore the fitted state from `arrays`; return self."""
        self.coefficients_ = arrays["coefficients"]
        self.used_, self.origin_ = int(arrays["used"]), float(arrays["origin"])
        return self

    def _design(self, years: Array) -> Array:
        years = np.asarray(years)
        columns = [np.ones(years.shape)]
        for order in range(1, self.used_ + 1):
            angle = 2 * np.pi * order * years
            columns += [np.cos(angle), np.sin(angle)]
        if self.trend and not np.isnan(years).any():
            columns.append(years - self.origin_)
        return np.stack(columns, axis=-1)


def resolvable_harmonics(years: Array) -> int:
    """Return the number of annual harmonics that a record resolves without aliasing.

    It is 0 for a record shorter than about two years or without a calendar.
    """
    if np.isnan(years).any() or len(years) < 3 or np.ptp(years) < 1.9:
        return 0
    step = float(np.median(np.diff(np.sort(years))))
    return int(round(1 / step, 3) // 2) if step > 0 else 0


def cross_fitted_anomalies(
    segments: Sequence[TimeSeries], climatology: Climatology, folds: int
) -> list[TimeSeries]:
    """Return the anomalies of each block from a climatology fitted to all other blocks.

    Args:
        segments: stretches of the record.
        climatology: provides the settings; it is not changed.
        folds: total number of blocks; 1 for in-sample anomalies.
    """
    pieces = [piece for s in segments for piece in _cut(s, _share(s, segments, folds))]
    out = []
    for i, piece in enumerate(pieces):
        others = [p for j, p in enumerate(pieces) if j != i]
        model = Climatology(climatology.harmonics, climatology.trend)
        all_years = np.concatenate([p.years for p in others]) if others else piece.years
        short = np.isfinite(piece.years).all() and resolvable_harmonics(all_years) < min(
            climatology.harmonics, resolvable_harmonics(np.concatenate([p.years for p in pieces]))
        )
        out.append(model.fit(pieces if short or not others else others).anomalies(piece))
    return out


def _share(series: TimeSeries, segments: Sequence[TimeSeries], folds: int) -> int:
    total = sum(len(s.values) for s in segments)
    return max(1, round(folds * len(series.values) / total))


def _cut(series: TimeSeries, count: int) -> list[TimeSeries]:
    edges = np.linspace(0, len(series.values), count + 1).astype(int)
    return [TimeSeries(series.values[a:b], series.years[a:b]) for a, b in pairwise(edges)]


class AnomalyPersistence(Forecaster):
    """Anomaly persistence: climatology plus the last anomaly at all leads."""

    def __init__(self, harmonics: int = 3) -> None:
        self.climatology: Climatology = Climatology(harmonics)

    def fit(self, segments: Sequence[TimeSeries], memo: Memo | None = None) -> AnomalyPersistence:
        """Fit the climatology."""
        self.climatology.fit(segments)
        return self

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the climatology."""
        return self.climatology.arrays()

    def restore(self, arrays: Mapping[str, np.ndarray]) -> AnomalyPersistence:
        """Restore the fitted state from `arrays`; return self."""
        self.climatology.restore(arrays)
        return self

    def predict(self, windows: Windows) -> Array:
        """Return climatology plus last anomaly, (window, lead, channel)."""
        return self.climatology.predict(windows) + last_anomaly(self.climatology, windows)[:, None]


def last_anomaly(climatology: Climatology, windows: Windows, lag: int = 0) -> Array:
    """Return the anomaly `lag` steps before the last input, (window, channel)."""
    return windows.lagged(lag) - climatology.at(windows.input_years()[:, -1 - lag])


class ClimatologyConfig(ForecasterConfig):
    """Mean and annual harmonics of every cell.

    Attributes:
        harmonics: number of annual harmonics; None uses the number selected by validation.
        trend: whether to fit a linear trend.
    """

    title: ClassVar[str] = "climatology"
    in_title: ClassVar[tuple[str, ...]] = ("trend",)

    name: Literal["climatology"] = "climatology"
    harmonics: NonNegativeInt | None = None
    trend: bool = False

    def build(self, setting: Setting) -> Climatology:
        """Return the unfitted model."""
        return Climatology(chosen_harmonics(self.harmonics, setting), self.trend)

    @classmethod
    def variants(cls) -> list[ForecasterConfig]:
        """Return climatologies without and with a trend."""
        return [cls(), cls(trend=True)]

    def titled(self) -> str:
        """Return the name in tables."""
        return f"{self.title} + trend" if self.trend else self.title

    def refuses(self, setting: Setting) -> str:
        """Return a reason if there is a trend and the record has no calendar."""
        return NO_CALENDAR if self.trend and not setting.harmonics else ""


def chosen_harmonics(wanted: int | None, setting: Setting) -> int:
    """Return the number of harmonics of a configuration, by default that of the setting."""
    return setting.harmonics if wanted is None else wanted
