"""Symmetric 4- and 8-bit quantisation with one scale per group, packed into one message.

The bytes can only be sent by all-to-all and all-gather: codes with different scales cannot be
summed. Rounding is to nearest and not stochastic, so that a resumed training is bit-identical.

Source: Jia et al. 2024, SDP4Bit, https://arxiv.org/abs/2410.15526, section 3.
"""

from __future__ import annotations

import torch
from torch import Tensor

TURNED = 32  # size of a Hadamard transform


def encoded(rows: Tensor, bits: int, group: int) -> Tensor:
    """Quantise rows of numbers to rows of bytes: codes, then a float32 scale for each group.

    Args:
        rows: (rows, numbers), floating point, with an even number of numbers.
        bits: 4 or 8; codes range from -(2^(bits-1) - 1) to 2^(bits-1) - 1.
        group: numbers that share a scale; the last group of a row may be shorter.

    Returns:
        uint8 (rows, bytes). A group of zeros stays zero. A group with a NaN or Inf becomes NaN as
        a whole, so that all ranks reject the step.

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
    """Return the float32 numbers (rows, numbers) of bytes from `encoded`."""
    count, size = len(data), numbers * bits // 8
    codes = data[:, :size]
    if bits == 4:
        codes = torch.stack([codes << 4, codes & 0xF0], 2).view(count, -1)
        values = (codes.view(torch.int8) >> 4).float()
    else:
        values = codes.contiguous().view(torch.int8).float()
    # clone() and not contiguous(): a single row counts as contiguous at any, unaligned, offset.
    scales = data[:, size:].clone(memory_format=torch.contiguous_format).view(torch.float32)
    padding = -numbers % group
    if padding:
        values = torch.nn.functional.pad(values, (0, padding))
    values = values.view(count, -1, group).mul_(scales[..., None])
    return values.view(count, -1)[:, :numbers]


def turned(x: Tensor) -> Tensor:
    """Return the Hadamard transform of each 32 numbers, which is its own inverse.

    It spreads outliers over their group, so that one scale fits all of its entries.

    Args:
        x: (rows, numbers), floating point, with a multiple of 32 numbers.
    """
    matrix = torch.ones(1, 1, dtype=x.dtype, device=x.device)
    while len(matrix) < TURNED:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return (x.view(-1, TURNED) @ (matrix / TURNED**0.5)).view_as(x)
