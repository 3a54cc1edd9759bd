"""Spherical harmonics in Triton against the reference: see `test_triton_kernels.py`."""

import os

import pytest
import torch

from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.codegen import operations, triton_version
from scitoolkit.ops.spherical_harmonics import spherical_harmonics

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [
    pytest.mark.skipif(not triton_version(), reason="triton is not installed"),
    *([] if INTERPRETED else [pytest.mark.gpu]),
]


def _rows(count):
    rows = torch.randn(count, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return rows.to(DEVICE)


def _derivatives(rows, degrees, normalize, backend):
    """Values, gradient, and the gradients of the gradient."""
    rows = rows.clone().requires_grad_()
    out = spherical_harmonics(degrees, rows, normalize, backend=backend)
    probe = torch.sin(torch.arange(out.numel(), dtype=rows.dtype, device=DEVICE))
    probe = probe.reshape(out.shape).requires_grad_()
    (first,) = torch.autograd.grad(out, rows, probe, create_graph=True)
    cotangent = torch.cos(torch.arange(first.numel(), dtype=rows.dtype, device=DEVICE))
    second = torch.autograd.grad(first, (probe, rows), cotangent.reshape(first.shape))
    return [each.detach() for each in (out, first, *second)]


@pytest.mark.parametrize("degrees", [[1, 2], [2, 0, 2], list(range(8))])
@pytest.mark.parametrize("normalize", [True, False])
def test_equals_the_reference_in_all_derivatives(degrees, normalize):
    rows = _rows(150)
    rows[3] = 0.0
    want = _derivatives(rows, degrees, normalize, "reference")
    for dtype, tolerance in ((torch.float64, 1e-13), (torch.float32, 4e-6)):
        got = _derivatives(rows.to(dtype), degrees, normalize, "triton")
        for a, b in zip(got, want, strict=True):
            assert (a - b).abs().max() <= tolerance * b.abs().max()


def test_no_rows_and_degree_zero():
    assert spherical_harmonics([0, 1], _rows(0), True, backend="triton").shape == (0, 4)
    ones = spherical_harmonics([0], _rows(3), True, "norm", backend="triton")
    assert torch.equal(ones, torch.ones_like(ones))


def test_an_operation_without_gpu_kernels_says_so():
    operation = operations.get("tabulated_convolution")
    with pytest.raises(ConfigError, match="auto, cpu, reference"):
        operation.choose("any", _rows(1), "triton")
