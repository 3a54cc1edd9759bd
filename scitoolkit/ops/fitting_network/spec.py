"""Spec of the fitting network of a Deep Potential: widths, and shortcuts between layers."""

from __future__ import annotations

from dataclasses import dataclass

NONE, SAME, TWICE = range(3)


def shortcut(fan_in: int, fan_out: int) -> int:
    """Return the kind of shortcut of a layer of these widths, as in deepmd-kit.

    Example:
        >>> shortcut(240, 240) == SAME, shortcut(100, 240) == NONE
        (True, True)
    """
    return SAME if fan_out == fan_in else TWICE if fan_out == 2 * fan_in else NONE


@dataclass(frozen=True)
class FittingSpec:
    """Widths of a network on the descriptor D[m, a] = sum_c T[m, c] T[a, c].

    Attributes:
        basis: number of moments T (index m).
        axis: number of leading moments (index a).
        widths: widths of the hidden tanh layers, before the linear output.

    Example:
        >>> FittingSpec(100, 16, (240, 240, 240)).inputs
        1480
    """

    basis: int
    axis: int
    widths: tuple[int, ...]

    @property
    def inputs(self) -> int:
        """Number of distinct entries of the descriptor."""
        return self.basis * self.axis - self.axis * (self.axis - 1) // 2
