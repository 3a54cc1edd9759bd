"""Training, selection, evaluation and application of forecasters of gridded series."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError, NumericalError
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.forecasting import evaluation, fitting
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import FieldData, Parts, divide, read_field
from scitoolkit.forecasting.fitting import BASE, NETWORK, POD_LSTM, POD_RIDGE, RIDGE
from scitoolkit.forecasting.metrics import rmse_per_lead
from scitoolkit.forecasting.parameters import network_cost
from scitoolkit.forecasting.search_trial import prepared, validation_scores
from scitoolkit.forecasting.selection import lead_factors
from scitoolkit.forecasting.surrogate import ForecastSurrogate, forecast_dataset
from scitoolkit.forecasting.task import ForecastTask
from scitoolkit.forecasting.windows import Array, Series, Windows
from scitoolkit.io.fields import write_fields
from scitoolkit.io.loader import ArraySource, BatchLoader
from scitoolkit.io.time_axis import decimal_years
from scitoolkit.training import Trainer, best_weights, current_rank, world_size

log: Logger = get_logger(__name__)


def check(config: ForecastingConfig) -> Mapping[str, Any]:
    """Open the data, fit the closed-form part, run one batch; write nothing."""
    data = read_field(config.data)
    parts = divide(data, config)
    surrogate, choice, _ = fitting.prepare(data, parts, config)
    loader = _loader(surrogate, parts.windows["train"], config, shuffle=True)
    loss, _ = ForecastTask(surrogate.network).loss(next(iter(loader)))
    return {
        "variable": data.name,
        "units": data.units,
        "steps": len(data.series.values),
        "cells": int(data.grid.values.sum()),
        "breakpoints": len(data.breakpoints),
        "windows": {name: len(w) for name, w in parts.windows.items()},
        "base": {k: str(v) for k, v in choice.settings.items()},
        "modes": len(surrogate.modes),
        "parameters": sum(p.numel() for p in surrogate.network.parameters()),
        "first_loss": float(loss.detach()),
        "loader": loader.explain(),
    }


def train(config: ForecastingConfig, run: RunDirectory, *, resume: bool = False) -> None:
    """Fit on train, choose on validation, refit the closed-form part on both, save `model/`."""
    data, parts, surrogate, choice, pod = prepared(config)
    log.info(
        "%d steps, %d cells, %d modes; base: %s",
        len(data.series.values), len(data.weights), len(surrogate.modes), choice.settings,
    )  # fmt: skip
    trainer = Trainer(ForecastTask(surrogate.network), config.training, run=run)
    trainer.fit(
        _loader(surrogate, parts.windows["train"], config, shuffle=True),
        _loader(surrogate, parts.windows["validation"], config, shuffle=False),
        resume=resume,
    )
    if current_rank() != 0:
        return
    weights = best_weights(run.checkpoints)
    surrogate.network.load_state_dict(weights)
    surrogate.network = surrogate.network.cpu()
    record = _finalize(surrogate, choice, data, parts, config)
    record["pod"] = _pod_record(pod, data, parts)
    model = ModelFolder.create(run)
    surrogate.save(model.path)
    model.finish(run, record)


def evaluate(directory: Path, data: Path | None = None) -> Results:
    """Evaluate on the run's own test part, or on all of another file after the training.

    A run directory gets results.json, results.nc and model/metrics.json; with `data` nothing
    is written.
    """
    model = ModelFolder(directory)
    config, record = model.config(ForecastingConfig), model.record()
    surrogate = ForecastSurrogate.load(model.path, config)
    source = config.data if data is None else config.data.model_copy(update={"path": data})
    field = read_field(source, surrogate.grid)
    windows = _test_windows(field, surrogate, config, own=data is None)
    baselines = _baselines(surrogate, field, record, config)
    found = evaluation.Evaluation(surrogate, field, windows, baselines, record)
    results, maps = found.results(config.workflow)
    if model.write_results(results, data):
        write_fields(maps, Path(directory) / "results.nc")
    return results


def search_trial(
    config: ForecastingConfig, run: RunDirectory, *, resume: bool = False
) -> Mapping[str, float]:
    """Train the network alone; return `validation_rmse` of the corrected forecast."""
    _, parts, surrogate, _, _ = prepared(config)
    trainer = Trainer(ForecastTask(surrogate.network), config.training, run=run)
    trainer.fit(
        _loader(surrogate, parts.windows["train"], config, shuffle=True),
        _loader(surrogate, parts.windows["validation"], config, shuffle=False),
        resume=resume,
    )
    surrogate.network.load_state_dict(best_weights(run.checkpoints))
    surrogate.network = surrogate.network.cpu()
    return {**network_cost(config), **validation_scores(surrogate, parts, trainer)}


def predict(directory: Path, source: Path, output: Path) -> None:
    """Forecast from the last steps of a file; write NetCDF with 90 % bounds."""
    model = ModelFolder(directory)
    config = model.config(ForecastingConfig)
    surrogate = ForecastSurrogate.load(model.path, config)
    data = read_field(config.data.model_copy(update={"path": source}), surrogate.grid)
    start = len(data.series.values) - config.inputs
    if start < 0 or any(start < breakpoint for breakpoint in data.breakpoints):
        raise DataError(
            f"the last unbroken stretch is shorter than the {config.inputs} input steps",
            where=str(source),
            allowed=f"at least {config.inputs} steps without a breakpoint at the end",
        )
    valid = _future_times(data.times.values, config.leads)
    years = np.concatenate([data.series.years, decimal_years(valid)])
    series = Series(data.series.values, years)
    windows = Windows(series, np.array([start]), config.inputs, config.leads)
    forecast = forecast_dataset(surrogate, data, windows, valid)
    if data.times.encoding.get("units"):
        kept = {k: v for k, v in data.times.encoding.items() if k in ("units", "calendar")}
        forecast["valid_time"].encoding.update(kept)
    write_fields(forecast.assign_attrs(title=f"forecast of {data.name}"), output)


def _loader(
    surrogate: ForecastSurrogate, windows: Windows, config: ForecastingConfig, *, shuffle: bool
) -> BatchLoader:
    arrays = {"inputs": surrogate.inputs(windows), "targets": surrogate.targets(windows)}
    return BatchLoader(
        ArraySource(arrays), config.training.batch_size, seed=config.training.seed,
        shuffle=shuffle, rank=current_rank(), world_size=world_size(),
    )  # fmt: skip


def _finalize(
    surrogate: ForecastSurrogate, choice: fitting.Choice, data: FieldData, parts: Parts,
    config: ForecastingConfig,
) -> dict[str, Any]:  # fmt: skip
    """Shrink the correction, choose the winner, refit on train + validation; return the record."""
    train = data.segments(parts.steps["train"])
    windows, weights = parts.windows["validation"], surrogate.weights
    if not len(windows):
        raise DataError("the validation part holds no window", fix="a larger split.validation")
    segments = data.segments(parts.fit_steps)
    makes = fitting.baselines(choice.settings, config, weights)
    truth, base = windows.targets(), surrogate.base.predict(windows)
    forecasts = {name: make().fit(train).predict(windows) for name, make in makes.items()}
    forecasts[BASE] = base
    surrogate.ridge = fitting.fit_ridge(surrogate, train, config)
    corrections = {NETWORK: surrogate.network_correction(windows)}
    if surrogate.ridge is not None:
        corrections[RIDGE] = surrogate.ridge_correction(windows)
    factors = {n: lead_factors(truth - base, c, weights) for n, c in corrections.items()}
    for name, correction in corrections.items():
        forecasts[name] = base + factors[name][:, None] * correction
    if config.model.name == "pod_lstm":
        forecasts[POD_LSTM] = forecasts.pop(NETWORK)
        factors[POD_LSTM] = factors.pop(NETWORK)
        forecasts.pop(BASE)
        forecasts.pop(RIDGE, None)
    if config.model.name != "pod_lstm" and surrogate.ridge is not None:
        makes |= _ridge_makes(surrogate, choice, factors[RIDGE], config)
        forecasts[POD_RIDGE] = makes[POD_RIDGE]().fit(train).predict(windows)
    errors = {name: _mean_rmse(truth, f, weights) for name, f in forecasts.items()}
    if not all(np.isfinite(v) for v in errors.values()):
        raise NumericalError("a forecast of the validation part is not finite", where=str(errors))
    makes[BASE] = choice.make
    judged = {name: make for name, make in makes.items() if name != RIDGE}
    blocked = fitting.cross_validated(judged, segments, weights, config)
    winner = _winner(errors, blocked, config)
    held_out = fitting.held_out_errors(
        makes.get(winner), segments, config, truth - forecasts[winner]
    )
    surrogate.factors = factors.get(winner, np.full(config.leads, float(winner == POD_RIDGE)))
    _select_base(surrogate, winner, choice, segments, config)
    fitting.measure_errors(surrogate, held_out)
    last = parts.fit_steps.stop - 1
    surrogate.header |= {
        "correction": "ridge" if winner in (RIDGE, POD_RIDGE) else "network",
        "name": data.name,
        "units": data.units,
        "winner": winner,
        "last_year": _finite(data.series.years[last]),
    }
    return {
        "winner": winner, "validation_rmse": errors, "cross_validated_rmse": blocked,
        "held_out_rmse": rmse_per_lead(held_out, 0 * held_out, weights).tolist(),
        "factors": {name: f.tolist() for name, f in factors.items()},
        "base_settings": {k: v if not isinstance(v, tuple) else list(v)
                          for k, v in choice.settings.items()},
        "base_candidates": choice.table, "steps": {k: [s.start, s.stop] for k, s in
                                                   parts.steps.items()},
        "held_out_quantiles": surrogate.quantiles.tolist(), "modes": len(surrogate.modes),
    }  # fmt: skip


def _ridge_makes(
    surrogate: ForecastSurrogate, choice: fitting.Choice, factors: Array, config: ForecastingConfig
) -> dict[str, fitting.Make]:
    """Return makers of the two forecasters with a ridge; the settings are those of now."""
    whole = np.ones(config.leads)
    return {
        RIDGE: partial(fitting.RidgeForecaster, surrogate, choice.make, factors, config),
        POD_RIDGE: partial(
            fitting.RidgeForecaster, surrogate, choice.make, whole, config, subspace=True
        ),
    }


def _winner(errors: dict[str, float], blocked: dict[str, float], config: ForecastingConfig) -> str:
    """Return the candidate that wins: all blocks of train + validation judge what has no network.

    A correction is judged where it can be, on the validation part, against the best of the rest.
    """
    if config.model.name == "pod_lstm":
        return POD_LSTM
    if config.model.name == "damped_residual_lstm":
        return NETWORK
    corrections = [name for name in (NETWORK, RIDGE) if name in errors]
    judged = blocked or {n: e for n, e in errors.items() if n not in corrections}
    best = min(judged, key=lambda name: judged[name])
    corrected = min(corrections, key=lambda name: errors[name])
    return corrected if best in (BASE, POD_RIDGE) and errors[corrected] < errors[best] else best


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _mean_rmse(truth: Array, forecast: Array, weights: Array) -> float:
    return float(np.sqrt((rmse_per_lead(truth, forecast, weights) ** 2).mean()))


def _select_base(surrogate, winner: str, choice, segments, config: ForecastingConfig) -> None:
    """Replace the base forecaster by the selected one, refitted on train + validation.

    Every baseline is a climatology and a damping, so each is stored in the same form.
    """
    base = fitting.base_forecaster(choice.settings, config.leads, surrogate.weights).fit(segments)
    if winner not in (BASE, NETWORK, RIDGE, POD_LSTM, POD_RIDGE):
        base = fitting.base_forecaster(
            {**choice.settings, "memory": (), "folds": 1, "shrinkage": np.inf},
            config.leads, surrogate.weights,
        ).fit(segments)  # fmt: skip
        choice.settings.update(memory=(), folds=1, shrinkage=np.inf)
    if winner in ("climatology", POD_LSTM, POD_RIDGE):
        base.without_anomaly()
    if winner in ("persistence", "climatology + anomaly persistence"):
        base.with_held_anomaly()
    if winner == "persistence":
        base.climatology.coefficients_[:] = 0.0
    surrogate.base = base
    surrogate.ridge = fitting.fit_ridge(surrogate, segments, config)


def _pod_record(pod, data: FieldData, parts: Parts) -> dict[str, Any]:
    return {
        "rank": pod.rank_, "truncation_rmse_train": float(pod.truncation_error_),
        "singular_values": np.asarray(pod.singular_values_).tolist(),
        "variance_share": np.asarray(pod.explained_variance_ratio_).tolist(),
        "rank_table": getattr(pod, "rank_table_", None) or [],
    }  # fmt: skip


def _test_windows(
    field: FieldData, surrogate: ForecastSurrogate, config: ForecastingConfig, *, own: bool
) -> Windows:
    """Return the windows whose outputs nothing was learned from."""
    if own:
        return divide(field, config).windows["test"]
    length = config.inputs + config.leads
    starts = np.arange(len(field.series.values) - length + 1)
    for breakpoint in field.breakpoints:
        starts = starts[(starts >= breakpoint) | (starts + length <= breakpoint)]
    last = surrogate.header.get("last_year")
    if last is not None and np.isfinite(field.series.years).all():
        unseen = field.series.years[starts + config.inputs] > last + 1e-6
        starts = starts[unseen]
    if not len(starts):
        raise DataError(
            "no window of the file lies after the data that was learned from",
            where=str(config.data.path), allowed=f"{length} steps, the last {config.leads} later",
        )  # fmt: skip
    return Windows(field.series, starts, config.inputs, config.leads)


def _baselines(surrogate, field: FieldData, record, config: ForecastingConfig) -> dict[str, Any]:
    """Return the baselines, fitted to the steps that the surrogate saw, where these are here."""
    source = field
    if not config.data.path.exists():
        log.warning("%s is not here: fitted baselines are left out", config.data.path)
        return {"persistence": fitting.Persistence()}
    source = read_field(config.data, surrogate.grid)
    steps = record["steps"]
    segments = source.segments(range(steps["train"][0], steps["validation"][1]))
    settings = {**record["base_settings"], "memory": tuple(record["base_settings"]["memory"])}
    makes = fitting.baselines(settings, config, surrogate.weights)
    baselines: dict[str, Any] = {name: make().fit(segments) for name, make in makes.items()}
    if surrogate.ridge is not None:
        damped = partial(fitting.base_forecaster, settings, config.leads, surrogate.weights)
        baselines[POD_RIDGE] = fitting.RidgeForecaster(
            surrogate, damped, np.ones(config.leads), config, subspace=True
        ).fit(segments)
    return baselines


def _future_times(times: np.ndarray, leads: int) -> np.ndarray:
    """Return the next times: calendar months stay calendar months, other steps are repeated."""
    if np.issubdtype(times.dtype, np.datetime64):
        months = times.astype("datetime64[M]")
        offset = times - months.astype(times.dtype)
        if len(times) > 1 and (np.diff(months).astype(int) == 1).all():
            ahead = months[-1] + np.arange(1, leads + 1)
            return ahead.astype(times.dtype) + offset[-1]
    elif times.dtype == object and len(times) > 1:
        counts = [t.year * 12 + t.month for t in times]
        if (np.diff(counts) == 1).all():
            return np.array([_month(times[-1], counts[-1] + k) for k in range(1, leads + 1)])
    if times.dtype.kind == "M":
        unit = np.datetime_data(times.dtype)[0]
        step = np.array(np.median(np.diff(times).astype(np.int64)), f"timedelta64[{unit}]")
        return times[-1] + np.arange(1, leads + 1) * step
    delta = times[-1] - times[-2]
    return np.array([times[-1] + k * delta for k in range(1, leads + 1)])


def _month(last, count: int):
    year, month = divmod(count - 1, 12)
    return last.replace(year=year, month=month + 1, day=min(last.day, 28))
