"""Generated spherical harmonics against e3nn in float64: values, both derivatives, bad input."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.spherical_harmonics import degrees_of, spherical_harmonics
from scitoolkit.ops.spherical_harmonics import public as harmonics

o3 = pytest.importorskip("e3nn.o3")

REAL = [(torch.float64, 1e-13), (torch.float32, 2e-6)]


def derivatives(function, rows):
    """Values, gradient, and the gradients of the gradient, as a force loss needs them."""
    rows = rows.clone().requires_grad_()
    out = function(rows)
    probe = torch.sin(torch.arange(out.numel(), dtype=rows.dtype)).reshape(out.shape)
    probe.requires_grad_()
    (first,) = torch.autograd.grad(out, rows, probe, create_graph=True)
    cotangent = torch.cos(torch.arange(first.numel(), dtype=rows.dtype)).reshape(first.shape)
    return [out, first, *torch.autograd.grad(first, (probe, rows), cotangent)]


def assert_equal_relative(ours, theirs, tolerance):
    for a, b in zip(ours, theirs, strict=True):
        scale = b.detach().abs().max().clamp_min(1e-30)
        assert float((a.detach() - b.detach()).abs().max() / scale) <= tolerance


@pytest.mark.parametrize("degrees", [[1, 2], [0, 1, 2, 3], [2, 0, 2], list(range(8))])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("normalization", ["component", "norm", "integral"])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_equals_e3nn_in_all_derivatives(degrees, normalize, normalization, backend):
    rows = torch.randn(21, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    want = derivatives(lambda v: o3.spherical_harmonics(degrees, v, normalize, normalization), rows)
    for dtype, tolerance in REAL:
        got = derivatives(
            lambda v: spherical_harmonics(degrees, v, normalize, normalization, backend=backend),
            rows.to(dtype),
        )
        assert_equal_relative(got, want, tolerance)


@pytest.mark.parametrize("normalize", [True, False])
def test_gradcheck_and_gradgradcheck(normalize):
    rows = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)

    def function(v):
        return spherical_harmonics([0, 1, 2, 3], v, normalize, backend="cpu")

    assert torch.autograd.gradcheck(function, rows)
    assert torch.autograd.gradgradcheck(function, rows)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), num_rows=st.integers(1, 40))
def test_rotations_turn_components_of_one_degree_into_each_other(seed, num_rows):
    """By the addition theorem, products of two rows summed over m see only the angle between."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(num_rows, 3, dtype=torch.float64, generator=generator)
    matrix, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=generator))
    matrix = matrix * torch.linalg.det(matrix)
    all_degrees, sizes = list(range(8)), [2 * degree + 1 for degree in range(8)]
    plain, turned, inverted = (
        spherical_harmonics(all_degrees, each, True, "norm").split(sizes, dim=1)
        for each in (rows, rows @ matrix.T, -rows)
    )
    for degree, before in enumerate(plain):
        after = turned[degree]
        torch.testing.assert_close(after @ after.T, before @ before.T, rtol=0, atol=1e-12)
        torch.testing.assert_close(inverted[degree], (-1) ** degree * before)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), num_rows=st.integers(1, 70))
def test_a_row_does_not_see_its_neighbours(seed, num_rows):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(num_rows, 3, generator=generator)
    order = torch.randperm(num_rows, generator=generator)
    whole = spherical_harmonics([0, 1, 2], rows, True)
    assert torch.equal(whole[order], spherical_harmonics([0, 1, 2], rows[order], True))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_zero_vectors_give_finite_values_and_zero_derivatives(backend):
    rows = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    out, first, _, second = derivatives(
        lambda v: spherical_harmonics([0, 1, 2], v, True, "norm", backend=backend), rows
    )
    assert out[0].tolist() == [1.0] + 8 * [0.0]
    assert not first[0].any()
    assert not second[0].any()
    assert first[1].any()


def test_bits_do_not_depend_on_threads():
    rows = torch.randn(5000, 3)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(derivatives(lambda v: spherical_harmonics([1, 2, 3], v, True), rows))
    torch.set_num_threads(1)
    for each in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], each, strict=True))


def test_no_rows_leading_dimensions_and_strides():
    assert spherical_harmonics(2, torch.zeros(0, 3), True).shape == (0, 5)
    rows = torch.randn(3, 4, 5).transpose(0, 2)[..., :3]
    got = spherical_harmonics([0, 3], rows, True)
    want = spherical_harmonics([0, 3], rows.contiguous(), True, backend="reference")
    torch.testing.assert_close(got, want)


def test_compile_sees_one_graph():
    rows = torch.randn(9, 3, requires_grad=True)

    def energy(v):
        return spherical_harmonics("0e+1o+2e", v, True).square().sum() ** 2

    spherical_harmonics("0e+1o+2e", rows, True)  # kernels are there before tracing
    compiled = torch.compile(energy, fullgraph=True, backend="aot_eager")
    (got,) = torch.autograd.grad(compiled(rows), rows)
    (want,) = torch.autograd.grad(energy(rows), rows)
    torch.testing.assert_close(got, want)


def test_operator_passes_torch_opcheck():
    text = harmonics._spec_text((0, 1), True, "norm")
    torch.library.opcheck(
        torch.ops.scitoolkit.spherical_harmonics.default,
        (torch.randn(4, 3, requires_grad=True), text),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )


def test_irreps_are_understood():
    assert degrees_of("2x1o + 2e") == (1, 1, 2)
    assert degrees_of(o3.Irreps("0e+1e+2e")) == (0, 1, 2)


@pytest.mark.parametrize(
    ("degrees", "message"),
    [("0o", "even parity"), ("1o+3e", "one parity"), ([8], "degree 8"), ("1z", "irrep '1z'")],
)
def test_wrong_degrees_are_named(degrees, message):
    with pytest.raises(ConfigError, match=message):
        spherical_harmonics(degrees, torch.zeros(2, 3), True)


def test_wrong_input_is_named():
    with pytest.raises(DataError, match=r"expected vectors of shape \(..., 3\), got \(2, 4\)"):
        spherical_harmonics(1, torch.zeros(2, 4), True)
    with pytest.raises(DataError, match="expected vectors of a floating dtype"):
        spherical_harmonics(1, torch.zeros(2, 3, dtype=torch.int64), True)
    with pytest.raises(ConfigError, match="normalization='unit'"):
        spherical_harmonics(1, torch.zeros(2, 3), True, "unit")
