"""Node models built from torch-geometric layers, as config members."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, PrivateAttr, model_validator

from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError, missing_extra
from scitoolkit.core.plugins import Choice, Kind
from scitoolkit.core.suggest import nearest_name

if TYPE_CHECKING:
    from torch import nn


class NodeModelConfig(Config):
    """Base class of node models: layers of equal width, with dropout before each layer.

    Attributes:
        weighted_edges: whether the layers accept edge weights.
        divides_by_degrees: whether they divide by roots of sums of these.
        reaches_all: whether a node depends on all nodes of its graph, and not on its neighbours.
    """

    weighted_edges: ClassVar[bool] = False
    divides_by_degrees: ClassVar[bool] = False
    reaches_all: ClassVar[bool] = False

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

    def for_graph(
        self,
        edge_types: int,
        edge_features: int = 0,
        node_types: int = 0,
        receivers: tuple[int, ...] = (),
    ) -> NodeModelConfig:
        """Return the model for a graph.

        Args:
            edge_types: number of types of edges, 0 without types.
            edge_features: number of features of an edge, 0 without features.
            node_types: number of types of nodes, 0 without types.
            receivers: type of the nodes at which edges of each type end, -1 for several; empty
                without types.
        """
        return self

    def build_for(self, measured: Mapping[str, Any], outputs: int) -> nn.Module:
        """Return the model for what `GraphInputs.measured` tells of a graph."""
        made = self.for_graph(
            measured.get("edge_types", 0),
            measured.get("edge_features", 0),
            measured.get("node_types", 0),
            tuple(measured.get("receivers", ())),
        )
        return made.build(measured["features"], outputs)

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


class ReadsEdgeFeatures(NodeModelConfig):
    """A model whose layers read features of edges, whose number the graph tells."""

    _edge_features: int = PrivateAttr(default=0)

    def for_graph(
        self,
        edge_types: int,
        edge_features: int = 0,
        node_types: int = 0,
        receivers: tuple[int, ...] = (),
    ) -> NodeModelConfig:
        """Return the model for a number of features of an edge."""
        config = self.model_copy()
        config._edge_features = edge_features
        return config


class GCN(NodeModelConfig):
    """Graph convolutions (Kipf and Welling 2017)."""

    weighted_edges: ClassVar[bool] = True
    divides_by_degrees: ClassVar[bool] = True
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
    """Graph isomorphism network (Xu et al. 2019).

    Attributes:
        norm: `batch` normalises the hidden features of each layer over the nodes of a batch.
    """

    name: Literal["gin"] = "gin"
    norm: Literal["none", "batch"] = "none"

    def layer(self, inputs: int, outputs: int) -> nn.Module:
        """Return one layer."""
        from torch import nn

        norm = [nn.BatchNorm1d(self.hidden)] if self.norm == "batch" else []
        # A normalisation removes the bias before it, whose gradient would be rounding errors.
        first = nn.Linear(inputs, self.hidden, bias=not norm)
        last = nn.Linear(self.hidden, outputs)
        return _pyg().GINConv(nn.Sequential(first, *norm, nn.ReLU(), last), train_eps=True)


class GINE(ReadsEdgeFeatures, GIN):
    """Graph isomorphism network with features of edges (Hu et al. 2020)."""

    name: Literal["gine"] = "gine"  # type: ignore[assignment]

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """Return the model for `inputs` features and `outputs` outputs."""
        from scitoolkit.graphs.networks import FeaturedEdgesModel, NodeModel

        network = FeaturedEdgesModel if self._edge_features else NodeModel
        return network(self._layers(inputs, outputs), self.dropout, self.activation())

    def layer(self, inputs: int, outputs: int) -> nn.Module:
        """Return one layer; GINConv for graphs without features of edges."""
        plain = super().layer(inputs, outputs)
        if not self._edge_features:
            return plain
        return _pyg().GINEConv(plain.nn, train_eps=True, edge_dim=self._edge_features)


class RGCN(NodeModelConfig):
    """Graph convolutions with weights for each type of edges (Schlichtkrull et al. 2018).

    Attributes:
        relations: number of types of edges; None for that of the training graph.
        bases: number of matrices whose combinations are the weights; None for a matrix per type.
    """

    name: Literal["rgcn"] = "rgcn"
    relations: PositiveInt | None = None
    bases: PositiveInt | None = None

    def for_graph(
        self,
        edge_types: int,
        edge_features: int = 0,
        node_types: int = 0,
        receivers: tuple[int, ...] = (),
    ) -> NodeModelConfig:
        """Return the model with a relation per type of edges.

        Raises:
            ConfigError: the graph has no types of edges, or more than `relations`.
        """
        if not edge_types:
            raise ConfigError(
                "rgcn needs types of edges",
                where="model.name",
                allowed="a graph with a key `edge_type`, and data.edge_inputs=use",
                fix="model.name=gcn",
            )
        if self.relations is not None and edge_types > self.relations:
            raise ConfigError(f"{edge_types} types of edges", where="model.relations")
        return self.model_copy(update={"relations": self.relations or edge_types})

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """Return the model for `inputs` features and `outputs` outputs."""
        from scitoolkit.graphs.networks import TypedNodeModel

        return TypedNodeModel(self._layers(inputs, outputs), self.dropout, self.activation())

    def layer(self, inputs: int, outputs: int) -> nn.Module:
        """Return one layer."""
        return _pyg().RGCNConv(inputs, outputs, self.relations or 1, num_bases=self.bases)


class WithHeads(NodeModelConfig):
    """A model whose hidden features are divided among heads of attention.

    Attributes:
        heads: of each layer; divides `hidden`.
    """

    hidden: PositiveInt = 64
    heads: PositiveInt = 4

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is no multiple of heads {self.heads}")
        return self


class HGT(WithHeads):
    """Heterogeneous graph transformer (Hu et al. 2020), for types of nodes and edges."""

    name: Literal["hgt"] = "hgt"
    dropout: float = Field(default=0.2, ge=0, lt=1)
    _graph: tuple[int, int, tuple[int, ...]] = PrivateAttr(default=(1, 1, (0,)))

    def for_graph(
        self,
        edge_types: int,
        edge_features: int = 0,
        node_types: int = 0,
        receivers: tuple[int, ...] = (),
    ) -> NodeModelConfig:
        """Return the model for the types of a graph.

        Raises:
            ConfigError: the graph lacks types of nodes or edges.
        """
        if not edge_types or not node_types:
            raise ConfigError(
                f"{self.name} needs types of nodes and edges",
                where="model.name",
                allowed="keys node_type and edge_type, or a HeteroData; data.edge_inputs=use",
                fix="model.name=rgcn" if edge_types else "model.name=gcn",
            )
        config = self.model_copy()
        config._graph = node_types, edge_types, tuple(receivers)
        return config

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """Return the model for `inputs` features and `outputs` outputs."""
        _pyg()
        from scitoolkit.graphs.hetero_layers import HeteroNodeModel

        layers = [self.layer(self.hidden, self.hidden) for _ in range(self.layers)]
        return HeteroNodeModel(inputs, self.hidden, outputs, layers, self.dropout)

    def layer(self, inputs: int, outputs: int) -> nn.Module:
        """Return one layer."""
        from scitoolkit.graphs.hetero_layers import HGTLayer

        node_types, edge_types, _ = self._graph
        return HGTLayer(inputs, node_types, edge_types, self.heads)


class HAN(HGT):
    """Heterogeneous graph attention (Wang et al. 2019), with types of edges as metapaths."""

    name: Literal["han"] = "han"  # type: ignore[assignment]
    heads: PositiveInt = 8

    def layer(self, inputs: int, outputs: int) -> nn.Module:
        """Return one layer.

        Raises:
            ConfigError: edges of one type end at nodes of several types.
        """
        from scitoolkit.graphs.hetero_layers import HANLayer

        node_types, _, receivers = self._graph
        if -1 in receivers:
            raise ConfigError(
                f"edges of type {receivers.index(-1)} end at nodes of several types",
                where="model.name",
                allowed="a type of edges for each pair of types of nodes",
                fix="model.name=hgt",
            )
        return HANLayer(inputs, node_types, receivers, self.heads)


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
        # The heads of inner layers are concatenated; the last layer has one head, as wide as the
        # outputs.
        width = max(1, self.hidden // self.heads)
        inner = [
            layers.GATConv(inputs if i == 0 else width * self.heads, width, heads=self.heads)
            for i in range(self.layers - 1)
        ]
        last = inputs if self.layers == 1 else width * self.heads
        return [*inner, layers.GATConv(last, outputs)]


class PhysicsAttention(WithHeads):
    """Attention among slices of the nodes (Transolver, Wu et al. 2024), for meshes and points.

    Edges are not read: positions belong to the features of the nodes (`data.positions=features`).

    Attributes:
        slices: groups of nodes of each head that attend to each other.
    """

    reaches_all: ClassVar[bool] = True
    name: Literal["physics_attention"] = "physics_attention"
    layers: PositiveInt = 4
    slices: PositiveInt = 32
    dropout: float = Field(default=0, ge=0, lt=1)

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """Return the model for `inputs` features and `outputs` outputs."""
        from scitoolkit.graphs.physics_attention import SliceTransformer

        sizes = self.layers, self.heads, self.slices
        return SliceTransformer(inputs, self.hidden, outputs, *sizes, self.dropout)


class OfPyG(ReadsEdgeFeatures):
    """A network of `torch_geometric.nn.models`, by the name of its class.

    Attributes:
        network: name of the class, such as GCN, GraphSAGE, PNA or SchNet.
        arguments: further arguments of its constructor. `in_channels`, `hidden_channels`,
            `num_layers`, `out_channels`, `dropout` and `edge_dim` follow from the other keys and
            the data, unless they are given.
    """

    name: Literal["pyg"] = "pyg"
    network: str = "GCN"
    arguments: dict[str, Any] = Field(default_factory=dict)
    dropout: float = Field(default=0.0, ge=0, lt=1)

    @property
    def weighted_edges(self) -> bool:  # type: ignore[override]
        """Whether the layers accept edge weights."""
        return bool(getattr(self._kind(), "supports_edge_weight", False))

    def _kind(self) -> type[nn.Module]:
        from torch import nn

        offered = vars(_pyg().models)
        kind = offered.get(self.network)
        if isinstance(kind, type) and issubclass(kind, nn.Module):
            return kind
        names = [name for name, member in offered.items() if isinstance(member, type)]
        raise ConfigError(
            f"torch_geometric.nn.models has no network {self.network!r}",
            where="model.network",
            fix=nearest_name(self.network, names) or "",
        )

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """Return the network for `inputs` features and `outputs` outputs.

        Raises:
            ConfigError: no such class, or arguments that it does not take.
        """
        import torch

        kind = self._kind()
        accepted = inspect.signature(kind).parameters
        follow = {
            "in_channels": inputs,
            "hidden_channels": self.hidden,
            "out_channels": outputs,
            "num_layers": self.layers,
            "dropout": self.dropout,
        }
        values: dict[str, Any] = {n: value for n, value in follow.items() if n in accepted}
        takes_edges = "edge_dim" in accepted or getattr(kind, "supports_edge_attr", False)
        if takes_edges and self._edge_features:
            values["edge_dim"] = self._edge_features
        values |= self.arguments
        if isinstance(values.get("deg"), list):  # histogram of degrees, which PNA takes as a tensor
            values["deg"] = torch.tensor(values["deg"])
        try:
            return kind(**values)
        except (TypeError, ValueError, AssertionError, LookupError, AttributeError) as error:
            raise ConfigError(
                f"{self.network} cannot be made: {error or type(error).__name__}",
                where="model.arguments",
                allowed=str(inspect.signature(kind)),
            ) from None
