"""Every grid computes the product, its transpose and the words that the plan predicts."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scitoolkit.graphs.grid import ProcessGrid, all_grids
from scitoolkit.graphs.layout import LayoutBuilder
from scitoolkit.graphs.plan import forecast
from scitoolkit.graphs.product import Product
from scitoolkit.testing.ranks import run_ranks
from scitoolkit.training.traffic import Traffic


def random_matrix(nodes, nnz, seed):
    r = np.random.default_rng(seed)
    a = sp.coo_matrix(
        (
            r.normal(size=nnz).astype(np.float32),
            (r.integers(nodes, size=nnz), r.integers(nodes, size=nnz)),
        ),
        shape=(nodes, nodes),
    ).tocsr()
    a.sum_duplicates()
    return a


def run(matrix, owner, grid, x, g, order=None):
    """Return A x, A^T g and each rank's traffic, by the ranks of a grid."""
    builder = LayoutBuilder(matrix, owner, grid, order)

    def work(ranks):
        layout = builder.build(ranks.rank)
        product = Product(layout, ranks)
        own = x[layout.nodes].clone().requires_grad_()
        y = product(own)
        forward = ranks.traffic.words
        y.backward(g[layout.nodes])
        return layout.nodes, y.detach(), own.grad, forward, ranks.traffic.words - forward

    y, gx = torch.full_like(x, torch.nan), torch.full_like(x, torch.nan)
    words = []
    for nodes, rows, gradient, forward, backward in run_ranks(grid.size, work, Traffic):
        y[nodes], gx[nodes] = rows, gradient
        words.append((forward, backward))
    return y, gx, words


@pytest.mark.parametrize("size", [1, 2, 4, 6, 8, 12])
def test_every_grid_equals_the_whole_product(size):
    nodes, width = 61, 5
    matrix = random_matrix(nodes, 400, size)
    owner = np.random.default_rng(0).integers(size, size=nodes)
    x, g = torch.randn(nodes, width), torch.randn(nodes, width)
    dense = torch.from_numpy(matrix.toarray())
    for grid in all_grids(size):
        y, gx, _ = run(matrix, owner, grid, x, g)
        assert torch.allclose(y, dense @ x, atol=1e-4), grid
        assert torch.allclose(gx, dense.T @ g, atol=1e-4), grid


def test_an_order_of_the_nodes_changes_neither_product_nor_words():
    nodes = 47
    matrix = random_matrix(nodes, 300, 3)
    r = np.random.default_rng(1)
    owner, order = r.integers(4, size=nodes), r.permutation(nodes)
    x, g = torch.randn(nodes, 3), torch.randn(nodes, 3)
    for grid in all_grids(4):
        y, gx, words = run(matrix, owner, grid, x, g, order)
        plain = run(matrix, owner, grid, x, g)
        assert torch.allclose(y, plain[0], atol=1e-4), grid
        assert torch.allclose(gx, plain[1], atol=1e-4), grid
        assert words == plain[2]


@settings(max_examples=15, deadline=None)
@given(
    nodes=st.integers(4, 40),
    nnz=st.integers(0, 120),
    seed=st.integers(0, 99),
    grid=st.sampled_from(
        [
            ProcessGrid(4),
            ProcessGrid(2, 2),
            ProcessGrid(2, 1, 2),
            ProcessGrid(1, 4),
            ProcessGrid(2, 2, 2),
        ]
    ),
    empty=st.booleans(),
    width=st.integers(1, 4),
)
def test_odd_shapes_and_ranks_without_nodes(nodes, nnz, seed, grid, empty, width):
    matrix = random_matrix(nodes, nnz, seed)
    owner = np.random.default_rng(seed).integers(grid.size - empty, size=nodes)
    x, g = torch.randn(nodes, width), torch.randn(nodes, width)
    dense = torch.from_numpy(matrix.toarray())
    y, gx, _ = run(matrix, owner, grid, x, g)
    assert torch.allclose(y, dense @ x, atol=1e-4)
    assert torch.allclose(gx, dense.T @ g, atol=1e-4)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_words_of_dense_exchanges_follow_the_formulas(size):
    """n F (p-1)/P + n F (c-1)/P a product, and 2 n F (r-1)/(r P) for the slices."""
    nodes, width = 16 * size, 4 * size
    matrix = random_matrix(nodes, 10 * nodes, 1)
    owner = np.arange(nodes) % size
    x = torch.randn(nodes, width)
    for grid in all_grids(size):
        if grid.sparse:
            continue
        _, _, words = run(matrix, owner, grid, x, x)
        own, p, c, r = nodes // size, grid.rows, grid.columns, grid.slices
        # A fibre's rows (r own) with a slice of the columns (F / r) are as many numbers as own.
        expected = own * width * (p - 1) + own * width * (c - 1)
        expected += 2 * own * width * (r - 1) // r
        assert words == [(expected, expected)] * size, grid


def test_needed_rows_are_those_that_the_pattern_names():
    nodes = 12
    matrix = sp.csr_matrix((np.ones(2, np.float32), ([0, 1], [11, 11])), shape=(nodes, nodes))
    owner = np.repeat([0, 1], 6)
    x = torch.randn(nodes, 3)
    _, _, words = run(matrix, owner, ProcessGrid(2), x, x)
    # Node 11 goes to rank 0 once, for both of its edges; its gradient comes back.
    assert words == [(3, 0), (0, 3)]


@pytest.mark.parametrize("size", [1, 2, 4, 6, 8])
def test_the_plan_predicts_words_and_messages_exactly(size):
    nodes, width = 47, 5
    matrix = random_matrix(nodes, 150, size)
    owner = np.random.default_rng(3).integers(size, size=nodes)
    x = torch.randn(nodes, width)
    for grid in all_grids(size):
        predicted = forecast(matrix, owner, grid, [width], gradients=1)
        forward = forecast(matrix, owner, grid, [width], gradients=0)
        _, _, words = run(matrix, owner, grid, x, x)
        assert predicted.words.tolist() == [a + b for a, b in words], grid
        assert forward.words.tolist() == [a for a, _ in words], grid
        assert predicted.nonzeros.sum() == matrix.nnz * grid.slices


def test_a_second_derivative_is_refused_and_not_wrong():
    matrix = random_matrix(7, 20, 0)
    builder = LayoutBuilder(matrix, np.zeros(7, np.int64), ProcessGrid(1), None)

    def work(ranks):
        x = torch.randn(7, 2, requires_grad=True)
        y = Product(builder.build(0), ranks)(x).square().sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            first.sum().backward()

    run_ranks(1, work, Traffic)
