"""The commands whose work is interrupted: how each starts, goes on, and what it has to leave."""

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
        arguments: of the first start.
        outcome: reads what it left in a folder; equal for a start without faults and for a fault
            followed by `again`.
        resumes: the next start has --resume, once there is a run.
        prepare: arguments of a command that makes its input.
        files: text of input files by name.
    """

    arguments: tuple[str, ...]
    outcome: Callable[[Path], object]
    resumes: bool = False
    prepare: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


def digest(name: str) -> Callable[[Path], str]:
    """Return the reader of one file's SHA-256."""
    return lambda folder: hashlib.sha256((folder / name).read_bytes()).hexdigest()


def tree(name: str) -> Callable[[Path], dict[str, str]]:
    """Return the reader of all files' SHA-256 below one folder."""

    def read(folder: Path) -> dict[str, str]:
        files = sorted(p for p in (folder / name).rglob("*") if p.is_file())
        return {
            str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files
        }

    return read


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
budget: {{trials: 4}}
final: {{train: false, finalists: 0}}
"""
SNAPSHOT = DATASETS / "turbulence_sperr" / "wmag_64.npy"
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
        ("generate", str(ROOT / "workflows" / "vlasov_landau"), "generator.duration=2",
         "generator.frames=3", "draw.samples=2", "draw.parameters.wavenumber=[0.5,0.4]"),
        samples,
        resumes=True,
    ),
    "run": Command(
        ("run", str(ROOT / "workflows" / "node_classification"), "training.epochs=12",
         "training.checkpoint.every_epochs=3"),
        metrics,
        resumes=True,
    ),
    "search": Command(
        ("search", "search.yaml"),
        trials,
        resumes=True,
        files={"search.yaml": SEARCH},
    ),
}  # fmt: skip
