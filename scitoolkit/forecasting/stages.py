"""The stages of forecasting: what differs from other surrogates in the life of `surrogate`.

Data are a `FieldFile`, samples its time steps. A closed form is selected and fitted, networks that
correct it are trained in steps, and what is best is fitted again to train and validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from torch import nn

from scitoolkit.core.data_facts import DataFacts, Var
from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results
from scitoolkit.core.traced import TracedFunction
from scitoolkit.forecasting import evaluation, fitting
from scitoolkit.forecasting.backtest import past_of, past_with
from scitoolkit.forecasting.checks import refuse_unstated_units
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import FieldData, split_field
from scitoolkit.forecasting.field_file import FieldFile
from scitoolkit.forecasting.field_stages import FieldStages
from scitoolkit.forecasting.fields import coded, regressors, warn_outside
from scitoolkit.forecasting.forecasters.base import Forecaster, stored_config
from scitoolkit.forecasting.forecasters.lstm import LstmCorrection
from scitoolkit.forecasting.forecasters.persistence import Persistence
from scitoolkit.forecasting.month_days import years_like
from scitoolkit.forecasting.seasons import clock
from scitoolkit.forecasting.statsforecast_models import fitted_models, statsforecast_models
from scitoolkit.forecasting.surrogate import ForecastSurrogate, forecast_dataset
from scitoolkit.forecasting.task import ForecastTask
from scitoolkit.forecasting.traced import traced
from scitoolkit.forecasting.windows import TimeSeries, Windows
from scitoolkit.io.calendar_steps import times_after
from scitoolkit.io.fields import write_fields
from scitoolkit.io.loader import BatchLoader
from scitoolkit.io.split import window_starts
from scitoolkit.io.table import ROW
from scitoolkit.surrogate import Opened, Stages, Trained, array_loader
from scitoolkit.surrogate.stages import Rows
from scitoolkit.training import current_rank

log: Logger = get_logger(__name__)

ADAPTED_FROM = 200
"""Number of previous windows whose errors determine adaptive intervals."""


SAME_YEAR = 1e-6
"""Distance of decimal years that counts as none."""


class ForecastModel(nn.Module):
    """A forecast from its networks to the fitted surrogate.

    Attributes:
        prepared: in a training, the state before that of networks.
        correction: networks on the selected closed form; None without networks.
        members: the networks, under the names that checkpoints have.
        surrogate: the fitted one, once the training ends.
        record: of the selection and the fit.
    """

    prepared: fitting.NetworkStart
    correction: LstmCorrection | None = None
    members: nn.ModuleList
    surrogate: ForecastSurrogate
    record: Mapping[str, Any]

    def __init__(
        self, surrogate: ForecastSurrogate | None = None, record: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        if surrogate is not None:
            self.surrogate, self.record = surrogate, record or {}

    def begin(self, prepared: fitting.NetworkStart, config: ForecastingConfig) -> None:
        """Create untrained networks, if the configuration has any."""
        self.prepared = prepared
        if config.model.name != "none":
            self.correction = fitting.begin_network(prepared, config)
            self.members = self.correction.networks_.members


class ForecastStages(FieldStages, Stages):
    """Stages of forecasts of a gridded time series."""

    def build(
        self, config: ForecastingConfig, facts: Any, measured: Any, seed: int
    ) -> ForecastModel:
        """Return a forecast without a closed form and without networks."""
        return ForecastModel()

    def initialise(self, config: ForecastingConfig, opened: Opened, model: ForecastModel) -> None:
        """Select the closed form and create the networks; a dry run fits one and compares none."""
        data: FieldFile = opened.data
        if opened.sample:
            data.prepared = fitting.prepare(*data.split, config, tuned=False)
        prepared = data.prepared
        sizes = len(prepared.data.series.values), len(prepared.data.weights), len(prepared.modes)
        label = prepared.selection.winner.config.label()
        log.info("%d steps, %d cells, %d modes; closed form: %s", *sizes, label)
        model.begin(prepared, config)

    def task(self, config: Any, opened: Opened, model: ForecastModel) -> ForecastTask | None:
        """Return the loss of the networks; None without networks."""
        return None if model.correction is None else ForecastTask(model.correction.networks_)

    def loader(
        self, config: ForecastingConfig, opened: Opened, part: str, model: ForecastModel
    ) -> BatchLoader:
        """Return batches of windows, in the modes of the networks."""
        assert model.correction is not None
        windows = model.prepared.parts.windows[part]
        inputs, targets = model.correction.inputs(windows), model.correction.targets(windows)
        return array_loader(config.training, part, inputs=inputs, targets=targets)

    def describe(self, opened: Opened) -> Mapping[str, Any]:
        """Return the sizes of the field, and which closed form was fitted."""
        field, parts = opened.data.split
        data, prepared = field.data, opened.data.prepared
        return {
            "variable": data.name,
            "units": data.units,
            "steps": len(data.series.values),
            "simulations": len(data.simulations),
            "cells": int(data.grid.values.sum()),
            "breakpoints": len(data.breakpoints),
            "windows": {name: len(w) for name, w in parts.windows.items()},
            "warnings": list(field.warnings),
            "fitted": prepared.selection.winner.config.label(),
            "left_out": prepared.selection.refused,
            "modes": len(prepared.modes),
        }

    def conclude(self, config: Any, opened: Opened, model: ForecastModel) -> Mapping[str, Any]:
        """Choose with or without networks, and fit to train and validation, on rank 0."""
        if current_rank() != 0:
            return {}
        model.surrogate, record = fitting.finalize(model.prepared, model.correction, config)
        return record

    def store(self, model: ForecastModel, folder: ModelFolder) -> None:
        """Write the arrays, packed in 16 bits."""
        model.surrogate.save(folder.path)

    def restored(self, config: ForecastingConfig, folder: ModelFolder) -> ForecastModel:
        """Return a fitted forecast."""
        return ForecastModel(ForecastSurrogate.load(folder.path), folder.record())

    def completed(self, trained: Trained) -> Trained:
        """Return a surrogate with facts; of a folder without them, what its header tells."""
        if trained.facts is not None:
            return trained
        surrogate: ForecastSurrogate = trained.model.surrogate
        name, units = (str(surrogate.header.get(key, "")) for key in ("name", "units"))
        log.info("%s: stored before facts were; only units are compared", trained.folder.directory)
        several = bool(trained.config.data.variables)
        variable = Var(name, units, dims=tuple(map(str, surrogate.grid.dims)))
        return replace(trained, facts=DataFacts(() if several else (variable,)))

    def report(
        self, trained: Trained, data: FieldFile, rows: Rows | None
    ) -> tuple[Results, xr.Dataset]:
        """Compare with baselines on the test part, or after the training data in another file."""
        return _scored(trained.config, trained.model, data, training=rows is not None)

    def evaluate(self, config: Any, model: ForecastModel, data: FieldFile, rows: Any) -> Results:
        """Compare with baselines; see `report`."""
        return _scored(config, model, data, training=rows is not None)[0]

    def predict(
        self, config: ForecastingConfig, model: ForecastModel, data: FieldFile, output: Path
    ) -> None:
        """Forecast from the last steps of a file, with 90 % prediction intervals.

        Raises:
            DataError: several simulations, or a break within the last `inputs` steps.
        """
        write_fields(_forecast(config, model, data), output)

    def traced(
        self, config: ForecastingConfig, facts: DataFacts | None, model: ForecastModel
    ) -> Sequence[TracedFunction]:
        """Return the forecast as a function of arrays; see `traced`."""
        return traced(config, model.surrogate, model.record)


def _scored(
    config: ForecastingConfig, model: ForecastModel, data: FieldFile, *, training: bool
) -> tuple[Results, xr.Dataset]:
    """Return the results and their maps.

    Args:
        config: of the run.
        model: the forecast.
        data: file to score on.
        training: whether it is the file of the training, of which the test part is scored.

    Raises:
        DataError: another file has no window after the training data, or values without a unit
            that are unlike those of the training.
    """
    surrogate, record = model.surrogate, model.record
    field = data.coded(surrogate.coding, surrogate.grid)
    parts = record["steps"] if training else None
    windows = _test_windows(field.data, surrogate, config, data.where, parts)
    if not training:
        _refuse_unlike(surrogate, data, field.data, config)
    gaps = set(field.data.breakpoints) - {s.start for s in field.data.simulations}
    if not training and gaps:
        log.warning("%s: %d gaps in time, which no scored window crosses", data.where, len(gaps))
    several = len(field.data.simulations)
    if not training and several > 1 and record.get("simulations", several) == 1:
        log.warning("%s: scored on %d simulations, the model is of one", data.where, several)
    trained = None
    if config.data.changed:
        # The file of the training itself: there is nothing to convert.
        file = FieldFile(config, config.data.path)
        trained = file.coded(surrogate.coding, surrogate.grid).data
    others, note = _baselines(surrogate, record, config, field.data, windows, trained)
    notes, past = [note] if note else [], None
    if config.backtest is not None:
        steps = range(record["steps"]["train"][0], record["steps"]["validation"][1])
        if training:
            past = past_of(field.data, steps.start)
        elif trained is None or len(field.data.simulations) > 1:
            notes.append(
                "There is no backtest: "
                + (
                    f"{config.data.path} was not found"
                    if trained is None
                    else "several simulations"
                )
            )
        else:
            past = past_with(field.data, trained, steps, surrogate.header.get("last_year"))
    scored = evaluation.ForecastEvaluation(
        surrogate,
        field,
        windows,
        others,
        record,
        adaptive=config.intervals == "adaptive",
        notes=notes,
        backtest=config.backtest,
        past=past,
    )
    return scored.results(config.workflow)


def _refuse_unlike(
    surrogate: ForecastSurrogate, file: FieldFile, data: FieldData, config: ForecastingConfig
) -> None:
    """Refuse another file whose values cannot be in the unit of the training; tell no times."""
    seen = surrogate.header.get("ranges", [])
    refuse_unstated_units(surrogate.coding, seen, data.series.values, file.facts, file.where)
    times = file.facts.dim("time")
    again = Path(file.where).resolve() == Path(str(config.data.path)).resolve()
    untimed = times is None or times.kind == "none" or data.times.attrs.get("long_name") == ROW
    if surrogate.coding.seasons and untimed and not again:
        log.warning(
            "%s: no times, so that its first row is taken as step 0 of the season of %.6g steps. "
            "Fix: write times that count on from those of the training",
            file.where,
            surrogate.coding.seasons[0],
        )


def _forecast(config: ForecastingConfig, model: ForecastModel, file: FieldFile) -> xr.Dataset:
    """Return the forecast of the steps after the last one of a file."""
    surrogate = model.surrogate
    data = file.read(surrogate.grid)
    if len(data.simulations) > 1:
        raise DataError(
            f"{len(data.simulations)} simulations, but a forecast continues one",
            where=file.where,
            fix="predict from the file of one simulation",
        )
    start = len(data.series.values) - config.inputs
    if start < 0 or any(start < breakpoint for breakpoint in data.breakpoints):
        raise DataError(
            f"the last stretch without a gap is shorter than the {config.inputs} input steps",
            where=file.where,
            allowed=f"at least {config.inputs} steps without a breakpoint at the end",
        )
    warn_outside(surrogate.coding, data.series.values)
    valid = times_after(data.times.values, config.leads)
    seasons = surrogate.coding.seasons
    years = np.concatenate([data.series.years, years_like(valid, file.trained)])
    if seasons:
        years = clock(data.times.values, seasons, config.leads)
    drivers = regressors(file.config.data, surrogate.coding, data.times, valid, file.trained)
    field = coded(data, surrogate.coding, drivers)
    _refuse_unlike(surrogate, file, field.data, config)
    series = TimeSeries(field.data.series.values, years)
    windows = Windows(series, np.array([start]), config.inputs, config.leads)
    factors: Any = 1.0
    if config.intervals == "adaptive":
        undated = not np.isfinite(years).all() and file.config.data.path == config.data.path
        num_training = model.record["steps"]["validation"][1] if undated else 0
        factors = _factors(surrogate, field.data, config, windows, num_training)
    forecast = forecast_dataset(surrogate, field, windows, valid, factors)
    if not any(np.isfinite(v).any() for v in forecast.data_vars.values() if v.dtype.kind == "f"):
        raise DataError(
            "the forecast has no finite value",
            where=file.where,
            fix="dates and values like those of the training",
        )
    if data.times.encoding.get("units"):
        encoding = {k: v for k, v in data.times.encoding.items() if k in ("units", "calendar")}
        forecast["valid_time"].encoding.update(encoding)
    if "units" in data.times.attrs:  # times that are plain numbers
        forecast["valid_time"].attrs["units"] = data.times.attrs["units"]
    facts = file.trained or DataFacts()
    for name, values in forecast.items():
        named = str(name).removesuffix("_low").removesuffix("_high")
        values.attrs.update(facts.meaning(named))
    return forecast.assign_attrs(title=f"forecast of {data.name}")


def _factors(
    surrogate: ForecastSurrogate,
    data: FieldData,
    config: ForecastingConfig,
    last: Windows,
    num_training: int,
) -> np.ndarray:
    """Return width factors (lead, cell) of the last window's adaptive intervals.

    The factors follow the errors of previous windows outside the training data; without such
    windows they are 1.

    Args:
        surrogate: the surrogate.
        data: coded field of the window.
        config: of the job.
        last: the window to forecast.
        num_training: number of first steps used for training, for a field without dates.
    """
    try:
        earlier = _test_windows(data, surrogate, config, str(config.data.path), None).starts
    except DataError as error:
        log.warning("intervals are not adapted: %s", error)
        return np.ones((config.leads, 1))
    earlier = earlier[earlier + config.inputs >= num_training][-ADAPTED_FROM:]
    values = data.series.values
    padded = np.concatenate([values, np.full((config.leads, values.shape[1]), np.nan)])
    starts = np.append(earlier[earlier < last.starts[0]], last.starts)
    windows = Windows(TimeSeries(padded, last.series.years), starts, config.inputs, config.leads)
    return surrogate.factors(windows)[-1]


def _test_windows(
    field: FieldData,
    surrogate: ForecastSurrogate,
    config: ForecastingConfig,
    where: str,
    parts: Mapping[str, Sequence[int]] | None,
) -> Windows:
    """Return the windows whose outputs are not part of the training data.

    Args:
        field: coded.
        surrogate: of the training.
        config: of the job.
        where: the file, for messages.
        parts: ends of the parts of the training if it is their file, None for another one.

    Raises:
        DataError: there is no such window, or the file of the training has changed and its times
            do not tell what it was trained on.
    """
    length, years = config.inputs + config.leads, field.series.years
    last = surrogate.header.get("last_year")
    end = -np.inf if last is None else last + SAME_YEAR
    dated = last is not None and bool(np.isfinite(years).all()) and len(field.simulations) < 2
    if parts is not None:
        split = split_field(field, config)
        test = split.windows["test"]
        changed = any([s.start, s.stop] != list(parts[n]) for n, s in split.steps.items())
        seen = dated and bool((years[test.starts + config.inputs] <= end).any())
        if not changed and not seen:
            return test
        if not dated:
            raise DataError(
                f"{len(years)} steps, unlike the file of the training",
                where=where,
                allowed=f"{parts['test'][1]} steps",
                fix="the file of the training, or evaluate with another file",
            )
        log.warning(
            "%s has changed since the training: all windows after the training data are scored",
            where,
        )
    steps, breaks = range(len(field.series.values)), list(field.breakpoints)
    starts = window_starts(steps, config.inputs, config.leads, breaks)
    if last is not None and np.isfinite(years).all():
        starts = starts[years[starts + config.inputs] > end]
    if not len(starts):
        raise DataError(
            "the file has no window after the training data",
            where=where,
            allowed=f"{length} steps, the last {config.leads} after the training data",
        )
    return Windows(field.series, starts, config.inputs, config.leads)


def _baselines(
    surrogate: ForecastSurrogate,
    record: Mapping[str, Any],
    config: ForecastingConfig,
    scored: FieldData,
    windows: Windows,
    trained: FieldData | None,
) -> tuple[dict[str, Forecaster], str]:
    """Return persistence, climatology, the other compared closed forms and models of statsforecast.

    They are fitted to the surrogate's training steps. The text says why models of statsforecast
    that were wanted do not forecast the windows.
    """
    winner = next(e["title"] for e in record["entries"] if e["label"] == record["winner"])
    others: dict[str, Forecaster] = {
        "persistence": Persistence(),
        "climatology": surrogate.climatology,
    }
    others.pop(winner, None)
    if trained is None:
        log.warning("%s was not found: fitted baselines are omitted", config.data.path)
        return others, ""
    steps = record["steps"]
    segments = trained.segments(range(steps["train"][0], steps["validation"][1]))
    memo: dict[Any, Any] = {}
    for entry in record["entries"]:
        chosen = stored_config(entry["config"])
        if entry["closed_form"] and entry["label"] != record["winner"] and entry["stable"]:
            others[entry["title"]] = chosen.build(surrogate.setting).fit(segments, memo)
    models, note = statsforecast_models(config, surrogate.coding.seasons, trained, scored)
    usable, left = fitted_models(models, segments, windows)
    return {**others, **usable}, note or left
