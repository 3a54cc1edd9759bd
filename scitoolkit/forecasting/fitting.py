"""Fitting a field surrogate: choices by blocked validation, then networks by the trainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from logging import Logger

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.forecasting.baselines import (
    AnomalyPersistence,
    Climatology,
    DampedAnomaly,
    Forecaster,
    Persistence,
    RidgeAutoregression,
    resolvable_harmonics,
)
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import FieldData, Parts
from scitoolkit.forecasting.metrics import rmse_per_lead
from scitoolkit.forecasting.pod import POD
from scitoolkit.forecasting.selection import cross_validate
from scitoolkit.forecasting.surrogate import QUANTILES, ForecastSurrogate, make_network
from scitoolkit.forecasting.windows import Array, Series, Windows

log: Logger = get_logger(__name__)

# Names of the candidates in tables.
BASE = "damped anomaly with memory"
NETWORK = f"{BASE} + POD-LSTM"
RIDGE = f"{BASE} + POD ridge"
POD_LSTM = "climatology + POD-LSTM"
POD_RIDGE = "climatology + POD ridge"

PATTERNS = 3
SHRINKAGES = (3.0, 10.0)
CROSS_FITS = (1, 3)
Settings = dict[str, object]
Make = Callable[[], Forecaster]


@dataclass
class Choice:
    """The settings chosen for the base, and the validation error of all that were compared."""

    settings: Settings
    table: list[tuple[str, float]]
    make: Make


def choose_base(
    segments: Sequence[Series], weights: Array, config: ForecastingConfig
) -> Choice:  # fmt: skip
    """Choose harmonics first, then memory, cross-fit and shrinkage, by blocked validation."""
    inputs, leads = config.inputs, config.leads
    resolvable = resolvable_harmonics(np.concatenate([s.years for s in segments]))
    harmonics = sorted({min(n, resolvable) for n in config.harmonics})
    memories = [(), tuple(sorted({min(3, inputs), inputs} - {1}))]
    start: Settings = {"shrinkage": SHRINKAGES[-1], "folds": 1, "memory": ()}
    table: list[tuple[str, float]] = []

    def error(settings: Settings) -> float:
        make = partial(base_forecaster, settings, leads, weights)
        found = cross_validate(make, segments, inputs=inputs, leads=leads)
        value = float(np.sqrt((rmse_per_lead(found.truth, found.forecast, weights) ** 2).mean()))
        table.append((_name(settings), value))
        return value

    def chosen(settings: Settings) -> Choice:
        return Choice(settings, table, partial(base_forecaster, settings, leads, weights))

    grid = [{**start, "harmonics": n} for n in harmonics]
    if not _can_validate(segments, inputs, leads):
        log.warning("too few training steps to choose by validation: defaults are used")
        return chosen(grid[min(2, len(grid) - 1)])
    best = min(grid, key=error)
    rest = [
        {**best, "memory": memory, "folds": folds, "shrinkage": shrinkage}
        for memory, folds, shrinkage in product(dict.fromkeys(memories), CROSS_FITS, SHRINKAGES)
    ]
    return chosen(min(rest, key=error))


def _can_validate(segments: Sequence[Series], inputs: int, leads: int) -> bool:
    return max(len(s.values) for s in segments) >= 3 * (inputs + leads)


def cross_validated(
    makes: dict[str, Make], segments: Sequence[Series], weights: Array, config: ForecastingConfig
) -> dict[str, float]:
    """Return each forecaster's RMSE over all leads by blocked cross-validation; {} if too short."""
    if not _can_validate(segments, config.inputs, config.leads):
        return {}
    errors = {}
    for name, make in makes.items():
        found = cross_validate(make, segments, inputs=config.inputs, leads=config.leads)
        per_lead = rmse_per_lead(found.truth, found.forecast, weights)
        errors[name] = float(np.sqrt((per_lead**2).mean()))
    return errors


def _name(settings: Settings) -> str:
    return ", ".join(f"{k} {_text(v)}" for k, v in sorted(settings.items()))


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, (1, *value)))
    return f"{value:g}"


def base_forecaster(settings: Settings, leads: int, weights: Array | None) -> DampedAnomaly:
    """Return an unfitted base of the given settings."""
    return DampedAnomaly(leads=leads, patterns=PATTERNS, weights=weights, **settings)  # type: ignore[arg-type]


def baselines(settings: Settings, config: ForecastingConfig, weights: Array) -> dict[str, Make]:
    """Return what every report compares with, simplest first."""
    harmonics = int(settings["harmonics"])  # type: ignore[call-overload]
    return {
        "persistence": Persistence,
        "climatology": partial(Climatology, harmonics),
        "climatology + anomaly persistence": partial(AnomalyPersistence, harmonics),
        "climatology + damped anomaly": partial(
            DampedAnomaly, harmonics, config.leads, np.inf, 1, weights=weights
        ),
    }


class RidgeForecaster:
    """A base forecast whose part in the modes is (a share of) the ridge's: fitted as a whole.

    Args:
        surrogate: modes, weights and grid; it is not changed.
        make: of the base.
        factors: (lead,) shares of the correction; 1 replaces the base's part in the modes.
        config: of the surrogate.
        subspace: whether the base is its climatology alone, so that nothing but the climatology
            is forecast outside the modes.
    """

    def __init__(
        self, surrogate: ForecastSurrogate, make: Make, factors: Array, config: ForecastingConfig,
        *, subspace: bool = False,
    ) -> None:  # fmt: skip
        self.surrogate, self.make, self.factors = surrogate, make, factors
        self.config, self.subspace = config, subspace

    def fit(self, segments: Sequence[Series]) -> RidgeForecaster:
        """Fit base and ridge."""
        base = self.make().fit(segments)
        assert isinstance(base, DampedAnomaly)
        header = {**self.surrogate.header, "correction": "ridge"}
        fitted = replace(
            self.surrogate, base=base.without_anomaly() if self.subspace else base,
            factors=self.factors, header=header,
        )  # fmt: skip
        fitted.ridge = fit_ridge(fitted, segments, self.config)
        if fitted.ridge is None:
            raise DataError(
                "no unbroken stretch holds a window", fix="a longer file, or fewer steps"
            )
        self.surrogate = fitted
        return self

    def predict(self, windows: Windows) -> Array:
        """Return (window, lead, cell)."""
        return self.surrogate.forecast(windows)


def fit_ridge(
    surrogate: ForecastSurrogate, segments: Sequence[Series], config: ForecastingConfig
) -> RidgeAutoregression | None:
    """Return the autoregression of the modes' anomalies, None when no stretch holds a window."""
    long = [s for s in segments if len(s.values) >= config.inputs + config.leads]
    if not long:
        return None
    climatology = surrogate.base.climatology
    projected = [Series(surrogate.project(climatology.anomalies(s).values), s.years) for s in long]
    return RidgeAutoregression(config.inputs, config.leads).fit(projected)


def fit_pod(data: FieldData, steps: range, harmonics: int, config: ForecastingConfig) -> POD:
    """Return the POD of the training steps' anomalies."""
    part = slice(steps.start, steps.stop)
    field = data.to_grid(data.series.values[part], (data.time_name,))
    field = field.assign_coords({data.time_name: data.times.values[part]})
    field = field.rename(data.name).assign_attrs({"units": data.units} if data.units else {})
    dates = np.isfinite(data.series.years).all()
    rank = config.pod.rank
    most = min(data.series.values.shape[1], len(steps) - 2 * harmonics - 2)
    return POD(
        rank=min(rank, most) if isinstance(rank, int) else rank,
        seasonal_cycle=harmonics if dates and harmonics else None,
        max_memory=config.pod.max_memory, horizon=config.leads, seed=config.seed,
    ).fit(field, data.time_name)  # fmt: skip


def prepare(data: FieldData, parts: Parts, config: ForecastingConfig) -> tuple:
    """Return (surrogate with an untrained network, choice, POD).

    The settings of the base are chosen on train + validation, never on test; what is fitted here
    is fitted to the train part, so that the network's correction can be judged on validation.
    """
    segments = data.segments(parts.steps["train"])
    weights = data.weights / data.weights.mean()
    choice = choose_base(data.segments(parts.fit_steps), weights, config)
    base = base_forecaster(choice.settings, config.leads, weights).fit(segments)
    if config.model.name == "pod_lstm":
        base.without_anomaly()
    pod = fit_pod(data, parts.steps["train"], base.climatology.used_, config)
    modes = pod.modes_.values.reshape(pod.rank_, -1)[:, data.grid.values.ravel()]
    modes = modes / np.sqrt((modes**2 * weights).sum(axis=1, keepdims=True))
    seasonal = config.model.seasonal_inputs and bool(np.isfinite(data.series.years).all())
    surrogate = ForecastSurrogate(
        base, modes, weights, np.ones(len(modes)), np.ones(len(modes)),
        make_network(config, len(modes), seasonal), np.ones(config.leads),
        np.ones(len(weights)), np.zeros((config.leads, len(QUANTILES))), data.grid,
        {"seasonal_inputs": seasonal},
    )  # fmt: skip
    _standardise(surrogate, parts.windows["train"])
    return surrogate, choice, pod


def _standardise(surrogate: ForecastSurrogate, windows: Windows) -> None:
    modes = len(surrogate.modes)
    spread = surrogate.inputs(windows)[..., :modes].reshape(-1, modes).std(axis=0)
    surrogate.input_scale = np.where(spread > 0, spread, 1.0).astype(np.float64)
    spread = surrogate.targets(windows).reshape(-1, modes).std(axis=0)
    surrogate.target_scale = np.where(spread > 0, spread, 1.0).astype(np.float64)


def measure_errors(surrogate: ForecastSurrogate, errors: Array) -> None:
    """Set `spread` and `quantiles` from (window, lead, cell) errors on held-out data."""
    spread = np.sqrt((errors**2).mean(axis=(0, 1)))
    # A cell that never varied (sea ice) says nothing of how it will: not below a tenth of the rest.
    surrogate.spread = np.maximum(spread, 0.1 * spread.mean() + 1e-12)
    scaled = errors / surrogate.spread
    surrogate.quantiles = np.stack(
        [np.quantile(scaled[:, lead], QUANTILES) for lead in range(errors.shape[1])]
    )


def held_out_errors(
    make: Make | None, segments: Sequence[Series], config: ForecastingConfig, validation: Array
) -> Array:
    """Return errors (window, lead, cell) of the forecaster that is delivered, on held-out steps.

    Args:
        make: of the whole forecaster, fitted again for every block of a cross-validation; None
            where it has networks, whose training is too long to repeat.
        segments: train + validation.
        config: of the surrogate.
        validation: errors on the validation part after fitting on the train part; used where
            there is no cross-validation.
    """
    if make is not None and _can_validate(segments, config.inputs, config.leads):
        found = cross_validate(make, segments, inputs=config.inputs, leads=config.leads)
        return found.truth - found.forecast
    return validation
