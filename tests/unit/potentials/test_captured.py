"""Steps recorded for a neighbour list and replayed: logic anywhere, CUDA graphs on a GPU."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch

from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials import MaceConfig, SeE2AConfig, captured
from scitoolkit.potentials.captured import CapturedCall
from scitoolkit.potentials.graph import configuration_graph

MODELS = {
    "mace": MaceConfig(cutoff=3.5, channels=8, lmax=1, lmax_hidden=1, precision="float64"),
    "nequip": None,
    "se_e2_a": SeE2AConfig(
        cutoff=3.5, cutoff_smooth=1.0, sel=[8, 16], embedding=[4, 8], axis_neurons=4
    ),
}


def frame(seed: int = 0) -> Configuration:
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*[np.arange(2)] * 3), -1).reshape(-1, 3) * 2.4
    positions = grid + rng.normal(scale=0.1, size=grid.shape)
    return Configuration(
        np.array(["O", "H"] * 4), positions, np.eye(3) * 4.8, np.ones(3, dtype=bool)
    )


def model_of(name: str):
    if name == "nequip":
        from scitoolkit.potentials import NequipConfig

        config = NequipConfig(cutoff=3.5, channels=8, lmax=1, layers=2, precision="float64")
        return config.build(["O", "H"]).eval()
    return MODELS[name].build(["O", "H"]).eval()


def moved(graph, step):
    return {**graph, "positions": graph["positions"] + 0.01 * step}


@pytest.fixture
def tape(monkeypatch):
    """Recording without a GPU: a replay calls the function again into the recorded outputs."""
    made = []

    def record(call):
        outputs = call()

        def replay():
            for name, value in call().items():
                outputs[name].copy_(value)

        made.append(replay)
        return replay, outputs

    monkeypatch.setattr(captured, "recorded", record)
    ready = lambda self, positions: not self.model.training and not self.refused  # noqa: E731
    monkeypatch.setattr(CapturedCall, "_may_record", ready)
    return made


class TestLogic:
    def test_replays_from_the_second_call_with_a_list(self, tape):
        model = model_of("se_e2_a")
        call, graph = CapturedCall(model), configuration_graph(frame(), ["O", "H"], 3.5)
        graph["edge_shift"] = graph["edge_shift"].clone()
        for step in range(5):
            here = moved(graph, step * torch.arange(8)[:, None])
            computed = call(here)
            for name, value in model(here).items():
                assert torch.equal(computed[name], value)
        assert len(tape) == 1
        assert call.replays == 4

    def test_outputs_of_a_call_are_not_those_of_the_next(self, tape):
        call, graph = CapturedCall(model_of("se_e2_a")), configuration_graph(frame(), "OH", 3.5)
        steps = [moved(graph, step * torch.arange(8)[:, None]) for step in range(4)]
        results = [call(step)["forces"] for step in steps]
        assert all(not torch.equal(a, b) for a, b in itertools.pairwise(results))

    @pytest.mark.parametrize("change", ["list", "cell in place", "weights", "training", "keys"])
    def test_what_was_recorded_is_not_replayed_for_another(self, tape, change):
        model = model_of("se_e2_a")
        call, graph = CapturedCall(model), configuration_graph(frame(), ["O", "H"], 3.5)
        for _ in range(3):
            call(graph)
        if change == "list":
            graph = configuration_graph(frame(1), ["O", "H"], 3.5)
        elif change == "cell in place":
            graph["edge_shift"].mul_(1.01)
        elif change == "weights":
            with torch.no_grad():
                next(model.parameters()).add_(0.1)
        elif change == "training":
            model.train()
        else:
            graph["head"] = torch.zeros(1, dtype=torch.int64)
        expected = model(graph)["forces"]
        replays = call.replays
        assert torch.equal(call(graph)["forces"].detach(), expected.detach())
        assert call.replays == replays

    def test_a_step_that_cannot_be_recorded_runs_as_usual(self, tape, monkeypatch):
        def refuse(call):
            raise RuntimeError("operation not permitted when stream is capturing\nmore")

        monkeypatch.setattr(captured, "recorded", refuse)
        model = model_of("se_e2_a")
        call, graph = CapturedCall(model), configuration_graph(frame(), ["O", "H"], 3.5)
        for _ in range(3):
            assert torch.equal(call(graph)["forces"], model(graph)["forces"])
        assert call.refused == "operation not permitted when stream is capturing"

    def test_copies_record_their_own(self, tape):
        call, graph = CapturedCall(model_of("se_e2_a")), configuration_graph(frame(), "OH", 3.5)
        for _ in range(3):
            call(graph)
        for other in (copy.deepcopy(call), pickle.loads(pickle.dumps(call))):
            assert other.replays == 0
            assert torch.equal(other(graph)["forces"], call(graph)["forces"])


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(MODELS))
def test_a_recorded_step_equals_the_model(name):
    model = model_of(name).cuda()
    call = CapturedCall(model)
    for seed in range(2):
        graph = configuration_graph(frame(seed), ["O", "H"], 3.5)
        graph = {key: value.cuda() for key, value in graph.items()}
        for step in range(5):
            here = moved(graph, step * torch.arange(8, device="cuda")[:, None])
            expected = model(here)
            for key, value in call(here).items():
                torch.testing.assert_close(value, expected[key].detach(), rtol=1e-9, atol=1e-9)
    assert not call.refused
    assert call.replays == 8


@pytest.mark.gpu
def test_a_model_that_waits_for_the_device_runs_as_usual():
    class Waiting(type(model_of("mace"))):
        def edge_gradients(self, graph):
            assert bool(graph["positions"].isfinite().all())
            return super().edge_gradients(graph)

    model = model_of("mace")
    model.__class__ = Waiting
    model.cuda()
    call = CapturedCall(model)
    graph = configuration_graph(frame(), ["O", "H"], 3.5)
    graph = {key: value.cuda() for key, value in graph.items()}
    for step in range(4):
        here = moved(graph, step)
        torch.testing.assert_close(call(here)["forces"], model(here)["forces"].detach())
    assert call.refused
    assert call.replays == 0
