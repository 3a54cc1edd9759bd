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
from functools import partial
from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy.agreement import accepted_rows, of_module, rows_of
from scitoolkit.deploy.extremes import largest_changes
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
        extreme: largest change on extreme inputs inside the box, see `deploy.extremes`; infinite
            where one of both outputs is no finite number.
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
    extreme: float

    @property
    def relative(self) -> float:
        """Return the maximum over the range of the output."""
        return self.maximum / max(self.range, 1e-30)

    @property
    def worst(self) -> float:
        """Return the largest change, also on extreme inputs, over the range; a finite number."""
        worst = max(self.maximum, self.extreme) / max(self.range, 1e-30)
        return min(worst, float(np.finfo(np.float64).max))

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
            f"{bound}; {self.samples} samples, {self.source}; by at most {self.extreme:.3g} on "
            "extreme inputs inside the box"
        )

    def entry(self) -> dict[str, Any]:
        """Return all attributes as JSON types."""
        own = {"relative": self.relative, "worst": self.worst, "text": self.line()}
        return {**asdict(self), **own}


def conformal_bound(scores: np.ndarray, level: float = LEVEL) -> float | None:
    """Return the split-conformal bound of exchangeable scores; None for too few scores.

    Example:
        >>> conformal_bound(np.arange(1.0, 20.0)), conformal_bound(np.arange(5.0))
        (18.0, None)
    """
    place = math.ceil((len(scores) + 1) * level)
    return float(np.sort(scores)[place - 1]) if place <= len(scores) else None


def differences(
    before: Sequence[TracedFunction],
    after: Sequence[TracedFunction],
    call: Call,
    inputs: Sequence[Any],
) -> list[OutputDifference]:
    """Return the differences of all outputs of a compressed surrogate from float32 modules.

    Args:
        before: float32 functions.
        after: compressed functions, with the box of the inputs on which they are measured.
        call: calls the compressed surrogate: inputs and name of a function to outputs and statuses.
        inputs: arrays of each function, and their origin.
    """
    out = []
    for function, boxed, (arrays, source) in zip(before, after, inputs, strict=True):
        changes, wanted = _changes(function, call, arrays)
        extremes = largest_changes(
            function, boxed, arrays, partial(_accepted_changes, function, call)
        )
        for spec, change, dense, extreme in zip(
            function.outputs, changes, wanted, extremes, strict=True
        ):
            name = f"{function.name}.{spec.name}" if function.name else spec.name
            out.append(
                OutputDifference(
                    name,
                    spec.units,
                    len(change),
                    float(change.max()),
                    float(np.quantile(change, 0.999)),
                    conformal_bound(change.max(1)),
                    LEVEL,
                    float(np.ptp(dense[np.isfinite(dense)])) if np.isfinite(dense).any() else 0.0,
                    source,
                    extreme,
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


def _accepted_changes(
    function: TracedFunction, call: Call, inputs: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return the changes (samples, elements) of each output; 0 where the module refuses inputs."""
    try:
        return _changes(function, call, inputs)[0]
    except ConfigError:
        accepted = accepted_rows(function, inputs)
        out = [np.zeros((len(accepted), math.prod(s.shape))) for s in function.outputs]
        if accepted.any():
            changes, _ = _changes(function, call, rows_of(function, inputs, accepted))
            for own, change in zip(out, changes, strict=True):
                own[accepted] = change
        return out


def _changes(
    function: TracedFunction, call: Call, inputs: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return |compressed - dense| (samples, elements) of each output, and the dense outputs.

    A change is 0 where both are no finite number, and infinite where one is none.
    """
    dense = of_module(function, inputs, together=False)
    results, _ = call(inputs, function.name)
    changes = []
    for own, wanted in zip(results, dense, strict=True):
        with np.errstate(invalid="ignore"):
            change = np.abs(own.astype(np.float64) - wanted)
        wrong = ~np.isfinite(own)
        change = np.where(wrong != ~np.isfinite(wanted), np.inf, np.where(wrong, 0.0, change))
        changes.append(change.reshape(len(change), -1))
    return changes, dense
