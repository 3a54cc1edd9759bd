"""Equivalence check at start: the distributed model equals the plain model on a small graph.

The graph has unequal parts, self-loops, duplicate edges, directed edges and an isolated node. The
distributed model runs on simulated ranks, which execute the code of real ranks as threads, so a
failing rank ends the others at once, and every process gets the same result.

A model may take another path on the real graph than on the small one. Where the real graph is small
enough, rank 0 therefore compares the models on it as well, with its partition.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from logging import Logger

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.log import get_logger
from scitoolkit.core.seeds import rng_state, set_rng_state
from scitoolkit.graphs.adapter import distribute, named_inputs, use_whole_graph
from scitoolkit.graphs.call_sites import CallSites
from scitoolkit.graphs.graph import Graph, GraphInputs
from scitoolkit.graphs.part import GraphPart, Part
from scitoolkit.graphs.proof_check import RankComparison, RankTrial, Unproven, copied_model, refused
from scitoolkit.graphs.proof_graph import NODES, proof_graph, small_grid, unequal_owners
from scitoolkit.graphs.proof_trace import DOUBLE, SINGLE, Precision, as_tensor
from scitoolkit.training.ranks.collectives import gather_counts

log: Logger = get_logger(__name__)

OTHER_SEEDS = 3  # with which a model that draws random numbers is compared again


_EXCLUSIVE = threading.Lock()  # the default dtype and generator belong to the whole process


@dataclass(frozen=True)
class Proof:
    """Result of a successful check.

    Attributes:
        fast: names of the layers that may run as sparse products.
        whole: names of the modules that run on the rows of all nodes on every process.
        ranks: number of simulated ranks.
        error: largest relative difference, in float64 if the model runs in it.
        seconds: duration of the check.
        unchanged: whether the model runs on the whole graph without any change, on one process,
            because it could not be checked.
        sites: places in the user's code that the check reached, to which the model is held; None
            if it was compared on the real graph.
    """

    fast: tuple[str, ...]
    whole: tuple[str, ...]
    ranks: int
    error: float
    seconds: float
    unchanged: bool = False
    sites: CallSites | None = None

    def attach(self, model: nn.Module, part: Part) -> nn.Module:
        """Make the model run on this process's part; return it."""
        if self.unchanged:
            return use_whole_graph(model, part)
        return distribute(model, part, self.fast, whole=self.whole, sites=self.sites)


def prove(model: nn.Module, part: Part) -> Proof:
    """Compare a model on simulated ranks with the plain model: loss, gradients, outputs, buffers.

    Args:
        model: called with (x, edge_index), returns one row per node; not modified.
        part: part of the real graph; a grid of the same kind, at most as large, is simulated.

    Returns:
        The result, equal on all ranks.

    Raises:
        ConfigError: the distributed model differs; names the first module that does. Raised on all
            ranks.
    """
    begin = time.perf_counter()
    failure: ConfigError | None = None
    _materialise(model, part.inputs)
    with _EXCLUSIVE, _random_state_restored():
        try:
            proof = _prove(model, part)
        except ConfigError as error:
            failure = error
    # Rank 0 alone compares on the real graph. Its failure is that of all, since the training that
    # follows is collective.
    if any(gather_counts(part.ranks, int(failure is not None))) and failure is None:
        failure = ConfigError("the model differs on another process", where="model")
    if failure is None:
        failure = _without_edges(model, part, proof.fast)
    seconds = time.perf_counter() - begin
    if failure is not None:
        # One process needs no distribution: there the plain model on the whole graph is always
        # right.
        if part.grid.size > 1 or not isinstance(failure, Unproven):
            raise failure
        log.warning("the model runs on one process only: %s", failure.what)
        return Proof((), (), 1, 0.0, seconds, unchanged=True)
    off, size = proof.error, proof.ranks
    for name in proof.whole:
        log.warning("module %s runs on the rows of all nodes on every process", name)
    log.info("model checked on %d rank(s): largest difference %.1e, %.2f s", size, off, seconds)
    return replace(proof, seconds=seconds)


def _without_edges(model: nn.Module, part: Part, fast: tuple[str, ...]) -> ConfigError | None:
    """Return an error if a rank has no edges: layers derive the number of nodes from edge_index."""
    edges = gather_counts(part.ranks, part.num_edges)
    layers = [n for n, m in model.named_modules() if hasattr(m, "propagate") and n not in fast]
    if part.ranks.size == 1 or min(edges) > 0 or not layers:
        return None
    return ConfigError(
        f"process {edges.index(0)} has no edges, and {layers[0]} is not a sparse product",
        where="graph.partition",
        allowed="edges on every process",
        fix="fewer processes",
    )


def attach(model: nn.Module, part: Part) -> nn.Module:
    """Make a model run on this process's part of the graph, after checking its equivalence.

    Call the model with the features of local nodes; it uses the edges of the part and ignores the
    given ones.

    Args:
        model: any torch-geometric model; modified in place, and restored by `detach`.
        part: this process's part.

    Raises:
        ConfigError: the model differs from the plain one on several processes.
    """
    return prove(model, part).attach(model, part)


def _materialise(model: nn.Module, inputs: GraphInputs) -> None:
    """Create parameters whose shape follows from the first input, before the model is copied."""
    if not any(is_lazy(p) for p in (*model.parameters(), *model.buffers())):
        return
    modes = [(module, module.training) for module in model.modules()]
    graph = proof_graph(inputs)
    pair = torch.from_numpy(np.stack([graph.source, graph.target]))
    dtype = torch.get_default_dtype()
    rest = {n: as_tensor(getattr(graph, n), dtype) for n in named_inputs(model, graph.inputs)}
    with torch.no_grad():
        model.eval()(torch.from_numpy(graph.features).to(dtype), pair, **rest)
    for module, training in modes:
        module.training = training


def _prove(model: nn.Module, part: Part) -> Proof:
    grid = small_grid(part.grid)
    owner = unequal_owners(grid.size)
    model = copied_model(model)
    refusal: ConfigError | None = None
    for precision, graph in _attempts(part):
        with precision.as_default():
            check = RankComparison(model, precision)
            reference, fast = check.plain(graph)
            if reference.error is not None:
                refusal = refusal or refused(reference.inside, reference.error, 1)
                continue
            # First with sparse products; if these differ, without any.
            trial = RankTrial(graph, owner, grid, fast)
            problem, off = check.compare(trial, reference)
            if problem is not None and fast and part.has_whole_rows:
                trial = replace(trial, fast=())
                problem, off = check.compare(trial, reference)
            if problem is not None and grid.size > 1:
                problem, off, whole = check.with_whole_modules(trial, reference, problem)
                trial = replace(trial, whole=whole)
            # Random numbers may choose another path in each pass.
            for seed in range(1, OTHER_SEEDS + 1) if reference.drew else ():
                if problem is None:
                    other, _ = check.plain(graph, seed=seed)
                    problem, _ = check.compare(trial, other, seed)
            real = check.real_graph(part)
            if problem is None and part.ranks.rank == 0 and real is not None:
                assert isinstance(part, GraphPart)
                problem = check.compare_on_real_graph(part, real, trial.fast, trial.whole)
        if problem is not None:
            raise problem
        check.sites.closed = True
        # A comparison on the real graph has reached what the training reaches; else the training is
        # held to the call sites of the small graph.
        held = part.ranks.size > 1 and real is None
        if held and check.sites.local_count:
            raise ConfigError(
                f"the model takes {check.sites.local_count}, the number of local rows, on a graph "
                "that is too large to compare",
                where="model",
                allowed="x.size(0), with which Python computes as on one process",
                fix="x.size(0) instead, or train on one process",
            )
        sites = check.sites if held else None
        return Proof(trial.fast, trial.whole, grid.size, off, 0.0, sites=sites)
    assert refusal is not None
    raise refusal


def _attempts(part: Part) -> Iterator[tuple[Precision, Graph]]:
    """Yield precisions and small graphs for the check; the first with which the model runs counts.

    A model may compute in float32 in any case, or read its features as numbers of classes.
    """
    graphs = [proof_graph(part.inputs)]
    if isinstance(part, GraphPart) and part.num_nodes:
        rows = np.linspace(0, part.num_nodes - 1, NODES).astype(np.int64)
        graphs.append(proof_graph(part.inputs, part.graph.dense_features(rows)))
    for graph in graphs:
        yield DOUBLE, graph
        yield SINGLE, graph


@contextmanager
def _random_state_restored() -> Iterator[None]:
    """Return a context with gradients that restores the random states at its end."""
    state = rng_state()
    try:
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the training gives them
            yield
    finally:
        set_rng_state(state)
