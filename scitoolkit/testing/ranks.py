"""Ranks as threads of one process: distributed algorithms tested on any number, in milliseconds."""

from scitoolkit.training.ranks.simulated import ThreadRank, run_ranks

__all__ = ["ThreadRank", "run_ranks"]
