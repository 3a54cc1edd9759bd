"""Fields' metadata decide which settings may change on resume, for all callers."""

from __future__ import annotations

import pytest

from scitoolkit.core.jobs import domains
from scitoolkit.core.resume import changed_settings, free_keys, identity
from scitoolkit.training.config import TrainingConfig

FREE = (
    "epochs",
    "steps",
    "strategy",
    "device",
    "early_stopping",
    "checkpoint",
    "log_every",
    "timeout_seconds",
    "compile",
    "profile",
    "loggers",
    "progress",
    "sharding",
    "mesh",
    "best",
    "count_traffic",
    "noise_scale",
    "schedule.length",
    "schedule.after.length",
    "schedule.after.after.length",
)


def test_where_and_how_long_a_training_goes_on_is_free_and_nothing_else():
    assert set(free_keys(TrainingConfig)) == set(FREE)
    decisive = {
        "batch_size",
        "accumulate",
        "seed",
        "precision",
        "optimizer",
        "parameter_groups",
        "schedule",
        "clip_norm",
        "exchange",
        "ema_decay",
        "swa_start",
        "memory",
        "pruning",
        "gather_precision",
    }
    assert set(identity(TrainingConfig())) == decisive


@pytest.mark.parametrize("key", ["timeout_seconds", "checkpoint.keep_last", "epochs", "steps"])
def test_a_free_key_changes_no_identity(key):
    section, _, leaf = key.rpartition(".")
    given = {section: {leaf: 7}} if section else {leaf: 7}
    changed = TrainingConfig.model_validate(given)
    assert changed != TrainingConfig()
    assert changed_settings(identity(TrainingConfig()), identity(changed)) == []


def test_a_key_that_decides_numbers_is_named_with_both_values():
    other = TrainingConfig(optimizer={"name": "adamw", "lr": 0.5})
    changed = changed_settings(identity(TrainingConfig()), identity(other))
    assert changed == ["optimizer.lr: 0.001 -> 0.5"]


@pytest.mark.parametrize("name", domains.names())
def test_every_job_may_move_its_runs(name):
    assert "run" in set(free_keys(domains.get(name).config_class))
