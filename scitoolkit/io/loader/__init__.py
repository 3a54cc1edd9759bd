"""Batches for training: `order` says what is read when, `source` reads, `loader` hands out."""

from scitoolkit.io.loader.loader import FieldLoader
from scitoolkit.io.loader.order import EpochOrder, rank_share
from scitoolkit.io.loader.source import ArraySource, FieldWindows, Source

__all__ = ["ArraySource", "EpochOrder", "FieldLoader", "FieldWindows", "Source", "rank_share"]
