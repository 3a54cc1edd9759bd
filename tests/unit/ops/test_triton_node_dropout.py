"""Node dropout in Triton against the reference: see `test_triton_kernels.py`."""

import os

import pytest
import torch

from scitoolkit.ops.codegen import triton_version
from scitoolkit.ops.node_dropout import node_dropout

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [
    pytest.mark.skipif(not triton_version(), reason="triton is not installed"),
    *([] if INTERPRETED else [pytest.mark.gpu]),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", [0, 1, -5, 2**63 + 11])
def test_equals_the_reference_bit_for_bit_with_its_gradient(dtype, seed):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(90, 17, generator=generator, dtype=dtype).to(DEVICE).requires_grad_()
    rows = torch.randint(0, 2**40, (90,), generator=generator).to(DEVICE)
    for p in (0.0, 0.3, 0.9):
        out, want = (node_dropout(x, rows, p, seed, backend=b) for b in ("triton", "reference"))
        assert torch.equal(out, want)
        grad, expected = (torch.autograd.grad(each.sin().sum(), x)[0] for each in (out, want))
        assert torch.equal(grad, expected)


def test_no_rows_and_no_columns():
    rows = torch.arange(3, device=DEVICE)
    for shape in ((0, 4), (3, 0)):
        x = torch.zeros(shape, device=DEVICE)
        assert node_dropout(x, rows[: shape[0]], 0.5, 1, backend="triton").shape == shape
