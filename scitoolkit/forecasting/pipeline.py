"""Steps of the forecasting job: check, train, evaluate, search trial, predict."""

from __future__ import annotations

from collections.abc import Mapping
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.data_facts import DataFacts, Var
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.forecasting import evaluation, fitting
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import FieldData, split_field
from scitoolkit.forecasting.fields import (
    CodedField,
    coded,
    open_field,
    open_split,
    read_variables,
    regressors,
    warn_outside,
)
from scitoolkit.forecasting.forecasters import Forecaster
from scitoolkit.forecasting.forecasters.base import stored_config
from scitoolkit.forecasting.forecasters.lstm import LstmCorrection
from scitoolkit.forecasting.forecasters.persistence import Persistence
from scitoolkit.forecasting.parameters import network_cost
from scitoolkit.forecasting.search_trial import prepared, validation_scores
from scitoolkit.forecasting.seasons import clock
from scitoolkit.forecasting.surrogate import ForecastSurrogate, forecast_dataset
from scitoolkit.forecasting.task import ForecastTask
from scitoolkit.forecasting.windows import Series, Windows
from scitoolkit.io.calendar_steps import times_after
from scitoolkit.io.fields import write_fields
from scitoolkit.io.loader import ArraySource, BatchLoader
from scitoolkit.io.time_axis import decimal_years
from scitoolkit.training import Trainer, current_rank, load_best, world_size

log: Logger = get_logger(__name__)

ADAPTED_FROM = 200
"""Number of previous windows whose errors determine adaptive intervals."""


def check(config: ForecastingConfig) -> Mapping[str, Any]:
    """Open the data, fit one closed form and run one batch; nothing is written.

    Which closed form is the best takes most of a training, and is left to it.

    Raises:
        ConfigError: settings that do not fit the data.
        DataError: unusable files, variables or time axes.
    """
    field, parts = open_split(config)
    data, found = field.data, fitting.prepare(field, parts, config, tuned=False)
    facts: dict[str, Any] = {
        "variable": data.name,
        "units": data.units,
        "steps": len(data.series.values),
        "simulations": len(data.simulations),
        "cells": int(data.grid.values.sum()),
        "breakpoints": len(data.breakpoints),
        "windows": {name: len(w) for name, w in parts.windows.items()},
        "warnings": list(field.warnings),
        "fitted": found.selection.winner.config.label(),
        "left_out": found.selection.refused,
        "modes": len(found.modes),
    }
    correction = found.correction
    if correction is None:
        return facts
    loader = _loader(correction, parts.windows["train"], config, shuffle=True)
    loss, _ = ForecastTask(correction.networks_).loss(next(iter(loader)))
    return facts | {
        "parameters": sum(p.numel() for p in correction.networks_.parameters()),
        "first_loss": float(loss.detach()),
        "loader": loader.explain(),
    }


def train(config: ForecastingConfig, run: RunDirectory, *, resume: bool = False) -> None:
    """Select a forecaster by validation, train the networks, refit and save `model/`."""
    found = prepared(config)
    log.info(
        "%d steps, %d cells, %d modes; closed form: %s",
        len(found.data.series.values),
        len(found.data.weights),
        len(found.modes),
        found.selection.winner.config.label(),
    )
    if found.correction is not None:
        _train_networks(found, found.correction, config, run, resume=resume)
    if current_rank() != 0:
        return
    surrogate, record = fitting.finalize(found, config)
    model = ModelFolder.create(run)
    surrogate.save(model.path)
    model.save_facts(found.data.facts)
    model.finish(run, record)


def evaluate(directory: Path, data: Path | None = None) -> Results:
    """Evaluate on the test part of the run, or on the part of another file after the training data.

    Writes results.json, results.nc and model/metrics.json to the run directory; nothing with
    `data`.

    Raises:
        DataError: `data` has no window after the training data.
    """
    model = ModelFolder(directory)
    config, record = model.config(ForecastingConfig), model.record()
    surrogate = ForecastSurrogate.load(model.path)
    field = _field_of(surrogate, config, trained_facts(model, surrogate), data)
    windows = _test_windows(field.data, surrogate, config, training_file=data is None)
    gaps = set(field.data.breakpoints) - {s.start for s in field.data.simulations}
    if data is not None and gaps:
        log.warning("%s: %d gaps in time, which no scored window crosses", data, len(gaps))
    baselines = _baselines(surrogate, record, config)
    found = evaluation.Evaluation(
        surrogate, field, windows, baselines, record, config.intervals == "adaptive"
    )
    results, maps = found.results(config.workflow)
    if model.write_results(results, data):
        write_fields(maps, Path(directory) / "results.nc")
    return results


def search_trial(
    config: ForecastingConfig, run: RunDirectory, *, resume: bool = False
) -> Mapping[str, float]:
    """Train the network of a trial; return its scores on the validation part and its cost.

    Raises:
        ConfigError: the configuration has no network.
    """
    found = prepared(config)
    if found.correction is None:
        raise ConfigError(
            "model.name none has no network to train",
            where="model.name",
            allowed="not none",
            fix="model.name=auto",
        )
    trainer = _train_networks(found, found.correction, config, run, resume=resume)
    scores = validation_scores(found, found.correction, config, trainer)
    return {**network_cost(config), **scores}


def predict(directory: Path, source: Path, output: Path) -> None:
    """Forecast from the last steps of a file; write NetCDF with 90 % prediction intervals.

    Raises:
        DataError: several simulations, or a break within the last `inputs` steps.
    """
    model = ModelFolder(directory)
    config = model.config(ForecastingConfig)
    surrogate = ForecastSurrogate.load(model.path)
    given = config.data.model_copy(update={"path": source})
    data, _ = read_variables(given, surrogate.grid, trained_facts(model, surrogate))
    if len(data.simulations) > 1:
        raise DataError(
            f"{len(data.simulations)} simulations, but a forecast continues one",
            where=str(source),
            fix="predict from the file of one simulation",
        )
    start = len(data.series.values) - config.inputs
    if start < 0 or any(start < breakpoint for breakpoint in data.breakpoints):
        raise DataError(
            f"the last stretch without a gap is shorter than the {config.inputs} input steps",
            where=str(source),
            allowed=f"at least {config.inputs} steps without a breakpoint at the end",
        )
    warn_outside(surrogate.coding, data.series.values)
    valid = times_after(data.times.values, config.leads)
    seasons = surrogate.coding.seasons
    years = np.concatenate([data.series.years, decimal_years(valid)])
    if seasons:
        years = clock(data.times.values, seasons, config.leads)
    field = coded(data, surrogate.coding, regressors(given, surrogate.coding, data.times, valid))
    series = Series(field.data.series.values, years)
    windows = Windows(series, np.array([start]), config.inputs, config.leads)
    factors: Any = 1.0
    if config.intervals == "adaptive":
        undated = not np.isfinite(years).all() and source == config.data.path
        num_training = model.record()["steps"]["validation"][1] if undated else 0
        factors = _factors(surrogate, field.data, config, windows, num_training)
    forecast = forecast_dataset(surrogate, field, windows, valid, factors)
    if not any(np.isfinite(v).any() for v in forecast.data_vars.values() if v.dtype.kind == "f"):
        raise DataError(
            "the forecast has no finite value",
            where=str(source),
            fix="dates and values like those of the training",
        )
    if data.times.encoding.get("units"):
        kept = {k: v for k, v in data.times.encoding.items() if k in ("units", "calendar")}
        forecast["valid_time"].encoding.update(kept)
    write_fields(forecast.assign_attrs(title=f"forecast of {data.name}"), output)


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
        known = _test_windows(data, surrogate, config, training_file=False).starts
    except DataError as error:
        log.warning("intervals are not adapted: %s", error)
        return np.ones((config.leads, 1))
    known = known[known + config.inputs >= num_training][-ADAPTED_FROM:]
    values = data.series.values
    padded = np.concatenate([values, np.full((config.leads, values.shape[1]), np.nan)])
    starts = np.append(known[known < last.starts[0]], last.starts)
    windows = Windows(Series(padded, last.series.years), starts, config.inputs, config.leads)
    return surrogate.factors(windows)[-1]


def _train_networks(
    found: fitting.Prepared,
    correction: LstmCorrection,
    config: ForecastingConfig,
    run: RunDirectory,
    *,
    resume: bool,
) -> Trainer:
    """Train the networks and load the weights with the least validation loss."""
    trainer = Trainer(ForecastTask(correction.networks_), config.training, run=run)
    windows = found.parts.windows
    trainer.fit(
        _loader(correction, windows["train"], config, shuffle=True),
        _loader(correction, windows["validation"], config, shuffle=False),
        resume=resume,
    )
    if current_rank() == 0:
        load_best(correction.networks_, run.checkpoints)
        correction.networks_ = correction.networks_.cpu()
    return trainer


def _loader(
    correction: LstmCorrection, windows: Windows, config: ForecastingConfig, *, shuffle: bool
) -> BatchLoader:
    arrays = {"inputs": correction.inputs(windows), "targets": correction.targets(windows)}
    return BatchLoader(
        ArraySource(arrays),
        config.training.batch_size,
        seed=config.training.seed,
        shuffle=shuffle,
        rank=current_rank(),
        world_size=world_size(),
    )


def trained_facts(model: ModelFolder, surrogate: ForecastSurrogate) -> DataFacts:
    """Return the facts of the training data; of a folder without them, what its header tells."""
    facts = model.facts()
    if facts is not None:
        return facts
    header = surrogate.header
    dims = tuple(map(str, surrogate.grid.dims))
    log.info("%s: stored before facts were; only units are compared", model.directory)
    return DataFacts((Var(str(header.get("name", "")), str(header.get("units", "")), dims=dims),))


def _field_of(
    surrogate: ForecastSurrogate,
    config: ForecastingConfig,
    trained: DataFacts,
    path: Path | None = None,
) -> CodedField:
    """Return the field of a job or of another file, coded as the surrogate requires."""
    if path is not None:
        data = config.data.model_copy(update={"path": path})
        config = config.model_copy(update={"data": data})
    return open_field(config, surrogate.coding, surrogate.grid, trained)


def _test_windows(
    field: FieldData,
    surrogate: ForecastSurrogate,
    config: ForecastingConfig,
    *,
    training_file: bool,
) -> Windows:
    """Return the windows whose outputs are not part of the training data.

    Raises:
        DataError: there is no such window.
    """
    if training_file:
        return split_field(field, config).windows["test"]
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
            "the file has no window after the training data",
            where=str(config.data.path),
            allowed=f"{length} steps, the last {config.leads} after the training data",
        )
    return Windows(field.series, starts, config.inputs, config.leads)


def _baselines(
    surrogate: ForecastSurrogate, record: Mapping[str, Any], config: ForecastingConfig
) -> dict[str, Forecaster]:
    """Return persistence, climatology and the other compared closed forms.

    They are fitted to the surrogate's training steps.
    """
    winner = next(e["title"] for e in record["entries"] if e["label"] == record["winner"])
    found: dict[str, Forecaster] = {
        "persistence": Persistence(),
        "climatology": surrogate.climatology,
    }
    found.pop(winner, None)
    if not config.data.changed:
        log.warning("%s was not found: fitted baselines are omitted", config.data.path)
        return found
    steps = record["steps"]
    trained = DataFacts()  # the file of the training itself
    segments = _field_of(surrogate, config, trained).data.segments(
        range(steps["train"][0], steps["validation"][1])
    )
    memo: dict[Any, Any] = {}
    for entry in record["entries"]:
        chosen = stored_config(entry["config"])
        if entry["closed_form"] and entry["label"] != record["winner"] and entry["stable"]:
            found[entry["title"]] = chosen.build(surrogate.setting).fit(segments, memo)
    return found
