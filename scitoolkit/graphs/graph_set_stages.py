"""The stages of models of whole graphs, in the life of `scitoolkit.surrogate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.devices import device_of
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.results import Results, metric_words
from scitoolkit.graphs import baselines
from scitoolkit.graphs.columns import column_moments, refuse_marked_columns, warn_of_columns
from scitoolkit.graphs.graph_set import StackedGraphs
from scitoolkit.graphs.graph_set_config import GraphSetConfig, GraphSetDataConfig
from scitoolkit.graphs.graph_set_data import GraphSetData
from scitoolkit.graphs.graph_set_inputs import GraphBatches, edge_columns, node_columns, passed
from scitoolkit.graphs.graph_set_model import GraphSetModel, InputEmbedding
from scitoolkit.graphs.losses import class_sums, class_weights, label_sums, predictions, value_sums
from scitoolkit.graphs.stages import measured_of
from scitoolkit.graphs.targets import TARGETS
from scitoolkit.io.loader import BatchLoader
from scitoolkit.io.loader.cursor import tensors
from scitoolkit.reporting.parity import parity
from scitoolkit.surrogate import Opened, Stages
from scitoolkit.surrogate.lifecycle import source_loader
from scitoolkit.surrogate.sections import compared
from scitoolkit.surrogate.stages import Rows
from scitoolkit.training.ranks.communicator import SingleProcess


class GraphSetTask:
    """Loss and metrics of graphs, as means over the graphs of a batch.

    Args:
        model: the network.
        target: classes, labels or values.
        measured: what `GraphSetStages.measure` returned.
    """

    def __init__(self, model: nn.Module, target: str, measured: Mapping[str, Any]) -> None:
        self.model: nn.Module = model
        self._target = target
        self._moments = [torch.tensor(measured[n]) for n in ("target_mean", "target_deviation")]
        weights = measured["class_weights"]
        self._weights = None if weights is None else torch.tensor(weights)

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Return the mean loss over the graphs."""
        return self.metrics(batch)["loss"], {}

    def metrics(self, batch: Batch) -> dict[str, Tensor]:
        """Return means over the graphs."""
        out, label = self.model(batch), batch["y"]
        if self._target == "classes":
            sums = class_sums(out, label, self._weights)
        elif self._target == "labels":
            sums = label_sums(out, label)
        else:
            sums = value_sums(out, label, *self._moments)
        return {name: total / len(label) for name, total in sums.items()}

    def batch_size(self, batch: Batch) -> int:
        """Return the number of graphs."""
        return int(batch["num_graphs"])


_READ = ("target", "columns", "integers", "positions", "reference")
"""Settings of the data that the meaning of weights depends on."""


class GraphSetStages(GraphSetData, Stages):
    """Stages of models of whole graphs; data are a `StackedGraphs`, samples are graphs."""

    start_settings = ("model", "pooling", *(f"data.{key}" for key in _READ))
    remeasured = ("mean", "class_weights")

    def measure(self, config: GraphSetConfig, data: StackedGraphs, rows: Rows) -> Mapping[str, Any]:
        """Return sizes, moments and categories of the inputs and moments of the target."""
        train = np.asarray(rows, np.int64)
        nodes, edges = data.rows(train)
        of_nodes, of_edges = node_columns(data, config.data), edge_columns(data, config.data)
        if not config.data.allow_suspect:
            pairs = (("node", of_nodes), ("edge", of_edges))
            numbers = {f"{what}s": [own.numbers] for what, own in pairs if own is not None}
            refuse_marked_columns(numbers, data.where)
        labels, outputs = data.target[train], data.num_outputs
        values = data.learned.columns(labels, outputs)
        mean = values.mean(0)
        weights = class_weights(config.data.class_weights, outputs, labels, SingleProcess())
        types = data.arrays.get("edge_type")
        node = of_nodes.measured(nodes, data.where)
        inputs = baselines.composition(data, of_nodes, node["categories"])[train]
        coefficients: list[list[float]] = []
        if inputs.shape[1] <= baselines.MAX_COMPOSITION:
            # Where a target grows with the number of atoms, as an energy does, the network learns
            # only what the linear model leaves, whose scale is that of the differences of interest.
            fitted = baselines.fitted_composition(inputs, values)
            coefficients, rest = fitted.tolist(), values - inputs @ fitted
        if config.data.reference == "composition":
            if not coefficients:
                raise ConfigError(
                    f"{inputs.shape[1]} columns are too many for a linear model",
                    where="data.reference",
                    allowed=f"at most {baselines.MAX_COMPOSITION}",
                    fix="data.reference=none",
                )
            values = rest
        return {
            "outputs": outputs,
            "inputs": passed(data, config.data),
            "node": node,
            "edge": None if of_edges is None else of_edges.measured(edges, data.where),
            "edge_types": 0 if types is None else int(types.max(initial=-1)) + 1,
            "target_mean": values.mean(0).tolist(),
            "target_deviation": values.std(0).tolist(),
            "class_weights": None if weights is None else weights.tolist(),
            "composition": coefficients,
            "mean": mean.tolist(),
        }

    def build(self, config: GraphSetConfig, facts: Any, measured: Any, seed: int) -> GraphSetModel:
        """Return an untrained model."""
        torch.manual_seed(seed)
        width, outputs = config.model.hidden, measured["outputs"]
        embeddings = [
            None
            if columns is None
            else InputEmbedding(
                width,
                columns["mean"],
                columns["deviation"],
                [len(table) for table in columns["categories"]],
            )
            for columns in (measured["node"], measured["edge"])
        ]
        model = config.model.for_graph(
            measured["edge_types"], 0 if embeddings[1] is None else width
        )
        network = model.build(width, outputs if config.pooling == "none" else width)
        assert embeddings[0] is not None
        return GraphSetModel(
            embeddings[0], embeddings[1], network, config.pooling, width, outputs, measured
        )

    def task(self, config: GraphSetConfig, opened: Opened, model: GraphSetModel) -> GraphSetTask:
        """Return loss and metrics."""
        return GraphSetTask(model, config.data.target, opened.measured)

    def loader(
        self, config: GraphSetConfig, opened: Opened, part: str, model: nn.Module
    ) -> BatchLoader:
        """Return batches of graphs."""
        rows = np.asarray(opened.parts[part], np.int64)
        source = _batches(config, opened.data, rows, opened.measured)
        return source_loader(config.training, part, source)

    def describe(self, opened: Opened) -> Mapping[str, Any]:
        """Return the sizes of the graphs, and the inputs of the model."""
        data, measured = opened.data, opened.measured
        columns = {
            name: len(measured[name]["mean"]) + len(measured[name]["categories"])
            for name in ("node", "edge")
            if measured[name] is not None
        }
        return {
            "graphs": len(data),
            "nodes": [int(data.num_nodes.min()), int(data.num_nodes.max())],
            "edges": [int(data.num_edges.min()), int(data.num_edges.max())],
            "columns": columns,
            "inputs": measured["inputs"],
            data.target_name: measured["outputs"],
        }

    def evaluate(
        self, config: GraphSetConfig, model: Any, data: StackedGraphs, rows: Rows | None
    ) -> Results:
        """Compare with the mean or majority, and with a linear model of the composition."""
        graphs = _scored_graphs(data, rows)
        target, measured = data.learned, measured_of(model)
        if data.num_outputs > measured["outputs"]:
            raise DataError(
                f"{data.num_outputs} {data.target_name}",
                where=data.where,
                allowed=f"at most the {measured['outputs']} of training",
            )
        truth = data.target[graphs]
        answers = {config.model.name: outputs(config, model, data, graphs)}
        plain = np.asarray(measured["mean"])[None]
        answers[target.plain] = np.repeat(plain, len(graphs), axis=0)
        if measured["composition"]:
            answers["composition"] = _composition(config.data, data, measured)[graphs]
        decided = {name: target.decided(values) for name, values in answers.items()}
        unit = data.units.get("y", "")
        if config.data.target == "values" and truth.shape[1] > 1:
            # Values of different sizes count alike.
            scale = truth.std(0)
            scale, unit = np.where(scale == 0, 1, scale), "1"
            truth, decided = truth / scale, {n: v / scale for n, v in decided.items()}
        figures = {name: target.figures(truth, values) for name, values in decided.items()}
        what = config.data.target.capitalize()
        results = compared(
            f"{what} of graphs: {Path(data.where).name}",
            [
                f"{len(graphs)} graphs of {len(data)}, with {int(data.num_nodes.mean())} nodes and "
                f"{int(data.num_edges.mean())} directed edges on average."
            ],
            figures,
            target.merit,
            better=target.better,
            table=f"{what} of graphs",
            heading=metric_words(target.merit),
            label=metric_words(target.merit),
            unit=unit,
        )
        if config.data.target == "values" and truth.shape[1] == 1:
            pairs = np.column_stack([truth[:, 0], decided[config.model.name][:, 0]])
            points = {config.model.name: np.arange(len(graphs))}
            results.figures.append(parity(f"{what} of graphs", pairs, unit, points))
        return results

    def errors(
        self, config: GraphSetConfig, model: Any, data: StackedGraphs, rows: Rows | None
    ) -> xr.Dataset:
        """Return the errors of values, each graph a group."""
        graphs = _scored_graphs(data, rows)
        values = outputs(config, model, data, graphs) - data.target[graphs]
        label = np.arange(values.shape[1])
        return xr.Dataset({"value": (("group", "label"), values)}, {"label": label})

    def predict(
        self, config: GraphSetConfig, model: Any, data: StackedGraphs, output: Path
    ) -> xr.Dataset:
        """Return a row for each graph: class and probabilities, labels, or values."""
        answers = outputs(config, model, data, np.arange(len(data)))
        target = TARGETS[config.data.target]
        return xr.Dataset(
            target.variables(answers, "graph"),
            coords={"graph": np.arange(len(data)), "label": np.arange(answers.shape[1])},
            attrs={"title": f"{config.data.target} of the graphs of {Path(data.where).name}"},
        )


def _scored_graphs(data: StackedGraphs, rows: Rows | None) -> np.ndarray:
    """Return the graphs to evaluate on, all with a target if `rows` is None.

    Raises:
        DataError: there are none.
    """
    labelled = np.flatnonzero(data.learned.known(data.target))
    graphs = labelled if rows is None else np.asarray(rows, np.int64)
    if not len(graphs):
        raise DataError("no labelled graphs to evaluate on", where=data.where)
    return graphs


@torch.no_grad()
def outputs(
    config: GraphSetConfig, model: Any, data: StackedGraphs, graphs: np.ndarray
) -> np.ndarray:
    """Return probabilities or values of some graphs, shape (len(graphs), outputs)."""
    measured, device = measured_of(model), device_of(model)
    _warn_if_far(config.data, data, measured)
    source = _batches(config, data, graphs, measured)
    parts = []
    for first in range(0, len(graphs), config.training.batch_size):
        chosen = np.arange(first, min(first + config.training.batch_size, len(graphs)))
        batch = {name: t.to(device) for name, t in tensors(source.read(chosen)).items()}
        parts.append(model(batch).cpu())
    moments = measured["target_mean"], measured["target_deviation"]
    out = predictions(config.data.target, torch.cat(parts), *moments)
    return out if source.reference is None else out + source.reference[graphs]


def _warn_if_far(
    config: GraphSetDataConfig, data: StackedGraphs, measured: Mapping[str, Any]
) -> None:
    """Warn of numbers far from those of the training: other units, columns in another order."""
    for what, columns in (("node", node_columns), ("edge", edge_columns)):
        own, trained = columns(data, config), measured[what]
        if own is not None and trained is not None:
            moments = column_moments({f"{what}s": [own.numbers]})
            warn_of_columns({f"{what}s": trained}, moments, data.where)


def _batches(
    config: GraphSetConfig, data: StackedGraphs, graphs: np.ndarray, measured: Mapping[str, Any]
) -> GraphBatches:
    reference = None
    if config.data.reference == "composition":
        reference = _composition(config.data, data, measured)
    return GraphBatches(data, config.data, graphs, measured, reference)


def _composition(
    config: GraphSetDataConfig, data: StackedGraphs, measured: Mapping[str, Any]
) -> np.ndarray:
    """Return the linear model's values of each graph, shape (G, outputs)."""
    tables = measured["node"]["categories"]
    inputs = baselines.composition(data, node_columns(data, config), tables)
    values: np.ndarray = inputs @ np.asarray(measured["composition"])
    return values
