"""Where a node model is worst: by class, label or node, and by the number of edges into a node."""

from __future__ import annotations

import numpy as np

from scitoolkit.core.results import Bars, Table, metric_words
from scitoolkit.graphs.targets import Labels, Target, Values

Array = np.ndarray
Row = list[float | int | str | None]
MOST_ROWS = 12
DEGREES = (1, 2, 4, 8, 16, 64, 256)
"""First in-degree of each bar but that of nodes without edges."""


def worst_table(target: Target, truth: Array, predicted: Array, nodes: Array) -> Table:
    """Return the classes, labels or nodes with the largest errors, the worst first.

    Args:
        target: the prediction target.
        truth: labels of some nodes, as `y`, shape (n,) or (n, L).
        predicted: decisions or values of the same shape.
        nodes: numbers of these nodes, shape (n,).

    Example:
        >>> from scitoolkit.graphs.targets import TARGETS
        >>> truth, predicted = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
        >>> worst_table(TARGETS["classes"], truth, predicted, np.arange(4)).rows
        [[0, 2, 0.5, 1, 0.5], [1, 2, 1.0, None, None]]
    """
    if isinstance(target, Values):
        return _worst_nodes(truth, predicted, nodes)
    if isinstance(target, Labels):
        return _worst_labels(target, truth, predicted)
    return _worst_classes(truth, predicted)


def degree_bars(target: Target, truth: Array, predicted: Array, degrees: Array, part: str) -> Bars:
    """Return bars of the figure of merit by in-degree, each labelled with its number n of nodes.

    Args:
        target: the prediction target.
        truth: labels of some nodes, as `y`, shape (n,) or (n, L).
        predicted: decisions or values of the same shape.
        degrees: number of edges into these nodes, shape (n,).
        part: name of the split, for the title.

    Example:
        >>> from scitoolkit.graphs.targets import TARGETS
        >>> truth, predicted = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
        >>> degrees = np.array([1, 1, 5, 0])
        >>> bars = degree_bars(TARGETS["classes"], truth, predicted, degrees, "test")
        >>> bars.labels, bars.values
        (['0 (n = 1)', '1 (n = 2)', '4 to 7 (n = 1)'], [1.0, 0.5, 1.0])
    """
    first = np.array([0, *DEGREES])
    bins = np.searchsorted(first, degrees, side="right") - 1
    labels, values = [], []
    for number in np.unique(bins):
        inside = bins == number
        low = first[number]
        last = first[number + 1] - 1 if number + 1 < len(first) else None
        span = f"{low} or more" if last is None else f"{low}" if last == low else f"{low} to {last}"
        labels.append(f"{span} (n = {inside.sum()})")
        values.append(target.figures(truth[inside], predicted[inside])[target.merit])
    merit = metric_words(target.merit)
    return Bars(
        title=f"{merit[:1].upper()}{merit[1:]} by number of edges into a node",
        labels=labels,
        values=values,
        x_label=f"{part} {merit}",
    )


def _worst_classes(truth: Array, predicted: Array) -> Table:
    rows: list[Row] = []
    for label in np.unique(truth):
        answers = predicted[truth == label]
        wrong = answers[answers != label]
        mistaken = int(np.bincount(wrong).argmax()) if len(wrong) else None
        share = float((answers == mistaken).mean()) if len(wrong) else None
        rows.append([int(label), len(answers), float((answers == label).mean()), mistaken, share])
    columns = ["class", "nodes", "share that is right", "most mistaken for", "share of nodes"]
    return _worst_first("classes", columns, rows)


def _worst_labels(target: Labels, truth: Array, predicted: Array) -> Table:
    rows: list[Row] = []
    for label, (holds, answers) in enumerate(zip(truth.T, predicted.T, strict=True)):
        score = target.figures(holds[:, None], answers[:, None])["micro_f1"]
        missed = int(((holds == 1) & (answers != 1)).sum())
        rows.append([label, int((holds == 1).sum()), score, missed, int((answers > holds).sum())])
    return _worst_first("labels", ["label", "nodes", "F1", "missed", "falsely assigned"], rows)


def _worst_first(what: str, columns: list[str], rows: list[Row]) -> Table:
    """Return a table of rows whose third entry is the score."""
    rows.sort(key=lambda row: float(row[2] or 0.0))
    title, note = f"{what.capitalize()}, the worst first", _rest(len(rows), what)
    return Table(title=title, columns=columns, rows=rows[:MOST_ROWS], note=note)


def _worst_nodes(truth: Array, predicted: Array, nodes: Array) -> Table:
    error = predicted.astype(np.float64) - truth
    by_size = np.argsort(-np.abs(error).max(1), kind="stable")[:MOST_ROWS]
    rows: list[Row] = []
    for row in by_size:
        column = int(np.abs(error[row]).argmax())
        values = (truth[row, column], predicted[row, column], error[row, column])
        rows.append([int(nodes[row]), column, *map(float, values)])
    return Table(
        title="Nodes with the largest errors",
        columns=["node", "value number", "data", "model", "error"],
        rows=rows,
        note=_rest(len(nodes), "nodes"),
    )


def _rest(number: int, what: str) -> str:
    return f"{MOST_ROWS} of {number} {what}." if number > MOST_ROWS else ""
