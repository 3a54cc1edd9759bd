"""Fitting of a forecast surrogate: selection of the closed form, networks, final refit."""

from __future__ import annotations

from dataclasses import dataclass
from logging import Logger
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.forecasting.backtest import check_backtest
from scitoolkit.forecasting.checks import coded_ranges
from scitoolkit.forecasting.choosing import Chooser, FamilyBest, Selection, setting_of
from scitoolkit.forecasting.coding import Coding
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.corrections import lead_factors
from scitoolkit.forecasting.data import FieldData, FieldSplits
from scitoolkit.forecasting.fields import CodedSnapshots, unit_of
from scitoolkit.forecasting.forecasters.base import Forecaster, ForecasterConfig
from scitoolkit.forecasting.forecasters.climatology import Climatology, ClimatologyConfig
from scitoolkit.forecasting.forecasters.damped_anomaly import DampedAnomalyConfig
from scitoolkit.forecasting.forecasters.lstm import LstmCorrection, LstmCorrectionConfig
from scitoolkit.forecasting.forecasters.persistence import PersistenceConfig
from scitoolkit.forecasting.intervals import error_model
from scitoolkit.forecasting.metrics import rmse_per_lead
from scitoolkit.forecasting.network_config import FIXED_BASES
from scitoolkit.forecasting.pod import POD
from scitoolkit.forecasting.surrogate import ForecastSurrogate
from scitoolkit.forecasting.windows import Array, TimeSeries

log: Logger = get_logger(__name__)

NETWORK_GAIN = 0.005
"""Relative reduction of the validation error required to use networks; less may be noise."""


@dataclass
class NetworkStart:
    """State before the training of networks.

    Attributes:
        data: coded field.
        coding: of the field.
        parts: split of the field.
        pod: of the train part.
        selection: compared closed forms.
        modes: (mode, cell), orthonormal under the area weights.
        warnings: about the data.
    """

    data: FieldData
    coding: Coding
    parts: FieldSplits
    pod: POD
    selection: Selection
    modes: Array
    warnings: tuple[str, ...] = ()


def prepare(
    field: CodedSnapshots, parts: FieldSplits, config: ForecastingConfig, *, tuned: bool = True
) -> NetworkStart:
    """Select the closed form on the train and validation parts.

    Args:
        field: the coded field.
        parts: its split.
        config: of the job.
        tuned: False fits one closed form, the one with the least work, as a dry run does.

    Raises:
        ConfigError: a forecaster that cannot be used, or a backtest that the data do not allow.
        DataError: the validation part has no window.
        NumericalError: no forecaster is stable and finite.
    """
    data = field.data
    if not len(parts.windows["validation"]):
        raise DataError("the validation part has no window", fix="a larger split.validation")
    check_backtest(config, data, parts)
    rank = config.pod.rank if isinstance(config.pod.rank, int) else 1
    setting = setting_of(data, parts, rank, config)
    fields = data.fields()
    seasons = field.physical.coding.seasons
    pod = fit_pod(fields, parts.steps["train"], setting.harmonics, config, bool(seasons))
    setting = setting_of(data, parts, pod.rank_, config)
    selection = _select(Chooser(data, parts, setting, config, tuned=tuned), config, tuned)
    modes = pod.modes_.values.reshape(pod.rank_, -1)[:, fields.grid.values.ravel()]
    modes = np.pad(modes, ((0, 0), (0, sum(data.parameters))))
    norm = np.sqrt((modes**2 * setting.weights).sum(axis=1, keepdims=True))
    coding = field.physical.coding
    return NetworkStart(data, coding, parts, pod, selection, modes / norm, field.warnings)


def _select(chooser: Chooser, config: ForecastingConfig, tuned: bool) -> Selection:
    """Return the selection; a model with a fixed base compares that family only."""
    bases: dict[str, ForecasterConfig] = {
        "damped_residual_lstm": DampedAnomalyConfig.tuned(),
        "pod_lstm": ClimatologyConfig(),
        "increment_lstm": PersistenceConfig(anomalies=True),
    }
    only = bases.get(config.model.name)
    if only is not None:
        chooser.config = config.model_copy(update={"forecaster": only})
    return chooser.select() if tuned else chooser.first()


def begin_network(prepared: NetworkStart, config: ForecastingConfig) -> LstmCorrection:
    """Return untrained networks on the selected closed form.

    That is fitted to the train part only, so that the correction can be evaluated on the
    validation part.
    """
    setting = prepared.selection.setting
    wanted = network_config(prepared.selection.winner.config, config)
    model = wanted.build(setting).begin(
        prepared.data.segments(prepared.parts.steps["train"]), prepared.modes
    )
    return model.standardise(prepared.parts.windows["train"])


def network_config(base: ForecasterConfig, config: ForecastingConfig) -> LstmCorrectionConfig:
    """Return the configuration of networks that correct a closed form."""
    return LstmCorrectionConfig(
        base=base,
        network=config.model.model_dump(exclude={"name"}),
        members=config.ensemble,
        seed=config.seed,
    )


def fit_pod(
    data: FieldData,
    steps: range,
    harmonics: int,
    config: ForecastingConfig,
    other_season: bool = False,
) -> POD:
    """Return the POD of the anomalies of the training steps.

    Args:
        data: coded field.
        steps: of the train part.
        harmonics: of the season.
        config: of the job.
        other_season: whether the season is another one than the year of the dates.
    """
    part = slice(steps.start, steps.stop)
    values = data.series.values[part]
    if other_season:
        series = TimeSeries(values, data.series.years[part])
        values = Climatology(harmonics).fit([series]).anomalies(series).values
    few = values[:: max(1, len(values) // 64)]
    field = data.to_grid(values, (data.time_name,), np.asarray(few).std(axis=0))
    field = field.assign_coords({data.time_name: data.times.values[part]})
    field = field.rename(data.name).assign_attrs({"units": data.units} if data.units else {})
    dates = np.isfinite(data.series.years).all() and not other_season
    rank = config.pod.rank
    most = min(data.series.values.shape[1], len(steps) - 2 * harmonics - 2)
    return POD(
        rank=min(rank, most) if isinstance(rank, int) else rank,
        seasonal_cycle=harmonics if dates and harmonics else None,
        max_memory=config.pod.max_memory,
        horizon=config.leads,
        seed=config.seed,
    ).fit(field, data.time_name)


@dataclass
class Judged:
    """Validation of the networks' correction.

    Attributes:
        factors: (lead,) factors of the correction; see `lead_factors`.
        full: RMSE on the validation part with the unscaled correction.
        entry: of the corrected forecast in the selection.
        errors: (window, lead, cell) on the validation part.
    """

    factors: Array
    full: float
    entry: FamilyBest
    errors: Array


def judge_network(
    prepared: NetworkStart, correction: LstmCorrection, config: ForecastingConfig
) -> Judged:
    """Evaluate the correction by trained networks on the validation part."""
    windows, weights = prepared.parts.windows["validation"], correction.setting.weights
    truth, base = windows.targets(), correction.base.predict(windows)
    added = correction.correction(windows)
    factors = lead_factors(truth - base, added, weights)
    errors = truth - base - factors[:, None] * added
    wanted = network_config(prepared.selection.winner.config, config)
    entry = FamilyBest(wanted, rmse(errors, weights), None, True)
    return Judged(factors, rmse(truth - base - added, weights), entry, errors)


def rmse(errors: Array, weights: Array) -> float:
    """Return the area-weighted RMSE over all windows and leads."""
    return float(np.sqrt((rmse_per_lead(errors, 0 * errors, weights) ** 2).mean()))


def finalize(
    prepared: NetworkStart, correction: LstmCorrection | None, config: ForecastingConfig
) -> tuple[ForecastSurrogate, dict[str, Any]]:
    """Select the closed form with or without correction; refit it on train + validation.

    Args:
        prepared: the state before the training of networks.
        correction: the trained networks; None without.
        config: of the job.

    Returns:
        The surrogate, and the record of the selection.
    """
    selection = prepared.selection
    setting, winner, errors = selection.setting, selection.winner, selection.errors
    segments = prepared.data.segments(prepared.parts.fit_steps)
    fitted = slice(prepared.parts.fit_steps.start, prepared.parts.fit_steps.stop)
    network = None if correction is None else judge_network(prepared, correction, config)
    if network is not None and correction is not None and _network_wins(network, winner, config):
        correction.factors_ = network.factors
        winner, errors = network.entry, network.errors
        forecaster: Forecaster = correction.refit_base(segments)
    else:
        forecaster = winner.config.build(setting).fit(segments)
    spread, quantiles = error_model(errors)
    surrogate = ForecastSurrogate(
        winner.config,
        setting,
        forecaster,
        Climatology(setting.harmonics).fit(segments),
        prepared.modes,
        spread,
        quantiles,
        prepared.data.grid,
        prepared.coding,
        {
            "name": prepared.data.name,
            "units": unit_of(prepared.coding),
            "winner": winner.config.label(),
            "last_year": _finite(prepared.data.series.years[fitted][-1]),
            "ranges": coded_ranges(prepared.coding, prepared.data.series.values[fitted]),
        },
    )
    return surrogate, _record(prepared, network, winner, errors, surrogate)


def _network_wins(network: Judged, winner: FamilyBest, config: ForecastingConfig) -> bool:
    """Return whether the correction is used; never if all its factors are zero."""
    asked = config.model.name in FIXED_BASES
    better = network.entry.error < (1 - NETWORK_GAIN) * winner.validation
    return bool(network.factors.any()) and (asked or better)


def _record(
    prepared: NetworkStart,
    network: Judged | None,
    winner: FamilyBest,
    errors: Array,
    surrogate: ForecastSurrogate,
) -> dict[str, Any]:
    selection, weights = prepared.selection, surrogate.weights
    entries = [*selection.entries, *([network.entry] if network else [])]
    record: dict[str, Any] = {
        "winner": winner.config.label(),
        "entries": [
            {
                "label": e.config.label(),
                "title": e.config.titled(),
                "validation": e.validation,
                "blocked": e.blocked,
                "stable": e.stable,
                "cpu_seconds": e.seconds,
                "config": e.config.model_dump(mode="json"),
                "closed_form": e.config.closed_form,
            }
            for e in entries
        ],
        "refused": selection.refused,
        "warnings": list(prepared.warnings),
        "selection_cpu_seconds": selection.cpu_seconds,
        "held_out_rmse": rmse_per_lead(errors, 0 * errors, weights).tolist(),
        "base_candidates": selection.tried,
        "steps": {k: [s.start, s.stop] for k, s in prepared.parts.steps.items()},
        "simulations": len(prepared.data.simulations),
        "held_out_quantiles": surrogate.quantiles.tolist(),
        "modes": len(surrogate.modes),
        "pod": pod_record(prepared.pod),
    }
    if network is not None:
        record["network"] = {
            "factors": network.factors.tolist(),
            "validation_full": network.full,
            "validation": network.entry.validation,
            "validation_without": selection.winner.validation,
            "delivered": winner is network.entry,
        }
    return record


def pod_record(pod: POD) -> dict[str, Any]:
    """Return the spectrum of a POD as plain numbers."""
    return {
        "rank": pod.rank_,
        "truncation_rmse_train": float(pod.truncation_error_),
        "singular_values": np.asarray(pod.singular_values_).tolist(),
        "variance_share": np.asarray(pod.explained_variance_ratio_).tolist(),
        "rank_table": getattr(pod, "rank_table_", None) or [],
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
