"""Samples per second from one file of the Well: `write`, `ours`, or `well` (peer's environment).

Every process prints one JSON object: samples, seconds, and the sum of all received values, by which
the two readers are compared. Windows have one input and one output frame, exactly shuffled.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

BATCH, WORKERS = 4, 2
SIZES = {"small": (4, 48, 128, 256), "large": (2, 17, 1024, 1024)}
"""Trajectories, steps, x, y: samples of 0.26 and of 8 MB."""


def write(folder: Path, name: str) -> dict:
    """Write a set by `docs/data_format.md` of the Well, with everything its reader requires."""
    import h5py

    trajectories, steps, x, y = SIZES[name]
    place = folder / name / "data" / "train"
    place.mkdir(parents=True)
    rng = np.random.default_rng(0)
    with h5py.File(place / "a.hdf5", "w") as file:
        file.attrs.update(
            dataset_name=name,
            grid_type="cartesian",
            n_spatial_dims=2,
            n_trajectories=trajectories,
            simulation_parameters=["nu"],
            nu=0.1,
        )
        dims = file.create_group("dimensions")
        dims.attrs["spatial_dims"] = ["x", "y"]
        for dim, size in (("time", steps), ("x", x), ("y", y)):
            dims[dim] = np.linspace(0, 1, size, dtype="f4")
            dims[dim].attrs["sample_varying"] = False
        for dim in "xy":
            group = file.create_group(f"boundary_conditions/{dim}_periodic")
            group.attrs.update(
                associated_dims=[dim],
                associated_fields=[],
                bc_type="PERIODIC",
                sample_varying=False,
                time_varying=False,
            )
            group["mask"] = np.arange({"x": x, "y": y}[dim]) == 0
        file.create_group("scalars").attrs["field_names"] = []
        for rank in range(3):
            group = file.create_group(f"t{rank}_fields")
            group.attrs["field_names"] = ["u"] if not rank else []
        u = file["t0_fields"].create_dataset("u", (trajectories, steps, x, y), "f4")
        u.attrs.update(dim_varying=[True, True], sample_varying=True, time_varying=True)
        for k in range(trajectories):
            u[k] = rng.random((steps, x, y), dtype="f4")
    return {"bytes": (place / "a.hdf5").stat().st_size}


def most_by_bytes() -> dict[str, float]:
    """Return bytes of all windows over those of the file, by size.

    A reader that reads each frame once is faster by no more where the bandwidth of the file system
    is the limit, as with large samples; with small ones the latency of requests is.
    """
    return {name: 2 * (steps - 1) / steps for name, (_, steps, _, _) in SIZES.items()}


def ours(folder: Path, name: str) -> dict:
    from scitoolkit import open_campaign

    campaign = open_campaign(folder / name / "data" / "train", ["u"])
    rows = campaign.rows["t0_fields/u"]
    buffer = rows.num_rows * rows.row_nbytes // 4
    loader = campaign.loader(BATCH, buffer=buffer)
    return timed(loader, lambda batch: (batch["x"], batch["y"]))


def well(folder: Path, name: str) -> dict:
    from the_well.data import WellDataset
    from torch.utils.data import DataLoader

    data = WellDataset(path=str(folder / name), well_split_name="train")
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=WORKERS)
    return timed(loader, lambda batch: (batch["input_fields"], batch["output_fields"]))


def timed(loader, fields) -> dict:
    begin, samples, total = time.perf_counter(), 0, 0.0
    for batch in loader:
        x, y = fields(batch)
        samples += len(x)
        total += float(x.double().sum() + y.double().sum())
    return {"samples": samples, "seconds": time.perf_counter() - begin, "total": total}


def dummy(folder: Path, name: str) -> dict:
    """Let the Well's own writer make a file; return the path."""
    from the_well.utils.dummy_data import write_dummy_data

    np.random.seed(0)
    write_dummy_data(str(folder / name))
    return {"path": str(folder / name)}


if __name__ == "__main__":
    action, place, what = sys.argv[1:]
    actions = {"write": write, "ours": ours, "well": well, "dummy": dummy}
    print(json.dumps(actions[action](Path(place), what)))
