"""Parts of reports that domains share: a model beside its baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from scitoolkit.core.results import Bars, Results, Table, Verdict

Better = Literal["min", "max"]


SKILLS = frozenset({"r2"})
"""Scores of which the highest is best beside errors, of which the lowest is."""


def score_table(title: str, scores: Mapping[str, Mapping[str, float]], better: Better) -> Table:
    """Return a table of scores, a row for each method.

    Args:
        title: of the table.
        scores: by method, then by column.
        better: whether the highest or the lowest is best.
    """
    columns = ["method", *next(iter(scores.values()))]
    return Table(
        title=title,
        columns=columns,
        rows=[[m, *s.values()] for m, s in scores.items()],
        best=better,
        opposite=[name for name in columns if name in SKILLS and better == "min"],
    )


def score_bars(heading: str, scores: Mapping[str, float], label: str) -> Bars:
    """Return bars of one score by method, the first of which is the model."""
    return Bars(
        title=f"{heading} compared with the baselines",
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
            merits, model, f"{label} of {model}", better=better, rate=False, unit=unit
        ),
        summary=list(summary),
        metrics=metrics,
        tables=[score_table(table, scores, better)],
        figures=[score_bars(heading, merits, label)],
    )
