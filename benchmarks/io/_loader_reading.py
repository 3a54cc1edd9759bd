"""Reading from a slow file system and a cold disk: PlannedLoader, DataLoader and other loaders.

All loaders of a round run one after the other, and the rounds alternate. The peers read part of an
epoch if a whole one would take minutes, PlannedLoader reads three whole epochs; rates are compared.
Files of peers with a separate format are converted beforehand, which is not counted.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import _slow
import h5py
import numpy as np
from _places import PEERS, ROOT

SCRIPT = str(Path(__file__).with_name("_loader_run.py"))
PEER = PEERS / "loaders" / "bin" / "python"
SST = ROOT / "datasets" / "ersst_v5" / "ersstv5_monthly_2deg_201001-202008.nc"
SAMPLES, SHAPE, ROWS = 1024, (4, 128, 128), 16
SAMPLE_BYTES = 4 * int(np.prod(SHAPE))
ROUNDS, COLD_ROUNDS = 2, 3
MIB = 2**20
QUARTER = SAMPLES * SAMPLE_BYTES // 4

# name -> (loader, layout, options)
CONTESTANTS = {
    "contiguous_w0": ("dataloader", "contiguous", ["workers=0", "batches=32"]),
    "contiguous_w2": ("dataloader", "contiguous", ["workers=2", "batches=32"]),
    "contiguous_25": ("ours", "contiguous", ["part=0.25", "epochs=3"]),
    "chunked_w0": ("dataloader", "chunked", ["workers=0", "batches=12"]),
    "chunked_w2": ("dataloader", "chunked", ["workers=2", "batches=12"]),
    "chunked_25": ("ours", "chunked", ["part=0.25", "epochs=3"]),
    "chunked_10": ("ours", "chunked", ["part=0.10", "epochs=3"]),
    "gzip_w2": ("dataloader", "gzip", ["workers=2", "batches=8"]),
    "gzip_25": ("ours", "gzip", ["part=0.25", "epochs=3"]),
    "tensorstore_rows1": ("tensorstore", "zarr1", ["cache=0", "batches=32"]),
    "tensorstore_rows16": (
        "tensorstore",
        "zarr16",
        [f"cache={SAMPLES * SAMPLE_BYTES // 4}", "batches=32"],
    ),
}
OTHERS = {
    "stateful_contiguous_w2": ("stateful", "contiguous", ["workers=2", "batches=32"]),
    "stateful_chunked_w2": ("stateful", "chunked", ["workers=2", "batches=12"]),
    "mosaic_mds_w2": ("mosaic", "mds", ["workers=2", "batches=32"]),
}


def run() -> dict:
    """Return the figures of reading."""
    with tempfile.TemporaryDirectory(prefix="loader") as folder:
        root = Path(folder)
        write(root / "set.h5")
        library = _slow.compiled(root)
        contestants = dict(CONTESTANTS)
        for rows in (1, ROWS):
            once(
                [
                    "write_zarr",
                    str(root / "set.h5"),
                    "contiguous",
                    f"out={root}/zarr{rows}",
                    f"rows={rows}",
                ]
            )
        if PEER.exists():
            once(["write_mosaic", str(root / "set.h5"), "contiguous", f"out={root}/mds"], PEER)
            contestants |= OTHERS
        rounds = slow_rounds(contestants, root, library)
        return {
            **speeds(rounds),
            "cold_disk_ratio": cold_disk(root / "set.h5"),
            **memory(root / "set.h5"),
            **training(root, library),
        }


def write(path: Path) -> None:
    """Write one set in three layouts; every sample begins with its number."""
    rng = np.random.default_rng(0)
    layouts = {
        "contiguous": {},
        "chunked": {"chunks": (ROWS, *SHAPE)},
        "gzip": {
            "chunks": (ROWS, *SHAPE),
            "compression": "gzip",
            "compression_opts": 1,
            "shuffle": True,
        },
    }
    with h5py.File(path, "w") as file:
        data = [file.create_dataset(k, (SAMPLES, *SHAPE), "f4", **o) for k, o in layouts.items()]
        for begin in range(0, SAMPLES, ROWS):
            values = np.cumsum(rng.normal(size=(ROWS, *SHAPE)), axis=-1).astype("f4")
            # Solvers' output has fewer meaningful bits than float32: keep 10 of the mantissa.
            values = (values.view("u4") & np.uint32(0xFFFFE000)).view("f4")
            values[:, 0, 0, 0] = np.arange(begin, begin + ROWS)
            for layout in data:
                layout[begin : begin + ROWS] = values


def once(arguments: list[str], python: Path | str = sys.executable) -> dict:
    """Run the script outside of the slow file system."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [str(python), SCRIPT, *arguments], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def slow_rounds(contestants: dict, root: Path, library: Path) -> dict[str, list[dict]]:
    """Return the figures of every loader in every round."""
    found: dict[str, list[dict]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(ROUNDS):
        shift = number * 5 % len(names)
        for name in names[shift:] + names[:shift]:
            loader, layout, options = contestants[name]
            path = root / (layout if layout.startswith(("zarr", "mds")) else "set.h5")
            python = PEER if name in OTHERS else sys.executable
            done = _slow.run(
                [SCRIPT, loader, str(path), layout, *options], library, root, python=python
            )
            if loader == "ours" and not all(e["complete"] for e in done["epochs"]):
                raise RuntimeError(f"{name}: an epoch did not bring every sample once")
            found[name].append(done)
            total = rate(done["epochs"])
            print(f"{name:24s} {total:8.1f} samples/s", file=sys.stderr, flush=True)
    return found


def rate(epochs: list[dict]) -> float:
    """Return samples per second over some epochs."""
    return sum(e["samples"] for e in epochs) / sum(e["seconds"] for e in epochs)


def speeds(rounds: dict[str, list[dict]]) -> dict:
    """Return rates, their ratios, and reads, medians over the rounds."""
    rates = {
        name: statistics.median(rate(done["epochs"]) for done in runs)
        for name, runs in rounds.items()
    }
    first = statistics.median(rate(d["epochs"][:1]) for d in rounds["contiguous_25"])
    chunked, gzip = rounds["chunked_25"][0]["epochs"], rounds["gzip_25"][0]["epochs"]
    plain = rounds["chunked_w2"][0]["epochs"]

    def amplification(epochs: list[dict]) -> float:
        return sum(e["bytes"] for e in epochs) / sum(e["samples"] for e in epochs) / SAMPLE_BYTES

    def chunk_reads(epochs: list[dict]) -> float:
        return ROWS * sum(e["requests"] for e in epochs) / sum(e["samples"] for e in epochs)

    return {
        "amplification_first_25": amplification(chunked[:1]),
        "amplification_later_25": amplification(chunked[1:]),
        "amplification_dataloader": amplification(plain),
        # A compressed chunk can only be read as a whole.
        "chunk_reads_first_25": chunk_reads(gzip[:1]),
        "chunk_reads_later_25": chunk_reads(gzip[1:]),
        "speedup_chunked_25": rates["chunked_25"] / rates["chunked_w2"],
        "speedup_chunked_10": rates["chunked_10"] / rates["chunked_w2"],
        "speedup_gzip_25": rates["gzip_25"] / rates["gzip_w2"],
        "speedup_contiguous_w0": rates["contiguous_25"] / rates["contiguous_w0"],
        "speedup_contiguous_w2": rates["contiguous_25"] / rates["contiguous_w2"],
        "speedup_contiguous_first_epoch_w0": first / rates["contiguous_w0"],
        "speedup_contiguous_first_epoch_w2": first / rates["contiguous_w2"],
        "samples_per_second": {name: round(value, 1) for name, value in rates.items()},
    }


def cold_disk(path: Path) -> float:
    """Return our rate over that of the best DataLoader, from a disk that caches nothing."""
    rates = once(["cold", str(path), "contiguous", f"rounds={COLD_ROUNDS}"])
    print(f"cold disk, samples/s: {rates}", file=sys.stderr)
    return rates.pop("ours") / max(rates.values())


def memory(path: Path) -> dict:
    """Return how far resident memory goes beyond buffer and read-ahead in 20 epochs."""
    done = once(["ours", str(path), "gzip", "part=0.25", "epochs=20", "prefetch=64MiB"])
    stated = done["explained"]["memory"]
    grown = done["peak_bytes"] - done["base_bytes"]
    return {
        "rss_over_budget_mib": (grown - stated["buffer"] - 64 * MIB) / MIB,
        "rss_over_stated_mib": (grown - stated["total"]) / MIB,
    }


def training(root: Path, library: Path) -> dict:
    """Train on sea surface temperature, chunked and compressed, with ours and with DataLoader."""
    from scitoolkit.io.fields import open_fields

    path = root / "sst.h5"
    with open_fields(SST, ["sst"]) as dataset, h5py.File(path, "w") as file:
        values = np.nan_to_num(dataset["sst"].values.astype("f4").squeeze())
        # On a grid twice as fine, so that the set is larger than HDF5's own cache of chunks.
        values = values.repeat(2, axis=1).repeat(2, axis=2)
        file.create_dataset(
            "sst", data=values, chunks=(ROWS, *values.shape[1:]), compression="gzip", shuffle=True
        )
    ours, plain = (
        _slow.run([SCRIPT, "train", str(path), "sst", f"with={who}", "epochs=4"], library, root)
        for who in ("ours", "plain")
    )
    if (ours["loss"], ours["weights"]) != (plain["loss"], plain["weights"]):
        raise RuntimeError(f"the trainings end differently: {ours} and {plain}")
    return {"training_equal": True, "training_speedup": plain["seconds"] / ours["seconds"]}
