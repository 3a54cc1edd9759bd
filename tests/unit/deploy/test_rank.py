"""Low rank: factors against layers, the knapsack against all choices, times and errors as told."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.builder import Processor
from scitoolkit.deploy.export import export
from scitoolkit.deploy.rank.knapsack import SLOTS, least_cost
from scitoolkit.deploy.rank.study import Layer, Option, Study, ranks_of, study
from scitoolkit.deploy.rank.table import Use, candidate_ranks, measured

RANDOM = np.random.default_rng(0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_knapsack_is_the_best_of_all_choices(data):
    """Sizes are whole slots, so that rounding up changes none of them."""
    budget = 1.0
    groups = data.draw(
        st.lists(
            st.lists(st.tuples(st.integers(0, SLOTS), st.integers(0, 50)), min_size=1, max_size=4),
            min_size=1,
            max_size=5,
        )
    )
    sizes = [[a / SLOTS for a, _ in group] for group in groups]
    costs = [[float(c) for _, c in group] for group in groups]
    found = least_cost(sizes, costs, budget)
    fitting = [
        sum(costs[g][k] for g, k in enumerate(choice))
        for choice in itertools.product(*(range(len(g)) for g in groups))
        if sum(groups[g][k][0] for g, k in enumerate(choice)) <= SLOTS
    ]
    if found is None:
        assert not fitting
        return
    assert sum(groups[g][k][0] for g, k in enumerate(found)) <= SLOTS
    assert sum(costs[g][k] for g, k in enumerate(found)) == min(fitting)


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=6))
def test_the_budget_holds_for_sizes_that_are_no_whole_slots(sizes):
    choices = [[s, s / 3] for s in sizes]
    found = least_cost(choices, [[0.0, 1.0]] * len(sizes), 0.6 * sum(sizes))
    assert found is not None
    assert sum(c[k] for c, k in zip(choices, found, strict=True)) <= 0.6 * sum(sizes) + 1e-12


def test_candidates_are_whole_vectors_and_never_the_full_ranks():
    for full in ((96, 64), (12, 8), (3, 5), (64,), (5,)):
        found = candidate_ranks(full, 8)
        assert full not in found
        assert all(1 <= r <= n for ranks in found for r, n in zip(ranks, full, strict=True))
        if min(full) >= 32:
            assert all(r % 8 == 0 for ranks in found for r in ranks)


class Net(nn.Module):
    """A window, its neighbour of single cells, a layer that is called twice and an idle one."""

    def __init__(self) -> None:
        super().__init__()
        self.window = nn.Conv2d(32, 32, 3, padding=1)
        self.cells = nn.Conv2d(32, 32, 1)
        self.twice = nn.Linear(40, 40)
        self.idle = nn.Linear(40, 40)

    def forward(self, x: Tensor) -> Tensor:
        y = self.cells(torch.relu(self.window(x)))
        return self.twice(torch.tanh(self.twice(y)))


@pytest.fixture(scope="module")
def surrogate():
    torch.manual_seed(0)
    net = Net().eval()
    with torch.no_grad():  # nearly of rank 8, but for the layer of single cells
        for layer in (net.window, net.twice):
            flat = layer.weight.flatten(1)
            u, s, v = torch.linalg.svd(flat, full_matrices=False)
            s[8:] *= 0.02
            layer.weight.copy_((u * s @ v).view_as(layer.weight))
    spec = [ArraySpec(n, ("c", "z", "x"), (32, 12, 40)) for n in "xy"]
    typical, held_out = (RANDOM.normal(size=(n, 32, 12, 40)).astype(np.float32) for n in (6, 12))
    return TracedFunction(net, spec[:1], spec[1:], typical=[typical], held_out=[held_out])


@pytest.fixture(scope="module")
def exported(surrogate, tmp_path_factory):
    path = tmp_path_factory.mktemp("rank") / "low.so"
    return path, export([surrogate], path, ExportConfig(time_share=0.6, keep=["cells"]))


def test_the_export_is_the_model_with_factors_and_tells_its_error(surrogate, exported):
    path, found = exported
    assert found["largest_difference"] < 1e-4
    assert set(found["ranks"]) <= {"window", "twice"}
    assert set(found["compressed"]) | set(found["dense"]) == {"window", "twice"}
    assert found["layers_time_share"] <= 0.6
    (y,), _ = CompiledSurrogate(path)(surrogate.held_out[0])
    with torch.no_grad():
        change = y - surrogate.module(torch.from_numpy(surrogate.held_out[0])).numpy()
    (told,) = found["differences"]
    assert told["source"] == "held-out data"
    assert told["maximum"] == pytest.approx(float(np.abs(change).max()), rel=1e-3)
    assert f"low rank: {told['text']}" in path.with_suffix(".h").read_text()


def test_the_pareto_table_trades_time_for_change(exported):
    _, found = exported
    rows = found["pareto"]
    assert len(rows) >= 3
    for key, sign in (("microseconds", -1), ("change", 1)):
        values = [sign * row[key] for row in rows]
        assert values == sorted(values)
    assert found["microseconds"]["predicted"] < found["microseconds"]["dense"]


def options(*entries):
    return tuple(Option(r, s, c, 1) for r, s, c in entries)


def test_a_layer_that_gains_nothing_stays_as_it_is_and_shares_add_up():
    layers = [
        Layer("a", (8,), options((None, 3.0, 0.0), ((4,), 1.0, 0.5))),
        Layer("b", (8,), options((None, 1.0, 0.0))),
        Layer("c", (8,), options((None, 2.0, 0.0), ((4,), 1.0, 0.1), ((2,), 0.5, 0.2))),
    ]
    found = Study([], layers, {})
    chosen = found.chosen(4.01 / 6)
    assert ranks_of(chosen) == {"a": (4,)}
    assert found.gain(chosen) == pytest.approx(2.0)
    assert found.share(chosen) == pytest.approx(4 / 6)
    assert ranks_of(found.chosen(5.01 / 6)) == {"c": (4,)}
    with pytest.raises(ConfigError, match=r"0\.42 and more"):
        found.chosen(0.3)


def table_of(times):
    """Return a stand-in of the measuring: seconds of each layer by its ranks."""
    return lambda uses, ranks, target, sweep: {
        u.name: {r: times(u.name, r) * len(u.shapes) for r in ranks[u.name]} for u in uses
    }


def test_ranks_that_are_no_faster_and_idle_or_kept_layers_are_no_options(surrogate, monkeypatch):
    def times(name, ranks):
        if name == "twice":
            return 1.0 if ranks is None else 1.0 + ranks[0]  # lower rank is slower
        return 10.0 if ranks is None else 0.1 * sum(ranks) if ranks != (8, 12) else 9.9

    monkeypatch.setattr("scitoolkit.deploy.rank.study.measured", table_of(times))
    found = study([surrogate], [surrogate.typical], ["cells"], Processor(8, 16), 0)
    assert [layer.name for layer in found.layers] == ["window", "twice"]
    window, twice = found.layers
    assert [o.ranks for o in twice.options] == [None]
    assert twice.options[0].seconds == 2  # of both its calls
    assert (8, 12) not in [o.ranks for o in window.options]
    assert all(o.cost > 0 for o in window.options[1:])
    assert set(ranks_of(found.chosen(0.5))) == {"window"}


def test_a_layer_that_is_called_twice_takes_the_time_of_both():
    layer = nn.Linear(64, 64)
    uses = [Use("once", layer, ((512, 64),)), Use("twice", layer, ((512, 64), (512, 64)))]
    found = measured(uses, {"once": [None, (16,)], "twice": [None, (16,)]}, Processor(8, 16), 0)
    for ranks in (None, (16,)):
        assert found["twice"][ranks] == pytest.approx(2 * found["once"][ranks])


def test_shared_layers_of_several_functions_are_one():
    layer, names = nn.Linear(32, 32), ("a", "b")
    specs = [[ArraySpec(n, ("k",), (32,))] for n in "xy"]
    functions = [TracedFunction(nn.Sequential(layer), *specs, name=n) for n in names]
    x = RANDOM.normal(size=(40, 32)).astype(np.float32)
    moment = torch.from_numpy(x.T @ x / 40)
    made = Study(functions, [], {"0": moment}).lowered({"0": (8,)})
    assert made[0].module[0] is made[1].module[0]
    assert [p.shape for p in made[0].module[0].parameters()][:2] == [(8, 32), (32, 8)]
    assert functions[0].module[0] is layer


def test_what_cannot_be_in_low_rank_is_refused_and_writes_nothing(surrogate, tmp_path, monkeypatch):
    path = tmp_path / "a.so"
    plain = TracedFunction(nn.Tanh(), *[[ArraySpec(n, ("k",), (8,))] for n in "xy"])
    with pytest.raises(ConfigError, match="this surrogate calls none"):
        export([plain], path, ExportConfig(time_share=0.5))
    with pytest.raises(ConfigError, match=r"no layer 'windo'.*window"):
        export([surrogate], path, ExportConfig(time_share=0.5, keep=["windo"]))
    halves = table_of(lambda name, ranks: 1.0 if ranks is None else 0.3)
    monkeypatch.setattr("scitoolkit.deploy.rank.study.measured", halves)
    with pytest.raises(NumericalError, match="a larger time_share"):
        export([surrogate], path, ExportConfig(time_share=0.6, max_error=1e-6))
    with pytest.raises(ValueError, match="bits and time_share"):
        ExportConfig(bits=8, time_share=0.5)
    with pytest.raises(ValueError, match="keep without bits or time_share"):
        ExportConfig(keep=["a"])
    assert not list(tmp_path.iterdir())
