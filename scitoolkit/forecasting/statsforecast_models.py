"""Models of the package statsforecast as baselines of a report: one model for each series.

They are fitted to the steps before the test part and forecast from each origin with the values up
to it, as `cross_validation(refit=False)` of the package does. A model that fits each series alone
is what a plain series is usually forecast with, so that a win over our own baselines only says
little.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from scitoolkit.core.errors import ScitoolkitError, missing_extra
from scitoolkit.core.log import get_logger
from scitoolkit.core.plugins import NeedsPackages
from scitoolkit.forecasting.config import STATSFORECAST_MODELS, ForecastingConfig
from scitoolkit.forecasting.data import FieldData
from scitoolkit.forecasting.forecasters.base import MOST_SERIES, Forecaster, Memo
from scitoolkit.forecasting.forecasters.climatology import resolvable_harmonics
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows

log = get_logger(__name__)
LONGEST_SEASON = 24
"""Longest season in steps of models with a state or lags for each step of it; `SeasonalNaive` has
none and takes any."""
MOST_STEPS = 2000
"""Last steps that a model is fitted to and forecasts from, which bounds the time of a report."""


class StatsforecastModel(NeedsPackages, Forecaster):
    """A model of statsforecast, one copy for each series.

    Args:
        name: of the model, one of `STATSFORECAST_MODELS`.
        season: main season in steps, 1 without one.
    """

    requires: ClassVar[tuple[str, ...]] = ("statsforecast",)

    def __init__(self, name: str, season: int) -> None:
        self.name = name
        long = season > LONGEST_SEASON and name != "SeasonalNaive"
        self.season: int = 1 if long else season
        self._fitted: list[Any] = []

    def fit(self, segments: Sequence[TimeSeries], memo: Memo | None = None) -> StatsforecastModel:
        """Fit a copy to each series of the one stretch.

        Raises:
            BackendError: the package is not installed.
            ValueError: several stretches, between which steps are missing.
        """
        if len(segments) != 1:
            raise ValueError(f"{self.name} needs one stretch without gaps, got {len(segments)}")
        model = self._model()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of optimizers, about fits that the package keeps
            self._fitted = [
                copy.deepcopy(model).fit(y) for y in _columns(segments[0].values[-MOST_STEPS:])
            ]
        return self

    def _model(self) -> Any:
        try:
            from statsforecast import models
        except ImportError:
            raise missing_extra(
                "statsforecast", "statsforecast", f"the baseline {self.name}"
            ) from None
        # As R's auto.arima does for all but short series.
        more = {"approximation": True} if self.name == "AutoARIMA" else {}
        return getattr(models, self.name)(season_length=self.season, **more)

    def predict(self, windows: Windows) -> Array:
        """Return the forecast from the values of the record up to each window's last input."""
        out = np.empty((len(windows), windows.leads, windows.series.values.shape[1]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for row, start in enumerate(windows.starts):
                end = int(start) + windows.inputs
                past = windows.series.values[max(0, end - MOST_STEPS) : end]
                for cell, (model, y) in enumerate(zip(self._fitted, _columns(past), strict=True)):
                    out[row, :, cell] = self._continued(model, y, windows.leads)
        return out

    def _continued(self, model: Any, past: Array, leads: int) -> Array:
        if self.name == "SeasonalNaive":  # which has no parameters to apply to other values
            return model.forecast(y=past, h=leads)["mean"]
        return model.forward(y=past, h=leads)["mean"]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return nothing: a baseline is fitted where it is compared, and not stored."""
        return {}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> StatsforecastModel:
        """Return the unfitted model; see `arrays`."""
        return self


def _columns(values: Array) -> list[Array]:
    return [np.ascontiguousarray(column) for column in values.T]


def statsforecast_models(
    config: ForecastingConfig, seasons: Sequence[float], *records: FieldData
) -> tuple[dict[str, StatsforecastModel], str]:
    """Return the unfitted models to compare by title, and why there are none, "" if there are.

    Args:
        config: of the job.
        seasons: of the coding, in steps; () for the year of dates.
        records: the training data, and those that are scored.

    Raises:
        BackendError: models are listed in `baselines`, and the package is not installed.
    """
    wanted = config.baselines
    names = STATSFORECAST_MODELS if wanted == "auto" else tuple(wanted)
    cells = len(records[0].weights)
    if not names or (wanted == "auto" and cells > MOST_SERIES):
        return {}, ""
    listed = f"{', '.join(names)} of statsforecast are not compared"
    if any(record.breakpoints for record in records):
        return {}, f"{listed}: they need a record without gaps (data.fill interpolates short ones)"
    if not StatsforecastModel.unavailable():
        season = main_season(seasons, records[0].series.years)
        return {f"{name} (statsforecast)": StatsforecastModel(name, season) for name in names}, ""
    absent = missing_extra("statsforecast", "statsforecast", "their comparison")
    if wanted != "auto":
        raise absent
    return {}, f"{listed}: {absent}"


def fitted_models(
    models: Mapping[str, StatsforecastModel], segments: Sequence[TimeSeries], windows: Windows
) -> tuple[dict[str, StatsforecastModel], str]:
    """Return the models that forecast each window, fitted, and which do not and why, "" for none.

    The number of steps that a model needs depends on its season and on the order that it selects.

    Args:
        models: by title.
        segments: to fit to.
        windows: to be forecast, in time.
    """
    fitted: dict[str, StatsforecastModel] = {}
    left: list[str] = []
    for title, model in models.items():
        try:
            model.fit(segments)
            finite = np.isfinite(model.predict(windows.take(slice(0, 1)))).all()
            reason = "" if finite else "its first forecast is not finite"
        except ScitoolkitError:
            raise
        except Exception as error:  # of too few steps; its type differs between the models
            reason = str(error) or type(error).__name__
        if reason:
            left.append(f"{title} ({reason})")
        else:
            fitted[title] = model
            log.info("fitted %s", title)
    if not left:
        return fitted, ""
    first = int(windows.starts[0]) + windows.inputs
    return fitted, f"{first} steps before the first origin are too few for {', '.join(left)}"


def main_season(seasons: Sequence[float], years: Array) -> int:
    """Return the season in whole steps of a model that has one: the shortest, 1 without any.

    Example:
        >>> main_season([], 2000 + np.arange(60) / 12), main_season([168.0, 24.0], np.zeros(3))
        (12, 24)
    """
    if seasons:
        return round(min(seasons))
    return round(1 / float(np.median(np.diff(years)))) if resolvable_harmonics(years) else 1
