"""Random graphs of operators: equal to torch, NaN included, or refused by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exported import CLOSE, _differs, counts, difference, outcomes
from random_graphs import FORMS, RandomGraph, graph_outcomes
from torch import fx, nn

from scitoolkit.core.errors import NumericalError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.export import export
from scitoolkit.deploy.random_rounding import outcomes_of_rounding


def linear(seed: int, name: str = "") -> TracedFunction:
    torch.manual_seed(seed)
    return TracedFunction(
        nn.Linear(4, 3), [ArraySpec("x", ("a",), (4,))], [ArraySpec("y", ("b",), (3,))], name=name
    )


def test_a_library_of_another_module_is_told(tmp_path):
    class Second(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return [self.inner(x)]

    function = linear(0)
    export([function], tmp_path / "m.so")
    library = CompiledSurrogate(tmp_path / "m.so")
    near = linear(0)
    near.module.weight.data *= 1.002
    for other, begins in ((function, "equal"), (linear(1), "wrong: by"), (near, "wrong: by")):
        as_list = TracedFunction(Second(other.module), other.inputs, other.outputs)
        assert difference(as_list, library).startswith(begins)


def test_one_refused_module_does_not_hide_the_others(tmp_path):
    strange = TracedFunction(
        nn.LSTM(4, 3),
        [ArraySpec("x", ("a",), (4,))],
        [ArraySpec("y", ("b",), (3,))],
        name="strange",
    )
    told = outcomes(
        [linear(0, "first"), strange, linear(2, "last")], tmp_path, lambda _: ExportConfig()
    )
    assert counts(told) == {"equal": 2, "refused": 1, "undecided": 0, "wrong": 0, "raw": 0}
    assert told["strange"].startswith("refused")


class OneWrongOperator(fx.Interpreter):
    """A graph in which the results of one operator are 1 % too large."""

    def __init__(self, module: fx.GraphModule, name: str) -> None:
        super().__init__(module)
        self._name = name

    def run_node(self, n):
        result = super().run_node(n)
        return result * 1.01 if n.name == self._name else result


def test_graphs_that_the_judge_was_not_written_for_are_told_if_one_operator_is_wrong():
    wrong = 0
    for seed in range(2000, 2008):
        graph = RandomGraph(seed).eval()
        inputs = (
            torch.rand(9, *graph.shape, generator=torch.Generator().manual_seed(seed)) * 3 - 1.5
        )
        specs = [[ArraySpec(n, ("a",) * len(s), s)] for n, s in (("x", graph.shape), ("y", (2,)))]
        with torch.no_grad():
            rounded = outcomes_of_rounding(TracedFunction(graph, *specs), [inputs.numpy()])[0]
            own = graph(inputs).numpy()
            traced = torch.export.export(graph, (inputs,)).module()
            floats = [n.name for n in traced.graph.nodes if n.op == "call_function"]
            status = np.where(np.isfinite(own).reshape(len(own), -1).all(1), 0, 2)
            for name in floats:
                try:
                    other = OneWrongOperator(traced, name).run(inputs).numpy()
                except (RuntimeError, TypeError, IndexError):  # integers and truth values
                    continue
                both = np.isfinite(own) & np.isfinite(other)
                size = np.abs(own[both]).max(initial=1e-3)
                if not (np.abs(own - other)[both] > 1e-3 * size).any():
                    continue
                wrong += 1
                states = np.where(np.isfinite(other).reshape(len(other), -1).all(1), 0, 2)
                assert _differs(other, own, rounded, states, CLOSE["float32"]), (seed, name)
        assert not _differs(own, own, rounded, status, CLOSE["float32"]), seed
    assert wrong > 20


@pytest.mark.parametrize("number", [584, 1246])
def test_a_difference_that_rounding_explains_is_refused_with_the_change_by_rounding(
    number, tmp_path
):
    """Remainders of quotients that differ by the order in which torch adds the samples alone."""
    graph = RandomGraph(number)
    dims = tuple("abcd"[: len(graph.shape)])
    inputs = [ArraySpec("x", dims, graph.shape, "", -1.5, 1.5)]
    function = TracedFunction(graph, inputs, [ArraySpec("y", ("two", *dims), (2, *graph.shape))])
    path = tmp_path / "m.so"
    told = r"tolerance=[0-9.]+: rounding alone .* \(fmod\)"
    with pytest.raises(NumericalError, match=told) as refusal:
        export([function], path, ExportConfig(tolerance=1e-8))
    allowed = float(refusal.value.fix.split(":")[0].removeprefix("tolerance="))
    export([function], path, ExportConfig(tolerance=allowed))


def test_random_graphs_are_equal_to_torch_or_refused(tmp_path):
    numbers = range(5 * len(FORMS))
    told = graph_outcomes(numbers, tmp_path, 32)
    assert len(told) == len(numbers) == 100
    ended = counts(told)
    assert (ended["wrong"], ended["raw"]) == (0, 0), told
    assert ended["equal"] >= 0.9 * len(told), told


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 200))
def test_many_random_graphs_are_equal_to_torch_or_refused(first, tmp_path):
    told = graph_outcomes(range(first, first + 200), tmp_path)
    ended = counts(told)
    assert (ended["wrong"], ended["raw"]) == (0, 0), told
    assert ended["equal"] >= 0.9 * len(told), told
