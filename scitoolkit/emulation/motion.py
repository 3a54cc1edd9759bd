"""Animation of a rollout in a report: truth, forecast and error of one field.

A field in two dims, or the middle plane in three, is animated; a field in one dim is drawn over
position and step. The numbers of frames and cells are limited.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from scitoolkit.core.results import Maps
from scitoolkit.emulation.variables import Layout
from scitoolkit.surrogate.sections import beside_truth

FRAMES = 16
"""Largest number of frames of an animation, evenly spread over the steps."""
MOST_CELLS = 256
"""Largest number of cells along a dim; of finer fields every second, third, ... cell is shown."""
DIM = "rollout_step"
KINDS = ("truth", "emulator", "error")


class Motion:
    """Planes of one field over a rollout.

    Args:
        layout: grid of the field.
        name: of the field.
        steps: number of steps of the rollout.

    Example:
        >>> from scitoolkit.emulation.variables import Variable
        >>> field = Variable("b", ("x", "z"), (600, 4), "", True)
        >>> motion = Motion(Layout((), (field,), {"x": 600, "z": 4}, {}, "t"), "b", 100)
        >>> len(motion.steps), motion.stride
        (16, (3, 1))
    """

    def __init__(self, layout: Layout, name: str, steps: int) -> None:
        self.layout, self.name = layout, name
        self.dims: list[str] = list(layout.grid)[-2:]
        chosen = np.arange(1, steps + 1)
        if len(self.dims) > 1 and steps > FRAMES:
            chosen = np.unique(np.linspace(1, steps, FRAMES).round().astype(int))
        self.steps: list[int] = chosen.tolist()
        self.stride: tuple[int, ...] = tuple(-(-layout.grid[d] // MOST_CELLS) for d in self.dims)
        self.planes: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def add(
        self, step: int, truth: Mapping[str, np.ndarray], forecast: Mapping[str, np.ndarray]
    ) -> None:
        """Store the planes of a step if it is shown."""
        if step in self.steps:
            first, second = (self._shown(frame) for frame in (truth, forecast))
            self.planes[step] = (first, second)

    def _shown(self, frame: Mapping[str, np.ndarray]) -> np.ndarray:
        values = self.layout.blank({self.name: frame[self.name]})[self.name]
        shown = middle_plane(values, len(self.layout.grid))
        return shown[tuple(slice(None, None, step) for step in self.stride)].astype(np.float32)

    def dataset(self) -> xr.Dataset:
        """Return truth, forecast and error, (rollout_step, *dims) float32 each."""
        steps = sorted(self.planes)
        units = {v.name: v.units for v in self.layout.outputs}[self.name]
        truth, forecast = (np.stack([self.planes[s][k] for s in steps]) for k in (0, 1))
        coordinates = {
            self._dim(d): self.layout.coordinates[d][::stride]
            for d, stride in zip(self.dims, self.stride, strict=True)
            if d in self.layout.coordinates
        }
        values = dict(zip(KINDS, (truth, forecast, forecast - truth), strict=True))
        dims, attrs = (DIM, *map(self._dim, self.dims)), {"units": units} if units else {}
        variables = {self._variable(kind): (dims, array, attrs) for kind, array in values.items()}
        return xr.Dataset(variables, coords={DIM: steps, **coordinates})

    def figure(self) -> Maps:
        """Return the animation, or for a field in one dim the maps over position and step."""
        panels = beside_truth({kind: kind for kind in KINDS}, prefix=self._variable(""))
        every = max(self.stride)
        note = "The first rollout of the test split."
        if every > 1:
            note += f" One cell in {every} is shown along the longest dim."
        units = {v.name: v.units for v in self.layout.outputs}[self.name]
        moves = len(self.dims) > 1
        return Maps(
            title=f"{self.name} in motion" if moves else f"{self.name} over the rollout",
            panels=panels,
            unit=units if units != "1" else "",
            note=note,
            animate=DIM if moves else "",
        )

    def _variable(self, kind: str) -> str:
        return f"{self.name}_motion_{kind}"

    def _dim(self, dim: str) -> str:
        """Return the name of the dim of the shown cells, which differs from that of all cells."""
        stride = self.stride[self.dims.index(dim)]
        return dim if stride == 1 else f"{dim}_shown"


def middle_plane(values: np.ndarray, num_dims: int) -> np.ndarray:
    """Return the middle plane of a volume; planes and lines are returned unchanged."""
    return values if num_dims < 3 else values[values.shape[0] // 2]
