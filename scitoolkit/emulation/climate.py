"""Climate statistics of long rollouts: means, spectra and integral quantities."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from scitoolkit.core.errors import NumericalError
from scitoolkit.emulation.config import QuantityConfig
from scitoolkit.emulation.metrics import spectrum
from scitoolkit.emulation.rollout import Frames

SPIN_UP = 0.1
"""Share of a long rollout that is excluded from its climate as the transient."""
DIVERGED = 1000.0
"""Widths of the range of the truth beyond which a rollout is ended."""


@dataclass
class Climate:
    """Statistics accumulated over the frames of one simulation or rollout.

    Attributes:
        fields: names of the variables on the grid.
        quantities: integral quantities that are averaged, too.
        weights: volumes of the cells, mean 1; 0 for cells without values.
        axis: the periodic dim of the spectra; None for no spectra.
        series: {quantity: its value in each frame}.
    """

    fields: Sequence[str]
    quantities: Mapping[str, QuantityConfig]
    weights: np.ndarray
    axis: int | None
    series: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _spectra: dict[str, np.ndarray] = field(default_factory=dict)
    _extremes: dict[str, tuple[float, float]] = field(default_factory=dict)
    frames: int = 0

    def add(self, frame: Frames, *, settled: bool = True) -> None:
        """Add a frame; spectra are averaged over settled frames only."""
        values = {n: np.asarray(frame[n], dtype=np.float64) for n in self.fields}
        for name in self.fields:
            low, high = self._extremes.get(name, (np.inf, -np.inf))
            here = values[name][self.weights > 0]
            self._extremes[name] = (min(low, here.min()), max(high, here.max()))
            self.series[f"mean_{name}"].append(float((values[name] * self.weights).mean()))
        for name, quantity in self.quantities.items():
            self.series[name].append(self._value(quantity, values))
        if not settled:
            return
        self.frames += 1
        if self.axis is not None:
            for name in self.fields:
                power = spectrum(values[name], self.axis, self.weights)
                self._spectra[name] = self._spectra.get(name, 0.0) + power

    def _value(self, quantity: QuantityConfig, values: Mapping[str, np.ndarray]) -> float:
        products = [np.prod([values[n] for n in term], axis=0) for term in quantity.terms]
        mean = float(sum((p * self.weights).mean() for p in products))
        return quantity.offset + quantity.scale * mean

    def mean(self, name: str) -> float:
        """Return the mean of a quantity over the settled frames."""
        return float(np.mean(self.series[name][-self.frames :])) if self.frames else float("nan")

    def spread(self, name: str) -> float:
        """Return the standard deviation of a quantity over the settled frames."""
        return float(np.std(self.series[name][-self.frames :])) if self.frames else float("nan")

    def ranges(self, margin: float = 0.5) -> dict[str, tuple[float, float]]:
        """Return {variable: (lowest, highest)}, widened at both ends by a share of the width."""
        return {
            n: (low - margin * (high - low), high + margin * (high - low))
            for n, (low, high) in self._extremes.items()
        }

    def power(self, name: str) -> np.ndarray:
        """Return the mean spectrum of a variable."""
        return self._spectra[name] / self.frames


@dataclass
class LongRollout:
    """A rollout beyond the end of the data.

    Attributes:
        climate: of the emulator.
        steps: number of steps requested.
        finite: number of steps that are finite and have not diverged.
        seconds: CPU seconds per step.
        left: {variable: first step outside the range of the truth}.
        diverged: step at which it was ended because a variable was `DIVERGED` times the
            width of that range beyond it; 0 if it did not.
    """

    climate: Climate
    steps: int
    finite: int
    seconds: float
    left: dict[str, int]
    diverged: int = 0

    @property
    def departures(self) -> str:
        """Variables outside the range of the truth, each with its first such step, as text."""
        return ", ".join(f"{name} at step {step}" for name, step in self.left.items())

    @property
    def survival(self) -> str:
        """How long the rollout was finite and within the range of the truth, as a sentence."""
        line = f"A rollout beyond the data is finite for {self.finite} of {self.steps} steps"
        leaves = "but leaves"
        if self.diverged:
            line = f"A rollout beyond the data diverged at step {self.diverged} of {self.steps}"
            leaves = "and was ended, after it left"
        if self.left:
            line += f", {leaves} the range of the truth, widened by half: {self.departures}"
        return line


def long_rollout(
    frames: Iterable[Frames],
    climate: Climate,
    steps: int,
    ranges: Mapping[str, tuple[float, float]],
) -> LongRollout:
    """Add the frames of a rollout to its climate, until one diverges or is not finite.

    A rollout that has diverged does not return, and its further steps can take longer than the
    training. Its climate has the frames before.

    Args:
        frames: of a rollout, which raises NumericalError if it is not finite.
        climate: an empty one.
        steps: number of frames requested.
        ranges: {variable: (lowest, highest)} of the truth.
    """
    left: dict[str, int] = {}
    finite, diverged, begin = 0, 0, time.process_time()
    try:
        for step, frame in enumerate(frames, start=1):
            for name, (low, high) in ranges.items():
                here = frame[name][climate.weights > 0]
                beyond = max(low - here.min(), here.max() - high)
                if beyond > DIVERGED * (high - low) > 0:
                    diverged = step
                # NaN fails this comparison, too.
                if name not in left and not (beyond <= 0):
                    left[name] = step
            if diverged:
                break
            climate.add(frame, settled=step > SPIN_UP * steps)
            finite = step
    except NumericalError:
        pass
    # CPU time: the share of a busy machine must not count as cost of the emulator.
    seconds = (time.process_time() - begin) / max(finite, 1)
    return LongRollout(climate, steps, finite, seconds, left, diverged)


def spectrum_factor(own: np.ndarray, truth: np.ndarray, share: float) -> float:
    """Return the largest ratio of two spectra over the waves that hold a share of the variance.

    Args:
        own: power at wave numbers 0, 1, ...
        truth: likewise.
        share: of the variance of the truth; compares the lowest wave numbers that hold it.

    Returns:
        The largest factor, in either direction.

    Example:
        >>> spectrum_factor(np.array([0, 2.0, 1.0]), np.array([0, 1.0, 1.0]), 0.9)
        2.0
    """
    # Without the mean, whose power is not variance and exceeds all others.
    power = np.cumsum(truth[1:])
    last = 1 + int(np.searchsorted(power, share * power[-1]))
    ratio = own[1 : last + 1] / np.maximum(truth[1 : last + 1], 1e-300)
    return float(np.maximum(ratio, 1 / np.maximum(ratio, 1e-300)).max())
