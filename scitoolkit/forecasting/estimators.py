"""Estimators of scikit-learn for matrices: POD as a transformer, a polynomial map as a regressor.

They pass scikit-learn's `check_estimator`, so that pipelines, `cross_val_score` with
`TimeSeriesSplit`, and `GridSearchCV` take them. Rows are times in order. For gridded fields with
dims and dates use `POD` and jobs of the domain `forecasting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

import numpy as np
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError, missing_extra
from scitoolkit.forecasting.forecasters.regression import RidgePath, monomials, num_monomials
from scitoolkit.forecasting.pod import POD
from scitoolkit.forecasting.windows import Array, TimeSeries, all_windows

try:
    from sklearn.base import (
        BaseEstimator,
        ClassNamePrefixFeaturesOutMixin,
        MultiOutputMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data
except ImportError as error:  # validate_data is from 1.6
    raise missing_extra("scikit-learn", "sklearn", "an estimator of scikit-learn") from error

MOST_FEATURES = 20_000
"""Monomials whose normal equations (3.2 GB) are still solved."""


class PODTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Proper orthogonal decomposition of a matrix (time, cell), as a transformer of scikit-learn.

    Coefficients are those of `POD` of the same values: unlike those of `PCA` they are weighted by
    the areas of the cells, and a matrix larger than `max_memory` is decomposed in passes.

    Args:
        rank: number of modes, or the share of variance in (0, 1) that they explain.
        weights: (cell,) positive area weights; None for equal ones.
        mean: remove each cell's mean.
        max_memory: memory limit of the decomposition, in bytes or as text such as "512MiB".
        seed: of the random initial subspace of a large matrix.

    Attributes:
        pod_: the fitted `POD`, of the cells multiplied by the square roots of their weights.
        components_: (mode, cell) patterns, orthonormal under the weights, which have mean 1.
        explained_variance_ratio_: (mode,) share of the weighted variance.
        n_features_in_: number of cells.

    Example:
        >>> values = np.outer(np.sin(np.arange(12.0)), [1.0, 2.0, 3.0])
        >>> pod = PODTransformer(rank=1)
        >>> coefficients = pod.fit_transform(values)
        >>> coefficients.shape, bool(abs(pod.inverse_transform(coefficients) - values).max() < 1e-9)
        ((12, 1), True)
    """

    pod_: POD
    scale_: Array
    components_: Array
    explained_variance_ratio_: Array
    n_features_in_: int

    def __init__(
        self,
        rank: int | float = 0.999,
        *,
        weights: Sequence[float] | None = None,
        mean: bool = True,
        max_memory: int | str = "1GiB",
        seed: int = 0,
    ) -> None:
        self.rank = rank
        self.weights = weights
        self.mean = mean
        self.max_memory = max_memory
        self.seed = seed

    def fit(self, X: Any, y: Any = None) -> PODTransformer:
        """Compute the modes of a matrix (time, cell) of at least two times; return self.

        Raises:
            ConfigError: an invalid rank, or weights that are not one positive number a cell.
            DataError: values that are constant in time.
            ValueError: not a finite matrix.
        """
        values = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        self.scale_ = self._scale(values.shape[1]).astype(values.dtype)
        self.pod_ = POD(
            self.rank.item() if isinstance(self.rank, np.number) else self.rank,
            area_weights=False,
            mean=self.mean,
            max_memory=self.max_memory,
            seed=self.seed,
        ).fit(self._field(values))
        self.components_ = self.pod_.modes_.values / self.scale_
        self.explained_variance_ratio_ = self.pod_.explained_variance_ratio_
        return self

    def transform(self, X: Any) -> Array:
        """Return the coefficients (time, mode), float64, of a matrix (time, cell).

        Raises:
            ValueError: not a finite matrix with the cells of `fit`.
        """
        check_is_fitted(self)
        values = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(self.pod_.transform(self._field(values)).values)

    def inverse_transform(self, X: Any) -> Array:
        """Return the matrix (time, cell) of coefficients (time, mode).

        Raises:
            DataError: another number of modes than those of `fit`.
        """
        check_is_fitted(self)
        coefficients = check_array(X, dtype=np.float64)
        if coefficients.shape[1] != self._n_features_out:
            raise DataError(
                f"coefficients of {coefficients.shape[1]} modes",
                allowed=f"{self._n_features_out} modes, as in fit",
                fix="the coefficients that `transform` returns",
            )
        field = self.pod_.inverse_transform(xr.DataArray(coefficients, dims=("time", "mode")))
        return np.asarray(field.values / self.scale_)

    @property
    def _n_features_out(self) -> int:
        return self.pod_.rank_

    def _scale(self, cells: int) -> Array:
        """Return the square roots of the weights (cell,), which are scaled to mean 1."""
        if self.weights is None:
            return np.ones(cells)
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.shape != (cells,) or not (np.isfinite(weights) & (weights > 0)).all():
            raise ConfigError(
                f"weights of shape {weights.shape}",
                where="PODTransformer",
                allowed=f"{cells} finite positive numbers, one a cell",
                fix="weights=numpy.cos(numpy.radians(latitude_of_cell))",
            )
        return np.sqrt(weights / weights.mean())

    def _field(self, values: Array) -> xr.DataArray:
        return xr.DataArray(values * self.scale_, dims=("time", "cell"), name="X")


class PolynomialForecaster(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Polynomial map by ridge regression whose penalty is selected on blocks of time.

    It is the map of the forecaster `polynomial_map`. Neighbouring rows of a record are nearly the
    same, so that a random split, as that of `RidgeCV`, prefers too small a penalty; here whole
    blocks are held out, without the rows next to them. `lagged_table` makes X and y from a record.

    Args:
        degree: of the polynomial, 1 to 3.
        penalties: ridge penalties on features with mean square 1; several are compared.
        folds: number of blocks, at least 2.
        gap: number of rows left out on both sides of a block: inputs plus leads of the table.

    Attributes:
        penalty_: selected penalty.
        errors_: (penalty,) mean square error on the blocks; 0 if there was nothing to compare.
        coef_: (monomial, target) coefficients; monomials are in the order of the forecaster.
        n_features_in_: number of columns of X.

    Example:
        >>> record = np.sin(0.3 * np.arange(200.0))[:, None]
        >>> X, y = lagged_table(record, inputs=2, leads=1)
        >>> model = PolynomialForecaster(penalties=(1e-9, 1.0)).fit(X[:150], y[:150])
        >>> model.penalty_, bool(model.score(X[150:], y[150:]) > 0.999)
        (1e-09, True)
    """

    penalty_: float
    errors_: Array
    coef_: Array
    n_features_in_: int

    def __init__(
        self,
        degree: int = 1,
        *,
        penalties: Sequence[float] = (1e-7, 1e-4, 1e-2, 1e-1),
        folds: int = 4,
        gap: int = 0,
    ) -> None:
        self.degree = degree
        self.penalties = penalties
        self.folds = folds
        self.gap = gap

    def fit(self, X: Any, y: Any) -> PolynomialForecaster:
        """Select the penalty, then fit to all rows; return self.

        Args:
            X: (row, input), rows in the order of time.
            y: (row,) or (row, target).

        Raises:
            ConfigError: an argument out of its range, or too many monomials.
            ValueError: not finite matrices with the same rows.
        """
        self._check()
        inputs, targets = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True
        )
        features = self._features(inputs)
        targets = np.asarray(targets, dtype=np.float64)
        columns = targets.reshape(len(targets), -1)
        self.errors_ = self._errors(features, columns)
        self.penalty_ = float(self.penalties[int(np.argmin(self.errors_))])
        path = RidgePath(features)
        weights = path.solve(path.rotate(columns), self.penalty_)
        self.coef_ = weights[:, 0] if targets.ndim == 1 else weights
        return self

    def predict(self, X: Any) -> Array:
        """Return the targets, (row,) or (row, target) as in `fit`, float64.

        Raises:
            ValueError: not a finite matrix with the columns of `fit`.
        """
        check_is_fitted(self)
        inputs = validate_data(self, X, dtype=np.float64, reset=False)
        return self._features(inputs) @ self.coef_

    def _check(self) -> None:
        """Check the arguments, which scikit-learn wants to be checked in `fit`."""
        for name, ok, allowed in (
            ("degree", _is_whole(self.degree, 1) and self.degree <= 3, "1, 2 or 3"),
            ("penalties", _all_positive(self.penalties), "a list of positive numbers"),
            ("folds", _is_whole(self.folds, 2), "2 or more"),
            ("gap", _is_whole(self.gap, 0), "0 or more"),
        ):
            if not ok:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r}",
                    where="PolynomialForecaster",
                    allowed=allowed,
                    fix="set_params(" + name + "=...)",
                )

    def _features(self, inputs: Array) -> Array:
        count = num_monomials(inputs.shape[1], self.degree)
        if count > MOST_FEATURES:
            raise ConfigError(
                f"{count} monomials of degree {self.degree} in {inputs.shape[1]} inputs",
                where="PolynomialForecaster",
                allowed=f"at most {MOST_FEATURES}",
                fix="make_pipeline(PODTransformer(rank=10), PolynomialForecaster(...))",
            )
        return monomials(inputs, self.degree)

    def _errors(self, features: Array, columns: Array) -> Array:
        """Return the mean square error (penalty,) on blocks that the fit did not see."""
        errors = np.zeros(len(self.penalties))
        folds = min(self.folds, len(features) // (2 * (self.gap + 1)))
        if len(self.penalties) == 1 or folds < 2:
            return errors
        edges = np.linspace(0, len(features), folds + 1).astype(int)
        number = np.arange(len(features))
        for begin, end in pairwise(edges):
            rows = (number < begin - self.gap) | (number >= end + self.gap)
            path = RidgePath(features[rows])
            rotated = path.rotate(columns[rows])
            for k, penalty in enumerate(self.penalties):
                wrong = columns[begin:end] - features[begin:end] @ path.solve(rotated, penalty)
                errors[k] += (wrong**2).sum()
        return errors / columns.size


def lagged_table(record: Any, inputs: int, leads: int) -> tuple[Array, Array]:
    """Return inputs and targets of all windows of a record without gaps, for regressors.

    Args:
        record: (time, channel) values in the order of time.
        inputs: number of input steps of a row.
        leads: number of steps after them.

    Returns:
        X (row, inputs * channel), newest step first, and y (row, leads * channel), in time.

    Raises:
        ConfigError: inputs or leads that are no whole numbers of 1 or more.
        DataError: not a matrix, or too few steps for one row.

    Example:
        >>> X, y = lagged_table(np.arange(5.0)[:, None], inputs=2, leads=1)
        >>> X[0].tolist(), y[0].tolist(), len(X)
        ([1.0, 0.0], [2.0], 3)
    """
    for name, number in (("inputs", inputs), ("leads", leads)):
        if not _is_whole(number, 1):
            raise ConfigError(f"{name}={number!r}", where="lagged_table", allowed="1 or more")
    values = np.asarray(record, dtype=np.float64)
    if values.ndim != 2:
        raise DataError(
            f"a record of shape {values.shape}",
            allowed="(time, channel)",
            fix="record[:, None] for one channel",
        )
    years = np.full(len(values), np.nan)
    windows = all_windows(TimeSeries(values, years), inputs, leads, what="the record")
    newest_first = windows.input_values()[:, ::-1]
    return (
        newest_first.reshape(len(windows), -1),
        windows.targets().reshape(len(windows), -1),
    )


def _all_positive(values: Any) -> bool:
    """Return whether this is a list of positive finite numbers that is not empty."""
    if not isinstance(values, Sequence | np.ndarray) or len(values) == 0:
        return False
    return all(isinstance(value, Real) and 0 < float(value) < np.inf for value in values)


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
