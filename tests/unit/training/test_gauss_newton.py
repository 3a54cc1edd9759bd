"""Gauss-Newton against exact solutions and scipy, in one process and over ranks."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import least_squares
from torch import nn
from torch.func import functional_call, grad

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.io.atoms import open_atoms
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Trainer, TrainingConfig
from scitoolkit.training.optim import gauss_newton
from scitoolkit.training.optim.gauss_newton import GaussNewtonDescent
from scitoolkit.training.optim.residuals import StepResiduals

ACAC = Path(__file__).resolve().parents[3] / "datasets" / "acac" / "train_300K.xyz"


class Fit:
    """A curve fitted by a small network in float64, with its slope at each point beside it."""

    def __init__(self, width: int = 6) -> None:
        torch.manual_seed(0)
        layers = nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1)
        self.model = nn.Sequential(*layers).double()

    def residual(self, parameters, sample):
        def value(x):
            return functional_call(self.model, parameters, (x[None, None],))[0, 0]

        x = sample["x"]
        return torch.stack([value(x) - sample["y"], 0.3 * (grad(value)(x) - sample["slope"])])

    def loss(self, batch):
        raise AssertionError("an optimizer of residuals needs no loss")

    def metrics(self, batch):
        names = dict(self.model.named_parameters())
        values = torch.func.vmap(self.residual, (None, 0))(names, batch)
        return {"loss": values.square().sum(1).mean()}

    def batch_size(self, batch):
        return len(batch["x"])


def data(samples=24):
    x = torch.linspace(-1, 1, samples, dtype=torch.float64)
    return {"x": x, "y": (2 * x).sin(), "slope": 2 * (2 * x).cos()}


def total(tensor):
    return tensor


def system(task, batches):
    names = [n for n, _ in task.model.named_parameters()]
    return StepResiduals(task, names, batches, sum(len(b["x"]) for b in batches), total)


def test_rows_are_the_jacobian_of_the_values_whatever_the_batches():
    task = Fit()
    whole = data()
    halves = [{k: v[:10] for k, v in whole.items()}, {k: v[10:] for k, v in whole.items()}]
    weights = [p.detach() for p in task.model.parameters()]
    values, rows = system(task, [whole]).rows(weights)
    assert rows.shape == (48, 19)
    for found in system(task, halves).rows(weights)[1], rows:
        flat = torch.cat([w.flatten() for w in weights])
        shift = 1e-6 * torch.randn(
            19, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
        )
        moved = [
            part.view_as(w)
            for part, w in zip(
                (flat + shift).split([w.numel() for w in weights]), weights, strict=True
            )
        ]
        difference = system(task, [whole]).values(moved) - values
        torch.testing.assert_close(found @ shift, difference, rtol=1e-4, atol=1e-10)


def test_a_linear_problem_is_solved_in_few_steps_by_every_way(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(12, 5, dtype=torch.float64, generator=generator)
    right = torch.randn(12, dtype=torch.float64, generator=generator)
    exact = torch.linalg.lstsq(matrix, right[:, None]).solution[:, 0]

    class Linear:
        total = staticmethod(total)

        def values(self, weights):
            return matrix @ weights[0] - right

        def rows(self, weights):
            return self.values(weights), matrix

    for largest, several in ((3000, False), (3000, True), (0, True)):
        monkeypatch.setattr(gauss_newton, "LARGEST_DIRECT", largest)
        weight = nn.Parameter(torch.zeros(5, dtype=torch.float64))
        optimizer = GaussNewtonDescent([weight], several_ranks=several)
        losses = [optimizer.step(Linear())[0] for _ in range(8)]
        assert losses == sorted(losses, reverse=True)
        torch.testing.assert_close(weight.detach(), exact, rtol=1e-6, atol=1e-8)


def fit(task, steps=40, loader=None, **settings):
    config = TrainingConfig(
        optimizer={"name": "gauss_newton"}, steps=steps, batch_size=24, progress=False, **settings
    )
    trainer = Trainer(task, config)
    trainer.fit(loader or TensorLoader(data(), 24, shuffle=False))
    return trainer


def test_the_trainer_reaches_the_residual_of_scipy():
    task = Fit()
    names = {n: p.shape for n, p in task.model.named_parameters()}
    start = torch.cat([p.detach().flatten() for p in task.model.parameters()]).numpy()

    def both(flat):
        parts = torch.from_numpy(flat).split([s.numel() for s in names.values()])
        weights = [p.view(s) for p, s in zip(parts, names.values(), strict=True)]
        return [tensor.numpy() for tensor in system(task, [data()]).rows(weights)]

    scipy = (
        2
        * least_squares(
            lambda w: both(w)[0], start, lambda w: both(w)[1], method="lm", max_nfev=150
        ).cost
    )
    fit(task, steps=150)
    reached = task.metrics(data())["loss"].item()
    assert reached < max(2 * scipy, 1e-7)


def test_ranks_with_a_part_of_the_samples_take_the_steps_of_one():
    whole = Fit()
    fit(whole, steps=6)
    tasks = Fit(), Fit()  # not by the threads, which share the generator of initial weights
    barrier, posted = threading.Barrier(2, timeout=30), [torch.empty(0), torch.empty(0)]

    def trained(rank):
        def summed(tensor):
            posted[rank] = tensor.clone()
            barrier.wait()
            tensor.copy_(posted[0] + posted[1])
            barrier.wait()
            return tensor

        task = tasks[rank]
        names, weights = zip(*task.model.named_parameters(), strict=True)
        part = {k: v[:9] if rank == 0 else v[9:] for k, v in data().items()}
        optimizer = GaussNewtonDescent(list(weights), several_ranks=True)
        for _ in range(6):
            optimizer.step(StepResiduals(task, names, [part], 24, summed))
        return [w.detach() for w in weights]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(trained, range(2))
    for a, b, c in zip(first, second, whole.model.parameters(), strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c.detach(), rtol=1e-6, atol=1e-8)


def test_a_step_that_cannot_lower_the_loss_leaves_the_weights():
    class Flat:
        total = staticmethod(total)

        def values(self, weights):
            return torch.full((3,), float("nan") if weights[0].any() else 1.0).double()

        def rows(self, weights):
            return torch.ones(3).double(), torch.ones(3, 2).double()

    weight = nn.Parameter(torch.zeros(2))
    optimizer = GaussNewtonDescent([weight])
    damping = []
    for _ in range(2):
        assert optimizer.step(Flat())[0] == 3.0
        damping.append(optimizer.param_groups[0]["damping"])
    assert not weight.any()
    assert damping[1] > damping[0] > 1


class Potential(Fit):
    """Energies from inverse distances of molecular frames: 105 correlated inputs, six units."""

    def __init__(self, seed: int) -> None:
        source = open_atoms(ACAC)
        frames = [source[index] for index in range(len(source))]
        pairs = np.triu_indices(len(frames[0].positions), 1)
        between = np.stack([f.positions[pairs[0]] - f.positions[pairs[1]] for f in frames])
        inverse = 1 / np.linalg.norm(between, axis=-1)
        energies = np.array([frame.energy for frame in frames])
        self.data = {
            "x": torch.tensor((inverse - inverse.mean(0)) / inverse.std(0)),
            "y": torch.tensor((energies - energies.mean()) / energies.std()),
        }
        torch.manual_seed(seed)
        layers = nn.Linear(105, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1)
        self.model = nn.Sequential(*layers).double()

    def residual(self, parameters, sample):
        return functional_call(self.model, parameters, (sample["x"],))[0] - sample["y"]


@pytest.mark.parametrize("seed", range(3))
def test_random_weights_of_a_narrow_network_reach_the_minimum(seed):
    """Long first steps saturate its units, after which no step leaves 7 % of the variance."""
    task = Potential(seed)
    names, weights = zip(*task.model.named_parameters(), strict=True)
    residuals = StepResiduals(task, names, [task.data], len(task.data["x"]), total)
    optimizer = TrainingConfig(optimizer={"name": "gauss_newton"}).optimizer.build(weights)
    for _ in range(40):
        optimizer.step(residuals)
    assert float(residuals.values(weights).square().sum()) < 1e-3


def test_what_it_cannot_do_is_refused():
    class Plain:
        model = nn.Linear(1, 1)
        loss = metrics = batch_size = None

    with pytest.raises(ConfigError, match="needs a task with `residual`, Plain has none"):
        fit(Plain())
    for keys in ({"schedule": {"name": "cosine"}}, {"clip_norm": 1.0}):
        with pytest.raises(ValueError, match=f"remove {next(iter(keys))}"):
            fit(Fit(), **keys)
    broken = data()
    broken["y"][3] = float("nan")
    with pytest.raises(NumericalError, match="NaN or Inf in batch tensor y"):
        fit(Fit(), loader=TensorLoader(broken, 24))


def test_the_example_of_the_page_runs():
    page = Path(__file__).parents[3] / "docs" / "how-to" / "gauss-newton.md"
    code = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    exec(compile(code, str(page), "exec"), {"__name__": "example"})


@pytest.mark.parametrize("width", [3, 6, 10])
def test_a_step_at_the_rounding_of_the_loss_does_not_raise_it(width):
    # There the loss depends on the order of its sums: before and after a step it is one function.
    task = Fit(width)
    batch = data(8)
    residuals = system(task, [batch])
    parameters = list(task.model.parameters())
    optimizer = GaussNewtonDescent(parameters)

    def loss():
        return float(residuals.values([p.detach().clone() for p in parameters]).square().sum())

    losses = []
    for _ in range(150):
        reported, _ = optimizer.step(residuals)
        losses += [reported, loss()]
    assert losses[-1] < 1e-2 * losses[0]
    assert all(after <= before for before, after in pairwise(losses))
