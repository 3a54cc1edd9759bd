"""The life of a surrogate, written once: open, split, fit, save, load, evaluate, predict.

A domain fills the stages of `Stages`; the functions of `lifecycle` compose them, and `SurrogateJob`
makes them a domain of the command line. A domain that differs calls the functions in its own order.
What only some domains do are further methods of the same class; `stages` has a protocol for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.surrogate.job import StagesAt as StagesAt
    from scitoolkit.surrogate.job import SurrogateJob as SurrogateJob
    from scitoolkit.surrogate.lifecycle import Start as Start
    from scitoolkit.surrogate.lifecycle import array_loader as array_loader
    from scitoolkit.surrogate.lifecycle import fit as fit
    from scitoolkit.surrogate.lifecycle import load as load
    from scitoolkit.surrogate.lifecycle import save as save
    from scitoolkit.surrogate.lifecycle import start as start
    from scitoolkit.surrogate.opening import open_checked as open_checked
    from scitoolkit.surrogate.stages import Opened as Opened
    from scitoolkit.surrogate.stages import Stages as Stages
    from scitoolkit.surrogate.stages import Trained as Trained

_NAMES = {
    "job": "StagesAt SurrogateJob",
    "lifecycle": "Start array_loader fit load save start",
    "opening": "open_checked",
    "stages": "Opened Stages Trained",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_HOMES]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
