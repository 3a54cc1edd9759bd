from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from scitoolkit.core.errors import BackendError, ConfigError, NumericalError
from scitoolkit.ops.codegen import call
from scitoolkit.ops.environment_matrix import EnvironmentSpec, operators, reference
from scitoolkit.ops.environment_matrix.environment import Environment, kernels
from scitoolkit.ops.environment_matrix.table import jets, quintic_pieces, tabulate
from scitoolkit.potentials.deepmd.networks import StackedNetworks

SPEC = EnvironmentSpec(4.0, 1.0, (12, 24), (5, 10, 20))


def problem(spec=SPEC, dtype=torch.float64, atoms=7, seed=0):
    """Edges of random length, some beyond the cutoff; every second atom has none of type 0."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, (atoms, spec.num_types))
    counts[::2, 0] = 0
    segments = torch.from_numpy(np.concatenate([[0], counts.ravel().cumsum()]))
    edges = int(segments[-1])
    vectors = rng.normal(size=(edges, 3))
    vectors *= (rng.uniform(0.7, 4.3, edges) / np.linalg.norm(vectors, axis=1))[:, None]
    types = torch.from_numpy(rng.integers(0, spec.num_types, atoms))
    mean = torch.zeros(spec.num_types, 4)
    mean[:, 0] = 0.1
    deviation = 0.2 + 0.1 * torch.rand(spec.num_types, 4, generator=torch.manual_seed(0))
    stack = StackedNetworks(
        spec.num_networks,
        1,
        spec.widths,
        resnet_dt="none",
        linear_output=False,
        generator=torch.manual_seed(seed),
        dtype=dtype,
    )
    vectors = torch.from_numpy(vectors).to(dtype)
    return segments, types, vectors, mean.to(dtype), deviation.to(dtype), stack


def fused(spec, segments, types, vectors, mean, deviation, stack, training=True):
    weights = operators.flat_weights(list(zip(stack.weight, stack.bias, strict=True)))
    order = torch.arange(len(types)).flip(0)
    environment = Environment(spec, order, segments, types, vectors, mean, deviation, training)
    moments = operators.moments(weights, environment)
    counts = segments.diff().view(-1, spec.num_types)
    absent = reference.absent_rows(spec, mean, deviation, stack.networks())[types]
    numbers = (torch.tensor(spec.sel) - counts).to(vectors.dtype)
    extra = torch.einsum("nt,ntmc->nmc", numbers, absent) / sum(spec.sel)
    return (weights, environment), moments.flip(0) + extra


@pytest.mark.parametrize("type_one_side", [True, False])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-5)], ids=["f64", "f32"]
)
def test_moments_and_all_derivatives_are_the_references(dtype, tolerance, type_one_side):
    spec = EnvironmentSpec(4.0, 1.0, (12, 24), (5, 10, 20), type_one_side=type_one_side)
    segments, types, vectors, mean, deviation, stack = problem(spec, dtype)
    moved = vectors.clone().requires_grad_()
    wanted = reference.moments(spec, moved, segments, types, mean, deviation, stack.networks())
    environment, found = fused(spec, segments, types, vectors, mean, deviation, stack)
    close(found, wanted, tolerance)

    generator = torch.manual_seed(1)
    cotangent = torch.randn(wanted.shape, generator=generator, dtype=dtype).requires_grad_()
    (slope,) = torch.autograd.grad(wanted, moved, cotangent, create_graph=True)
    gradient = operators.edge_gradients(cotangent.flip(0), *environment)
    close(gradient, slope, tolerance)

    u = torch.randn(vectors.shape, generator=generator, dtype=dtype)
    hat = torch.randn(wanted.shape, generator=generator, dtype=dtype)
    leaves = [cotangent, *stack.parameters()]
    expected = torch.autograd.grad((slope * u).sum() + (wanted * hat).sum(), leaves)
    by_cotangent = torch.autograd.grad((gradient * u).sum(), cotangent)
    close(by_cotangent[0], expected[0], tolerance)
    # That backward left its part of the weights' gradient for the backward of the moments.
    got = torch.autograd.grad((found * hat).sum(), list(stack.parameters()))
    for one, other in zip(got, expected[1:], strict=True):
        close(one, other, 10 * tolerance)


def close(found, wanted, tolerance):
    assert (found - wanted).abs().max() <= tolerance * wanted.abs().max()


def test_a_loss_of_forces_and_energies_reaches_the_weights_in_the_right_order():
    """The whole chain as training uses it, through a nonlinear function of the moments."""
    segments, types, vectors, mean, deviation, stack = problem()
    u = torch.randn(vectors.shape, dtype=torch.float64, generator=torch.manual_seed(2))

    def loss(moments, gradient):
        return (moments**2).sum() + (gradient * u).sum() ** 2

    moved = vectors.clone().requires_grad_()
    wanted = reference.moments(SPEC, moved, segments, types, mean, deviation, stack.networks())
    (slope,) = torch.autograd.grad(wanted.sin().sum(), moved, create_graph=True)
    expected = torch.autograd.grad(loss(wanted, slope), list(stack.parameters()))

    environment, found = fused(SPEC, segments, types, vectors, mean, deviation, stack)
    (cotangent,) = torch.autograd.grad(found.sin().sum(), found, create_graph=True)
    gradient = operators.edge_gradients(cotangent.flip(0), *environment)
    got = torch.autograd.grad(loss(found, gradient), list(stack.parameters()))
    for one, other in zip(got, expected, strict=True):
        close(one, other, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
def test_registered_operators_give_the_bits_of_the_eager_path(dtype):
    segments, types, vectors, mean, deviation, stack = problem(dtype=dtype)
    (weights, environment), _ = fused(SPEC, segments, types, vectors, mean, deviation, stack)
    weights = weights.detach().requires_grad_()
    arguments = operators.traced_arguments(environment)
    generator = torch.manual_seed(1)
    cotangent, again = torch.randn(2, 7, 20, 4, generator=generator, dtype=dtype).unbind()
    cotangent.requires_grad_()
    u = torch.randn(vectors.shape, generator=generator, dtype=dtype)

    moments = operators.moments(weights, environment)
    slopes = operators.edge_gradients(cotangent, weights, environment)
    traced = operators.traced_moments(weights, *arguments)
    traced_slopes = operators.traced_edge_gradients(cotangent, weights, *arguments)
    assert torch.equal(traced, moments)
    assert torch.equal(traced_slopes, slopes)
    leaves = cotangent, weights
    jvp, by_slopes = torch.autograd.grad(traced_slopes, leaves, u)
    (by_moments,) = torch.autograd.grad(traced, weights, again)
    assert torch.equal(jvp, torch.autograd.grad(slopes, cotangent, u)[0])
    environment.pending_cotangent = None
    (eager,) = torch.autograd.grad(moments, weights, again, retain_graph=True)
    assert torch.equal(by_moments, eager)
    # The eager path sums the two parts of a loss of both in one pass.
    environment.pending_cotangent = cotangent.detach(), u
    (eager,) = torch.autograd.grad(moments, weights, again)
    close(by_slopes + by_moments, eager, 1e-13 if dtype == torch.float64 else 1e-5)
    moved = vectors.clone().requires_grad_()
    again = operators.traced_edge_gradients(cotangent, weights, moved, *arguments[1:])
    with pytest.raises(BackendError, match=r"no derivative of .*vectors, twice"):
        again.sum().backward()


def test_opcheck_and_a_compiled_loss_of_energies_and_forces():
    segments, types, vectors, mean, deviation, stack = problem()
    (weights, environment), _ = fused(SPEC, segments, types, vectors, mean, deviation, stack)
    weights = weights.detach().requires_grad_()
    torch.library.opcheck(
        operators.traced_moments.operator,
        (weights, *operators.traced_arguments(environment)),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )

    def loss(weights):
        found = operators.moments(weights, environment)
        slopes = operators.edge_gradients(found.cos(), weights, environment)
        return (slopes**2).sum() + (found**2).sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    (wanted,) = torch.autograd.grad(loss(weights), weights)
    (got,) = torch.autograd.grad(compiled(weights), weights)
    close(got, wanted, 1e-12)


def test_tanh_is_accurate_to_3_ulp_and_knows_nan_and_infinity():
    library = kernels(SPEC, torch.float64)
    x = torch.cat(
        [
            torch.linspace(-25, 25, 200_003, dtype=torch.float64),
            torch.logspace(-300, 1, 20_001, dtype=torch.float64),
            torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0]),
        ]
    )
    found = torch.empty_like(x)
    call(library.tanh_array, len(x), x, found)
    exact = np.tanh(x[:-4].numpy().astype(np.longdouble))
    ulp = np.abs(found[:-4].numpy() - exact) / np.spacing(np.abs(exact.astype(np.float64)))
    assert ulp.max() <= 3
    assert torch.isnan(found[-4])
    assert found[-3:].tolist() == [1.0, -1.0, 0.0]


def test_jets_are_the_derivatives_of_the_network():
    stack = problem()[-1]
    s = torch.linspace(-1, 3, 9, dtype=torch.float64)[:, None].requires_grad_()
    value, slope, curvature = jets(s, stack.networks()[1])
    ones = torch.ones_like(value[:, 0])
    first = torch.autograd.grad(value[:, 3], s, ones, create_graph=True)[0][:, 0]
    second = torch.autograd.grad(first, s, ones, retain_graph=True)[0][:, 0]
    assert torch.allclose(slope[:, 3], first)
    assert torch.allclose(curvature[:, 3], second)


def test_quintic_pieces_are_exact_for_quintics():
    x = torch.linspace(0, 2, 5, dtype=torch.float64)[:, None]
    pieces = quintic_pieces(x**5 - x**3, 5 * x**4 - 3 * x**2, 20 * x**3 - 6 * x, 0.5)
    at = 0.2 ** torch.arange(6, dtype=torch.float64)
    inside = x[:-1] + 0.2
    assert torch.allclose(torch.einsum("pkm,k->pm", pieces, at), inside**5 - inside**3)


def test_a_tighter_tolerance_gives_a_finer_table_within_it():
    _, _, _, mean, deviation, stack = problem()
    weights = operators.flat_weights(list(zip(stack.weight, stack.bias, strict=True))).detach()
    sizes = []
    for tolerance in (1e-6, 1e-11):
        table = tabulate(SPEC, stack.networks(), weights, mean, deviation, tolerance=tolerance)
        assert table.error <= tolerance
        sizes.append(table.nbytes)
    assert sizes[1] > 2 * sizes[0]
    with torch.no_grad():
        stack.weight[0] *= 1e6  # steps instead of slopes
    with pytest.raises(NumericalError, match="cannot be tabulated"):
        tabulate(SPEC, stack.networks(), weights, mean, deviation, tolerance=1e-11)


@pytest.mark.parametrize("distance", [1.5, 3.0, 3.4, 3.49, 3.499])
def test_the_switching_function_has_all_its_digits_near_the_cutoff(distance):
    u = (Fraction(distance) - 1) / Fraction(5, 2)
    exact = float(1 - 10 * u**3 + 15 * u**4 - 6 * u**5)
    r = torch.tensor([distance], dtype=torch.float64)
    # The distance from the cutoff has an error of some 1e-16, which w has threefold.
    limit = 1e-15 * 3 / (3.5 - distance)
    assert reference.switch(r, 1.0, 3.5).item() == pytest.approx(exact, rel=limit)


def test_an_impossible_cutoff_is_refused():
    with pytest.raises(ConfigError, match="cutoff_smooth"):
        EnvironmentSpec(4.0, 4.0, (1,), (5,))
