"""Training, evaluation and application of interatomic potentials; their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.io.atoms import AtomsCollection, Configuration, check_label_names, open_atoms
from scitoolkit.io.parts import identity
from scitoolkit.potentials import evaluation
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.data import GraphLoader, GraphSet
from scitoolkit.potentials.export.options import LibraryOptions
from scitoolkit.potentials.fine_tuning import (
    ReplayedGraphs,
    adopt,
    drawn_replay,
    freeze,
    merged_species,
    source_model,
    started_settings,
)
from scitoolkit.potentials.loss import PotentialTask
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.prediction import write_predictions
from scitoolkit.potentials.reference_energies import (
    refit_energies,
    set_reference_energies,
    training_frames,
)
from scitoolkit.potentials.saved import MODEL, load_model, save_model
from scitoolkit.training import Trainer, best_weights, current_rank, world_size

log: Logger = get_logger(__name__)
MOST_COMPARED = 20_000  # configurations looked through for duplicates


@dataclass
class Prepared:
    """An untrained model with its data; `config` has type map and sel filled in.

    `e0_fitted` says whether E0 is of least squares, not of isolated atoms or the configuration.
    """

    config: PotentialConfig
    model: Potential
    train: GraphSet
    validation: GraphSet
    e0_source: str
    e0_fitted: bool


def check(config: PotentialConfig) -> Mapping[str, Any]:
    """Open the data, build the model, run one batch; write nothing."""
    ready = prepare(config)
    loader = GraphLoader(ready.train, config.training.batch_size, seed=config.training.seed)
    batch = next(iter(loader))
    ready.model.train()
    loss, _ = PotentialTask(ready.model, config.loss).loss(batch)
    return {
        "configurations": {"train": len(ready.train), "validation": len(ready.validation)},
        "type_map": list(ready.model.type_map),
        **ready.config.model.summary(),
        "e0": ready.e0_source,
        "edges_per_atom": batch["edge_index"].shape[1] / len(batch["types"]),
        "parameters": sum(p.numel() for p in ready.model.parameters()),
        "first_loss": float(loss.detach()),
        "loader": loader.explain(),
    }


def train(config: PotentialConfig, run: RunDirectory, *, resume: bool = False) -> None:
    """Measure statistics, train, save the weights of the least validation loss in `model/`."""
    ready = prepare(config)
    training = config.training
    task = PotentialTask(ready.model, config.loss, training.schedule)
    trainer = Trainer(task, training, run=run)
    share: dict[str, Any] = {"rank": current_rank(), "world_size": world_size()}
    trainer.fit(
        GraphLoader(ready.train, training.batch_size, seed=training.seed, **share),
        GraphLoader(ready.validation, max(1, world_size()), shuffle=False, **share),
        resume=resume,
    )
    if current_rank() == 0:
        ready.model.load_state_dict(best_weights(run.checkpoints))
        if ready.e0_fitted and config.refit_e0:
            refit_energies(ready.model, list(ready.train.spread(config.statistics_frames)))
        save_model(ready.model, ready.config, run.path / MODEL)


def evaluate(directory: Path, data: Path | None = None) -> Results:
    """Evaluate on the run's own test part, or on any labelled file of atoms.

    A run directory gets results.json and model/metrics.json; with `data` nothing is written.
    """
    model, config, folder = load_model(directory)
    source, note = _test_frames(config, data)
    source.check(forces=data is None and config.loss.uses("forces"))
    graphs = GraphSet(source, range(len(source)), model.type_map, model.cutoff, cache_bytes=0)
    if not note:
        note = _duplicates(config, source)
    title = f"{config.workflow}: {config.model.name} for {'-'.join(model.type_map)}"
    found = evaluation.results(model, (graphs[i] for i in range(len(graphs))), title, note)
    if data is None and folder != Path(directory):
        found.write_run(Path(directory), folder)
    return found


def predict(directory: Path, source: Path, output: Path) -> None:
    """Write energies and forces of a file's configurations, as .nc (xarray) or .xyz (ASE)."""
    model, config, _ = load_model(directory)
    about = {"model": ModelFolder(directory).digest(), "file": identity(source)}
    write_predictions(model, open_atoms(source, config.data.labels), output, about)


def export(directory: Path, output: Path, options: LibraryOptions) -> Mapping[str, Any]:
    """Write, compile and check the C library of a model; see `potentials.export`."""
    from scitoolkit.potentials.export.write import export_library

    model, config, _ = load_model(directory, options.precision)
    if options.compress:
        model.compress()
    return export_library(model, config.model, Path(output))


def prepare(config: PotentialConfig) -> Prepared:
    """Open and check the data, fill in type map and sel, build the model, set its statistics."""
    check_label_names(config.data.files, config.data.labels)
    files = open_atoms(config.data.path, config.data.labels)
    found = training_frames(files, config.e0, config.type_map)
    frames = found.frames
    frames.check(forces=config.loss.uses("forces"))
    if config.data.validation:
        others = open_atoms(config.data.validation, config.data.labels)
        others.check(forces=config.loss.uses("forces"))
        train, source, held_out = np.arange(len(frames)), others, np.arange(len(others))
    else:
        train, held_out = _draw(config, len(frames))
        source = frames
    type_map = config.type_map or frames.species()
    start = None if config.start is None else source_model(config.start)
    if config.start is not None and start is not None:
        type_map = merged_species(start[0].type_map, type_map, config.start)
    wanted = config.model if start is None else started_settings(config.model, start[1])
    cutoff = wanted.cutoff
    graphs = GraphSet(frames, train.tolist(), type_map, cutoff)
    sample = list(graphs.spread(config.statistics_frames))
    settings = wanted.resolve_auto_sel(sample, type_map)
    model = settings.build(type_map)
    if start is None:
        model.fit_statistics([model.residual_labels(graph) for graph in sample])
    else:
        adopt(model, start[0])
        refit_energies(model, sample)
    e0_source = set_reference_energies(model, config.e0, found.isolated, sample)
    if config.start is not None and start is not None:
        freeze(model, config.start.frozen)
        graphs = _with_replay(config, model, start[0], graphs)
    held_graphs = GraphSet(source, held_out.tolist(), type_map, cutoff)
    resolved = config.model_copy(update={"type_map": list(type_map), "model": settings})
    fitted = isinstance(config.e0, str) and found.isolated is None
    return Prepared(resolved, model, graphs, held_graphs, e0_source, fitted)


def _with_replay(
    config: PotentialConfig, model: Potential, source: Potential, graphs: GraphSet
) -> GraphSet:
    """Return the training configurations with those of the former training, if any are wanted."""
    start = config.start
    if start is None or not start.replay:
        return graphs
    frames = open_atoms(start.replay, config.data.labels)
    frames.check(forces=config.loss.uses("forces"))
    change = model.get_buffer("shift").clone()
    change[: len(source.type_map)] -= source.get_buffer("shift").to(change)
    chosen = drawn_replay(frames, start.replay_frames, config.seed)
    former = GraphSet(frames, chosen, model.type_map, model.cutoff)
    return ReplayedGraphs(graphs, former, change)


def _duplicates(config: PotentialConfig, source: AtomsCollection) -> str:
    """Return a sentence on test configurations that are in the training files too, or ""."""
    if not all(path.exists() for path in config.data.path):
        return ""
    frames = open_atoms(config.data.path, config.data.labels)
    if len(frames) + len(source) > MOST_COMPARED:
        return ""

    def key(frame: Configuration) -> bytes:
        return np.round(frame.positions, 6).tobytes() + "".join(frame.species).encode()

    seen = {key(frame) for frame in frames}
    number = sum(key(frame) in seen for frame in source)
    if not number:
        return ""
    log.warning("%d test configurations are in the training files too", number)
    return f"{number} of these configurations are in the training files too."


def _test_frames(config: PotentialConfig, data: Path | None) -> tuple[AtomsCollection, str]:
    if data is not None:
        return open_atoms(data, config.data.labels), ""
    if config.data.test:
        return open_atoms(config.data.test, config.data.labels), ""
    note = "No data.test is given: these are configurations that training was stopped by."
    if config.data.validation:
        return open_atoms(config.data.validation, config.data.labels), note
    files = open_atoms(config.data.path, config.data.labels)
    frames = training_frames(files, config.e0, config.type_map).frames
    _, held_out = _draw(config, len(frames))
    return frames.subset(held_out.tolist()), note


def _draw(config: PotentialConfig, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which of `count` configurations to train on, and which are held out.

    Raises:
        DataError: none are left to train on.
    """
    held = max(1, round(count * config.split.validation))
    if held >= count:
        raise DataError(f"{count} configurations leave none to train on", where="data")
    order = np.random.default_rng(config.seed).permutation(count)
    return np.sort(order[held:]), np.sort(order[:held])
