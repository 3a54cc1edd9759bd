"""Predictions against references, as a figure of results."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scitoolkit.core.results import Lines, Role, Series

SHOWN_POINTS = 1500
"""Largest number of points of a parity plot, drawn at random from more."""


def parity(
    title: str, pairs: np.ndarray, unit: str, groups: Mapping[str, np.ndarray], role: Role = "main"
) -> Lines:
    """Return predictions against references, of at most `SHOWN_POINTS` points.

    Args:
        title: of the plot.
        pairs: reference and prediction, (n, 2).
        unit: of both.
        groups: rows of `pairs` by label.
        role: of the points.
    """
    rng = np.random.default_rng(0)
    low, high = float(pairs.min()), float(pairs.max())
    series = [Series(label="equal", y=[low, high], role="reference")]
    most = SHOWN_POINTS // len(groups)
    for label, places in groups.items():
        shown = places if len(places) <= most else rng.choice(places, most, replace=False)
        x, y = pairs[shown].T.tolist()
        series.append(Series(label=label, x=x, y=y, style="points", role=role))
    suffix = f" [{unit}]" * bool(unit)
    return Lines(
        title=title,
        x=[low, high],
        x_label=f"reference{suffix}",
        y_label=f"predicted{suffix}",
        series=series,
        equal=True,
    )
