"""Table of measured forms of a surrogate: which are worth their error, time and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scitoolkit.core.files import replacing
from scitoolkit.core.results import Points, Series
from scitoolkit.reporting.plots import draw_plot


@dataclass(frozen=True)
class Form:
    """Measured form of a surrogate.

    Attributes:
        name: display name.
        options: options of `ExportConfig` that produce it.
        error: largest change of any output on held-out and extreme inputs, relative to its range.
        microseconds: time of a call with one sample.
        bytes: size of the weights.
        worth: whether it is on the Pareto front of error, time and size.
    """

    name: str
    options: Mapping[str, Any]
    error: float
    microseconds: float
    bytes: int
    worth: bool = False


def timed(table: Sequence[Form], seconds: Sequence[float]) -> list[Form]:
    """Return forms with their times, marked if they are on the Pareto front."""
    made = [replace(f, microseconds=1e6 * s) for f, s in zip(table, seconds, strict=True)]
    return [replace(f, worth=_is_worth(f, made)) for f in made]


def _is_worth(form: Form, others: Sequence[Form]) -> bool:
    own = (form.error, form.microseconds, form.bytes)
    for other in others:
        figures = (other.error, other.microseconds, other.bytes)
        if figures != own and all(a <= b for a, b in zip(figures, own, strict=True)):
            return False
    return True


def fastest(candidates: Sequence[Form], max_error: float) -> Form:
    """Return the fastest form with an error of at most `max_error`.

    Example:
        >>> slow, fast = Form("float32", {}, 0.0, 9.0, 8), Form("8 bits", {"bits": 8}, 0.1, 4.0, 2)
        >>> fastest([slow, fast], 0.2).name, fastest([slow, fast], 0.01).name
        ('8 bits', 'float32')
    """
    return min((f for f in candidates if f.error <= max_error), key=lambda f: f.microseconds)


def draw(table: Sequence[Form], chosen: Form, path: Path) -> None:
    """Draw the error of all forms over their time into a PNG file."""

    def series(label: str, own: Sequence[Form], role: Any = "main") -> Series:
        own = sorted(own, key=lambda f: f.microseconds)
        return Series(
            label=label, x=[f.microseconds for f in own], y=[f.error for f in own], role=role
        )

    front = [f for f in table if f.worth]
    spec = Points(
        title="Forms of the surrogate",
        x_label="a call, µs",
        y_label="largest change / range",
        series=[
            series("others", [f for f in table if not f.worth], "baseline"),
            series("Pareto front of error, time and bytes", front),
            series(f"chosen: {chosen.name}", [chosen]),
        ],
    )
    figure = draw_plot(spec)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
