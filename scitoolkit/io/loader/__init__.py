"""Loaders of training batches: sample order, read plans, sources and loaders."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.io.loader.file_source import FileSource as FileSource
    from scitoolkit.io.loader.loader import BatchLoader as BatchLoader
    from scitoolkit.io.loader.open import open_source as open_source
    from scitoolkit.io.loader.order import EpochOrder as EpochOrder
    from scitoolkit.io.loader.order import rank_share as rank_share
    from scitoolkit.io.loader.plan import EpochPlan as EpochPlan
    from scitoolkit.io.loader.plan import Events as Events
    from scitoolkit.io.loader.plan import LoaderStep as LoaderStep
    from scitoolkit.io.loader.plan import Planner as Planner
    from scitoolkit.io.loader.plan_samples import SamplePlanner as SamplePlanner
    from scitoolkit.io.loader.plan_units import UnitPlanner as UnitPlanner
    from scitoolkit.io.loader.planned import PlannedLoader as PlannedLoader
    from scitoolkit.io.loader.sampler import PlannedBatchSampler as PlannedBatchSampler
    from scitoolkit.io.loader.source import ArraySource as ArraySource
    from scitoolkit.io.loader.source import Source as Source

_NAMES = {
    "file_source": "FileSource",
    "loader": "BatchLoader",
    "open": "open_source",
    "order": "EpochOrder rank_share",
    "plan": "EpochPlan Events LoaderStep Planner",
    "plan_samples": "SamplePlanner",
    "plan_units": "UnitPlanner",
    "planned": "PlannedLoader",
    "sampler": "PlannedBatchSampler",
    "source": "ArraySource Source",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_HOMES]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
