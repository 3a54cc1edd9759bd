"""The environment matrix in Triton against the reference: see `test_triton_kernels.py`."""

import os
from itertools import pairwise

import pytest
import torch

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import triton_version
from scitoolkit.ops.environment_matrix import (
    EnvironmentSpec,
    gpu_environment,
    operators,
    public,
    reference,
)
from scitoolkit.ops.environment_matrix.environment import Environment
from scitoolkit.ops.environment_matrix.gpu_environment import GpuEnvironment, GpuTable
from scitoolkit.ops.environment_matrix.table import tabulate
from scitoolkit.ops.environment_matrix.triton_source import Padding

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
LONG = pytest.mark.slow if INTERPRETED else pytest.mark.gpu
pytestmark = [
    pytest.mark.skipif(not triton_version(), reason="triton is not installed"),
    *([] if INTERPRETED else [pytest.mark.gpu]),
]
# Widths with and without shortcuts, and whether networks depend on the neighbour alone.
CASES = {
    "doubled twice": ((5, 10, 20), True),
    "pairs of types": ((5, 10), False),
    "one layer": ((25,), True),
    "equal and other widths": ((4, 4, 9, 18, 18), True),
}


def _problem(widths, one_sided, *, centres=3):
    """Edges in float64, some beyond the cutoff or near zero; a centre has none of type 0."""
    spec = EnvironmentSpec(4.0, 1.0, (12, 24), widths, one_sided)
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    counts = torch.randint(0, 12, (centres, 2), generator=generator)
    counts[1, 0], counts[0, 1] = 0, 37  # more than the edges of a tile
    segments = torch.cat([counts.new_zeros(1), counts.flatten().cumsum(0)])
    edges = int(segments[-1])
    directions = normal(edges, 3)
    lengths = 0.7 + 3.6 * torch.rand(edges, 1, generator=generator, dtype=torch.float64)
    vectors = lengths * directions / directions.norm(dim=1, keepdim=True)
    mean, deviation = 0.1 * normal(2, 4), 0.2 + 0.1 * normal(2, 4).abs()
    layers = [
        (normal(spec.num_networks, a, b) * (a + b) ** -0.5, normal(spec.num_networks, b))
        for a, b in pairwise((1, *widths))
    ]
    types = torch.tensor([0, 1, 1, 0, 1, 0])[: len(counts)]
    tensors = (segments, types, vectors, mean, deviation, operators.flat_weights(layers))
    return spec, *(each.to(DEVICE) for each in tensors)


def _exact(spec, segments, types, vectors, mean, deviation, weights, probes):
    """Moments, slopes, the derivative along a tangent, and both gradients of the weights."""
    vectors, weights = vectors.clone().requires_grad_(), weights.clone().requires_grad_()
    first, second, tangent = probes
    first = first.clone().requires_grad_()
    graph = (vectors, segments, types, mean, deviation)
    out = reference.present_moments(spec, *graph, weights)
    (slopes,) = torch.autograd.grad(out, vectors, first, create_graph=True)
    jvp, by_slopes = torch.autograd.grad((slopes * tangent).sum(), (first, weights))
    out = reference.present_moments(spec, *graph, weights)
    (by_moments,) = torch.autograd.grad(out, weights, second)
    return [each.detach() for each in (out, slopes, jvp, by_moments, by_moments + by_slopes)]


def _fused(spec, segments, types, vectors, mean, deviation, weights, probes):
    order = torch.arange(len(types), device=DEVICE).flip(0)
    environment = GpuEnvironment(
        spec, order, segments, types, vectors, mean, deviation, training=True
    )
    weights = weights.clone().requires_grad_()
    first, second, tangent = (probes[0].flip(0).requires_grad_(), probes[1].flip(0), probes[2])
    out = operators.moments(weights, environment)
    (alone,) = torch.autograd.grad(out, weights, second, retain_graph=True)
    slopes = operators.edge_gradients(first, weights, environment)
    (jvp,) = torch.autograd.grad((slopes * tangent).sum(), first)
    (both,) = torch.autograd.grad(out, weights, second)
    return [each.detach() for each in (out.flip(0), slopes, jvp.flip(0), alone, both)]


def _check(got, want, tolerance):
    for one, other in zip(got, want, strict=True):
        assert one.isfinite().all()
        assert (one - other).abs().max() <= tolerance * other.abs().max()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=LONG) if "other" in name else name for name in CASES]
)
def test_moments_and_all_derivatives_are_the_references(name):
    spec, *tensors = _problem(*CASES[name])
    centres, edges = len(tensors[1]), len(tensors[2])
    generator = torch.Generator().manual_seed(1)
    shapes = ((centres, spec.widths[-1], 4),) * 2 + ((edges, 3),)
    probes = [torch.randn(s, generator=generator, dtype=torch.float64).to(DEVICE) for s in shapes]
    want = _exact(spec, *tensors, probes)
    _check(_fused(spec, *tensors, probes), want, 1e-12)
    single = [each.float() if each.is_floating_point() else each for each in tensors]
    _check(_fused(spec, *single, [each.float() for each in probes]), want, 2e-5)


def test_a_gpu_of_small_shared_memory_has_the_weights_gradients_of_torch(monkeypatch):
    spec, *tensors = _problem((5, 10), True)
    edges, rows = len(tensors[2]), (len(tensors[1]), 10, 4)
    probes = [torch.ones(s, dtype=torch.float64, device=DEVICE) for s in (rows, rows, (edges, 3))]
    want = _fused(spec, *tensors, probes)
    monkeypatch.setattr(gpu_environment, "_gradients_fit", lambda *_: False)
    _check(_fused(spec, *tensors, probes), want, 1e-12)


@pytest.mark.parametrize("one_sided", [pytest.param(True, marks=LONG), False])
def test_tables_and_the_network_beyond_their_end(one_sided):
    spec, segments, types, vectors, mean, deviation, weights = _problem((5, 10), one_sided)
    vectors = vectors.clone()
    vectors[::3] *= 0.3  # below the shortest distance of the table
    layers = [reference._layers(spec, each) for each in weights]
    atoms = torch.arange(len(types), device=DEVICE)
    leaf = vectors.clone().requires_grad_()
    want = reference.present_moments(spec, leaf, segments, types, mean, deviation, weights)
    probe = torch.cos(torch.arange(want.numel(), dtype=torch.float64, device=DEVICE))
    (slopes,) = torch.autograd.grad(want, leaf, probe.view_as(want))
    for dtype, tolerance in ((torch.float64, 1e-8), (torch.float32, 2e-5)):
        constants = (weights.to(dtype), mean.to(dtype), deviation.to(dtype))
        table = GpuTable(**vars(tabulate(spec, layers, *constants, shortest=0.6)))
        graph = (atoms, segments, types, vectors.to(dtype))
        out = torch.full_like(graph[3], torch.nan)
        table.edge_gradients(*graph, probe.view_as(want).to(dtype), out)
        _check([table.moments(*graph), out], [want.detach(), slopes], tolerance)


def test_no_atoms_no_edges_and_nan():
    spec, segments, types, vectors, mean, deviation, weights = _problem((5, 10), True)
    weights = weights.requires_grad_()
    common = (mean, deviation, True)
    none = types[:0]
    empty = GpuEnvironment(spec, none, segments[:1], none, vectors[:0], *common)
    out = operators.moments(weights, empty)
    (grad,) = torch.autograd.grad(out.sum(), weights)
    assert out.shape == (0, 10, 4)
    assert not grad.any()
    atoms = torch.arange(2, device=DEVICE)
    alone = GpuEnvironment(spec, atoms, 0 * segments[:5], types[:2], vectors[:0], *common)
    assert not operators.moments(weights, alone).any()
    vectors = vectors.clone()
    vectors[0] = torch.nan
    atoms = torch.arange(len(types), device=DEVICE)
    broken = GpuEnvironment(spec, atoms, segments, types, vectors, *common)
    assert operators.moments(weights, broken)[0].isnan().all()


def test_what_has_no_kernel_is_refused_by_name():
    like = torch.zeros(1, device=DEVICE)
    for options, words in (
        ({"widths": (8,), "radial": True}, "radial descriptor"),
        ({"widths": (128, 128)}, "as wide as 128 x 128"),
    ):
        spec = EnvironmentSpec(4.0, 1.0, (12,), **options)
        with pytest.raises(BackendError, match=words):
            public.OPERATION.choose(spec, like, "triton")


def test_padding_has_a_place_for_every_parameter():
    for widths in ((25, 50, 100), (3,), (7, 7, 14, 5)):
        padding = Padding.of(widths)
        count = sum(a * b + b for a, b in pairwise((1, *widths)))
        assert set(padding.parameters) == set(range(count + 1))
        for width, functions in zip(widths, padding.functions, strict=True):
            assert sorted(m for m in functions if m >= 0) == list(range(width))


@pytest.mark.skipif(INTERPRETED, reason="the registered operators on a CPU run generated C")
def test_registered_operators_give_the_bits_of_the_eager_path():
    spec, *tensors = _problem((5, 10, 20), True)
    atoms = torch.arange(len(tensors[1]), device=DEVICE)
    environment = Environment(spec, atoms, *tensors[:5], training=True)
    weights = tensors[5].requires_grad_()
    compiled = torch.compile(operators.gpu_moments, backend="aot_eager", fullgraph=True)
    want, got = (run(weights, environment) for run in (operators.gpu_moments, compiled))
    assert torch.equal(got, want)
    for one, other in zip(
        *(torch.autograd.grad(each.sin().sum(), weights) for each in (got, want)), strict=True
    ):
        assert torch.equal(one, other)
