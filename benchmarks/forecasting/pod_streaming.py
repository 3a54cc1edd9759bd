"""POD of a file larger than memory, compared with numpy's full SVD of the same matrix.

The file has the shape of weekly NOAA OISST: 1914 weeks, 44219 ocean cells, float32 in chunks of 64
weeks. Its leading part is real if `shared/data/forecast` is available (the published POD
coefficients of all 1914 weeks); otherwise an annual cycle and red noise of the same variances.
Patterns are smooth and orthogonal; 60 further modes of decreasing variance and small-scale noise
are added, together about the 0.77 degC residual of five modes in the real data. The ten times
longer file repeats the snapshots; all of it is written and read.

Each fit runs in a fresh process, which reports the growth of its peak resident memory.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from _places import SHARED

TIMES, CELLS, CHUNK, RANK = 1914, 44219, 64, 5
MAX_MEMORY = "64MiB"
# The certified bound goes as the root of the estimate: this certifies the first five to 1e-3.
TOLERANCE = 5e-7
COEFFICIENTS = SHARED / "data" / "forecast" / "sc20_noaa_oisst_pod_coefficients.h5"
ONE_THREAD = {k: "1" for k in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


def run() -> dict:
    """Measure memory, speed and agreement; raises when the singular values do not agree."""
    with tempfile.TemporaryDirectory() as folder:
        if shutil.disk_usage(folder).free < 6e9:
            raise RuntimeError(f"{folder} needs 6 GB of free disk; set TMPDIR")
        source = write_fields(Path(folder) / "weekly.nc", 1)
        path, longer = Path(folder) / "weekly.nc", Path(folder) / "longer.nc"
        first = child("fit", path)
        numpy_svd = child("numpy", path)
        fits = [first, child("fit", path), child("fit", path)]
        two_ranks = child("ranks", path)
        figures = {"data": source, "max_memory": MAX_MEMORY, "rank": RANK, "tolerance": TOLERANCE}
        figures |= compare(fits, numpy_svd, two_ranks)
        write_fields(longer, 10)
        tenfold = child("fit", longer)
        check(
            "singular values of the repeated file",
            tenfold["sigma"],
            np.array(first["sigma"]) * 10**0.5,
            1e-3,
        )
        growth = statistics.median(f["rss_growth_mib"] for f in fits)
        return figures | {
            "file_mb": path.stat().st_size / 1e6,
            "file_10x_mb": longer.stat().st_size / 1e6,
            "peak_rss_growth_mib": growth,
            "peak_rss_growth_10x_mib": tenfold["rss_growth_mib"],
            "peak_rss_growth_ratio_10x": tenfold["rss_growth_mib"] / growth,
            "wall_seconds_10x": tenfold["wall"],
            "cpu_seconds_10x": tenfold["cpu"],
        }


def compare(fits: list[dict], peer: dict, two_ranks: dict) -> dict:
    """Return agreement and speed; the agreement is checked first."""
    error = check("singular values against numpy's", fits[0]["sigma"], peer["sigma"], 1e-3)
    ranks = check("two processes against one", two_ranks["sigma"], fits[0]["sigma"], 1e-6)
    cpu = statistics.median(f["cpu"] for f in fits)
    wall = statistics.median(f["wall"] for f in fits)
    return {
        "sigma_relative_error": error,
        "sigma_error_estimate": max(fits[0]["estimate"]),
        "sigma_error_bound": max(fits[0]["bound"]),
        "ranks_relative_difference": ranks,
        "ranks_equal": ranks <= 1e-6,
        "speedup_vs_numpy_svd": peer["cpu"] / cpu,
        "speedup_vs_numpy_svd_wall": peer["wall"] / wall,
        "cpu_seconds": cpu,
        "wall_seconds_fit": wall,
        "numpy_cpu_seconds": peer["cpu"],
        "numpy_wall_seconds": peer["wall"],
        "numpy_dtype": "float32",
        "numpy_rss_growth_mib": peer["rss_growth_mib"],
        "passes": fits[0]["passes"],
        "threads": 1,
    }


def check(what: str, ours: list, theirs: list | np.ndarray, bar: float) -> float:
    error = float(np.max(np.abs(np.array(ours) / np.array(theirs) - 1)))
    if not error <= bar:
        raise RuntimeError(f"{what} differ by {error:.2e}, more than {bar:.0e}")
    return error


def real_coefficients() -> np.ndarray | None:
    import h5py

    if not COEFFICIENTS.exists():
        return None
    with h5py.File(COEFFICIENTS) as file:
        return np.concatenate([file["train"][:], file["test"][:]])


def made_coefficients(random: np.random.Generator) -> np.ndarray:
    """An annual cycle and four red series with the variances of the real ones."""
    variances = 3.16 * CELLS * np.array([0.906, 0.037, 0.033, 0.016, 0.008])
    series = red_noise(random, 5, 0.97)
    series[:, 0] = np.sin(2 * np.pi * np.arange(TIMES) / 52.18)
    return series / series.std(axis=0) * np.sqrt(variances)


def red_noise(random: np.random.Generator, count: int, memory: float) -> np.ndarray:
    series = random.standard_normal((TIMES, count))
    for step in range(1, TIMES):
        series[step] += memory * series[step - 1]
    return series


def write_fields(path: Path, repeats: int) -> str:
    """Write the file block by block; the source of the coefficients is returned."""
    import h5py

    random = np.random.default_rng(0)
    leading = real_coefficients()
    source = "made-up coefficients" if leading is None else "published coefficients"
    leading = made_coefficients(random) if leading is None else leading
    if repeats > 1:
        return _repeat(path.with_name("weekly.nc"), path, repeats)
    tail = red_noise(random, 60, 0.9)
    # Variances fall as 1 / k^1.5 from below the fifth mode; the rest of 0.77^2 is noise.
    share = 1.0 / np.arange(6, 66) ** 1.5
    tail *= np.sqrt(0.4 * share / share.sum() * CELLS) / tail.std(axis=0)
    patterns = np.linalg.qr(smooth_patterns(random, leading.shape[1] + tail.shape[1]))[0]
    series = np.hstack([leading, tail])
    mean = (15 + 10 * np.cos(np.linspace(0, np.pi, CELLS))).astype(np.float32)
    with h5py.File(path, "w") as file:
        data = _create(file, TIMES)
        for start in range(0, TIMES, CHUNK):
            block = (series[start : start + CHUNK] @ patterns.T).astype(np.float32) + mean
            block += 0.4 * random.standard_normal(block.shape, dtype=np.float32)
            data[start : start + CHUNK] = block
    return source


def smooth_patterns(random: np.random.Generator, count: int) -> np.ndarray:
    waves = np.zeros((CELLS, count))
    x = np.linspace(0, 1, CELLS)[:, None]
    for frequency in range(1, 40):
        waves += (
            random.standard_normal(count)
            / frequency
            * np.cos(np.pi * frequency * x + 2 * np.pi * random.random(count))
        )
    return waves + 0.05 * random.standard_normal(waves.shape)


def _repeat(source: Path, path: Path, repeats: int) -> str:
    import h5py

    with h5py.File(source) as base, h5py.File(path, "w") as file:
        data = _create(file, TIMES * repeats)
        for start in range(0, TIMES * repeats, CHUNK):
            rows = np.arange(start, min(start + CHUNK, TIMES * repeats)) % TIMES
            cut = int((np.diff(rows) < 0).argmax()) + 1 if rows[-1] < rows[0] else len(rows)
            parts = [base["sst"][r[0] : r[-1] + 1] for r in (rows[:cut], rows[cut:]) if len(r)]
            data[start : start + CHUNK] = np.concatenate(parts)
    return "repeated"


def _create(file, times: int):
    """Create the variable with the dimension scales that make an HDF5 file NetCDF-4."""
    data = file.create_dataset("sst", (times, CELLS), "f4", chunks=(CHUNK, CELLS))
    data.attrs["units"] = "degC"
    for axis, (name, size) in enumerate((("time", times), ("cell", CELLS))):
        file[name] = np.arange(size, dtype=np.float64)
        file[name].make_scale(name)
        data.dims[axis].attach_scale(file[name])
    return data


def child(task: str, path: Path) -> dict:
    command = [sys.executable, __file__, task, str(path)]
    done = subprocess.run(
        command, env=os.environ | ONE_THREAD, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{task} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def fit(path: str, group=None) -> dict:
    import xarray as xr

    from scitoolkit.forecasting.pod import POD

    with xr.open_dataset(path, engine="h5netcdf") as data, Measured() as measured:
        pod = POD(RANK, area_weights=False, max_memory=MAX_MEMORY, tolerance=TOLERANCE).fit(
            data["sst"], process_group=group
        )
    if pod.method_ != "randomized":
        raise RuntimeError(f"expected streaming, got {pod.method_}")
    return measured.figures | {
        "sigma": pod.singular_values_.tolist(),
        "estimate": pod.error_estimate_.tolist(),
        "bound": pod.error_bound_.tolist(),
        "passes": pod.num_passes_,
    }


def numpy_svd(path: str) -> dict:
    """The peer: its matrix is loaded and its mean removed before the clock starts."""
    import h5py

    with h5py.File(path) as file:
        matrix = file["sst"][:]
    matrix -= matrix.mean(axis=0, dtype=np.float64).astype(np.float32)
    with Measured() as measured:
        values = np.linalg.svd(matrix, full_matrices=False)[1]
    return measured.figures | {"sigma": values[:RANK].astype(float).tolist()}


def two_ranks(path: str) -> dict:
    import torch.multiprocessing as mp

    folder = tempfile.mkdtemp()
    mp.spawn(_rank, (path, folder), nprocs=2)
    found = [json.loads((Path(folder) / f"{r}.json").read_text()) for r in range(2)]
    shutil.rmtree(folder)
    check("the two processes", found[0]["sigma"], found[1]["sigma"], 0.0)
    return found[0]


def _rank(rank: int, path: str, folder: str) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    Path(folder, f"{rank}.json").write_text(json.dumps(fit(path, dist.group.WORLD)))
    dist.destroy_process_group()


class Measured:
    """CPU and wall seconds, and the growth of the largest resident memory, of a block."""

    def __enter__(self) -> Measured:
        import time

        # Forgets the peak of the imports, where the kernel lets it; growth is from here.
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            pass
        self.rss, self.clock = memory("VmRSS"), (time.process_time(), time.perf_counter())
        return self

    def __exit__(self, *_) -> None:
        import time

        cpu, wall = time.process_time() - self.clock[0], time.perf_counter() - self.clock[1]
        growth = (memory("VmHWM") - self.rss) / 1024
        self.figures = {"cpu": cpu, "wall": wall, "rss_growth_mib": growth}


def memory(key: str) -> int:
    """Return a line of /proc/self/status in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"no {key} in /proc/self/status: this benchmark needs Linux")


if __name__ == "__main__":
    tasks = {"fit": fit, "numpy": numpy_svd, "ranks": two_ranks}
    print(json.dumps(tasks[sys.argv[1]](sys.argv[2])))
