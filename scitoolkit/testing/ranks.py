"""Ranks as threads of one process, to test distributed algorithms quickly on any world size."""

from scitoolkit.training.ranks.simulated import ThreadRank, run_ranks

__all__ = ["ThreadRank", "run_ranks"]
