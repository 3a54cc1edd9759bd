"""Comparison of a model on simulated ranks with the plain model, and its refusals."""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.adapter import detach, distribute
from scitoolkit.graphs.call_sites import CallSites
from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.part import GraphPart, Part
from scitoolkit.graphs.proof_graph import EDGES, NODES
from scitoolkit.graphs.proof_trace import (
    NoRows,
    Precision,
    Trace,
    plain_trace,
    relative_error,
    traced,
)
from scitoolkit.training.ranks.communicator import Communicator
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic

REAL_GRAPH = 400_000  # nodes and edges up to which the real graph is compared as well


def copied_model(model: nn.Module) -> nn.Module:
    """Return a copy on the CPU, without the forward method of `distribute`."""
    attached = model.__dict__.pop("forward", None)
    # Tensors computed from parameters, as by weight_norm, cannot be deep-copied.
    computed = {
        id(value): value.detach().clone()
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    try:
        return copy.deepcopy(model, computed).to("cpu")
    finally:
        if attached is not None:
            model.forward = attached


@dataclass(frozen=True)
class RankTrial:
    """One way to distribute a model over simulated ranks.

    Attributes:
        graph: that the model runs on.
        owner: rank of each node.
        grid: of the ranks.
        fast: layers computed by sparse products.
        whole: modules computed on the rows of all ranks.
    """

    graph: Graph
    owner: np.ndarray
    grid: ProcessGrid
    fast: tuple[str, ...]
    whole: tuple[str, ...] = ()


class RankComparison:
    """Comparison of a model on simulated ranks with the plain model.

    Args:
        model: not modified.
        precision: of the comparison.

    Attributes:
        sites: places in the user's code that the distributed model has reached.
    """

    def __init__(self, model: nn.Module, precision: Precision) -> None:
        self._model, self._precision = model, precision
        self.sites: CallSites = CallSites()

    def plain(
        self, graph: Graph, *, gradients: bool = True, seed: int = 0
    ) -> tuple[Trace, tuple[str, ...]]:
        """Run the plain model; return its trace and the layers that equal their sparse form."""
        copied = detach(copied_model(self._model)).to(self._precision.dtype).train()
        return plain_trace(copied, graph, self._precision, gradients=gradients, seed=seed)

    def compare(
        self, trial: RankTrial, reference: Trace, seed: int = 0
    ) -> tuple[ConfigError | None, float]:
        """Run on simulated ranks; return an error or None, and the largest difference."""
        graph, owner, grid = trial.graph, trial.owner, trial.grid
        if not seed:
            self.sites.forget()
        failed: list[tuple[Trace, Exception]] = []
        gradients = "gradient of the input" in reference.rows

        # A single rank may hold its nodes in another order, too.
        order = np.random.default_rng(4).permutation(len(owner)) if grid.size == 1 else None

        def work(ranks: Communicator) -> tuple[Trace, Tensor]:
            part = GraphPart(graph, owner, grid, ranks, order)
            copied = copied_model(self._model).to(self._precision.dtype).train()
            distributed = distribute(
                copied, part, trial.fast, whole=trial.whole, check_seed=seed, sites=self.sites
            )
            nodes = part.nodes
            trace = traced(
                distributed,
                distributed,
                graph,
                nodes,
                self._precision,
                gradients=gradients,
                seed=seed,
            )
            if trace.error is not None:
                failed.append((trace, trace.error))
                raise trace.error
            return trace, nodes

        try:
            done = run_ranks(grid.size, work, Traffic)
            self.sites.note_differences(grid.size)
        except threading.BrokenBarrierError:
            return refusal([], "the ranks deadlock", grid.size), np.inf
        except Exception:
            if not failed:
                raise
            # The first failure in time; the other ranks break off at their next collective.
            trace, error = failed[0]
            return refused(trace.inside, error, grid.size), np.inf
        errors = self._errors(done, reference)
        worst = max(errors, key=lambda name: errors[name])
        if errors[worst] < self._precision.limit:
            return None, errors[worst]
        what = f"{worst} is {errors[worst]:.1e} off that of the plain model"
        module = self._first_difference(done, reference)
        fix = "train on one process"
        if count := self.sites.local_count:
            fix = f"x.size(0) instead of {count}, the number of local rows; or {fix}"
        return refusal([module], what, grid.size, fix=fix), errors[worst]

    def with_whole_modules(
        self, trial: RankTrial, reference: Trace, problem: Any
    ) -> tuple[ConfigError | None, float, tuple[str, ...]]:
        """Compare with the modules that fail on the rows of all ranks; return also their names."""
        whole = trial.whole
        first, off = problem, np.inf
        name = getattr(problem, "module", "")
        while name:
            more = (*whole, name)
            problem, off = self.compare(replace(trial, whole=more), reference)
            if problem is None:
                return None, off, more
            later = getattr(problem, "module", "")
            if later != name and not later.startswith(f"{name}."):
                whole, name = (more, later) if later not in more else (whole, "")
            else:
                name = name.rpartition(".")[0]  # the module that contains it
        return first, off, ()

    def real_graph(self, part: Part) -> Graph | None:
        """Return the real graph if it is small and in memory, on every process of several."""
        if not isinstance(part, GraphPart) or part.ranks.size == 1:
            return None
        real = part.graph
        if max(real.num_nodes + real.num_edges, real.features.size // 32) > REAL_GRAPH:
            return None
        if not np.bincount(part.owner[real.target], minlength=part.ranks.size).all():
            return None  # `_without_edges` decides
        features = real.dense_features(np.arange(real.num_nodes))
        return replace(real, features=features, labels=None, parts={})

    def compare_on_real_graph(
        self, part: GraphPart, real: Graph, fast: tuple[str, ...], whole: tuple[str, ...]
    ) -> ConfigError | None:
        """Compare outputs on the real graph, with its partition."""
        reference, _ = self.plain(real, gradients=False)
        if reference.error is not None:
            return refused(reference.inside, reference.error, 1)
        problem, _ = self.compare(RankTrial(real, part.owner, part.grid, fast, whole), reference)
        if problem is None:
            return None
        return Unproven(f"{problem.what}, on the real graph", where="model", fix=problem.fix)

    def _errors(self, done: list[tuple[Trace, Tensor]], reference: Trace) -> dict[str, float]:
        """Return relative differences of sums over ranks, of rows by node and of buffers."""
        tensors = (*reference.tensors.values(), reference.rows["output"])
        # A gradient that is zero but for rounding has no scale to be relative to: the largest
        # number of the run, times a small share, is the least scale of all.
        floor = self._precision.floor * max(float(t.abs().max()) for t in tensors if t.numel())
        errors = {}
        for name, wanted in reference.tensors.items():
            # The loss of each rank is a sum over its rows, so that losses and gradients of
            # parameters add.
            total = torch.stack([trace.tensors[name] for trace, _ in done]).sum(0)
            errors[name] = relative_error(total, wanted, floor)
        for name, wanted in reference.rows.items():
            errors[name] = max(
                relative_error(trace.rows[name], wanted[nodes], floor) for trace, nodes in done
            )
        for name, wanted in reference.buffers.items():
            errors[f"buffer {name}"] = max(
                relative_error(trace.buffers[name], wanted, floor) for trace, _ in done
            )
        return errors

    def _first_difference(self, done: list[tuple[Trace, Tensor]], reference: Trace) -> str:
        num_nodes = len(reference.rows["output"])
        for number, (name, wanted) in enumerate(reference.outputs):
            for trace, nodes in done:
                if number >= len(trace.outputs) or trace.outputs[number][0] != name:
                    return name
                own = trace.outputs[number][1]
                here = wanted[nodes] if wanted.shape[:1] == (num_nodes,) else wanted
                floor = self._precision.floor * float(wanted.abs().max())
                if own.shape != here.shape:
                    continue  # rows that the layer has on this rank only
                if not relative_error(own, here, floor) < self._precision.limit:
                    return name
        return ""


class Unproven(ConfigError):
    """Error for a model that is not shown to be equal to the plain one on several ranks.

    Attributes:
        module: name of the innermost module that was running, empty for the model itself.
    """

    module: str = ""


def refused(inside: list[str], error: Exception, ranks: int) -> ConfigError:
    """Return the error for a model that raises on the small graph."""
    if isinstance(error, NoRows):
        return error
    if isinstance(error, ConfigError):
        return refusal(inside, error.what, ranks, error.allowed, error.fix)
    message = str(error).splitlines()[0][:200] if str(error) else ""
    what = f"{type(error).__name__}: {message}"
    if ranks > 1:
        return refusal(inside, what, ranks)
    graph = f"on a graph of {NODES} nodes and {EDGES} edges, not distributed"
    return refusal(inside, f"{what}, {graph}", 1, fix="a model that runs on a graph of any size")


def refusal(
    inside: list[str], what: str, ranks: int, allowed: str = "", fix: str = "train on one process"
) -> Unproven:
    """Return the error that names the innermost of the modules that were running."""
    module = f"module {inside[-1]}: " if inside and inside[-1] else ""
    on = f", on {ranks} simulated ranks" if ranks > 1 else ""
    error = Unproven(f"{module}{what}{on}", where="model", allowed=allowed, fix=fix)
    name = inside[-1].split(" ")[0] if inside else ""
    error.module = "" if name.startswith("(") else name
    return error
