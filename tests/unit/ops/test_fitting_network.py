"""The fitting network's kernel against autograd through the plain network."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.ops.environment_matrix.reference import embedding
from scitoolkit.ops.fitting_network import (
    FittingNetwork,
    FittingSpec,
    available,
    operators,
    reference,
)
from scitoolkit.ops.fitting_network.by_type import TypeTiles, outputs_by_type

LIMIT = {torch.float64: 1e-13, torch.float32: 2e-5}


def layers_of(spec, dtype, steps=True):
    generator = torch.Generator().manual_seed(3)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    sizes = [spec.basis * spec.axis, *spec.widths]
    layers = [
        (normal(a, b) * (a + b) ** -0.5, normal(b), normal(b) if steps and a == b else None)
        for a, b in pairwise(sizes)
    ]
    return [*layers, (normal(sizes[-1], 1) * 0.3, normal(1), None)]


def expected(spec, layers, moments):
    moments = moments.clone().requires_grad_()
    descriptor = torch.bmm(moments, moments[:, : spec.axis].transpose(1, 2)).flatten(1)
    weight, bias, _ = layers[-1]
    energy = (embedding(descriptor, layers[:-1]) @ weight).squeeze(1) + bias
    return energy.detach(), torch.autograd.grad(energy.sum(), moments)[0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("atoms", [0, 1, 7, 25, 150, 331])
@pytest.mark.parametrize(
    "spec",
    [
        FittingSpec(100, 16, (240, 240, 240)),
        FittingSpec(9, 4, (5,)),
        FittingSpec(11, 11, (13, 26, 7, 7)),
        FittingSpec(6, 1, (16, 16)),
    ],
)
def test_equals_autograd(spec, atoms, dtype):
    layers = layers_of(spec, dtype)
    moments = 0.3 * torch.randn(atoms, spec.basis, 4, dtype=torch.float64).to(dtype)
    for found, wanted in zip(
        FittingNetwork(spec, layers)(moments), expected(spec, layers, moments), strict=True
    ):
        scale = wanted.abs().max() if atoms else 1.0
        assert found.shape == wanted.shape
        assert ((found - wanted).abs() <= LIMIT[dtype] * scale).all()


def test_bits_do_not_depend_on_threads_or_on_what_was_evaluated_before():
    spec = FittingSpec(20, 5, (12, 9))
    network = FittingNetwork(spec, layers_of(spec, torch.float64))
    moments = torch.randn(500, 20, 4, dtype=torch.float64)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        first = network(moments)
        network(torch.full_like(moments, torch.nan))
        torch.set_num_threads(2)
        again = network(moments)
    finally:
        torch.set_num_threads(threads)
    assert all(map(torch.equal, first, again))


def test_refuses_other_shapes():
    spec = FittingSpec(6, 2, (4,))
    layers = layers_of(spec, torch.float64)
    with pytest.raises(DataError, match="first layer"):
        FittingNetwork(FittingSpec(6, 3, (4,)), layers)
    two = FittingSpec(6, 2, (4, 5))
    with pytest.raises(DataError, match="2 layers, expected 3"):
        FittingNetwork(two, layers)
    with pytest.raises(DataError, match=r"layer 2 is \(4, 1\), expected \(4, 5\)"):
        FittingNetwork(two, [*layers, layers[-1]])
    weight, bias, step = layers[0]
    with pytest.raises(DataError, match=r"the bias of the first layer is \(3,\), expected \(4,\)"):
        FittingNetwork(spec, [(weight, bias[:3], step), layers[1]])
    with pytest.raises(DataError, match=r"torch.float32 and torch.float64 in the first layer"):
        FittingNetwork(spec, [(weight, bias.float(), step), layers[1]])
    with pytest.raises(DataError, match="moments"):
        FittingNetwork(spec, layers)(torch.zeros(3, 5, 4, dtype=torch.float64))


def test_a_shortcut_past_the_descriptor_is_left_to_the_reference():
    assert not available(FittingSpec(6, 2, (12,)), torch.zeros(1, dtype=torch.float64))
    assert not available(FittingSpec(6, 2, (24,)), torch.zeros(1, dtype=torch.float64))


@pytest.mark.parametrize("counts", [(70, 1, 0), (0, 5, 40), (3, 0, 0)])
def test_networks_by_type_are_the_loop_over_types_in_all_derivatives(counts):
    """The form for devices on which no size may depend on the numbers of atoms of each type."""
    generator = torch.manual_seed(0)
    types = torch.cat([torch.full((n,), kind) for kind, n in enumerate(counts)])
    types = types[torch.randperm(len(types), generator=generator)]

    def normal(*shape):
        numbers = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return numbers.requires_grad_()

    sizes = (5, 8, 8, 16, 2)
    layers = [
        (normal(3, a, b), normal(3, b), normal(3, b) if a == b else None)
        for a, b in pairwise(sizes)
    ]
    inputs, leaves = normal(len(types), 5), [p for layer in layers for p in layer if p is not None]
    want = inputs.new_zeros(len(types), 2)
    for kind in range(3):
        chosen = (types == kind).nonzero().squeeze(1)
        *hidden, last = [[p if p is None else p[kind] for p in layer] for layer in layers]
        out = embedding(inputs[chosen], hidden) @ last[0] + last[1]
        want = want.index_copy(0, chosen, out)
    found = outputs_by_type(layers, inputs, types)
    firsts, seconds = [], []
    for out in (found, want):
        torch.testing.assert_close(out, want, rtol=1e-12, atol=1e-12)
        (first,) = torch.autograd.grad(out.sin().sum(), inputs, create_graph=True)
        firsts.append(first)
        seconds.append(torch.autograd.grad(first.square().sum(), [*leaves, inputs]))
    torch.testing.assert_close(*firsts, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(*seconds, rtol=1e-11, atol=1e-11)


def test_tiles_cover_every_atom_once_and_no_tile_has_two_types():
    generator = torch.manual_seed(0)
    for atoms, kinds in ((0, 2), (1, 1), (15, 4), (16, 1), (1000, 3), (200, 90)):
        types = torch.randint(0, kinds, (atoms,), generator=generator)
        tiles = TypeTiles.build(types, kinds, torch.float32)
        assert len(set(tiles.place.tolist())) == atoms
        of_atom = tiles.of_type[tiles.place // tiles.size]
        assert torch.equal(of_atom, torch.nn.functional.one_hot(types, kinds).float())


@pytest.mark.parametrize("widths", [(20, 20), (12, 24, 24, 7), (40,), (80, 5)])
@pytest.mark.parametrize("dtype", LIMIT, ids=str)
def test_the_form_for_gpus_is_autograd_through_the_plain_network(dtype, widths):
    """Shortcuts around the first layer too, which the C kernel does not have."""
    spec = FittingSpec(10, 4, widths)
    layers = layers_of(spec, dtype)
    moments = torch.randn(13, 10, 4, generator=torch.manual_seed(0), dtype=torch.float64).to(dtype)
    for rows in (moments, moments[:0]):
        found = operators.network_by_products(spec, layers)(rows)
        exact = [[p if p is None else p.double() for p in layer] for layer in layers]
        for one, other in zip(found, reference.network(spec, exact)(rows.double()), strict=True):
            assert one.shape == other.shape
            if len(rows):
                assert (one - other).abs().max() <= LIMIT[dtype] * other.abs().max()
