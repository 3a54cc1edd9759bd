"""Trainings on several ranks reach what one process reaches, or are refused on all ranks."""

from __future__ import annotations

import functools

import pytest
from training_situations import REFUSED, SITUATIONS, STRATEGIES, difference, trained

pytestmark = pytest.mark.multiproc

QUICK = [(2, "ddp"), (2, "stage 3 in groups")]
LONGEST_WAIT = 5.0  # seconds until all ranks refuse


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, _worker_environment):
    """Return a function that trains all situations; it returns their outcomes by name."""

    @functools.cache
    def run(ranks, strategy):
        return trained(ranks, [strategy], tmp_path_factory.mktemp("situations"))[strategy]

    return run


CASES = [
    pytest.param(ranks, strategy, marks=() if (ranks, strategy) in QUICK else pytest.mark.slow)
    for ranks in (2, 3)
    for strategy in STRATEGIES
    if strategy != "single"
]


@pytest.mark.parametrize(("ranks", "strategy"), CASES)
def test_ranks_reach_what_one_reaches(outcomes, ranks, strategy):
    several, one = outcomes(ranks, strategy), outcomes(1, "single")
    assert several.keys() == one.keys() == SITUATIONS.keys()
    assert len(SITUATIONS) >= 60
    differences = {n: difference(several[n], one[n], n, strategy) for n in SITUATIONS}
    assert not {name: text for name, text in differences.items() if text}
    waits = {n: several[n]["seconds"] for n in REFUSED}
    assert max(waits.values()) < LONGEST_WAIT, waits
