"""Trainings on several ranks reach what one process reaches, or are refused on all ranks."""

from __future__ import annotations

import json

import pytest
import torch
import training_situations
from training_situations import SITUATIONS

from scitoolkit.training.launch import launch

pytestmark = pytest.mark.multiproc

STRATEGIES = {
    "ddp": {},
    **{f"stage {n}": {"strategy": "sharded", "sharding": {"stage": n}} for n in (1, 2, 3)},
}
REFUSED = {
    "order by rank": "DataError",
    "uneven": "DataError",
    "no batch": "DataError",
    "no batch, steps": "DataError",
    "empty epochs": "DataError",
    "NaN on one rank": "NumericalError",
    "nothing to train": "ConfigError",
}
ONE_RANK_TRAINS = {"order by rank", "uneven"}
NOT_SHARDABLE = {"lamb", "muon"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, _worker_environment):
    """Return the outcomes of all situations by number of ranks, strategy and name."""
    folder = tmp_path_factory.mktemp("situations")
    for ranks, settings in ((1, {"single": {}}), (2, STRATEGIES)):
        text = json.dumps({"folder": str(folder), "settings": settings})
        assert launch(ranks, [text], module=training_situations.__name__) == 0
    return {k: v for n in (1, 2) for k, v in torch.load(folder / f"{n}.pt").items()}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", SITUATIONS)
def test_two_ranks_reach_what_one_reaches(outcomes, name, strategy):
    check(outcomes[f"{strategy}/{name}"], outcomes[f"single/{name}"], name, strategy)


def check(several, one, name, strategy):
    if name in REFUSED:
        assert several["error"] == REFUSED[name], several
        assert several["seconds"] < 5
        assert one.get("error") == (None if name in ONE_RANK_TRAINS else REFUSED[name])
        return
    if (name == "tied" and strategy == "stage 3") or (name in NOT_SHARDABLE and strategy != "ddp"):
        assert several["error"] == "ConfigError"
        return
    assert "error" not in several, several
    limit = 1e-5 if name == "single precision" else 1e-9
    for key, wanted in one["state"].items():
        assert torch.allclose(several["state"][key], wanted, rtol=0, atol=limit), key
    assert len(several["validations"]) == len(one["validations"])
    for ours, wanted in zip(several["validations"], one["validations"], strict=True):
        assert ours == pytest.approx(wanted, rel=1e3 * limit, abs=limit)
    assert several["best"] == pytest.approx(one["best"], rel=1e3 * limit)
