"""Launches of the Triton kernels of the symmetric contraction."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from scitoolkit.ops.codegen import DerivedIndex, load_triton, on_device
from scitoolkit.ops.symmetric_contraction import triton_source
from scitoolkit.ops.symmetric_contraction.spec import ContractionSpec
from scitoolkit.ops.symmetric_contraction.triton_tables import check_size, table


def prepare(text: str, dtype: torch.dtype) -> ModuleType:
    """Return the module of the kernels, the same for every spec and precision.

    Args:
        text: the spec's text.
        dtype: not used; the kernels take that of their arguments.

    Raises:
        BackendError: a spec with too many terms.
    """
    check_size(ContractionSpec.from_json(text))
    return load_triton(triton_source.SOURCE)


def run(
    name: str, text: str, x: Tensor, weight: Tensor, ptr: Tensor, order: Tensor, *rest: Tensor
) -> None:
    """Compute one of the five functions that `operators` differentiates into each other.

    Args:
        name: forward, backward, backward_weight, double_backward or double_backward_weight.
        text: the spec's text.
        x: features (N, dim_in, C).
        weight: coefficients of the polynomial (E, rows, C).
        ptr: start of each element's nodes in the order by element, (E + 1,).
        order: that order, (N,).
        rest: further inputs and then outputs: out; grad, gx; grad, gw; grad, dx, ggrad, gx;
            grad, dx, gw.
    """
    if not x.numel() or not weight.shape[1]:  # no nodes, or no paths
        for gradient in rest[-2:] if name == "double_backward" else rest[-1:]:
            gradient.zero_()
        return
    step = _ContractionStep(
        ContractionSpec.from_json(text), x, weight, ptr, order, prepare(text, x.dtype)
    )
    with on_device(x):
        if name == "forward":
            step.contract("values", rest[0])
        elif name == "backward":
            step.contract("gradients", rest[1], grad=rest[0])
        elif name == "double_backward":
            grad, dx, ggrad, gx = rest
            step.contract("values", ggrad, along=dx)
            step.contract("gradients", gx, grad=grad, along=dx)
        else:
            step.coefficients(rest[-1], rest[0], rest[1] if len(rest) > 2 else None)


class _ContractionStep:
    """The arguments that launches of one call share."""

    def __init__(self, spec: ContractionSpec, x, weight, ptr, order, module: ModuleType) -> None:
        self.spec, self.x, self.weight, self.ptr, self.order = spec, x, weight, ptr, order
        self.module, self.channels = module, x.shape[2]
        self._tiles: tuple[Tensor, Tensor] | None = None

    def contract(
        self, kind: str, out: Tensor, grad: Tensor | None = None, along: Tensor | None = None
    ) -> None:
        """Compute values or gradients, or their derivative along a cotangent of x."""
        terms = table(self.spec, kind, self.x.device)
        if self._tiles is None:
            self._tiles = _derived_tiles(self.ptr, self.x.shape[0], triton_source.TILE)
        blocks = -(-self.channels // triton_source.BLOCK)
        self.module.contract[(self._tiles[0].shape[0], blocks, out.shape[1])](
            self.x,
            self.x if along is None else along,
            self.weight,
            self.x if grad is None else grad,
            out,
            terms.words,
            terms.bounds,
            self.ptr,
            self.order,
            *self._tiles,
            self.channels,
            self.weight.shape[1],
            self.spec.dim_in,
            self.spec.dim_out,
            out.shape[1],
            DEPTH=self.spec.correlation,
            HAS_G=grad is not None,
            TANGENT=along is not None,
            TILE=triton_source.TILE,
            BLOCK=triton_source.BLOCK,
            **triton_source.LAUNCH,
        )

    def coefficients(self, out: Tensor, grad: Tensor, along: Tensor | None) -> None:
        """Compute gradients of coefficients by runs of each element's nodes, summed in order."""
        terms = table(self.spec, "rows", self.x.device)
        elements, rows, channels = out.shape
        sums = out.new_empty(elements, triton_source.RUNS, rows, channels)
        blocks = -(-channels // triton_source.BLOCK)
        grid = (elements * triton_source.RUNS, -(-rows // triton_source.ROWS), blocks)
        self.module.coefficients[grid](
            self.x,
            self.x if along is None else along,
            grad,
            sums,
            terms.words,
            terms.bounds,
            self.ptr,
            self.order,
            channels,
            rows,
            self.spec.dim_in,
            self.spec.dim_out,
            DEPTH=self.spec.correlation,
            TANGENT=along is not None,
            RUNS=triton_source.RUNS,
            ROWS=triton_source.ROWS,
            TILE=triton_source.TILE,
            BLOCK=triton_source.BLOCK,
            **triton_source.LAUNCH,
        )
        torch.sum(sums, 1, out=out)


def _tiles(ptr: Tensor, num_nodes: int, tile: int) -> tuple[Tensor, Tensor]:
    """Return the element and first node of each tile, for the largest possible number of tiles.

    The actual number would require a synchronisation with the GPU.
    """
    elements = ptr.shape[0] - 1
    ends = torch.cumsum(-(-ptr.diff() // tile), 0)
    number = torch.arange(num_nodes // tile + elements, device=ptr.device)
    element = torch.searchsorted(ends, number, right=True).clamp_max(elements - 1)
    before = torch.cat([ends.new_zeros(1), ends])[element]
    return element, ptr[element] + (number - before) * tile


_derived_tiles = DerivedIndex(_tiles)
