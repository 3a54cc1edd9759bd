"""The public function: checked once at the boundary, then the best backend there is."""

from __future__ import annotations

import ctypes
import functools
from types import ModuleType

import torch
from torch import Tensor

from scitoolkit.ops.codegen import (
    REAL,
    check_tensor,
    choose_backend,
    gpu_kernels_of,
    kernels_of,
    load_library,
    load_triton,
)
from scitoolkit.ops.codegen.rows import row_operator, run_triton
from scitoolkit.ops.radial import cpu, reference, triton_source
from scitoolkit.ops.radial.spec import RadialSpec


@kernels_of("radial basis")
@functools.lru_cache(maxsize=64)
def kernels(spec: str, dtype: torch.dtype) -> ctypes.CDLL:
    """Return the loaded kernels of a spec, compiled on first use.

    Raises:
        BackendError: no compiler, or one that fails.
    """
    return load_library(cpu.generate(RadialSpec.from_json(spec), REAL[dtype]))


@gpu_kernels_of("radial basis")
@functools.lru_cache(maxsize=64)
def gpu_kernels(spec: str, dtype: torch.dtype) -> ModuleType:
    """Return the module of the kernels of a spec in Triton, the same for both precisions."""
    return load_triton(triton_source.generate(RadialSpec.from_json(spec)))


@functools.lru_cache(maxsize=256)
def _text(*arguments) -> str:
    return RadialSpec(*arguments).to_json()


@torch.compiler.assume_constant_result
def _spec_text(kind: str, num_basis: int, cutoff: float, envelope: int) -> str:
    return _text(kind, int(num_basis), float(cutoff), int(envelope))


def _dim_out(spec: str) -> int:
    return RadialSpec.from_json(spec).num_basis


_operator = row_operator("radial_basis", kernels, _dim_out)
_gpu_operator = row_operator("radial_basis_triton", gpu_kernels, _dim_out, run_triton)


def radial_basis(
    distances: Tensor,
    cutoff: float,
    *,
    kind: str = "bessel",
    num_basis: int = 8,
    envelope: int = 6,
    backend: str = "auto",
) -> Tensor:
    """Return radial basis functions times a cutoff that is C2, with both derivatives fused.

    The kernels work in float64 inside, for float32 distances too; rows are independent, so the
    bits do not depend on the number of threads.

    Args:
        distances: shape (...,), float32 or float64, not negative; 0 is allowed.
        cutoff: where the functions end, in the unit of the distances.
        kind: bessel, gaussian or chebyshev; see `RadialSpec`.
        num_basis: number of functions.
        envelope: power p of the polynomial cutoff, at least 2.
        backend: auto (the kernel of the distances' device if it can run, else the reference, said
            once), cpu, triton or reference.

    Returns:
        Values, shape (..., num_basis); exactly zero at and beyond the cutoff.

    Raises:
        ConfigError: a kind, number or cutoff that cannot be.
        DataError: distances that are no floating tensor.
        BackendError: backend cpu or triton is asked for and cannot run.

    Source: Klicpera et al. 2020, Directional Message Passing, equations 7 and 8.

    Example:
        >>> radial_basis(torch.tensor([1.0, 5.0]), 5.0, num_basis=2)[1].tolist()
        [0.0, 0.0]
    """
    text = _spec_text(kind, num_basis, cutoff, envelope)
    flat = isinstance(distances, Tensor) and distances.ndim != 1
    rows = distances.reshape(-1) if flat else distances
    check_tensor("distances", rows, ("E",), rows)
    chosen = choose_backend("radial basis", text, rows, backend)
    if chosen != "reference":
        run = _operator if chosen == "cpu" else _gpu_operator
        out = run(rows.contiguous(), text)
    else:
        out = reference.radial_basis(RadialSpec.from_json(text), rows)
    return out.reshape(*distances.shape, num_basis) if flat else out
