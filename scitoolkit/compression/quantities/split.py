"""A-priori bounds of variables from the bounds of quantities, by error propagation.

To first order, quantity Q changes by at most sum_a |dQ/da| |error of a|; a derivative multiplies
the bound of its variable by the sum of its absolute weights. The tolerance is divided equally among
variables. The slope |dQ/da| is the larger of two secants whose width is the bound of the previous
iteration, which accounts for curvature and stays finite at singularities.

The bounds are estimates; decoded values are verified and repaired, see `repair`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from scitoolkit.compression.quantities.check import Fields, Quantity

# Points with slopes above this quantile are left to repairs.
QUANTILE = 0.999
ROUNDS = 3


def split_bounds(
    quantities: Sequence[Quantity], original: Fields, relative: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Return a bound for each variable that occurs in a quantity.

    Args:
        quantities: the bounded quantities.
        original: variable -> float64 array, NaN where a value is missing.
        relative: |x| of variables coded with `pw_rel`, whose bounds are fractions of it.
    """
    names = sorted({name for quantity in quantities for name in quantity.fields})
    bounds = {name: math.inf for name in names}
    for quantity in quantities:
        arguments = quantity.arguments_of(original)
        value = quantity.of_arguments(arguments)
        allowed = {
            name: 1e-3 * _scale(original[name], name in relative) for name in quantity.fields
        }
        for _ in range(ROUNDS):
            allowed = _shares(quantity, arguments, value, allowed, relative)
        for name, bound in allowed.items():
            bounds[name] = min(bounds[name], bound)
    return bounds


def _scale(values: np.ndarray, relative: bool) -> float:
    finite = values[np.isfinite(values)]
    return 1.0 if relative or not finite.size else float(np.std(finite)) or abs(float(finite[0]))


def _shares(
    quantity: Quantity,
    arguments: Mapping[str, np.ndarray],
    value: np.ndarray,
    bounds: Mapping[str, float],
    relative: Mapping[str, np.ndarray],
) -> dict[str, float]:
    slopes = {name: np.zeros(value.shape) for name in quantity.fields}
    for key, (name, stencil) in quantity.arguments.items():
        gain = stencil.gain()[quantity.region]
        if name in relative:
            gain = gain * relative[name][quantity.region]
        width = gain * max(bounds[name], 1e-300)
        changes = []
        for sign in (-1, 1):
            moved = quantity.of_arguments({**arguments, key: arguments[key] + sign * width})
            with np.errstate(all="ignore"):
                changes.append(np.abs(moved - value))
        change = np.where(np.isfinite(changes), changes, 0.0).max(0)
        slopes[name] = slopes[name] + change / max(bounds[name], 1e-300)
    shares = {}
    for name, slope in slopes.items():
        with np.errstate(all="ignore"):
            allowed = quantity.spread(np.asarray(quantity.tolerance)) / slope
        usable = allowed[np.isfinite(value) & np.isfinite(allowed) & (allowed > 0)]
        share = float(np.quantile(usable, 1 - QUANTILE)) if usable.size else math.inf
        shares[name] = share / len(slopes)
    return shares
