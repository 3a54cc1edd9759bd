"""Public function of radial bases."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.codegen import check_tensor
from scitoolkit.ops.codegen.rows import RowOperation
from scitoolkit.ops.radial import cpu, reference, triton_source
from scitoolkit.ops.radial.spec import RadialSpec


@functools.lru_cache(maxsize=256)
def _text(*arguments) -> str:
    return RadialSpec(*arguments).to_json()


@torch.compiler.assume_constant_result
def _spec_text(kind: str, num_basis: int, cutoff: float, envelope: int) -> str:
    for name, number in (("num_basis", num_basis), ("envelope", envelope)):
        if int(number) != number:
            raise ConfigError(f"{name}={number}", allowed="an integer")
    return _text(kind, int(num_basis), float(cutoff), int(envelope))


def _dim_out(spec: str) -> int:
    return RadialSpec.from_json(spec).num_basis


OPERATION = RowOperation(
    "radial_basis",
    "radial basis functions times a smooth cutoff",
    parse=RadialSpec.from_json,
    dim_out=_dim_out,
    reference=reference.radial_basis,
    c_source=cpu.generate,
    triton_source=triton_source.generate,
    examples="scitoolkit.ops.radial.examples:examples",
)


def radial_basis(
    distances: Tensor,
    cutoff: float,
    *,
    kind: str = "bessel",
    num_basis: int = 8,
    envelope: int = 6,
    backend: str = "auto",
) -> Tensor:
    """Radial basis functions of distances times a smooth (C2) cutoff function.

    Twice differentiable. The kernels compute in float64, also for distances in float32.
    Bit-identical for any number of threads.

    Args:
        distances: shape (...,), float32 or float64, not negative; 0 is allowed.
        cutoff: distance at which the functions vanish, in the unit of the distances.
        kind: bessel, gaussian or chebyshev; see `RadialSpec`.
        num_basis: number of functions.
        envelope: power p of the polynomial cutoff, an integer of at least 2.
        backend: auto (the kernel for the distances' device if it can run, else the reference, with
            one warning), cpu, triton, reference, or the name of an installed kernel backend.

    Returns:
        Values, shape (..., num_basis); exactly zero at and beyond the cutoff.

    Raises:
        ConfigError: an invalid kind, number or cutoff, or an unknown backend.
        DataError: distances that are not a floating tensor.
        BackendError: the named backend cannot run.

    Source: Klicpera et al. 2020, Directional Message Passing, equations 7 and 8.

    Example:
        >>> radial_basis(torch.tensor([1.0, 5.0]), 5.0, num_basis=2)[1].tolist()
        [0.0, 0.0]
    """
    text = _spec_text(kind, num_basis, cutoff, envelope)
    flat = isinstance(distances, Tensor) and distances.ndim != 1
    rows = distances.reshape(-1) if flat else distances
    check_tensor("distances", rows, ("E",), rows)
    out = OPERATION(text, rows, backend)
    return out.reshape(*distances.shape, num_basis) if flat else out
