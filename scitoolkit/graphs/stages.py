"""The stages of node models: what differs from other surrogates in the life of `surrogate`.

Data are a `NodeGraph`. Samples are its labelled nodes: those of train, then validation, then test;
which nodes these are, the file states.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn

from scitoolkit.core.contracts import Loader, Task
from scitoolkit.core.data_differences import compare, refuse
from scitoolkit.core.data_facts import DataFacts, Var
from scitoolkit.core.devices import device_of, placed
from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.results import Bars, Figure, Results, Verdict, metric_words
from scitoolkit.graphs import baselines, out_of_core, sharing
from scitoolkit.graphs.columns import (
    column_moments,
    refuse_marked_columns,
    usual_columns,
    warn_of_columns,
)
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.graphs.facts import ACCEPTS, node_facts, require_types
from scitoolkit.graphs.graph import GraphInputs
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.losses import predictions
from scitoolkit.graphs.node_data import NodeData, numbered_parts
from scitoolkit.graphs.node_graph import NodeGraph
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.proof import attach
from scitoolkit.graphs.sampling import sampled_loader, sampled_task
from scitoolkit.graphs.stored_part import StoredPart
from scitoolkit.graphs.targets import TARGETS
from scitoolkit.graphs.task import task_of
from scitoolkit.graphs.weighting import require_positive_degrees
from scitoolkit.graphs.worst import degree_bars, worst_table
from scitoolkit.io.split import SPLITS
from scitoolkit.surrogate import Opened, Stages, Trained
from scitoolkit.surrogate.ensemble import members_of
from scitoolkit.surrogate.sections import score_bars, score_table
from scitoolkit.surrogate.stages import Rows
from scitoolkit.training.processes import gather_objects, raise_together
from scitoolkit.training.ranks.communicator import SingleProcess

log: Logger = get_logger(__name__)


class GraphStages(NodeData, Stages):
    """Stages of a job that trains on a graph, whose parts the processes hold."""

    start_settings = ("model", "data.normalise", "data.edge_inputs", "data.target")
    remeasured = ("columns",)

    def measure(self, config: GraphConfig, data: NodeGraph, rows: Rows) -> Mapping[str, Any]:
        """Return sizes and names of the inputs, moments of these and of values."""
        own, inputs = data.own, data.inputs
        if isinstance(own.part, StoredPart):
            arrays = data.arrays([own.part.files])
            columns = column_moments(arrays, gather_objects)
        else:
            if config.model.divides_by_degrees:
                require_positive_degrees(data.whole)
            arrays = data.arrays()
            columns = column_moments(arrays)
        error = None
        try:
            if not config.data.allow_suspect:
                refuse_marked_columns(arrays, data.where)
        except DataError as own_error:
            error = own_error
        raise_together(error)  # other ranks may have other rows, and would wait for this one
        measured: dict[str, Any] = {
            **inputs.measured(),
            "outputs": own.num_outputs,
            "edge_inputs": [*inputs.of_edges, *inputs.of_nodes],
            "columns": usual_columns(columns),
        }
        if own.moments is not None:
            mean, deviation = own.moments
            measured |= {"mean": mean.tolist(), "deviation": deviation.tolist()}
        return measured

    def build(self, config: GraphConfig, facts: Any, measured: Any, seed: int) -> nn.Module:
        """Return an untrained model, equal on all processes.

        Its attribute `measured` tells what its outputs mean; weights do not hold it.
        """
        torch.manual_seed(seed)
        model: Any = config.model.build_for(measured, measured["outputs"])
        model.measured = dict(measured)
        return model

    def task(self, config: GraphConfig, opened: Opened, model: nn.Module) -> Task:
        """Return loss and metrics of the labelled nodes of all processes, or of a batch."""
        own = opened.data.own
        if config.start is not None and own.moments is not None:
            mean, deviation = (np.array(opened.measured[n]) for n in ("mean", "deviation"))
            own = replace(own, moments=(mean, deviation))
        if config.sampling is not None:
            return sampled_task(config, own, model)
        log.info("%d local nodes of %d, %s", len(own.part.nodes), own.part.num_nodes, own.part.grid)
        seed = config.training.seed
        return task_of(config.data.target, model, own.part, seed, own.moments, own.weights)

    def loader(self, config: GraphConfig, opened: Opened, part: str, model: Any) -> Loader:
        """Return the one batch of this process's labelled nodes, or sampled neighbourhoods."""
        if config.sampling is None:
            return opened.data.own.loaders[part]
        graph = opened.data.whole
        how, every = config.data.normalise, np.arange(graph.num_nodes)
        x = opened.once("features", lambda: sharing.normalised_features(graph, how, every))
        return sampled_loader(config, graph, x, part)

    def describe(self, opened: Opened) -> Mapping[str, Any]:
        """Return the sizes of the graph and of its parts."""
        data: NodeGraph = opened.data
        own = data.own
        return {
            "nodes": own.part.num_nodes,
            "edges": own.num_edges,
            **own.edge_facts(),
            "features": data.inputs.num_features,
            data.config.target: own.num_outputs,
            "parts": data.sizes,
            "algorithm": str(own.part.grid),
        }

    def conclude(self, config: GraphConfig, opened: Opened, model: Any) -> Mapping[str, Any]:
        """Return what was measured, how the graph was divided and what each process received."""
        part = opened.data.own.part
        traffic = part.ranks.traffic
        log.info("received %.1f MB in %d messages", traffic.bytes / 1e6, traffic.messages)
        return {
            **{key: value for key, value in opened.measured.items() if key != "columns"},
            "processes": part.ranks.size,
            "grid": str(part.grid),
            "received_bytes": gather_objects(int(traffic.bytes)),
        }

    def report(
        self, trained: Trained, data: NodeGraph, rows: Rows | None
    ) -> tuple[Results, xr.Dataset | None]:
        """Compare with the baselines on each part of the file; judge the last one."""
        record, parts = trained.folder.record(), list(SPLITS)
        return _scored(trained.config, trained.model, data, parts, record), None

    def evaluate(
        self, config: GraphConfig, model: Any, data: NodeGraph, rows: Rows | None
    ) -> Results:
        """Compare with the baselines on the parts of which nodes are given."""
        numbered = numbered_parts(data)
        chosen = [part for part in SPLITS if rows is None or set(rows) & set(numbered[part])]
        return _scored(config, model, data, chosen, {})

    def predict(self, config: GraphConfig, model: Any, data: NodeGraph, output: Path) -> xr.Dataset:
        """Return classes, labels or values of all nodes, with probabilities; see `Target`."""
        answers = None if data.stored is None else _inferred_by_parts(config, model, data)
        if answers is None:
            answers = _inferred(config, model, data)
        return xr.Dataset(
            TARGETS[config.data.target].variables(answers),
            coords={"node": np.arange(len(answers)), "label": np.arange(answers.shape[1])},
            attrs={"title": f"{config.data.target} of the nodes of {data.path.name}"},
        )


@torch.no_grad()
def _inferred(config: GraphConfig, model: Any, data: NodeGraph) -> np.ndarray:
    """Full-graph inference; return probabilities or values, shape (N, outputs).

    Deterministic, without sampling.
    """
    graph = data.whole
    measured = measured_of(model)
    _require_inputs(config, measured, data)
    require_types(measured, graph.inputs, graph.where)
    # Folders of former versions hold no moments.
    warn_of_columns(measured.get("columns", {}), column_moments(data.arrays()), data.where)
    part = GraphPart(graph, np.zeros(graph.num_nodes, np.int64), ProcessGrid(1), SingleProcess())
    nodes = part.nodes.numpy()
    x = sharing.normalised_features(graph, config.data.normalise, nodes)
    x = x.to(device_of(placed(model)))
    own = _mean(model, lambda member: attach(member, part)(x).cpu())
    return _postprocessed(config, model, torch.empty_like(own).index_copy_(0, part.nodes, own))


def _inferred_by_parts(config: GraphConfig, model: Any, data: NodeGraph) -> np.ndarray | None:
    """Out-of-core inference on a partitioned graph; None if the model does not support it."""
    assert data.stored is not None
    _require_inputs(config, measured_of(model), data)
    if why := out_of_core.why_not(members_of(model)[0], data.inputs):
        log.warning("%s: the whole graph is read into memory", why)
        return None
    stored, trained = data.stored, measured_of(model).get("columns", {})
    parts = [stored.part(number, verify=False) for number in range(stored.num_parts)]
    warn_of_columns(trained, column_moments(data.arrays(parts)), data.where)
    prepare = sharing.preparation(stored, config.data.normalise)

    def infer(member: nn.Module) -> torch.Tensor:
        with tempfile.TemporaryDirectory(dir=data.path) as scratch:
            out = out_of_core.infer(member, stored, data.inputs, Path(scratch), prepare)
        return torch.from_numpy(out)

    return _postprocessed(config, model, _mean(model, infer))


def _mean(model: nn.Module, answer: Callable[[nn.Module], torch.Tensor]) -> torch.Tensor:
    """Return the mean of the members' outputs, or the output of the model."""
    outputs = [answer(member) for member in members_of(model)]
    return outputs[0] if len(outputs) == 1 else torch.stack(outputs).mean(0)


def measured_of(model: Any) -> Mapping[str, Any]:
    """Return what was measured on the training data, which a model of graphs holds."""
    first: Any = members_of(model)[0]
    measured: Mapping[str, Any] = first.measured
    return measured


def _require_inputs(config: GraphConfig, measured: Mapping[str, Any], data: NodeGraph) -> None:
    """Refuse a graph without the inputs of the training, or with others.

    Folders of former versions hold no facts; what was measured tells features, outputs and, in
    later ones, the names of edge inputs.
    """
    facts = node_facts(data.inputs, config.data.target, data.num_outputs)
    width, outputs = measured["features"], measured["outputs"]
    nodes = node_facts(GraphInputs(width), config.data.target, outputs).variables
    edges = [v.name for v in facts.variables if v.role == "edge"]
    stated = measured.get("edge_inputs", edges)
    trained = DataFacts((*nodes, *(facts.var(n) or Var(n, role="edge") for n in stated)))
    refuse(compare(trained, facts, ACCEPTS), data.where)


def _postprocessed(config: GraphConfig, model: Any, out: torch.Tensor) -> np.ndarray:
    """Return probabilities, or values in their original unit."""
    mean, deviation = (measured_of(model).get(key, ()) for key in ("mean", "deviation"))
    return predictions(config.data.target, out, mean, deviation)


def _scored(
    config: GraphConfig,
    model: Any,
    data: NodeGraph,
    chosen: Sequence[str],
    record: Mapping[str, Any],
) -> Results:
    """Return the scores on some parts, the last of which is judged."""
    averages, graph = _inferred(config, model, data), data.whole
    outputs = measured_of(model)["outputs"]
    target, name = graph.learned, config.model.name
    if graph.num_classes > outputs:
        raise DataError(
            f"{graph.num_classes} {config.data.target}",
            where=graph.where,
            allowed=f"at most the {outputs} of training",
        )
    decided = {name: target.decided(averages)}
    if len(graph.parts.get("train", ())):
        decided["label propagation"] = baselines.label_propagation(graph)
        decided[target.plain] = baselines.majority(graph)
    parts = [part for part in chosen if len(graph.parts.get(part, ()))]
    if not parts:
        raise DataError("no labelled part to evaluate on", where=graph.where, allowed="key `test`")
    figures = {
        method: {
            part: target.figures(graph.known_labels[graph.parts[part]], answers[graph.parts[part]])
            for part in parts
        }
        for method, answers in decided.items()
    }
    judged, merit = parts[-1], target.merit
    by_part = {m: {p: of_parts[p][merit] for p in parts} for m, of_parts in figures.items()}
    scores = {method: of_parts[judged] for method, of_parts in by_part.items()}
    metrics: dict[str, Any] = {f"{p}_{merit}": score for p, score in by_part[name].items()}
    for method in list(scores)[1:]:
        metrics[f"{judged}_{merit}_{method.replace(' ', '_')}"] = scores[method]
    metrics |= {k: value for k, value in figures[name][judged].items() if k != merit}
    summary = [
        f"{graph.num_nodes} nodes, {graph.num_edges} directed edges, "
        f"{graph.num_classes} {config.data.target}; evaluated on the {judged} split."
    ]
    if record and record["processes"] > 1:
        summary.append(f"Trained on {record['processes']} processes ({record['grid']}).")
    nodes = graph.parts[judged]
    truth, answers = graph.known_labels[nodes], decided[name][nodes]
    return Results(
        title=f"{config.data.target.capitalize()} of nodes: {Path(graph.where).name}",
        verdict=Verdict.among(
            scores,
            name,
            f"{judged} {metric_words(merit)} of {name}",
            better=target.better,
            rate=target.better == "min",
        ),
        summary=summary,
        metrics=metrics,
        tables=[
            score_table(f"Splits: {metric_words(merit)}", by_part, target.better),
            worst_table(target, truth, answers, nodes),
        ],
        figures=[
            *_figures(scores, judged, merit, record),
            degree_bars(target, truth, answers, graph.in_degrees()[nodes], judged),
        ],
    )


def _figures(
    scores: Mapping[str, float], part: str, merit: str, record: Mapping[str, Any]
) -> list[Figure]:
    """Return bars of the metric of each method, and of the traffic between processes."""
    label = f"{part} {metric_words(merit)}"
    figures: list[Figure] = [score_bars(label, scores, label)]
    received = record.get("received_bytes", [])  # not in records of earlier versions
    if len(received) > 1:
        figures.append(
            Bars(
                title="Data received during training",
                x_label="MB",
                labels=[f"process {rank}" for rank in range(len(received))],
                values=[count / 1e6 for count in received],
            )
        )
    return figures
