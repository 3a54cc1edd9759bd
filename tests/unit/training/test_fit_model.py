"""A model and data in one call: losses by kind of target, shapes, resume."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.training import fit_model

X = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
Y = X.sin().sum(1, keepdim=True)
CLASSES = (X[:, 0] > 0.5).long()
QUIET = {"progress": False, "epochs": 40, "optimizer": {"name": "adam", "lr": 0.05}}


def two_inputs():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 1)

        def forward(self, a, b):
            return self.linear(a + b)

    return Sum()


@pytest.mark.parametrize(
    "data",
    [(X, Y), TensorDataset(X, Y), DataLoader(TensorDataset(X, Y), 20, shuffle=True)],
)
def test_values_are_fitted(data):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    trainer = fit_model(model, data, validation=(X, Y), **QUIET)
    assert trainer.best["loss"] < 1e-2
    with torch.no_grad():
        assert float((model(X) - Y).square().mean()) == pytest.approx(
            trainer.best["loss"], rel=1e-4
        )
    batch = data.batch_size if isinstance(data, DataLoader) else 32
    assert trainer.config.batch_size == batch


@pytest.mark.parametrize(
    "data", [(X, CLASSES), (X, CLASSES.int()), (X.numpy(), CLASSES.to(torch.uint8).numpy())]
)
def test_integer_targets_are_classes(data):
    torch.manual_seed(0)
    trainer = fit_model(nn.Linear(3, 2), data, validation=(X, CLASSES), **QUIET)
    values = trainer.validate(DataLoader(TensorDataset(X, CLASSES), 20))
    assert values["accuracy"] > 0.9


def test_a_loss_and_several_inputs():
    torch.manual_seed(0)
    trainer = fit_model(
        two_inputs(), (X, X, Y), nn.functional.l1_loss, validation=(X, X, Y), **QUIET
    )
    assert trainer.best["loss"] < 0.05


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:, 0]), r"predictions of shape \(32, 1\) and targets of shape \(32,\)"),
        ((X, Y[:9]), "tensors of 9, 60 rows"),
        ((X,), "a batch has 0"),
        ((X[:0], Y[:0]), "no rows"),
        ((X.double(), Y), r"inputs of torch.float64.*Allowed: torch.float32.*inputs.to\(torch.fl"),
        (((9 * X).long(), Y), "inputs of torch.int64"),
        ((X, Y > 1), r"targets of torch.bool.*target.float\(\)"),
        ((X, Y + 0j), "targets of torch.complex64"),
        ((X, CLASSES + 1), "classes from 1 to 2"),
        ((X, CLASSES - 1), r"classes from -1 to 0.*classes from 0 to C - 1"),
        ((X, CLASSES[:, None]), r"whole-number targets of shape \(32, 1\)"),
        ([{"x": a, "y": b} for a, b in zip(X, Y, strict=True)], "a batch has x, y"),
    ],
)
def test_data_that_do_not_fit_are_refused(data, message):
    with pytest.raises(DataError, match=message):
        fit_model(nn.Linear(3, 1), data, **QUIET)


def test_unknown_settings_are_refused():
    with pytest.raises(ConfigError, match="learning_rate"):
        fit_model(nn.Linear(3, 1), (X, Y), learning_rate=0.1)


def test_a_stopped_training_continues(tmp_path):
    weights = []
    for folder, lengths in (("whole", [6]), ("parts", [3, 6])):
        for epochs in lengths:
            torch.manual_seed(0)
            model = nn.Linear(3, 1)
            settings = {**QUIET, "epochs": epochs}
            fit_model(model, (X, Y), folder=tmp_path / folder, resume=True, **settings)
        weights.append(model.weight.detach().clone())
    assert torch.equal(*weights)
