"""Campaigns: layouts that train as they are, windows across simulations, bytes before step 1.

All figures are counters. A layout counts as right when every value is read as it was written and
five training steps run on it without an edit.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import layouts
import numpy as np

from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.pipeline import prepare
from scitoolkit.io.campaign import SampleIndex, open_campaign
from scitoolkit.io.campaign.rows import row_sets
from scitoolkit.training import Trainer

CAMPAIGNS, INDEX_FILES, STEPS = 300, 1000, 5


def run() -> dict:
    right = {name: _is_right(write) for name, write in layouts.LAYOUTS.items()}
    return {
        "layouts_ok": sum(right.values()),
        "layouts_tried": len(right),
        "layouts_wrong": [name for name, ok in right.items() if not ok],
        "windows_across_simulations": windows_across_simulations(),
        **bytes_before_training(),
        **index_seconds(),
    }


def _is_right(write) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        written = write(Path(folder))
        return values_agree(written) and trains(written)


def values_agree(written: layouts.Written) -> bool:
    campaign = open_campaign(written.path, written.variables, written.options)
    if set(campaign.channels) != set(written.truth):
        return False
    for channel, rows in row_sets(campaign).items():
        blocks, truth = campaign.index.blocks, written.truth[channel]
        if len(blocks) != len(truth):
            return False
        out = np.empty((1, *rows.row_shape), rows.dtype)
        for block, expected in zip(blocks, truth, strict=True):
            for row, frame in zip(block, expected, strict=True):
                rows.read_into(row, row + 1, np.array([row]), out)
                if not np.array_equal(out[0], frame):
                    return False
    return True


def _config(written: layouts.Written) -> EmulationConfig:
    options, names = written.options, written.variables
    maps = options.lead == 0
    return EmulationConfig.model_validate(
        {
            "data": {"path": written.path, "inputs": names[:1] if maps else names,
                     "outputs": names[1:] if maps else names, "lead": options.lead,
                     "dims": options.dims, "pattern": options.pattern},
            "model": {"name": "unet", "widths": [4]}, "split": {"train": 1, "validation": 0,
                                                                "test": 0, "by": "simulation"},
            "training": {"steps": STEPS, "batch_size": 1, "progress": False},
        }
    )  # fmt: skip


def trains(written: layouts.Written) -> bool:
    if written.options.lead == 0 and len(written.variables) == 1:
        return True  # one map has no output to learn
    config = _config(written)
    job = prepare(config)
    trainer = Trainer(job.task, config.training)
    trainer.fit(job.loaders["train"], None)
    return trainer.step == STEPS


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
    """Return the bytes read before the first step over those of the training part."""
    with tempfile.TemporaryDirectory() as folder:
        for i in range(8):
            data = layouts.values(64, 32, 32, seed=i)
            layouts.xr.Dataset({"u": (("time", "x", "y"), data)}).to_netcdf(
                Path(folder) / f"run{i}.nc", engine="h5netcdf"
            )
        config = _config(layouts.Written(folder, ["u"], {}))
        split = type(config.split)(train=8, validation=0, test=0)
        config = config.model_copy(update={"split": split})
        part = 8 * 64 * 32 * 32 * 4
        job = prepare(config)
        measured = job.data.source(np.arange(1), [0]).bytes_read
        return {"statistics_bytes_ratio": measured / part}


def index_seconds() -> dict:
    """Return the seconds to index one-sample files, each of which is opened."""
    with tempfile.TemporaryDirectory() as folder:
        for i in range(INDEX_FILES):
            with layouts.h5py.File(Path(folder) / f"s{i // 10:03d}_t{i % 10}.h5", "w") as file:
                file["u"] = np.zeros((4, 4), "f4")
                for axis, dim in enumerate("xy"):
                    file["u"].dims[axis].label = dim
        options = layouts.Options(pattern="s{simulation}_t{step}.h5")
        begin = time.perf_counter()
        campaign = open_campaign(folder, ["u"], options)
        seconds = time.perf_counter() - begin
        assert campaign.index.num_simulations == INDEX_FILES // 10
        return {"index_files": INDEX_FILES, "index_seconds": seconds}
