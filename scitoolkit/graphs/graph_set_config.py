"""Configuration of targets of whole graphs."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, NonNegativeInt, model_validator

from scitoolkit.core.config import Config, DataPath, refuse_unused
from scitoolkit.graphs.config import ClassWeight, NetworksConfig
from scitoolkit.graphs.models import GINE, AnyModel
from scitoolkit.graphs.targets import TargetName
from scitoolkit.surrogate.config import IntervalsConfig
from scitoolkit.training import TrainingConfig


class GraphSetDataConfig(Config):
    """The graphs and how their entries are read.

    Attributes:
        path: a file or folder as described by `scitoolkit.graphs.graph_set_files.read_graphs`.
        target: meaning of the `y` of a graph: `classes`, one whole number; `labels`, several of 0
            and 1; `values`, one or several numbers, standardised for training.
        columns: columns of `y` to learn; all by default.
        ignore: entries of the file that the model does not receive. Any other is an input.
        integers: meaning of an `x` or `edge_attr` of whole numbers: `categories`, each column of
            its own, or `numbers`.
        positions: use of `pos`: `pass` it to a model that accepts it; `offsets` appends the
            difference of the positions of sender and receiver, and its length, to the features of
            edges; `distances` the length alone, which rotations leave as it is; `features` appends
            the coordinates to the features of nodes, for models that read no edges.
        undirected: whether the file stores each edge once and messages run in both directions;
            None where the edges of the file say so.
        split: name of the split, for folders of OGB with several.
        class_weights: factor of each class in the loss, as in node classification.
        reference: `composition` learns the difference of values from a linear model of sums and
            means over the nodes of a graph, as potentials do from energies of single atoms.
        allow_suspect: accept features and weights that look like marks of missing values.
    """

    path: DataPath
    target: TargetName = "values"
    columns: tuple[NonNegativeInt, ...] = ()
    ignore: tuple[str, ...] = ()
    integers: Literal["categories", "numbers"] = "categories"
    positions: Literal["pass", "offsets", "distances", "features"] = "pass"
    undirected: bool | None = None
    split: str = ""
    class_weights: Literal["balanced"] | tuple[ClassWeight, ...] | None = None
    reference: Literal["none", "composition"] = "none"
    allow_suspect: bool = False

    @model_validator(mode="after")
    def _fits_the_target(self) -> GraphSetDataConfig:
        if self.target != "classes":
            refuse_unused(self, f"target: {self.target}", "class_weights")
        if self.target != "values":
            refuse_unused(self, f"target: {self.target}", "reference")
        return self


class GraphShares(Config):
    """Shares of the labelled graphs for validation and test, drawn with the seed of the job.

    Not read if the file states the parts.
    """

    validation: float = Field(default=0.1, ge=0, lt=1)
    test: float = Field(default=0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _leaves_graphs(self) -> GraphShares:
        if not self.validation + self.test < 1:
            raise ValueError("validation and test together leave no graphs to train on")
        return self

    def drawn(self, rows: np.ndarray, seed: int) -> dict[str, list[int]]:
        """Return the rows of each part, in a random order.

        Args:
            rows: numbers to divide, shape (n,).
            seed: seed of the order.

        Example:
            >>> {k: len(v) for k, v in GraphShares().drawn(np.arange(20), 0).items()}
            {'train': 16, 'validation': 2, 'test': 2}
        """
        order = np.random.default_rng(seed).permutation(rows)
        test = round(self.test * len(order))
        train = test + round(self.validation * len(order))
        parts = {"train": order[train:], "validation": order[test:train], "test": order[:test]}
        return {name: part.tolist() for name, part in parts.items()}


class GraphSetConfig(NetworksConfig):
    """Configuration of a model of whole graphs: graphs, network, pooling and training.

    Attributes:
        model: the network over the nodes; `hidden` is also the width of the embedded inputs.
        pooling: what makes one row of the nodes of a graph: `mean`; `sum`, for quantities that grow
            with the graph; `max`; `none` for a network that returns a row for each graph itself.
        intervals: of predicted values; each graph of the validation part counts once.
    """

    domain: Literal["graph_sets"] = "graph_sets"
    data: GraphSetDataConfig
    split: GraphShares = GraphShares()
    model: AnyModel = GINE(hidden=64, layers=4, dropout=0, norm="batch")
    pooling: Literal["mean", "sum", "max", "none"] = "mean"
    intervals: IntervalsConfig | None = None
    training: TrainingConfig = TrainingConfig(epochs=50)

    @model_validator(mode="after")
    def _bounds_values(self) -> GraphSetConfig:
        if self.data.target != "values":
            refuse_unused(self, f"data.target: {self.data.target}", "intervals")
        return self
