"""Selection of a closed-form forecaster by blocked cross-validation, with optional stacking."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from logging import Logger

import numpy as np

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.core.log import get_logger
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import FieldData, FieldSplits
from scitoolkit.forecasting.fields import VARIABLE
from scitoolkit.forecasting.forecasters.base import ForecasterConfig, Setting, forecasters
from scitoolkit.forecasting.forecasters.climatology import resolvable_harmonics
from scitoolkit.forecasting.forecasters.damped_anomaly import DampedAnomalyConfig
from scitoolkit.forecasting.forecasters.stacking import (
    StackingConfig,
    combined,
    error_products,
    least_convex,
)
from scitoolkit.forecasting.judging import UNSTABLE, Fold, Judge, blocked, overall, thinned
from scitoolkit.forecasting.windows import Array, join_windows

log: Logger = get_logger(__name__)

LONG = 1000
"""Number of steps from which settings are tuned on the validation part instead of on folds."""
NEAR = 3.0
"""Families whose error exceeds the least error by this factor are not cross-validated."""
MOST_WORK = 15_000
"""Multiplications per step above which a family is fitted only if selected by name."""
WHOLE = 0.05
"""Largest distance of the steps of a season from a whole number."""
STACKED = 4
STACKING_GAIN = 0.001


@dataclass
class FamilyBest:
    """Best candidate of a family.

    Attributes:
        config: with all settings chosen.
        validation: RMSE on the validation part, fitted to the train part.
        blocked: out-of-fold RMSE over train + validation; None if not measured.
        stable: whether long rollouts stay bounded.
        seconds: CPU seconds for tuning its settings.
    """

    config: ForecasterConfig
    validation: float
    blocked: float | None
    stable: bool
    seconds: float = 0.0

    @property
    def error(self) -> float:
        """Error used for ranking: `blocked` if measured, else `validation`."""
        return self.validation if self.blocked is None else self.blocked


@dataclass
class Selection:
    """Result of the comparison of forecasters.

    Attributes:
        setting: of all forecasters.
        entries: one per family.
        winner: the selected entry.
        errors: (window, lead, cell) out-of-fold errors of the winner.
        refused: reasons why families were excluded, by name.
        tried: settings of the damped anomaly with their out-of-fold errors.
        cpu_seconds: of the whole selection.
    """

    setting: Setting
    entries: list[FamilyBest]
    winner: FamilyBest
    errors: Array
    refused: dict[str, str] = field(default_factory=dict)
    tried: list[tuple[str, float]] = field(default_factory=list)
    cpu_seconds: float = 0.0


def setting_of(
    data: FieldData, parts: FieldSplits, rank: int, config: ForecastingConfig
) -> Setting:
    """Return the setting, with the largest number of harmonics that the time steps resolve."""
    segments = data.segments(parts.fit_steps)
    years = np.concatenate([s.years for s in segments])
    # The dim of concatenated variables is not a spatial one: it has no neighbours.
    whole = bool(data.grid.values.all()) and VARIABLE not in data.grid.dims
    return Setting(
        inputs=config.inputs,
        leads=config.leads,
        weights=data.weights / data.weights.mean(),
        rank=rank,
        harmonics=min(max(config.harmonics), resolvable_harmonics(years)),
        shape=data.grid.shape if whole else None,
        rows=len(parts.fit_steps),
        seed=config.seed,
        parameters=data.parameters,
        season=_season(max((s.years for s in segments), key=len)),
    )


def _season(years: Array) -> int:
    """Return the steps of a year, or of the season that is counted; 0 if no whole number of 2."""
    if not resolvable_harmonics(years):
        return 0
    steps = (len(years) - 1) / float(years[-1] - years[0])  # months differ: the mean step counts
    return round(steps) if abs(steps - round(steps)) < WHOLE and round(steps) >= 2 else 0


def choose_harmonics(
    setting: Setting,
    folds: list[Fold],
    config: ForecastingConfig,
    tried: list[tuple[str, float]] | None = None,
) -> Setting:
    """Return the setting with the harmonics of the damped anomaly's least out-of-fold error."""
    if not folds:
        log.warning("too few training steps for blocked validation: default harmonics are used")
        return replace(setting, harmonics=_default_harmonics(setting, config))
    options = _harmonics(setting, config)
    start = DampedAnomalyConfig(shrinkage=10.0)

    def error(candidate: ForecasterConfig) -> float:
        value = Judge(setting, folds).error(candidate)
        if tried is not None and isinstance(candidate, DampedAnomalyConfig):
            tried.append((f"harmonics {candidate.harmonics}, {candidate.label()}", value))
        return value

    return replace(setting, harmonics=start.tune_harmonics(options, error))


def _harmonics(setting: Setting, config: ForecastingConfig) -> list[int]:
    return sorted({min(n, setting.harmonics) for n in config.harmonics})


def _default_harmonics(setting: Setting, config: ForecastingConfig) -> int:
    options = _harmonics(setting, config)
    return options[min(2, len(options) - 1)]


class Chooser:
    """Comparison of forecaster families on the train and validation parts.

    Args:
        data: coded field.
        parts: its split.
        setting: of all forecasters.
        config: of the job.
        tuned: False leaves the number of harmonics at its default, without fits.
    """

    def __init__(
        self,
        data: FieldData,
        parts: FieldSplits,
        setting: Setting,
        config: ForecastingConfig,
        *,
        tuned: bool = True,
    ) -> None:
        self.config = config
        self.folds: list[Fold] = blocked(data.segments(parts.fit_steps), setting)
        self.tried: list[tuple[str, float]] = []
        self.setting: Setting = (
            choose_harmonics(setting, self.folds, config, self.tried)
            if tuned
            else replace(setting, harmonics=_default_harmonics(setting, config))
        )
        self.validation: Judge = Judge(
            self.setting,
            [Fold(data.segments(parts.steps["train"]), thinned(parts.windows["validation"]))],
        )
        self.blocked: Judge = Judge(self.setting, self.folds)
        short = len(parts.fit_steps) < LONG and self.folds
        self.tuning: Judge = self.blocked if short else self.validation
        self.refused: dict[str, str] = {}
        self._blocked_scores: dict[str, tuple[float, bool]] = {}

    def families(self) -> list[ForecasterConfig]:
        """Return the families to compare: the configured one, or all applicable ones.

        Raises:
            ConfigError: the configured family cannot be used.
        """
        wanted = self.config.forecaster
        if not isinstance(wanted, str):
            if why := wanted.refuses(self.setting) or wanted.unavailable():
                raise ConfigError(
                    f"forecaster {wanted.name} cannot be used here: {why}",
                    where="forecaster",
                    fix="forecaster=auto",
                )
            return [wanted]
        configs = []
        for name in forecasters:
            family = forecasters.get(name)
            if not (family.closed_form and family.compared):
                continue
            for config in family.variants():
                if not config.compares(self.setting):
                    continue
                why = family.unavailable() or config.refuses(self.setting)
                if not why and (work := config.work(self.setting)) > MOST_WORK:
                    why = f"{work:.2g} multiplications per step; forecaster={name} fits it alone"
                if why:
                    self.refused[config.titled()] = why
                else:
                    configs.append(config)
        return configs

    def entry(self, family: ForecasterConfig) -> FamilyBest:
        """Tune a family; return its best candidate with its error on the validation part."""
        begun = time.process_time()
        scores: dict[str, tuple[float, bool]] = {}

        def error(candidate: ForecasterConfig) -> float:
            rmse, stable = self.tuning.score(candidate)
            scores[candidate.model_dump_json()] = rmse, stable
            value = rmse if stable else UNSTABLE * rmse
            if isinstance(family, DampedAnomalyConfig) and family.has_memory:
                self.tried.append((candidate.label(), value))
            return value

        chosen = family.tune(self.setting, error)
        blocked = scores.get(chosen.model_dump_json())
        rmse, stable = self.validation.score(chosen)
        if blocked is not None and self.tuning is self.blocked:
            self._blocked_scores[chosen.model_dump_json()] = blocked
        self.validation.forget()
        self.tuning.forget()
        return FamilyBest(chosen, rmse, None, stable, time.process_time() - begun)

    def select(self) -> Selection:
        """Return the best candidate of every family and the winner, possibly a stacking.

        Raises:
            NumericalError: no forecaster is stable and finite.
        """
        begun = time.process_time()
        entries = [self.entry(family) for family in self.families()]
        best = min(e.validation if e.stable else np.inf for e in entries)
        for entry in entries:
            if self.folds and entry.validation <= NEAR * best:
                blocked = self._blocked_scores.get(entry.config.model_dump_json())
                entry.blocked, stable = blocked or self.blocked.score(entry.config)
                entry.stable = entry.stable and stable
                self.blocked.forget()
        winner, errors = self._winner(entries)
        return Selection(
            self.setting,
            entries,
            winner,
            errors,
            self.refused,
            self.tried,
            time.process_time() - begun,
        )

    def first(self) -> Selection:
        """Return a selection of the family with the least work, fitted once and not tuned."""
        family = min(self.families(), key=lambda config: config.work(self.setting))
        entry = FamilyBest(family, self.validation.score(family)[0], None, True)
        errors = join_windows(self.validation.errors(family))
        return Selection(self.setting, [entry], entry, errors, self.refused)

    def _winner(self, entries: list[FamilyBest]) -> tuple[FamilyBest, Array]:
        sound = [e for e in entries if e.stable and np.isfinite(e.error)]
        measured = [e for e in sound if e.blocked is not None]
        if not sound:
            raise NumericalError(
                "no forecaster is finite and stable on the validation part",
                where=", ".join(e.config.name for e in entries),
                fix="forecaster=auto",
            )
        if not measured:
            winner = min(sound, key=lambda e: e.error)
            return winner, join_windows(self.validation.errors(winner.config))
        ranked = sorted(measured, key=lambda e: e.error)[:STACKED]
        errors = [self._errors(e.config) for e in ranked]
        stacked = self._stacked(ranked, errors) if len(ranked) > 1 else None
        single = ranked[0], join_windows(errors[0])
        if stacked is None or not self._proven(stacked[1], single[1]):
            return single
        entries.append(stacked[0])
        return stacked

    def _proven(self, errors: Array, others: Array) -> bool:
        """Return whether errors are smaller than others by more than one standard error.

        The standard error is that of the mean difference of squared errors between blocks of
        windows, since errors of neighbouring windows are alike.
        """
        gain = self._by_block(others) - self._by_block(errors)
        return bool(gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)))

    def _by_block(self, errors: Array) -> Array:
        """Return the mean squared errors (block,) of blocks of windows."""
        weights = self.setting.weights
        squares = np.einsum("wlc,c->w", errors**2, weights) / (errors.shape[1] * weights.sum())
        length = 2 * (self.setting.inputs + self.setting.leads)
        count = max(2, len(squares) // length)
        return np.array([part.mean() for part in np.array_split(squares, count)])

    def _errors(self, config: ForecasterConfig) -> list[Array]:
        errors = self.blocked.errors(config)
        self.blocked.forget()
        return errors

    def _stacked(
        self, ranked: Sequence[FamilyBest], errors: Sequence[list[Array]]
    ) -> tuple[FamilyBest, Array] | None:
        """Return the stacking and its errors, with each fold's weights from the other folds."""
        weights = self.setting.weights
        folds = [np.stack(fold) for fold in zip(*errors, strict=True)]
        products = [error_products(fold, weights) for fold in folds]
        total = np.sum(products, axis=0)
        crossed = [
            combined(fold, least_convex(total - own))
            for fold, own in zip(folds, products, strict=True)
        ]
        error = overall(crossed, weights)
        if error > (1 - STACKING_GAIN) * ranked[0].error:
            return None
        final = least_convex(total)
        used = [k for k in range(len(ranked)) if (final[:, k] > 0).any()]
        config = StackingConfig(
            members=[ranked[k].config for k in used], weights=final[:, used].tolist()
        )
        rmse, _ = self.validation.score(config)
        return FamilyBest(config, rmse, error, True), join_windows(crossed)
