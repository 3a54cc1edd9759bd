from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.core.errors import CheckpointError, ConfigError
from scitoolkit.io.loader.reservoir import Column, SimulationReservoir
from scitoolkit.io.loader.reservoir_schedule import ReservoirSchedule
from scitoolkit.io.loader.streamed import ReservoirLoader

FRAMES, CAPACITY, TOTAL, AHEAD = 7, 3, 12, 2


def simulation(number: int, parameters=None) -> np.ndarray:
    shift = 0.5 if parameters is None else parameters["shift"]
    return 100.0 * number + shift + np.arange(FRAMES * 2.0).reshape(FRAMES, 2)


class Stream:
    """Makes simulations at once; refuses what was never ordered."""

    def __init__(self):
        self.ordered, self.seen, self.most = {}, [], 0

    def order(self, number, parameters=None):
        self.ordered[number] = parameters
        self.most = max(self.most, len(self.ordered))

    def take(self, number, out):
        out["u"][...] = simulation(number, self.ordered.pop(number))
        self.seen.append(number)

    def forget(self):
        self.ordered.clear()

    def poll(self): ...

    def describe(self):
        return {"stream": "test"}

    def stats(self):
        return {}

    def close(self): ...


def make(batch=4, repeats=1, total=TOTAL, seed=0):
    reservoir = SimulationReservoir({"u": (FRAMES, 2)}, CAPACITY, {"u": Column("u", (0, 1))})
    schedule = ReservoirSchedule(
        CAPACITY, reservoir.windows, batch, seed=seed, repeats=repeats, total=total
    )
    stream = Stream()

    def first(number, out):
        out["u"][...] = simulation(number)

    return ReservoirLoader(stream, reservoir, schedule, first=first, ahead=AHEAD), stream


def batches(loader, epochs):
    found = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        found += [(loader.state_dict(), b["u"].numpy().copy()) for b in loader]
    return found


@pytest.mark.parametrize(("batch", "repeats"), [(4, 1), (5, 2), (1, 1), (18, 1), (3, 3)])
def test_every_window_is_drawn_before_its_simulation_leaves(batch, repeats):
    schedule = ReservoirSchedule(CAPACITY, 6, batch, repeats=repeats, total=TOTAL)
    drawn = {n: np.zeros(6, int) for n in range(TOTAL)}
    for _ in range(60 * repeats):
        before = list(schedule.slots)
        for slot in schedule.feed():
            assert drawn[before[slot]].min() >= repeats
            before[slot] = schedule.slots[slot]
        for index in schedule.draw():
            slot, window = divmod(int(index), 6)
            drawn[schedule.slots[slot]][window] += 1
    assert schedule.entered == TOTAL if batch > 1 else schedule.entered > CAPACITY


def test_simulations_enter_one_by_one_at_the_rate_of_the_draws():
    schedule = ReservoirSchedule(8, 10, 4, total=40)
    entered = []
    for _ in range(60):
        schedule.feed()
        entered.append(schedule.entered)
        schedule.draw()
    steps = np.diff(entered)
    assert steps.max() == 1
    assert entered[-1] == pytest.approx(60 * 4 / 10, abs=2)


def test_a_replayed_schedule_goes_on_the_same():
    whole, again = (ReservoirSchedule(3, 6, 4, seed=5, total=12) for _ in range(2))
    drawn = []
    for _ in range(30):
        whole.feed()
        drawn.append(whole.draw().tolist())
    again.go_to(17)
    rest = []
    for _ in range(17, 30):
        again.feed()
        rest.append(again.draw().tolist())
    assert rest == drawn[17:]
    assert again.needed(30) == whole.entered


def test_a_resumed_loader_gives_the_same_batches():
    loader, _ = make()
    whole = batches(loader, 4)
    assert len({b.tobytes() for _, b in whole}) == len(whole)
    for state, _ in (whole[0], whole[6], whole[9]):
        other, stream = make()
        other.load_state_dict(state)
        position = state["epoch"] * len(other) + state["step"]
        rest = [b["u"].numpy().copy() for b in other]
        for epoch in range(state["epoch"] + 1, 4):
            other.set_epoch(epoch)
            rest += [b["u"].numpy().copy() for b in other]
        assert len(rest) == len(whole) - position
        for (_, expected), found in zip(whole[position:], rest, strict=True):
            assert np.array_equal(expected, found)
        assert stream.most <= CAPACITY + AHEAD


def test_chosen_parameters_are_asked_for_at_the_same_steps():
    def run(timing):
        loader, _ = make()
        asked = []
        loader.choose = lambda n: asked.append((n, loader.schedule.step)) or {"shift": n / 8}
        for _ in batches(loader, 4):
            timing()
        return asked

    first = run(lambda: None)
    assert first == run(lambda: sum(range(2000)))
    assert [n for n, _ in first] == list(range(CAPACITY, TOTAL))


def test_windows_are_those_of_the_simulations_and_never_cross():
    loader, _ = make()
    for _, batch in batches(loader, 4):
        assert (batch[:, 1] - batch[:, 0] == 2).all()


def test_memory_is_as_stated():
    loader, _ = make()
    told = loader.explain()
    assert told["reservoir_bytes"] == CAPACITY * FRAMES * 2 * 4
    assert told["ahead_bytes"] == AHEAD * FRAMES * 2 * 4
    held = loader.reservoir
    before = [a.ctypes.data for a in held.slot(0).values()]
    batches(loader, 4)
    assert [a.ctypes.data for a in held.slot(0).values()] == before
    assert loader.stats()["simulations_entered"] == 4 * 16 // 6


def test_another_stream_is_refused_on_resume():
    loader, _ = make()
    batches(loader, 1)
    other, _ = make(repeats=2)
    with pytest.raises(CheckpointError, match="another data set"):
        other.load_state_dict(loader.state_dict())


def test_history_and_too_short_simulations():
    columns = {"u": Column("u", (0, 2)), "u@-1": Column("u", (-2, 0))}
    held = SimulationReservoir({"u": (6, 1)}, 2, columns)
    held.slot(1)["u"][:, 0] = np.arange(6)
    assert held.windows == 2
    found = held.read(np.array([3]))
    assert found["u"].ravel().tolist() == [3, 5]
    assert found["u@-1"].ravel().tolist() == [1, 3]
    with pytest.raises(ConfigError, match=r"4 frames, and windows of 5"):
        SimulationReservoir({"u": (4, 1)}, 2, columns)


def test_sizes_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="a batch of 20"):
        ReservoirSchedule(3, 6, 20, total=12)
    with pytest.raises(ConfigError, match="4 simulations, and 3 in all"):
        ReservoirSchedule(4, 6, 2, total=3)
