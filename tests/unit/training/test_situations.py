"""Trainings on several ranks reach what one process reaches, or are refused on all ranks."""

from __future__ import annotations

import functools
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
QUICK = [(2, "ddp"), (2, "stage 3")]
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
NOT_IN_STAGE_3 = {"tied", "parts of the model", "scalar and empty parameters"}
NOT_SHARDABLE = {"muon"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, _worker_environment):
    """Return a function that trains all situations; it returns their outcomes by name."""

    @functools.cache
    def run(ranks, strategy):
        folder = tmp_path_factory.mktemp("situations")
        settings = {strategy: {"single": {}, **STRATEGIES}[strategy]}
        text = json.dumps({"folder": str(folder), "settings": settings})
        assert launch(ranks, [text], module=training_situations.__name__) == 0
        stored = torch.load(folder / f"{ranks}.pt")
        return {key.removeprefix(f"{strategy}/"): outcome for key, outcome in stored.items()}

    return run


CASES = [
    pytest.param(ranks, strategy, marks=() if (ranks, strategy) in QUICK else pytest.mark.slow)
    for ranks in (2, 3)
    for strategy in STRATEGIES
]


@pytest.mark.parametrize(("ranks", "strategy"), CASES)
def test_ranks_reach_what_one_reaches(outcomes, ranks, strategy):
    several, one = outcomes(ranks, strategy), outcomes(1, "single")
    assert several.keys() == one.keys() == SITUATIONS.keys()
    wrong = {}
    for name in SITUATIONS:
        try:
            check(several[name], one[name], name, strategy)
        except AssertionError as error:
            wrong[name] = str(error).splitlines()[0][:200]
    assert not wrong


def check(several, one, name, strategy):
    """Compare the outcomes of a situation."""
    if name in REFUSED:
        assert several["error"] == REFUSED[name], (name, several)
        assert several["seconds"] < 5
        assert one.get("error") == (None if name in ONE_RANK_TRAINS else REFUSED[name])
        return
    if (name in NOT_IN_STAGE_3 and strategy == "stage 3") or (
        name in NOT_SHARDABLE and strategy != "ddp"
    ):
        assert several["error"] in ("ConfigError", "ConfigProblems")
        return
    assert "error" not in several, (name, several)
    limit = 1e-5 if name == "single precision" else 1e-9
    for key, wanted in one["state"].items():
        assert torch.allclose(several["state"][key], wanted, rtol=0, atol=limit), (name, key)
    assert several["best"] == pytest.approx(one["best"], rel=1e3 * limit), name
    assert len(several["validations"]) == len(one["validations"])
    for ours, wanted in zip(several["validations"], one["validations"], strict=True):
        assert ours == pytest.approx(wanted, rel=1e3 * limit, abs=limit), name
