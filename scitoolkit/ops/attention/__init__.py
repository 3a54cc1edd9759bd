"""Softmax attention over the nonzeros of a sparse pattern, without a number an edge in memory."""

from scitoolkit.ops.attention.public import additive_attention, graph_attention

__all__ = ["additive_attention", "graph_attention"]
