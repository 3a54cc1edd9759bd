"""Moments of the columns of a graph's features, which tell numbers unlike those of a training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.graphs.graph import Graph
from scitoolkit.io.campaign.statistics import fill_value_in, mark_in
from scitoolkit.io.familiar import FAR, UsualValues, warn_if_far

Array = np.ndarray
log = get_logger(__name__)
MOST_COLUMNS = 100_000
"""Columns of an array whose moments are stored: they are text in the header of the weights."""
_BYTES = 1 << 25  # of rows read at a time


@dataclass(frozen=True)
class ColumnMoments:
    """Moments of the columns of an array, each of shape (width,), float64.

    Attributes:
        lowest: the least values.
        highest: the largest values.
        mean: the means.
        deviation: the standard deviations.
        at_ends: share of the values that are the least or the largest one.
    """

    lowest: Array
    highest: Array
    mean: Array
    deviation: Array
    at_ends: Array

    def usual(self) -> dict[str, list[float]]:
        """Return means and deviations as they are stored with a model.

        A word that few nodes of the training have, or a class that most have, has a deviation near
        zero, and another graph may have it more or less often. Where most values are at an end of
        the range, the deviation is the largest one of values in this range, half of it.
        """
        half = (self.highest - self.lowest) / 2
        deviation = np.where(self.at_ends > 0.5, half, self.deviation)
        return {"mean": self.mean.tolist(), "deviation": deviation.tolist()}


def column_moments(
    arrays: Mapping[str, Sequence[Any]], gather: Callable[[Any], list[Any]] = lambda own: [own]
) -> dict[str, ColumnMoments]:
    """Return the moments of the columns of some arrays, read in blocks of rows.

    Args:
        arrays: {name: arrays whose rows follow one another, (n,) or (n, width), which may be
            memory-mapped, or CSR matrices}; those without rows or columns, and those with more
            than `MOST_COLUMNS`, are left out.
        gather: returns the objects of all processes that hold rows, in one order on all of them,
            so that the moments are equal bit for bit.

    Example:
        >>> column_moments({"x": [np.array([[1.0], [3.0]])]})["x"].deviation
        array([1.])
    """
    out = {}
    for name, parts in arrays.items():
        width = int(np.prod(parts[0].shape[1:]))
        if width > MOST_COLUMNS:
            log.info("%s: no moments of %d columns, at most %d", name, width, MOST_COLUMNS)
        elif width and (moments := _moments(parts, gather)) is not None:
            out[name] = moments
    return out


def warn_of_columns(
    trained: Mapping[str, Mapping[str, Sequence[float]]],
    own: Mapping[str, ColumnMoments],
    where: str,
) -> None:
    """Warn of the column of each array that is farthest from the training, if it is far.

    Args:
        trained: {array: what `ColumnMoments.usual` returned}.
        own: {array: its moments}; arrays that `trained` lacks are not compared.
        where: the file, for messages.
    """
    for name, moments in own.items():
        if name not in trained:
            continue
        mean, deviation = (np.asarray(trained[name][n]) for n in ("mean", "deviation"))
        # The root mean square distance of values from a number follows from their moments.
        distance = np.hypot(moments.mean - mean, moments.deviation)
        distance = np.divide(distance, deviation, out=np.zeros_like(mean), where=deviation > 0)
        n = int(distance.argmax())
        ends = float(moments.lowest[n]), float(moments.highest[n])
        usual = UsualValues(float(mean[n]), float(deviation[n]))
        far = int((distance > FAR).sum())
        others = f", one of {far} such columns" if far > 1 else ""
        what = f"{where}: column {n} of {name}{others}"
        warn_if_far(ends, float(moments.mean[n]), float(distance[n]), usual, what)


def numbers_of(graph: Graph) -> dict[str, list[Any]]:
    """Return the features of nodes, and the weights and features of edges that a graph has."""
    arrays = {"x": graph.features, "edge_weight": graph.edge_weight, "edge_attr": graph.edge_attr}
    return {name: [array] for name, array in arrays.items() if array is not None}


def usual_columns(columns: Mapping[str, ColumnMoments]) -> dict[str, dict[str, list[float]]]:
    """Return the moments of arrays as they are stored with a model."""
    return {name: moments.usual() for name, moments in columns.items()}


def _moments(parts: Sequence[Any], gather: Callable[[Any], list[Any]]) -> ColumnMoments | None:
    # Two passes: the difference of the sums of squares would cancel.
    every = [sums for of_one in gather([_sums(b) for b in _blocks(parts)]) for sums in of_one]
    if not every:
        return None
    counts, totals, least, largest = zip(*every, strict=True)
    count, mean = sum(counts), np.sum(totals, 0) / sum(counts)
    lowest, highest = np.min(least, 0), np.max(largest, 0)
    own = [_spread(b, mean, lowest, highest) for b in _blocks(parts)]
    squares, ends = np.sum([pair for of_one in gather(own) for pair in of_one], 0) / count
    return ColumnMoments(lowest, highest, mean, np.sqrt(squares), ends)


def _blocks(parts: Sequence[Any]) -> Iterator[Any]:
    """Yield rows as float64, shape (n, width), or a sparse matrix without double entries."""
    for part in parts:
        if sp.issparse(part):
            matrix = sp.csr_matrix(part, dtype=np.float64, copy=True)
            matrix.sum_duplicates()
            blocks: Iterable[Any] = [matrix]
        else:
            step = max(1, _BYTES // (8 * int(np.prod(part.shape[1:]))))
            blocks = (part[i : i + step] for i in range(0, len(part), step))
        for block in blocks:
            if block.shape[0]:
                dense = not sp.issparse(block)
                yield np.asarray(block, np.float64).reshape(len(block), -1) if dense else block


def _sums(block: Any) -> tuple[int, Array, Array, Array]:
    total, least, largest = block.sum(axis=0), block.min(axis=0), block.max(axis=0)
    if sp.issparse(block):
        total, least, largest = np.asarray(total)[0], least.toarray()[0], largest.toarray()[0]
    return block.shape[0], total, least, largest


def _spread(block: Any, mean: Array, lowest: Array, highest: Array) -> tuple[Array, Array]:
    """Return sums of squared distances from the mean, and counts of values at the ends."""
    if not sp.issparse(block):
        return ((block - mean) ** 2).sum(0), ((block == lowest) | (block == highest)).sum(0)
    column, values = block.indices, block.data

    def sums(terms: Array, of_zero: Array) -> Array:
        zeros = block.shape[0] - np.bincount(column, minlength=len(mean))
        # The entries that are not stored are zeros.
        return np.bincount(column, terms, len(mean)) + zeros * of_zero

    at_ends = (values == lowest[column]) | (values == highest[column])
    return sums((values - mean[column]) ** 2, mean**2), sums(
        at_ends, (lowest == 0) | (highest == 0)
    )


def refuse_marked_columns(arrays: Mapping[str, Sequence[Any]], where: str) -> None:
    """Refuse columns some of whose values, such as -9999 among values near 0, mark missing data.

    Args:
        arrays: as for `column_moments`.
        where: the file, for messages.

    Raises:
        DataError: with the column and the number.
    """
    for name, parts in arrays.items():
        for part in parts:
            if not part.shape[0]:
                continue
            sparse = sp.issparse(part)
            part = part if sparse else part.reshape(len(part), -1)
            ends: Any = [part.min(axis=0), part.max(axis=0)]
            ends = np.array([end.toarray()[0] for end in ends] if sparse else ends)
            codes = [end for end in np.unique(ends) if _is_code(float(end))]
            for n in np.flatnonzero(np.isin(ends, codes).any(0)):
                column = part[:, [n]].toarray() if sparse else part[:, n]
                mark = mark_in(np.asarray(column, np.float64))
                if mark is not None:
                    raise DataError(
                        mark[1],
                        where=f"{where}: column {n} of {name}",
                        fix="repair these values, or data.allow_suspect=true",
                    )


def _is_code(end: float) -> bool:
    return fill_value_in(np.array([0.0, 0.0, end, end])) is not None
