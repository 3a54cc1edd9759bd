"""Steps whose rows are in memory at the same time read each of them once, within the budget."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from scitoolkit.io.loader import PlannedLoader, open_source
from scitoolkit.io.loader import shared_reads as module
from scitoolkit.io.loader.shared_reads import nbytes_of_piece, shared_reads

N, ROW = 60, 4 * 6 * 8
FRAMES = {"x": [0, 1, 3], "y": 4}


@pytest.fixture
def any_size(monkeypatch):
    """Share rows of any size, which only large ones are worth."""
    monkeypatch.setattr(module, "_WORTH_NBYTES", 0)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    u = np.random.default_rng(0).normal(size=(N, 4, 6))
    path = tmp_path_factory.mktemp("shared") / "run.h5"
    with h5py.File(path, "w") as file:
        file["whole"] = u
        file.create_dataset("gzip", data=u, chunks=(8, 4, 6), compression="gzip")
    return path


def loader_of(path, name="whole", prefetch=10**6, **options):
    source = open_source(path, {"x": name, "y": name}, frames=FRAMES)
    loader = PlannedLoader(source, 4, 3, threads=2, prefetch=prefetch, **options)
    loader.gap_nbytes = 0
    return loader


@pytest.mark.usefixtures("any_size")
def test_each_row_is_read_once_where_all_fit_into_the_memory_of_reading_ahead(path):
    loader = loader_of(path, buffer=0)
    said = loader.explain()
    before = loader.files.bytes_read
    assert len(list(loader)) == len(loader)
    assert loader.files.bytes_read - before == said["bytes"][0] == N * ROW
    assert loader.stats()["largest_prefetch_bytes"] <= N * ROW


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("name", ["whole", "gzip"])
@pytest.mark.parametrize("prefetch", [0, 20 * ROW, 40 * ROW, 10**6])
@pytest.mark.parametrize("buffer", [0, 10 * ROW])
def test_batches_and_predictions_hold_for_every_amount_of_memory(path, name, prefetch, buffer):
    loader = loader_of(path, name, prefetch, buffer=buffer)
    pairs = [loader_of(path, name, prefetch, buffer=buffer, rank=r, world_size=2) for r in (0, 1)]
    said = loader.explain()
    for epoch in range(2):
        for one in (loader, *pairs):
            one.set_epoch(epoch)
        before = np.array(loader.files.counters())
        steps = list(zip(loader, *pairs, strict=True))
        read = np.array(loader.files.counters()) - before
        assert read.tolist() == [said["requests"][epoch], said["bytes"][epoch]]
        for step, (batch, *parts) in enumerate(steps):
            expected = loader.files.read(loader.order.global_batch(epoch, step))
            for key, values in expected.items():
                assert np.array_equal(batch[key].numpy(), values)
                apart = np.concatenate([part[key].numpy() for part in parts])
                orders = [np.lexsort(v.reshape(len(v), -1).T) for v in (apart, values)]
                assert np.array_equal(apart[orders[0]], values[orders[1]])
    if name == "whole":  # of a chunk, rows that are not required are in memory for a moment
        assert loader.stats()["largest_prefetch_bytes"] <= max(prefetch, 4 * 4 * ROW)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("prefetch", [20 * ROW, 10**6])
def test_a_loader_that_goes_on_in_the_middle_yields_the_same_batches(path, prefetch):
    whole = list(loader_of(path, prefetch=prefetch, buffer=10 * ROW))
    first = loader_of(path, prefetch=prefetch, buffer=10 * ROW)
    for _, _ in zip(range(5), first, strict=False):
        pass
    again = loader_of(path, prefetch=40 * ROW, buffer=0)
    again.load_state_dict({**first.state_dict(), "step": 5})
    for batch, expected in zip(again, whole[5:], strict=True):
        assert all(np.array_equal(batch[key], expected[key]) for key in expected)


@pytest.mark.usefixtures("any_size")
def test_a_sample_that_cannot_be_read_is_replaced_in_every_step_that_shares_its_rows(tmp_path):
    u = np.arange(40.0)[:, None] * np.ones(5)
    u[17] = np.nan
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["u"] = u
    source = open_source(tmp_path / "u.h5", {"x": "u"}, frames={"x": [0, 1, 2]})
    batches = [
        list(PlannedLoader(source, 4, buffer=0, prefetch=prefetch, on_error="skip", threads=2))
        for prefetch in (0, 10**6)
    ]
    for one, other in zip(*batches, strict=True):
        assert np.isfinite(one["x"].numpy()).all()
        assert np.array_equal(one["x"], other["x"])


@pytest.mark.usefixtures("any_size")
def test_rows_in_memory_stay_within_the_budget_and_are_taken_from_steps_in_memory(path):
    source = open_source(path, {"x": "whole"})
    rng = np.random.default_rng(1)
    work = [{"whole": np.unique(rng.integers(0, N, 5))} for _ in range(200)]
    for budget in (0, 12 * ROW, 30 * ROW):
        reads = list(shared_reads(source, work, 0, budget))
        for step, (one, rows) in enumerate(zip(reads, work, strict=True)):
            taken, holders = one.taken["whole"]
            fresh = [row for piece in one.pieces for row in piece.rows]
            assert sorted([*fresh, *taken]) == rows["whole"].tolist()
            assert all(holders < step)
            assert all(row in work[at]["whole"] for row, at in zip(taken, holders, strict=True))
            # What is in memory: the rows of all steps that are not done.
            members = [work[at]["whole"] for at in range(one.after, step + 1)]
            assert one.held == len(np.unique(np.concatenate(members))) * ROW
            assert one.held <= budget or one.after == step
            assert sum(nbytes_of_piece(source, piece) for piece in one.pieces) == len(fresh) * ROW


@pytest.mark.parametrize(
    ("nbytes", "gap", "shared"), [(1024, 0, 0), (1024, 2**17, 1), (2**18, 0, 1)]
)
def test_rows_are_shared_where_reading_them_again_takes_long(tmp_path, nbytes, gap, shared):
    np.save(tmp_path / "u.npy", np.zeros((6, nbytes // 8)))
    source = open_source(tmp_path / "u.npy", {"x": "values"})
    work = [{"values": np.array([0, 5])}, {"values": np.array([0, 3])}]
    first, second = shared_reads(source, work, gap, 2**30)
    assert len(first.taken.get("values", ([],))[0]) == 0
    assert list(second.taken.get("values", ([],))[0]) == [0] * shared
    assert [r for piece in second.pieces for r in piece.rows] == [0, 3][shared:]
    assert second.held == sum(
        (p.last - p.first) * nbytes for one in (first, second) for p in one.pieces
    )
