"""Many surrogates under a budget of bytes: answers, memory, damaged files, threads, order."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.core.errors import BackendError, CheckpointError, ConfigError, DataError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import ExportConfig, Pool
from scitoolkit.deploy import pool as pool_module
from scitoolkit.deploy.export import export
from scitoolkit.deploy.packed import packed, read_header
from scitoolkit.deploy.residency import Entry, Residency, rounded

COUNT = 6


class Scaled(nn.Module):
    """A network and an array that all samples of a call share."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x, scale):
        return self.network(x) * scale


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, dict[str, nn.Module]]:
    folder, networks = tmp_path_factory.mktemp("pool"), {}
    for k in range(COUNT):
        torch.manual_seed(k)
        network = nn.Sequential(nn.Linear(7, 40), nn.Tanh(), nn.Linear(40, 5)).eval()
        x = ArraySpec("x", ("level",), (7,), "K", low=-3.0 - k, high=3.0)
        y = ArraySpec("y", ("level",), (5,))
        functions = [TracedFunction(network, [x], [y])]
        export(functions, folder / f"m{k}.weights")
        networks[f"m{k}"] = network
    return folder, networks


@pytest.mark.parametrize("bits", [None, 4])
def test_equal_networks_share_code(bits, tmp_path):
    x, y = (ArraySpec(n, ("level",), (64,), low=-2.0, high=2.0) for n in "xy")
    for seed in (0, 1):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)).eval()
        export(
            [TracedFunction(network, [x], [y])],
            tmp_path / f"m{seed}.weights",
            ExportConfig(bits=bits),
        )
    assert len(list(tmp_path.glob("shell-*.so"))) == 1


def filled(folder: Path, budget: int, **options) -> Pool:
    pool = Pool(budget, **options)
    for k in range(COUNT):
        pool.add(f"m{k}", folder / f"m{k}.weights")
    return pool


def size(folder: Path) -> int:
    return rounded(read_header(folder / "m0.weights").size)


def truth(network: nn.Module, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return network(torch.from_numpy(x)).numpy()


def sample(seed: int = 0, rows: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 7)).clip(-3, 3).astype(np.float32)


def test_surrogates_of_one_architecture_share_their_code_and_keep_their_boxes(made):
    folder, networks = made
    assert len(list(folder.glob("shell-*.so"))) == 1
    with filled(folder, 1 << 20) as pool:
        for name, network in networks.items():
            (y,), status = pool(name, sample())
            np.testing.assert_allclose(y, truth(network, sample()), rtol=2e-6, atol=2e-6)
            assert not status.any()
        outside = np.full((1, 7), -3.5, np.float32)
        assert [pool(f"m{k}", outside)[1][0] for k in (0, 1)] == [1, 0]
        assert pool.about("m2")["functions"][0]["inputs"][0]["box"] == [[-5.0, -5.0], [3.0, 3.0]]
        assert pool.about("m2")["functions"][0]["inputs"][0]["units"] == "K"


def test_memory_stays_within_the_budget_and_what_is_used_often_stays(made, monkeypatch):
    # All reads take as long: on a busy machine a slow one may keep a model that is rarely used.
    clock = SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr(pool_module, "time", clock)
    folder, networks = made
    one = size(folder)
    with filled(folder, 2 * one) as pool:
        for k in range(200):
            name = "m0" if k % 2 else f"m{1 + k // 2 % (COUNT - 1)}"
            (y,), _ = pool(name, sample(k))
            np.testing.assert_allclose(y, truth(networks[name], sample(k)), rtol=2e-6, atol=2e-6)
            found = pool.statistics()
            assert found["resident_bytes"] <= found["held_bytes"] <= 2 * one
        assert found["hits"] >= 95, found  # every call of m0 but the first few
        assert found["evictions"] == found["loads"] - 2


def test_worth_forgets_what_was_used_long_ago():
    memory = Residency(2 * 4096)
    old, other, new = (Entry(n, 4096, seconds=1.0) for n in ("old", "other", "new"))
    assert memory.take(old)
    assert memory.take(other)
    for _ in range(50):
        memory.use(old, 3)
    for _ in range(400):
        memory.use(other, 3)
    assert memory.take(new)
    assert old.memory is None
    assert other.memory is not None


def test_what_is_larger_or_costs_less_to_read_leaves_first():
    memory = Residency(3 * 4096)
    large, small = Entry("large", 8192, seconds=1.0), Entry("small", 4096, seconds=1.0)
    assert memory.take(large)
    assert memory.take(small)
    memory.use(large, 2), memory.use(small, 2)
    new = Entry("new", 4096, seconds=1.0)
    assert memory.take(new)
    assert large.memory is None
    assert small.memory is not None
    assert memory.held <= memory.budget


@pytest.mark.parametrize("place", ["magic", "length", "json", "weights", "cut", "shape", "key"])
def test_a_damaged_file_is_refused_by_its_name(made, tmp_path, place):
    folder, _ = made
    for file in folder.iterdir():
        shutil.copy(file, tmp_path)
    path = tmp_path / "m1.weights"
    data = bytearray(path.read_bytes())
    header = read_header(path)
    if place == "magic":
        data[0] ^= 1
    elif place == "length":
        data[14] = 255
    elif place == "json":
        data[17] = 0
    elif place == "weights":
        data[-70] ^= 4
    elif place == "cut":
        del data[-64:]
    else:
        about = json.loads(json.dumps(header.about))
        if place == "shape":  # a header that promises larger arrays than the code writes
            about["functions"][0]["outputs"][0]["shape"][1] = 1
        key = "0" * 16 if place == "key" else header.key
        data = bytearray(packed(key, about, bytes(data[header.start :])))
    path.write_bytes(data)
    with Pool(1 << 20) as pool, pytest.raises(CheckpointError, match=r"m1\.weights|shell-0000"):
        _added_and_called(pool, path)


def _added_and_called(pool: Pool, path: Path) -> None:
    pool.add("m1", path)
    pool("m1", sample())


def test_a_file_that_goes_or_is_replaced_while_the_pool_works(made, tmp_path):
    folder, networks = made
    for file in folder.iterdir():
        shutil.copy(file, tmp_path)
    with filled(tmp_path, size(folder)) as pool:
        pool("m0", sample()), pool("m1", sample())
        shutil.copy(tmp_path / "m2.weights", tmp_path / "m0.new")
        (tmp_path / "m0.new").replace(tmp_path / "m0.weights")
        (y,), _ = pool("m0", sample())
        np.testing.assert_allclose(y, truth(networks["m2"], sample()), rtol=2e-6, atol=2e-6)
        (tmp_path / "m1.weights").unlink()
        with pytest.raises(CheckpointError, match=r"no such file.*m1"):
            pool("m1", sample())
        assert pool.statistics()["failures"] == 1
        (y,), _ = pool("m3", sample())
        np.testing.assert_allclose(y, truth(networks["m3"], sample()), rtol=2e-6, atol=2e-6)


def test_wrong_names_arrays_and_budgets_are_refused(made):
    folder, _ = made
    with pytest.raises(ConfigError, match="more than the budget"):
        filled(folder, 100)
    with filled(folder, 1 << 20) as pool:
        with pytest.raises(DataError, match=r"no surrogate 'm10'.*'m1'"):
            pool("m10", sample())
        with pytest.raises(ConfigError, match="in the pool already"):
            pool.add("m0", folder / "m0.weights")
        for wrong in (sample().astype(np.float64), sample()[:, :5], [1.0]):
            for call in (pool, pool.submit):
                with pytest.raises(DataError, match="Allowed"):
                    call("m0", wrong)
        with pytest.raises(DataError, match="no function 'rhs'"):
            pool("m0", sample(), function="rhs")
        pool.remove("m5")
        with pytest.raises(DataError, match="no surrogate 'm5'"):
            pool("m5", sample())
    with pytest.raises(BackendError, match="closed"):
        pool("m0", sample())


def test_threads_with_files_that_come_and_go_lose_no_request_and_mix_up_none(made, tmp_path):
    folder, networks = made
    for file in folder.iterdir():
        shutil.copy(file, tmp_path)
    wrong, answered, refused = [], [], []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for k in range(60):
            name = f"m{random.integers(COUNT)}"
            x = sample(1000 * seed + k, rows=int(random.integers(1, 5)))
            try:
                if k % 2:
                    (y,), _ = pool(name, x)
                else:
                    (y,), _ = pool.submit(name, x).result(timeout=60)
            except CheckpointError as error:
                (refused if name in str(error) else wrong).append(name)
                continue
            if not np.allclose(y, truth(networks[name], x), rtol=2e-6, atol=2e-6):
                wrong.append(name)
            answered.append(name)

    def hide() -> None:
        path = tmp_path / "m3.weights"
        while not done.wait(0.001):
            path.rename(tmp_path / "hidden")
            done.wait(0.001)
            (tmp_path / "hidden").rename(path)

    done = threading.Event()
    with filled(tmp_path, 2 * size(folder), workers=3) as pool:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        saboteur = threading.Thread(target=hide)
        for thread in (*threads, saboteur):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        saboteur.join()
        assert pool.statistics()["held_bytes"] <= 2 * size(folder)
    assert not wrong
    assert len(answered) + len(refused) == 4 * 60
    assert len(answered) > 100


def test_requests_that_wait_for_one_surrogate_are_answered_in_one_call(made):
    folder, networks = made
    pool = filled(folder, 1 << 20, workers=1)
    with pool._work:  # nothing is served while the queue fills
        shell = pool._models["m0"].shell
    gate, entered = threading.Event(), threading.Event()
    run = shell.run

    def slow(*arguments):
        entered.set()
        assert gate.wait(60)
        return run(*arguments)

    shell.run = slow
    first = pool.submit("m1", sample())
    assert entered.wait(60)
    later = [(f"m{k % 2}", sample(k), pool.submit(f"m{k % 2}", sample(k))) for k in range(20)]
    gate.set()
    first.result(timeout=60)
    for name, x, answer in later:
        (y,), status = answer.result(timeout=60)
        np.testing.assert_allclose(y, truth(networks[name], x), rtol=2e-6, atol=2e-6)
        assert y.flags.owndata
        assert status.shape == (3,)
    assert pool.statistics()["batches"] == 3
    pool.close()


def test_an_array_that_all_samples_share_keeps_requests_apart(tmp_path):
    torch.manual_seed(0)
    network = Scaled(nn.Linear(7, 3)).eval()
    x, scale = ArraySpec("x", ("a",), (7,)), ArraySpec("scale", ("b",), (3,), shared=True)
    function = TracedFunction(network, [x, scale], [ArraySpec("y", ("b",), (3,))])
    export([function], tmp_path / "scaled.weights")
    with Pool(1 << 20, workers=1) as pool:
        pool.add("scaled", tmp_path / "scaled.weights")
        scales = [np.full(3, k, np.float32) for k in range(20)]
        answers = [pool.submit("scaled", sample(k), s) for k, s in enumerate(scales)]
        for k, answer in enumerate(answers):
            (y,), _ = answer.result(timeout=60)
            with torch.no_grad():
                own = network(torch.from_numpy(sample(k)), torch.from_numpy(scales[k])).numpy()
            np.testing.assert_allclose(y, own, rtol=2e-6, atol=2e-5)


def test_reading_ahead_follows_the_declared_order(made):
    folder, _ = made
    with filled(folder, 2 * size(folder)) as pool:
        order = ["m4", "m1", "m5", "m0", "m3"]
        pool.prefetch(*order)
        for name in order:
            deadline = time.monotonic() + 60
            while not pool._models[name].resident and time.monotonic() < deadline:
                time.sleep(0.001)
            pool(name, sample())
        found = pool.statistics()
        assert (found["loads"], found["hits"]) == (5, 5), found
        with pytest.raises(DataError, match="no surrogate"):
            pool.prefetch("m0", "elsewhere")


def test_closing_answers_or_cancels_what_waits_and_a_full_queue_refuses(made):
    folder, _ = made
    for finish in (True, False):
        pool = filled(folder, 1 << 20, workers=1, queue=5)
        shell, gate, entered = pool._models["m0"].shell, threading.Event(), threading.Event()
        run = shell.run

        def slow(*arguments, run=run, gate=gate, entered=entered):
            entered.set()
            assert gate.wait(60)
            return run(*arguments)

        shell.run = slow
        first = pool.submit("m0", sample())
        assert entered.wait(60)
        later = [pool.submit("m1", sample()) for _ in range(5)]
        with pytest.raises(BackendError, match="5 requests wait"):
            pool.submit("m2", sample())
        closer = threading.Thread(target=pool.close, kwargs={"finish": finish})
        closer.start()
        while not pool._closed:
            time.sleep(0.001)
        gate.set()
        closer.join(60)
        assert first.result(timeout=60)
        for answer in later:
            if finish:
                assert answer.result(timeout=60)
            else:
                with pytest.raises(CancelledError):
                    answer.result(timeout=60)
        with pytest.raises(BackendError, match="closed"):
            pool.submit("m0", sample())
