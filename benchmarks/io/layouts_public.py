"""The layouts of well-known programs, from `init` to the first step of a training.

Each layout of `tests/helpers/program_layouts` is written small. `init` writes a job, with the
option that the layout states only if `init` alone is refused; the job runs for one step. Each
number that enters the network has to equal what was written, of exactly the variables to learn;
every other variable has to be listed. What differs without an error is counted as silent.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import yaml
from _places import HELPERS

import scitoolkit
from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.starter import DataToStart
from scitoolkit.emulation.config import DataConfig
from scitoolkit.emulation.data import open_data
from scitoolkit.emulation.normalized_network import NormalizedNetwork

sys.path.insert(0, str(HELPERS))

from program_layouts import LayoutFiles, layout_names, write_layout


@contextmanager
def _entering() -> Iterator[list[tuple[list[str], list[np.ndarray]]]]:
    """Collect the names and values of what enters each network, in physical units."""
    entered: list[tuple[list[str], list[np.ndarray]]] = []

    def note(module: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        if isinstance(module, NormalizedNetwork):
            names = [v.name for v in module.layout.inputs]
            entered.append((names, [a.detach().cpu().numpy() for a in arguments]))

    handle = torch.nn.modules.module.register_module_forward_pre_hook(note)
    try:
        yield entered
    finally:
        handle.remove()


def _job(files: LayoutFiles, options: tuple[str, ...]) -> str:
    """Return the text of the job that `init emulate` writes."""
    named = dict(zip(options[::2], options[1::2], strict=True))
    dims = [d for d in named.get("--dims", "").split(",") if d]
    path = str(files.path)
    data = DataToStart([path], [path], dims, named.get("--sample-dim", ""))
    return job_for_task("emulate").starter(data)


def _differs(name: str, values: np.ndarray, truth: np.ndarray) -> str:
    if values.shape != truth.shape:
        return f"{name} has the shape {values.shape}, written were {truth.shape}"
    scale = float(np.abs(truth).max())
    near = np.abs(values.astype("f8") - truth) <= 1e-7 * scale
    return "" if near.all() else f"{name} has other values"


def _read(config: dict, files: LayoutFiles) -> list[str]:
    """Return how the rows of a job differ from what was written."""
    data = open_data(DataConfig(**config["data"]))
    source = data.source(np.arange(data.num_samples), [0])
    rows = source.read(np.arange(data.num_samples))
    names = {c for c in rows if c in data.campaign.channels}
    if names != set(files.truth):
        return [f"learned are {sorted(names)}, not {sorted(files.truth)}"]
    lengths = [len(block) for block in data.blocks]
    wrong = []
    for name, truth in files.truth.items():
        if lengths != [len(t) for t in truth]:
            return [f"simulations of {lengths} rows, written were {[len(t) for t in truth]}"]
        wrong.append(_differs(name, rows[name][:, 0], np.concatenate(truth)))
    return [text for text in wrong if text]


def _entered(entered: list, files: LayoutFiles) -> list[str]:
    """Return what entered the network and is no row that was written."""
    for names, arrays in entered:
        for name, values in zip(names, arrays, strict=True):
            truth = np.concatenate(files.truth[name]).astype("f4")
            if values.shape[1:] != truth.shape[1:]:
                return [f"{name} enters with the shape {values.shape[1:]}"]
            gaps = np.abs(values[:, None] - truth[None]).reshape(len(values), len(truth), -1)
            if not (gaps.max(axis=-1).min(axis=1) <= 1e-6 * np.abs(truth).max()).all():
                return [f"{name} enters with values of no row"]
    return [] if entered else ["nothing entered a network"]


def _reason(error: ScitoolkitError, folder: Path) -> str:
    """Return a message without the temporary folder, which is another in each run."""
    return str(error).replace(f"{folder.parent}/", "")


def outcome(name: str, folder: Path, seed: int = 0, train: bool = True) -> dict:
    """Return what happens to a layout.

    `result` is `trained`, `trained with OPTION`, `refused by name` where no grid can be read, else
    `refused` or `silent`; `why` tells the reason.
    """
    files = write_layout(name, folder, seed)
    options: tuple[str, ...] = ()
    try:
        try:
            text = _job(files, ())
        except ScitoolkitError as error:
            if files.refused and files.refused in str(error):
                return {"result": "refused by name", "why": _reason(error, folder)}
            if not files.options or files.options[0] not in str(error):
                raise
            options = files.options
            text = _job(files, options)
        config = yaml.safe_load(text)
        wrong = _read(config, files)
        comments = "\n".join(line for line in text.splitlines() if line.startswith("#"))
        wrong += [f"{n} is not listed" for n in files.told if n not in comments]
        if not wrong and train:
            job = folder.parent / f"{name}.yaml"
            job.write_text(text)
            once = [f"run.root={folder.parent}", "training.steps=1", "~training.schedule"]
            with _entering() as entered:
                scitoolkit.train(job, once)
            wrong = _entered(entered, files)
    except ScitoolkitError as error:
        return {"result": "refused", "why": _reason(error, folder)}
    if wrong:
        return {"result": "silent", "why": "; ".join(wrong)}
    return {"result": f"trained with {options[0]}" if options else "trained", "why": ""}


def run() -> dict:
    """Count the layouts: trained, refused by name, and with a role wrong in silence."""
    logging.disable(logging.WARNING)
    results = {}
    with tempfile.TemporaryDirectory() as parent:
        for name in layout_names():
            folder = Path(parent) / name
            folder.mkdir()
            results[name] = outcome(name, folder)
    kinds = [one["result"] for one in results.values()]
    return {
        "layouts": len(kinds),
        "silent": kinds.count("silent"),
        "trained": sum(kind.startswith("trained") for kind in kinds),
        "by_init_alone": kinds.count("trained"),
        "refused_by_name": kinds.count("refused by name"),
        "refused": kinds.count("refused"),
        "results": results,
    }
