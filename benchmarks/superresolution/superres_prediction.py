"""Prediction streamed to file: memory, agreement with the direct query, points per second.

`surrogates/rayleigh_benard_mfn` refines 4 x 8 x 32 nodes of seed 43 to 64 x 512 x 2048 nodes of
four fields, float32, in a separate process on one thread. Growth is the peak resident memory while
streaming, minus that before it, with the model loaded and queried at one point. The file must equal
direct queries along random rows to 1e-6, otherwise nothing else is printed.

The shipped model averages over 4 mirror images of its input, so the full size would take 15
CPU-minutes: it is streamed from one image (`model.average: false`), and the shipped model at the
full width, 512 x 2048, for one frame. The growth of both is printed, labelled.
SUPERRES_FRAMES=N streams N frames of the full width instead of 64, which the figures record.

Points per second are in CPU time, writing included. `original` is the published evaluation path:
its ImNet (209,924 parameters), and with every query all four residuals by 25 calls of
`torch.autograd.grad`, as in its `evaluation.py` (rebuilt from its description, see `_pde_engines`;
its parameters are frozen here, which can only speed it up). `imnet` is the same decoder with our
query, which computes derivatives on request: `imnet_residuals`.
"""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from _measure import alternate, machine, medians, memory_mib
from _places import ROOT

SURROGATE = ROOT / "surrogates" / "rayleigh_benard_mfn"
DATA = ROOT / "datasets" / "rayleigh_benard" / "rb2d_ra1e6_pr1_s43_t20-23.75.h5"
FRAMES = 64
SIZES = {
    "one_image": (
        (4, 64, 512),
        (4, 256, 1024),
        (int(os.environ.get("SUPERRES_FRAMES", FRAMES)), 512, 2048),
    ),
    "shipped": ((1, 64, 512), (1, 512, 2048)),
}
"""Output sizes, of which the cost per point is compared; the last one's memory is measured."""
SAMPLE, AGREEMENT_BAR = 200_000, 1e-6
ORIGINAL_POINTS, OUR_POINTS, ROUNDS = 1024, 8192, 3


def run() -> dict:
    """Stream in a child process, compare with direct queries, time the original's path."""
    with tempfile.TemporaryDirectory() as folder:
        done = {name: child(Path(folder) / "fine.nc", name) for name in SIZES}
    for name, found in done.items():
        if not found["difference"] <= AGREEMENT_BAR:
            raise SystemExit(f"{name} differs from the query by {found['difference']:.1e}")
    torch.set_num_threads(1)
    full, shipped = done["one_image"], done["shipped"]
    streamed = {name: f["points"][-1] / f["seconds"][-1] for name, f in done.items()}
    rates = {**streamed, **decoders()}
    micro = [1e6 * s / p for s, p in zip(full["seconds"], full["points"], strict=True)]
    return {
        "growth_mib": full["growth_mib"],
        "output_mib": full["points"][-1] * 4 * 4 / 2**20,
        "output_shape": list(SIZES["one_image"][-1]),
        "frames": SIZES["one_image"][-1][0],
        "frames_of_the_full_size": FRAMES,
        "mirror_images_streamed": 1,
        "shipped_growth_mib": shipped["growth_mib"],
        "shipped_output_shape": list(SIZES["shipped"][-1]),
        "shipped_mirror_images": 4,
        "difference_from_query": max(f["difference"] for f in done.values()),
        "points_compared": SAMPLE,
        "speedup_vs_original": rates["shipped"] / rates["original"],
        "speedup_vs_original_one_image": rates["one_image"] / rates["original"],
        "speedup_vs_original_same_decoder": rates["imnet"] / rates["original"],
        "speedup_vs_original_same_decoder_with_residuals": (
            rates["imnet_residuals"] / rates["original"]
        ),
        "points_per_second": rates,
        "microseconds_per_point": dict(zip(map(str, full["points"]), micro, strict=True)),
        "cost_per_point_max_over_min": max(micro) / min(micro),
        "stream_cpu_seconds": full["seconds"][-1],
        "machine": machine(),
    }


def decoders() -> dict[str, float]:
    """Return points per second of the paper's decoder, by the original's path and by ours."""
    import _pde_engines as engines

    few, many = (problem(engines, n) for n in (ORIGINAL_POINTS, OUR_POINTS))
    with torch.no_grad():
        grids = {p: p.model.encode(p.low, p.nodes) for p in (few, many)}

    def ours(name: str) -> None:
        with torch.no_grad():
            getattr(many, name)(grids[many])

    seconds = medians(
        alternate(
            {
                "original": lambda: few.original(grids[few]),
                "imnet": lambda: ours("none"),
                "imnet_residuals": lambda: ours("ours"),
            },
            ROUNDS,
        )
    )
    return {
        name: (ORIGINAL_POINTS if name == "original" else OUR_POINTS) / s
        for name, s in seconds.items()
    }


def problem(engines, points: int):
    """Return the paper's model with a number of random query points."""
    made = engines.Problem(1)
    made.model.requires_grad_(False)
    made.points = torch.rand(1, points, 3)
    return made


def child(output: Path, name: str) -> dict:
    command = [sys.executable, __file__, str(output), name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout)


def measure(output: Path, name: str) -> dict:
    """Stream all sizes, the largest one last, and compare it with direct queries."""
    from scitoolkit.superresolution import stream

    torch.set_num_threads(1)
    coarse = opened_coarse(average=name == "shipped")
    coarse.query(np.array([[n[0] for n in coarse.grid.nodes]]))
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    before = memory_mib("VmRSS")
    points, seconds = [], []
    for shape in SIZES[name]:
        start = time.process_time()
        stream(coarse, nodes_of(coarse, shape), output)
        seconds.append(time.process_time() - start)
        points.append(math.prod(shape))
    growth = memory_mib("VmHWM") - before
    return {
        "growth_mib": growth,
        "points": points,
        "seconds": seconds,
        "difference": difference(coarse, output),
    }


def opened_coarse(average: bool):
    """Return the coarse nodes of the test simulation with the shipped model, averaged or not."""
    from scitoolkit.core.model_folder import ModelFolder
    from scitoolkit.superresolution import SuperresolutionSurrogate
    from scitoolkit.superresolution.config import SuperresolutionConfig
    from scitoolkit.superresolution.evaluation import Case
    from scitoolkit.superresolution.simulations import open_simulations

    model = ModelFolder(SURROGATE)
    config = model.config(SuperresolutionConfig)
    surrogate = SuperresolutionSurrogate.load(model.path)
    dataset = open_simulations(DATA, config.data).dataset(0)
    case = Case.of(surrogate, dataset, DATA.name)
    surrogate.config = surrogate.config.model_copy(update={"average": average})
    return surrogate.coarse(case.coarse_dataset())


def nodes_of(coarse, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Return even nodes of the whole domain."""
    return [
        np.linspace(nodes[0], nodes[-1], count)
        if period is None
        else nodes[0] + period * np.arange(count) / count
        for nodes, period, count in zip(coarse.grid.nodes, coarse.grid.periods, shape, strict=True)
    ]


def difference(coarse, output: Path) -> float:
    """Return the largest difference of the file from direct queries at random nodes."""
    fields = coarse.surrogate.header.fields
    with xr.open_dataset(output, engine="h5netcdf", cache=False) as found:
        sizes = [found.sizes[d] for d in coarse.grid.dims]
        # Whole rows of the file: every random node costs a seek.
        rows = SAMPLE // sizes[-1] + 1
        rng = np.random.default_rng(0)
        worst = 0.0
        for _ in range(rows):
            at = {
                d: int(rng.integers(n)) for d, n in zip(coarse.grid.dims[:-1], sizes, strict=False)
            }
            row = found.isel(at)
            points = np.stack(np.broadcast_arrays(*(row[d].values for d in coarse.grid.dims)), -1)
            wanted = coarse.query(points)[0]
            values = np.stack([row[f].values for f in fields], -1)
            worst = max(worst, float(np.abs(values - wanted).max()))
    return worst


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), sys.argv[2])))
