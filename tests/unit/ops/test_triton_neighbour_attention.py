"""Attention among neighbours in Triton against the reference: see `test_triton_kernels.py`."""

import os

import ase
import numpy as np
import pytest
import torch

from scitoolkit.core.errors import BackendError
from scitoolkit.io.atoms_formats import from_ase
from scitoolkit.ops.codegen import triton_version
from scitoolkit.ops.codegen.examples import Numbers
from scitoolkit.ops.neighbour_attention import NeighbourAttentionSpec, segments
from scitoolkit.ops.neighbour_attention.public import OPERATION
from scitoolkit.potentials.deepmd.config import DeepPotentialConfig
from scitoolkit.potentials.graph import configuration_graph

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [
    pytest.mark.skipif(not triton_version(), reason="triton is not installed"),
    *([] if INTERPRETED else [pytest.mark.gpu]),
]
LONG = pytest.mark.slow if INTERPRETED else pytest.mark.gpu
LABELS = [example.label for example in OPERATION.iterate_examples(Numbers(torch.float64))]


def _example(number):
    return list(OPERATION.iterate_examples(Numbers(torch.float64, DEVICE)))[number]


@pytest.fixture(autouse=True)
def one_program_per_atom(monkeypatch):
    """The interpreter takes its time for every program."""
    if INTERPRETED:
        monkeypatch.setattr(segments, "PARTS", 1)


@pytest.mark.parametrize(
    "number",
    [0, 1, 4, *(pytest.param(number, marks=LONG) for number in (2, 3, 5))],
    ids=lambda number: LABELS[number],
)
def test_moments_and_slopes_are_the_references(number):
    example = _example(number)
    run = OPERATION.choose(example.spec, example.tensors[0], "triton")
    want = example.call(OPERATION.reference, *example.tensors)
    for one, other in zip(example.call(run, *example.tensors), want, strict=True):
        assert (one - other).abs().max() <= 1e-11 * other.abs().max()


def test_float32_is_as_near_as_the_reference():
    single = next(OPERATION.iterate_examples(Numbers(torch.float32, DEVICE)))
    run = OPERATION.choose(single.spec, single.tensors[0], "triton")
    example = _example(0)
    want = example.call(OPERATION.reference, *example.tensors)
    for one, other in zip(single.call(run, *single.tensors), want, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).abs().max() <= 1e-4 * other.abs().max()


@pytest.mark.parametrize("counts", [(40, 0, 17), (1,), ()])
@pytest.mark.parametrize(("smooth", "angular"), [(True, True), (False, False)])
def test_gradients_of_attention_with_several_tiles(monkeypatch, counts, smooth, angular):
    """Every input has the gradient of the dense formula, also for more edges than a tile."""
    monkeypatch.setattr(segments, "PARTS", 2)
    spec = NeighbourAttentionSpec(4.0, 1.0, 30, (4,), 5, 0.7, 1e-5, True, smooth, angular)
    numbers, edges = Numbers(torch.float64, DEVICE), sum(counts)
    inputs = [numbers.normal(edges, 5) for _ in range(3)]
    inputs += [numbers.normal(edges).sigmoid(), 0.5 * numbers.normal(edges, 3)]
    leaves = [each.requires_grad_() for each in inputs]
    pointer = torch.tensor([0, *counts], device=DEVICE).cumsum(0)
    out, _ = segments.attend(*leaves, pointer, spec)
    probe = numbers.normal(*out.shape)
    found = [out.detach(), *torch.autograd.grad(out, leaves, probe)]
    parts = [_dense(spec, *(each.split(counts) for each in leaves), k) for k in range(len(counts))]
    want = torch.cat([leaves[0][:0], *parts])
    gradients = torch.autograd.grad(want, leaves, probe, materialize_grads=True)
    for one, other in zip(found, [want.detach(), *gradients], strict=True):
        assert one.shape == other.shape
        if other.numel():
            assert (one - other).abs().max() <= 1e-12 * max(1, other.abs().max())


def _dense(spec, q, k, v, fade, directions, atom):
    pair = fade[atom][:, None] * fade[atom]
    logits = q[atom] @ k[atom].T * spec.scale
    if not spec.smooth:
        weights = logits.softmax(1)
    else:
        powers = ((logits + 20) * pair - 20).exp()
        absent = (spec.sel - len(pair)) * torch.exp(torch.tensor(-20.0, dtype=pair.dtype))
        weights = powers / (powers.sum(1, keepdim=True) + absent) * pair
    cosines = directions[atom] @ directions[atom].T
    return (weights * cosines if spec.angular else weights) @ v[atom]


def test_second_derivatives_and_wide_features_are_refused_by_name():
    example = _example(0)
    vectors = example.tensors[0].clone().requires_grad_()
    run = OPERATION.choose(example.spec, vectors, "triton")
    out, _ = example.call(run, vectors, example.tensors[1])
    with pytest.raises(BackendError, match="no derivative of neighbour_attention"):
        out.sum().backward()
    wide = NeighbourAttentionSpec(4.0, 1.0, 30, (4, 130), 5, 0.7, 1e-5)
    with pytest.raises(BackendError, match="130 columns"):
        OPERATION.choose(wide, vectors, "triton")


@pytest.mark.parametrize("type_input", ["concat", pytest.param("strip", marks=LONG)])
def test_a_potential_has_the_energies_and_forces_of_the_reference(monkeypatch, type_input):
    attention = {
        "name": "se_atten",
        "cutoff": 3.5,
        "cutoff_smooth": 1.0,
        "sel": 40,
        "embedding": [4, 8],
        "axis_neurons": 3,
        "attention_width": 6,
        "attention_layers": 2,
        "type_width": 4,
        "type_input": type_input,
    }
    settings = {"descriptors": [attention], "fitting": [8]}
    model = DeepPotentialConfig.model_validate(settings).build(["O", "H"]).eval().to(DEVICE)
    rng = np.random.default_rng(0)
    atoms = ase.Atoms("OHH" * 3, rng.uniform(0, 5, (9, 3)), cell=[5] * 3, pbc=True)
    graph = configuration_graph(from_ase(atoms), ["O", "H"], 3.5)
    graph = {key: value.to(DEVICE) for key, value in graph.items()}
    model.descriptors[0].use_kernels = False
    want = model(graph)
    model.descriptors[0].use_kernels = not INTERPRETED  # on a CPU, chunks would run instead
    if INTERPRETED:
        monkeypatch.setattr(type(model.descriptors[0]), "_by_segments", lambda *_: True)
    for key, value in model(graph).items():
        torch.testing.assert_close(value, want[key], rtol=1e-9, atol=1e-10)
