"""Parsers of folders and of files next to others: stores, runs, checkpoints, partitions, models."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from format_cases import digest
from fuzzing import ROOT, FolderParser


def deepmd_system(folder: Path) -> Path:
    return shutil.copytree(ROOT / "datasets/water_deepmd/data_0", folder / "data_0")


def read_system(folder: Path) -> object:
    from scitoolkit.io.atoms import open_atoms

    frames = open_atoms(folder)
    return [frames[k].energy for k in range(len(frames)) if k < 3]


def zarr_store(version: int) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import numpy as np
        import xarray as xr

        values = np.random.default_rng(0).normal(size=(4, 6, 5)).astype(np.float32)
        data = xr.Dataset(
            {"u": (("time", "y", "x"), values, {"units": "m s-1"})},
            coords={"time": np.arange(4.0), "y": np.arange(6.0), "x": np.arange(5.0)},
        )
        path = folder / "store.zarr"
        data.to_zarr(path, zarr_format=version, consolidated=False)
        return path

    return make


def compressed_store(folder: Path) -> Path:
    from scitoolkit.cli.main import run_cli

    target = folder / "compressed.zarr"
    assert run_cli(["compress", str(zarr_store(3)(folder)), str(target), "--abs", "1e-2"]) == 0
    return target


def read_store(path: Path) -> object:
    from scitoolkit.core.errors import damage_named
    from scitoolkit.io.fields import open_fields
    from scitoolkit.io.inspect import describe

    describe(path)
    with damage_named(path), open_fields([path]) as fields:  # values are read lazily
        return fields.load()


def partition(folder: Path) -> Path:
    import numpy as np

    from scitoolkit.graphs.graph import Graph, write_graph
    from scitoolkit.graphs.partitioner import partition_edges

    rng = np.random.default_rng(0)
    ends = rng.integers(0, 30, (2, 90))
    graph = Graph(*ends, 30, rng.normal(size=(30, 3)), np.arange(30) % 2)
    write_graph(graph, folder / "graph.npz")
    partition_edges(folder / "graph.npz", folder / "parts", 2)
    return folder / "parts"


def read_partition(folder: Path) -> object:
    from scitoolkit.graphs.partitioned import PartitionedGraph
    from scitoolkit.graphs.stored_part import whole_graph

    graph = whole_graph(PartitionedGraph.open(folder))
    return [digest(a) for a in (graph.source, graph.target, graph.features, graph.labels)]


def checkpoints(folder: Path) -> Path:
    import torch

    from scitoolkit.training.checkpoint import Checkpoints, Snapshot
    from scitoolkit.training.strategies.base import SingleStrategy

    made = Checkpoints(folder / "checkpoints", SingleStrategy(torch.device("cpu")))
    tensors = {"model.w": torch.arange(12.0).reshape(3, 4), "buffer.n": torch.tensor(3)}
    made.save(7, Snapshot(tensors, {"step": 7}, {"rng": [1, 2]}), best=0.5)
    return folder / "checkpoints"


def read_checkpoint(folder: Path) -> object:
    from scitoolkit.training.checkpoint import best_weights

    return [(name, digest(value)) for name, value in sorted(best_weights(folder).items())]


def run(folder: Path) -> Path:
    from scitoolkit.core.config import Config
    from scitoolkit.core.results import Results, Table
    from scitoolkit.core.run_directory import RunDirectory

    made = RunDirectory.create(folder, "demo", Config())
    for step in range(3):
        made.log_metrics({"loss": 0.5 - step, "rmse": 1.0}, step=step, units={"rmse": "K"})
    tables = [Table(title="t", columns=["a", "b"], rows=[["x", 1.5]])]
    Results(title="t", metrics={"rmse": 1.5}, units={"rmse": "K"}, tables=tables).write(made.path)
    return made.path


def read_run(folder: Path) -> object:
    from scitoolkit.core.config import Config, load_config
    from scitoolkit.core.results import Results
    from scitoolkit.core.run_directory import RunDirectory

    opened = RunDirectory.open(folder)
    load_config(Config, opened.config_path)
    return opened.launch, list(opened.read_metrics()), Results.read(folder)


def surrogate(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "datasets").symlink_to(ROOT / "datasets")
        (folder / "workflows").symlink_to(ROOT / "workflows")
        return shutil.copytree(ROOT / "surrogates" / name, folder / "surrogates" / name)

    return make


def read_surrogate(folder: Path) -> object:
    from scitoolkit import api

    job, directory = api._job_of(folder)
    if folder.name == "acac_mace":
        from scitoolkit.potentials.saved import load_model

        return load_model(directory)
    if folder.name == "rayleigh_benard_mfn":
        from scitoolkit.superresolution.surrogate import SuperresolutionSurrogate

        return SuperresolutionSurrogate.load(directory)
    return job.traced(directory)


def campaign(folder: Path) -> Path:
    import numpy as np
    import xarray as xr

    from scitoolkit.io.fields import write_fields

    for i in range(3):
        u = np.random.default_rng(i).normal(size=(5, 4)).astype("f4")
        write_fields(xr.Dataset({"u": (("time", "x"), u)}), folder / f"runs/s{i}.nc")
    read_campaign(folder)
    return folder


def read_campaign(folder: Path) -> object:
    """Return labels and moments of a campaign whose index and statistics are cached."""
    import numpy as np

    from scitoolkit.io.campaign.measure import Measured
    from scitoolkit.io.campaign.open import open_campaign
    from scitoolkit.io.campaign.saved import load_moments, save_moments
    from scitoolkit.io.campaign.statistics import Moments

    found = open_campaign(folder / "runs", ["u"], cache=folder / ".campaigns").found
    file = folder / ".campaigns" / "statistics_0.npz"
    if not file.exists():
        row = Measured(2)
        row.values["u"] = Moments.of(9, np.arange(6.0).reshape(3, 2))
        save_moments(file, ["a"], [row])
    load_moments(file)
    return found.labels, np.diff(found.index.bounds).tolist()


def well(folder: Path) -> Path:
    (folder / "data/train").mkdir(parents=True)
    (folder / "stats.yaml").write_text(
        "mean: {u: 1.5, v: [0.0, 1.0]}\nstd: {u: 2.0, v: [1.0, 1.0]}\nrms_delta: {u: 0.1}\n"
    )
    return folder


def read_well(folder: Path) -> object:
    from types import SimpleNamespace

    from scitoolkit.io.campaign.layouts import Well
    from scitoolkit.io.campaign.saved import well_statistics

    channels = {
        name: SimpleNamespace(
            name=name, array=SimpleNamespace(path=f"fields/{name}"), components=part
        )
        for name, part in (("u", ()), ("v", (1,)))
    }
    given = SimpleNamespace(
        files=[folder / "data/train/a.h5"],
        layout=Well.name,
        parameters=(),
        mask=None,
        channels=channels,
    )
    return well_statistics(given)  # type: ignore[arg-type]


def records(folder: Path) -> Path:
    import json
    from dataclasses import asdict

    from scitoolkit.generators.journal import Journal, Made
    from scitoolkit.generators.workers import RECORDS, Record, _record_path

    (folder / RECORDS).mkdir()
    (folder / "sample_00000.nc").write_bytes(b"abc")
    record = Record(0, {"a": 0.5}, 7, file="sample_00000.nc", size=3)
    _record_path(folder, 0).write_text(json.dumps(asdict(record)))
    journal = Journal(folder / "journal.jsonl")
    journal.choose(0, {"a": 0.5})
    journal.finish(Made(0, {"a": 0.5}, {"a": 0.5}, 7, 0, 12))
    return folder


def read_records(folder: Path) -> object:
    from scitoolkit.generators.journal import Journal
    from scitoolkit.generators.workers import finished

    journal = Journal(folder / "journal.jsonl")
    return finished(folder), journal.asked(0), journal.made(0, {"a": 0.5})


def figures(folder: Path) -> Path:
    import json
    from dataclasses import asdict

    from scitoolkit.compression.series import ACCOUNT, Account
    from scitoolkit.emulation.intervals import FILE as INTERVALS
    from scitoolkit.superresolution.spectrum import FILE as GAINS

    (folder / ACCOUNT).write_text(json.dumps(asdict(Account("a.h5"))))
    (folder / INTERVALS).write_text(json.dumps({"coverage": 0.9, "trajectories": 2, "leads": {}}))
    (folder / GAINS).write_text("{}")
    return folder


def read_figures(folder: Path) -> object:
    import contextlib

    from scitoolkit.compression.series import NetworkSeries
    from scitoolkit.core.errors import ScitoolkitError
    from scitoolkit.emulation.intervals import Intervals
    from scitoolkit.superresolution.spectrum import WaveGains

    for read in (
        NetworkSeries.open(folder).account,
        lambda: Intervals.load(folder),
        lambda: WaveGains.load(folder),
    ):
        with contextlib.suppress(ScitoolkitError):
            read()
    return None


STORES = {
    "deepmd_system": FolderParser(deepmd_system, read_system),
    "zarr2": FolderParser(zarr_store(2), read_store),
    "zarr3": FolderParser(zarr_store(3), read_store),
    "zarr_compressed": FolderParser(compressed_store, read_store),
    "partition": FolderParser(partition, read_partition),
    "checkpoint": FolderParser(checkpoints, read_checkpoint, checked=True),
    "run": FolderParser(run, read_run, pattern="*"),
    "campaign_cache": FolderParser(campaign, read_campaign, pattern=".campaigns/*", checked=True),
    "well_statistics": FolderParser(well, read_well, pattern="stats.yaml"),
    "generator_records": FolderParser(records, read_records, pattern="**/*.json*"),
    "stored_figures": FolderParser(figures, read_figures),
    **{
        f"surrogate_{name}": FolderParser(surrogate(name), read_surrogate, pattern="[cfmw]*")
        for name in ("acac_mace", "rayleigh_benard_mfn", "rb2d_steady")
    },
}
