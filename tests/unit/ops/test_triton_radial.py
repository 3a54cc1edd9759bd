"""Radial bases in Triton against the reference: see `test_triton_kernels.py`."""

import os

import pytest
import torch

from scitoolkit.ops.codegen import triton_version
from scitoolkit.ops.radial import radial_basis

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [
    pytest.mark.skipif(not triton_version(), reason="triton is not installed"),
    *([] if INTERPRETED else [pytest.mark.gpu]),
]
KINDS = ["bessel", "gaussian", "chebyshev"]


def _distances(count):
    generator = torch.Generator().manual_seed(0)
    rows = 6 * torch.rand(count, dtype=torch.float64, generator=generator)
    edges = torch.tensor([5.0, 0.0, 1e-6, 1e9, 4.99999], dtype=torch.float64)
    return torch.cat([rows, edges]).to(DEVICE)


def _derivatives(rows, **options):
    """Values, gradient, and the gradients of the gradient."""
    rows = rows.clone().requires_grad_()
    out = radial_basis(rows, 5.0, **options)
    probe = torch.sin(torch.arange(out.numel(), dtype=rows.dtype, device=DEVICE))
    probe = probe.reshape(out.shape).requires_grad_()
    (first,) = torch.autograd.grad(out, rows, probe, create_graph=True)
    cotangent = torch.cos(torch.arange(first.numel(), dtype=rows.dtype, device=DEVICE))
    second = torch.autograd.grad(first, (probe, rows), cotangent)
    return [each.detach() for each in (out, first, *second)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("num_basis", "envelope"), [(2, 3), (3, 6), (20, 2)])
def test_equals_the_reference_in_all_derivatives(kind, num_basis, envelope):
    options = {"kind": kind, "num_basis": num_basis, "envelope": envelope}
    rows = _distances(150)
    for dtype, tolerance in ((torch.float64, 1e-13), (torch.float32, 1e-6)):
        want = _derivatives(rows.to(dtype).double(), backend="reference", **options)
        got = _derivatives(rows.to(dtype), backend="triton", **options)
        for a, b in zip(got, want, strict=True):
            assert a.dtype == dtype
            assert (a - b).abs().max() <= tolerance * b.abs().max()


@pytest.mark.parametrize("kind", KINDS)
def test_zero_from_the_cutoff_on_and_nan_stays_nan(kind):
    rows = torch.tensor([5.0, 1e30, float("nan"), 1.0], device=DEVICE)
    for each in _derivatives(rows, kind=kind, num_basis=3, backend="triton"):
        assert not each[:2].any()
        assert each[2].isnan().all()
        assert each[3].isfinite().all()


def test_one_function_no_rows_and_leading_dimensions():
    one = radial_basis(_distances(3), 5.0, num_basis=1, backend="triton")
    torch.testing.assert_close(one[:, 0], radial_basis(_distances(3), 5.0, num_basis=8)[:, 0])
    assert radial_basis(_distances(0)[:0], 5.0, backend="triton").shape == (0, 8)
    assert radial_basis(_distances(1).reshape(2, 3), 5.0, backend="triton").shape == (2, 3, 8)
