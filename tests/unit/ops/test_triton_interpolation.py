"""Interpolation in Triton against the reference: see `test_triton_kernels.py`."""

import os

import pytest
import torch

from scitoolkit.ops.codegen import triton_version
from scitoolkit.ops.interpolation import (
    EquidistantGrid,
    Placement,
    operators,
    piecewise_polynomial,
    triton_source,
)

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [
    pytest.mark.skipif(not triton_version(), reason="triton is not installed"),
    *([] if INTERPRETED else [pytest.mark.gpu]),
]


@pytest.fixture(autouse=True)
def few_columns(monkeypatch):
    """Blocks of a few columns: the interpreter takes its time for every program."""
    if INTERPRETED:
        monkeypatch.setattr(triton_source, "LANES", 8)
        monkeypatch.setattr(triton_source, "PARTS", 2)


def _inputs(edges, width):
    """Distances on and beyond the grid; many in one interval, none in others."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE)

    distances = normal(edges).abs()
    distances[: edges // 2] = 0.5 + 0.01 * distances[: edges // 2]
    return EquidistantGrid(2.0, 7), normal(8, 8, width), distances


def _derivatives(grid, coefficients, distances, backend):
    """Values, gradients, and the gradients of a scalar of these."""
    leaves = [each.clone().requires_grad_() for each in (coefficients, distances)]
    out = piecewise_polynomial(leaves[0], Placement.build(grid, leaves[1]), backend=backend)
    probe = torch.sin(torch.arange(out.numel(), dtype=out.dtype, device=DEVICE)).view_as(out)
    probe.requires_grad_()
    first = torch.autograd.grad(out, leaves, probe, create_graph=True)
    scalar = sum((part * torch.cos(part.detach())).sum() for part in first)
    second = torch.autograd.grad(scalar, [*leaves, probe])
    return [part.detach() for part in (out, *first, *second)]


@pytest.mark.parametrize(
    ("edges", "width"), [(24 if INTERPRETED else 5000, 11 if INTERPRETED else 300), (3, 1), (0, 5)]
)
def test_equals_the_reference_in_all_derivatives(edges, width):
    grid, *tensors = _inputs(edges, width)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 5e-6)):
        rounded = [part.to(dtype) for part in tensors]
        want = _derivatives(grid, *(part.double() for part in rounded), "reference")
        for one, other in zip(_derivatives(grid, *rounded, "triton"), want, strict=True):
            assert one.dtype == dtype
            assert one.shape == other.shape
            if other.numel():
                # Distances are located in their own precision, on slopes of the scale of 1/step.
                assert (one - other).abs().max() <= 10 * tolerance * other.abs().max()


def test_no_columns_and_nan():
    grid, coefficients, distances = _inputs(20, 3)
    place = Placement.build(grid, distances)
    assert piecewise_polynomial(coefficients[:, :, :0], place, backend="triton").shape == (20, 0)
    distances[4] = torch.nan
    place = Placement.build(grid, distances)
    out = piecewise_polynomial(coefficients, place, backend="triton")
    assert out[4].isnan().all()
    assert out.isnan().sum() == 3


def test_opcheck_sees_the_operators():
    grid, coefficients, distances = _inputs(7, 2)
    place = Placement.build(grid, distances)
    arguments = (coefficients, place.local, place.ptr, place.order)
    torch.library.opcheck(
        operators._gpu_values.operator, arguments, test_utils=("test_schema", "test_faketensor")
    )
