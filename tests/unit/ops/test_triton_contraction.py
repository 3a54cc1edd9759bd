"""The symmetric contraction in Triton against the reference: see `test_triton_kernels.py`."""

import os

import pytest
import torch

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import triton_version
from scitoolkit.ops.symmetric_contraction import (
    ContractionSpec,
    symmetric_contraction,
    triton_launch,
    triton_source,
    triton_tables,
)
from scitoolkit.ops.symmetric_contraction.spec import polynomial

pytest.importorskip("e3nn")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [
    pytest.mark.skipif(not triton_version(), reason="triton is not installed"),
    *([] if INTERPRETED else [pytest.mark.gpu]),
]
# Several tiles and runs an element, an element without nodes, channels below and above a block.
CASES = {
    "linear": ("0e+1o", "0e", 1, 33),
    "no path of order 1": ("0e+1o", "0e+2e", 2, 3),
    "cubic": ("0e+1o", "0e", 3, 5),
    "nothing couples": ("1o", "1e", 1, 2),
}


def _inputs(spec, channels, dtype):
    generator = torch.Generator().manual_seed(0)
    shapes = (7, spec.dim_in, channels), (3, spec.num_paths, channels)
    leaves = [torch.randn(each, generator=generator, dtype=torch.float64) for each in shapes]
    species = torch.tensor([0, 2, 2, 0, 2, 2, 2], device=DEVICE)
    return [each.to(DEVICE, dtype).requires_grad_() for each in leaves], species


def _derivatives(spec, leaves, species, backend):
    """Values, gradients, and the gradients of a scalar of these."""
    out = symmetric_contraction(spec, *leaves, species, backend=backend)
    probe = torch.sin(torch.arange(out.numel(), dtype=out.dtype, device=DEVICE))
    probe = probe.reshape(out.shape).requires_grad_()
    first = torch.autograd.grad(out, leaves, probe, create_graph=True)
    scalar = sum((each * torch.cos(each.detach())).sum() for each in first)
    second = torch.autograd.grad(scalar, [*leaves, probe])
    return [each.detach() for each in (out, *first, *second)]


@pytest.fixture(autouse=True)
def few_runs(monkeypatch):
    """The interpreter takes its time for every program."""
    monkeypatch.setattr(triton_source, "RUNS", 2)


@pytest.mark.parametrize(
    ("case", "dtype", "tolerance"),
    [*((case, torch.float64, 1e-12) for case in CASES), ("cubic", torch.float32, 3e-6)],
)
def test_equals_the_reference_in_all_derivatives(case, dtype, tolerance):
    *irreps, correlation, channels = CASES[case]
    spec = ContractionSpec.build(*irreps, correlation)
    leaves, species = _inputs(spec, channels, dtype)
    got = _derivatives(spec, leaves, species, "triton")
    doubled = [each.detach().double().requires_grad_() for each in leaves]
    for a, b in zip(got, _derivatives(spec, doubled, species, "reference"), strict=True):
        assert a.shape == b.shape
        assert not a.numel() or (a - b).abs().max() <= tolerance * b.abs().max()


def test_parts_of_the_rows_and_two_runs_are_bit_identical(monkeypatch):
    monkeypatch.setattr(triton_source, "ROWS", 3)
    spec = ContractionSpec.build("0e+1o", "0e", 2)
    leaves, species = _inputs(spec, 4, torch.float32)
    first, second = (_derivatives(spec, leaves, species, "triton") for _ in range(2))
    assert len(polynomial(spec).monomials) > 3
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    doubled = [each.detach().double().requires_grad_() for each in leaves]
    for a, b in zip(first, _derivatives(spec, doubled, species, "reference"), strict=True):
        assert (a - b).abs().max() <= 3e-6 * b.abs().max()


def test_torch_compile_sees_the_operators():
    spec = ContractionSpec.build("0e+1o", "0e", 2)
    leaves, species = _inputs(spec, 3, torch.float64)

    def function(x, weight):
        return symmetric_contraction(spec, x, weight, species, backend="triton").square().sum()

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    want = torch.autograd.grad(function(*leaves), leaves)
    for a, b in zip(torch.autograd.grad(compiled(*leaves), leaves), want, strict=True):
        torch.testing.assert_close(a, b)


def test_no_nodes():
    spec = ContractionSpec.build("0e+1o", "0e", 2)
    x = torch.zeros(0, 4, 3, device=DEVICE, requires_grad=True)
    weight = torch.ones(2, spec.num_paths, 3, device=DEVICE, requires_grad=True)
    species = torch.zeros(0, dtype=torch.int64, device=DEVICE)
    out = symmetric_contraction(spec, x, weight, species, backend="triton")
    grads = torch.autograd.grad(out.sum(), (x, weight))
    assert out.shape == (0, 1, 3)
    assert not grads[1].any()


def test_too_many_rows_are_refused(monkeypatch):
    monkeypatch.setattr(triton_tables, "MAX_ROWS", 2)
    with pytest.raises(BackendError, match="terms"):
        triton_launch.prepare(ContractionSpec.build("0e+1o", "0e", 2).text, torch.float32)


@pytest.mark.parametrize(
    ("irreps", "correlation"), [("0e+1o+2e", 4), ("0o+1e", 3), ("2e", 2), ("0e+1o+2e+3o", 3)]
)
def test_tables_are_the_polynomial_and_its_gradient(irreps, correlation):
    """Evaluated in plain torch from the packed words, for each output and degree."""
    spec = ContractionSpec.build(irreps, "0e+1o", correlation)
    rows = polynomial(spec)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(spec.dim_in, generator=generator, dtype=torch.float64).requires_grad_()
    c = torch.randn(len(rows.monomials), generator=generator, dtype=torch.float64)
    g = torch.randn(spec.dim_out, generator=generator, dtype=torch.float64)
    values = [x.new_zeros(()) for _ in range(spec.dim_out)]
    for row, (monomial, m) in enumerate(zip(rows.monomials, rows.components, strict=True)):
        values[m] = values[m] + c[row] * x[list(monomial)].prod()
    values = torch.stack(values)
    (gradient,) = torch.autograd.grad(values @ g, x)

    def evaluated(kind, with_g):
        terms, totals = triton_tables.table(spec, kind, torch.device("cpu")), []
        for bounds in terms.bounds.tolist():
            total = 0.0
            for degree in range(correlation + 1):
                for j in range(bounds[degree], bounds[degree + 1]):
                    head, word = terms.words[j].tolist()
                    product = c[head & 0xFFFFF] * (head >> 28)
                    if with_g:
                        product = product * g[head >> 20 & 0xFF]
                    for k in range(degree):
                        product = product * x[word >> 8 * k & 0xFF]
                    total = total + product
            totals.append(torch.as_tensor(total, dtype=torch.float64))
        return torch.stack(totals)

    torch.testing.assert_close(evaluated("values", False), values)
    torch.testing.assert_close(evaluated("gradients", True), gradient)
    table_of_rows = triton_tables.table(spec, "rows", torch.device("cpu"))
    assert sorted(table_of_rows.words[:, 0].bitwise_and(0xFFFFF).tolist()) == list(range(len(c)))
