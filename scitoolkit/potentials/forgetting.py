"""Errors of fine-tuning: the model of the start and the tuned one, on new and on former frames."""

from __future__ import annotations

from logging import Logger
from pathlib import Path

import numpy as np

from scitoolkit.core.devices import placed
from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.core.log import get_logger
from scitoolkit.core.results import Results, Table
from scitoolkit.io.atoms import AtomsCollection, open_atoms
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.data import GraphSet
from scitoolkit.potentials.evaluation import MILLI, collect
from scitoolkit.potentials.fine_tuning import drawn_replay, source_model
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.saved import load_model
from scitoolkit.potentials.start_config import StartConfig

log: Logger = get_logger(__name__)
FORMER_MODEL = "former"
"""Folder of a run with the potential of the former readout (`start.heads: separate`)."""
MOST = 200
"""Frames of each kind that are compared."""


def force_rmse(model: Potential, frames: AtomsCollection) -> float | None:
    """Return the force RMSE on frames, meV/Å; None without forces, or with unknown species."""
    picks = np.unique(np.linspace(0, len(frames) - 1, MOST).astype(int))
    sample = frames.subset([int(index) for index in picks])
    if not set(sample.species()) <= set(model.type_map):
        return None
    graphs = GraphSet(sample, range(len(sample)), model.type_map, model.cutoff, cache_bytes=0)
    forces = collect(model, (graphs[index] for index in range(len(graphs)))).forces
    if not forces:
        return None
    label, predicted = np.concatenate(forces, axis=1)
    return float(np.sqrt(np.mean((predicted - label) ** 2))) * MILLI


def former_frames(
    config: PotentialConfig, start: StartConfig
) -> tuple[AtomsCollection, str] | None:
    """Return frames of the former training and a note on them; None if none are configured."""
    if start.former:
        return open_atoms(start.former, config.data.labels), ""
    if not start.replay:
        return None
    frames = open_atoms(start.replay, config.data.labels)
    trained = drawn_replay(frames, start.replay_frames, config.seed)
    others = np.setdiff1d(np.arange(len(frames)), trained).tolist()
    if not others:
        return frames, "The former frames were trained on (`start.replay`)."
    return frames.subset(others), ""


def add_start(
    results: Results,
    config: PotentialConfig,
    directory: Path,
    model: Potential,
    new: AtomsCollection,
) -> None:
    """Add the force errors of the start and, on former frames, of the tuned model to results.

    Args:
        results: of the evaluation, changed in place.
        config: of the job; without `start`, nothing is added.
        directory: of the run.
        model: fine-tuned.
        new: the frames of the evaluation.
    """
    if config.start is None:
        return
    try:
        source = source_model(config.start)[0]
        former = former_frames(config, config.start)
    except ScitoolkitError as error:
        log.warning("the start or its data are not compared: %s", error)
        return
    placed(source)
    models = {"start": source, "fine-tuned": model}
    if (directory / FORMER_MODEL).is_dir():
        models["fine-tuned, former readout"] = placed(load_model(directory / FORMER_MODEL)[0])
    rows: list[list[float | int | str | None]] = []
    for name, potential in models.items():
        on_former = None if former is None else force_rmse(potential, former[0])
        rows.append([name, force_rmse(potential, new), on_former])
    (before, old_before), after = rows[0][1:], rows[-1][2]
    entries = {
        "start_force_rmse": before,
        "former_force_rmse_before": old_before,
        "former_force_rmse": after,
    }
    for key, value in entries.items():
        if isinstance(value, float):
            results.metrics[key], results.units[key] = value, "meV/Å"
    note = "Energies of the two are on different E0: forces are compared."
    if former is not None and former[1]:
        note = f"{former[1]} {note}"
    columns = ["model", "force RMSE on these frames [meV/Å]", "on former frames [meV/Å]"]
    results.tables.append(Table(title="Fine-tuning", columns=columns, rows=rows, note=note))
    if isinstance(after, float) and isinstance(old_before, float):
        results.summary.append(
            f"Former frames: force RMSE {old_before:.3g} meV/Å before, {after:.3g} after."
        )
