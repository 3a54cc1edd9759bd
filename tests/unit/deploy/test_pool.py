"""Many surrogates under a budget of bytes: answers, memory, damaged files, threads, order."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.core.errors import BackendError, CheckpointError, ConfigError, DataError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import ExportConfig, Pool, pool_core
from scitoolkit.deploy.export import export
from scitoolkit.deploy.packed import MAGIC, packed
from scitoolkit.ops.codegen.compile import load_library

COUNT = 6
# Every read takes a second: on a busy machine a slow one may keep a model that is rarely used.
CLOCK = """
#define _XOPEN_SOURCE 700
#include <time.h>
static int seconds_of_reads(clockid_t clock, struct timespec *now) {
  static _Thread_local time_t seconds;
  (void)clock;
  *now = (struct timespec){seconds++, 0};
  return 0;
}
#define clock_gettime seconds_of_reads
"""


class Gated(Pool):
    """A pool whose calls wait until a gate opens."""

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self.gate, self.entered = threading.Event(), threading.Event()

    def __call__(self, *arguments, **options):
        self.entered.set()
        assert self.gate.wait(60)
        return super().__call__(*arguments, **options)


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


@pytest.fixture
def equal_reads(monkeypatch) -> None:
    library = pool_core.typed(load_library(CLOCK + pool_core.source()))
    monkeypatch.setattr(pool_core, "library", lambda: library)


def filled(folder: Path, budget: int, kind: type[Pool] = Pool, **options) -> Pool:
    pool = kind(budget, **options)
    for k in range(COUNT):
        pool.add(f"m{k}", folder / f"m{k}.weights")
    return pool


def size(folder: Path) -> int:
    return held(folder / "m0.weights")


def held(path: Path) -> int:
    """Return the bytes of memory of a surrogate."""
    with Pool("1GiB") as pool:
        pool.add("one", path)
        pool("one", sample())
        return pool.statistics()["held_bytes"]


def hit(pool: Pool, name: str) -> bool:
    """Call a surrogate, and return whether it was in memory."""
    before = pool.statistics()["hits"]
    pool(name, sample())
    return pool.statistics()["hits"] > before


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


def test_memory_stays_within_the_budget_and_what_is_used_often_stays(made, equal_reads):
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


def test_worth_forgets_what_was_used_long_ago(made, equal_reads):
    folder, _ = made
    with Pool(2 * size(folder)) as pool:
        for name in ("m0", "m1", "m2"):
            pool.add(name, folder / f"{name}.weights")
        for name, calls in {"m0": 50, "m1": 400, "m2": 1}.items():
            for _ in range(calls):
                pool(name, sample())
        assert pool.statistics()["evictions"] == 1
        assert hit(pool, "m1")
        assert not hit(pool, "m0")


def test_what_is_larger_leaves_first(made, tmp_path, equal_reads):
    x, y = ArraySpec("x", ("level",), (7,)), ArraySpec("y", ("level",), (5,))
    wide = nn.Sequential(nn.Linear(7, 400), nn.Tanh(), nn.Linear(400, 5)).eval()
    export([TracedFunction(wide, [x], [y])], tmp_path / "large.weights")
    folder, small = made[0], size(made[0])
    large = held(tmp_path / "large.weights")
    assert large > 2 * small
    with Pool(large + small) as pool:
        pool.add("large", tmp_path / "large.weights")
        for name in ("m0", "m1"):
            pool.add(name, folder / f"{name}.weights")
        for name in ("large", "m0", "m1"):
            pool(name, sample())
        counts = pool.statistics()
        assert counts["held_bytes"] <= counts["budget_bytes"]
        assert (counts["evictions"], counts["resident_bytes"]) == (1, 2 * small)
        assert hit(pool, "m0")
        assert not hit(pool, "large")


def test_what_costs_less_to_read_leaves_first(made, monkeypatch):
    """Reads take 9, 8, 7 ... seconds."""
    shrinking = CLOCK.replace("seconds++", "seconds += started++ % 2 ? 10 - started / 2 : 0")
    shrinking = shrinking.replace("time_t seconds", "time_t seconds, started")
    library = pool_core.typed(load_library(shrinking + pool_core.source()))
    monkeypatch.setattr(pool_core, "library", lambda: library)
    folder, _ = made
    with filled(folder, 2 * size(folder)) as pool:
        for name in ("m0", "m1", "m2"):  # m0 was called first
            pool(name, sample())
        assert hit(pool, "m0")
        assert not hit(pool, "m1")


def test_memory_that_becomes_free_is_kept_for_surrogates_of_its_size(made):
    folder, one = made[0], size(made[0])
    with filled(folder, 3 * one) as pool:
        pool("m0", sample()), pool("m1", sample())
        pool.remove("m0")
        counts = pool.statistics()
        assert (counts["resident_bytes"], counts["held_bytes"]) == (one, 2 * one)
        pool("m2", sample())
        counts = pool.statistics()
        assert (counts["resident_bytes"], counts["held_bytes"]) == (2 * one, 2 * one)


@pytest.mark.parametrize(
    "place", ["magic", "length", "json", "weights", "cut", "shape", "key", "deep", "text"]
)
def test_a_damaged_file_is_refused_by_its_name(made, tmp_path, place):
    folder, _ = made
    for file in folder.iterdir():
        shutil.copy(file, tmp_path)
    path = tmp_path / "m1.weights"
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[8:16], "little")
    header = json.loads(data[16 : 16 + length])
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
    elif place in ("deep", "text"):
        about = b"[" * 1_000_000 if place == "deep" else json.dumps(header["about"]).encode()
        about = about.replace(b'"K"', b'"\\K"')  # no escape of JSON
        told = b'{"shell": "%s", "about": %s, "bytes": %d, "crc32": %d}' % (
            *(header["shell"].encode(), about),
            *(header["bytes"], header["crc32"]),
        )
        head = MAGIC + len(told).to_bytes(8, "little") + told
        data = bytearray(head + b"\0" * (-len(head) % 64) + data[-header["bytes"] :])
    else:
        about = header["about"]
        if place == "shape":  # a header that promises larger arrays than the code writes
            about["functions"][0]["outputs"][0]["shape"][1] = 1
        key = "0" * 16 if place == "key" else header["shell"]
        data = bytearray(packed(key, about, bytes(data[-header["bytes"] :])))
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
        assert pool.about("m0")["functions"][0]["inputs"][0]["box"] == [[-5.0, -5.0], [3.0, 3.0]]
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
    pool = filled(folder, 1 << 20, Gated, workers=1)
    first = pool.submit("m1", sample())
    assert pool.entered.wait(60)  # nothing is served while the queue fills
    later = [(f"m{k % 2}", sample(k), pool.submit(f"m{k % 2}", sample(k))) for k in range(20)]
    pool.gate.set()
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
        for number, name in enumerate(order):
            deadline = time.monotonic() + 60
            while pool.statistics()["loads"] <= number and time.monotonic() < deadline:
                time.sleep(0.001)
            pool(name, sample())
        found = pool.statistics()
        assert (found["loads"], found["hits"]) == (5, 5), found
        with pytest.raises(DataError, match="no surrogate"):
            pool.prefetch("m0", "elsewhere")


def test_closing_answers_or_cancels_what_waits_and_a_full_queue_refuses(made):
    folder, _ = made
    for finish in (True, False):
        pool = filled(folder, 1 << 20, Gated, workers=1, queue=5)
        first = pool.submit("m0", sample())
        assert pool.entered.wait(60)
        later = [pool.submit("m1", sample()) for _ in range(5)]
        with pytest.raises(BackendError, match="5 requests wait"):
            pool.submit("m2", sample())
        closer = threading.Thread(target=pool.close, kwargs={"finish": finish})
        closer.start()
        while not pool._closed:
            time.sleep(0.001)
        pool.gate.set()
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


def test_an_interrupt_leaves_no_surrogate_in_use(made):
    """Removing one waits until no call uses it; interrupts come at any place of a call."""
    folder, _ = made
    handler = signal.getsignal(signal.SIGALRM)

    def interrupt(*_) -> None:
        raise KeyboardInterrupt

    pool = filled(folder, 2 * size(folder))
    interrupted, many = 0, sample(rows=500)
    gc.collect()
    gc.disable()  # an exception in a finaliser is ignored
    signal.signal(signal.SIGALRM, interrupt)
    try:
        for k in range(200):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + 7 * k % 400))
                for _ in range(500):
                    pool(f"m{k % COUNT}", many)
            except KeyboardInterrupt:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        gc.enable()
    assert interrupted == 200
    for name in pool.names():
        remover = threading.Thread(target=pool.remove, args=(name,), daemon=True)
        remover.start()
        remover.join(60)
        assert not remover.is_alive()
    pool.close()


def test_calls_outlive_names_and_arrays_never_reach_another_surrogate(made, tmp_path):
    """A name is removed and given to a surrogate with larger arrays while threads call it."""
    folder, networks = made
    x, y = ArraySpec("x", ("level",), (7,)), ArraySpec("y", ("level",), (5000,))
    export([TracedFunction(nn.Linear(7, 5000).eval(), [x], [y])], tmp_path / "wide.weights")
    done, wrong = threading.Event(), []

    def call() -> None:
        while not done.is_set():
            try:
                (answer,), _ = pool("m0", sample())
            except DataError:
                continue
            if answer.shape == (3, 5):
                right = np.allclose(answer, truth(networks["m0"], sample()), rtol=2e-6, atol=2e-6)
                wrong.extend([] if right else [answer])

    with Pool(1 << 20) as pool:
        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        for k in range(60):
            pool.add("m0", (tmp_path / "wide.weights", folder / "m0.weights")[k % 2])
            time.sleep(0.001)
            pool.remove("m0")
        done.set()
        for thread in threads:
            thread.join()
        assert not pool.names()
    assert not wrong


def test_memory_is_freed_when_the_last_reference_is_gone_and_no_earlier(made, monkeypatch):
    folder, _ = made
    core, freed = pool_core.library(), []
    call, free = core.stk_pool_call, core.stk_pool_free
    gate, entered = threading.Event(), threading.Event()

    def slow(*arguments):
        entered.set()
        assert gate.wait(60)
        return call(*arguments)

    one = size(folder)
    monkeypatch.setattr(core, "stk_pool_free", lambda pool: freed.append(free(pool)))
    monkeypatch.setattr(core, "stk_pool_call", slow)
    with filled(folder, 2 * one) as pool:
        caller = threading.Thread(target=pool, args=("m0", sample()))
        caller.start()
        assert entered.wait(60)
    assert pool.statistics()["models"] == COUNT
    del pool
    gc.collect()
    assert not freed
    gate.set()
    caller.join(60)
    gc.collect()
    assert len(freed) == 1


def test_the_child_of_a_fork_calls_and_frees_a_pool_that_reads_ahead(made):
    folder, networks = made
    with filled(folder, 2 * size(folder)) as pool:
        pool.prefetch("m0", "m1", "m2")  # m2 does not fit: the thread that reads ahead waits
        deadline = time.monotonic() + 60
        while pool.statistics()["loads"] < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        child = os.fork()
        if not child:
            try:
                for name in (*networks, *networks):
                    pool(name, sample())
                del pool
                gc.collect()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert pool("m2", sample())
