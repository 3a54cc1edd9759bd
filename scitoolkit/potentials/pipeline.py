"""Training, evaluation and application of interatomic potentials; their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from scitoolkit.core.config import dump_config, load_config
from scitoolkit.core.errors import CheckpointError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory, replacing, write_atomic
from scitoolkit.io.atoms import AtomsCollection, Configuration, check_label_names, open_atoms
from scitoolkit.potentials import evaluation
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.data import GraphLoader, GraphSet
from scitoolkit.potentials.export.options import LibraryOptions
from scitoolkit.potentials.loss import PotentialTask
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.prediction import write_predictions
from scitoolkit.potentials.reference_energies import (
    refit_energies,
    set_reference_energies,
    training_frames,
)
from scitoolkit.training import Trainer, best_weights, current_rank, world_size

log: Logger = get_logger(__name__)
MODEL, WEIGHTS = "model", "weights.safetensors"
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
    write_predictions(model, open_atoms(source, config.data.labels), output)


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
    cutoff = config.model.cutoff
    graphs = GraphSet(frames, train.tolist(), type_map, cutoff)
    sample = list(graphs.spread(config.statistics_frames))
    settings = config.model.resolve_auto_sel(sample, type_map)
    model = settings.build(type_map)
    model.fit_statistics([model.residual_labels(graph) for graph in sample])
    e0_source = set_reference_energies(model, config.e0, found.isolated, sample)
    held_graphs = GraphSet(source, held_out.tolist(), type_map, cutoff)
    resolved = config.model_copy(update={"type_map": list(type_map), "model": settings})
    fitted = isinstance(config.e0, str) and found.isolated is None
    return Prepared(resolved, model, graphs, held_graphs, e0_source, fitted)


def save_model(model: Potential, config: PotentialConfig, folder: Path) -> None:
    """Write weights and the configuration that rebuilds the model."""
    folder.mkdir(exist_ok=True)
    write_atomic(folder / "config.yaml", dump_config(config))
    with replacing(folder / WEIGHTS, SafetensorError) as temporary:
        save_file({k: v.contiguous() for k, v in model.state_dict().items()}, temporary)


def load_model(
    directory: Path | str, precision: str | None = None
) -> tuple[Potential, PotentialConfig, Path]:
    """Return (model, configuration, folder of the weights) of a run or surrogate directory.

    Args:
        directory: of the run or the surrogate.
        precision: float32 or float64 instead of the one it was trained in.

    Raises:
        DataError: it holds no finished model.
        CheckpointError: weights and configuration do not belong together.
    """
    directory = Path(directory)
    folder = directory / MODEL if (directory / MODEL).is_dir() else directory
    if not (folder / WEIGHTS).is_file():
        raise DataError(
            "no trained potential in it", where=str(directory), fix="scitoolkit train CONFIG"
        )
    config = load_config(PotentialConfig, folder / "config.yaml")
    if config.type_map is None:
        raise DataError("type_map is missing", where=str(folder / "config.yaml"))
    if precision is not None:
        settings = config.model.model_dump() | {"precision": precision}
        config = config.model_copy(update={"model": type(config.model)(**settings)})
    model = config.model.build(config.type_map)  # type: ignore[arg-type]
    try:
        model.load_state_dict(load_file(folder / WEIGHTS))
    except RuntimeError as error:
        raise CheckpointError(
            f"weights do not fit the configuration ({' '.join(str(error).split())[:200]})",
            where=str(folder / WEIGHTS),
        ) from None
    return model.eval(), config, folder


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
