"""Dropout whose mask depends on a row's number in the whole, not on where the row is computed."""

from scitoolkit.ops.node_dropout.public import node_dropout

__all__ = ["node_dropout"]
