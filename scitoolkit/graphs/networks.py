"""Sequential networks of message-passing layers."""

from __future__ import annotations

from torch import Tensor, nn


class NodeModel(nn.Module):
    """Sequence of dropout, message-passing layer and activation; the last layer returns logits.

    Args:
        layers: called with (x, edge_index).
        dropout: dropout probability before each layer.
        activation: applied after each layer but the last.
    """

    def __init__(self, layers: list[nn.Module], dropout: float, activation: nn.Module) -> None:
        super().__init__()
        self.layers: nn.ModuleList = nn.ModuleList(layers)
        self.dropout: float = dropout
        self.activation: nn.Module = activation

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits, shape (N, outputs)."""
        return self._through(x, edge_index)

    def _through(self, x: Tensor, edge_index: Tensor, *weights: Tensor | None) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = nn.functional.dropout(x, self.dropout, self.training)
            x = layer(x, edge_index, *weights)
            if i + 1 < len(self.layers):
                x = self.activation(x)
        return x


class WeightedNodeModel(NodeModel):
    """A `NodeModel` whose layers also receive edge weights."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return logits, shape (N, outputs)."""
        return self._through(x, edge_index, edge_weight)


class FeaturedEdgesModel(NodeModel):
    """A `NodeModel` whose layers also receive features of the edges."""

    # Layers made for features of edges cannot do without them, unlike those with weights.
    def forward(  # type: ignore[override]
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor
    ) -> Tensor:
        """Return logits, shape (N, outputs)."""
        return self._through(x, edge_index, edge_attr)


class TypedNodeModel(NodeModel):
    """A `NodeModel` whose layers also receive the types of the edges."""

    def forward(self, x: Tensor, edge_index: Tensor, *, edge_type: Tensor | None = None) -> Tensor:
        """Return logits, shape (N, outputs); without `edge_type` all edges are of one type."""
        if edge_type is None:
            edge_type = edge_index.new_zeros(edge_index.size(1))
        return self._through(x, edge_index, edge_type)
