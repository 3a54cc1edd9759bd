"""Stacking: convex combination of forecasters by their out-of-fold errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from scitoolkit.core.errors import DataError
from scitoolkit.core.plugins import Choice
from scitoolkit.forecasting.forecasters.base import (
    Forecaster,
    ForecasterConfig,
    Memo,
    Setting,
    forecasters,
    prefixed,
    within,
)
from scitoolkit.forecasting.judging import Judge, blocked
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows, join_windows


class Stacking(Forecaster):
    """Convex combination of forecasters with weights per lead.

    Args:
        members: configurations of two to five forecasters.
        setting: leads and area weights.
        weights: (lead, member); None estimates them by blocked cross-validation in `fit`.

    Source:
        stacked regressions, Breiman 1996, doi:10.1007/BF00117832.
    """

    def __init__(
        self, members: Sequence[ForecasterConfig], setting: Setting, weights: Array | None = None
    ) -> None:
        self.configs, self.setting = list(members), setting
        self.members: list[Forecaster] = [m.build(setting) for m in members]
        self.weights_: Array | None = weights

    def fit(self, segments: Sequence[TimeSeries], memo: Memo | None = None) -> Stacking:
        """Fit the members and, if not given, the weights."""
        if self.weights_ is None:
            self.weights_ = self._find_weights(segments)
        for member in self.members:
            member.fit(segments, memo)
        return self

    def _find_weights(self, segments: Sequence[TimeSeries]) -> Array:
        folds = blocked(segments, self.setting)
        if not folds:
            raise DataError(
                "the record is too short for the weights of a stacking",
                allowed=f"at least {3 * (self.setting.inputs + self.setting.leads)} steps",
                fix="a longer file, smaller `inputs` and `leads`, or forecaster.weights",
            )
        judge = Judge(self.setting, folds)
        errors = [join_windows(judge.errors(config)) for config in self.configs]
        return convex_weights(np.stack(errors), self.setting.weights)

    def predict(self, windows: Windows) -> Array:
        """Return the forecast, (window, lead, cell); leads beyond the weights use the last ones."""
        assert self.weights_ is not None
        leads = np.minimum(np.arange(windows.leads), len(self.weights_) - 1)
        return combined(np.stack([m.predict(windows) for m in self.members]), self.weights_[leads])

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the weights and the arrays of every member."""
        assert self.weights_ is not None
        parts = [prefixed(str(i), member.arrays()) for i, member in enumerate(self.members)]
        return {"weights": self.weights_, **{k: v for part in parts for k, v in part.items()}}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Stacking:
        """Restore the fitted state from `arrays`; return self."""
        self.weights_ = np.asarray(arrays["weights"])
        for i, member in enumerate(self.members):
            member.restore(within(str(i), arrays))
        return self


def combined(forecasts: Array, weights: Array) -> Array:
    """Return the combination (window, lead, cell) of forecasts (member, window, lead, cell).

    Args:
        forecasts: (member, window, lead, cell).
        weights: (lead, member).
    """
    return np.einsum("mwlc,lm->wlc", forecasts, weights)


def convex_weights(errors: Array, weights: Array) -> Array:
    """Return the convex weights (lead, member) with the least mean squared error.

    The errors of neighbouring leads are pooled, because overlapping windows correspond to few
    independent ones.

    Args:
        errors: (member, window, lead, cell) out-of-sample errors.
        weights: (cell,) area weights.

    Example:
        >>> errors = np.array([1.0, -1.0])[:, None, None, None] * np.ones((2, 3, 1, 1))
        >>> convex_weights(errors, np.ones(1))
        array([[0.5, 0.5]])
    """
    return least_convex(error_products(errors, weights))


def error_products(errors: Array, weights: Array) -> Array:
    """Return area-weighted sums of error products, (lead, member, member); additive over parts."""
    root, products = np.sqrt(weights), []
    for lead in range(errors.shape[2]):
        rows = (errors[:, :, lead] * root).reshape(len(errors), -1)
        products.append(rows @ rows.T)
    return np.stack(products)


def least_convex(products: Array) -> Array:
    """Return the convex weights (lead, member) for `error_products`, pooling adjacent leads."""
    pooled = [products[max(0, lead - 1) : lead + 2].sum(axis=0) for lead in range(len(products))]
    return np.stack([_least_convex(matrix) for matrix in pooled])


def _least_convex(matrix: Array) -> Array:
    """Return the minimiser of w'Mw over the simplex, by enumeration of the active sets."""
    count = len(matrix)
    best, least = np.eye(count)[np.argmin(np.diag(matrix))], float(np.diag(matrix).min())
    ridge = 1e-9 * float(np.trace(matrix)) / count + 1e-300
    for size in range(2, count + 1):
        for members in map(list, combinations(range(count), size)):
            block = matrix[np.ix_(members, members)] + ridge * np.eye(size)
            part = np.linalg.solve(block, np.ones(size))
            part = part / part.sum()
            value = float(part @ matrix[np.ix_(members, members)] @ part)
            if (part >= 0).all() and value < least:
                best, least = np.zeros(count), value
                best[members] = part
    return best


class StackingConfig(ForecasterConfig):
    """Convex combination of several forecasters with weights per lead.

    Attributes:
        members: two to five forecasters.
        weights: (lead, member); None estimates them by blocked cross-validation.
    """

    title: ClassVar[str] = "stacking"
    compared: ClassVar[bool] = False

    name: Literal["stacking"] = "stacking"
    members: list[Annotated[ForecasterConfig, Choice(forecasters)]] = Field(
        min_length=2, max_length=5
    )
    weights: list[list[float]] | None = None

    def build(self, setting: Setting) -> Stacking:
        """Return the unfitted model."""
        weights = None if self.weights is None else np.array(self.weights)
        return Stacking(self.members, setting, weights)

    def refuses(self, setting: Setting) -> str:
        """Return the first reason of a member."""
        return next((why for m in self.members if (why := m.refuses(setting))), "")

    def label(self) -> str:
        """Return the titles of the members."""
        return f"{self.title} of {' and '.join(m.titled() for m in self.members)}"
