"""Launchers of the Triton kernels of the sparse products, with the arguments of the C ones."""

from __future__ import annotations

import functools
from types import ModuleType

import torch
from torch import Tensor

from scitoolkit.ops.codegen import DerivedIndex, load_triton, on_device, triton_segments
from scitoolkit.ops.codegen.triton_segments import Tiles
from scitoolkit.ops.spmm import triton_source


@functools.lru_cache(maxsize=256)
def _module(tiles: Tiles) -> ModuleType:
    return load_triton(triton_source.generate(tiles))


def kernels(width: str, dtype: torch.dtype) -> ModuleType:
    """Return the module of the kernels of a width for both precisions."""
    return _module(triton_source.tiles_of(max(1, int(width))))


def run_product(
    pointer: Tensor, column: Tensor, value: Tensor | None, x: Tensor, into: Tensor | None = None
) -> Tensor:
    """Launch the kernel without recording a derivative; the product is added to `into` if given."""
    out = x.new_empty(pointer.shape[0] - 1, x.shape[1]) if into is None else into
    tiles = triton_source.tiles_of(x.shape[1])
    name = triton_source.product_name(weighted=value is not None, into=into is not None)
    inputs = (x,) if value is None else (x, value)
    triton_segments.run(_module(tiles), name, tiles, pointer, column, inputs, (out,))
    return out


def _rows(pointer: Tensor, nonzeros: int) -> Tensor:
    """Return the row of each nonzero."""
    numbers = torch.arange(pointer.shape[0] - 1, device=pointer.device)
    return torch.repeat_interleave(numbers, pointer.diff(), output_size=nonzeros)


_derived_rows = DerivedIndex(_rows)


def run_sampled(pointer: Tensor, column: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return the inner products of rows of `left` and `right` at the nonzeros, shape (nnz,)."""
    nonzeros = column.shape[0]
    out = left.new_empty(nonzeros)
    if not nonzeros:
        return out
    rows = _derived_rows(pointer, nonzeros)
    tiles = triton_source.tiles_of(left.shape[1])
    with on_device(left):
        _module(tiles).sampled[(-(-nonzeros // tiles.nonzeros),)](
            nonzeros, rows, column, left, right, out, num_warps=tiles.warps, enable_fp_fusion=True
        )
    return out
