"""Validation of forecasters: out-of-fold errors and stability of long rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scitoolkit.forecasting.forecasters.base import (
    Forecaster,
    ForecasterConfig,
    Setting,
    Subspace,
    once,
)
from scitoolkit.forecasting.forecasters.frames import Frame, encoded_windows
from scitoolkit.forecasting.forecasters.recursive import Recursive
from scitoolkit.forecasting.metrics import rmse_per_lead
from scitoolkit.forecasting.windows import (
    Array,
    TimeSeries,
    Windows,
    all_windows,
    blocked_folds,
    join_windows,
)

FOLDS = 4
ROLLOUTS, ROLLOUT_STEPS, LATE = 12, 300, 100
EXCURSION = 1.5
"""Largest excursion and late spread of a stable rollout, relative to those of the record."""
UNSTABLE = 10.0
"""Factor applied to the error of a forecaster whose rollouts leave the range of the record."""
SHARED = ("frame", "record", "range", "truth", "inputs")
"""First entries of the memo keys that all families share: coordinates of record and windows."""
_MOST_VALUES = 4_000_000


@dataclass
class Fold:
    """Training stretches, held-out windows, and a cache shared by candidates.

    Attributes:
        train: stretches without gaps.
        windows: held-out windows.
        memo: results shared by candidates fitted to this fold.
    """

    train: list[TimeSeries]
    windows: Windows
    memo: dict[Any, Any] = field(default_factory=dict)

    def forget(self) -> None:
        """Drop cached results of a single family; fitted frames are retained."""
        for key in [k for k in self.memo if k[0] not in SHARED]:
            del self.memo[key]


def blocked(segments: Sequence[TimeSeries], setting: Setting) -> list[Fold]:
    """Return blocked folds separated by gaps of `leads` steps; [] if the record is too short."""
    length = setting.inputs + setting.leads
    longest = max(len(s.values) for s in segments)
    folds = min(FOLDS, longest // length)
    if longest < 3 * length or folds < 2:
        return []
    held_out = []
    for train, block in blocked_folds(segments, folds, setting.leads, length):
        if train:
            held_out.append(Fold(train, thinned(all_windows(block, setting.inputs, setting.leads))))
    return held_out


def thinned(windows: Windows) -> Windows:
    """Return evenly spaced windows with at most 4 million target values."""
    values = len(windows) * windows.leads * windows.series.values.shape[1]
    return windows.take(slice(None, None, max(1, -(-values // _MOST_VALUES))))


@dataclass
class Judge:
    """Scores of candidates on held-out folds of the train and validation parts.

    Attributes:
        setting: of the candidates.
        folds: training stretches and held-out windows.
    """

    setting: Setting
    folds: list[Fold]

    def error(self, config: ForecasterConfig) -> float:
        """Return the RMSE over all leads, times `UNSTABLE` if rollouts diverge."""
        rmse, stable = self.score(config)
        return rmse if stable else UNSTABLE * rmse

    def score(self, config: ForecasterConfig) -> tuple[float, bool]:
        """Return the area-weighted RMSE over all folds and leads, and whether it is stable."""
        squares, count, stable = 0.0, 0, True
        for fold in self.folds:
            model = config.build(self.setting).fit(fold.train, fold.memo)
            error = mean_squares(model, fold, self.setting.weights)
            squares += float(error.mean()) * len(fold.windows)
            count += len(fold.windows)
            stable = stable and is_stable(model, fold)
        return float(np.sqrt(squares / count)), stable

    def errors(self, config: ForecasterConfig) -> list[Array]:
        """Return truth - forecast (window, lead, cell) of every fold."""
        return [
            fold.windows.targets()
            - config.build(self.setting).fit(fold.train, fold.memo).predict(fold.windows)
            for fold in self.folds
        ]

    def forget(self) -> None:
        """Drop cached results of a single family."""
        for fold in self.folds:
            fold.forget()


def overall(errors: Sequence[Array], weights: Array) -> float:
    """Return the area-weighted RMSE over all windows and leads."""
    joined = join_windows(errors)
    return float(np.sqrt((rmse_per_lead(joined, 0 * joined, weights) ** 2).mean()))


def mean_squares(model: Forecaster, fold: Fold, weights: Array) -> Array:
    """Return (lead,) area-weighted mean squared errors, computed in the model's subspace if any.

    The error outside the subspace is that of the climatology, which all its models forecast there.
    """
    frame = model.subspace()
    if frame is None:
        return rmse_per_lead(fold.windows.targets(), model.predict(fold.windows), weights) ** 2
    truth, outside = once(
        fold.memo,
        ("truth", *frame.key),
        lambda: frame.split(fold.windows.targets(), fold.windows.output_years()),
    )
    return outside + frame.square(truth - model.coordinates(encoded_inputs(frame, fold)))


def encoded_inputs(frame: Subspace | Frame, fold: Fold) -> Windows:
    """Return the fold's windows in the coordinates of a frame."""
    return once(fold.memo, ("inputs", *frame.key), lambda: encoded_windows(frame, fold.windows))


def is_stable(model: Forecaster, fold: Fold) -> bool:
    """Return whether 300-step rollouts stay near the range of the record.

    A model with a small error at the leads may still diverge soon after, and a polynomial that
    diverges is unreliable outside the states it was fitted to.
    """
    if not isinstance(model, Recursive):
        return True
    largest, spread = range_of(model, fold)
    which = np.linspace(0, len(fold.windows) - 1, min(ROLLOUTS, len(fold.windows))).astype(int)
    paths = model.rollout(encoded_inputs(model.frame, fold).take(which), ROLLOUT_STEPS)
    if not (np.abs(paths) < EXCURSION * largest).all():
        return False
    return bool(paths[:, -LATE:].std(axis=(0, 1)).mean() < EXCURSION * spread)


def range_of(model: Recursive, fold: Fold) -> tuple[float, float]:
    """Return the largest absolute coordinate and the mean standard deviation of the record.

    The largest coordinate includes the rollouts' initial states, because a held-out block may
    exceed the range of the training stretches.
    """
    key = ("range", *model.frame.key)
    if key not in fold.memo:
        z = np.concatenate([model.frame.encode(*s) for s in fold.train])
        starts = np.nanmax(np.abs(encoded_inputs(model.frame, fold).series.values))
        largest = max(float(np.abs(z).max()), float(starts))
        fold.memo[key] = largest, float(z.std(axis=0).mean())
    return fold.memo[key]
