"""Public function of spherical harmonics."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from scitoolkit.core.errors import DataError
from scitoolkit.ops.codegen import check_tensor
from scitoolkit.ops.codegen.rows import RowOperation
from scitoolkit.ops.spherical_harmonics import cpu, reference, triton_source
from scitoolkit.ops.spherical_harmonics.spec import HarmonicsSpec, degrees_of


@functools.lru_cache(maxsize=256)
def _text(*arguments) -> str:
    return HarmonicsSpec(*arguments).to_json()


@torch.compiler.assume_constant_result
def _spec_text(degrees: object, normalize: bool, normalization: str) -> str:
    return _text(degrees_of(degrees), normalization, bool(normalize))


@torch.compiler.assume_constant_result
def _dim_out(text: str) -> int:
    return HarmonicsSpec.from_json(text).dim_out


OPERATION = RowOperation(
    "spherical_harmonics",
    "real spherical harmonics of vectors",
    parse=HarmonicsSpec.from_json,
    dim_out=_dim_out,
    reference=reference.spherical_harmonics,
    c_source=cpu.generate,
    triton_source=triton_source.generate,
    examples="scitoolkit.ops.spherical_harmonics.examples:examples",
)


def spherical_harmonics(
    degrees: object,
    vectors: Tensor,
    normalize: bool,
    normalization: str = "integral",
    *,
    backend: str = "auto",
) -> Tensor:
    """Real spherical harmonics of vectors in the convention of `e3nn.o3.spherical_harmonics`.

    Twice differentiable, with one fused kernel each for values, gradient and second derivative.
    Bit-identical for any number of threads.

    Args:
        degrees: an integer, a sequence of integers, or irreps such as "0e + 1o + 2e"; at most 7.
        vectors: shape (..., 3), float32 or float64, in any unit.
        normalize: divide vectors by their length first. For a vector of length zero, harmonics of
            degree 0 keep their constant value; all others and all derivatives are 0.
        normalization: component, norm or integral.
        backend: auto (the kernel for the vectors' device if it can run, else the reference, with
            one warning), cpu, triton, reference, or the name of an installed kernel backend.

    Returns:
        Harmonics, shape (..., sum of 2l + 1), in e3nn's order with y as the polar axis.

    Raises:
        ConfigError: an invalid degree or normalisation, or an unknown backend.
        DataError: a shape or dtype that does not match.
        BackendError: the named backend cannot run.

    Source: convention of e3nn; gradient formula of solid harmonics (Varshalovich et al., 5.8).

    Example:
        >>> spherical_harmonics([0, 1], torch.tensor([[0.0, 2.0, 0.0]]), True, "norm")
        tensor([[1., 0., 1., 0.]])
    """
    text = _spec_text(degrees, normalize, normalization)
    if not isinstance(vectors, Tensor) or vectors.ndim < 1 or vectors.shape[-1] != 3:
        actual = tuple(vectors.shape) if isinstance(vectors, Tensor) else type(vectors)
        raise DataError(f"expected vectors of shape (..., 3), got {actual}")
    rows = vectors if vectors.ndim == 2 else vectors.reshape(-1, 3)
    check_tensor("vectors", rows, ("E", 3), rows)
    out = OPERATION(text, rows, backend)
    return out if vectors.ndim == 2 else out.reshape(*vectors.shape[:-1], _dim_out(text))
