"""Batches for training: `order` says what is read when, `source` reads, `loader` hands out."""

from scitoolkit.io.loader.file_source import FileSource
from scitoolkit.io.loader.loader import BatchLoader
from scitoolkit.io.loader.open import open_source
from scitoolkit.io.loader.order import EpochOrder, rank_share
from scitoolkit.io.loader.plan import EpochPlan, Events, Planner, Step
from scitoolkit.io.loader.plan_samples import SamplePlanner
from scitoolkit.io.loader.plan_units import UnitPlanner
from scitoolkit.io.loader.planned import PlannedLoader
from scitoolkit.io.loader.sampler import PlannedBatchSampler
from scitoolkit.io.loader.source import ArraySource, FieldWindows, Source

__all__ = [
    "ArraySource",
    "BatchLoader",
    "EpochOrder",
    "EpochPlan",
    "Events",
    "FieldWindows",
    "FileSource",
    "PlannedBatchSampler",
    "PlannedLoader",
    "Planner",
    "SamplePlanner",
    "Source",
    "Step",
    "UnitPlanner",
    "open_source",
    "rank_share",
]
