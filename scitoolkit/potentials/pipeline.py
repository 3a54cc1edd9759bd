"""Training, evaluation, prediction and export of interatomic potentials."""

from __future__ import annotations

from collections.abc import Mapping
from logging import Logger
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from scitoolkit.core.devices import device_notes, placed
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.io.atoms import (
    AtomsCollection,
    Configuration,
    labels_in,
    open_atoms,
    open_structures,
)
from scitoolkit.io.parts import identity
from scitoolkit.ops.low_rank import merge_low_rank_changes
from scitoolkit.potentials import evaluation
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.data import GraphLoader, GraphSet
from scitoolkit.potentials.export.options import LibraryOptions
from scitoolkit.potentials.facts import require_trained
from scitoolkit.potentials.fine_tuning import keep_absent
from scitoolkit.potentials.forgetting import FORMER_MODEL, add_start
from scitoolkit.potentials.former_head import TwoHeads
from scitoolkit.potentials.loss import PotentialTask
from scitoolkit.potentials.pair_baseline import fit_pair_potential
from scitoolkit.potentials.pair_potential import PairPotential
from scitoolkit.potentials.prediction import write_predictions
from scitoolkit.potentials.preparation import held_out_share, prepare
from scitoolkit.potentials.reference_energies import (
    fit_interaction,
    refit_energies,
    training_frames,
)
from scitoolkit.potentials.saved import MODEL, load_model, save_model
from scitoolkit.potentials.teaching import add_rounds, first_files, make_files, with_files
from scitoolkit.training import Trainer, current_rank, load_best, world_size

log: Logger = get_logger(__name__)
MOST_COMPARED = 20_000  # configurations that are compared for duplicates


def check(config: PotentialConfig) -> Mapping[str, Any]:
    """Open the data, build the model and evaluate the loss of one batch; write nothing."""
    with TemporaryDirectory() as folder:
        return _checked(first_files(config, Path(folder)))


def _checked(config: PotentialConfig) -> Mapping[str, Any]:
    ready = prepare(config)
    loader = GraphLoader(ready.train, config.training.batch_size, seed=config.training.seed)
    batch = next(iter(loader))
    ready.network.train()
    loss, _ = PotentialTask(ready.network, config.loss).loss(batch)
    return {
        "configurations": {"train": len(ready.train), "validation": len(ready.validation)},
        "type_map": list(ready.model.type_map),
        **ready.config.model.summary(),
        "e0": ready.e0_source,
        "edges_per_atom": batch["edge_index"].shape[1] / len(batch["types"]),
        "parameters": sum(p.numel() for p in ready.network.parameters()),
        "first_loss": float(loss.detach()),
        "loader": loader.explain(),
    }


def train(config: PotentialConfig, run: RunDirectory, *, resume: bool = False) -> None:
    """Train, and save the weights with the lowest validation loss in `model/`."""
    make_files(config, run.path, begun=resume and any(run.checkpoints.glob("step-*")))
    ready = prepare(with_files(config, run.path))
    training = config.training
    task = PotentialTask(ready.network, config.loss, training.schedule)
    trainer = Trainer(task, training, run=run)
    share: dict[str, Any] = {"rank": current_rank(), "world_size": world_size()}
    trainer.fit(
        GraphLoader(ready.train, training.batch_size, seed=training.seed, **share),
        GraphLoader(ready.validation, max(1, world_size()), shuffle=False, **share),
        resume=resume,
    )
    if current_rank() == 0:
        load_best(ready.network, run.checkpoints)
        merge_low_rank_changes(ready.model)
        if ready.source is not None:
            keep_absent(ready.model, ready.config.model, ready.source, ready.present)
        if config.refit_e0:
            refit = refit_energies if ready.e0_fitted else fit_interaction
            refit(ready.model, list(ready.train.spread(config.statistics_frames)))
        resolved = ready.config.model_copy(update={"data": config.data})
        if isinstance(ready.network, TwoHeads):
            former = ready.network.former_model(resolved.model)
            save_model(former, resolved, run.path / FORMER_MODEL)
        ready.model.unpin()
        save_model(ready.model, resolved, run.path / MODEL)
        ModelFolder(run.path).save_facts(ready.facts)
        model = ready.model
        baseline = fit_pair_potential(
            ready.train, ready.validation, len(model.type_map), model.cutoff, config.loss
        )
        if baseline is not None:
            baseline.save(run.path / MODEL)


def evaluate(directory: Path, data: Path | None = None) -> Results:
    """Evaluate on the run's test part, or on any labelled file of atoms.

    Writes results.json and model/metrics.json into a run directory; writes nothing if `data` is
    given.
    """
    model, config, folder = load_model(directory)
    placed(model)
    if data is None:
        config = with_files(config, Path(directory))
    source, note = _test_frames(config, data)
    if data is not None:
        require_trained(ModelFolder(directory).facts(), source, str(data))
    source.check(energy=False, forces=False)
    graphs = GraphSet(source, range(len(source)), model.type_map, model.cutoff, cache_bytes=0)
    if not note:
        note = _duplicates(config, source)
    title = f"{config.workflow}: {config.model.name} for {'-'.join(model.type_map)}"
    baseline = PairPotential.load(folder, len(model.type_map))
    found = evaluation.results(
        model, (graphs[i] for i in range(len(graphs))), title, note, baseline
    )
    found.summary.extend(device_notes())
    if data is None:
        add_start(found, config, Path(directory), model, source)
        add_rounds(found, config, Path(directory))
    if data is None and folder != Path(directory):
        found.write_run(Path(directory), folder)
    return found


def predict(directory: Path, source: Path, output: Path) -> None:
    """Write the predictions for a file's configurations as .nc or .xyz; see `write_predictions`."""
    model, config, _ = load_model(directory)
    placed(model)
    about = {"model": ModelFolder(directory).digest(), "file": identity(source)}
    frames = open_structures(source, config.data.labels)
    require_trained(ModelFolder(directory).facts(), frames, str(source))
    write_predictions(model, frames, output, about)


def export(directory: Path, output: Path, options: LibraryOptions) -> Mapping[str, Any]:
    """Write, compile and check the C library of a model; see `potentials.export`."""
    from scitoolkit.potentials.export.write import export_library

    model, config, _ = load_model(directory, options.precision)
    if options.compress:
        model.compress()
    return export_library(model, config.model, Path(output))


def _duplicates(config: PotentialConfig, source: AtomsCollection) -> str:
    """Return a sentence on test configurations that are also in the training files, or ""."""
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
    log.warning("%d test configurations are also in the training files", number)
    return f"{number} of these configurations are also in the training files."


def _test_frames(config: PotentialConfig, data: Path | None) -> tuple[AtomsCollection, str]:
    if data is not None:
        return open_atoms(data, labels_in(data, config.data.labels)), ""
    if config.data.test:
        return open_atoms(config.data.test, config.data.labels), ""
    note = "No data.test is given: these are the validation configurations of the training."
    if config.data.validation:
        return open_atoms(config.data.validation, config.data.labels), note
    files = open_atoms(config.data.path, config.data.labels)
    frames = training_frames(files, config.e0, config.type_map, config.model.cutoff).frames
    _, held_out = held_out_share(config, len(frames))
    return frames.subset(held_out.tolist()), note
