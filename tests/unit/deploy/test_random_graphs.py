"""Random graphs of operators: equal to torch, NaN included, or refused by name."""

from __future__ import annotations

import pytest
import torch
from exported import counts, difference, outcomes
from random_graphs import FORMS, graph_outcomes
from torch import nn

from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.export import export


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
