"""The life of a surrogate, written once: open, split, fit, save, load, evaluate, predict.

A domain fills the stages of `Stages`; the functions of `lifecycle` compose them, and `SurrogateJob`
makes them a domain of the command line. A domain that differs calls the functions in its own order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.surrogate.ensemble import Members as Members
    from scitoolkit.surrogate.ensemble import MembersTask as MembersTask
    from scitoolkit.surrogate.job import StagesAt as StagesAt
    from scitoolkit.surrogate.job import SurrogateJob as SurrogateJob
    from scitoolkit.surrogate.lifecycle import Start as Start
    from scitoolkit.surrogate.lifecycle import array_loader as array_loader
    from scitoolkit.surrogate.lifecycle import evaluate as evaluate
    from scitoolkit.surrogate.lifecycle import fit as fit
    from scitoolkit.surrogate.lifecycle import load as load
    from scitoolkit.surrogate.lifecycle import save as save
    from scitoolkit.surrogate.lifecycle import start as start
    from scitoolkit.surrogate.lifecycle import train as train
    from scitoolkit.surrogate.opening import open_checked as open_checked
    from scitoolkit.surrogate.stages import Calibrates as Calibrates
    from scitoolkit.surrogate.stages import Concludes as Concludes
    from scitoolkit.surrogate.stages import DataStages as DataStages
    from scitoolkit.surrogate.stages import Describes as Describes
    from scitoolkit.surrogate.stages import Ensembles as Ensembles
    from scitoolkit.surrogate.stages import Examines as Examines
    from scitoolkit.surrogate.stages import Finalises as Finalises
    from scitoolkit.surrogate.stages import Indexes as Indexes
    from scitoolkit.surrogate.stages import Opened as Opened
    from scitoolkit.surrogate.stages import Produces as Produces
    from scitoolkit.surrogate.stages import Records as Records
    from scitoolkit.surrogate.stages import Reports as Reports
    from scitoolkit.surrogate.stages import Settles as Settles
    from scitoolkit.surrogate.stages import Stages as Stages
    from scitoolkit.surrogate.stages import Stores as Stores
    from scitoolkit.surrogate.stages import TraceableStages as TraceableStages
    from scitoolkit.surrogate.stages import Trained as Trained

_HOMES = {
    "Calibrates": "stages",
    "DataStages": "stages",
    "Concludes": "stages",
    "Describes": "stages",
    "Ensembles": "stages",
    "Examines": "stages",
    "Finalises": "stages",
    "Indexes": "stages",
    "Members": "ensemble",
    "MembersTask": "ensemble",
    "Opened": "stages",
    "Produces": "stages",
    "Records": "stages",
    "Reports": "stages",
    "Settles": "stages",
    "Stages": "stages",
    "StagesAt": "job",
    "Start": "lifecycle",
    "Stores": "stages",
    "SurrogateJob": "job",
    "TraceableStages": "stages",
    "Trained": "stages",
    "array_loader": "lifecycle",
    "evaluate": "lifecycle",
    "fit": "lifecycle",
    "load": "lifecycle",
    "open_checked": "opening",
    "save": "lifecycle",
    "start": "lifecycle",
    "train": "lifecycle",
}
__all__ = [*_HOMES]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
