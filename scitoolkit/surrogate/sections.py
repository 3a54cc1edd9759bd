"""Parts of reports that domains share: a model beside its baselines, and beside the truth."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from scitoolkit.core.results import (
    Bars,
    Lines,
    Panel,
    Results,
    Role,
    Series,
    Table,
    Verdict,
    metric_words,
    number,
)

Better = Literal["min", "max"]

ALIKE = 0.05
"""Share of the larger score below which two scores are not told apart in a sentence."""

SKILLS = frozenset({"r2"})
"""Scores of which the highest is best beside errors, of which the lowest is."""


def weakest(
    what: str, scores: Mapping[str, float], unit: str = "", better: Better = "min"
) -> list[str]:
    """Return a sentence that names where a model is worst and best; none if it is alike everywhere.

    Args:
        what: the score and over which parts it is compared, at the start of a sentence.
        scores: by part.
        unit: of the scores.
        better: whether the highest or the lowest is best.

    Example:
        >>> weakest("Force RMSE by element", {"C": 358.2, "H": 142.0}, "meV/Å")
        ['Force RMSE by element: worst for C (358 meV/Å), best for H (142 meV/Å).']
    """
    finite = {part: score for part, score in scores.items() if math.isfinite(score)}
    best, worst = (choose(finite, key=finite.__getitem__, default="") for choose in (min, max))
    if not finite or abs(finite[worst] - finite[best]) <= ALIKE * abs(finite[worst]):
        return []
    if better == "max":
        best, worst = worst, best
    shown = [f"{part} ({finite[part]:.3g}{f' {unit}' * bool(unit)})" for part in (worst, best)]
    return [f"{what}: worst for {shown[0]}, best for {shown[1]}."]


def score_table(title: str, scores: Mapping[str, Mapping[str, float]], better: Better) -> Table:
    """Return a table of scores, a row for each method.

    Args:
        title: of the table.
        scores: by method, then by column.
        better: whether the highest or the lowest is best.
    """
    names = ["method", *next(iter(scores.values()))]
    return Table(
        title=title,
        columns=[metric_words(name) for name in names],
        rows=[[m, *s.values()] for m, s in scores.items()],
        best=better,
        opposite=[metric_words(name) for name in names if name in SKILLS and better == "min"],
    )


def score_bars(heading: str, scores: Mapping[str, float], label: str) -> Bars:
    """Return bars of one score by method, the first of which is the model."""
    return Bars(
        title=f"{heading[:1].upper()}{heading[1:]} compared with the baselines",
        labels=list(scores),
        values=list(scores.values()),
        x_label=label,
        marked=0,
    )


def compared(
    title: str,
    summary: Sequence[str],
    scores: Mapping[str, Mapping[str, float]],
    merit: str,
    *,
    better: Better,
    table: str,
    heading: str,
    label: str,
    unit: str = "",
) -> Results:
    """Return results of a model beside its baselines, judged by one score.

    Args:
        title: of the report.
        summary: its sentences.
        scores: by method, then by name; the first method is the model.
        merit: name of the score that decides.
        better: whether the highest or the lowest is best.
        table: title of the table.
        heading: of the bars.
        label: what the deciding score is called.
        unit: of the deciding score.
    """
    model = next(iter(scores))
    merits = {method: values[merit] for method, values in scores.items()}
    metrics: dict[str, Any] = dict(scores[model])
    metrics |= {f"{merit}_{m.replace(' ', '_')}": v for m, v in merits.items() if m != model}
    return Results(
        title=title,
        verdict=Verdict.among(
            merits, model, f"{label} of {model}", better=better, rate=better == "min", unit=unit
        ),
        summary=list(summary),
        metrics=metrics,
        tables=[score_table(table, scores, better)],
        figures=[score_bars(heading, merits, label)],
    )


def error_table(
    title: str,
    columns: Sequence[str],
    errors: Mapping[str, Iterable[float]],
    *,
    method: str = "forecast",
    note: str = "",
) -> Table:
    """Return a table of errors, a row for each method; the smallest of a column is marked.

    Args:
        title: of the table.
        columns: what the errors of a method are of.
        errors: by method, as many as columns; NaN and infinite ones are left empty.
        method: title of the column of methods.
        note: below the table.
    """
    rows: list[list[Any]] = [[name, *map(number, values)] for name, values in errors.items()]
    return Table(title=title, columns=[method, *columns], rows=rows, best="min", note=note)


def curves(
    values: Mapping[str, Iterable[float | None]],
    *,
    baselines: Collection[str] = (),
    references: Collection[str] = (),
) -> list[Series]:
    """Return a line for each method.

    Args:
        values: by method, along x; NaN, infinite and missing ones leave a gap.
        baselines: methods that the model is compared with.
        references: what no method changes, such as the truth.

    Example:
        >>> [line.role for line in curves({"truth": [1.0], "model": [2.0]}, references=["truth"])]
        ['reference', 'main']
    """

    def role(method: str) -> Role:
        if method in references:
            return "reference"
        return "baseline" if method in baselines else "main"

    return [
        Series(label=name, y=[None if v is None else number(v) for v in along], role=role(name))
        for name, along in values.items()
    ]


def against_steps(title: str, y_label: str, series: list[Series], *, log_y: bool = False) -> Lines:
    """Return lines of scores against the number of steps, which begins at 1."""
    steps = [float(step) for step in range(1, len(series[0].y) + 1)]
    return Lines(title=title, x=steps, x_label="step", y_label=y_label, series=series, log_y=log_y)


def spectrum_lines(title: str, waves: Iterable[float], x_label: str, series: list[Series]) -> Lines:
    """Return lines of power against wave numbers, which leave out 0: both axes are logarithmic."""
    return Lines(
        title=title,
        x=[float(wave) for wave in waves],
        x_label=x_label,
        y_label="power",
        series=series,
        log_x=True,
        log_y=True,
    )


def beside_truth(
    labels: Mapping[str, str],
    *,
    prefix: str = "",
    scale: str = "",
    select: Mapping[str, int] | None = None,
    unit: str | None = None,
) -> list[Panel]:
    """Return maps of a truth, of predictions, and of their `error` on a separate scale.

    Args:
        labels: of the maps, by kind.
        prefix: of the names of the arrays, before the kind.
        scale: name of the colour scale, where a figure has several.
        select: indices of the dims that are not drawn.
        unit: of the colour bars, None for that of the figure.

    Example:
        >>> [panel.scale for panel in beside_truth({"truth": "truth", "error": "error"})]
        ['field', 'error']
    """
    return [
        Panel(
            variable=prefix + kind,
            select=dict(select or {}),
            label=label,
            scale=f"error {scale}".strip() if kind == "error" else scale or "field",
            diverging=kind == "error",
            unit=unit,
        )
        for kind, label in labels.items()
    ]
