"""MB/s, memory and random access of compression at a bound of 1e-3 of the range, one core.

The field is the shipped turbulence, mirrored four times along each axis (256³ float32, 67 MB). MB/s
count the array through `compress` and `decompress`, including selection of the codec, checks and
header, in CPU time with one thread; the bound is checked at every point first. SZ3's MB/s and bytes
are its best of four shares of the bound. A gigabyte is written as .npy, compressed by
`compress_file` in a fresh process, and chunks of 64³ points are read from the resulting file. Two
processes compress one half each at the same time.
"""

from __future__ import annotations

import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _places import ROOT

REL, SHARES = 1e-3, (1.0, 0.97, 0.94, 0.9)
CHUNK, TRIES = 64, 9


def mirrored(times: int) -> np.ndarray:
    """Return the shipped turbulence, mirrored at its faces: continuous, and as rough anywhere."""
    x = np.load(ROOT / "datasets/turbulence_sperr/wmag_64.npy")
    for axis in range(3):
        x = np.concatenate([x, np.flip(x, axis)] * (times // 2), axis=axis)
    return np.ascontiguousarray(x)


def rates(x: np.ndarray, objective: str, rounds: int) -> tuple[float, float, int]:
    """Return MB/s in and out (medians of CPU time) and bytes."""
    from scitoolkit.compression import compress, decompress

    megabytes, spent = x.nbytes / 1e6, []
    bound = REL * (float(x.max()) - float(x.min()))
    for _ in range(rounds):
        start = time.process_time()
        stream = compress(x, rel=REL, objective=objective)
        between = time.process_time()
        back = decompress(stream)
        spent.append((between - start, time.process_time() - between))
        if np.abs(x.astype(np.float64) - back).max() > bound:
            raise AssertionError("the bound is broken")
    into, out = (megabytes / statistics.median(column) for column in zip(*spent, strict=True))
    return into, out, len(stream)


def over_sz3() -> dict[str, float]:
    """Return our bytes over SZ3's for each field that is large enough for speed to matter."""
    from compression_size import fresh, shipped

    from scitoolkit.compression import compress
    from scitoolkit.compression.codecs import codecs

    found, sz3 = {}, codecs.get("sz3")()
    for name, x in [*shipped(), *fresh(), ("turbulence_256", mirrored(4))]:
        if x.size >= CHUNK**3:
            bound = REL * (float(x.max()) - float(x.min()))
            least = min(len(sz3.encode(x, bound * share)) for share in SHARES)
            found[name] = len(compress(x, rel=REL, objective="speed")) / least
    return found


def half() -> None:
    """Compress one half after a start signal, as one of two processes."""
    from scitoolkit.compression import compress

    x = mirrored(2)
    compress(x[:64], rel=REL)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.process_time()
        compress(x, rel=REL, codec="interpolation")
        print(time.process_time() - start, flush=True)


def scaling(rounds: int = 3) -> dict[str, float]:
    """Return the seconds of two halves in sequence over those of both at the same time.

    In wall time, which includes other load on the machine, and in CPU time, which includes only the
    contention of the two processes for caches and memory.
    """
    command = [sys.executable, __file__, "half"]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for worker in workers:
        worker.stdout.readline()

    def run(some: list[subprocess.Popen]) -> np.ndarray:
        start = time.perf_counter()
        for worker in some:
            worker.stdin.write("\n")
            worker.stdin.flush()
        spent = max(float(worker.stdout.readline()) for worker in some)
        return np.array([spent, time.perf_counter() - start])

    alone, both = [], []
    for _ in range(rounds):
        alone.append(run(workers[:1]) + run(workers[1:]))
        both.append(run(workers))
    for worker in workers:
        worker.stdin.close()
        worker.wait()
    cpu, clock = np.median(alone, axis=0) / np.median(both, axis=0)
    return {"two_process_scaling": float(clock), "two_process_scaling_in_cpu_time": float(cpu)}


def gigabyte(source: str, target: str) -> None:
    """Compress a file in this process and print the peak of its memory in MiB."""
    from _measure import memory_mib

    from scitoolkit.compression import Bound, Options
    from scitoolkit.compression.files import FilePlan, compress_file

    plan = FilePlan(Bound("rel", REL), {}, Options(objective="speed"))
    start = time.process_time()
    compress_file(source, target, plan)
    print(json.dumps({"rss": memory_mib(), "seconds": time.process_time() - start}))


def large() -> dict[str, float]:
    """Return memory and MB/s of a gigabyte, and milliseconds to read a chunk of it."""
    from scitoolkit.compression import decompress_region

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "x.npy", Path(folder) / "x.sci"
        tile = mirrored(4)
        x = np.lib.format.open_memmap(source, "w+", "<f4", (1024, 512, 512))
        for z in range(0, 1024, 256):
            x[z : z + 256] = np.tile(tile, (1, 2, 2))
        del x
        command = [sys.executable, __file__, "gigabyte", str(source), str(target)]
        told = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(told.stdout.splitlines()[-1])
        size, spent = source.stat().st_size, []
        x = np.load(source, mmap_mode="r")
        bound = REL * (float(tile.max()) - float(tile.min()))
        with target.open("rb") as file:
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            for i in range(TRIES):
                places = [(5 * i + 3) % 16, (3 * i + 1) % 8, (7 * i + 2) % 8]
                where = tuple(slice(CHUNK * p, CHUNK * (p + 1)) for p in places)
                start = time.perf_counter()
                part = decompress_region(view, *where)
                spent.append(time.perf_counter() - start)
                if np.abs(part.astype(np.float64) - x[where]).max() > bound:
                    raise AssertionError("the bound is broken")
    return {
        "rss_1gb_mib": found["rss"],
        "mbps_1gb": size / 1e6 / found["seconds"],
        "random_access_ms": 1e3 * statistics.median(spent),
        "random_access_ms_largest": 1e3 * max(spent),
    }


def run() -> dict:
    """Return all figures; see the module docstring."""
    from _measure import machine

    from scitoolkit.compression.codecs import codecs

    os.environ["OMP_NUM_THREADS"] = "1"
    x, sz3 = mirrored(4), codecs.get("sz3")()
    rates(x[:64], "speed", 1)  # compile
    speed = rates(x, "speed", 5)
    size = rates(x, "size", 2)
    bound = REL * (float(x.max()) - float(x.min()))
    start = time.process_time()
    packed = sz3.encode(x, bound)
    between = time.process_time()
    sz3.decode(packed, x.shape, x.dtype, bound)
    peer = between - start, time.process_time() - between
    ratios = over_sz3()
    return {
        "size_mbps_in": size[0],
        "size_mbps_out": size[1],
        "speed_mbps_in": speed[0],
        "speed_mbps_out": speed[1],
        "speed_size_over_sz3": max(ratios.values()),
        **scaling(),
        **large(),
        "sz3_mbps_in": x.nbytes / 1e6 / peer[0],
        "sz3_mbps_out": x.nbytes / 1e6 / peer[1],
        "size_bytes": size[2],
        "speed_bytes": speed[2],
        "sz3_bytes": len(packed),
        "over_sz3": ratios,
        "machine": machine(),
    }


if __name__ == "__main__":
    {"half": half, "gigabyte": gigabyte}[sys.argv[1]](*sys.argv[2:])
