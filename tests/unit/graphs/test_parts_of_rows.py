"""Rows between constants, and numbers that Python computes from the number of rows."""

import copy
import math
import re
import statistics

import numpy as np
import pytest
import torch

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.proof import attach, prove
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic
from tests.helpers.graph_parts import OnSections, to_prove

pyg = pytest.importorskip("torch_geometric.nn", exc_type=ImportError)

SECTIONS = {
    "first rows": lambda h, e: h - h[:64].mean(0),
    "ghost batches": lambda h, e: torch.cat(
        [h[i : i + 64] - h[i : i + 64].mean(0) for i in range(0, h.size(0), 64)]
    ),
    "last rows": lambda h, e: h - h[-64:].sum(0),
    "product": lambda h, e: h @ (h[:64].t() @ h[:64]),
    "maximum": lambda h, e: h - h[:64].max(0).values,
    "pooled": lambda h, e: h + pyg.global_add_pool(h[:64], None),
    "pieces of the edges": lambda h, e: sum(
        torch.zeros_like(h).index_add(0, c[1], h[c[0]]) for c in e.split(500, 1)
    ),
    "slices of the edges": lambda h, e: sum(
        torch.zeros_like(h).index_add(0, e[1, i : i + 500], h[e[0, i : i + 500]])
        for i in range(0, e.size(1), 500)
    ),
}


@pytest.mark.parametrize("name", SECTIONS)
def test_results_of_rows_between_constants_are_refused_though_the_check_has_fewer(graph, name):
    """All rows of the small graph are below the constant, so that no comparison finds it."""
    model = OnSections(SECTIONS[name])
    with pytest.raises(ConfigError, match="joined with those of other ranks"):
        prove(model, to_prove(graph, 2))


def test_rows_between_constants_may_be_computed_one_by_one(graph):
    model = OnSections(
        lambda h, e: torch.cat([(h[i : i + 5] ** 2).tanh() for i in range(0, h.size(0), 5)])
    )
    assert prove(model, to_prove(graph, 2)).error < 1e-10


COUNTS = {
    "size": lambda h, e: h.size(0),
    "product with a real number": lambda h, e: 0.5 * h.size(0) * 2,
    "share": lambda h, e: 10 * int(0.1 * h.shape[0]),
    "inverse": lambda h, e: 1 / (1.0 / h.size(0)),
    "math.log": lambda h, e: math.exp(math.log(h.size(0))),
    "math.log2": lambda h, e: 2 ** math.log2(h.size(0)),
    "math.isqrt": lambda h, e: math.isqrt(h.size(0)) ** 2,
    "math.ceil": lambda h, e: math.ceil(h.size(0)),
    "range": lambda h, e: len(range(h.size(0))),
    "bits": lambda h, e: h.size(0) >> 0 & 0xFFFF,
    "text": lambda h, e: int(f"{h.size(0)}"),
    "statistics": lambda h, e: statistics.mean([h.size(0), h.size(0)]),
    "shape.numel": lambda h, e: h.shape.numel() / 6,
    "full": lambda h, e: torch.full((1,), h.size(0), dtype=h.dtype).item(),
    "new_full": lambda h, e: h.new_full((), fill_value=h.size(0)).item(),
    "tensor": lambda h, e: torch.tensor(h.size(0), dtype=h.dtype).item(),
    "linspace": lambda h, e: torch.linspace(1, h.size(0), 2)[-1].item(),
    "topk": lambda h, e: h[:, 0].topk(h.size(0)).values.size(0),
    "zeros": lambda h, e: torch.zeros(h.size(0)).numel(),
    "edges": lambda h, e: math.exp(math.log(e.size(1))) / 10,
    "difference": lambda h, e: 4 + (h.size(0) - 2 - 2),
}


LOCAL_COUNTS = {
    "len(x)": lambda h, e: torch.zeros(len(h)).numel(),
    "int(x.size(0))": lambda h, e: int(h.size(0)),
    "full of": lambda h, e: torch.full((1,), h.size(0)).item(),
    "add of": lambda h, e: (torch.zeros(1, dtype=torch.long) + h.size(0)).item(),
    "the largest number in edge_index": lambda h, e: int(e.max()) + 1,
    "a list of the rows of x": lambda h, e: sum(1 for _ in h),
    "stride": lambda h, e: h.t().contiguous().stride(0),
    "bincount without minlength": lambda h, e: e[1].bincount().numel(),
    "a size of rows": lambda h, e: 2 * h[:160].size(0) - 110,
}


def on_a_graph_that_is_not_compared(model, graph, monkeypatch):
    """Return the output on 200 nodes of two ranks, 41 of which are in the check, and the plain."""
    monkeypatch.setattr("scitoolkit.graphs.proof_check.REAL_GRAPH", 10)
    x, owner = torch.from_numpy(graph.features), np.arange(200) % 2
    plain = model(x, torch.from_numpy(np.stack([graph.source, graph.target])))

    def work(ranks):
        part = GraphPart(graph, owner, ProcessGrid(2), ranks)
        own = attach(copy.deepcopy(model), part)
        with torch.no_grad():
            return torch.zeros(200, plain.shape[1]).index_copy(0, part.nodes, own(x[part.nodes]))

    return sum(run_ranks(2, work, Traffic)), plain


def test_what_python_computes_from_a_size_is_of_all_ranks(larger_graph, monkeypatch):
    """No comparison on the graph of the check finds a branch that 150 rows decide."""
    torch.manual_seed(0)
    reached = []

    def chosen(h, e):
        reached.append({name: count(h, e) > 150 for name, count in COUNTS.items()})
        return h * sum(reached[-1].values())

    out, plain = on_a_graph_that_is_not_compared(OnSections(chosen), larger_graph, monkeypatch)
    assert all(reached[0].values())
    assert [[n for n in COUNTS if not r[n]] for r in reached[-2:]] == [[], []]
    assert torch.allclose(out, plain, atol=1e-5)


@pytest.mark.parametrize("what", LOCAL_COUNTS)
def test_a_plain_number_of_local_rows_is_refused_on_large_graphs(larger_graph, monkeypatch, what):
    """Such a number is the one of a process, also where it is compared."""
    count = LOCAL_COUNTS[what]
    model = OnSections(lambda h, e: h * (2.0 if count(h, e) > 150 else 1.0))
    with pytest.raises(
        ConfigError, match=rf"takes {re.escape(what)}.* at test_parts_of_rows.py:\d+, the"
    ):
        on_a_graph_that_is_not_compared(model, larger_graph, monkeypatch)
