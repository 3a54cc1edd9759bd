"""Few bits a number: symmetric codes with one scale a group, packed into one message.

Codes go through all-to-all and all-gather alone: a sum of codes of different scales means nothing,
and bytes would wrap. Rounding is to nearest, so that a resumed training repeats its bits.

Source: Jia et al. 2024, SDP4Bit, https://arxiv.org/abs/2410.15526, section 3.
"""

from __future__ import annotations

import torch
from torch import Tensor

TURNED = 32  # numbers that one Hadamard transform mixes


def encoded(rows: Tensor, bits: int, group: int) -> Tensor:
    """Return rows of numbers as rows of bytes: codes, then a float32 scale for each group.

    Args:
        rows: (rows, numbers), of an even number of numbers.
        bits: 4 or 8; a code takes the values -(2^(bits-1) - 1) to 2^(bits-1) - 1.
        group: numbers that share a scale; the last group of a row may be shorter.

    Returns:
        uint8 (rows, bytes). A group of zeros stays zero. A group that holds a NaN or Inf becomes
        NaN as a whole, so that the step is refused everywhere and not trained on.

    Example:
        >>> x = torch.tensor([[7.0, -3.0, 0.2, 0.0]])
        >>> decoded(encoded(x, 4, 4), 4, 4, 4)
        tensor([[ 7., -3.,  0.,  0.]])
        >>> encoded(x, 4, 4).shape
        torch.Size([1, 6])
    """
    count, numbers = rows.shape
    padding = -numbers % group
    values = rows.float()
    if padding:
        values = torch.nn.functional.pad(values, (0, padding))
    values = values.view(count, -1, group)
    top = 2 ** (bits - 1) - 1
    # amax propagates NaN; Inf over Inf is NaN.
    scales = values.abs().amax(2) / top
    scales = torch.where(torch.isfinite(scales), scales, torch.nan)
    divisors = torch.where(scales >= torch.finfo(torch.float32).tiny, scales, 1.0)
    codes = (values / divisors[..., None]).round_().nan_to_num_(0.0).clamp_(-top, top)
    codes = codes.view(count, -1)[:, :numbers].to(torch.int8).view(torch.uint8)
    if bits == 4:
        codes = (codes[:, ::2] & 15) | (codes[:, 1::2] << 4)
    divisors = torch.where(torch.isnan(scales), scales, divisors)
    return torch.cat([codes, divisors.contiguous().view(torch.uint8)], 1)


def decoded(data: Tensor, numbers: int, bits: int, group: int) -> Tensor:
    """Return the float32 numbers (rows, numbers) that `encoded` made bytes of."""
    count, size = len(data), numbers * bits // 8
    codes = data[:, :size]
    if bits == 4:
        codes = torch.stack([codes << 4, codes & 0xF0], 2).view(count, -1)
        values = (codes.view(torch.int8) >> 4).float()
    else:
        values = codes.contiguous().view(torch.int8).float()
    # A copy: a single row is contiguous where it stands, at any offset.
    scales = data[:, size:].clone(memory_format=torch.contiguous_format).view(torch.float32)
    padding = -numbers % group
    if padding:
        values = torch.nn.functional.pad(values, (0, padding))
    values = values.view(count, -1, group).mul_(scales[..., None])
    return values.view(count, -1)[:, :numbers]


def turned(x: Tensor) -> Tensor:
    """Return the Hadamard transform of each 32 numbers, which is its own inverse.

    It spreads a large entry over its neighbours, so that a scale suits all of them; their errors
    are spread as well.

    Args:
        x: (rows, numbers), a multiple of 32 numbers.
    """
    matrix = torch.ones(1, 1, dtype=x.dtype, device=x.device)
    while len(matrix) < TURNED:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return (x.view(-1, TURNED) @ (matrix / TURNED**0.5)).view_as(x)
