"""Launchers of the Triton kernels of both kinds of attention, with the arguments of the C ones."""

from __future__ import annotations

import functools
from types import ModuleType

import torch
from torch import Tensor

from scitoolkit.ops.attention import triton_source
from scitoolkit.ops.codegen import load_triton, triton_segments
from scitoolkit.ops.codegen.triton_segments import Tiles


@functools.lru_cache(maxsize=64)
def _module(tiles: Tiles, *, additive: bool) -> ModuleType:
    generate = triton_source.generate_additive if additive else triton_source.generate
    return load_triton(generate(tiles))


def kernels(spec: str, dtype: torch.dtype) -> ModuleType:
    """Return the module of graph attention of `<heads>x<width>` for both precisions.

    Raises:
        BackendError: heads that are too wide.
    """
    return _module(triton_source.tiles_of(spec), additive=False)


def additive_kernels(spec: str, dtype: torch.dtype) -> ModuleType:
    """Return the module of additive attention of `<heads>x<width>` for both precisions."""
    return _module(triton_source.tiles_of(spec), additive=True)


def _tiles(x: Tensor) -> Tiles:
    return triton_source.tiles_of(f"{x.shape[1]}x{x.shape[2]}")


def _slope(slope: float, like: Tensor) -> Tensor:
    return like.new_full((1,), slope)  # Triton converts a Python number to float32


def run_attention(
    pointer: Tensor, column: Tensor, left: Tensor, right: Tensor, x: Tensor, slope: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the output, log(sum of exp(score)), and both sums over positive scores."""
    out = x.new_empty(left.shape[0], *x.shape[1:])
    norm, positive, share = torch.empty_like(left), torch.empty_like(out), torch.empty_like(left)
    tiles = _tiles(x)
    triton_segments.run(
        _module(tiles, additive=False),
        "forward",
        tiles,
        pointer,
        column,
        (x, left, right, _slope(slope, x)),
        (norm, out, positive, share),
    )
    return out, norm, positive, share


def run_attention_backward(
    t_pointer: Tensor,
    t_column: Tensor,
    left: Tensor,
    right: Tensor,
    x: Tensor,
    out: Tensor,
    norm: Tensor,
    positive: Tensor,
    share: Tensor,
    grad: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients with respect to left, right and x."""
    mean = (grad * out).sum(2)
    by_left = (1 - slope) * ((grad * positive).sum(2) - mean * share)
    by_right, by_x, tiles = torch.empty_like(right), torch.empty_like(x), _tiles(x)
    triton_segments.run(
        _module(tiles, additive=False),
        "columns",
        tiles,
        t_pointer,
        t_column,
        (x, right, left, norm, mean, grad, _slope(slope, x)),
        (by_x, by_right),
    )
    return by_left, by_right, by_x


def run_additive(
    pointer: Tensor, column: Tensor, left: Tensor, x: Tensor, vector: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """Return the output, and the logarithm of each row's sum of exp(score)."""
    out, norm, tiles = torch.empty_like(left), left.new_empty(left.shape[:2]), _tiles(x)
    triton_segments.run(
        _module(tiles, additive=True),
        "forward",
        tiles,
        pointer,
        column,
        (x, left, vector, _slope(slope, x)),
        (norm, out),
    )
    return out, norm


def run_additive_backward(
    pointer: Tensor,
    column: Tensor,
    t_pointer: Tensor,
    t_column: Tensor,
    left: Tensor,
    x: Tensor,
    vector: Tensor,
    out: Tensor,
    norm: Tensor,
    grad: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients with respect to left, x and vector."""
    tiles = _tiles(x)
    module = _module(tiles, additive=True)
    inputs = (x, left, vector, norm, (grad * out).sum(2), grad, _slope(slope, x))
    by_left, by_x, by_vector = (torch.empty_like(tensor) for tensor in (left, x, left))
    triton_segments.run(module, "rows", tiles, pointer, column, inputs, (by_left, by_vector))
    triton_segments.run(module, "columns", tiles, t_pointer, t_column, inputs, (by_x,))
    return by_left, by_x, by_vector.sum(0)  # deterministic, unlike atomics
