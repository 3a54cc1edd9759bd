"""Batches for training: `order` says what is read when, `source` reads, `loader` hands out."""

from scitoolkit.io.loader.file_source import FileSource
from scitoolkit.io.loader.loader import FieldLoader
from scitoolkit.io.loader.open import open_source
from scitoolkit.io.loader.order import EpochOrder, rank_share
from scitoolkit.io.loader.plan import EpochPlan, Events, Planner, Step
from scitoolkit.io.loader.plan_samples import SamplePlanner
from scitoolkit.io.loader.plan_units import UnitPlanner
from scitoolkit.io.loader.sampler import SurrogateBatchSampler
from scitoolkit.io.loader.source import ArraySource, FieldWindows, Source
from scitoolkit.io.loader.surrogate import SurrogateLoader

__all__ = [
    "ArraySource",
    "EpochOrder",
    "EpochPlan",
    "Events",
    "FieldLoader",
    "FieldWindows",
    "FileSource",
    "Planner",
    "SamplePlanner",
    "Source",
    "Step",
    "SurrogateBatchSampler",
    "SurrogateLoader",
    "UnitPlanner",
    "open_source",
    "rank_share",
]
