"""The plug-in kind `guard`: maps that enforce invariants of an emulator's state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from scitoolkit.core.config import Config
from scitoolkit.core.plugins import Choice, Kind

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from scitoolkit.emulation.guards.axes import Grid

Frames = Mapping[str, "np.ndarray"]


class GuardConfig(Config):
    """Base of all guards: a map of the state after each step, in training, rollouts and export.

    Attributes:
        tolerance: largest change of the training data, in units of a variable's typical change in
            one step; a guard that changes them more raises ConfigError.
        cellwise: whether every cell is mapped independently.
        timed: whether it depends on the time of a step, so that it applies to a single lead.
    """

    name: str
    tolerance: ClassVar[float] = 0.1
    cellwise: ClassVar[bool] = False
    timed: ClassVar[bool] = False

    @abstractmethod
    def variables(self) -> Sequence[str]:
        """Return the names of the variables that the guard reads."""

    def compared(self) -> Sequence[str]:
        """Return the variables whose values before the step the guard reads, too."""
        return ()

    def determined(self) -> Sequence[str]:
        """Return the names of the variables that the guard computes from others."""
        return ()

    def allows_mask(self) -> bool:
        """Return whether the guard supports grids with cells without values."""
        return False

    @abstractmethod
    def build(self, grid: Grid) -> nn.Module:
        """Return a module (new state, old state) -> new state, {name: (B, *grid)} each.

        Raises:
            ConfigError: a grid that the guard does not support.
        """

    @classmethod
    def propose(cls, frames: Frames, grid: Grid) -> Sequence[GuardConfig]:
        """Return the guards of this class that (sample, *grid) frames satisfy."""
        del frames, grid
        return ()


guards: Kind[type[GuardConfig]] = Kind(
    "guard",
    "enforces an invariant of an emulator's state",
    contract="scitoolkit.testing:GuardContract",
)
AnyGuard = Annotated[GuardConfig, Choice(guards)]
