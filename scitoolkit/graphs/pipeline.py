"""Training, evaluation and prediction of node models."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn

from scitoolkit.core.contracts import Loader, Task
from scitoolkit.core.data_facts import DataFacts, Var
from scitoolkit.core.devices import device_of, placed
from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Bars, Figure, Results, Table, Verdict
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.graphs import baselines, out_of_core, sharing
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.graphs.facts import node_facts, require_trained
from scitoolkit.graphs.graph import Graph, GraphInputs
from scitoolkit.graphs.grid import Grid
from scitoolkit.graphs.losses import predictions
from scitoolkit.graphs.own_inputs import OwnInputs, open_parts, own_inputs, read_whole
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.proof import attach
from scitoolkit.graphs.sampling import sampled
from scitoolkit.graphs.targets import TARGETS
from scitoolkit.graphs.task import task_of
from scitoolkit.io.fields import write_fields
from scitoolkit.io.split import SPLITS
from scitoolkit.training import Trainer, best_weights, current_rank
from scitoolkit.training.processes import gather_objects
from scitoolkit.training.ranks.communicator import SingleProcess

log: Logger = get_logger(__name__)


def check(config: GraphConfig) -> Mapping[str, Any]:
    """Read and partition the graph and run one batch; writes nothing."""
    own = own_inputs(config)
    model = _model(config, own)
    task, loaders = _task_and_loaders(config, own, model)
    loss, _ = task.loss(next(iter(loaders["train"])))
    return {
        "nodes": own.part.num_nodes,
        "edges": own.num_edges,
        **own.edge_facts(),
        "features": own.part.inputs.num_features,
        config.data.target: own.num_outputs,
        "parts": own.sizes,
        "parameters": sum(p.numel() for p in model.parameters()),
        "algorithm": str(own.part.grid),
        "first_loss": float(loss.detach()),
    }


def train(config: GraphConfig, run: RunDirectory, *, resume: bool = False) -> None:
    """Train on all processes; save the weights with the lowest validation loss in `model/`."""
    own = own_inputs(config)
    part = own.part
    log.info("%d local nodes of %d, %s", len(part.nodes), part.num_nodes, part.grid)
    task, loaders = _task_and_loaders(config, own, _model(config, own))
    trainer = Trainer(task, config.training, run=run)
    trainer.fit(loaders["train"], loaders.get("validation"), resume=resume)
    traffic = part.ranks.traffic
    log.info("received %.1f MB in %d messages", traffic.bytes / 1e6, traffic.messages)
    received = gather_objects(int(traffic.bytes))
    if current_rank() != 0:
        return
    model_folder = ModelFolder.create(run)
    model_folder.save_weights(best_weights(run.checkpoints))
    model_folder.save_facts(node_facts(part.inputs, config.data.target, own.num_outputs))
    shape: dict[str, Any] = {
        "features": part.inputs.num_features,
        "outputs": own.num_outputs,
        "edge_inputs": [*part.inputs.of_edges, *part.inputs.of_nodes],
        "edge_types": part.inputs.edge_types,
        "edge_features": part.inputs.edge_features,
        "node_types": part.inputs.node_types,
        "receivers": list(part.inputs.receivers),
    }
    if own.moments is not None:
        shape |= {"mean": own.moments[0].tolist(), "deviation": own.moments[1].tolist()}
    record = {
        **shape,
        "processes": part.ranks.size,
        "grid": str(part.grid),
        "received_bytes": received,
    }
    model_folder.finish(run, record)


def evaluate(directory: Path, data: Path | None = None) -> Results:
    """Evaluate on the test part of the run's graph, or of another file.

    Writes results.json and model/metrics.json to a run directory; with `data` nothing is written.
    """
    folder = ModelFolder(directory)
    config, record = folder.config(GraphConfig), folder.record()
    graph = read_whole(config.data, config.data.path if data is None else data)
    found = _infer(config, folder, record, graph)
    results = _results(graph, found, record, config)
    folder.write_results(results, data)
    return results


def predict(directory: Path, source: Path, output: Path) -> None:
    """Write the prediction for every node of a graph to a file for xarray.

    Contains classes and probabilities, labels and probabilities, or values.
    """
    folder = ModelFolder(directory)
    config, record = folder.config(GraphConfig), folder.record()
    found = _infer_by_parts(config, folder, record, source) if Path(source).is_dir() else None
    if found is None:
        found = _infer(config, folder, record, read_whole(config.data, source))
    target = TARGETS[config.data.target]
    dataset = xr.Dataset(
        target.variables(found),
        coords={"node": np.arange(len(found)), "label": np.arange(found.shape[1])},
        attrs={"title": f"{config.data.target} of the nodes of {Path(source).name}"},
    )
    write_fields(dataset, output)


def _task_and_loaders(
    config: GraphConfig, own: OwnInputs, model: nn.Module
) -> tuple[Task, Mapping[str, Loader]]:
    if config.sampling is not None:
        return sampled(config, own, model)
    seed = config.training.seed
    task = task_of(config.data.target, model, own.part, seed, own.moments, own.weights)
    return task, own.loaders


def _model(config: GraphConfig, own: OwnInputs) -> nn.Module:
    """Return the model, equal on all processes."""
    torch.manual_seed(config.seed)
    inputs = own.part.inputs
    types = inputs.node_types, inputs.receivers
    model = config.model.for_graph(inputs.edge_types, inputs.edge_features, *types)
    return model.build(inputs.num_features, own.num_outputs)


@torch.no_grad()
def _infer(
    config: GraphConfig, folder: ModelFolder, record: dict[str, Any], graph: Graph
) -> np.ndarray:
    """Full-graph inference; return probabilities or values, shape (N, outputs).

    Deterministic, without sampling.
    """
    target = config.data.target
    outputs = None if graph.labels is None else graph.num_classes
    _check_inputs(config, folder, record, node_facts(graph.inputs, target, outputs), graph.where)
    for what, count in (("edge", graph.inputs.edge_types), ("node", graph.inputs.node_types)):
        trained = record.get(f"{what}_types", count if what == "node" else 0)
        if count > trained:
            raise DataError(
                f"{count} types of {what}s",
                where=graph.where,
                allowed=f"at most the {trained} of training",
            )
    model = placed(_trained(config, folder, record))
    part = GraphPart(graph, np.zeros(graph.num_nodes, np.int64), Grid(1), SingleProcess())
    nodes = part.nodes.numpy()
    x = sharing.normalised_features(graph, config.data.normalise, nodes)
    own = attach(model, part)(x.to(device_of(model))).cpu()
    return _postprocessed(config, record, torch.empty_like(own).index_copy_(0, part.nodes, own))


def _infer_by_parts(
    config: GraphConfig, folder: ModelFolder, record: dict[str, Any], path: Path
) -> np.ndarray | None:
    """Out-of-core inference on a partitioned graph; None if the model does not support it."""
    graph, model = open_parts(config.data, path), _trained(config, folder, record)
    header, used = graph.header, config.data.edge_inputs == "use"
    inputs = GraphInputs(
        header["num_features"],
        used and header["edge_weight"],
        tuple(header["edge_attr"]) if used and header["edge_attr"] is not None else None,
    )
    outputs = header["num_outputs"] or None
    _check_inputs(
        config, folder, record, node_facts(inputs, config.data.target, outputs), str(path)
    )
    if why := out_of_core.why_not(model, inputs):
        log.warning("%s: the whole graph is read into memory", why)
        return None
    prepare = sharing.preparation(graph, config.data.normalise)
    with tempfile.TemporaryDirectory(dir=path) as scratch:
        out = out_of_core.infer(model, graph, inputs, Path(scratch), prepare)
    return _postprocessed(config, record, torch.from_numpy(out))


def _trained(config: GraphConfig, folder: ModelFolder, record: dict[str, Any]) -> nn.Module:
    made = config.model.for_graph(
        record.get("edge_types", 0),
        record.get("edge_features", 0),
        record.get("node_types", 0),
        tuple(record.get("receivers", ())),
    )
    model = made.build(record["features"], record["outputs"]).eval()
    model.load_state_dict(folder.load_weights())
    return model


def _check_inputs(
    config: GraphConfig, folder: ModelFolder, record: dict[str, Any], facts: DataFacts, where: str
) -> None:
    """Check that a graph has the node features, edge inputs and target of the training graph."""
    require_trained(folder.facts() or _recorded_facts(config, record, facts), facts, where)


def _recorded_facts(config: GraphConfig, record: dict[str, Any], facts: DataFacts) -> DataFacts:
    """Return the facts in a record of an earlier version, without shapes of edge features."""
    width, outputs = record["features"], record["outputs"]
    nodes = node_facts(GraphInputs(width), config.data.target, outputs).variables
    edges = [v.name for v in facts.variables if v.role == "edge"]
    stated = record.get("edge_inputs", edges)
    return DataFacts((*nodes, *(facts.var(n) or Var(n, role="edge") for n in stated)))


def _postprocessed(config: GraphConfig, record: dict[str, Any], out: torch.Tensor) -> np.ndarray:
    """Return probabilities, or values in their original unit."""
    return predictions(config.data.target, out, record.get("mean", ()), record.get("deviation", ()))


def _results(
    graph: Graph, averages: np.ndarray, record: dict[str, Any], config: GraphConfig
) -> Results:
    target, name = graph.learned, config.model.name
    if graph.num_classes > record["outputs"]:
        raise DataError(
            f"{graph.num_classes} {config.data.target}",
            where=graph.where,
            allowed=f"at most the {record['outputs']} of training",
        )
    found = {name: target.decided(averages)}
    if len(graph.parts.get("train", ())):
        found["label propagation"] = baselines.label_propagation(graph)
        found[target.plain] = baselines.majority(graph)
    parts = [part for part in SPLITS if len(graph.parts.get(part, ()))]
    if not parts:
        raise DataError("no labelled part to evaluate on", where=graph.where, allowed="key `test`")
    figures = {
        method: {
            part: target.figures(graph.known_labels[graph.parts[part]], each[graph.parts[part]])
            for part in parts
        }
        for method, each in found.items()
    }
    judged, merit = parts[-1], target.merit
    metrics: dict[str, Any] = {f"{p}_{merit}": figures[name][p][merit] for p in parts}
    for method in list(found)[1:]:
        key = f"{judged}_{merit}_{method.replace(' ', '_')}"
        metrics[key] = figures[method][judged][merit]
    metrics |= {k: value for k, value in figures[name][judged].items() if k != merit}
    rows: list[list[Any]] = [
        [method, *(each[p][merit] for p in parts)] for method, each in figures.items()
    ]
    return Results(
        title=f"{config.data.target.capitalize()} of nodes: {Path(graph.where).name}",
        verdict=Verdict.among(
            {method: each[judged][merit] for method, each in figures.items()},
            name,
            f"{judged} {merit} of {name}",
            better=target.better,
            rate=False,
        ),
        summary=[
            f"{graph.num_nodes} nodes, {graph.num_edges} directed edges, "
            f"{graph.num_classes} {config.data.target}; evaluated on the {judged} split.",
            f"Trained on {_processes(record['processes'])} ({record['grid']}).",
        ],
        metrics=metrics,
        tables=[
            Table(
                title=merit.capitalize(), columns=["method", *parts], rows=rows, best=target.better
            )
        ],
        figures=_figures(
            {m: each[judged][merit] for m, each in figures.items()}, judged, merit, record
        ),
    )


def _processes(number: int) -> str:
    return f"{number} process{'es' * (number != 1)}"


def _figures(
    scores: Mapping[str, float], part: str, merit: str, record: Mapping[str, Any]
) -> list[Figure]:
    """Return bars of the metric of each method, and of the traffic between processes."""
    figures: list[Figure] = [
        Bars(
            title=f"{part.capitalize()} {merit} compared with the baselines",
            labels=list(scores),
            values=list(scores.values()),
            x_label=f"{part} {merit}",
            marked=0,
        )
    ]
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
