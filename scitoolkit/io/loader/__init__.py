"""Batches for training: `order` says what is read when, `source` reads, `loader` hands out."""

from scitoolkit.io.loader.loader import FieldLoader
from scitoolkit.io.loader.order import EpochOrder, rank_share
from scitoolkit.io.loader.plan import EpochPlan, Events, Planner, Step
from scitoolkit.io.loader.plan_samples import SamplePlanner
from scitoolkit.io.loader.plan_units import UnitPlanner
from scitoolkit.io.loader.source import ArraySource, FieldWindows, Source

__all__ = [
    "ArraySource",
    "EpochOrder",
    "EpochPlan",
    "Events",
    "FieldLoader",
    "FieldWindows",
    "Planner",
    "SamplePlanner",
    "Source",
    "Step",
    "UnitPlanner",
    "rank_share",
]
