"""Construction of this process's part of a graph, and of normalised features."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from logging import Logger

import numpy as np
import scipy.sparse as sp
import torch

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.graphs.config import PartitionConfig
from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.grid import ProcessGrid, all_grids, make_grid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.partition import check_owner, partition
from scitoolkit.graphs.partitioned import PartFiles, PartitionedGraph
from scitoolkit.graphs.plan import Forecast, forecast
from scitoolkit.graphs.stored_part import StoredPart
from scitoolkit.graphs.weighting import weighted_adjacency
from scitoolkit.io.numpy_file import load_array
from scitoolkit.training.ranks.collectives import SumOverRanks, gather_counts
from scitoolkit.training.ranks.communicator import Communicator, SingleProcess

Array = np.ndarray
Moments = tuple[Array, Array]
log: Logger = get_logger(__name__)
_ROWS = 1 << 16


def choose_owner(graph: Graph, config: PartitionConfig, size: int, seed: int = 0) -> Array:
    """Return the rank of each node, shape (N,).

    Args:
        graph: graph to distribute.
        config: the `graph:` section.
        size: number of processes.
        seed: seed of a random partition.

    Raises:
        ConfigError: more processes than nodes, or a partition vector that does not fit.
        DataError: a partition file that cannot be read.
    """
    if config.owner is None:
        pattern = weighted_adjacency(graph, "sum")
        return partition(pattern, size, config.partition, seed=seed, refined=config.sparse)
    return check_owner(load_array(config.owner), graph.num_nodes, size)


def choose_grid(graph: Graph, owner: Array, config: PartitionConfig, size: int) -> ProcessGrid:
    """Return the configured grid; with `auto` the one with the least largest received volume."""
    if config.algorithm != "auto":
        return make_grid(config.algorithm, size, config.replication, sparse=config.sparse)
    candidates = forecasts(graph, owner, size)
    best = min(candidates, key=lambda candidate: int(candidate.words.max()))
    log.info("algorithm: %s, %d words an epoch", best.grid, best.words.max())
    return best.grid


def forecasts(
    graph: Graph, owner: Array, size: int, widths: tuple[int, ...] = (64,)
) -> list[Forecast]:
    """Return the predicted costs of every grid of `size` ranks, for the products of GCN."""
    matrix = weighted_adjacency(graph, "gcn")
    return [forecast(matrix, owner, grid, widths, len(widths)) for grid in all_grids(size)]


def share(graph: Graph, config: PartitionConfig, ranks: Communicator, owner: Array) -> GraphPart:
    """Return this process's part.

    Raises:
        ConfigError: the algorithm does not support the number of processes.
    """
    return GraphPart(graph, owner, choose_grid(graph, owner, config, ranks.size), ranks)


def normalised_features(graph: Graph, how: str, nodes: Array) -> torch.Tensor:
    """Return the features of some nodes, shape (len(nodes), F), float32.

    Raises:
        ConfigError: `standard` without training nodes, or `rows` with negative features.
    """
    by = None
    if how == "rows":
        stored = graph.features.data if sp.issparse(graph.features) else graph.features
        # All ranks look at the whole graph, so that all of them refuse it.
        _refuse_negative(float(stored.min()) if stored.size else 0.0, graph.where or "graph")
    if how == "standard":
        train = graph.parts.get("train", np.zeros(0, np.int64))
        by = moments([lambda: graph.dense_features(train)], SingleProcess())
    return _normalised(graph.dense_features(nodes), how, by)


def stored_features(part: StoredPart, how: str) -> torch.Tensor:
    """Return the features of a stored part's local nodes, shape (n_own, F), float32.

    Raises:
        ConfigError: `standard` without training nodes, or `rows` with negative features.
        DataError: the graph was partitioned without features.
    """
    return _preparation([part.files], how, part.ranks)(part.files.read("x"))


def preparation(graph: PartitionedGraph, how: str) -> Callable[[Array], torch.Tensor]:
    """Return the normalisation of feature rows of a partitioned graph, as a function.

    Raises:
        ConfigError: `standard` without training nodes, or `rows` with negative features.
        DataError: the graph was partitioned without features.
    """
    parts = [graph.part(number, verify=False) for number in range(graph.num_parts)]
    return _preparation(parts, how, SingleProcess())


def _preparation(
    parts: list[PartFiles], how: str, ranks: Communicator
) -> Callable[[Array], torch.Tensor]:
    if "x" not in parts[0]:
        raise DataError(
            "the graph was partitioned without features",
            where=str(parts[0].path.parent),
            fix="scitoolkit graphs partition --nodes FILE",
        )
    by = None
    if how == "rows":
        lowest = min((float(b.min()) for files in parts for b in _blocks(files)), default=0.0)
        negative = gather_counts(ranks, int(lowest < 0))
        # The rank with the negative feature alone would raise, and leave the others in a
        # collective.
        if any(negative):
            _refuse_negative(lowest, str(parts[0].path.parent), refused=True)
    if how == "standard":
        by = moments([functools.partial(_training_rows, files) for files in parts], ranks)
    return lambda rows: _normalised(rows, how, by)


def _training_rows(files: PartFiles) -> Array:
    return files.map("x")[files.read("train") if "train" in files else slice(0)]


def moments(blocks: list[Callable[[], Array]], ranks: Communicator) -> Moments:
    """Return mean and standard deviation of the rows of all ranks, shape (width,), float64.

    Args:
        blocks: functions that return some of this rank's rows, shape (n, width); n may be 0.
        ranks: the communicator.

    Raises:
        ConfigError: no rows on any rank.
    """

    def sums(mean: torch.Tensor | None) -> torch.Tensor:
        own = []
        for block in blocks:
            rows = torch.from_numpy(block().astype(np.float64))
            terms = rows if mean is None else (rows - mean).square()
            # The count travels with the sum: a rank without training nodes adds zeros to both.
            own.append(torch.stack([terms.sum(0), torch.ones_like(terms).sum(0)]))
        return SumOverRanks.apply(torch.stack(own).sum(0), ranks)

    # Two passes: the difference of the sums of squares would cancel.
    total, count = sums(None)
    if not bool((count > 0).all()):
        raise ConfigError(
            "no training nodes to standardise by", where="data.normalise", allowed="none, rows"
        )
    mean = total / count
    spread = sums(mean)[0] / count
    return mean.numpy(), spread.sqrt().numpy()


def _blocks(files: PartFiles) -> Iterator[Array]:
    """Yield the features of a part in blocks of rows, which bounds the memory."""
    rows = files.map("x")
    for start in range(0, len(rows), _ROWS):
        yield rows[start : start + _ROWS]


def _refuse_negative(lowest: float, where: str, *, refused: bool = False) -> None:
    """Raise if a feature is negative: the sum of its row may be zero or change its sign."""
    if refused or not lowest >= 0:
        what = f"down to {lowest:g}" if lowest < 0 else "in the part of another process"
        raise ConfigError(
            f"rows divides features by the sum of their row, and there are negative ones, {what}",
            where=f"data.normalise of {where}",
            allowed="rows for features that are not negative",
            fix="data.normalise=standard, or none",
        )


def _normalised(x: Array, how: str, by: Moments | None) -> torch.Tensor:
    if how == "rows":
        total = x.sum(1, keepdims=True)
        # A row without features stays zero.
        x = x / np.where(total == 0, 1, total)
    if by is not None:
        mean, deviation = by
        x = (x - mean) / np.where(deviation == 0, 1, deviation)
    return torch.from_numpy(x.astype(np.float32, copy=False))
