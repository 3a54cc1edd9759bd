"""Two hundred surrogates under 100 MiB: `deploy.Pool` compared with LRU caches over `torch.load`.

Networks 60-1200-1200-60 of 6 MiB each, requests of one sample drawn by Zipf's law (exponent 1), two
threads, the same requests for all, the files in the page cache. Peers hold the same number of bytes
of weights: one loads a state dict and copies it into a module, as is common; the other maps the
file and assigns the tensors to a module without memory (`torch.load(mmap=True)`, `assign=True`).
`pool_speedup` is against the first, `pool_speedup_mapped` against the second, in CPU time.

`pool_p99_ratio` is the 99th percentile of the wall time of a call whose surrogate is in memory,
over the median of calls to the same code with all weights resident, from as many threads. `lost`
and `wrong` count 10,000 requests, from four threads, while files disappear, return and are damaged,
and some requests are for missing surrogates or contain NaN.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from _measure import alternate, machine, medians, memory_mib
from torch import nn

from scitoolkit.core.errors import CheckpointError, DataError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import Pool, pool_core
from scitoolkit.deploy.export import export
from scitoolkit.ops.codegen import load_library

MODELS, BUDGET, WIDTH, ROUNDS = 200, 100 << 20, 1200, 5
REQUESTS, HOSTILE = 1000, 10_000
# A call that reads its surrogate takes the time; one that awaits memory or another's read waits.
NOTED = """
#define _XOPEN_SOURCE 700
#include <pthread.h>
#include <time.h>
static _Thread_local int missed;
int take_missed(void) {
  const int before = missed;
  missed = 0;
  return before;
}
static int noted_time(clockid_t clock, struct timespec *now) {
  missed = 1;
  return clock_gettime(clock, now);
}
static int noted_wait(pthread_cond_t *condition, pthread_mutex_t *lock) {
  missed = 1;
  return pthread_cond_wait(condition, lock);
}
#define clock_gettime noted_time
#define pthread_cond_wait noted_wait
"""
COLUMN = ArraySpec("column", ("level",), (60,), low=-6.0, high=6.0)


def run() -> dict:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        expected = make(folder)
        speed = race(folder, expected)
        latency = latencies(folder)
        command = [sys.executable, __file__, str(folder)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return {**speed, **latency, **json.loads(told), **hostile(folder, expected), **machine()}


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(60, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 60)
    ).eval()


def given(model: int) -> np.ndarray:
    return np.random.default_rng(model).normal(size=(1, 60)).clip(-6, 6).astype(np.float32)


def make(folder: Path) -> np.ndarray:
    """Write all surrogates for both sides, and return the output of each for its input."""
    expected = np.empty((MODELS, 60), np.float32)
    for number in range(MODELS):
        torch.manual_seed(number)
        model = network()
        export([TracedFunction(model, [COLUMN], [COLUMN])], folder / f"m{number}.weights")
        torch.save(model.state_dict(), folder / f"m{number}.pt")
        with torch.no_grad():
            expected[number] = model(torch.from_numpy(given(number)))[0].numpy()
    return expected


def zipf(count: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    chance = 1 / np.arange(1, MODELS + 1)
    order = np.random.default_rng(0).permutation(MODELS)
    return order[random.choice(MODELS, count, p=chance / chance.sum())]


def pool_of(folder: Path, budget: int = BUDGET, **options) -> Pool:
    pool = Pool(budget, **options)
    for number in range(MODELS):
        pool.add(f"m{number}", folder / f"m{number}.weights")
    return pool


class Cache:
    """A least-recently-used cache of modules under a budget of bytes, for several threads."""

    def __init__(self, folder: Path, load: Callable[[Path], nn.Module]) -> None:
        self.folder, self.load, self.lock = folder, load, threading.Lock()
        self.held: OrderedDict[int, tuple[nn.Module, int]] = OrderedDict()
        self.bytes = 0

    def __call__(self, number: int, x: np.ndarray) -> np.ndarray:
        with self.lock:
            if number in self.held:
                self.held.move_to_end(number)
                model = self.held[number][0]
            else:
                model = None
        if model is None:
            model = self.load(self.folder / f"m{number}.pt")
            size = sum(p.nbytes for p in model.parameters())
            with self.lock:
                if number not in self.held:
                    while self.held and self.bytes + size > BUDGET:
                        self.bytes -= self.held.popitem(last=False)[1][1]
                    self.held[number] = (model, size)
                    self.bytes += size
        with torch.inference_mode():
            return model(torch.from_numpy(x)).numpy()


def plain(path: Path) -> nn.Module:
    model = network()
    model.load_state_dict(torch.load(path))
    return model


def mapped(path: Path) -> nn.Module:
    with torch.device("meta"):
        model = network()
    model.load_state_dict(torch.load(path, mmap=True), assign=True)
    return model


def in_threads(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def race(folder: Path, expected: np.ndarray) -> dict:
    pool = pool_of(folder)
    callers = {
        "pool": lambda number, x: pool(f"m{number}", x)[0][0],
        "mapped": Cache(folder, mapped),
        "plain": Cache(folder, plain),
    }
    inputs = [given(number) for number in range(MODELS)]
    sequences = [zipf(REQUESTS // 2, seed) for seed in range(2)]

    def serve(call) -> Callable[[], None]:
        def work(thread: int) -> None:
            for number in sequences[thread]:
                found = call(int(number), inputs[number])
                if not np.allclose(found, expected[number], atol=1e-5):
                    raise RuntimeError(f"model {number} gave another model's answer")

        return lambda: in_threads(work, 2)

    contestants = {name: serve(call) for name, call in callers.items()}
    alternate(contestants, 1)  # caches filled
    before = pool.statistics()
    seconds = medians(alternate(contestants, ROUNDS))
    after = pool.statistics()
    pool.close()
    return {
        "pool_speedup": seconds["plain"] / seconds["pool"],
        "pool_speedup_mapped": seconds["mapped"] / seconds["pool"],
        **{f"ms_per_request_{k}": 1e3 * v / REQUESTS for k, v in seconds.items()},
        "hit_share": (after["hits"] - before["hits"]) / (after["calls"] - before["calls"]),
        "bytes_of_a_model": sum(p.nbytes for p in network().parameters()),
    }


def latencies(folder: Path) -> dict:
    """Time calls that find their surrogate in memory, and calls with all weights resident."""
    found: dict[str, list[float]] = {"hit": [], "resident": []}
    library, core = pool_core.library, load_library(NOTED + pool_core.source())
    pool_core.library = lambda: pool_core.typed(core)
    pools = {"hit": pool_of(folder), "resident": pool_of(folder, 2 * MODELS * (6 << 20))}
    pool_core.library = library
    inputs = [given(number) for number in range(MODELS)]
    for number in range(MODELS):
        pools["resident"](f"m{number}", inputs[number])
    for round_ in range(2 * ROUNDS):
        kind = ("hit", "resident")[round_ % 2]
        pool = pools[kind]

        def work(thread: int, pool=pool, kind=kind, round_=round_) -> None:
            for number in zipf(REQUESTS // 2, 10 + 2 * round_ + thread):
                core.take_missed()
                start = time.perf_counter()
                pool(f"m{number}", inputs[number])
                seconds = time.perf_counter() - start
                if not core.take_missed():
                    found[kind].append(seconds)

        in_threads(work, 2)
    for pool in pools.values():
        pool.close()
    resident = float(np.median(found["resident"]))
    return {
        "pool_p99_ratio": float(np.quantile(found["hit"], 0.99)) / resident,
        "resident_p99_ratio": float(np.quantile(found["resident"], 0.99)) / resident,
        "hit_us": 1e6 * float(np.median(found["hit"])),
        "resident_us": 1e6 * resident,
    }


def memory(folder: Path) -> dict:
    """Measure the growth of a process that serves requests, over the budget."""
    pool = pool_of(folder)
    before = memory_mib("VmRSS")

    def work(thread: int) -> None:
        for number in zipf(REQUESTS, 100 + thread):
            pool(f"m{number}", given(int(number)))

    in_threads(work, 2)
    return {"pool_bytes_ratio": (memory_mib() - before) * (1 << 20) / BUDGET}


def hostile(folder: Path, expected: np.ndarray) -> dict:
    """Send requests while files disappear and are damaged; count the incorrect answers."""
    pool, done = pool_of(folder, workers=2), threading.Event()
    counts = {"lost": 0, "wrong": 0, "answered": 0, "refused": 0}
    lock, touched = threading.Lock(), set(range(0, MODELS, 5))

    def work(thread: int) -> None:
        random = np.random.default_rng(thread)
        for number in zipf(HOSTILE // 4, 1000 + thread):
            verdict = request(pool, int(number), expected, random, touched)
            with lock:
                counts[verdict] += 1

    def sabotage() -> None:
        random = np.random.default_rng(99)
        while not done.is_set():
            path = folder / f"m{random.choice(sorted(touched))}.weights"
            data = path.read_bytes()
            if random.random() < 0.5:
                path.unlink()
            else:
                with path.open("r+b") as file:
                    file.seek(int(random.integers(len(data) // 2, len(data))))
                    file.write(b"\xff\x00\xff\x00")
            done.wait(0.01)
            (folder / "whole").write_bytes(data)
            (folder / "whole").replace(path)
            done.wait(0.01)

    saboteur = threading.Thread(target=sabotage)
    saboteur.start()
    in_threads(work, 4)
    done.set()
    saboteur.join()
    statistics = pool.statistics()
    pool.close()
    counts["lost"] += HOSTILE - sum(counts.values())
    return {
        "lost": counts["lost"],
        "wrong": counts["wrong"],
        "refused": counts["refused"],
        "failed_reads": statistics["failures"],
    }


def request(pool: Pool, number: int, expected, random, touched: set[int]) -> str:
    """Return the outcome of a request: correct (`answered`, `refused`) or not (`lost`, `wrong`)."""
    kind = random.choice(
        ["call", "submit", "unknown", "nan", "shape"], p=[0.46, 0.46, *[0.08 / 3] * 3]
    )
    x = given(number)
    try:
        if kind == "unknown":
            pool(f"n{number}", x)
            return "wrong"
        if kind == "shape":
            pool.submit(f"m{number}", x[:, :7])
            return "wrong"
        if kind == "nan":
            x[0, 3] = np.nan
        if kind == "submit":
            (y,), status = pool.submit(f"m{number}", x).result(timeout=120)
        else:
            (y,), status = pool(f"m{number}", x)
    except CheckpointError as error:
        return "refused" if number in touched and f"m{number}.weights" in str(error) else "lost"
    except DataError:
        return "refused" if kind in ("unknown", "shape") else "lost"
    except Exception:
        return "lost"
    if kind == "nan":
        return "answered" if status[0] == 2 else "wrong"
    return "answered" if np.allclose(y[0], expected[number], atol=1e-5) else "wrong"


if __name__ == "__main__":
    print(json.dumps(memory(Path(sys.argv[1]))))
