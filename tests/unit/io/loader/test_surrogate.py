"""The planned loader hands out exactly the samples of the order, whatever is underneath."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from scitoolkit.core.contracts import Loader
from scitoolkit.core.errors import CheckpointError, ConfigError, DataError
from scitoolkit.io.loader import PlannedLoader, open_source

N = 150


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(0)
    u, p = rng.normal(size=(N, 4, 6)).astype(">f4"), rng.normal(size=(N, 3))
    path = tmp_path_factory.mktemp("loader") / "run.h5"
    with h5py.File(path, "w", userblock_size=1024) as file:
        file["whole"], file["vector"] = u, p
        file.create_dataset("cut", data=u, chunks=(16, 4, 4))
        options = {"compression": "gzip", "shuffle": True, "fletcher32": True}
        file.create_dataset("gzip", data=u, chunks=(16, 3, 6), **options)
        file.create_dataset("lzf", data=p, chunks=(10, 3), compression="lzf")
        moved = np.moveaxis(u, 0, 2)
        file.create_dataset("last", data=moved, chunks=(4, 3, 64), compression="gzip")
    return path


WINDOWS = {"x": [0, 1, 2], "y": 3}


@pytest.mark.parametrize("names", [("whole", "vector"), ("gzip", "lzf"), ("cut", "vector")])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("buffer", [0, 4000, 10**7])
@pytest.mark.parametrize(("shuffle", "frames"), [("exact", None), ("block", WINDOWS)])
def test_batches_are_those_of_the_order(path, names, ranks, buffer, shuffle, frames):
    source = open_source(path, dict(zip("xy", names, strict=True)), frames=frames)
    loaders = [
        PlannedLoader(source, 32, 3, buffer, shuffle, rank=r, world_size=ranks, threads=2)
        for r in range(ranks)
    ]
    for epoch in range(2):
        for loader in loaders:
            loader.set_epoch(epoch)
        for step, parts in enumerate(zip(*loaders, strict=True)):
            batch = loaders[0].order.global_batch(epoch, step)
            expected = source.read(batch)
            for key, values in expected.items():
                got = np.concatenate([part[key].numpy() for part in parts])
                by = [np.lexsort(v.reshape(len(v), -1).T) for v in (got, values)]
                assert np.array_equal(got[by[0]], values[by[1]])
                assert ranks > 1 or np.array_equal(got, values)
            sizes = [len(part["x"]) for part in parts]
            assert max(sizes) - min(sizes) <= (step + 1 == len(loaders[0]))


def test_windows_crops_channels_and_axes_are_those_of_numpy(path):
    with h5py.File(path) as file:
        u = file["whole"][:]
    chosen = open_source(
        path,
        {"x": ["gzip", "cut"], "y": "whole"},
        frames={"x": [0, 2], "y": 4},
        crop={"dim_2": (1, 5), "dim_1": slice(2, None)},
    )
    assert len(chosen) == N - 4
    batch = chosen.read(np.array([7, 0, 31]))
    assert batch["x"].shape == (3, 2, 2, 2, 4)
    assert np.array_equal(batch["x"][0, 1, 0], u[9, 2:, 1:5])
    assert np.array_equal(batch["y"][2], u[35, 2:, 1:5])
    moved = open_source(path, {"x": "last"}, sample_dim=-1, crop={"dim_1": (1, 4)})
    assert np.array_equal(moved.read(np.arange(N))["x"], u[:, :, 1:4])
    some = chosen.select(range(5, 8))
    assert np.array_equal(some.read(np.array([2]))["y"], chosen.read(np.array([7]))["y"])


def test_several_files_are_one_and_windows_stop_at_their_ends(path, tmp_path):
    lengths = [5, 9, 3]
    for i, length in enumerate(lengths):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            file["u"] = 100.0 * i + np.arange(length)
    source = open_source(str(tmp_path / "*.h5"), {"x": "u", "y": "u"}, frames={"y": 1})
    assert len(source) == sum(n - 1 for n in lengths)
    pairs = source.read(np.arange(len(source)))
    assert np.array_equal(pairs["y"], pairs["x"] + 1)
    joined = open_source(str(tmp_path / "*.h5"), {"x": "u", "y": "u"}, frames={"y": 1}, join=True)
    assert joined.read(np.array([4]))["y"].tolist() == [100.0]
    loader = PlannedLoader(joined, 4, buffer=64)
    assert sorted(v for b in loader for v in b["x"].tolist()) == sorted(
        joined.read(np.arange(16))["x"].tolist()
    )


def _stream(path, stops, **options):
    """Run through two epochs, changing to another loader at every stop."""
    found, state, at = [], None, 0
    for stop in [*stops, 10**9]:
        ranks = options.get("ranks", [1])[at % len(options.get("ranks", [1]))]
        source = open_source(path, {"x": "gzip"})
        loaders = [
            PlannedLoader(source, 12, 5, 4000, rank=r, world_size=ranks, threads=2)
            for r in range(ranks)
        ]
        for loader in loaders:
            if state:
                loader.load_state_dict(state)
        for epoch in range(loaders[0].state_dict()["epoch"], 2):
            if epoch > loaders[0].state_dict()["epoch"]:
                for loader in loaders:
                    loader.set_epoch(epoch)
            iterators = [iter(loader) for loader in loaders]
            while len(found) < stop:
                parts = [next(it, None) for it in iterators]
                if parts[0] is None:
                    break
                rows = np.concatenate([p["x"].numpy() for p in parts if "num_valid" not in p])
                found.append(rows[np.lexsort(rows.reshape(len(rows), -1).T)])
            if len(found) >= stop:
                break
        state = json.loads(json.dumps(loaders[0].state_dict()))
        assert len(json.dumps(state)) < 1000
        at += 1
    return found


def test_a_run_killed_and_resumed_on_other_ranks_sees_the_same_batches(path):
    whole = _stream(path, [])
    assert len(whole) == 26
    for stops in ([1, 2, 13], [5, 20], [12, 14]):
        parts = _stream(path, stops, ranks=[2, 1, 3, 4])
        assert all(np.array_equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_nothing_is_replayed_after_a_resume(path):
    source = open_source(path, {"x": "whole"})
    loader = PlannedLoader(source, 10, buffer=0, threads=1)
    loader.gap_nbytes = 0
    loader.load_state_dict({**loader.state_dict(), "step": 14})
    before = source.bytes_read
    assert len(list(loader)) == 1
    assert source.bytes_read - before == 10 * 96


def test_breaking_off_and_going_on_keeps_what_is_in_memory(path):
    source = open_source(path, {"x": "gzip"})
    loader = PlannedLoader(source, 10, buffer="1MiB", threads=2)
    assert isinstance(loader, Loader)
    requests = []
    for epoch in range(3):
        loader.set_epoch(epoch)
        for _ in loader:
            break
        assert len(list(loader)) == len(loader) - 1
        requests.append(loader.stats()["requests"])
    assert requests[0] == requests[1] == requests[2]


def test_predicted_reads_are_those_that_happen(path):
    for names in ({"x": "gzip"}, {"x": "cut", "y": "lzf"}):
        source = open_source(path, names, frames={"x": [0, 1]})
        before = source.counters()
        loader = PlannedLoader(source, 16, buffer=5000, threads=2)
        said = loader.explain()
        assert source.counters() == before
        for epoch in range(2):
            loader.set_epoch(epoch)
            list(loader)
            after = source.counters()
            assert (after[0] - before[0], after[1] - before[1]) == (
                said["requests"][epoch],
                said["bytes"][epoch],
            )
            before = after


def test_wrong_settings_are_refused_at_once(path):
    source = open_source(path, {"x": "whole"})
    for options, text in [
        ({"batch_size": 7, "world_size": 2, "rank": 0}, "divided"),
        ({"batch_size": N + 1, "drop_last": True}, "more than the 150 samples"),
        ({"batch_size": 4, "buffer": "much"}, "not a size"),
        ({"batch_size": 4, "shuffle": "some"}, "shuffle"),
        ({"batch_size": 4, "on_error": "hide"}, "on_error"),
        ({"batch_size": 4, "threads": 0}, "threads"),
    ]:
        with pytest.raises(ConfigError, match=text):
            PlannedLoader(source, **options)
    with pytest.raises(DataError, match="did you mean whole"):
        open_source(path, {"x": "hole"})
    with pytest.raises(DataError, match="differ in their number of samples"):
        open_source(path, {"x": "whole", "y": "last"})
    with pytest.raises(ConfigError, match="no dim 'time'"):
        open_source(path, {"x": "whole"}, sample_dim="time")
    with pytest.raises(ConfigError, match="crop"):
        open_source(path, {"x": "whole"}, crop={"dim_1": (0, 9)})
    with pytest.raises(DataError, match="151 steps"):
        open_source(path, {"x": "whole"}, frames={"x": N})
    state = PlannedLoader(source, 4, 0).state_dict()
    with pytest.raises(CheckpointError, match="seed"):
        PlannedLoader(source, 4, 1).load_state_dict(state)


def test_block_shuffle_reads_every_chunk_about_once_and_says_what_that_costs(tmp_path):
    with h5py.File(tmp_path / "u.h5", "w") as file:
        data = np.arange(512.0)[:, None] * np.ones(64)
        file.create_dataset("u", data=data, chunks=(16, 64), compression="gzip")
    source = open_source(tmp_path / "u.h5", {"x": "u"})
    exact, block = (
        PlannedLoader(source, 16, buffer=data.nbytes // 4, shuffle=shuffle)
        for shuffle in ("exact", "block")
    )
    said = block.explain()
    assert said["requests"][0] <= 1.1 * 32
    assert said["requests"][0] < 0.5 * exact.explain()["requests"][0]
    # A batch is drawn from 128 samples, 15 others of which are of a sample's own chunk.
    assert said["mates"] == pytest.approx(15 * 15 / 127, rel=0.2)
    orders = [block.order.permutation(epoch) for epoch in (0, 1)]
    assert all(sorted(order.tolist()) == list(range(512)) for order in orders)
    assert orders[0].tolist() != orders[1].tolist()
    other = PlannedLoader(source, 16, buffer=data.nbytes // 2, shuffle="block")
    with pytest.raises(CheckpointError, match="window"):
        other.load_state_dict(block.state_dict())


def test_rows_are_read_together_where_the_gap_costs_less_than_a_request(path):
    rows = open_source(path, {"x": "whole"}).rows["whole"]
    wanted = np.array([0, 1, 5, 6, 30])
    assert [(p.first, p.last) for p in rows.pieces(wanted)] == [(0, 2), (5, 7), (30, 31)]
    merged = rows.pieces(wanted, gap_nbytes=3 * 96)
    assert [(p.first, p.last) for p in merged] == [(0, 7), (30, 31)]
    assert merged[0].rows.tolist() == [0, 1, 5, 6]
    assert len(rows.pieces(wanted, gap_nbytes=1e9)) == 1


def test_an_epoch_that_is_repeated_without_shuffling_keeps_its_buffer(path):
    source = open_source(path, {"x": "gzip"})
    loader = PlannedLoader(source, 8, buffer="1MiB", shuffle=False)
    list(loader)
    before = source.counters()
    for _ in range(2):
        assert len(list(loader)) == len(loader)
    assert source.counters() == before
