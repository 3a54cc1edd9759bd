"""The trainer shared by all domains: parallel strategies, checkpoints, exact resume, launching.

Names are imported lazily, so that `scitoolkit.training.launch` does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.training.callbacks import Callback as Callback
    from scitoolkit.training.checkpoint import Checkpoints as Checkpoints
    from scitoolkit.training.checkpoint import best_weights as best_weights
    from scitoolkit.training.checkpoint import load_best as load_best
    from scitoolkit.training.config import TrainingConfig as TrainingConfig
    from scitoolkit.training.job import TrainingJob as TrainingJob
    from scitoolkit.training.launch import current_rank as current_rank
    from scitoolkit.training.launch import world_size as world_size
    from scitoolkit.training.supervised import fit_model as fit_model
    from scitoolkit.training.trainer import Trainer as Trainer

_HOMES = {
    "Callback": "callbacks",
    "Checkpoints": "checkpoint",
    "Trainer": "trainer",
    "TrainingConfig": "config",
    "TrainingJob": "job",
    "best_weights": "checkpoint",
    "fit_model": "supervised",
    "load_best": "checkpoint",
    "current_rank": "launch",
    "world_size": "launch",
}
__all__ = [*_HOMES]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
