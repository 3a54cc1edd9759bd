"""Guard `spectral_filter`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.emulation.guards.axes import Grid

State = dict[str, Tensor]


class Filter(nn.Module):
    """Spectral filter: products with one symmetric matrix per dim.

    Args:
        grid: of the fields.
        order: of the exponent.
        strength: damping of the highest mode.
        dims: dims to filter; all unless given.
        names: variables to filter; all unless given.
    """

    def __init__(
        self,
        grid: Grid,
        order: int,
        strength: float = 36.0,
        dims: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.names: Sequence[str] | None = names
        self.dims: list[int] = []
        for dim in dims or grid.sizes:
            matrix, share = grid.axis(dim).transform()
            factor = np.exp(-strength * share**order)
            smooth = torch.from_numpy(matrix.T @ (factor[:, None] * matrix)).float()
            self.register_buffer(f"matrix{len(self.dims)}", smooth, persistent=False)
            self.dims.append(grid.position(dim))

    def forward(self, new: State, old: State) -> State:
        """Return the new state without its smallest scales."""
        return {n: self._smooth(v) if self._acts_on(n, v) else v for n, v in new.items()}

    def _acts_on(self, name: str, value: Tensor) -> bool:
        fields = value.ndim > max(self.dims)
        return fields and (self.names is None or name in self.names)

    def _smooth(self, value: Tensor) -> Tensor:
        for i, dim in enumerate(self.dims):
            value = along(value, self.get_buffer(f"matrix{i}"), dim)
        return value


def along(value: Tensor, matrix: Tensor, dim: int) -> Tensor:
    """Apply a matrix (new, old) along a dim of a tensor.

    Example:
        >>> along(torch.ones(2, 3), torch.ones(1, 3), 1).tolist()
        [[3.0], [3.0]]
    """
    return (value.movedim(dim, -1) @ matrix.T).movedim(-1, dim)
