"""torch.func over the fused convolution: every transform equals the same one of the reference."""

import pickle
from dataclasses import replace

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from scitoolkit.core.errors import BackendError, DataError
from scitoolkit.ops.tensor_product import (
    Edges,
    TensorProduct,
    TensorProductSpec,
    autograd,
    radial_convolution,
    tensor_product_convolution,
)

# In forward mode torch loads rules that it compiles with the deprecated torch.jit.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
IRREPS = ("2x0e + 2x1o", "0e + 1o", "0e + 1o")
INSTRUCTIONS = [(0, 0, 0, "uvu", True), (1, 1, 1, "uvu", True)]
NODES, EDGES, HIDDEN, BATCH = 4, 7, 3, 3


@pytest.fixture(autouse=True)
def quick_compiler(monkeypatch):
    monkeypatch.setenv("SCITOOLKIT_CFLAGS", "-O1")


@pytest.fixture(params=["one call", "a call for each element"])
def batches(request, monkeypatch):
    """Both ways to run a batch."""
    limit = -1 if request.param != "one call" else 1 << 20
    monkeypatch.setattr(autograd, "REPEATED_BYTES", limit)


def problem(shared=False):
    spec = TensorProductSpec.channelwise(*IRREPS, shared_weights=shared)
    r = torch.Generator().manual_seed(0)
    edges = Edges.build(*torch.randint(0, NODES, (2, EDGES), generator=r), NODES)
    weight = (spec.weight_numel,) if shared else (EDGES, spec.weight_numel)
    shapes = (NODES, spec.dim_in1), (EDGES, spec.dim_in2), weight
    tensors = [torch.randn(s, generator=r, dtype=torch.float64) for s in shapes]
    return spec, edges, tensors


def check(transform, shared=False):
    """Compare `transform(function, x, y, weight)` on both backends."""
    spec, edges, tensors = problem(shared)
    found = []
    for backend in ("cpu", "reference"):

        def function(x, y, weight, backend=backend):
            return tensor_product_convolution(spec, x, y, weight, edges, backend=backend)

        found.append(torch.utils._pytree.tree_leaves(transform(function, *tensors)))
    for got, want in zip(*found, strict=True):
        assert (got - want).abs().max() <= 1e-12 * max(1.0, want.abs().max())


def cubed(function):
    return lambda *tensors: function(*tensors).pow(3).sum()


def stretched(value, dim=0):
    """A batch whose elements differ."""
    scale = torch.linspace(0.5, 1.5, BATCH, dtype=value.dtype)
    return torch.stack([value * each for each in scale], dim)


@pytest.mark.parametrize("shared", [False, True])
def test_gradients(shared):
    every = (0, 1, 2)
    check(lambda f, *t: grad(cubed(f), every)(*t), shared=shared)
    check(lambda f, *t: vjp(f, *t)[1](torch.ones_like(f(*t))), shared=shared)

    def of_gradients(f):
        return lambda *t: sum(each.pow(2).sum() for each in grad(cubed(f), every)(*t))

    check(lambda f, *t: grad(of_gradients(f), every)(*t), shared=shared)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.usefixtures("batches")
def test_jacobians(shared):
    check(lambda f, *t: jacrev(f, (0, 1, 2))(*t), shared=shared)
    check(lambda f, *t: jacfwd(f, (0, 1, 2))(*t), shared=shared)
    check(lambda f, *t: jacrev(jacrev(cubed(f), 1), 1)(*t), shared=shared)
    check(lambda f, *t: hessian(cubed(f), (0, 1))(*t), shared=shared)


def test_forward_mode():
    check(lambda f, *t: jvp(f, tuple(t), tuple(each.cos() for each in t)))

    def dual(f, x, y, weight):
        with forward_ad.dual_level():
            out = f(forward_ad.make_dual(x, x.cos()), y, weight)
            return forward_ad.unpack_dual(out)

    check(dual)


DIMS = [(0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0), (1, 0, None), (None, 1, 0)]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.usefixtures("batches")
def test_batches(dims, shared):
    def batch(tensors):
        return [t if d is None else stretched(t, d) for t, d in zip(tensors, dims, strict=True)]

    check(lambda f, *t: vmap(f, dims)(*batch(t)), shared=shared)
    check(lambda f, *t: vmap(grad(cubed(f), (0, 1, 2)), dims)(*batch(t)), shared=shared)
    check(
        lambda f, *t: grad(lambda *t: vmap(f, dims)(*batch(t)).pow(3).sum(), (0, 1, 2))(*t),
        shared=shared,
    )


@pytest.mark.usefixtures("batches")
def test_batches_of_batches_and_ordinary_gradients():
    def twice(f, x, y, w):
        return vmap(lambda a: vmap(lambda b: f(a, b, w))(stretched(y)))(stretched(x))

    check(twice)

    def outside(f, x, y, w):
        w = w.clone().requires_grad_()
        return torch.autograd.grad(vmap(lambda a: f(a, y, w))(stretched(x)).pow(3).sum(), w)

    check(outside)


def test_a_module_whose_graph_is_made_under_the_transform():
    found = []
    for backend in ("cpu", "reference"):
        torch.manual_seed(0)
        module = TensorProduct(*IRREPS[:2], "2x0e + 2x0e", INSTRUCTIONS, backend=backend)
        module = module.double()
        x = torch.linspace(-1, 1, BATCH * 5 * 8, dtype=torch.float64).reshape(BATCH, 5, 8)
        y = torch.ones(5, 4, dtype=torch.float64)

        def loss(parameters, x, y=y, module=module):
            return functional_call(module, parameters, (x, y)).pow(2).sum()

        found.append(vmap(grad(loss), (None, 0))(dict(module.named_parameters()), x)["weight"])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


def test_weights_that_are_made_as_they_are_needed():
    spec, edges, (x, y, _) = problem()
    hidden = torch.linspace(-1, 1, EDGES * HIDDEN, dtype=torch.float64).reshape(EDGES, HIDDEN)
    last = torch.linspace(1, 2, HIDDEN * spec.weight_numel, dtype=torch.float64)
    tensors = x, y, hidden, last.reshape(HIDDEN, -1)

    def loss(*tensors, backend="cpu"):
        return radial_convolution(spec, *tensors, edges, backend=backend).pow(3).sum()

    leaves = [each.clone().requires_grad_() for each in tensors]
    want = torch.autograd.grad(loss(*leaves), leaves)
    for got, each in zip(grad(loss, (0, 1, 2, 3))(*tensors), want, strict=True):
        torch.testing.assert_close(got, each, rtol=1e-12, atol=1e-11)
    losses = vmap(loss, (0, None, None, None))(stretched(x), *tensors[1:])
    torch.testing.assert_close(losses[1], loss(*tensors))


def test_what_cannot_be_says_so():
    spec, edges, (x, y, weight) = problem()

    def run(x, graph=edges):
        return tensor_product_convolution(spec, x, y, weight, graph, backend="cpu")

    def third(y):
        def f(y):
            return tensor_product_convolution(spec, x, y, weight, edges, backend="cpu").pow(3).sum()

        return grad(lambda y: grad(lambda y: grad(f)(y).pow(3).sum())(y).pow(3).sum())(y)

    with pytest.raises(BackendError, match="no third derivative"):
        third(y)
    with pytest.raises(DataError, match="edges differ between the elements"):
        vmap(lambda s: run(x, replace(edges, sender=s)))(torch.stack([edges.sender] * 2))
    with pytest.raises(DataError, match="empty batch"):
        vmap(run)(x[None][:0])


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_transforms_inside_of_compile(backend):
    """Registered operators would lose tangents there; an error says why, and the reference runs."""
    spec, edges, (x, y, weight) = problem()

    def slope(x):
        def loss(x):
            return tensor_product_convolution(spec, x, y, weight, edges, backend=backend).pow(3)

        return jvp(loss, (x,), (x.cos(),))[1], grad(lambda x: loss(x).sum())(x)

    if backend == "reference":
        found = torch.compile(slope, backend="aot_eager")(x)
        torch.testing.assert_close(found, slope(x), rtol=1e-12, atol=1e-12)
    else:
        with pytest.raises(Exception, match=r"no kernel for torch\.func while"):
            torch.compile(slope, backend="aot_eager", fullgraph=True)(x)


def test_one_call_for_a_batch_gives_the_bits_of_a_call_for_each(monkeypatch):
    """On a graph of several chunks, which meet the same senders."""
    monkeypatch.setattr(autograd, "REPEATED_BYTES", 1 << 30)
    spec, r = TensorProductSpec.channelwise(*IRREPS), torch.Generator().manual_seed(0)
    edges = Edges.build(*torch.randint(0, 40, (2, 5000), generator=r), 40)
    assert edges.graph.num_chunks > 1
    shapes = (40, spec.dim_in1), (5000, spec.dim_in2), (5000, spec.weight_numel)
    x, y, weight = (torch.randn(s, generator=r) for s in shapes)

    def loss(x):
        return tensor_product_convolution(spec, x, y, weight, edges, backend="cpu").pow(3).sum()

    batch = stretched(x)
    found = vmap(grad(loss))(batch)
    for got, each in zip(found, batch, strict=True):
        assert torch.equal(got, grad(loss)(each))


def test_edges_travel_after_use():
    spec, edges, tensors = problem()
    out = tensor_product_convolution(spec, *tensors, edges, backend="cpu")
    again = pickle.loads(pickle.dumps(edges))
    assert torch.equal(tensor_product_convolution(spec, *tensors, again, backend="cpu"), out)
