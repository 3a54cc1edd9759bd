"""Reservoir of simulations in memory that are replaced while training reads windows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError


@dataclass(frozen=True)
class Column:
    """Variable of a sample: rows of a variable of the simulation.

    Attributes:
        variable: of the simulation.
        offsets: rows relative to the start of the window; negative for earlier values.
    """

    variable: str
    offsets: tuple[int, ...]


class SimulationReservoir:
    """Memory for simulations of equal shape, and a `Source` of their windows.

    Args:
        shapes: {variable: (rows, *dims)}; values are float32.
        capacity: number of simulations.
        columns: {key of a batch: its variable and rows}.

    Attributes:
        windows: number of windows per simulation.
        nbytes: memory (bytes) of all simulations.
        bytes_read: total bytes of the simulations written into the reservoir.

    Raises:
        ConfigError: a simulation is shorter than a window.

    Example:
        >>> held = SimulationReservoir({"u": (4, 2)}, 3, {"u": Column("u", (0, 1))})
        >>> held.slot(1)["u"][...] = np.arange(8).reshape(4, 2)
        >>> held.windows, held.read(np.array([5]))["u"].tolist()
        (3, [[[4.0, 5.0], [6.0, 7.0]]])
    """

    bytes_read: int

    def __init__(
        self, shapes: Mapping[str, Sequence[int]], capacity: int, columns: Mapping[str, Column]
    ) -> None:
        reach = [o for column in columns.values() for o in column.offsets]
        self.before: int = max(0, -min(reach))
        rows = min(shape[0] for shape in shapes.values())
        self.windows: int = rows - self.before - max(reach)
        if self.windows < 1:
            raise ConfigError(
                f"a simulation of {rows} frames, and windows of {self.before + max(reach) + 1}",
                fix="more frames, or fewer rollout.steps",
            )
        self.columns: dict[str, Column] = dict(columns)
        self.capacity: int = capacity
        self._arrays = {n: np.zeros((capacity, *s), np.float32) for n, s in shapes.items()}
        self.nbytes: int = sum(a.nbytes for a in self._arrays.values())
        self.bytes_read = 0

    @property
    def simulation_nbytes(self) -> int:
        """Bytes per simulation."""
        return self.nbytes // self.capacity

    def slot(self, slot: int) -> dict[str, np.ndarray]:
        """Return writable views of the variables of one simulation, (rows, *dims)."""
        return {name: array[slot] for name, array in self._arrays.items()}

    def __len__(self) -> int:
        """Return the number of windows."""
        return self.capacity * self.windows

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Return the windows `slot * windows + window`, (samples, steps, *dims) each."""
        slots, starts = np.divmod(indices, self.windows)
        windows = {}
        for key, column in self.columns.items():
            rows = (starts + self.before)[:, None] + np.array(column.offsets)
            windows[key] = self._arrays[column.variable][slots[:, None], rows]
        return windows

    def describe(self) -> dict[str, Any]:
        """Return the shapes and columns (JSON types)."""
        return {
            "shapes": {n: list(a.shape[1:]) for n, a in self._arrays.items()},
            "columns": {k: [c.variable, *c.offsets] for k, c in self.columns.items()},
        }
