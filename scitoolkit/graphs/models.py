"""Node models built from torch-geometric layers, as config members."""

from __future__ import annotations

import itertools
import warnings
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from scitoolkit.core.config import Config
from scitoolkit.core.errors import missing_extra
from scitoolkit.core.plugins import Choice, Kind

if TYPE_CHECKING:
    from torch import nn


class NodeModelConfig(Config):
    """Base class of node models: layers of equal width, with dropout before each layer.

    Attributes:
        weighted_edges: whether the layers accept edge weights.
    """

    weighted_edges: ClassVar[bool] = False

    requires: ClassVar[tuple[str, ...]] = ("torch_geometric",)

    name: str
    hidden: PositiveInt = 16
    layers: PositiveInt = 2
    dropout: float = Field(default=0.5, ge=0, lt=1)

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """Return the model for `inputs` features and `outputs` outputs."""
        from scitoolkit.graphs.networks import NodeModel, WeightedNodeModel

        network = WeightedNodeModel if self.weighted_edges else NodeModel
        return network(self._layers(inputs, outputs), self.dropout, self.activation())

    def activation(self) -> nn.Module:
        """Return the activation after every layer but the last."""
        from torch import nn

        return nn.ReLU()

    def _layers(self, inputs: int, outputs: int) -> list[nn.Module]:
        widths = [inputs, *[self.hidden] * (self.layers - 1), outputs]
        return [self.layer(a, b) for a, b in itertools.pairwise(widths)]

    def layer(self, inputs: int, outputs: int) -> nn.Module:
        """Return one layer."""
        raise NotImplementedError


models: Kind[type[NodeModelConfig]] = Kind(
    "graph model",
    "network over the nodes of a graph",
    contract="scitoolkit.testing:GraphModelContract",
)
AnyModel = Annotated[NodeModelConfig, Choice(models)]


def _pyg() -> Any:
    try:
        with warnings.catch_warnings():
            # torch 2.14 warns of torch.jit.script, which PyG calls while it is imported.
            warnings.filterwarnings("ignore", ".*torch.jit.script", FutureWarning)
            import torch_geometric.nn as layers
    except ImportError:
        raise missing_extra("torch_geometric", "graphs", "domain=graphs") from None
    return layers


class GCN(NodeModelConfig):
    """Graph convolutions (Kipf and Welling 2017)."""

    weighted_edges: ClassVar[bool] = True
    name: Literal["gcn"] = "gcn"

    def layer(self, inputs: int, outputs: int) -> nn.Module:
        """Return one layer."""
        return _pyg().GCNConv(inputs, outputs)


class SAGE(NodeModelConfig):
    """GraphSAGE with mean aggregation (Hamilton et al. 2017)."""

    name: Literal["sage"] = "sage"

    def layer(self, inputs: int, outputs: int) -> nn.Module:
        """Return one layer."""
        return _pyg().SAGEConv(inputs, outputs)


class GIN(NodeModelConfig):
    """Graph isomorphism network (Xu et al. 2019)."""

    name: Literal["gin"] = "gin"

    def layer(self, inputs: int, outputs: int) -> nn.Module:
        """Return one layer."""
        from torch import nn

        perceptron = nn.Sequential(
            nn.Linear(inputs, self.hidden), nn.ReLU(), nn.Linear(self.hidden, outputs)
        )
        return _pyg().GINConv(perceptron, train_eps=True)


class GAT(NodeModelConfig):
    """Graph attention (Velickovic et al. 2018); `hidden` is the width of all heads together."""

    name: Literal["gat"] = "gat"
    hidden: PositiveInt = 64
    heads: PositiveInt = 8
    dropout: float = Field(default=0.6, ge=0, lt=1)

    def activation(self) -> nn.Module:
        """Return the activation after every layer but the last."""
        from torch import nn

        return nn.ELU()

    def _layers(self, inputs: int, outputs: int) -> list[nn.Module]:
        layers = _pyg()
        each = max(1, self.hidden // self.heads)
        inner = [
            layers.GATConv(inputs if i == 0 else each * self.heads, each, heads=self.heads)
            for i in range(self.layers - 1)
        ]
        last = inputs if self.layers == 1 else each * self.heads
        return [*inner, layers.GATConv(last, outputs)]
