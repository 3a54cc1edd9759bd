"""Guards `fixed_mean` and `value_range`, which need no spectral basis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from scitoolkit.emulation.guards.axes import Grid

State = dict[str, Tensor]


class Means(nn.Module):
    """Set means by adding constants.

    Args:
        grid: of the fields.
        values: {variable: its mean, or any text for the mean of the old state}.
        over: dims of the mean; all unless given.
    """

    weights: Tensor

    def __init__(
        self, grid: Grid, values: Mapping[str, float | str], over: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        over = over or list(grid.sizes)
        self.values: dict[str, float | str] = dict(values)
        self.dims: list[int] = [grid.position(d) for d in over]
        volumes = torch.tensor(grid.weights, dtype=torch.float32)[None]
        self.register_buffer("weights", volumes / volumes.mean(self.dims, True), persistent=False)

    def forward(self, new: State, old: State) -> State:
        """Return the new state with the means set."""
        out = dict(new)
        for name, wanted in self.values.items():
            target = self._mean(old[name]) if isinstance(wanted, str) else wanted
            out[name] = new[name] - (self._mean(new[name]) - target)
        return out

    def _mean(self, value: Tensor) -> Tensor:
        return (value * self.weights).mean(self.dims, keepdim=True)


class Range(nn.Module):
    """Clamp variables.

    Args:
        ranges: {variable: (lowest, highest)}.
    """

    def __init__(self, ranges: Mapping[str, tuple[float, float]]) -> None:
        super().__init__()
        self.ranges: dict[str, tuple[float, float]] = dict(ranges)

    def forward(self, new: State, old: State) -> State:
        """Return the new state, clamped to the ranges."""
        return {n: v.clamp(*self.ranges[n]) if n in self.ranges else v for n, v in new.items()}
