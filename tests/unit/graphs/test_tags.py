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


def of_ranks(graph, function):
    """Return the function of all rows, and that of the local rows of each of two ranks."""
    x = torch.from_numpy(graph.features).double()
    owner = (np.arange(graph.num_nodes) % 5 == 0).astype(int)  # 40 and 10 nodes

    def work(ranks):
        part = GraphPart(graph, owner, ProcessGrid(2), ranks)
        with Distributed(part, None, 0) as rows:
            return function(rows.nodes(x[part.nodes]))

    return function(x), run_ranks(2, work, Traffic)


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
