"""From a graph and a configuration to this process's part of it."""

from __future__ import annotations

from logging import Logger

import numpy as np
import torch

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.graphs.collectives import SumOverRanks
from scitoolkit.graphs.communicator import Communicator
from scitoolkit.graphs.config import PartitionConfig
from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.grid import Grid, all_grids, make_grid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.partition import check_owner, partition
from scitoolkit.graphs.plan import Forecast, forecast
from scitoolkit.graphs.stored_part import StoredPart
from scitoolkit.graphs.weighting import weighted_adjacency

Array = np.ndarray
log: Logger = get_logger(__name__)


def choose_owner(graph: Graph, config: PartitionConfig, size: int) -> Array:
    """Return the rank of each node, shape (N,).

    Raises:
        ConfigError: more processes than nodes, or a partition vector that does not fit.
        DataError: a partition file that cannot be read.
    """
    if config.owner is None:
        pattern = weighted_adjacency(graph, "sum")
        return partition(pattern, size, config.partition, refined=config.sparse)
    try:
        owner = np.load(config.owner, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"not a readable npy file ({error})", where=str(config.owner)) from None
    if not isinstance(owner, np.ndarray):
        raise DataError("not a readable npy file (an archive)", where=str(config.owner))
    return check_owner(owner, graph.num_nodes, size)


def choose_grid(graph: Graph, owner: Array, config: PartitionConfig, size: int) -> Grid:
    """Return the configured grid, or with `auto` the one whose busiest rank receives least."""
    if config.algorithm != "auto":
        return make_grid(config.algorithm, size, config.replication, sparse=config.sparse)
    found = forecasts(graph, owner, size)
    best = min(found, key=lambda each: int(each.words.max()))
    log.info("algorithm: %s, %d words an epoch", best.grid, best.words.max())
    return best.grid


def forecasts(
    graph: Graph, owner: Array, size: int, widths: tuple[int, ...] = (64,)
) -> list[Forecast]:
    """Return the predicted costs of every grid of `size` ranks, for GCN's products."""
    matrix = weighted_adjacency(graph, "gcn")
    return [forecast(matrix, owner, grid, widths, len(widths)) for grid in all_grids(size)]


def share(graph: Graph, config: PartitionConfig, ranks: Communicator, owner: Array) -> GraphPart:
    """Return this process's part.

    Raises:
        ConfigError: an algorithm that does not fit the number of processes.
    """
    return GraphPart(graph, owner, choose_grid(graph, owner, config, ranks.size), ranks)


def normalised_features(graph: Graph, how: str, nodes: Array) -> torch.Tensor:
    """Return the features of some nodes, shape (len(nodes), F), float32.

    Raises:
        ConfigError: `standard` without training nodes.
    """
    moments = None
    if how == "standard":
        if not len(graph.parts.get("train", ())):
            raise _no_training_nodes()
        known = graph.dense_features(graph.parts["train"])
        moments = known.mean(0), known.std(0)
    return _normalised(graph.dense_features(nodes), how, moments)


def stored_features(part: StoredPart, how: str) -> torch.Tensor:
    """Return the features of a stored part's own nodes, shape (n_own, F), float32.

    Raises:
        ConfigError: `standard` without training nodes.
        DataError: the graph was partitioned without features.
    """
    if "x" not in part.files:
        raise DataError(
            "the graph was partitioned without features", where=str(part.files.path.parent),
            fix="scitoolkit graphs partition --nodes FILE",
        )  # fmt: skip
    x, moments = part.files.read("x"), None
    if how == "standard":
        rows = part.files.read("train") if "train" in part.files else np.zeros(0, np.int64)
        known = torch.from_numpy(x[rows].astype(np.float64))
        sums = torch.stack([torch.full((known.shape[1],), float(len(rows))), known.sum(0),
                            known.square().sum(0)])  # fmt: skip
        count, first, second = SumOverRanks.apply(sums.double(), part.ranks).numpy()
        if not count.all():
            raise _no_training_nodes()
        mean = first / count
        moments = mean, np.sqrt(np.maximum(second / count - mean**2, 0))
    return _normalised(x, how, moments)


def _no_training_nodes() -> ConfigError:
    return ConfigError(
        "no training nodes to standardise by", where="data.normalise", allowed="none, rows"
    )


def _normalised(x: Array, how: str, moments: tuple[Array, Array] | None) -> torch.Tensor:
    if how == "rows":
        total = x.sum(1, keepdims=True)
        x = x / np.where(total == 0, 1, total)
    if moments is not None:
        mean, deviation = moments
        x = (x - mean) / np.where(deviation == 0, 1, deviation)
    return torch.from_numpy(x.astype(np.float32, copy=False))
