"""Both kinds of attention: values, gradients, rows of any length, and their bad input."""

import numpy as np
import pytest
import torch

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.attention import additive_attention, graph_attention
from scitoolkit.ops.spmm import SparseMatrix


def inputs(
    rows=130, columns=20, nnz=900, heads=3, width=6, dtype=torch.float64, attend=graph_attention
):
    r = np.random.default_rng(0)
    # Row 0 has most nonzeros, more than several blocks; the last row has none.
    row = np.where(r.random(nnz) < 0.4, 0, r.integers(rows - 1, size=nnz))
    pattern = SparseMatrix.from_coo(row, r.integers(columns, size=nnz), None, (rows, columns))
    shapes = ((rows, heads), (columns, heads), (columns, heads, width))
    if attend is additive_attention:
        shapes = ((rows, heads, width), (columns, heads, width), (heads, width))
    return pattern, [torch.from_numpy(r.normal(size=s)).to(dtype).requires_grad_() for s in shapes]


BOTH = pytest.mark.parametrize("attend", [graph_attention, additive_attention])


@BOTH
@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
def test_values_and_gradients_equal_the_reference(slope, attend):
    pattern, tensors = inputs(attend=attend)
    ours, theirs = (attend(pattern, *tensors, slope=slope, backend=b) for b in ("cpu", "reference"))
    assert torch.allclose(ours, theirs, atol=1e-13)
    assert not ours[-1].any()
    weight = torch.randn_like(ours)
    for a, b in zip(
        *(torch.autograd.grad(y, tensors, weight) for y in (ours, theirs)), strict=True
    ):
        assert torch.allclose(a, b, atol=1e-12)


def test_large_additive_scores_neither_overflow_nor_vanish():
    pattern, (left, x, vector) = inputs(dtype=torch.float32, attend=additive_attention)
    out = additive_attention(pattern, left + 1e4, x.abs(), vector + 1)
    reached = pattern.pointer.diff() > 0
    assert torch.isfinite(out).all()
    assert (out[reached] > 0).all()


def test_large_scores_neither_overflow_nor_vanish():
    pattern, (left, right, x) = inputs(dtype=torch.float32)
    for shift in (-1e4, 1e4):
        out = graph_attention(pattern, left + shift, right, torch.ones_like(x), slope=1.0)
        reached = pattern.pointer.diff() > 0
        assert torch.allclose(out[reached], torch.ones(()), atol=1e-5)


def test_a_nan_stays_in_its_rows():
    pattern, (left, right, x) = inputs()
    with torch.no_grad():
        right[3] = float("nan")
    reached = {int(r) for r, c in zip(pattern.rows, pattern.column, strict=True) if c == 3}
    out = graph_attention(pattern, left, right, x)
    assert {i for i in range(len(out)) if out[i].isnan().any()} == reached


@BOTH
def test_any_number_of_threads_gives_the_same_bits(attend):
    pattern, tensors = inputs(dtype=torch.float32, attend=attend)
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        out = attend(pattern, *tensors)
        found.append([out, *torch.autograd.grad(out.square().sum(), tensors)])
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_bad_input_is_refused():
    pattern, (left, right, x) = inputs()
    with pytest.raises(DataError, match=r"left of shape \(130, 3\).*got \(129, 3\)"):
        graph_attention(pattern, left[1:], right, x)
    with pytest.raises(DataError, match="x of shape"):
        graph_attention(pattern, left, right, x.flatten(1))
    with pytest.raises(DataError, match="float32"):
        graph_attention(pattern, left, right.float(), x)
    with pytest.raises(ConfigError, match="slope"):
        graph_attention(pattern, left, right, x, slope=1.5)
    with pytest.raises(DataError, match=r"vector of shape \(3, 6\)"):
        additive_attention(pattern, x.new_zeros(130, 3, 6), x, x.new_zeros(6))
