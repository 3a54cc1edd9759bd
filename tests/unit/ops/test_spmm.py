"""The sparse product against dense algebra, with all derivatives, and its bad input."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scitoolkit.core.errors import BackendError, ConfigError, DataError
from scitoolkit.ops.codegen import find_compiler
from scitoolkit.ops.spmm import SparseMatrix, sddmm, spmm

try:
    find_compiler()
except BackendError:
    pytest.skip("the kernels need a C compiler", allow_module_level=True)


def matrix(rows, columns, nnz, seed=0, dtype=torch.float64, ones=False):
    r = np.random.default_rng(seed)
    value = None if ones else torch.from_numpy(r.normal(size=nnz)).to(dtype)
    return SparseMatrix.from_coo(
        r.integers(rows, size=nnz), r.integers(columns, size=nnz), value, (rows, columns)
    )


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 300),
    columns=st.integers(1, 40),
    nnz=st.integers(0, 400),
    width=st.sampled_from([1, 3, 8, 16, 37, 64, 131]),
    seed=st.integers(0, 9),
    ones=st.booleans(),
)
def test_equals_dense_algebra(rows, columns, nnz, width, seed, ones):
    a = matrix(rows, columns, nnz, seed, ones=ones)
    x = torch.randn(columns, width, dtype=torch.float64)
    dense = a.dense().double() @ x
    assert torch.allclose(spmm(a, x), dense, atol=1e-12)
    assert torch.allclose(spmm(a, x, backend="reference"), dense, atol=1e-12)
    left = torch.randn(rows, width, dtype=torch.float64)
    expected = (left @ x.T)[a.rows, a.column.long()]
    assert torch.allclose(sddmm(a, left, x), expected, atol=1e-12)
    assert torch.allclose(sddmm(a, left, x, backend="reference"), expected, atol=1e-12)


@pytest.mark.parametrize("nnz", [0, 90])
@pytest.mark.parametrize("kind", ["ones", torch.float32, torch.float64, torch.bfloat16])
def test_the_transpose_with_its_values_is_that_of_the_sort(nnz, kind):
    ones = kind == "ones"
    a = matrix(9, 13, nnz, dtype=torch.float64 if ones else kind, ones=ones)  # repeated entries too
    pointer, column, order = a.transposed
    made_pointer, made_column, value = a.transposed_csr
    assert torch.equal(made_pointer, pointer)
    assert torch.equal(made_column, column)
    assert made_column.dtype == column.dtype
    assert value is None if ones else torch.equal(value, a.value[order])


@pytest.mark.parametrize("width", [1, 5, 16])
def test_first_and_second_derivatives(width):
    a = matrix(7, 5, 20, seed=2)
    value = a.value.clone().requires_grad_()
    x = torch.randn(5, width, dtype=torch.float64, requires_grad=True)
    left = torch.randn(7, width, dtype=torch.float64, requires_grad=True)
    for function, inputs in (
        (lambda v, x: spmm(a.with_value(v), x), (value, x)),
        (lambda left, x: sddmm(a, left, x), (left, x)),
    ):
        assert torch.autograd.gradcheck(function, inputs)
        assert torch.autograd.gradgradcheck(function, inputs)


def test_float32_is_as_exact_as_its_order_of_sums():
    a = matrix(500, 400, 9000, dtype=torch.float32)
    x = torch.randn(400, 64)
    exact = a.dense().double() @ x.double()
    scale = a.dense().abs().double() @ x.abs().double()
    assert ((spmm(a, x) - exact).abs() / scale.clamp(min=1e-30)).max() < 1e-6


def test_bits_do_not_depend_on_threads():
    a, x = matrix(3000, 2000, 60_000, dtype=torch.float32), torch.randn(2000, 48)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = spmm(a, x)
        torch.set_num_threads(3)
        assert torch.equal(spmm(a, x), one)
    finally:
        torch.set_num_threads(threads)


# Of torch 2.14, for tensors that its check makes itself.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_compile_and_opcheck_see_the_operator():
    from scitoolkit.ops.spmm import operators

    a = matrix(9, 8, 30)
    x = torch.randn(8, 4, dtype=torch.float64, requires_grad=True)
    arguments = (a.pointer, a.column, *a.transposed, a.value, x)
    torch.library.opcheck(operators.spmm.operator, arguments)


def test_what_does_not_fit_is_refused():
    a = matrix(4, 3, 5)
    with pytest.raises(DataError, match=r"shape \(3, width\).*got \(4, 2\)"):
        spmm(a, torch.zeros(4, 2, dtype=torch.float64))
    with pytest.raises(DataError, match="float64 like the matrix"):
        spmm(a, torch.zeros(3, 2))
    with pytest.raises(ConfigError, match="auto, cpu, reference"):
        spmm(a, torch.zeros(3, 2, dtype=torch.float64), backend="gpu")
    with pytest.raises(DataError, match="0 to 2"):
        SparseMatrix.from_coo([0], [3], None, (4, 3))
    with pytest.raises(DataError, match="row indices -1"):
        SparseMatrix.from_coo([-1], [0], None, (4, 3))
    with pytest.raises(DataError, match=r"indices of torch.float64"):
        SparseMatrix.from_coo([0.7], [1], None, (4, 3))
    with pytest.raises(DataError, match="decrease in between"):
        SparseMatrix.from_csr([0, 2, 1, 3], [0, 0, 0], None, 3)
    with pytest.raises(DataError, match="values for 1 nonzeros"):
        SparseMatrix.from_csr([0, 1], [0], torch.ones(2), 3)
    half = torch.zeros(3, 2, dtype=torch.float16)
    with pytest.raises(BackendError, match="float16"):
        spmm(a.with_value(None), half, backend="cpu")
    assert spmm(a, torch.zeros(3, 0, dtype=torch.float64)).shape == (4, 0)
