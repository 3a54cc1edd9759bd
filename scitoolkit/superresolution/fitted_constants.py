"""Fit of the named constants of equations to data, over all equations together.

Gauss-Newton about the given values; equations are linear in most constants. Residuals are in units
of their equation's terms. Standard errors are from a delete-one jackknife over blocks of the data,
as neighbouring points are not independent.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scitoolkit.superresolution.equations import PDE

Array = np.ndarray
Evaluate = Callable[[PDE], Mapping[str, Array]]
"""Residuals of all equations, each an array of one shape in units of its terms."""

BLOCKS, ROUNDS, STEP = 8, 4, 0.01
_UNDETERMINED = 1e-8


@dataclass(frozen=True)
class FittedConstant:
    """A constant fitted to the data.

    Attributes:
        name: in the equations.
        value: fitted value.
        error: its standard error; infinite if a block of the data alone determines it.
        configured: value in the configuration or the file.
    """

    name: str
    value: float
    error: float
    configured: float

    @property
    def agrees(self) -> bool:
        """Whether the fitted value is within a tenth of the given one, or three standard errors."""
        return abs(self.value - self.configured) <= max(3 * self.error, 0.1 * abs(self.configured))

    def __str__(self) -> str:
        """Return fitted and given value as text."""
        fitted = f"{self.value:.4g} +- {self.error:.1g} fitted"
        return f"{self.name} = {fitted}, {self.configured:.4g} given"


def used_constants(pde: PDE) -> list[str]:
    """Return the nonzero constants that occur in the equations.

    Example:
        >>> pde = PDE.parse("dif(u,t) - nu*dif(u,x,x)", fields=["u"], dims=["t", "x"],
        ...                 constants={"nu": 0.1, "unused": 2.0})
        >>> used_constants(pde)
        ['nu']
    """
    text = " ".join(pde.texts.values())
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    return [n for n, v in pde.names.constants.items() if n in words and v]


def with_constants(pde: PDE, values: Mapping[str, float]) -> PDE:
    """Return the equations with other values of constants."""
    return PDE.parse(
        pde.texts,
        fields=pde.names.fields,
        dims=pde.names.dims,
        constants={**pde.names.constants, **values},
    )


def fit(pde: PDE, evaluate: Evaluate, weights: Array) -> list[FittedConstant]:
    """Return the constants that minimise the residuals of all equations together.

    Args:
        pde: the equations with the given constants.
        evaluate: residuals on the data, in units of the terms at the given constants.
        weights: of the points, with the shape of the residuals.

    Returns:
        The constants; empty if there are none or the data do not determine them.
    """
    names = used_constants(pde)
    if not names:
        return []
    configured = {n: float(pde.names.constants[n]) for n in names}
    # Unknowns are factors of the given constants, so that constants of any unit are of order 1: f
    # <- f - (J^T W J)^-1 J^T W r.
    factors = np.ones(len(names))
    for _ in range(ROUNDS):
        normal, right = _normal_equations(pde, evaluate, weights, configured, factors)
        if not _determined(normal.sum(0)):
            return []
        step = np.linalg.solve(normal.sum(0), right.sum(0))
        factors = factors - step
        if np.abs(step).max() < 1e-6:
            break
    errors = _jackknife(normal, right)
    return [
        FittedConstant(n, float(configured[n] * f), float(abs(configured[n]) * e), configured[n])
        for n, f, e in zip(names, factors, errors, strict=True)
    ]


def _normal_equations(
    pde: PDE, evaluate: Evaluate, weights: Array, configured: Mapping[str, float], factors: Array
) -> tuple[Array, Array]:
    """Return J^T W J (block, n, n) and J^T W r (block, n) about the factors."""

    def at(values: Array) -> Mapping[str, Array]:
        constants = {n: configured[n] * f for n, f in zip(configured, values, strict=True)}
        return evaluate(with_constants(pde, constants))

    base = at(factors)
    slopes = []
    for i in range(len(factors)):
        moved = factors.copy()
        moved[i] += STEP
        other = at(moved)
        slopes.append({e: (other[e] - base[e]) / STEP for e in base})
    count, blocks = len(factors), _blocks(weights.shape)
    normal, right = np.zeros((len(blocks), count, count)), np.zeros((len(blocks), count))
    for number, block in enumerate(blocks):
        w = weights[block]
        for name, residual in base.items():
            columns = [np.broadcast_to(s[name], weights.shape)[block] for s in slopes]
            r = np.broadcast_to(residual, weights.shape)[block]
            for i, a in enumerate(columns):
                right[number, i] += float((w * a * r).sum())
                for j, b in enumerate(columns):
                    normal[number, i, j] += float((w * a * b).sum())
    return normal, right


def _blocks(shape: Sequence[int]) -> list[tuple[slice, ...]]:
    """Return slices into blocks along the longest dim."""
    axis = int(np.argmax(shape))
    edges = np.unique(np.linspace(0, shape[axis], BLOCKS + 1).astype(int))
    before = (slice(None),) * axis
    return [(*before, slice(a, b)) for a, b in itertools.pairwise(edges)]


def _determined(normal: Array) -> bool:
    size = np.sqrt(np.diag(normal))
    if not (size > 0).all():
        return False
    # Scaled to a unit diagonal, the smallest eigenvalue does not depend on units; near 0 some
    # combination of constants changes no residual.
    correlation = normal / np.outer(size, size)
    return bool(np.linalg.eigvalsh(correlation)[0] > _UNDETERMINED)


def _jackknife(normal: Array, right: Array) -> Array:
    """Return the delete-one jackknife errors of the factors."""
    whole, vector, count = normal.sum(0), right.sum(0), len(normal)
    if count < 2:
        return np.full(len(vector), np.inf)
    if not all(_determined(whole - n) for n in normal):
        return np.full(len(vector), np.inf)
    # The estimates without one block each; their variance times n - 1 is that of the whole
    # estimate.
    left_out = np.stack(
        [np.linalg.solve(whole - n, vector - r) for n, r in zip(normal, right, strict=True)]
    )
    return np.sqrt((count - 1) * left_out.var(0))
