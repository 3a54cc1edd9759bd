"""Registered torch operators of the fitting network, and the packing of its parameters."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import REAL, call, differentiable, load_library
from scitoolkit.ops.fitting_network import cpu
from scitoolkit.ops.fitting_network.reference import Layer
from scitoolkit.ops.fitting_network.spec import NONE, SAME, TWICE, FittingSpec, shortcut


def refusal(spec: FittingSpec) -> str:
    """Return why there is no kernel for a spec, empty if there is one."""
    # The kernel has no full descriptor to add: it merges symmetric entries.
    if shortcut(spec.basis * spec.axis, spec.widths[0]) != NONE:
        return "there is no kernel for a shortcut around the first layer"
    return ""


@functools.lru_cache(maxsize=64)
def kernels(spec: FittingSpec, dtype: torch.dtype) -> ctypes.CDLL:
    """Return the loaded kernels of a spec, compiled on first use.

    Raises:
        BackendError: a spec without kernels, no compiler, or a compiler error.
    """
    reason = refusal(spec)
    if reason:
        raise BackendError(reason)
    library = load_library(source(spec, dtype))
    library.packed_size.restype = ctypes.c_int64
    return library


def source(spec: FittingSpec, dtype: torch.dtype) -> str:
    """Return the C source of the kernel of a spec."""
    return cpu.generate(spec, REAL[dtype])


def _space(flat: Tensor, basis: int, axis: int, widths: list[int]) -> Tensor:
    library = kernels(FittingSpec(basis, axis, tuple(widths)), flat.dtype)
    return flat.new_empty(library.packed_size())


@differentiable("fitting_network_pack", fake=_space)
def _pack(flat: Tensor, basis: int, axis: int, widths: list[int]) -> Tensor:
    """Return the parameters in the order of the kernel."""
    packed = _space(flat, basis, axis, widths)
    library = kernels(FittingSpec(basis, axis, tuple(widths)), flat.dtype)
    call(library.pack_parameters, flat.contiguous(), packed)
    return packed


@differentiable(
    "fitting_network",
    fake=lambda moments, packed, basis, axis, widths: (
        moments.new_empty(moments.shape[0]),
        torch.empty_like(moments),
    ),
)
def _fitting(
    moments: Tensor, packed: Tensor, basis: int, axis: int, widths: list[int]
) -> tuple[Tensor, Tensor]:
    """Return energies (n,) and their derivatives with respect to the moments (n, basis, 4)."""
    library = kernels(FittingSpec(basis, axis, tuple(widths)), moments.dtype)
    energy, cotangent = moments.new_empty(len(moments)), torch.empty_like(moments)
    threads = torch.get_num_threads()
    call(library.fitting, len(moments), moments, packed, energy, cotangent, threads)
    return energy, cotangent


def network(
    spec: FittingSpec, layers: Sequence[Layer]
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return a function from moments to energies and derivatives, with packed parameters."""
    widths = list(spec.widths)
    packed = _pack(flat_parameters(spec, layers), spec.basis, spec.axis, widths)

    def run(moments: Tensor) -> tuple[Tensor, Tensor]:
        return _fitting(moments.contiguous(), packed, spec.basis, spec.axis, widths)

    return run


@differentiable(
    "fitting_network_products",
    fake=lambda moments, weights, biases, steps, axis: (
        moments.new_empty(moments.shape[0]),
        torch.empty_like(moments),
    ),
)
def _products(
    moments: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    steps: list[Tensor],
    axis: int,
) -> tuple[Tensor, Tensor]:
    """Return energies (n,) and their derivatives with respect to the moments (n, basis, 4)."""
    leading = moments[:, :axis]
    h = (moments @ leading.transpose(1, 2)).flatten(1)
    tanhs, kinds = [], [shortcut(*weight.shape) for weight in weights[:-1]]
    for weight, bias, step, kind in zip(weights, biases, steps, kinds, strict=False):
        t = torch.tanh(torch.addmm(bias, h, weight))
        tanhs.append(t)
        if kind == NONE:
            h = t * step
        else:
            h = torch.addcmul(h if kind == SAME else torch.cat([h, h], 1), t, step)
    energy = torch.addmm(biases[-1], h, weights[-1]).squeeze(1)
    slope = weights[-1].T.expand(len(moments), -1)
    layers = list(zip(weights, tanhs, steps, kinds, strict=False))
    for weight, t, step, kind in reversed(layers):
        below = (slope * step * (1 - t * t)) @ weight.T
        if kind == SAME:
            below += slope
        elif kind == TWICE:
            below += slope.unflatten(1, (2, -1)).sum(1)
        slope = below
    table = slope.unflatten(1, (-1, axis))
    out = table @ leading
    out[:, :axis] += table.transpose(1, 2) @ moments
    return energy, out


def network_by_products(
    spec: FittingSpec, layers: Sequence[Layer]
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return the same function for GPUs: products of torch's libraries, without a kernel for it.

    The derivatives are written out, so that autograd records and stores nothing.
    """
    weights, biases, steps = (list(part) for part in zip(*layers, strict=True))
    scales = [torch.ones_like(b) if s is None else s for b, s in zip(biases, steps, strict=True)]

    def run(moments: Tensor) -> tuple[Tensor, Tensor]:
        return _products(moments, weights, biases, scales, spec.axis)

    return run


def flat_parameters(spec: FittingSpec, layers: Sequence[Layer]) -> Tensor:
    """Return the flat parameters of a network, the input of the kernel's packing.

    These are weights (in, out), bias and step of each layer, then the linear output and its offset.
    The rows of the first layer's weights are those of the distinct entries of the descriptor.
    """
    parts = []
    for number, (weight, bias, step) in enumerate(layers[:-1]):
        weight = weight if number else _folded(spec, weight)
        parts += [weight, bias, torch.ones_like(bias) if step is None else step]
    return torch.cat([part.flatten() for part in (*parts, *layers[-1][:2])])


def _folded(spec: FittingSpec, weight: Tensor) -> Tensor:
    """Return the weights of the distinct entries D[m, a] with a <= m; m is the faster index."""
    square = weight.view(spec.basis, spec.axis, -1)
    rows = []
    for a in range(spec.axis):
        rows.append(square[a:, a].clone())
        rows[-1][1 : spec.axis - a] += square[a, a + 1 :]
    return torch.cat(rows)
