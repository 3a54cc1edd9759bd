"""Dropout whose mask depends on the global row number, independent of the distribution of rows."""

from scitoolkit.ops.node_dropout.public import node_dropout

__all__ = ["node_dropout"]
