"""Embedding of configurations in a vector space, in which the Gaussian process has its distances.

Letters: M configurations, V variables of the space, F features. A row has one number per
variable: the position in 0 ... 1 of an ordered variable (reals, integers, lists of numbers), the
code of a category, NaN for an inactive variable.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scitoolkit.search.parameters import Categorical, Chain, Real, Stepped, Variable
from scitoolkit.search.space import Codes, Space

Array = NDArray[np.float64]
# Code of an inactive category, which no category has: equal to itself, different from all others.
_OFF = -1.0


class VariableAxis(ABC):
    """Conversion of one variable between uniform numbers, row entries and codes."""

    ordered = True
    step: float = 0.0
    """Perturbation size that reaches neighbouring levels, 0 for reals."""

    @abstractmethod
    def lift(self, uniform: Array) -> Array:
        """Return the entries nearest to numbers in 0 ... 1; entries are mapped to themselves."""

    @abstractmethod
    def code(self, entry: float) -> Any:
        """Return the code of an entry."""

    @abstractmethod
    def entry(self, code: Any) -> float:
        """Return the entry of a code."""


class RealAxis(VariableAxis):
    """Real variable by its position between the bounds, in the logarithm if `log`."""

    def __init__(self, kind: Real) -> None:
        self.kind = kind

    def lift(self, uniform: Array) -> Array:
        """Return the numbers, clipped to 0 ... 1."""
        return np.clip(uniform, 0.0, 1.0)

    def code(self, entry: float) -> float:
        """Return the value."""
        return self.kind.from_unit(float(entry))

    def entry(self, code: float) -> float:
        """Return the position of a value."""
        return self.kind.unit(code)


class SteppedAxis(VariableAxis):
    """Integer or grid variable; levels have equal shares of 0 ... 1, in the logarithm if `log`."""

    def __init__(self, kind: Stepped) -> None:
        self.kind = kind
        low, high = kind.low - kind.step / 2, kind.low + (kind.levels - 0.5) * kind.step
        # Half a step below the lowest level may be 0 or less, where the logarithm is undefined.
        low = max(low, kind.low / 2) if kind.log else low
        self.low, self.high = (math.log(low), math.log(high)) if kind.log else (low, high)
        self.step: float = min(1.0, 1.5 / max(1, kind.levels - 1))

    def lift(self, uniform: Array) -> Array:
        """Return the centres of the levels that contain the numbers."""
        value = self.low + np.clip(uniform, 0.0, 1.0) * (self.high - self.low)
        value = np.exp(value) if self.kind.log else value
        return self._place(self._count(value) * self.kind.step + self.kind.low)

    def code(self, entry: float) -> int:
        """Return the level."""
        value = self.low + float(entry) * (self.high - self.low)
        return int(self._count(np.array(math.exp(value) if self.kind.log else value)))

    def entry(self, code: int) -> float:
        """Return the centre of a level."""
        return float(self._place(np.array(self.kind.value(code), dtype=np.float64)))

    def _count(self, value: Array) -> Array:
        return np.clip(np.round((value - self.kind.low) / self.kind.step), 0, self.kind.levels - 1)

    def _place(self, value: Array) -> Array:
        value = np.log(value) if self.kind.log else value
        return (value - self.low) / (self.high - self.low)


class RankAxis(VariableAxis):
    """List of numbers by their ranks."""

    def __init__(self, kind: Categorical) -> None:
        self.order: list[int] = sorted(range(kind.levels), key=lambda code: kind.values[code])
        self.rank: dict[int, int] = {code: rank for rank, code in enumerate(self.order)}
        self.step: float = min(1.0, 1.5 / max(1, kind.levels - 1))

    def lift(self, uniform: Array) -> Array:
        """Return the centres of the ranks that contain the numbers."""
        count = len(self.order)
        return (np.clip(np.floor(uniform * count), 0, count - 1) + 0.5) / count

    def code(self, entry: float) -> int:
        """Return the code of a rank."""
        return self.order[int(entry * len(self.order))]

    def entry(self, code: int) -> float:
        """Return the centre of a code's rank."""
        return (self.rank[int(code)] + 0.5) / len(self.order)


class CategoryAxis(VariableAxis):
    """Unordered values by their codes."""

    ordered = False

    def __init__(self, kind: Categorical) -> None:
        self.count: int = kind.levels

    def lift(self, uniform: Array) -> Array:
        """Return categories from numbers in 0 ... 1."""
        return np.clip(np.floor(uniform * self.count), 0, self.count - 1)

    def code(self, entry: float) -> int:
        """Return the code."""
        return int(entry)

    def entry(self, code: int) -> float:
        """Return the code as a number."""
        return float(code)


class Embedding:
    """Conversion of a space's configurations to rows and features.

    The feature of a conditional ordered variable is 0 if it is inactive and `entry - 1/2` if it
    is active, and a category indicates which of the two applies. Distances remain Euclidean, so
    that every stationary kernel remains positive definite. A chain adds the means of its nodes and
    of its skips as features.

    Source:
        conditional parameters: adapted from arXiv:1409.4011.

    Example:
        >>> from scitoolkit.search import choice, real
        >>> space = Space({"head": ["a", "b"], "rate": real(0, 4, when={"head": ["b"]})})
        >>> embedding = Embedding(space)
        >>> embedding.features(embedding.rows([(0, None), (1, 3.0)])).tolist()
        [[0.0, 0.0, 0.0], [1.0, 0.25, 1.0]]
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        kinds = list(space.variables.values())
        self.axes: list[VariableAxis] = [axis_of(kind) for kind in kinds]
        self.ordered: np.ndarray = np.array([axis.ordered for axis in self.axes])
        self.real: np.ndarray = np.array([isinstance(kind, Real) for kind in kinds])
        self.steps: np.ndarray = np.array([axis.step for axis in self.axes])
        self.free: np.ndarray = np.array([kind.levels > 1 for kind in kinds])
        self.conditional: np.ndarray = np.array([bool(c) for c in space.conditions])
        self._indicators = self._distinct_conditions()
        self._chains = list(self._chain_parts())
        self.columns: np.ndarray = np.flatnonzero(self.free)
        extra = len(self._indicators), len(self._chains)
        self.category: np.ndarray = np.concatenate(
            [~self.ordered[self.columns], np.full(extra[0], True), np.full(extra[1], False)]
        )
        """(F,) True for features that are compared for equality instead of by distance."""

    def rows(self, codes: Sequence[Codes]) -> Array:
        """Return the rows (M, V) of configurations."""
        return np.array(
            [
                [np.nan if c is None else a.entry(c) for a, c in zip(self.axes, one, strict=True)]
                for one in codes
            ]
        ).reshape(len(codes), len(self.axes))

    def codes(self, row: Array) -> Codes:
        """Return the codes of one row."""
        return tuple(
            None if math.isnan(entry) else axis.code(entry)
            for axis, entry in zip(self.axes, row.tolist(), strict=True)
        )

    def lift(self, uniform: Array) -> Array:
        """Return the rows nearest to points (M, V) of the unit cube."""
        out = np.stack([a.lift(u) for a, u in zip(self.axes, uniform.T, strict=True)], axis=1)
        return self.switch(out, uniform)

    def switch(self, rows: Array, uniform: Array) -> Array:
        """Apply the conditions to rows (M, V); newly active entries are taken from `uniform`."""
        if not self.conditional.any():
            return rows
        out = rows.copy()
        # Parents first: a variable is active only if those that it depends on are.
        for i in self.space.order:
            if self.conditional[i]:
                new = self.axes[i].lift(uniform[:, i])
                entries = np.where(np.isnan(out[:, i]), new, out[:, i])
                out[:, i] = np.where(self.active(i, out), entries, np.nan)
        return out

    def active(self, i: int, rows: Array) -> NDArray[np.bool_]:
        """Return (M,) whether the conditions of variable `i` are met."""
        met = np.full(len(rows), True)
        for j, allowed in self.space.conditions[i]:
            wanted = [self.axes[j].entry(code) for code in allowed]
            # Entries are positions computed in float64; equal codes may differ in the last bits.
            met &= np.isclose(rows[:, j][:, None], wanted, rtol=0, atol=1e-9).any(axis=1)
        return met

    def features(self, rows: Array) -> Array:
        """Return the features (M, F) of rows (M, V)."""
        off = np.isnan(rows)
        # Inactive variables have the feature 0, the middle of the centred active ones.
        centred = np.where(self.conditional & self.ordered, rows - 0.5, rows)
        filled = np.where(off, np.where(self.ordered, 0.0, _OFF), centred)
        parts = [filled[:, self.columns]]
        parts += [(~off[:, [i]]).astype(np.float64) for i in self._indicators]
        parts += [
            np.where(off[:, at], 0.0, rows[:, at]).mean(1, keepdims=True) / scale
            for at, scale in self._chains
        ]
        return np.concatenate(parts, axis=1)

    def _distinct_conditions(self) -> list[int]:
        """Return one ordered conditional variable (its index) per distinct condition."""
        indicators: dict[Any, int] = {}
        for i, condition in enumerate(self.space.conditions):
            if condition and self.free[i] and self.ordered[i]:
                indicators.setdefault(frozenset(condition), i)
        return list(indicators.values())

    def _chain_parts(self) -> list[tuple[list[int], float]]:
        names = list(self.space.variables)
        out = []
        for name, parameter in self.space.parameters.items():
            if not isinstance(parameter, Chain):
                continue
            at = [names.index(part) for part in parameter.parts(name)]
            nodes, skips = at[: parameter.nodes], at[parameter.nodes :]
            if len(nodes) > 1 and self.ordered[nodes[0]]:
                out.append((nodes, 1.0))
            if len(skips) > 1:
                out.append((skips, 1.0))
        return out


def axis_of(kind: Variable) -> VariableAxis:
    """Return the axis of a variable."""
    if isinstance(kind, Real):
        return RealAxis(kind)
    if isinstance(kind, Stepped):
        return SteppedAxis(kind)
    numbers = all(type(value) in (int, float) for value in kind.values)
    return RankAxis(kind) if numbers and kind.levels > 2 else CategoryAxis(kind)
