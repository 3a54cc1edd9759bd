"""Softmax attention over the nonzeros of a sparse pattern; nothing is stored per edge."""

from scitoolkit.ops.attention.public import additive_attention, graph_attention

__all__ = ["additive_attention", "graph_attention"]
