"""Parameter groups, averages over the end of a training, and batch sizes carried over."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from training_worker import Regression, data

from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Callback, Trainer, TrainingConfig
from scitoolkit.training.optim.schedules import LEGW


def fit(run=None, callbacks=(), resume=False, **settings):
    settings = {"epochs": 2, "batch_size": 12, "progress": False, "log_every": 1} | settings
    config = TrainingConfig.model_validate(settings)
    trainer = Trainer(Regression(), config, run=run, callbacks=callbacks)
    trainer.fit(TensorLoader(data(), config.batch_size), resume=resume)
    return dict(trainer.task.model.named_parameters())


NO_DECAY = {"parameters": "biases_and_norms", "weight_decay": 0}


def test_groups_set_rate_and_decay_of_what_they_hold():
    plain = fit(optimizer={"name": "adamw", "weight_decay": 0.5}, steps=1)
    grouped = fit(
        optimizer={"name": "adamw", "weight_decay": 0.5},
        steps=1,
        parameter_groups=[NO_DECAY, {"parameters": "head.*", "rate_factor": 0.5}],
    )
    start = dict(Regression().model.named_parameters())
    for name, parameter in plain.items():
        moved, whole = grouped[name] - start[name], parameter - start[name]
        if parameter.dim() <= 1:
            whole = whole + 1e-3 * 0.5 * start[name]
        factor = 0.5 if name.startswith("head.") else 1.0
        torch.testing.assert_close(moved, factor * whole, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("keys", [{"parameter_groups": [NO_DECAY]}, {"swa_start": 0.4}])
def test_groups_and_averages_resume_bit_for_bit(tmp_path, keys):
    whole = fit(schedule={"name": "cosine"}, **keys)
    run = RunDirectory.create(tmp_path, "test", Config())

    class End(Callback):
        wants_every_step = True

        def on_step(self, trainer):
            self.should_stop = trainer.step == 5

    fit(run, [End()], schedule={"name": "cosine"}, **keys)
    resumed = fit(run, resume=True, schedule={"name": "cosine"}, **keys)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_groups_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match=r"parameter_groups.0.*did you mean head.weight"):
        fit(parameter_groups=[{"parameters": "head.weigth", "rate_factor": 2}])
    for keys, words in (
        ({"optimizer": "lbfgs", "parameter_groups": [NO_DECAY]}, "lbfgs takes no parameter_groups"),
        ({"parameter_groups": [{"parameters": "*"}]}, "neither rate_factor nor weight_decay"),
        ({"ema_decay": 0.9, "swa_start": 0.5}, "remove one"),
        (
            {
                "schedule": {
                    "name": "legw",
                    "base_samples": 4,
                    "warmup_epochs": 1,
                    "warmup_steps": 3,
                }
            },
            "follows from warmup_epochs",
        ),
    ):
        if isinstance(keys.get("optimizer"), str):
            keys["optimizer"] = {"name": keys["optimizer"]}
        with pytest.raises(ValueError, match=words):
            TrainingConfig.model_validate(keys)


def test_the_equal_average_is_over_the_last_steps():
    seen = []

    class Watch(Callback):
        wants_every_step = True

        def on_step(self, trainer):
            weights = trainer.task.model.parameters()
            seen.append(torch.cat([p.detach().flatten() for p in weights]).clone())

    config = TrainingConfig(epochs=2, batch_size=12, progress=False, swa_start=0.5)
    trainer = Trainer(Regression(), config, callbacks=[Watch()])
    trainer.fit(TensorLoader(data(), 12))
    with trainer.averaged_weights():
        kept = torch.cat([p.detach().flatten() for p in trainer.task.model.parameters()])
    assert len(seen) == 8
    torch.testing.assert_close(kept, torch.stack(seen[4:]).mean(0), rtol=1e-6, atol=1e-7)


def test_legw_scales_peak_and_warm_up_and_refuses_a_warm_up_that_does_not_fit():
    base = LEGW(base_samples=16, warmup_epochs=0.5)
    one, four = base.for_training(16, 40, 400), base.for_training(64, 10, 100)
    assert one.factor(20, 400) == 1.0
    assert four.factor(20, 100) == 2.0
    assert four.factor(9, 100) == pytest.approx(2 * 10 / 21)
    with pytest.raises(ConfigError, match="need 60 steps of warm-up, of 100"):
        base.for_training(64, 30, 100)
    trained = fit(
        schedule={"name": "legw", "base_samples": 6, "warmup_epochs": 0.25},
        optimizer={"name": "lamb"},
    )
    assert all(torch.isfinite(p).all() for p in trained.values())


def test_fused_adam_takes_groups():
    weights = [nn.Parameter(torch.randn(500, 500)), nn.Parameter(torch.randn(500))]
    groups = [{"params": weights[:1]}, {"params": weights[1:], "weight_decay": 0.0}]
    built = TrainingConfig(optimizer={"name": "adam"}).optimizer.build(groups)
    assert [g["fused"] for g in built.param_groups] == [True, True]
