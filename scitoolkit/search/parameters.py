"""Parameter types of a search space: choices, integers, grids, reals and chains of nodes."""

from __future__ import annotations

import json
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scitoolkit.search.json_values import is_finite, is_listed, not_json, same_value

When = Mapping[str, Sequence[Any]]
Code = int | float
_TOLERANCE = 1e-6
SPREAD = 0.2
"""Standard deviation of a prior, as a share of the range."""


@dataclass(frozen=True)
class Categorical:
    """Categorical parameter: one of several values of any JSON type.

    Args:
        values: the categories.
        when: condition, as the values of other parameters for which this parameter is active.
        prior: value that is expected to be the best one, None for none.
    """

    values: tuple[Any, ...]
    when: When = field(default_factory=dict)
    prior: Any = None

    @property
    def levels(self) -> int:
        """Number of values."""
        return len(self.values)

    def problem(self) -> str:
        """Return the first error of the definition, "" if it is valid."""
        if not self.values:
            return "no values"
        try:
            json.dumps(self.values, allow_nan=False)
        except (TypeError, ValueError):
            return (
                "values must be finite numbers, strings, true, false, null, or lists and mappings "
                f"of them; {not_json(self.values)}"
            )
        repeated = [v for i, v in enumerate(self.values) if is_listed(v, self.values[:i])]
        return f"value {repeated[0]!r} is listed twice" if repeated else _prior_problem(self)

    def value(self, code: Code) -> Any:
        """Return the value with a code."""
        return self.values[int(code)]

    def code(self, value: Any) -> Code:
        """Return the code of a value.

        Raises:
            ValueError: the value is outside the parameter's range.
        """
        for index, candidate in enumerate(self.values):
            if same_value(candidate, value):
                return index
        raise ValueError(f"{value!r} is none of {', '.join(map(repr, self.values))}")

    def sample(self, rng: random.Random) -> Code:
        """Draw a code uniformly; every other one is that of the prior."""
        if self.prior is not None and rng.random() < 0.5:
            return self.code(self.prior)
        return rng.randrange(len(self.values))

    def mutate(self, code: Code, rng: random.Random) -> Code:
        """Draw a code other than `code`, uniformly."""
        # Of one level fewer; those from `code` on are shifted by one, so that `code` is left out.
        other = rng.randrange(len(self.values) - 1)
        return other + (other >= code)

    def describe(self) -> dict[str, Any]:
        """Return the plain data from which `read_parameter` rebuilds this parameter."""
        prior = {} if self.prior is None else {"prior": self.prior}
        return _with_when({"values": list(self.values), **prior}, self.when)


class Stepped(ABC):
    """Ordered numbers `low + code * step`; mutations prefer nearby values."""

    low: float
    high: float
    step: float
    log: bool
    when: When
    prior: float | None
    spread: float

    @property
    @abstractmethod
    def levels(self) -> int:
        """Number of values."""

    @abstractmethod
    def value(self, code: Code) -> float:
        """Return the value with a code."""

    @abstractmethod
    def code(self, value: Any) -> Code:
        """Return the code of a value."""

    def problem(self) -> str:
        """Return the first error of the definition, "" if it is valid."""
        numbers = {"low": self.low, "high": self.high, "step": self.step}
        if wrong := _not_finite(numbers):
            return wrong
        if self.step <= 0:
            return f"step {self.step} is not positive"
        if self.low < self.high < self.low + self.step:
            return f"step {self.step} is larger than the range {self.low} ... {self.high}"
        return _range_problem(self.low, self.high, self.log) or _prior_problem(self)

    def unit(self, value: float) -> float:
        """Return a value's position between the bounds, 0 ... 1, in the logarithm if `log`."""
        return _unit(value, self.low, self.high, self.log)

    def sample(self, rng: random.Random) -> Code:
        """Draw a code, uniformly in the value, or in its logarithm if `log`, or near the prior."""
        if self.prior is not None:
            value = _from_unit(_drawn(self.unit(self.prior), self.spread, rng), self)
            return min(max(round((value - self.low) / self.step), 0), self.levels - 1)
        if not self.log:
            return rng.randrange(self.levels)
        # Each level stands for the interval up to the next one, and the highest needs its own.
        value = math.exp(rng.uniform(math.log(self.low), math.log(self.high + self.step)))
        return min(int((value - self.low) / self.step), self.levels - 1)

    def mutate(self, code: Code, rng: random.Random) -> Code:
        """Draw another code from a discretised normal distribution around `code`."""
        return _near(int(code), self.levels, rng)

    def describe(self) -> dict[str, Any]:
        """Return the plain data from which `read_parameter` rebuilds this parameter."""
        plain = {"low": self.low, "high": self.high, "step": self.step, "log": self.log}
        return _with_when({**plain, **_described_prior(self)}, self.when)


@dataclass(frozen=True)
class Integer(Stepped):
    """Integer parameter from `low` to `high`, both inclusive, in multiples of `step`."""

    low: int
    high: int
    step: int = 1
    log: bool = False
    when: When = field(default_factory=dict)
    prior: float | None = None
    spread: float = SPREAD

    @property
    def levels(self) -> int:
        """Number of values."""
        return (self.high - self.low) // self.step + 1

    def problem(self) -> str:
        """Return the first error of the definition, "" if it is valid."""
        numbers = {"low": self.low, "high": self.high, "step": self.step}
        for name, number in numbers.items():
            if not isinstance(number, int) or isinstance(number, bool):
                return f"{name} {number!r} is not an integer"
        return super().problem()

    def value(self, code: Code) -> int:
        """Return the value with a code."""
        return self.low + int(code) * self.step

    def code(self, value: Any) -> Code:
        """Return the code of a value.

        Raises:
            ValueError: the value is outside the parameter's range.
        """
        whole, rest = divmod(value - self.low, self.step)
        if rest or not 0 <= whole < self.levels or isinstance(value, bool):
            raise ValueError(f"{value!r} is not in {self.low} ... {self.high} by {self.step}")
        return int(whole)


@dataclass(frozen=True)
class SteppedReal(Stepped):
    """Real parameter from `low` to `high` on an equidistant grid."""

    low: float
    high: float
    step: float
    log: bool = False
    when: When = field(default_factory=dict)
    prior: float | None = None
    spread: float = SPREAD

    @property
    def levels(self) -> int:
        """Number of values."""
        # In float64, 0.3 / 0.1 is below 3: without the tolerance the last level would be lost.
        return int((self.high - self.low) / self.step + _TOLERANCE) + 1

    def value(self, code: Code) -> float:
        """Return the value with a code."""
        # The product may exceed `high` by its last bit.
        return min(self.low + int(code) * self.step, self.high)

    def code(self, value: Any) -> Code:
        """Return the code of a value, with a tolerance of 1e-6 steps.

        Raises:
            ValueError: the value is not on the grid.
        """
        steps = (value - self.low) / self.step
        off = abs(steps - round(steps)) > _TOLERANCE
        if off or not 0 <= round(steps) < self.levels or isinstance(value, bool):
            raise ValueError(f"{value!r} is not in {self.low} ... {self.high} by {self.step}")
        return round(steps)


@dataclass(frozen=True)
class Real:
    """Real parameter from `low` to `high` in double precision; its code is the value itself."""

    low: float
    high: float
    log: bool = False
    when: When = field(default_factory=dict)
    prior: float | None = None
    spread: float = SPREAD

    levels: float = math.inf

    def problem(self) -> str:
        """Return the first error of the definition, "" if it is valid."""
        numbers = {"low": self.low, "high": self.high}
        wrong = _not_finite(numbers) or _range_problem(self.low, self.high, self.log)
        return wrong or _prior_problem(self)

    def value(self, code: Code) -> float:
        """Return the code, which is the value."""
        return float(code)

    def code(self, value: Any) -> Code:
        """Return the code of a value.

        Raises:
            ValueError: the value is outside the parameter's range.
        """
        if isinstance(value, bool) or not self.low <= value <= self.high:
            raise ValueError(f"{value!r} is not in {self.low} ... {self.high}")
        return float(value)

    def unit(self, value: float) -> float:
        """Return a value's position between the bounds, 0 ... 1, in the logarithm if `log`."""
        return _unit(value, self.low, self.high, self.log)

    def from_unit(self, share: float) -> float:
        """Return the value at a position in 0 ... 1 between the bounds; the inverse of `unit`."""
        return _from_unit(share, self)

    def sample(self, rng: random.Random) -> Code:
        """Draw a value, uniformly, or uniformly in its logarithm if `log`, or near the prior."""
        if self.prior is None:
            return self.from_unit(rng.random())
        return self.from_unit(_drawn(self.unit(self.prior), self.spread, rng))

    def mutate(self, code: Code, rng: random.Random) -> Code:
        """Draw another value from a normal distribution around `code` in `unit` coordinates."""
        start = self.unit(float(code))
        for _ in range(100):
            moved = start + rng.gauss(0.0, 0.15)
            # A step beyond a bound becomes a new sample: clipped steps would accumulate at the
            # bounds.
            new = self.from_unit(moved) if 0 <= moved <= 1 else self.sample(rng)
            if new != code:
                return new
        return code

    def describe(self) -> dict[str, Any]:
        """Return the plain data from which `read_parameter` rebuilds this parameter."""
        plain = {"low": self.low, "high": self.high, "log": self.log}
        return _with_when({**plain, **_described_prior(self)}, self.when)


@dataclass(frozen=True)
class Chain:
    """Architecture parameter: a sequence of nodes with optional skip connections.

    Node i reads the output of node i - 1; output 0 is the input. A skip [a, b] adds output a to
    output b, where b - reach <= a < b. The value is
    `{"nodes": [...], "skips": [[a, b], ...]}`.

    Args:
        nodes: number of nodes.
        choices: values that each node can take.
        reach: largest distance b - a of a skip; 0 means no skips.
        when: condition; see `Categorical`.

    Source:
        Maulik et al. 2020 (SC20, arXiv:2004.10928): 5 nodes, 7 operations, 9 skips.

    Example:
        >>> Chain(5, (0, 16, 32, 48, 64, 80, 96), reach=2).skips()
        [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4), (3, 5), (4, 5)]
    """

    nodes: int
    choices: tuple[Any, ...]
    reach: int = 0
    when: When = field(default_factory=dict)

    def problem(self) -> str:
        """Return the first error of the definition, "" if it is valid."""
        if self.nodes < 1:
            return f"{self.nodes} nodes, less than 1"
        if self.reach < 0:
            return f"reach {self.reach} is negative"
        return Categorical(self.choices).problem()

    def skips(self) -> list[tuple[int, int]]:
        """Return all possible skips (start, end)."""
        # The order is part of the codes in logs: another one would resume them with other skips.
        ends = range(1, self.nodes + 1)
        return [(start, end) for end in ends for start in range(max(0, end - self.reach), end)]

    def parts(self, name: str) -> dict[str, Categorical]:
        """Return the independent categorical variables of the chain, by name."""
        out = {
            f"{name}.node{i}": Categorical(self.choices, self.when)
            for i in range(1, self.nodes + 1)
        }
        for start, end in self.skips():
            out[f"{name}.skip{start}-{end}"] = Categorical((False, True), self.when)
        return out

    def assemble(self, parts: Sequence[Any]) -> dict[str, Any]:
        """Return the chain's value from the values of `parts`, in their order."""
        on = zip(self.skips(), parts[self.nodes :], strict=True)
        return {"nodes": list(parts[: self.nodes]), "skips": [list(s) for s, used in on if used]}

    def take_apart(self, value: Any) -> list[Any]:
        """Return the values of `parts` from the chain's value; the inverse of `assemble`.

        Raises:
            ValueError: another structure, number of nodes, or an impossible skip.
        """
        if not isinstance(value, Mapping) or not {"nodes", "skips"} >= value.keys() >= {"nodes"}:
            raise ValueError(f"{value!r} is not {{nodes: [...], skips: [...]}}")
        nodes, on = list(value["nodes"]), {tuple(s) for s in value.get("skips", ())}
        if len(nodes) != self.nodes:
            raise ValueError(f"{len(nodes)} nodes, not {self.nodes}")
        if unknown := on - set(self.skips()):
            raise ValueError(f"skip {sorted(unknown)[0]} is not possible with reach {self.reach}")
        return [*nodes, *(skip in on for skip in self.skips())]

    def describe(self) -> dict[str, Any]:
        """Return the plain data from which `read_parameter` rebuilds this parameter."""
        plain = {"nodes": self.nodes, "choices": list(self.choices), "reach": self.reach}
        return _with_when(plain, self.when)


Parameter = Categorical | Integer | SteppedReal | Real | Chain
Variable = Categorical | Integer | SteppedReal | Real


def _with_when(plain: dict[str, Any], when: When) -> dict[str, Any]:
    return {**plain, "when": {k: list(v) for k, v in when.items()}} if when else plain


def _described_prior(kind: Stepped | Real) -> dict[str, Any]:
    return {} if kind.prior is None else {"prior": kind.prior, "spread": kind.spread}


def _prior_problem(kind: Categorical | Stepped | Real) -> str:
    """Return what is wrong with the prior of a parameter, "" if nothing is."""
    if kind.prior is None:
        return ""
    try:
        kind.code(kind.prior)
    except (TypeError, ValueError) as error:
        return f"prior {error}"
    if not isinstance(kind, Categorical) and not 0 < kind.spread < math.inf:
        return f"spread {kind.spread} is not a positive number"
    return ""


def _drawn(centre: float, spread: float, rng: random.Random) -> float:
    """Draw a number in 0 ... 1, three times of four from a normal distribution."""
    # A quarter stays uniform: a wrong prior must not exclude the rest of the range.
    for _ in range(100 if rng.random() < 0.75 else 0):
        if 0 <= (drawn := rng.gauss(centre, spread)) <= 1:
            return drawn
    return rng.random()


def _from_unit(share: float, kind: Stepped | Real) -> float:
    """Return the value at a position in 0 ... 1 between the bounds."""
    if not kind.log:
        value = kind.low + share * (kind.high - kind.low)
    else:
        low, high = math.log(kind.low), math.log(kind.high)
        value = math.exp(low + share * (high - low))
    # exp(log(low)) may round to below `low`, which `code` would refuse.
    return min(max(value, kind.low), kind.high)


def _unit(value: float, low: float, high: float, log: bool) -> float:
    if log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return (value - low) / (high - low)


def _not_finite(numbers: Mapping[str, Any]) -> str:
    for name, number in numbers.items():
        if not isinstance(number, int | float) or not is_finite(number):
            return f"{name} {number!r} is not a finite number"
    return ""


def _range_problem(low: float, high: float, log: bool) -> str:
    if not low < high:
        return f"low {low} is not below high {high}"
    if not math.isfinite(high - low):
        return f"the width of {low} ... {high} overflows double precision"
    return f"a logarithmic range requires low > 0, got {low}" if log and low <= 0 else ""


def _near(code: int, levels: int, rng: random.Random) -> int:
    """Draw another level; the standard deviation is 15 % of all levels, at least one level."""
    for _ in range(100):
        moved = code + round(rng.gauss(0.0, max(1.0, 0.15 * levels)))
        if moved != code and 0 <= moved < levels:
            return moved
    other = rng.randrange(levels - 1)
    return other + (other >= code)
