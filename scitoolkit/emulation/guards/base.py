"""The plug-in kind `guard`: what holds an emulator's state to an invariant."""

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
        tolerance: largest change that it may make to the data, in units of a variable's typical
            change in one step; a guard that the data break is refused.
        cellwise: whether every cell is mapped by itself.
        timed: whether it knows the time of a step, so that it suits one lead alone.
    """

    name: str
    tolerance: ClassVar[float] = 0.1
    cellwise: ClassVar[bool] = False
    timed: ClassVar[bool] = False

    @abstractmethod
    def variables(self) -> Sequence[str]:
        """Return the names of the variables that it reads."""

    def compared(self) -> Sequence[str]:
        """Return those of them whose values before the step it reads too."""
        return ()

    def determined(self) -> Sequence[str]:
        """Return the names of the variables that it computes from others."""
        return ()

    def allows_mask(self) -> bool:
        """Return whether it works where cells of the grid hold no values and weigh nothing."""
        return False

    @abstractmethod
    def build(self, grid: Grid) -> nn.Module:
        """Return a module from (new state, old state), {name: (B, *grid)}, to the new state.

        Raises:
            ConfigError: the grid is none that the guard is made for.
        """

    @classmethod
    def propose(cls, frames: Frames, grid: Grid) -> Sequence[GuardConfig]:
        """Return the guards of this kind that hold in (sample, *grid) frames."""
        del frames, grid
        return ()


guards: Kind[type[GuardConfig]] = Kind(
    "guard",
    "holds an emulator's state to an invariant",
    contract="scitoolkit.testing:GuardContract",
)
AnyGuard = Annotated[GuardConfig, Choice(guards)]
