"""The generated tensor products against e3nn in float64: outputs, all derivatives, bad input."""

import pytest
import torch

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.tensor_product import (
    Edges,
    TensorProduct,
    TensorProductSpec,
    change_layout,
    channelwise_instructions,
    operators,
    tensor_product_convolution,
)

o3 = pytest.importorskip("e3nn.o3")


@pytest.fixture(autouse=True)
def quick_compiler(monkeypatch):
    """Correctness does not need the optimiser; one test below takes the flags of production."""
    monkeypatch.setenv("SCITOOLKIT_CFLAGS", "-O1")


# Multiplicities below, at and above the vector width, with and without a remainder.
CASES = {
    "channels-1": ("1x0e+1x1o", "0e+1o", "0e+1o", "uvu"),
    "channels-11": ("11x0e+11x1o", "0e+1o+2e", "0e+1o+1e+2e", "uvu"),
    "unsorted": ("5x2e+8x0o+3x1o", "1o+0e", "0e+1o+2o+1e", "uvu"),
    "wide-attributes": ("6x0e+6x1o", "2x0e+3x1o", "0e+1o", "uvu"),
    "degree-3": ("16x3o+16x1e", "3o+2e", "0e+3o+2o", "uvu"),
    "uvw": ("5x0e+3x1o", "2x0e+1o", "11x0e+9x1o+8x1e", "uvw"),
    "uuu": ("11x0e+11x1o", "11x0e+11x1o", "11x0e+11x1o+11x1e+11x2e", "uuu"),
}


def _instructions(in1, in2, out, mode):
    if mode == "uvu":
        return channelwise_instructions(in1, in2, out)
    irreps = o3.Irreps(out)
    sides = [list(enumerate(o3.Irreps(each))) for each in (in1, in2, out)]
    found = [
        (i, j, k, mode, True)
        for i, (_, a) in sides[0]
        for j, (_, b) in sides[1]
        for k, (_, c) in sides[2]
        if c in a * b
    ]
    return irreps, found


def _exact_peer(*arguments):
    """e3nn keeps its constants in the default dtype of the moment it is built."""
    *irreps_and_instructions, shared = arguments
    torch.set_default_dtype(torch.float64)
    try:
        return o3.TensorProduct(
            *irreps_and_instructions, shared_weights=shared, internal_weights=False
        )
    finally:
        torch.set_default_dtype(torch.float32)


def _inputs(spec, num_nodes, num_edges, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape_w = (spec.weight_numel,) if spec.shared_weights else (num_edges, spec.weight_numel)
    shapes = (num_nodes, spec.dim_in1), (num_edges, spec.dim_in2), shape_w
    inputs = [torch.randn(each, generator=generator, dtype=torch.float64) for each in shapes]
    # Node num_nodes - 1 neither sends nor receives; edges come unsorted.
    index = torch.randint(0, max(num_nodes - 1, 1), (2, num_edges), generator=generator)
    return [each.to(dtype).requires_grad_() for each in inputs], index


def _derivatives(function, inputs):
    """Output, its gradients, and the gradients of a scalar of these."""
    out = function(*inputs)
    probe = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    probe = probe.requires_grad_()
    first = torch.autograd.grad(out, inputs, probe, create_graph=True)
    scalar = sum((each * torch.cos(each.detach())).sum() for each in first)
    second = torch.autograd.grad(scalar, [*inputs, probe])
    return [out, *first, *second]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 5e-6)])
def test_equals_e3nn_in_all_derivatives(case, shared, dtype, tolerance):
    in1, in2, wanted, mode = CASES[case]
    out, instructions = _instructions(in1, in2, wanted, mode)
    spec = TensorProductSpec.build(in1, in2, out, instructions, shared_weights=shared)
    peer = _exact_peer(in1, in2, out, instructions, shared)
    assert spec.weight_numel == peer.weight_numel
    inputs, (sender, receiver) = _inputs(spec, 6, 17, dtype)
    edges = Edges.build(sender, receiver, 6)

    def ours(x, y, w):
        x, y = change_layout(x, spec.in1, "ir_mul"), change_layout(y, spec.in2, "ir_mul")
        return change_layout(
            tensor_product_convolution(spec, x, y, w, edges, backend="cpu"), spec.out, "mul_ir"
        )

    def exact(x, y, w):
        message = peer(x[sender], y, w)
        return message.new_zeros(6, message.shape[1]).index_add(0, receiver, message)

    got = _derivatives(ours, inputs)
    want = _derivatives(exact, [each.detach().double().requires_grad_() for each in inputs])
    for a, b in zip(got, want, strict=True):
        assert (a - b).abs().max() <= tolerance * b.abs().max()


def test_accumulation_in_float64_is_more_accurate():
    spec = TensorProductSpec.channelwise("8x0e+8x1o", "0e+1o", "0e+1o")
    inputs, index = _inputs(spec, 3, 3000, torch.float32)
    edges = Edges.build(*index, 3)

    def results(accumulate, dtype):
        leaves = [each.detach().to(dtype).requires_grad_() for each in inputs]
        return _derivatives(
            lambda *a: tensor_product_convolution(
                spec, *a, edges, backend="cpu", accumulate=accumulate
            ),
            leaves,
        )

    exact = results(None, torch.float64)
    plain, precise = results(None, torch.float32), results(torch.float64, torch.float32)
    for name, position in (("out", 0), ("gradient of x", 1)):
        errors = [float((r[position] - exact[position]).detach().norm()) for r in (plain, precise)]
        assert errors[1] < 0.5 * errors[0], name
    assert all(each.dtype == torch.float32 for each in precise)
    with pytest.raises(ConfigError, match="accumulate"):
        results(torch.float16, torch.float32)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("in1", "in2", "out", "mode"),
    [
        ("72x0e+72x1o", "0e+1o+2e", "0e+1o+2e", "uvu"),
        ("3x0e+3x1o", "0e+1o", "0e+1o", "uvu"),
        ("2x0e+2x1o", "0e+1o", "0e+1o", "uvu"),
        ("2x0e", "0e", "0e", "uvu"),
        CASES["uvw"],
        CASES["uuu"],
    ],
)
def test_optimised_kernels_equal_the_reference(monkeypatch, in1, in2, out, mode, dtype, shared):
    """With the flags of production: a compiler has taken small passes for idle ones."""
    monkeypatch.delenv("SCITOOLKIT_CFLAGS")
    irreps, instructions = _instructions(in1, in2, out, mode)
    instructions = [(*each, 0.875) for each in instructions]  # no other test loads these kernels
    spec = TensorProductSpec.build(in1, in2, irreps, instructions, shared_weights=shared)
    inputs, index = _inputs(spec, 9, 150, dtype)
    edges = Edges.build(*index, 9)
    got = _derivatives(
        lambda *a: tensor_product_convolution(spec, *a, edges, backend="cpu"), inputs
    )
    want = _derivatives(
        lambda *a: tensor_product_convolution(spec, *a, edges, backend="reference"),
        [each.detach().double().requires_grad_() for each in inputs],
    )
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    for a, b in zip(got, want, strict=True):
        assert (a - b).abs().max() <= tolerance * b.abs().max()


@pytest.fixture
def compiled_with(monkeypatch):
    """Compile kernels with other flags; kernels that are loaded already are forgotten."""

    def compiled(flags):
        monkeypatch.setenv("SCITOOLKIT_CFLAGS", f"-O1 {flags}")
        operators.kernel.cache_clear()

    yield compiled
    operators.kernel.cache_clear()


DTYPES = [(torch.float64, None), (torch.float32, None), (torch.float32, torch.float64)]


# The suite has every pair of a width, a number of channels and a dtype, the campaign every triple.
@pytest.mark.parametrize(
    ("num_bytes", "channels", "dtype", "accumulate"),
    [
        pytest.param(
            num_bytes, channels, *dtypes, marks=[pytest.mark.slow] if (i + j + k) % 3 else []
        )
        for i, num_bytes in enumerate([16, 32, 64])
        for j, channels in enumerate([8, 20, 32])
        for k, dtypes in enumerate(DTYPES)
    ],
)
def test_vectors_of_any_width_and_stores_past_the_caches(
    compiled_with, num_bytes, channels, dtype, accumulate
):
    """Widths that this machine may lack; rows that are whole aligned vectors and rows that are not.

    Whatever the size, outputs and gradients of weights are written past the caches where they can.
    """
    compiled_with(f"-DBYTES={num_bytes} -DSTREAM_BYTES=0")
    irreps = f"{channels}x0e + {channels}x1o"
    instructions = [(0, 0, 0, "uvu", True), (1, 0, 1, "uvu", True), (1, 1, 1, "uvu", True)]
    instructions += [(0, 0, 0, "uvw", True), (1, 1, 1, "uvw", True)]
    spec = TensorProductSpec.build(irreps, "0e+1e", irreps, instructions)
    inputs, index = _inputs(spec, 6, 17, dtype)
    edges = Edges.build(*index, 6)

    def results(backend, leaves, **options):
        return _derivatives(
            lambda *a: tensor_product_convolution(spec, *a, edges, backend=backend, **options),
            leaves,
        )

    got = results("cpu", inputs, accumulate=accumulate)
    want = results("reference", [each.detach().double().requires_grad_() for each in inputs])
    tolerance = 1e-12 if dtype == torch.float64 else 5e-6
    for a, b in zip(got, want, strict=True):
        assert (a - b).abs().max() <= tolerance * b.abs().max()


@pytest.mark.parametrize("case", ["channels-11", "wide-attributes", "uvw", "uuu"])
@pytest.mark.parametrize("shared", [False, True])
def test_gradcheck_and_gradgradcheck(case, shared):
    in1, in2, wanted, mode = CASES[case]
    out, instructions = _instructions(in1, in2, wanted, mode)
    spec = TensorProductSpec.build(in1, in2, out, instructions, shared_weights=shared)
    inputs, index = _inputs(spec, 3, 2, torch.float64)
    edges = Edges.build(*index, 3)

    def ours(*arguments):
        return tensor_product_convolution(spec, *arguments, edges, backend="cpu")

    assert torch.autograd.gradcheck(ours, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(ours, inputs, fast_mode=True)


def test_any_subset_of_inputs_may_require_gradients():
    spec = TensorProductSpec.channelwise("4x0e+4x1o", "0e+1o", "0e+1o")
    leaves, index = _inputs(spec, 4, 5, torch.float64)
    edges = Edges.build(*index, 4)
    want = torch.autograd.grad(
        tensor_product_convolution(spec, *leaves, edges, backend="cpu").square().sum(), leaves
    )
    for position in range(3):
        inputs = [each.detach() for each in leaves]
        inputs[position].requires_grad_()
        out = tensor_product_convolution(spec, *inputs, edges, backend="cpu").square().sum()
        (grad,) = torch.autograd.grad(out, inputs[position], create_graph=True)
        assert torch.equal(grad, want[position])
        assert torch.autograd.grad(grad.sum(), inputs[position])[0].isfinite().all()


@pytest.mark.parametrize("inversion", [False, True])
def test_rotations_and_inversions(inversion):
    in1, in2, out = "9x0e+9x1o+9x2e", "0e+1o+2e", "0e+1o+2e+1e"
    spec = TensorProductSpec.channelwise(in1, in2, out)
    irreps, _ = channelwise_instructions(in1, in2, out)
    inputs, index = _inputs(spec, 5, 12, torch.float64)
    edges = Edges.build(*index, 5)
    turn = o3.rand_matrix(dtype=torch.float64) * (-1 if inversion else 1)
    on = {
        name: o3.Irreps(each).D_from_matrix(turn)
        for name, each in (("x", in1), ("y", in2), ("z", irreps))
    }

    def ours(x, y):
        packed = change_layout(x, spec.in1, "ir_mul")
        rows = tensor_product_convolution(spec, packed, y, inputs[2], edges, backend="cpu")
        return change_layout(rows, spec.out, "mul_ir")

    turned = ours(inputs[0] @ on["x"].T, inputs[1] @ on["y"].T)
    # The bound leaves room for e3nn's own Wigner matrices, which are good to about 1e-7.
    assert (turned - ours(*inputs[:2]) @ on["z"].T).abs().max() < 1e-5


def test_the_reference_accumulates_in_float64_too():
    spec = TensorProductSpec.channelwise("1x0e", "0e", "0e")
    edges = Edges.build(torch.zeros(3, dtype=torch.long), torch.zeros(3, dtype=torch.long), 1)
    arguments = (torch.ones(1, 1), torch.tensor([[1e9], [1.0], [-1e9]]), torch.ones(3, 1), edges)
    for backend in ("cpu", "reference"):
        out = tensor_product_convolution(
            spec, *arguments, backend=backend, accumulate=torch.float64
        )
        assert out.dtype == torch.float32
        assert out.item() == 1.0


def test_a_change_to_no_layout_is_refused():
    spec = TensorProductSpec.channelwise("2x1o", "0e", "1o")
    with pytest.raises(ConfigError, match=r"layout='mul-ir'. Allowed: ir_mul, mul_ir"):
        change_layout(torch.zeros(3, 6), spec.in1, "mul-ir")
    for shape in ((3, 7), (2, 6, 6)):
        with pytest.raises(DataError, match=r"rows of shape \(R, 6\)"):
            change_layout(torch.zeros(shape), spec.in1, "ir_mul")


def test_order_of_edges_does_not_matter():
    spec = TensorProductSpec.channelwise("8x0e+8x1o", "0e+1o", "0e+1o")
    (x, y, w), index = _inputs(spec, 6, 40, torch.float64)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    got = tensor_product_convolution(spec, x, y, w, Edges.build(*index, 6), backend="cpu")
    shuffled = Edges.build(*index[:, order], 6)
    again = tensor_product_convolution(spec, x, y[order], w[order], shuffled, backend="cpu")
    torch.testing.assert_close(again, got, rtol=1e-12, atol=1e-12)


def test_long_sums_in_float32_stay_exact():
    """96 input channels of 40 edges a node: a sequential sum would be off by more than 5e-7."""
    _, instructions = _instructions("96x0e", "0e", "16x0e", "uvw")
    spec = TensorProductSpec.build("96x0e", "0e", "16x0e", instructions)
    inputs, index = _inputs(spec, 11, 400, torch.float32)
    edges = Edges.build(*index, 11)
    got = tensor_product_convolution(spec, *inputs, edges, backend="cpu")
    want = tensor_product_convolution(spec, *(x.double() for x in inputs), edges, backend="cpu")
    assert (got - want).abs().max() < 5e-7 * want.abs().max()


@pytest.mark.parametrize("shared", [False, True])
def test_bits_do_not_depend_on_threads(shared):
    spec = TensorProductSpec.channelwise("9x0e+9x1o", "0e+1o", "0e+1o", shared_weights=shared)
    inputs, index = _inputs(spec, 70, 8000, torch.float32)
    edges = Edges.build(*index, 70)
    assert edges.graph.num_chunks == 8  # which hand over to one another

    def ours(*arguments):
        return tensor_product_convolution(spec, *arguments, edges, backend="cpu")

    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 2):
            torch.set_num_threads(threads)
            results.append(_derivatives(ours, inputs))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize(("num_nodes", "num_edges"), [(0, 0), (4, 0), (1, 3)])
def test_empty_graphs_and_lonely_nodes(num_nodes, num_edges):
    spec = TensorProductSpec.channelwise("8x0e+8x1o", "0e+1o", "0e+1o")
    inputs, index = _inputs(spec, num_nodes, num_edges, torch.float32)
    edges = Edges.build(*index, num_nodes)
    results = _derivatives(
        lambda *a: tensor_product_convolution(spec, *a, edges, backend="cpu"), inputs
    )
    assert all(each.isfinite().all() for each in results)
    assert num_edges or not results[0].any()


def test_every_output_element_is_written(monkeypatch):
    """Outputs start as NaN; in1, in2 and out hold segments that no path touches."""
    spec = TensorProductSpec.build("3x0e+8x1o", "0e+1o+2e", "8x0e+2x2e", [(1, 1, 0, "uvu", True)])
    inputs, index = _inputs(spec, 5, 7, torch.float64)
    edges = Edges.build(*index, 5)
    with torch.no_grad():
        plain = tensor_product_convolution(spec, *inputs, edges, backend="cpu")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    try:
        results = _derivatives(
            lambda *a: tensor_product_convolution(spec, *a, edges, backend="cpu"), inputs
        )
    finally:
        torch.use_deterministic_algorithms(before)
    assert all(each.isfinite().all() for each in results)
    assert torch.equal(results[0], plain)


def test_nan_in_one_edge_reaches_only_its_receiver():
    spec = TensorProductSpec.channelwise("8x0e", "0e", "0e")
    (x, y, w), _ = _inputs(spec, 3, 2, torch.float32)
    y = y.detach().clone()
    y[0] = float("nan")
    edges = Edges.build(torch.tensor([0, 1]), torch.tensor([1, 2]), 3)
    out = tensor_product_convolution(spec, x, y, w, edges, backend="cpu")
    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()


def test_module_replaces_e3nn_in_two_lines():
    instructions = [(0, 0, 0, "uvu", True), (1, 1, 1, "uvu", True)]
    arguments = ("8x0e+8x1o", "0e+1o", "8x0e+8x0e", instructions)
    peer = o3.TensorProduct(*arguments)
    ours = TensorProduct(*arguments)
    ours.load_state_dict({"weight": peer.weight.detach()})
    x, y = torch.randn(4, 5, 32), torch.randn(4, 5, 4)
    torch.testing.assert_close(ours(x, y), peer(x, y), rtol=1e-5, atol=1e-5)
    spec = TensorProductSpec.from_e3nn(peer)
    assert [p.scale for p in spec.paths] == pytest.approx([p.scale for p in ours.spec.paths])


def test_constants_of_an_older_e3nn_keep_their_sign(monkeypatch):
    arguments = ("8x2e+8x1o", "1o", "8x2o+8x0e", [(0, 0, 0, "uvu", True), (1, 0, 1, "uvu", True)])
    new = TensorProductSpec.from_e3nn(o3.TensorProduct(*arguments))
    constants = o3.wigner_3j

    def older(l1, l2, l3):
        return constants(l1, l2, l3) * (-1 if (l1, l2, l3) == (2, 1, 2) else 1)

    monkeypatch.setattr(o3, "wigner_3j", older)
    old = TensorProductSpec.from_e3nn(o3.TensorProduct(*arguments))
    assert [p.scale for p in old.paths] == [-new.paths[0].scale, new.paths[1].scale]


def test_operators_pass_torch_opcheck():
    spec = TensorProductSpec.channelwise("4x0e+4x1o", "0e+1o", "0e+1o")
    inputs, index = _inputs(spec, 4, 5, torch.float64)
    from scitoolkit.ops.tensor_product import operators

    arguments = (*inputs, *Edges.build(*index, 4).tensors(), spec.to_json(), False)
    torch.library.opcheck(
        operators.forward, arguments, test_utils=("test_schema", "test_faketensor")
    )


def test_torch_compile_sees_the_operators():
    spec = TensorProductSpec.channelwise("4x0e+4x1o", "0e+1o", "0e+1o")
    inputs, index = _inputs(spec, 4, 5, torch.float64)
    edges = Edges.build(*index, 4)

    def function(x, y, w):
        return tensor_product_convolution(spec, x, y, w, edges, backend="cpu").square().sum()

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    want = torch.autograd.grad(function(*inputs), inputs)
    for a, b in zip(torch.autograd.grad(compiled(*inputs), inputs), want, strict=True):
        torch.testing.assert_close(a, b)


def test_torch_export_keeps_the_operator():
    spec = TensorProductSpec.channelwise("4x0e+4x1o", "0e+1o", "0e+1o")
    (x, y, w), index = _inputs(spec, 4, 5, torch.float64)
    edges = Edges.build(*index, 4)

    class Layer(torch.nn.Module):
        def forward(self, x, y, w):
            return tensor_product_convolution(spec, x, y, w, edges, backend="cpu")

    arguments = (x.detach(), y.detach(), w.detach())
    program = torch.export.export(Layer(), arguments)
    assert "scitoolkit.tensor_product_forward" in str(program.graph)
    torch.testing.assert_close(program.module()(*arguments), Layer()(*arguments))


@pytest.mark.parametrize(
    ("sender", "receiver", "message"),
    [
        ([0, 5], [0, 1], "sender contains node 5"),
        ([0, 1], [0, -1], "receiver contains node -1"),
        ([0, 1], [0], "one shape"),
        ([0.5], [0.5], "integer dtype"),
    ],
)
def test_wrong_edges_are_named(sender, receiver, message):
    with pytest.raises(DataError, match=message):
        Edges.build(torch.tensor(sender), torch.tensor(receiver), 3)


def test_wrong_tensors_are_named():
    spec = TensorProductSpec.channelwise("4x0e", "0e", "0e")
    edges = Edges.build(torch.tensor([0]), torch.tensor([1]), 2)
    x, y, w = torch.zeros(2, 4), torch.zeros(1, 1), torch.zeros(1, 4)
    with pytest.raises(DataError, match=r"expected x of shape \(2, 4\), got \(3, 4\)"):
        tensor_product_convolution(spec, torch.zeros(3, 4), y, w, edges)
    with pytest.raises(DataError, match=r"expected weight of torch.float32 .* got torch.float64"):
        tensor_product_convolution(spec, x, y, w.double(), edges)


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ((0, 0, 0, "uuw", True), "allowed|Allowed"),
        ((0, 0, 3, "uvu", True), "segment 3"),
        ((0, 0, 1, "uvu", True), "do not couple"),
        ((0, 0, 2, "uvu", True), "parity"),
    ],
)
def test_wrong_instructions_are_named(instruction, message):
    with pytest.raises(ConfigError, match=message):
        TensorProductSpec.build("4x0e", "0e", "4x0e+4x1o+4x0o", [instruction])


MULS = (1, 2, 4, 8, 16, 24, 32, 33, 49, 50, 64, 123)
TRIPLES = (
    (0, 0, 0),
    (1, 0, 1),
    (0, 1, 1),
    (1, 1, 0),
    (1, 1, 1),
    (1, 1, 2),
    (2, 1, 2),
    (5, 3, 5),
    (7, 2, 5),
)


def _grid_spec(mul, triples, mul2):
    in1, in2, out, instructions = [], [], [], []
    for position, (a, b, c) in enumerate(triples):
        parities = ("e", "o") if position % 2 else ("o", "e")
        in1.append(f"{mul}x{a}{parities[0]}")
        in2.append(f"{mul2}x{b}{parities[1]}")
        out.append(f"{mul}x{c}o")
        instructions.append((position, position, position, "uvu", True))
    return TensorProductSpec.build("+".join(in1), "+".join(in2), "+".join(out), instructions)


def _check_grid(mul, triples, mul2):
    spec = _grid_spec(mul, triples, mul2)
    inputs, index = _inputs(spec, 3, 5, torch.float64)
    edges = Edges.build(*index, 3)
    got, want = (
        _derivatives(
            lambda *a, b=backend: tensor_product_convolution(spec, *a, edges, backend=b), inputs
        )
        for backend in ("cpu", "reference")
    )
    for a, b in zip(got, want, strict=True):
        assert (a - b).abs().max() <= 1e-12 * b.abs().max()


@pytest.mark.parametrize("mul", [3, 33])
def test_multiplicities_and_degrees(mul):
    _check_grid(mul, TRIPLES[:7], 1)


@pytest.mark.slow
@pytest.mark.parametrize("mul2", [1, 2])
@pytest.mark.parametrize("mul", MULS)
def test_all_multiplicities_and_degrees(mul, mul2):
    _check_grid(mul, TRIPLES, mul2)
