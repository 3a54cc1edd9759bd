"""Campaigns: layouts that train without edits, windows, bytes before step 1, index, speed, gain.

A layout passes if every value is read as it was written and `scitoolkit init` writes a
configuration on which five training steps run without an edit, or if it is refused for the correct
reason. Bytes and descriptors are counted, not timed.
"""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import _campaign_gain
import _campaign_well
import _slow
import layouts
import numpy as np
from _measure import machine
from _places import PEERS

from scitoolkit import api
from scitoolkit.core.config import load_config
from scitoolkit.core.errors import DataError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.starter import DataToStart
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.job import EmulationJob
from scitoolkit.emulation.stages import prepare
from scitoolkit.io.campaign import SampleIndex
from scitoolkit.io.campaign.open import open_campaign
from scitoolkit.io.loader import PlannedLoader
from scitoolkit.io.loader.files import Counter

PEER = PEERS / "well" / "bin" / "python"
CAMPAIGNS, FILES, STEPS, OPEN_LIMIT, ROUNDS = 300, 100_000, 5, 1024, 3


def run() -> dict:
    wrong = {name: why for name, write in layouts.LAYOUTS.items() if (why := problem(write))}
    figures = {
        "layouts_ok": len(layouts.LAYOUTS) - len(wrong),
        "layouts_tried": len(layouts.LAYOUTS),
        "layouts_wrong": wrong,
        "windows_across_simulations": windows_across_simulations(),
    }
    for part in (bytes_before_training, index, resume, against_the_well, gain):
        figures |= part()
        print(figures, file=sys.stderr, flush=True)
    return {**figures, "machine": machine()}


def problem(write) -> str:
    """Return the problem with a layout, "" if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        written = write(Path(folder))
        if found := layouts.disagreements(written):
            return f"not read as written: {found}"
        if written.path == Path(folder) and written.options.lead == 0 and len(written.truth) == 1:
            return ""  # one field a file: nothing to map it to, and no time
        return untrained(written, Path(folder))


def untrained(written: layouts.Written, folder: Path) -> str:
    """Return why `init` and a short training do not run, "" where they do."""
    data = DataToStart([str(written.path)], [str(written.path)])
    try:
        path = folder / "my.yaml"
        path.write_text(job_for_task("emulate").starter(data))
        root = f"run.root={folder / 'out'}"
        api.train(path, [f"training.steps={STEPS}", "training.progress=false", root])
    except DataError as error:
        return "" if written.refused and re.search(written.refused, str(error)) else str(error)
    return "not refused" if written.refused else ""


def windows_across_simulations() -> int:
    rng, crossing = np.random.default_rng(0), 0
    for _ in range(CAMPAIGNS):
        segments = int(rng.integers(1, 40))
        index = SampleIndex(np.cumsum(rng.integers(0, 2, segments)), rng.integers(1, 30, segments))
        span = int(rng.integers(2, 8))
        starts = index.starts([range(index.num_rows)], span)
        ends = index.simulation_of(starts + span - 1)
        crossing += int((index.simulation_of(starts) != ends).sum())
    return crossing


def bytes_before_training() -> dict:
    """Return bytes read before the first step over those of the training part, all ranks."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for i in range(8):
            data = layouts.values(1024, 32, 32, seed=i)  # 32 MiB in all
            layouts.xr.Dataset({"u": (("time", "x", "y"), data)}).to_netcdf(
                folder / f"run{i}.nc", engine="h5netcdf"
            )
        path = folder / "my.yaml"
        text = job_for_task("emulate").starter(DataToStart([place], [place]))
        path.write_text(text)
        config = load_config(EmulationConfig, path, [f"run.root={folder / 'out'}"])
        dry = check_bytes(config)
        job = prepare(config)
        rows = sum(map(len, job.opened.parts["train"]))
        part = rows * 32 * 32 * 4
        first = job.opened.data.source(np.arange(1), [0]).bytes_read
        again = prepare(config).opened.data.source(np.arange(1), [0]).bytes_read
        return {
            "statistics_bytes_ratio": first / part,
            "statistics_bytes_again": again,
            "dry_run_bytes_ratio": dry / part,
        }


def check_bytes(config: EmulationConfig) -> int:
    """Return the bytes of values that a dry run reads: its statistics and its batch."""
    read, whole = [0], Counter.add

    def adding(counter, requests, nbytes):
        read.append(nbytes)
        whole(counter, requests, nbytes)

    Counter.add = adding
    try:
        EmulationJob().check(config)
    finally:
        Counter.add = whole
    return sum(read)


def index() -> dict:
    """Index one-sample files in separate processes, under a limit of open files."""
    script = str(Path(__file__).with_name("_campaign_index.py"))

    def limited() -> None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_LIMIT, hard))

    def step(action: str, *more: str) -> dict:
        done = subprocess.run(
            [sys.executable, script, action, f"{place}/runs", *more],
            capture_output=True,
            text=True,
            check=True,
            preexec_fn=limited,
        )
        return _json(done.stdout)

    with tempfile.TemporaryDirectory() as place:
        step("write", str(FILES))
        first, again, read = step("open"), step("open"), step("read")
    if read["wrong"] or first["simulations"] != again["simulations"]:
        raise RuntimeError(f"wrong windows: {read}")
    return {
        "index_files": FILES,
        "index_seconds_100k": first["seconds"],
        "index_cpu_seconds_100k": first["cpu_seconds"],
        "restart_seconds_100k": again["seconds"],
        "restart_cpu_seconds_100k": again["cpu_seconds"],
        "descriptors_max": read["descriptors"],
    }


def _json(text: str) -> dict:
    return json.loads(text.splitlines()[-1])


def resume() -> dict:
    """Stop at every step and resume with other numbers of ranks: batches are bit-identical."""
    with tempfile.TemporaryDirectory() as place:
        for i, rows in enumerate((9, 14, 5, 11)):
            layouts.xr.Dataset({"u": (("time", "x"), layouts.values(rows, 6, seed=i))}).to_netcdf(
                f"{place}/run{i}.nc", engine="h5netcdf"
            )
        campaign = open_campaign(place, ["u"])

        def loaders(ranks: int) -> list[PlannedLoader]:
            return [
                campaign.loader(4, 2, seed=3, buffer=1000, rank=r, world_size=ranks, threads=1)
                for r in range(ranks)
            ]

        def stream(ranks: int, state: dict | None = None, stop: int | None = None):
            """Return the batches from a state on, and the state after `stop` of them."""
            found: list[list[bytes]] = []
            members = loaders(ranks)
            for loader in members:
                if state is not None:
                    loader.load_state_dict(state)
                for number, batch in enumerate(loader):
                    if number == len(found):
                        found.append([])
                    valid = int(batch.get("num_valid", len(batch["x"])))
                    found[number] += [v.numpy().tobytes() for v in batch["x"][:valid]]
                    if number + 1 == stop:
                        break
            return [sorted(b) for b in found], members[0].state_dict()

        whole, _ = stream(1)
        equal = all(
            (head := stream(a, None, at))[0] + stream(b, head[1])[0] == whole
            for a, b in ((1, 2), (2, 1), (2, 4), (4, 2))
            for at in range(1, len(whole))
        )
        return {"resume_equal": bool(equal), "resume_steps": len(whole)}


def against_the_well() -> dict:
    """Read one file of the Well in the slow file system, alternating with WellDataset."""
    if not PEER.exists():
        return {"speedup_well_dataset": None, "well": "make peers first"}
    script = str(Path(__file__).with_name("_campaign_well.py"))
    ratios, rates = {}, {}
    with tempfile.TemporaryDirectory(prefix="well") as place:
        root = Path(place)
        library = _slow.compiled(root)
        for size in _campaign_well.SIZES:
            _campaign_well.write(root, size)
            rounds: dict[str, list[float]] = {"ours": [], "well": []}
            totals = {}
            for number in range(ROUNDS):
                for who in sorted(rounds, reverse=bool(number % 2)):
                    python = sys.executable if who == "ours" else PEER
                    done = _slow.run([script, who, place, size], library, root, python=python)
                    rounds[who].append(done["samples"] / done["seconds"])
                    totals[who] = done["total"]
            if not np.isclose(totals["ours"], totals["well"], rtol=1e-12):
                raise RuntimeError(f"ours and the Well's reader differ: {totals}")
            rates[size] = {who: statistics.median(found) for who, found in rounds.items()}
            ratios[size] = rates[size]["ours"] / rates[size]["well"]
        _cross_check(root, script)
    return {
        "speedup_well_dataset": min(ratios.values()),
        "speedup_well_dataset_by_size": ratios,
        "speedup_most_by_bytes": _campaign_well.most_by_bytes(),
        "well_samples_per_second": rates,
    }


def _cross_check(root: Path, script: str) -> None:
    """Read a file made by the Well's own writer."""
    subprocess.run(
        [str(PEER), script, "dummy", str(root), "dummy.hdf5"], check=True, capture_output=True
    )
    campaign = open_campaign(root / "dummy.hdf5", ["field", "constant_field"])
    with layouts.h5py.File(root / "dummy.hdf5") as file:
        for i, node in enumerate(campaign.tree().children.values()):
            if not np.array_equal(node["field"].values, file["t1_fields/field"][i]):
                raise RuntimeError("a file of the Well's own writer is read wrongly")


def gain() -> dict:
    with tempfile.TemporaryDirectory() as place:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        return _campaign_gain.run(Path(place))
