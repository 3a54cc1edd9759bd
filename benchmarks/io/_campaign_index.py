"""Index of many one-sample files, in separate processes: `write`, `open` or `read`.

Prints one JSON object. The files are copies of one file written by h5py, with values, time and
parameter patched in, so that writing them takes only seconds.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import h5py
import numpy as np

STEPS, SHAPE, SENTINEL = 10, (8, 8), 0.123456789
PATTERN = "s{simulation}_t{step}.h5"
WINDOWS = 3000


def write(folder: Path, count: int) -> dict:
    folder.mkdir(parents=True)
    template = folder.parent / "template.h5"
    with h5py.File(template, "w") as file:
        file["u"] = np.zeros(SHAPE, "f4")
        file["time"] = 0.0
        file.attrs["viscosity"] = SENTINEL
        for axis, dim in enumerate("yx"):
            file["u"].dims[axis].label = dim
    with h5py.File(template) as file:
        u, t = (file[n].id.get_offset() for n in ("u", "time"))
    raw = bytearray(template.read_bytes())
    parameter = raw.index(np.float64(SENTINEL).tobytes())
    for number in range(count):
        simulation, step = divmod(number, STEPS)
        raw[u : u + 4 * SHAPE[0] * SHAPE[1]] = np.full(SHAPE, number, "<f4").tobytes()
        raw[t : t + 8] = np.float64(step).tobytes()
        raw[parameter : parameter + 8] = np.float64(0.001 * simulation).tobytes()
        (folder / f"s{simulation:05d}_t{step}.h5").write_bytes(raw)
    return {"files": count}


def opened(folder: Path):
    from scitoolkit.io.campaign import CampaignOptions, open_campaign

    begin, spent = time.perf_counter(), time.process_time()
    cache = folder.parent / "cache"
    campaign = open_campaign(folder, ["u"], CampaignOptions(pattern=PATTERN), cache=cache)
    seconds = time.perf_counter() - begin, time.process_time() - spent
    return campaign, seconds


def first(folder: Path) -> dict:
    campaign, (wall, cpu) = opened(folder)
    return {"seconds": wall, "cpu_seconds": cpu, "simulations": campaign.index.num_simulations}


def read(folder: Path) -> dict:
    """Read windows at random with the planned loader and record the open descriptors."""
    from scitoolkit.io.campaign.rows import row_sets
    from scitoolkit.io.campaign.windows import CampaignWindows
    from scitoolkit.io.loader import PlannedLoader

    campaign, _ = opened(folder)
    starts = campaign.index.starts(campaign.index.blocks, 3)
    source = CampaignWindows(campaign, row_sets(campaign), starts, [0, 1, 2])
    loader = PlannedLoader(source, 32, buffer="16MiB")
    largest, running = [0], threading.Event()

    def watch() -> None:
        while not running.wait(0.002):
            largest[0] = max(largest[0], len(os.listdir("/proc/self/fd")))

    thread = threading.Thread(target=watch)
    thread.start()
    wrong = seen = 0
    for batch in loader:
        u = batch["u"].numpy()[:, :, 0, 0]
        wrong += int((np.diff(u, axis=1) != 1).sum())
        wrong += int((u[:, 0] // STEPS != u[:, -1] // STEPS).sum())
        seen += len(u)
        if seen >= WINDOWS:
            break
    running.set()
    thread.join()
    return {"descriptors": largest[0], "wrong": wrong, "windows": seen}


if __name__ == "__main__":
    action, place, *more = sys.argv[1:]
    if action == "write":
        print(json.dumps(write(Path(place), int(more[0]))))
    else:
        print(json.dumps({"open": first, "read": read}[action](Path(place))))
