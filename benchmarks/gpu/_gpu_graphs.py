"""Rung of `make gpu`: an epoch of GCN and of GAT on a whole graph against torch-geometric.

Theirs run from an edge list, from CSR (GCN), and compiled; the fastest counts. Losses and gradients
are compared with theirs before any time is told.
"""

from __future__ import annotations

import copy
import sys
import warnings

import numpy as np
import torch
from _gpu_timing import DEVICE, SMALL, alternate, attempt, tell
from torch.nn.functional import cross_entropy

SCALE, EDGES, WIDTHS = (12, 50_000, (128, 64, 16)) if SMALL else (17, 2_000_000, (128, 64, 16))


class Plain(torch.nn.Module):
    """The same two layers of torch-geometric."""

    def __init__(self, **how) -> None:
        super().__init__()
        from torch_geometric.nn import GCNConv

        self.first = GCNConv(WIDTHS[0], WIDTHS[1], **how)
        self.second = GCNConv(WIDTHS[1], WIDTHS[2], **how)

    def forward(self, x, edges):
        return self.second(self.first(x, edges).relu(), edges)


def main(kind: str) -> None:
    from _graph_data import rmat

    from scitoolkit.graphs.grid import ProcessGrid
    from scitoolkit.graphs.models import GAT
    from scitoolkit.graphs.part import GraphPart
    from scitoolkit.graphs.task import NodeClassification
    from scitoolkit.training.ranks.communicator import SingleProcess

    graph = rmat(SCALE, EDGES, WIDTHS[0], WIDTHS[2])
    x, label = (torch.from_numpy(a).to(DEVICE) for a in (graph.features, graph.labels))
    index = torch.from_numpy(np.stack([graph.source, graph.target])).to(DEVICE)
    torch.manual_seed(0)
    theirs = Plain(cached=True) if kind == "gcn" else GAT(dropout=0.0).build(WIDTHS[0], WIDTHS[2])
    part = GraphPart(graph, np.zeros(graph.num_nodes, np.int64), ProcessGrid(1), SingleProcess())
    ours = NodeClassification(copy.deepcopy(theirs), part).model.to(DEVICE)
    own = part.nodes.to(DEVICE)
    calls = {"ours": (ours, None, x[own], label[own]), "edge list": (theirs.to(DEVICE), index)}
    if kind == "gcn":
        calls["CSR"] = attempt("CSR", lambda: (_by_csr(theirs, graph), _csr(graph)))
    compiled = copy.deepcopy(theirs)
    calls["compiled"] = (torch.compile(compiled), index)
    epochs = {
        name: _epoch(given[0], given[1], *(given[2:] or (x, label)))
        for name, given in calls.items()
        if given is not None
    }
    ready = {n: e for n, e in epochs.items() if attempt(n, lambda e=e: (e(), True)) is not None}
    tell(nodes=graph.num_nodes, edges=len(graph.source))
    if "ours" not in ready:
        return
    error = max(
        float((a - b).abs().max() / b.abs().max())
        for a, b in zip(_gradients(ours), _gradients(theirs), strict=True)
    )
    tell(first_gradient_error=error)
    if not error <= 1e-3:
        tell(missing={"agreement": f"gradients differ by {error:.1e}"})
        raise SystemExit(1)
    spent = alternate(ready, 3 if SMALL else 20)
    tell(milliseconds={name: 1e3 * value for name, value in spent.items()})
    rivals = [value for name, value in spent.items() if name != "ours"]
    if rivals:
        tell(speedup=min(rivals) / spent["ours"])


def _epoch(model, edges, x, label):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)  # weights stay: gradients comparable

    def epoch():
        optimizer.zero_grad()
        cross_entropy(model(x, edges), label).backward()
        optimizer.step()

    return epoch


def _gradients(model) -> list[torch.Tensor]:
    return [p.grad for p in model.parameters()]


def _csr(graph):
    from scitoolkit.graphs.weighting import weighted_adjacency

    a = weighted_adjacency(graph, "gcn")
    arrays = (a.indptr.astype(np.int64), a.indices.astype(np.int64), a.data)
    return torch.sparse_csr_tensor(*map(torch.from_numpy, arrays), a.shape).to(DEVICE)


def _by_csr(theirs, graph):
    made = Plain(normalize=False)
    made.load_state_dict(theirs.state_dict())
    return made.to(DEVICE)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main(sys.argv[1])
