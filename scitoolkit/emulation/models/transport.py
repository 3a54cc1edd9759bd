"""Transport (warping) of fields: multilinear interpolation at displaced positions.

Convolutions represent a shift by several cells poorly; a network that returns displacements needs a
single interpolation (de Bézenac et al. 2018, arXiv:1711.07970).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from scitoolkit.emulation.models.layers import Padding, continued
from scitoolkit.emulation.models.padding import SharedDim


def transport(
    x: Tensor, displacement: Tensor, reach: Sequence[int], padding: Sequence[Padding]
) -> Tensor:
    """Return fields interpolated multilinearly at displaced positions.

    Args:
        x: (B, C, *space).
        displacement: (B, C, dim, *space) in cells; saturates smoothly at `reach`.
        reach: largest displacement along each dim, in cells; 0 for none.
        padding: one entry per space dim; beyond the ends of walled dims the edge value is used.

    Returns:
        (B, C, *space); `x` itself where the displacement is 0.

    Example:
        >>> x = torch.arange(6.0).view(1, 1, 6)
        >>> back = torch.full((1, 1, 1, 6), -1.0)
        >>> transport(x, back, [100], ["circular"]).round().flatten().tolist()
        [5.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    """
    space = x.shape[2:]
    wide, starts = x, []
    for i, (far, kind) in enumerate(zip(reach, padding, strict=True)):
        starts.append(far if kind == "circular" or isinstance(kind, SharedDim) else 0)
        wide = continued(wide, i + 2, starts[-1], kind)
    lines = []
    for i, (size, far) in enumerate(zip(space, reach, strict=True)):
        shape = [1] * len(space)
        shape[i] = size
        position = torch.arange(size, device=x.device, dtype=x.dtype).view(shape)
        along = displacement[:, :, i]
        moved = far * torch.tanh(along / far) if far else torch.zeros_like(along)
        last = max(wide.shape[i + 2] - 1, 1)
        lines.append((position + moved + starts[i]) * (2 / last) - 1)
    # grid_sample counts dims from the last one, and has no 1-D form: give it a dim of one cell.
    grid = torch.stack(lines[::-1], -1).flatten(0, 1)
    flat = wide.flatten(0, 1).unsqueeze(1)
    if len(space) == 1:
        flat, grid = flat.unsqueeze(2), grid.unsqueeze(1)
        grid = torch.cat([grid, torch.zeros_like(grid)], -1)
    out = functional.grid_sample(
        flat, grid, mode="bilinear", padding_mode="border", align_corners=True
    )
    return out.reshape(x.shape)
