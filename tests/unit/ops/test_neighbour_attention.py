"""The kernels of attention among neighbours at sizes that the contract's examples do not have."""

from __future__ import annotations

import pytest
import torch

from scitoolkit.core.errors import BackendError, DataError
from scitoolkit.ops.codegen.examples import Numbers
from scitoolkit.ops.neighbour_attention import (
    KeptMoments,
    NeighbourAttentionSpec,
    Neighbours,
    cpu,
    reference,
)
from scitoolkit.ops.neighbour_attention.examples import weights_of

LIMIT = {torch.float64: 1e-12, torch.float32: 1e-4}


def spec_of(widths=(25, 50, 100), width=128, **options):
    return NeighbourAttentionSpec(6.0, 0.5, 60, widths, width, width**-0.5, 1e-5, **options)


def edges_of(numbers, counts):
    counts = torch.tensor(counts)
    pointer = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    number = int(pointer[-1])
    types, pair = numbers.integers(2, len(counts)), numbers.integers(4, number)
    return Neighbours(pointer, types, pair, 2 * numbers.normal(number, 3))


def largest_deviation(spec, numbers, edges, **options):
    weights = weights_of(numbers, spec, **options)
    atoms = torch.arange(len(edges.types)).flip(0)
    cotangent = numbers.normal(len(atoms), spec.widths[-1], 4)
    arguments = (spec, weights, edges, atoms, cotangent)
    pairs = zip(
        cpu.moments_and_slopes(*arguments), reference.moments_and_slopes(*arguments), strict=True
    )
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_deepmd_kits_default_sizes_from_one_neighbour_to_more_than_sel(dtype):
    numbers = Numbers(dtype)
    edges = edges_of(numbers, [1, 2, 4, 5, 12, 13, 16, 17, 47, 64, 0])
    assert largest_deviation(spec_of(), numbers, edges) < LIMIT[dtype]


@pytest.mark.parametrize("width", [1, 5, 7])
@pytest.mark.parametrize("widths", [(3,), (5, 10, 9)])
def test_sizes_that_fill_no_tile(widths, width):
    numbers = Numbers(torch.float64)
    edges = edges_of(numbers, [3, 0, 21])
    found = largest_deviation(spec_of(widths, width, normalize=False), numbers, edges, num_layers=3)
    assert found < LIMIT[torch.float64]


def test_bits_do_not_depend_on_threads_or_on_the_other_atoms():
    numbers, spec = Numbers(torch.float64), spec_of((5, 10, 9), 6)
    edges = edges_of(numbers, [7, 13, 2, 30, 21, 9])
    kernels = KeptMoments(spec, weights_of(numbers, spec))
    cotangent = numbers.normal(6, 9, 4)
    threads, found = torch.get_num_threads(), []
    try:
        for number, groups in ((1, [[0, 1, 2, 3, 4, 5]]), (2, [[0, 1, 2, 3, 4, 5]]), (1, [[2, 0]])):
            torch.set_num_threads(number)
            slopes = torch.zeros_like(edges.vectors)
            for atoms in map(torch.tensor, groups):
                kept = kernels.of(edges, atoms)
                moments = kept.moments()
                kept.slopes(cotangent[atoms], slopes)
            found.append((moments, slopes))
    finally:
        torch.set_num_threads(threads)
    (one, slopes), (other, again), (some, few) = found
    assert torch.equal(one, other)
    assert torch.equal(slopes, again)
    assert torch.equal(some, one[[2, 0]])
    assert torch.equal(few[:7], slopes[:7])
    assert not few[7:20].any()


def test_an_embedding_without_kernels_is_refused_by_name():
    with pytest.raises(BackendError, match="first width below 3"):
        cpu.kernels(spec_of((2, 4)), torch.float64)


def test_strided_vectors_are_read_by_row_and_other_dtypes_are_refused():
    numbers, spec = Numbers(torch.float64), spec_of((5, 10, 9), 6)
    edges, weights = edges_of(numbers, [7, 13, 2]), weights_of(numbers, spec)
    kernels, atoms = KeptMoments(spec, weights), torch.arange(3)
    strided = edges.vectors.T.contiguous().T
    other = Neighbours(edges.pointer, edges.types, edges.pair, strided)
    assert torch.equal(kernels.of(other, atoms).moments(), kernels.of(edges, atoms).moments())
    single = Neighbours(edges.pointer, edges.types, edges.pair, edges.vectors.float())
    with pytest.raises(DataError, match=r"float64, got torch.float32"):
        kernels.of(single, atoms)
