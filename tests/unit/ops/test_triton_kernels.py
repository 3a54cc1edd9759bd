"""The Triton kernels against the reference in float64: outputs and all derivatives.

On a GPU with `pytest -m gpu`. Without one they run under Triton's interpreter, in a process of
its own that `test_triton.py` starts: the interpreter cannot be turned on once Triton is imported.
"""

import os

import pytest
import torch

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import triton_version
from scitoolkit.ops.tensor_product import (
    Edges,
    TensorProductSpec,
    channelwise_instructions,
    tensor_product_convolution,
    triton_operators,
    triton_source,
)

o3 = pytest.importorskip("e3nn.o3")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
LONG = pytest.mark.slow if INTERPRETED else pytest.mark.gpu
pytestmark = [
    pytest.mark.skipif(not triton_version(), reason="triton is not installed"),
    *([] if INTERPRETED else [pytest.mark.gpu]),
]

# in1, in2, irreps out, mode; channels below, at and above the width of a block.
CASES = {
    "one channel": ("1x0e+1x1o", "0e+1o", "0e+1o", "uvu"),
    "unsorted": ("5x2e+8x0o+3x1o", "1o+0e", "0e+2o+1e", "uvu"),
    "several blocks": ("70x0e", "0e+1o", "0e+1o", "uvu"),
    "wide attributes": ("6x0e+6x1o", "2x0e+3x1o", "0e+1o", "uvu"),
    "degree 3": ("16x3o", "3o+2e", "0e+1o", "uvu"),
    "uvw": ("9x1o", "2x0e+1o", "17x0e+2x1o", "uvw"),
    "uuu": ("11x0e+11x1o", "11x0e+11x1o", "11x0e+11x1o+11x1e+11x2e", "uuu"),
}


def _spec(name, shared):
    in1, in2, out, mode = CASES[name]
    if mode == "uvu":
        out, instructions = channelwise_instructions(in1, in2, out)
    else:
        sides = [list(enumerate(o3.Irreps(each))) for each in (in1, in2, out)]
        instructions = [
            (i, j, k, mode, True)
            for i, (_, a) in sides[0]
            for j, (_, b) in sides[1]
            for k, (_, c) in sides[2]
            if c in a * b
        ]
    return TensorProductSpec.build(in1, in2, out, instructions, shared_weights=shared)


def _inputs(spec, num_nodes, num_edges, dtype):
    """Random leaves and edges in any order; the last node neither sends nor receives."""
    generator = torch.Generator().manual_seed(0)
    weights = (spec.weight_numel,) if spec.shared_weights else (num_edges, spec.weight_numel)
    shapes = (num_nodes, spec.dim_in1), (num_edges, spec.dim_in2), weights
    leaves = [torch.randn(each, generator=generator, dtype=torch.float64) for each in shapes]
    index = torch.randint(0, max(num_nodes - 1, 1), (2, num_edges), generator=generator)
    leaves = [each.to(DEVICE, dtype).requires_grad_() for each in leaves]
    return leaves, Edges.build(*index.to(DEVICE), num_nodes)


def _derivatives(spec, leaves, edges, backend, **options):
    """The output, its gradients, and the gradients of a scalar of these."""
    out = tensor_product_convolution(spec, *leaves, edges, backend=backend, **options)
    probe = torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device)
    probe = probe.reshape(out.shape).requires_grad_()
    first = torch.autograd.grad(out, leaves, probe, create_graph=True)
    scalar = sum((each * torch.cos(each.detach())).sum() for each in first)
    second = torch.autograd.grad(scalar, [*leaves, probe])
    return [each.detach() for each in (out, *first, *second)]


def _exact(spec, leaves, edges):
    doubled = [each.detach().double().requires_grad_() for each in leaves]
    return _derivatives(spec, doubled, edges, "reference")


def _check(got, want, tolerance):
    for a, b in zip(got, want, strict=True):
        assert (a - b).abs().max() <= tolerance * b.abs().max()


# With shared weights only the sum of their gradients has separate code. The code of float32 is that
# of float64 with another name of the type: the interpreter runs one case in the quick tests.
CHECKED = [
    *((case, False, torch.float64, 1e-12) for case in CASES),
    *((case, True, torch.float64, 1e-12) for case in ("one channel", "uvw", "uuu")),
    ("uvw", False, torch.float32, 5e-6),
    *(
        pytest.param(case, False, torch.float32, 5e-6, marks=LONG)
        for case in ("several blocks", "wide attributes")
    ),
]


@pytest.mark.parametrize(("case", "shared", "dtype", "tolerance"), CHECKED)
def test_equals_the_reference_in_all_derivatives(case, shared, dtype, tolerance):
    spec = _spec(case, shared)
    leaves, edges = _inputs(spec, 3, 4, dtype)
    _check(_derivatives(spec, leaves, edges, "triton"), _exact(spec, leaves, edges), tolerance)


# Runs of three edges: receivers change within runs and between them.
@pytest.mark.parametrize(
    ("case", "shared", "dtype", "tolerance"),
    [
        *((case, False, torch.float64, 1e-12) for case in ("unsorted", "several blocks")),
        *((case, True, torch.float64, 1e-12) for case in ("one channel", "uvw")),
        *((case, False, torch.float32, 5e-6) for case in ("wide attributes", "uvw", "uuu")),
    ],
)
def test_atomics_equal_the_reference_in_all_derivatives(
    case, shared, dtype, tolerance, monkeypatch
):
    monkeypatch.setattr(triton_operators, "ATOMIC_RUN", 3)
    spec = _spec(case, shared)
    leaves, edges = _inputs(spec, 4, 8, dtype)
    got = _derivatives(spec, leaves, edges, "triton", deterministic=False)
    _check(got, _exact(spec, leaves, edges), tolerance)


@pytest.mark.parametrize(("num_nodes", "num_edges"), [(0, 0), (3, 0), (1, 2)])
@pytest.mark.parametrize(("shared", "deterministic"), [(False, True), (True, True), (False, False)])
def test_empty_graphs(num_nodes, num_edges, shared, deterministic):
    spec = TensorProductSpec.channelwise("8x0e+8x1o", "0e+1o", "0e+1o", shared_weights=shared)
    leaves, edges = _inputs(spec, num_nodes, num_edges, torch.float32)
    got = _derivatives(spec, leaves, edges, "triton", deterministic=deterministic)
    for a, b in zip(got, _exact(spec, leaves, edges), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("deterministic", [True, False])
def test_every_element_is_written(deterministic):
    """Fresh memory is NaN; in1, in2 and out hold segments that no path touches."""
    spec = TensorProductSpec.build("3x0e+8x1o", "0e+1o+2e", "8x0e+2x2e", [(1, 1, 0, "uvu", True)])
    leaves, edges = _inputs(spec, 4, 5, torch.float64)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # which fills fresh memory with NaN
    try:
        got = _derivatives(spec, leaves, edges, "triton", deterministic=deterministic)
    finally:
        torch.use_deterministic_algorithms(before)
    _check(got, _exact(spec, leaves, edges), 1e-12)


def test_paths_without_weights():
    instructions = [(0, 1, 0, "uvu", False), (0, 0, 1, "uvu", True)]
    spec = TensorProductSpec.build("8x1o", "0e+1o", "8x0e+8x1o", instructions)
    leaves, edges = _inputs(spec, 4, 5, torch.float64)
    _check(_derivatives(spec, leaves, edges, "triton"), _exact(spec, leaves, edges), 1e-12)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_any_subset_of_inputs_may_require_gradients(position, deterministic):
    spec = TensorProductSpec.channelwise("4x0e+4x1o", "0e+1o", "0e+1o")
    leaves, edges = _inputs(spec, 4, 5, torch.float64)
    chosen = [each.detach() for each in leaves]
    chosen[position].requires_grad_()
    results = []
    for backend in ("triton", "reference"):
        options = {"backend": backend, "deterministic": deterministic}
        out = tensor_product_convolution(spec, *chosen, edges, **options)
        grads = torch.autograd.grad(out.square().sum(), chosen[position], create_graph=True)
        results.append((*grads, *torch.autograd.grad(grads[0].square().sum(), chosen[position])))
    _check(*results, 1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_two_runs_are_bit_identical(shared):
    spec = TensorProductSpec.channelwise("9x0e+9x1o", "0e+1o", "0e", shared_weights=shared)
    leaves, edges = _inputs(spec, 4, 8 if INTERPRETED else 20_000, torch.float32)
    first, second = (_derivatives(spec, leaves, edges, "triton") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("deterministic", [True, False])
def test_accumulation_in_float64(deterministic):
    spec = TensorProductSpec.channelwise("8x0e+8x1o", "0e+1o", "0e+1o")
    leaves, edges = _inputs(spec, 2, 6, torch.float32)
    options = {"accumulate": torch.float64, "deterministic": deterministic}
    got = _derivatives(spec, leaves, edges, "triton", **options)
    assert all(each.dtype == torch.float32 for each in got)
    # Only what is stored is rounded to float32: half an ulp where nothing rounded follows.
    want = _exact(spec, leaves, edges)
    assert (got[0] - want[0]).abs().max() <= 6e-8 * want[0].abs().max()
    _check(got, want, 1e-6)


def test_shared_weights_of_many_runs(monkeypatch):
    monkeypatch.setattr(triton_operators, "SMALLEST_RUN", 3)
    spec = TensorProductSpec.channelwise("4x0e", "0e", "0e", shared_weights=True)
    leaves, edges = _inputs(spec, 3, 8, torch.float64)
    _check(_derivatives(spec, leaves, edges, "triton"), _exact(spec, leaves, edges), 1e-12)


@pytest.mark.parametrize("deterministic", [True, False])
def test_operators_pass_torch_opcheck_and_compile(deterministic):
    spec = TensorProductSpec.channelwise("4x0e", "0e", "0e")
    leaves, edges = _inputs(spec, 3, 4, torch.float64)
    index = (edges.sender, edges.receiver, edges.receiver_ptr, edges.receiver_order)
    arguments = (*leaves, *index, *edges.by_sender, spec.text, False, not deterministic)
    torch.library.opcheck(
        triton_operators.forward.operator, arguments, test_utils=("test_schema", "test_faketensor")
    )

    def function(*leaves):
        options = {"backend": "triton", "deterministic": deterministic}
        return tensor_product_convolution(spec, *leaves, edges, **options).square().sum()

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    want = torch.autograd.grad(function(*leaves), leaves)
    for a, b in zip(torch.autograd.grad(compiled(*leaves), leaves), want, strict=True):
        torch.testing.assert_close(a, b)


def test_what_has_no_kernel_is_said():
    instructions = [(0, 0, 0, "uuu", True), (1, 0, 1, "uvw", True)]
    spec = TensorProductSpec.build("4x0e+2x0e", "4x0e", "4x0e+3x0e", instructions)
    with pytest.raises(BackendError, match="shared by uuu and other modes"):
        triton_source.generate(spec, "edges", False, "float32")
    leaves, edges = _inputs(spec, 2, 2, torch.float32)
    with pytest.raises(BackendError, match="reference"):
        tensor_product_convolution(spec, *leaves, edges, backend="triton")


@LONG
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_large_graph(dtype, tolerance, deterministic):
    in1, in2 = "128x0e+128x1o+128x2e", "0e+1o+2e+3o"
    spec = TensorProductSpec.channelwise(in1, in2, "128x0e+128x1o+128x2e+128x3o")
    leaves, edges = _inputs(spec, 200, 4000, dtype)
    assert triton_operators.kernel(spec.text, "nodes", False, dtype).parts > 1
    got = _derivatives(spec, leaves, edges, "auto", deterministic=deterministic)
    _check(got, _exact(spec, leaves, edges), tolerance)
