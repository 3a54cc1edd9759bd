"""Both planners: every batch as the order says, nothing used that is not there, bounds met."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scitoolkit.io.loader.order import EpochOrder
from scitoolkit.io.loader.plan import EpochPlan, batch_shares
from scitoolkit.io.loader.plan_samples import SamplePlanner
from scitoolkit.io.loader.plan_units import UnitPlanner


def follow(plan: EpochPlan, order: EpochOrder, epoch: int, buffers: list[set], k: int, cap: int):
    """Carry the plan out with sets for buffers, checking every step."""
    ranks = len(buffers)
    shares = batch_shares(order, ranks)
    steps = [list(plan.steps(r)) for r in range(ranks)]
    for s in range(order.num_batches):
        taken: list[int] = []
        for r, buffer in enumerate(buffers):
            step = steps[r][s]
            read = set(step.reads.tolist())
            assert len(step.samples) == shares[s, r]
            assert all(x in buffer or x // k in read for x in step.samples.tolist())
            assert set(step.drop.tolist()) <= buffer
            assert all(x in buffer or x // k in read for x in step.add.tolist())
            buffers[r] = (buffer - set(step.drop.tolist())) | set(step.add.tolist())
            assert len(buffers[r]) <= cap
            taken += step.samples.tolist()
        assert sorted(taken) == sorted(order.global_batch(epoch, s).tolist())


@settings(max_examples=40, deadline=None)
@given(
    num_samples=st.integers(1, 300),
    local=st.integers(1, 9),
    ranks=st.integers(1, 5),
    part=st.floats(0, 1.2),
    k=st.sampled_from([1, 3, 8]),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
)
def test_plans_are_carried_out(num_samples, local, ranks, part, k, drop_last, shuffle):
    drop_last = drop_last and num_samples >= local * ranks
    order = EpochOrder(num_samples, local * ranks, 3, shuffle, drop_last)
    cap = int(part * num_samples) // ranks
    planners = [
        (UnitPlanner(order, cap, np.arange(num_samples) // k, ranks), k),
        (SamplePlanner(order, cap, ranks), 1),
    ]
    for planner, unit in planners:
        buffers: list[set] = [set() for _ in range(ranks)]
        for epoch in range(3):
            follow(planner.plan(epoch), order, epoch, buffers, unit, cap)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("part", [0.1, 0.25, 0.5, 0.75])
def test_reads_meet_the_lower_bound_with_equal_ranks(ranks, part):
    num_samples = 16384
    order = EpochOrder(num_samples, 32 * ranks)
    capacity = int(part * num_samples) // ranks
    planner = SamplePlanner(order, capacity, ranks)
    assert planner.plan(0).loads().sum() == num_samples
    for epoch in (1, 2):
        loads = planner.plan(epoch).loads()
        assert loads.sum() <= 1.01 * (num_samples - capacity * ranks)
        assert loads.max(axis=1).sum() <= 1.02 * loads.mean(axis=1).sum()


@pytest.mark.parametrize(("part", "first", "later"), [(0.10, 4.2, 3.9), (0.25, 2.8, 2.2)])
def test_chunks_are_read_about_twice_with_a_quarter_buffered(part, first, later):
    num_samples, k = 16384, 16
    planner = UnitPlanner(
        EpochOrder(num_samples, 64), int(part * num_samples), np.arange(num_samples) // k
    )
    amplification = [planner.plan(e).loads().sum() * k / num_samples for e in range(4)]
    assert amplification[0] <= first
    assert max(amplification[1:]) <= later


def test_everything_held_is_read_once():
    for planner in (
        SamplePlanner(EpochOrder(96, 8), 96),
        UnitPlanner(EpochOrder(96, 8), 96, np.arange(96) // 4),
    ):
        planner.plan(0)
        assert [int(planner.plan(e).loads().sum()) for e in (1, 2)] == [0, 0]


def test_plans_agree_between_processes_and_differ_between_settings():
    def digests(seed, capacity):
        planner = SamplePlanner(EpochOrder(100, 10, seed), capacity, 2)
        return [planner.plan(e).digest() for e in range(2)]

    assert digests(0, 20) == digests(0, 20)
    assert digests(0, 20) != digests(1, 20)
    assert digests(0, 20) != digests(0, 10)


def test_a_plan_from_the_middle_leaves_out_what_is_past():
    order = EpochOrder(64, 8)
    for planner in (SamplePlanner(order, 16), UnitPlanner(order, 16, np.arange(64) // 4)):
        plan = planner.plan(0, start=3)
        assert (plan.rank[:24] == -1).all()
        samples = np.concatenate([step.samples for step in plan.steps(0, start=3)])
        assert samples.tolist() == order.permutation(0)[24:].tolist()
        assert plan.reads.step.min() == 3
