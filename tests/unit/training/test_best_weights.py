"""Best and averaged weights, validation, modes of modules, length of a resumed training."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.training import Trainer, TrainingConfig

X = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(X, X.sin().sum(1, keepdim=True))


class Fit:
    def __init__(self, model):
        self.model = model

    def loss(self, batch):
        return (self.model(batch["0"]) - batch["1"]).square().mean(), {}

    def metrics(self, batch):
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch):
        return len(batch["0"])


def fitted(model, kind=Fit, **settings):
    torch.manual_seed(0)
    seen = []
    optimizer = {"name": "sgd", "lr": 0.02}
    config = TrainingConfig(batch_size=20, progress=False, optimizer=optimizer, **settings)
    trainer = Trainer(kind(model), config)
    validate = trainer.validate
    trainer.validate = lambda loader: seen.append(validate(loader)) or seen[-1]
    trainer.fit(DataLoader(DATA, 20, shuffle=True), DataLoader(DATA, 30))
    return trainer, seen


@pytest.mark.parametrize("min_delta", [0.0, 0.01, 0.3, 5.0])
def test_the_best_weights_have_the_lowest_loss_whatever_min_delta(min_delta):
    stopping = {"patience": 50, "min_delta": min_delta}
    trainer, seen = fitted(nn.Linear(3, 1), epochs=6, early_stopping=stopping)
    assert trainer.best["loss"] == min(values["loss"] for values in seen)


def test_a_data_loader_is_validated_as_in_fit():
    trainer, seen = fitted(nn.Linear(3, 1), epochs=2)
    assert trainer.validate(DataLoader(DATA, 30))["loss"] == pytest.approx(seen[1]["loss"])


def test_modules_in_eval_mode_stay_so():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    model[1].eval()
    fitted(model, epochs=2)
    assert torch.equal(model[1].running_mean, torch.zeros(4))
    assert not torch.equal(model[2].running_mean, torch.zeros(4))
    assert not model[1].training
    assert model[2].training


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, False),
        ({"schedule": {"name": "constant", "warmup_steps": 2}}, False),
        ({"schedule": {"name": "plateau"}}, False),
        ({"schedule": {"name": "cosine"}}, True),
        ({"schedule": {"name": "exponential", "hold_steps": 3}}, True),
        ({"schedule": {"name": "legw", "base_samples": 20, "warmup_epochs": 1.0}}, True),
        ({"schedule": {"name": "cosine", "length": 9}}, False),
        ({"swa_start": 0.5}, True),
        ({"ema_decay": 0.5}, False),
    ],
)
def test_another_length_is_refused_where_something_depends_on_it(tmp_path, settings, refused):
    def train(epochs, folder, *, resume=False):
        (tmp_path / folder).mkdir(exist_ok=True)
        torch.manual_seed(0)
        optimizer = {"name": "sgd", "lr": 0.02}
        config = TrainingConfig(
            batch_size=20, progress=False, optimizer=optimizer, epochs=epochs, **settings
        )
        trainer = Trainer(Fit(nn.Linear(3, 1)), config, run=RunDirectory(tmp_path / folder))
        trainer.fit(DataLoader(DATA, 20, shuffle=True), DataLoader(DATA, 30), resume=resume)
        return trainer.task.model.weight.detach()

    train(3, "a")
    if refused:
        with pytest.raises(ConfigError, match="depends on the length of the training"):
            train(6, "a", resume=True)
    else:
        assert torch.equal(train(6, "a", resume=True), train(6, "b"))


@pytest.mark.parametrize("average", [{"ema_decay": 0.7}, {"swa_start": 0.2}])
def test_running_statistics_are_averaged_as_the_weights(average):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    trainer, _ = fitted(model, epochs=4, **average)
    last = {n: b.clone() for n, b in model.named_buffers()}
    with trainer.averaged_weights():
        assert not torch.allclose(model[1].running_mean, last["1.running_mean"])
        assert torch.equal(model[1].num_batches_tracked, last["1.num_batches_tracked"])
    assert torch.equal(model[1].running_mean, last["1.running_mean"])


class WithCorrelation(Fit):
    """Reports a metric for which higher is better, and one that may not be a number."""

    def metrics(self, batch):
        out = self.model(batch["0"])
        return {**super().metrics(batch), "mean": out.mean(), "undefined": out.mean() * torch.nan}


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_metric_chooses_the_best_weights_and_the_loss_ends_the_training(mode):
    best = {"metric": "mean", "mode": mode}
    stopping = {"patience": 50, "target": 1e9}  # reached at the first validation
    trainer, seen = fitted(
        nn.Linear(3, 1), WithCorrelation, epochs=4, best=best, checkpoint={"every_epochs": 1}
    )
    values = [v["mean"] for v in seen]
    assert trainer.best["mean"] == {"min": min, "max": max}[mode](values)
    assert len(set(values)) == 4
    trainer.load_best()
    again = trainer.validate(DataLoader(DATA, 30))
    assert again["mean"] == pytest.approx(trainer.best["mean"], rel=1e-6)
    _, seen = fitted(nn.Linear(3, 1), WithCorrelation, epochs=4, best=best, early_stopping=stopping)
    assert len(seen) == 1


def test_a_metric_that_is_not_reported_or_no_number_is_not_the_best():
    with pytest.raises(ConfigError, match=r"does not report accuracy.*loss, mean, undefined"):
        fitted(nn.Linear(3, 1), WithCorrelation, epochs=1, best={"metric": "accuracy"})
    trainer, _ = fitted(nn.Linear(3, 1), WithCorrelation, epochs=2, best={"metric": "undefined"})
    assert trainer.best is None


def test_another_choice_at_resume_starts_afresh(tmp_path):
    (tmp_path / "run").mkdir()
    run = RunDirectory(tmp_path / "run")

    def fit(epochs, **best):
        config = TrainingConfig(
            epochs=epochs, batch_size=20, progress=False, seed=1, best=best or {}
        )
        torch.manual_seed(0)
        trainer = Trainer(WithCorrelation(nn.Linear(3, 1)), config, run=run)
        trainer.fit(DataLoader(DATA, 20), DataLoader(DATA, 30), resume=epochs > 2)
        return trainer

    assert fit(2).best["step"] == 6
    trainer = fit(3, metric="mean", mode="min")
    assert trainer.best["step"] == 9
    assert set(trainer.best) == {"loss", "step", "mean"}
    assert fit(4, metric="mean", mode="min").best["mean"] <= trainer.best["mean"]
