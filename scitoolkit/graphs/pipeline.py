"""Training, evaluation and application of classifiers of the nodes of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Lines, Results, Series, Table, Verdict
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.graphs import baselines, sharing
from scitoolkit.graphs.communicator import SingleProcess
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.grid import Grid
from scitoolkit.graphs.own_inputs import OwnInputs, own_inputs, read_whole
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.proof import attach
from scitoolkit.graphs.task import NodeClassification
from scitoolkit.io.fields import write_fields
from scitoolkit.io.split import SPLITS
from scitoolkit.training import Trainer, best_weights, current_rank

log: Logger = get_logger(__name__)


def check(config: GraphConfig) -> Mapping[str, Any]:
    """Read the graph, share it, run one batch; write nothing."""
    own = own_inputs(config)
    model = _model(config, own)
    task = NodeClassification(model, own.part, config.training.seed)
    loss, _ = task.loss(next(iter(own.loaders["train"])))
    return {
        "nodes": own.part.num_nodes,
        "edges": own.num_edges,
        **own.edge_facts(),
        "features": own.part.inputs.num_features,
        "classes": own.num_classes,
        "parts": own.sizes,
        "parameters": sum(p.numel() for p in model.parameters()),
        "algorithm": str(own.part.grid),
        "first_loss": float(loss.detach()),
    }


def train(config: GraphConfig, run: RunDirectory, *, resume: bool = False) -> None:
    """Train on all processes; save the weights of the lowest validation loss in `model/`."""
    own = own_inputs(config)
    part = own.part
    log.info("%d own nodes of %d, %s", len(part.nodes), part.num_nodes, part.grid)
    task = NodeClassification(_model(config, own), part, config.training.seed)
    trainer = Trainer(task, config.training, run=run)
    trainer.fit(own.loaders["train"], own.loaders.get("validation"), resume=resume)
    traffic = part.ranks.traffic
    log.info("received %.1f MB in %d messages", traffic.bytes / 1e6, traffic.messages)
    if current_rank() != 0:
        return
    model_folder = ModelFolder.create(run)
    model_folder.save_weights(best_weights(run.checkpoints))
    shape = {"features": part.inputs.num_features, "classes": own.num_classes}
    record = {**shape, "processes": part.ranks.size, "grid": str(part.grid)}
    model_folder.finish(run, record)


def evaluate(directory: Path, data: Path | None = None) -> Results:
    """Evaluate on the test part of the run's own graph, or of another file's.

    A run directory gets results.json and model/metrics.json; with `data` nothing is written.
    """
    folder = ModelFolder(directory)
    config, record = folder.config(GraphConfig), folder.record()
    graph = read_whole(config.data, config.data.path if data is None else data)
    logits = _logits(config, folder, record, graph)
    results = _results(graph, logits, record, config)
    if folder.in_run and data is None:
        _add_training(results, RunDirectory.open(directory))
    folder.write_results(results, data)
    return results


def predict(directory: Path, source: Path, output: Path) -> None:
    """Write class and probabilities of every node of a graph, as a file that xarray opens."""
    folder = ModelFolder(directory)
    config, record = folder.config(GraphConfig), folder.record()
    graph = read_whole(config.data, source)
    probability = _logits(config, folder, record, graph).softmax(1).numpy()
    dataset = xr.Dataset(
        {
            "class": ("node", probability.argmax(1)),
            "probability": (("node", "label"), probability, {"units": "1"}),
        },
        coords={"node": np.arange(len(probability)), "label": np.arange(probability.shape[1])},
        attrs={"title": f"classes of the nodes of {Path(source).name}"},
    )
    write_fields(dataset, output)


def _model(config: GraphConfig, own: OwnInputs) -> nn.Module:
    """Return the model, equal on all processes."""
    torch.manual_seed(config.seed)
    return config.model.build(own.part.inputs.num_features, own.num_classes)


@torch.no_grad()
def _logits(
    config: GraphConfig, folder: ModelFolder, record: dict[str, Any], graph: Graph
) -> torch.Tensor:
    """Full-graph inference: no sampling, the same numbers each time, shape (N, classes)."""
    if graph.features.shape[1] != record["features"]:
        raise DataError(
            f"{graph.features.shape[1]} features a node", where=graph.where,
            allowed=f"{record['features']}, as in training",
        )  # fmt: skip
    model = config.model.build(record["features"], record["classes"]).eval()
    model.load_state_dict(folder.load_weights())
    part = GraphPart(graph, np.zeros(graph.num_nodes, np.int64), Grid(1), SingleProcess())
    nodes = part.nodes.numpy()
    x = sharing.normalised_features(graph, config.data.normalise, nodes)
    own = attach(model, part)(x)
    return torch.empty_like(own).index_copy_(0, part.nodes, own)


def _results(
    graph: Graph, logits: torch.Tensor, record: dict[str, Any], config: GraphConfig
) -> Results:
    found = {config.model.name: logits.argmax(1).numpy()}
    if len(graph.parts.get("train", ())):
        found["label propagation"] = baselines.label_propagation(graph)
        found["majority class"] = baselines.majority(graph)
    parts = [name for name in SPLITS if len(graph.parts.get(name, ()))]
    if not parts:
        raise DataError("no labelled part to evaluate on", where=graph.where, allowed="key `test`")
    rows: list[list[Any]] = []
    for name, classes in found.items():
        rows.append([name, *(_accuracy(graph, classes, graph.parts[p]) for p in parts)])
    judged = parts[-1]
    own = found[config.model.name]
    metrics: dict[str, Any] = {f"{p}_accuracy": rows[0][1 + i] for i, p in enumerate(parts)}
    for row in rows[1:]:
        metrics[f"{judged}_accuracy_{row[0].replace(' ', '_')}"] = row[-1]
    metrics["macro_f1"] = _macro_f1(
        graph.known_labels[graph.parts[judged]], own[graph.parts[judged]]
    )
    return Results(
        title=f"Classes of nodes: {Path(graph.where).name}",
        verdict=Verdict.among(
            {row[0]: row[-1] for row in rows},
            config.model.name,
            f"accuracy of {config.model.name} on the part {judged}",
            better="max",
            rate=False,
        ),
        summary=[
            f"{graph.num_nodes} nodes, {graph.num_edges} directed edges, "
            f"{graph.num_classes} classes; judged on the part {judged}.",
            f"Trained on {record['processes']} process(es), {record['grid']}.",
        ],
        metrics=metrics,
        tables=[Table(title="Accuracy", columns=["method", *parts], rows=rows, best="max")],
    )


def _accuracy(graph: Graph, classes: np.ndarray, nodes: np.ndarray) -> float:
    return float((classes[nodes] == graph.known_labels[nodes]).mean())


def _macro_f1(truth: np.ndarray, found: np.ndarray) -> float:
    """Mean over the classes that occur of 2 TP / (2 TP + FP + FN)."""
    scores = []
    for label in np.unique(truth):
        hits = ((truth == label) & (found == label)).sum()
        scores.append(2 * hits / ((truth == label).sum() + (found == label).sum()))
    return float(np.mean(scores))


def _add_training(results: Results, run: RunDirectory) -> None:
    """Add the learning curve of the run."""
    curves: dict[str, dict[int, float]] = {}
    for row in run.read_metrics():
        curves.setdefault(row["name"], {})[row["step"]] = row["value"]
    wanted = {"validation/loss": "validation loss", "validation/accuracy": "validation accuracy"}
    shown = {label: curves[name] for name, label in wanted.items() if name in curves}
    if not shown:
        return
    steps = sorted(set().union(*shown.values()))
    lines = [Series(label=n, y=[c.get(s) for s in steps]) for n, c in shown.items()]
    results.figures.append(
        Lines(title="Training", x=[float(s) for s in steps], x_label="epoch", y_label="",
              series=lines)
    )  # fmt: skip
