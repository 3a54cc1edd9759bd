"""How what a benchmark measured for scitoolkit is compared with what it measured for others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

LOSS = 0.01  # a rival is better when it is by more than this share, or 0.1 dB, or 0.1 points


@dataclass(frozen=True)
class Kind:
    """How two measurements are compared: a factor or a difference, and its words."""

    gain: Callable[[float, float], float]  # of (ours, rival's), larger is better
    better: str
    worse: str
    factor: bool = True
    pool: str = ""  # kinds of one pool share a headline; empty: only comparisons of this kind

    def text(self, gain: float) -> str:
        if not self.factor:
            return f"{gain:+.1f} {self.better}"
        if gain >= 1:
            return f"{_short(gain)} x {self.better}"
        return f"{_short(_inverse(gain))} x {self.worse}"

    def range(self, low: float, high: float) -> str:
        """Return the words for gains from `low` to `high`."""
        if self.factor and (low >= 1) != (high >= 1):
            return f"{self.text(low)} to {self.text(high)}"
        if self.factor and low >= 1:
            ends = [_short(low), _short(high)]
        elif self.factor:
            ends = [_short(_inverse(high)), _short(_inverse(low))]
        else:
            ends = [f"{low:+.1f}", f"{high:+.1f}"]
        words = self.better if low >= 1 or not self.factor else self.worse
        unit = " x " if self.factor else " "
        return f"{ends[0] if ends[0] == ends[1] else ' to '.join(ends)}{unit}{words}"

    def lost(self, gain: float) -> bool:
        return not gain >= (1 - LOSS if self.factor else -10 * LOSS)


def _short(factor: float) -> str:
    return f"{factor:.1f}" if factor < 9.95 else f"{factor:,.0f}"


def _inverse(gain: float) -> float:
    return 1 / gain if gain else math.inf


def _smaller(ours: float, rival: float) -> float:
    return rival / ours if ours else math.inf


TIME = Kind(_smaller, "faster", "slower", pool="speed")
RATE = Kind(lambda ours, rival: ours / rival, "faster", "slower", pool="speed")
ERROR = Kind(_smaller, "smaller error", "larger error")
SQUARED = Kind(lambda ours, rival: _smaller(1 - ours, 1 - rival), "smaller error", "larger error")
MEMORY = Kind(lambda ours, rival: ours / rival, "less memory", "more memory")
IDLE = Kind(lambda ours, rival: _smaller(1 - ours, 1 - rival), "less idle", "more idle")
COST = Kind(
    _smaller, "faster", "slower", pool="cost"
)  # of a variant of ours: not part of a headline
SIZE = Kind(_smaller, "smaller", "larger")
PSNR = Kind(lambda ours, rival: ours - rival, "dB PSNR", "dB PSNR", factor=False)
POINTS = Kind(lambda ours, rival: 100 * (rival - ours), "points", "points", factor=False)


@dataclass(frozen=True)
class Case:
    """One measurement of scitoolkit, and those of all rivals of the same case."""

    name: str
    ours: float
    rivals: Mapping[str, float]

    def strongest(self, kind: Kind) -> tuple[str, float]:
        """Return the rival with the smallest gain over it, and that gain."""
        gains = {name: kind.gain(self.ours, value) for name, value in self.rivals.items()}
        name = min(gains, key=lambda rival: gains[rival])
        return name, gains[name]


_Read = tuple[str, dict[str, str], float]  # path, groups of its expression, value


@dataclass(frozen=True)
class Comparison:
    """A quantity of one benchmark; `ours` and `rivals` are expressions over paths."""

    benchmark: str
    quantity: str
    kind: Kind
    value: str  # format of one measurement, with its unit
    ours: str
    rivals: tuple[str, ...] = ()
    constant: Mapping[str, float] = field(default_factory=dict)  # rivals by definition
    sign: float = 1.0
    names: Mapping[str, str] = field(default_factory=dict)  # of rivals and cases

    def read(self, figures: Mapping[str, Any]) -> tuple[list[Case], set[str]]:
        """Return the cases of stored figures, and the paths that they hold.

        Raises:
            ValueError: a measurement is not finite, or there is no case, or one without a rival.
        """
        ours: list[_Read] = []
        rivals: list[_Read] = []
        wanted = [(self.ours, ours), *((expression, rivals) for expression in self.rivals)]
        for path, value in leaves(figures):
            for expression, members in wanted:
                match = re.fullmatch(expression, path)
                if match:
                    if not math.isfinite(value):
                        raise ValueError(f"{self.benchmark}: {path} is {value}")
                    groups = {k: v for k, v in match.groupdict().items() if v is not None}
                    members.append((path, groups, self.sign * value))
                    break
        cases = []
        for path, groups, value in ours:
            beaten = dict(self.constant)
            for _, other, rival in rivals:
                shared = {k: v for k, v in other.items() if k != "rival"}
                if shared.items() <= groups.items():
                    beaten[self._name(other.get("rival", "rival"))] = rival
            if not beaten:
                raise ValueError(f"{self.benchmark}: nothing was measured beside {path}")
            cases.append(Case(", ".join(map(self._name, groups.values())), value, beaten))
        if not cases:
            raise ValueError(f"{self.benchmark}: no figure of {self.quantity} ({self.ours})")
        return cases, {path for path, *_ in (*ours, *rivals)}

    def _name(self, group: str) -> str:
        return self.names.get(group, group).replace("_", " ").strip()


def leaves(figures: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield the path and value of every number of a stored file, flags left out."""
    if isinstance(figures, Mapping):
        for key, value in figures.items():
            yield from leaves(value, f"{path}/{key}" if path else str(key))
    elif isinstance(figures, list):
        for index, value in enumerate(figures):
            yield from leaves(value, f"{path}/{index}")
    elif isinstance(figures, (int, float)) and not isinstance(figures, bool):
        yield path, float(figures)
