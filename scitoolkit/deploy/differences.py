"""Error of a compression: compiled and float32 outputs on held-out inputs, and a bound.

The bound is split-conformal (Vovk et al. 2005; Lei et al. 2018, doi:10.1080/01621459.2017.1307116):
of n held-out samples, the k-th smallest of their largest changes with k = ceil((n + 1) LEVEL) is
not exceeded by a further sample with probability LEVEL, if samples are exchangeable. Of inputs far
from those it tells nothing, so that these are outside the box of a compressed surrogate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy.agreement import of_module
from scitoolkit.deploy.library import Call

LEVEL = 0.9
"""Probability that a further sample's largest change is within the bound."""
MARGIN = 0.25
"""Width of the box beyond the measured inputs, relative to their range."""
POOLED = 64
"""Least number of values for a range of an index of a dim, so that a further sample is in the box.
"""


@dataclass(frozen=True)
class OutputDifference:
    """|compressed - as trained| of one output over held-out samples, in the output's units.

    Attributes:
        output: name of the output, prefixed with that of a named function.
        units: of all figures.
        samples: held-out samples.
        maximum: over samples and elements.
        quantile999: .999 quantile over samples and elements.
        bound: split-conformal bound on a sample's largest change; None for too few samples.
        level: of the bound.
        range: largest minus least float32 output over the samples.
        source: where the samples are from.
    """

    output: str
    units: str
    samples: int
    maximum: float
    quantile999: float
    bound: float | None
    level: float
    range: float
    source: str

    @property
    def relative(self) -> float:
        """Return the maximum over the range of the output."""
        return self.maximum / max(self.range, 1e-30)

    def line(self) -> str:
        """Return the differences as a line of text."""
        bound = (
            f"no bound from {self.samples} samples"
            if self.bound is None
            else f"{self.level:.0%} of samples within {self.bound:.3g}"
        )
        return (
            f"{self.output}: changed by at most {self.maximum:.3g} {self.units}".rstrip()
            + f" ({self.relative:.2%} of its range), .999 quantile {self.quantile999:.3g}, "
            f"{bound}; {self.samples} samples, {self.source}"
        )

    def entry(self) -> dict[str, Any]:
        """Return all attributes as JSON types."""
        return {**asdict(self), "relative": self.relative, "text": self.line()}


def conformal_bound(scores: np.ndarray, level: float = LEVEL) -> float | None:
    """Return the split-conformal bound of exchangeable scores; None for too few scores.

    Example:
        >>> conformal_bound(np.arange(1.0, 20.0)), conformal_bound(np.arange(5.0))
        (18.0, None)
    """
    place = math.ceil((len(scores) + 1) * level)
    return float(np.sort(scores)[place - 1]) if place <= len(scores) else None


def differences(
    functions: Sequence[TracedFunction], call: Call, inputs: Sequence[Any]
) -> list[OutputDifference]:
    """Return the differences of all outputs of a compressed surrogate from float32 modules.

    Args:
        functions: float32 functions.
        call: calls the compressed surrogate: inputs and name of a function to outputs and statuses.
        inputs: arrays of each function, and their origin.
    """
    out = []
    for function, (arrays, source) in zip(functions, inputs, strict=True):
        results, _ = call(arrays, function.name)
        samples = len(results[0])
        wanted = of_module(function, arrays, together=False)
        for spec, own, dense in zip(function.outputs, results, wanted, strict=True):
            change = _change(own, dense).reshape(samples, -1)
            name = f"{function.name}.{spec.name}" if function.name else spec.name
            out.append(
                OutputDifference(
                    name,
                    spec.units,
                    samples,
                    float(change.max()),
                    float(np.quantile(change, 0.999)),
                    conformal_bound(change.max(1)),
                    LEVEL,
                    float(np.ptp(dense[np.isfinite(dense)])) if np.isfinite(dense).any() else 0.0,
                    source,
                )
            )
    return out


def in_measured_box(
    function: TracedFunction, inputs: Sequence[Sequence[np.ndarray]]
) -> TracedFunction:
    """Return a function whose box is that of the inputs with which its error was measured.

    The range of an element is that of its index in every dim, over all samples and other dims, and
    `MARGIN`, inside the box of the function.

    Args:
        function: before its compression.
        inputs: sets of inputs.
    """
    boxed = []
    for spec, *arrays in zip(function.inputs, *inputs, strict=True):
        x = np.concatenate([np.reshape(a, (-1, *spec.shape)) for a in arrays]).astype(np.float64)
        limits = []
        for sign in (-1, 1):
            values = np.where(np.isfinite(x), sign * x, -np.inf)
            limit = np.full(spec.shape, values.max(initial=-np.inf))
            for dim in range(1, x.ndim):
                if values.size >= POOLED * x.shape[dim]:
                    others = tuple(d for d in range(x.ndim) if d != dim)
                    limit = np.minimum(limit, values.max(others, keepdims=True)[0])
            limits.append(sign * limit)
        low, high = limits
        width = np.where(high > low, high - low, 0.0)
        if width.size and width.min() >= MARGIN * (high.max() - low.min()):  # one range is enough
            low, high, width = low.min(), high.max(), width.max()
        low, high = (
            np.clip(
                limit,
                -np.inf if spec.low is None else spec.low,
                np.inf if spec.high is None else spec.high,
            )
            for limit in (low - MARGIN * width, high + MARGIN * width)
        )
        boxed.append(replace(spec, low=np.minimum(low, high), high=high))
    return replace(function, inputs=boxed)


def _change(own: np.ndarray, dense: np.ndarray) -> np.ndarray:
    """Return |own - dense|: 0 where both are no finite number, infinite where one is none."""
    with np.errstate(invalid="ignore"):
        change = np.abs(own.astype(np.float64) - dense)
    wrong = ~np.isfinite(own)
    return np.where(wrong != ~np.isfinite(dense), np.inf, np.where(wrong, 0.0, change))
