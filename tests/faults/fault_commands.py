"""The commands that are interrupted: how each starts and resumes, and the files it must leave."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DATASETS = ROOT / "datasets"


@dataclass(frozen=True)
class Command:
    """One command line.

    Attributes:
        arguments: of the first start; RUN is replaced by the only run directory.
        outcome: reads what it left in a folder; equal for a start without faults and for a fault
            followed by `again`.
        resumes: the next start has --resume, once there is a run.
        prepare: arguments of a command that makes its input, once for all faults.
        files: text of input files by name.
        once: a second start is refused where the first one has finished its folder.
    """

    arguments: tuple[str, ...]
    outcome: Callable[[Path], object]
    resumes: bool = False
    prepare: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    once: bool = False


def digest(name: str) -> Callable[[Path], str]:
    """Return the reader of one file's SHA-256."""
    return lambda folder: hashlib.sha256((folder / name).read_bytes()).hexdigest()


def tree(name: str) -> Callable[[Path], dict[str, str]]:
    """Return the reader of all files' SHA-256 below one folder.

    Temporary files, which a process that is killed cannot remove, are left out: their names begin
    with a dot.
    """

    def read(folder: Path) -> dict[str, str]:
        files = sorted(p for p in (folder / name).rglob("[!.]*") if p.is_file())
        return {
            str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files
        }

    return read


def arrays(name: str) -> Callable[[Path], object]:
    """Return the reader of the arrays of one HDF5 file: its header may hold times."""

    def read(folder: Path) -> dict[str, str]:
        with h5py.File(folder / name) as data:
            return {
                key: hashlib.sha256(np.asarray(value).tobytes()).hexdigest()
                for key, value in sorted(data.items())
            }

    return read


def weights(folder: Path) -> str:
    """Return the SHA-256 of the weights of the only finished run."""
    (file,) = (folder / "runs").glob("*/*/model/weights.safetensors")
    return hashlib.sha256(file.read_bytes()).hexdigest()


def report(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of the only report."""
    (found,) = (folder / "runs").glob("*/*/report")
    return tree(str(found.relative_to(folder)))(folder)


def metrics(folder: Path) -> object:
    """Return the metrics of the only finished run."""
    (results,) = (folder / "runs").glob("*/*/results.json")
    found = json.loads(results.read_text(encoding="utf-8"))["metrics"]
    return {name: value for name, value in found.items() if "seconds" not in name}


def trials(folder: Path) -> object:
    """Return the table of all trials without their times."""
    (table,) = (folder / "runs").glob("*/*/results.csv")
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k not in ("seconds", "cpu")} for row in rows]


def samples(folder: Path) -> object:
    """Return the arrays of all samples of the only campaign."""
    found = {}
    for file in sorted((folder / "runs").glob("*/*/campaign/*.nc")):
        with h5py.File(file) as data:
            arrays = {name: np.asarray(data[name]) for name in sorted(data)}
        joined = b"".join(array.tobytes() for array in arrays.values())
        found[file.name] = hashlib.sha256(joined).hexdigest()
    return found


SEARCH = f"""
domain: search
workflow: small_search
config: {ROOT / "workflows" / "compress_snapshot" / "train.yaml"}
space:
  codec: [blocks, dyadic]
  bound.value: {{low: 1e-3, high: 3e-2, log: true}}
objectives: [{{name: accuracy_gain, direction: max}}]
strategy: {{name: random}}
budget: {{trials: 4, disk_patience: 1}}
final: {{train: false, finalists: 0}}
"""
SNAPSHOT = DATASETS / "turbulence_sperr" / "wmag_64.npy"
FORECAST = str(ROOT / "surrogates" / "sst_forecast")
NODES = ("run", str(ROOT / "workflows" / "node_classification"), "training.epochs=4")
COMMANDS = {
    "compress": Command(
        ("compress", str(SNAPSHOT), "small.sci", "--rel", "1e-2", "--for", "speed"),
        digest("small.sci"),
    ),
    "decompress": Command(
        ("decompress", "small.sci", "again.npy"),
        digest("again.npy"),
        prepare=("compress", str(SNAPSHOT), "small.sci", "--rel", "1e-2", "--for", "speed"),
    ),
    "partition": Command(
        ("graphs", "partition", str(DATASETS / "cora" / "cora.npz"), "parts", "--parts", "2"),
        tree("parts"),
    ),
    "generate": Command(
        (
            "generate",
            str(ROOT / "workflows" / "vlasov_landau"),
            "generator.duration=2",
            "generator.frames=3",
            "draw.samples=2",
            "draw.parameters.wavenumber=[0.5,0.4]",
        ),
        samples,
        resumes=True,
    ),
    "run": Command(
        (
            "run",
            str(ROOT / "workflows" / "node_classification"),
            "training.epochs=12",
            "training.checkpoint.every_epochs=3",
        ),
        metrics,
        resumes=True,
    ),
    "train": Command(
        (
            "train",
            str(ROOT / "workflows" / "water_deepmd"),
            f"data.path={DATASETS / 'water_deepmd' / 'data_0'}",
            "model.embedding=[4,8]",
            "model.axis_neurons=4",
            "model.fitting=[8]",
            "training.steps=6",
            "training.checkpoint.every_steps=2",
        ),
        weights,
        resumes=True,
    ),
    "evaluate": Command(("evaluate", "RUN"), metrics, prepare=NODES),
    "report": Command(("report", "RUN"), report, prepare=NODES),
    "export": Command(("export", FORECAST, "-o", "model.c"), tree(".")),
    "predict": Command(
        (
            "predict",
            FORECAST,
            str(DATASETS / "ersst_v5" / "ersstv5_monthly_2deg_201001-202008.nc"),
            "-o",
            "forecast.nc",
        ),
        arrays("forecast.nc"),
    ),
    "copy": Command(("cp", "workflows/sst_forecast", "mine"), tree("mine"), once=True),
    "plug-in": Command(("new", "codec", "mine"), tree("scitoolkit-mine"), once=True),
    "search": Command(
        ("search", "search.yaml"),
        trials,
        resumes=True,
        files={"search.yaml": SEARCH},
    ),
}
