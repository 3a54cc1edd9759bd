"""Every form of a call gives the same result on unequal parts and on all rows."""

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.interception import Distributed
from scitoolkit.graphs.local_rows import Unsupported
from scitoolkit.graphs.part import GraphPart
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic


def of_ranks(graph, function, owner=None, seed=None):
    """Return the function of all rows, and that of the local rows of each of two ranks."""
    x = torch.from_numpy(graph.features).double()
    if owner is None:
        owner = (np.arange(graph.num_nodes) % 5 == 0).astype(int)  # 40 and 10 nodes

    def work(ranks):
        part = GraphPart(graph, owner, ProcessGrid(2), ranks)
        with Distributed(part, seed, 0) as rows:
            return function(rows.nodes(x[part.nodes]))

    return function(x.clone()), run_ranks(2, work, Traffic)


def changed(h, change):
    """Return a copy after a function that changes it in place."""
    h = h.clone()
    change(h)
    return h


def of_own_index(h, **scale):
    index = torch.arange(h.size(0))
    return torch.zeros_like(h).index_add(0, index, h, **scale).sum(0)


CALLS = {
    "unbind(-1)": lambda h: h.unbind(-1)[0].mean(),
    "unbind(dim=-1)": lambda h: h.t().unbind(dim=-2)[2].mean(),
    "unsqueeze(dim)": lambda h: h.unsqueeze(dim=-1).mean(0),
    "unsqueeze before": lambda h: h.unsqueeze(dim=0).mean(1),
    "squeeze(dim)": lambda h: h[None].squeeze(dim=0).mean(0),
    "squeeze of several": lambda h: h[None].squeeze((0, 2)).mean(0),
    "permute(dims)": lambda h: h.permute(dims=(1, 0)).mean(1),
    "movedim(source)": lambda h: h.movedim(source=0, destination=-1).mean(1),
    "moveaxis": lambda h: h.moveaxis(0, 1).mean(1),
    "transpose(dim0)": lambda h: h.transpose(dim0=0, dim1=1).mean(1),
    "swapaxes(axis0)": lambda h: h.swapaxes(axis0=-1, axis1=0).mean(1),
    "swapdims": lambda h: h.swapdims(0, 1).mean(1),
    "adjoint": lambda h: h.adjoint().mean(1),
    "select(dim)": lambda h: h.select(dim=-1, index=2).mean(),
    "flip(dims)": lambda h: h.flip(dims=(-1,)).mean(0),
    "cat(axis)": lambda h: torch.cat([h, 2 * h], axis=1).mean(0),
    "stack(tensors)": lambda h: torch.stack(tensors=[h, h], dim=-3).mean(1),
    "size(dim)": lambda h: h.sum(0) / h.size(dim=-2),
    "sum(axis)": lambda h: h.sum(axis=-2),
    "sum(input)": lambda h: torch.sum(input=h, dim=0, keepdims=True),
    "mean of features": lambda h: h.mean(axis=1, keepdims=True).sum(0),
    "var(unbiased)": lambda h: h.var(dim=0, unbiased=False),
    "var(0, True)": lambda h: h.var(0, True),
    "std(keepdim)": lambda h: h.std(dim=0, keepdim=True),
    "max(axis)": lambda h: h.max(axis=0).values,
    "norm(axis)": lambda h: torch.linalg.norm(h, axis=0),
    "quantile": lambda h: torch.quantile(h, torch.tensor([0.25, 0.5]).double(), 0),
    "quantile(q)": lambda h: torch.quantile(h, q=0.25, dim=-2),
    "softmax(axis)": lambda h: (h * h.softmax(axis=0)).sum(0),
    "sort(axis)": lambda h: h.sort(axis=0).values.cumsum(0).mean(0),
    "stable sort": lambda h: torch.sort(input=h, stable=True, dim=-2).values.cumsum(0).mean(0),
    "topk(k)": lambda h: h.topk(k=3, dim=-2).values,
    "matmul(input)": lambda h: torch.matmul(input=h.t(), other=h),
    "mm(mat2)": lambda h: torch.mm(h.t(), mat2=h),
    "mv(vec)": lambda h: torch.mv(h.t(), vec=h[:, 0]),
    "addmm(mat1)": lambda h: torch.addmm(torch.eye(6).double(), mat1=h.t(), mat2=h),
    "einsum without an arrow": lambda h: torch.einsum("ji", h).mean(1),
    "einsum of two without an arrow": lambda h: torch.einsum("ni,nj", h, h),
    "einsum without letters": lambda h: torch.einsum("ij->", h),
    "einsum with dots": lambda h: torch.einsum("n...,n...->...", h, h),
    "einsum with dots in front": lambda h: torch.einsum("...i,ij", h, torch.ones(6, 2).to(h)).mean(
        0
    ),
    "einsum of lists": lambda h: torch.einsum(h, [0, 1], h, [0, 2], [1, 2]),
    "batch_norm of channels": lambda h: (
        nn.functional.batch_norm(h.t()[..., None], None, None, training=True)
        .abs()
        .mean((0, 2))
        .max()
    ),
    "transpose_": lambda h: changed(h, lambda c: c.transpose_(0, 1)).mean(1),
    "transpose_(dim0)": lambda h: changed(h, lambda c: c.transpose_(dim1=0, dim0=1)).mean(1),
    "t_": lambda h: h.clone().t_().mean(1),
    "swapaxes_": lambda h: changed(h, lambda c: c.swapaxes_(0, 1)).mean(1),
    "unsqueeze_": lambda h: changed(h, lambda c: c.unsqueeze_(0)).mean(1),
    "squeeze_": lambda h: changed(h[None], lambda c: c.squeeze_(0)).mean(0),
    "index_add(alpha)": lambda h: of_own_index(h, alpha=3.0),
    "pooled index_add(alpha)": lambda h: (
        torch.zeros(2, 6).double().index_add(0, (h[:, 0] > 0).long(), h, alpha=3.0)
    ),
    "x + size": lambda h: (h + h.size(0)).mean(0),
    "x - shape": lambda h: torch.sub(h, h.shape[0]).mean(0),
    "x * (size + 1)": lambda h: (h * (h.size(0) + 1)).sum(0),
    "x * -size": lambda h: (h * -h.size(0)).sum(0),
    "x * sum of sizes": lambda h: (h * sum(h.shape)).sum(0),
    "x ** size": lambda h: (h.tanh() ** h.size(0)).sum(0),
    "x % size": lambda h: (100 * h % h.size(0)).sum(0),
    "x < size": lambda h: (20 * h.abs() < h.size(0)).sum(0),
    "x * numel": lambda h: (h * h.numel()).sum(0),
    "x * divmod": lambda h: (h * divmod(h.size(0), 7)[1]).sum(0),
    "add(alpha=size)": lambda h: torch.add(h, h, alpha=h.size(0)).sum(0),
    "clamp(max=size)": lambda h: (20 * h.abs()).clamp(max=h.size(0)).sum(0),
    "where(size)": lambda h: torch.where(h > 0, h.size(0), h).sum(0),
    "masked_fill(size)": lambda h: h.masked_fill(h > 0, h.size(0)).sum(0),
    "full_like(size)": lambda h: torch.full_like(h, h.size(0)).sum(0),
    "x *= size": lambda h: changed(h, lambda c: c.mul_(h.size(0))).sum(0),
    "unfold(dimension)": lambda h: h.t().unfold(dimension=1, size=2, step=1).prod(2).sum(1),
}


@pytest.mark.parametrize("name", CALLS)
def test_positions_keywords_and_negative_dimensions_are_one_call(graph, name):
    expected, ours = of_ranks(graph, CALLS[name])
    for out in ours:
        assert out.shape == expected.shape
        assert torch.allclose(out, expected, rtol=1e-12, atol=1e-12)


def test_batch_norm_with_weights_of_nodes_is_refused(graph):
    with pytest.raises(Unsupported, match="batch_norm with weights or averages for each node"):
        of_ranks(
            graph,
            lambda h: nn.functional.batch_norm(
                h.t(), None, None, weight=torch.ones(h.shape[0]).double(), training=True
            ),
        )


ONE_ROW = {
    "squeeze": lambda h: h[:, None].squeeze().mean(0),
    "squeeze(0)": lambda h: h.squeeze(0).mean(0),
    "squeeze of several": lambda h: h[:, None].squeeze((0, 1)).mean(0),
    "squeeze_": lambda h: changed(h[:, :1], lambda c: c.squeeze_()).mean(),
    "squeeze of the only row": lambda h: h[h[:, 0] == h[:, 0].max()].squeeze(0),
    "reshape before": lambda h: h.reshape(1, -1, 6).mean(1),
    "view after": lambda h: h.view(h.size(0), 1, 6).mean(0),
}


@pytest.mark.parametrize("name", ONE_ROW)
def test_a_process_with_one_row_keeps_its_dimension(graph, name):
    owner = np.ones(graph.num_nodes, int)
    owner[7] = 0
    expected, ours = of_ranks(graph, ONE_ROW[name], owner)
    for out in ours:
        assert out.shape == expected.shape
        assert torch.allclose(out, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "drop",
    [
        lambda h: nn.functional.dropout(h, 0.5, True, inplace=True),
        lambda h: nn.functional.dropout(h, 0.5, True, True),
        lambda h: torch.dropout_(h, 0.5, True),
        lambda h: nn.functional.alpha_dropout(h, 0.5, True, inplace=True),
    ],
)
def test_dropout_in_place_drops(graph, drop):
    _, ours = of_ranks(graph, lambda h: changed(h, drop) - h, seed=3)
    for difference in ours:
        assert 0.3 < float((difference != 0).double().mean()) <= 1


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (lambda h: torch.add(h, h, out=torch.empty_like(h)), "add with out="),
        (lambda h: setattr(h, "data", h.t().clone()), "data of rows"),
        (lambda h: h.clone().resize_(3, 2), "resize_ in place"),
    ],
)
def test_other_rows_are_not_written_into_a_tensor(graph, write, why):
    with pytest.raises(Unsupported, match=why):
        of_ranks(graph, lambda h: write(h.clone()))
