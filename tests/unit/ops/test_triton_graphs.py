"""Sparse products and attention in Triton against the reference: see `test_triton_kernels.py`."""

import os

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from scitoolkit.core.errors import BackendError
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.layout import LayoutBuilder
from scitoolkit.graphs.product import Product
from scitoolkit.ops.attention import additive_attention, graph_attention
from scitoolkit.ops.attention import operators as attention_operators
from scitoolkit.ops.codegen import triton_segments, triton_version
from scitoolkit.ops.spmm import SparseMatrix, operators, public, sddmm, spmm
from scitoolkit.testing import KernelContract
from scitoolkit.training.ranks.communicator import SingleProcess

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
LONG = pytest.mark.slow if INTERPRETED else pytest.mark.gpu
pytestmark = [
    pytest.mark.skipif(not triton_version(), reason="triton is not installed"),
    *([] if INTERPRETED else [pytest.mark.gpu]),
]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}
ROWS, COLUMNS = 9, 6  # rectangular, as the block of a rank whose other columns are its halo


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    """Pieces and tiles of a few nonzeros: the interpreter takes its time for every program."""
    if INTERPRETED:
        monkeypatch.setattr(triton_segments, "CHUNK", 6)
        monkeypatch.setattr(triton_segments, "TILE", 8)


def _pattern():
    """Rows without nonzeros at the start, inside and at the end; hubs beside each other.

    The first hub begins and ends inside of chunks, the last has exactly the length of one; in row
    2 one edge stands four times.
    """
    r, hub = np.random.default_rng(0), triton_segments.CHUNK
    lengths = {1: 5, 2: 4, 4: 3 * hub + 3, 5: hub + 1, 7: hub}
    row = np.concatenate([np.full(count, i) for i, count in lengths.items()])
    column = r.integers(COLUMNS - 1, size=len(row))  # the last column has none
    column[row == 2] = 3
    return SparseMatrix.from_coo(row, column, None, (ROWS, COLUMNS)).to(torch.device(DEVICE))


def _normal(*shape, seed=0):
    r = np.random.default_rng(seed)
    return torch.from_numpy(r.normal(size=shape)).to(DEVICE)


def _derivatives(function, leaves, backend, *, twice):
    """Values, gradients, and the gradients of a scalar of these."""
    leaves = [each.detach().clone().requires_grad_() for each in leaves]
    out = function(*leaves, backend=backend)
    probe = torch.sin(torch.arange(out.numel(), device=DEVICE)).to(out.dtype)
    probe = probe.reshape(out.shape).requires_grad_()
    first = torch.autograd.grad(out, leaves, probe, create_graph=twice)
    if not twice:
        return [each.detach() for each in (out, *first)]
    scalar = sum((each * torch.cos(each.detach())).sum() for each in first)
    second = torch.autograd.grad(scalar, [*leaves, probe])
    return [each.detach() for each in (out, *first, *second)]


def _compare(function, leaves, dtype, *, twice=False):
    rounded = [each.to(dtype) for each in leaves]
    got = _derivatives(function, rounded, "triton", twice=twice)
    exact = [each.double() for each in rounded]
    for a, b in zip(got, _derivatives(function, exact, "reference", twice=twice), strict=True):
        assert a.dtype == dtype
        assert a.shape == b.shape
        assert (a - b).abs().max() <= TOLERANCE[dtype] * b.abs().max().clamp(min=1)
    return got


# Below and above a block of lanes.
@pytest.mark.parametrize(
    ("width", "dtype"),
    [(5, torch.float64), (130, torch.float64), (1, torch.float32), (3, torch.float32)],
)
def test_products_equal_the_reference_in_all_derivatives(width, dtype):
    m = _pattern()
    x, value = _normal(COLUMNS, width), _normal(m.nnz, seed=1)
    _compare(lambda v, x, **b: spmm(m.with_value(v), x, **b), (value, x), dtype, twice=width == 5)
    _compare(lambda x, **b: spmm(m, x, **b), (x,), dtype)
    _compare(
        lambda left, x, **b: sddmm(m, left, x, **b),
        (_normal(ROWS, width, seed=2), x),
        dtype,
        twice=width == 5,
    )


def test_sums_of_many_equal_terms_do_not_drift(monkeypatch):
    """Each addition rounds in the same direction, which plain sums in float32 do not survive."""
    monkeypatch.setattr(triton_segments, "CHUNK", 1024)
    monkeypatch.setattr(triton_segments, "TILE", 32)
    lengths = np.array([1000, 2500])
    row = np.repeat([0, 1], lengths)
    m = SparseMatrix.from_coo(row, np.zeros_like(row), None, (2, 1)).to(torch.device(DEVICE))
    for width in (1, 8):
        x = torch.full((1, width), 0.1, device=DEVICE)
        want = x.double() * torch.from_numpy(lengths).to(DEVICE)[:, None]
        assert ((spmm(m, x, backend="triton") - want) / want).abs().max() < 1.2e-7


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter's NumPy
def test_a_sum_beyond_float32_is_infinite():
    x = torch.full((1, 2), 3e38, device=DEVICE)
    x[0, 1] = torch.nan
    row = np.zeros(40, dtype=int)
    m = SparseMatrix.from_coo(row, row, None, (1, 1)).to(torch.device(DEVICE))
    total = spmm(m, x, backend="triton")
    assert torch.isinf(total[0, 0])
    assert torch.isnan(total[0, 1])


@pytest.mark.parametrize(
    ("heads", "width", "slope", "dtype"),
    [
        (2, 3, 0.2, torch.float64),
        (1, 5, 0.0, torch.float64),
        (2, 3, 0.2, torch.float32),
    ],
)
def test_attention_equals_the_reference_in_its_derivatives(heads, width, slope, dtype):
    m = _pattern()
    ends = _normal(ROWS, heads), _normal(COLUMNS, heads, seed=1)
    x = _normal(COLUMNS, heads, width, seed=2)
    out, *_ = _compare(lambda *t, **b: graph_attention(m, *t, slope=slope, **b), (*ends, x), dtype)
    assert not out[m.pointer.diff() == 0].any()
    leaves = (_normal(ROWS, heads, width), x, _normal(heads, width, seed=3) / width**0.5)
    _compare(lambda *t, **b: additive_attention(m, *t, slope=slope, **b), leaves, dtype)


def test_large_scores_neither_overflow_nor_vanish():
    m = _pattern()
    left, right = _normal(ROWS, 1).float(), _normal(COLUMNS, 1, seed=1).float()
    ones = torch.ones(COLUMNS, 1, 3, device=DEVICE)
    for shift in (-1e4, 1e4):
        out = graph_attention(m, left + shift, right, ones, slope=1.0, backend="triton")
        torch.testing.assert_close(out[m.pointer.diff() > 0], torch.ones_like(out[:5]))


def test_a_nan_stays_in_its_rows():
    m = _pattern()
    right, x = _normal(COLUMNS, 1, seed=1), _normal(COLUMNS, 1, 2, seed=2)
    right[3] = x[3] = float("nan")
    reached = torch.zeros(ROWS, dtype=torch.bool, device=DEVICE)
    reached[m.rows[m.column == 3]] = True
    with np.errstate(invalid="ignore"):
        found = [graph_attention(m, _normal(ROWS, 1), right, x, backend="triton")]
        found += [spmm(m, x.flatten(1), backend="triton")]
    for out in found:
        assert torch.equal(out.flatten(1).isnan().all(1), reached)


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (0, 3), (3, 2), (3, 0)])
def test_empty_parts(rows, columns):
    m = SparseMatrix.from_coo([], [], None, (rows, columns)).to(torch.device(DEVICE))
    x = _normal(columns, 2, 3)
    _compare_empty(lambda v, x, **b: spmm(m.with_value(v), x, **b), (_normal(0), x.flatten(1)))
    _compare_empty(lambda *t, **b: sddmm(m, *t, **b), (_normal(rows, 6), x.flatten(1)))
    _compare_empty(
        lambda *t, **b: graph_attention(m, *t, **b), (_normal(rows, 2), _normal(columns, 2), x)
    )
    _compare_empty(
        lambda *t, **b: additive_attention(m, *t, **b), (_normal(rows, 2, 3), x, _normal(2, 3))
    )


def _compare_empty(function, leaves):
    for each in _derivatives(function, leaves, "triton", twice=False):
        assert not each.any()


def test_two_calls_give_the_same_bits():
    m = _pattern()
    x, value = _normal(COLUMNS, 5).float(), _normal(m.nnz).float()
    first, second = (
        _derivatives(
            lambda v, x, **b: spmm(m.with_value(v), x, **b), (value, x), "triton", twice=False
        )
        for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_distributed_products_run_the_kernel(monkeypatch):
    """Blocks of a layout, with what other ranks send added to what there is, and back."""
    if INTERPRETED:  # there `auto` takes C for tensors on the CPU
        taken = public.product_kernel
        monkeypatch.setattr(
            "scitoolkit.graphs.product.product_kernel", lambda x: taken(x, "triton")
        )
    m = _pattern()
    for value in (None, _normal(m.nnz)):
        matrix = m.with_value(value)
        x, into = _normal(COLUMNS, 3), _normal(ROWS, 3, seed=1)
        run = public.product_kernel(x, "triton")
        want = into + spmm(matrix, x, backend="reference")
        got = run(m.pointer, m.column, value, x, into=into.clone())
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    csr = sp.csr_matrix(([1.0, 2.0, 3.0, 4.0], ([0, 0, 2, 3], [1, 2, 0, 0])), (4, 4))
    dense = torch.from_numpy(csr.toarray()).float().to(DEVICE)
    layout = LayoutBuilder(csr, np.zeros(4, int), ProcessGrid(1)).build(0)
    x = _normal(4, 3).float().requires_grad_()
    out = Product(layout, SingleProcess())(x)
    (grad,) = torch.autograd.grad(out, x, torch.ones_like(out))
    torch.testing.assert_close(out.detach(), dense @ x.detach())
    torch.testing.assert_close(grad, dense.T @ torch.ones_like(out))


@pytest.mark.skipif(not INTERPRETED, reason="a GPU has tensors that are no fakes")
def test_tracers_see_outputs_on_the_gpu():
    """Fake tensors on cuda: what is traced is our operators, whose outputs are there too."""
    with FakeTensorMode():
        m = SparseMatrix(
            torch.empty(ROWS + 1, dtype=torch.int64, device="cuda"),
            torch.empty(50, dtype=torch.int32, device="cuda"),
            None,
            COLUMNS,
        )
        sizes = ((50,), (COLUMNS, 6), (ROWS, 2), (COLUMNS, 2), (ROWS, 2, 3), (2, 3))
        made = [torch.empty(*each, device="cuda", dtype=torch.float64) for each in sizes]
        value, x, left, right, rows, vector = made
        heads, norm = x.view(COLUMNS, 2, 3), torch.empty_like(left)
        transposed = m.pointer.new_empty(COLUMNS + 1), m.column
        backward = torch.ops.scitoolkit.graph_attention_triton_backward
        additive_backward = torch.ops.scitoolkit.additive_attention_triton_backward
        found = [
            (spmm(m.with_value(value), x), (ROWS, 6)),
            (sddmm(m, rows.flatten(1), x), (50,)),
            (graph_attention(m, left, right, heads), (ROWS, 2, 3)),
            (additive_attention(m, rows, heads, vector), (ROWS, 2, 3)),
            *zip(
                backward(*transposed, left, right, heads, rows, norm, rows, norm, rows, 0.2),
                [(ROWS, 2), (COLUMNS, 2), (COLUMNS, 2, 3)],
                strict=True,
            ),
            *zip(
                additive_backward(
                    m.pointer, m.column, *transposed, rows, heads, vector, rows, norm, rows, 0.2
                ),
                [(ROWS, 2, 3), (COLUMNS, 2, 3), (2, 3)],
                strict=True,
            ),
        ]
    for out, shape in found:
        assert out.shape == shape
        assert out.device.type == "cuda"


def test_compile_export_and_opcheck_see_the_operators():
    m = SparseMatrix.from_coo([0, 0], [1, 0], None, (2, 2)).to(torch.device(DEVICE))
    pattern = (m.pointer, m.column, *m.transposed)
    left, right, x, value = _normal(2, 1), _normal(2, 1), _normal(2, 1, 2), _normal(2)
    calls = [
        (operators.gpu_spmm, (*pattern, value, x[:, 0])),
        (operators.gpu_sddmm, (*pattern, x[:, 0], x[:, 0])),
        (attention_operators.gpu_attention, (*pattern[:4], left, right, x, 0.2)),
        (attention_operators.gpu_additive, (*pattern[:4], x, x, x[0], 0.2)),
    ]
    for function, arguments in calls:
        torch.library.opcheck(
            function.operator, arguments, test_utils=("test_schema", "test_faketensor")
        )

    def both(value, x):
        summed = spmm(m.with_value(value), x[:, 0], backend="triton")
        return summed + graph_attention(m, left, right, x, backend="triton")[:, 0]

    leaves = [each.requires_grad_() for each in (value, x)]
    compiled = torch.compile(both, backend="aot_eager", fullgraph=True)
    want = torch.autograd.grad(both(*leaves).square().sum(), leaves)
    for a, b in zip(
        torch.autograd.grad(compiled(*leaves).square().sum(), leaves), want, strict=True
    ):
        torch.testing.assert_close(a, b)
    module = torch.nn.Module()
    module.forward = both
    program = torch.export.export(module, tuple(leaves))
    targets = {str(node.target) for node in program.graph.nodes}
    assert {
        "scitoolkit.spmm_triton.default",
        "scitoolkit.graph_attention_triton.default",
    } <= targets


def test_what_has_no_kernel_is_refused_by_name():
    m = SparseMatrix.from_coo([0], [0], None, (1, 1)).to(torch.device(DEVICE))
    with pytest.raises(BackendError, match="float16"):
        spmm(m, torch.zeros(1, 2, dtype=torch.float16, device=DEVICE), backend="triton")
    wide, one = torch.zeros(1, 1, 1025, device=DEVICE), torch.zeros(1, 1, device=DEVICE)
    with pytest.raises(BackendError, match="no GPU kernel for heads of 1025 columns"):
        graph_attention(m, one, one, wide, backend="triton")
    x = torch.ones(1, 1, 2, device=DEVICE, requires_grad=True)
    out = graph_attention(m, one, one, x, backend="triton")
    (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    with pytest.raises(BackendError, match="no derivative of graph_attention_triton_backward"):
        grad.sum().backward()


@LONG
class TestContract(KernelContract):
    """What every kernel backend promises, for the operations on graphs."""

    backend = "triton"
    device = DEVICE
    skip = (
        "tensor_product",
        "radial_convolution",
        "radial_basis",
        "spherical_harmonics",
        "symmetric_contraction",
    )
    namespace = "scitoolkit."
