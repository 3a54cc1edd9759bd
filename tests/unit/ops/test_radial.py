"""Generated radial bases against plain torch: values, both derivatives, cutoff, bad input."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.radial import radial_basis

KINDS = ["bessel", "gaussian", "chebyshev"]


def _derivatives(rows, **options):
    rows = rows.clone().requires_grad_()
    out = radial_basis(rows, 5.0, **options)
    probe = torch.sin(torch.arange(out.numel(), dtype=rows.dtype)).reshape(out.shape)
    probe.requires_grad_()
    (first,) = torch.autograd.grad(out, rows, probe, create_graph=True)
    cotangent = torch.cos(torch.arange(first.numel(), dtype=rows.dtype)).reshape(first.shape)
    return [out, first, *torch.autograd.grad(first, (probe, rows), cotangent)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_basis", [2, 3, 20])
@pytest.mark.parametrize("envelope", [2, 3, 6])
def test_kernel_equals_reference_in_all_derivatives(kind, num_basis, envelope):
    options = {"kind": kind, "num_basis": num_basis, "envelope": envelope}
    generator = torch.Generator().manual_seed(0)
    rows = 6 * torch.rand(21, dtype=torch.float64, generator=generator)
    rows = torch.cat([rows, torch.tensor([5.0, 0.0, 1e-6, 1e9, 4.99999], dtype=torch.float64)])
    for dtype, tolerance in ((torch.float64, 1e-13), (torch.float32, 1e-6)):
        want = _derivatives(rows.to(dtype).double(), backend="reference", **options)
        got = _derivatives(rows.to(dtype), backend="cpu", **options)
        for a, b in zip(got, want, strict=True):
            error = (a.detach() - b.detach()).abs().max() / b.detach().abs().max()
            assert float(error) <= tolerance


def test_bessel_is_the_published_formula():
    r = torch.tensor([0.3, 2.0, 4.9], dtype=torch.float64)
    n, u, p = torch.arange(1, 5, dtype=torch.float64), r[:, None] / 5, 6
    bessel = math.sqrt(2 / 5) * torch.sin(n * math.pi * u) / r[:, None]
    cutoff = 1 - (p + 1) * (p + 2) / 2 * u**p + p * (p + 2) * u ** (p + 1)
    cutoff = cutoff - p * (p + 1) / 2 * u ** (p + 2)
    torch.testing.assert_close(radial_basis(r, 5.0, num_basis=4), bessel * cutoff)


@settings(max_examples=30, deadline=None)
@given(
    r=st.floats(5.0, 1e30),
    kind=st.sampled_from(KINDS),
    envelope=st.integers(2, 9),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_zero_from_the_cutoff_on(r, kind, envelope, dtype):
    rows = torch.tensor([r], dtype=dtype)
    for each in _derivatives(rows, kind=kind, num_basis=3, envelope=envelope):
        assert not each.any()


@pytest.mark.parametrize("kind", KINDS)
def test_cutoff_is_twice_continuously_differentiable(kind):
    near = torch.tensor([5.0 - 1e-6], dtype=torch.float64)
    found = _derivatives(near, kind=kind, num_basis=3)
    out, first, _, second = (each.detach() for each in found)
    assert float(out.abs().max()) < 1e-15
    assert float(first.abs().max()) < 1e-9
    assert float(second.abs().max()) < 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck_and_gradgradcheck(kind):
    rows = torch.tensor([0.0, 0.4, 2.5, 4.0], dtype=torch.float64, requires_grad=True)

    def function(r):
        return radial_basis(r + 0.1, 5.0, kind=kind, num_basis=4, backend="cpu")

    assert torch.autograd.gradcheck(function, rows)
    assert torch.autograd.gradgradcheck(function, rows)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_nan_stays_nan_and_reaches_no_other_row(backend):
    rows = torch.tensor([1.0, float("nan"), 2.0])
    out = radial_basis(rows, 5.0, num_basis=3, backend=backend)
    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()


def test_bits_do_not_depend_on_threads_or_place():
    rows = 6 * torch.rand(3000)
    torch.set_num_threads(2)
    two = radial_basis(rows, 5.0)
    torch.set_num_threads(1)
    assert torch.equal(two, radial_basis(rows, 5.0))
    assert torch.equal(two[7:20], radial_basis(rows[7:20], 5.0))


def test_empty_and_leading_dimensions():
    assert radial_basis(torch.zeros(0), 5.0).shape == (0, 8)
    rows = torch.rand(3, 4).T
    torch.testing.assert_close(
        radial_basis(rows, 5.0), radial_basis(rows, 5.0, backend="reference")
    )


def test_compile_sees_one_graph():
    rows = torch.rand(9, requires_grad=True)
    want = radial_basis(rows, 5.0).square().sum()
    compiled = torch.compile(
        lambda r: radial_basis(r, 5.0).square().sum(), fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(rows), want)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "fourier"}, "kind='fourier'"),
        ({"num_basis": 0}, "num_basis=0"),
        ({"envelope": 1}, "envelope=1"),
        ({"num_basis": 2.7}, "num_basis=2.7"),
        ({"envelope": 3.5}, "envelope=3.5"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        radial_basis(torch.zeros(2), 5.0, **options)


def test_wrong_input_is_named():
    with pytest.raises(ConfigError, match=r"cutoff=-1\.0"):
        radial_basis(torch.zeros(2), -1.0)
    with pytest.raises(DataError, match="expected distances of a floating dtype"):
        radial_basis(torch.zeros(2, dtype=torch.int64), 5.0)
