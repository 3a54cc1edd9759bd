"""The stages of potentials: what differs from other surrogates in the life of `surrogate`.

Data are `Frames`, samples are their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from logging import Logger
from pathlib import Path
from typing import Any

from scitoolkit.core.contracts import Batch
from scitoolkit.core.data_differences import Accepts, Difference, refuse
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.devices import placed
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.results import Results
from scitoolkit.io.atoms import (
    CHECKED_FRAMES,
    AtomsCollection,
    check_label_names,
    labels_in,
    open_atoms,
    open_structures,
)
from scitoolkit.io.parts import identity
from scitoolkit.ops.low_rank import merge_low_rank_changes
from scitoolkit.potentials import evaluation, fine_tuning, teaching
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.copies import shared_with
from scitoolkit.potentials.data import GraphLoader, GraphSet
from scitoolkit.potentials.facts import ACCEPTS, another_unit, frames_facts, require_trained
from scitoolkit.potentials.forgetting import FORMER_MODEL, add_start
from scitoolkit.potentials.former_head import TwoHeads
from scitoolkit.potentials.frames import Frames, frames_of_job
from scitoolkit.potentials.graph import PARAMETERS, configuration_graph, type_indices
from scitoolkit.potentials.label_consistency import check_consistency
from scitoolkit.potentials.loss import PotentialTask
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.model_config import ModelConfig, models
from scitoolkit.potentials.pair_baseline import fit_pair_potential
from scitoolkit.potentials.pair_potential import PairPotential
from scitoolkit.potentials.prediction import write_predictions
from scitoolkit.potentials.reference_energies import (
    fit_interaction,
    refit_energies,
    set_reference_energies,
)
from scitoolkit.potentials.saved import save_model, untrained
from scitoolkit.surrogate import Opened, Stages, Trained, load, open_checked
from scitoolkit.surrogate.fine_tuning import freeze
from scitoolkit.surrogate.stages import Parts, Rows
from scitoolkit.training import current_rank, world_size

log: Logger = get_logger(__name__)
UNSEEN = "No data.test is given: these are the validation configurations of the training."


class PotentialStages(Stages):
    """Stages of potentials.

    Args:
        labelled: whether files to apply a potential to are opened with their labels.
    """

    def __init__(self, *, labelled: bool = True) -> None:
        self._labelled = labelled

    def files(self, config: PotentialConfig, directory: Path) -> Sequence[Path] | None:
        """Return the files that the generator labelled, by number."""
        return None if config.data.generator is None else teaching.files_of(config, directory)

    def produce(self, config: PotentialConfig, directory: Path, sample: bool) -> None:
        """Label the missing files of a generator."""
        if config.data.generator is not None:
            begun = any((directory / "checkpoints").glob("step-*"))
            teaching.make_files(self, config, directory, begun=begun, sample=sample)

    def open(self, config: PotentialConfig, path: Any) -> Frames:
        """Open a file to apply a potential to, or the files of the job, which are a list."""
        labels, trained = config.data.labels, config.data.path
        if path == config.data.test:
            return Frames(open_atoms(path, labels), "data.test", of_job=True, trained_files=trained)
        if not isinstance(path, (str, Path)):
            return self._of_job(config, path)
        path = Path(path)
        if not self._labelled:
            frames, trained = open_structures(path, labels), []
        else:
            frames = open_atoms(path, labels_in(path, labels))
        if not len(frames):
            raise DataError("no frame found", where=str(path))
        return Frames(frames, str(path), trained_files=trained)

    def _of_job(self, config: PotentialConfig, path: Sequence[Path], few: bool = False) -> Frames:
        if config.data.generator is None:
            return frames_of_job(config, generated=False)
        return frames_of_job(teaching.with_files(config, path, few=few), generated=not few)

    def open_indexed(self, config: PotentialConfig, path: Any, keep: bool) -> Frames:
        """Open and check training and validation files, and the weights to start from."""
        check_label_names(config.data.files, config.data.labels)
        source = None
        if config.start is not None:
            source, theirs = fine_tuning.source_model(config.start)
            settings = fine_tuning.started_settings(config.model, theirs)
            config = config.model_copy(update={"model": settings})
        data = self._of_job(config, path, few=not keep)
        frames = data.labelled
        frames.check(**{name: config.loss.uses(name) for name in ("forces", "virial")})
        if frames is not data.all:
            data.part("validation").check(energy=False, forces=False)
        type_map = config.type_map or frames.species()
        if config.start is not None and source is not None:
            former = fine_tuning.source_facts(config.start)
            require_trained(former, frames, "data.path", new_species=True)
            data.present = set(frames.species())
            type_map = fine_tuning.merged_species(source.type_map, type_map, config.start)
            if config.type_map is not None and config.type_map != list(type_map):
                log.warning("type_map: not used; that of the weights is %s", ", ".join(type_map))
            if config.start.former:
                compared = open_atoms(config.start.former, config.data.labels)
                compared.check(energy=False)
                for frame in compared:
                    type_indices(frame, source.type_map)
        _check_held_out(config, type_map)
        cutoff, train = config.model.cutoff, data.parts["train"]
        data.graphs["train"] = GraphSet(data.all, train, type_map, cutoff)
        data.type_map, data.source = tuple(type_map), source
        return data

    def facts(self, config: PotentialConfig, data: Frames) -> DataFacts:
        """Describe species, labels with units, periodicity and nearest distances."""
        if data.type_map:
            return frames_facts(data.labelled, data.type_map)
        return frames_facts(data.all, types=len(config.type_map or ()))

    def accepts(self, config: PotentialConfig) -> Accepts:
        """Allow frames without labels, and any periodicity."""
        return ACCEPTS

    def convert(
        self, data: Frames, differences: Sequence[Difference], trained: DataFacts | None
    ) -> Frames:
        """Return the frames, which are read in eV and Å; refuse distances in another unit."""
        if trained is not None:
            refuse(another_unit(trained, frames_facts(data.all)), data.where)
        return data

    def split(self, config: PotentialConfig, data: Frames) -> Parts:
        """Return the frames of each part: of `data.validation`, or a share of `data.path`."""
        return data.parts

    def measure(self, config: PotentialConfig, data: Frames, rows: Rows) -> Mapping[str, Any]:
        """Return the type map and the settings of the model with its number of neighbours."""
        assert data.settings is not None
        data.settings = data.settings.resolve_auto_sel(data.sample(config), data.type_map)
        return {"type_map": list(data.type_map), "model": data.settings.model_dump(mode="json")}

    def settled(self, config: PotentialConfig, measured: Mapping[str, Any]) -> PotentialConfig:
        """Return the configuration with the type map and all settings of the model."""
        if not measured:  # of a former folder, whose configuration has them
            return config
        settings = models.get(measured["model"]["name"]).model_validate(measured["model"])
        return config.model_copy(update={"type_map": measured["type_map"], "model": settings})

    def build(
        self,
        config: PotentialConfig,
        facts: DataFacts | None,
        measured: Mapping[str, Any],
        seed: int,
    ) -> Potential:
        """Return an untrained potential, whose weights are drawn by `model.seed`."""
        return untrained(self.settled(config, measured))

    def initialise(self, config: PotentialConfig, opened: Opened, model: Potential) -> None:
        """Set statistics, E0 and the weights of the start."""
        data, start, source = opened.data, config.start, opened.data.source
        sample = data.sample(config)
        _check_inputs(config.model, sample)
        check_consistency(
            data.graphs["train"], len(model.type_map), model.cutoff, config.data.labels
        )
        if source is None:
            model.fit_statistics([model.residual_labels(graph) for graph in sample])
        else:
            fine_tuning.adopt(model, source)
            refit_energies(model, sample)
        trained = () if source is None else source.type_map
        data.e0_source = set_reference_energies(
            model, config.e0, data.isolated, sample, trained=trained
        )
        data.network = model
        held_out = data.parts["validation"]
        data.graphs["validation"] = GraphSet(data.all, held_out, model.type_map, model.cutoff)
        if start is not None:
            freeze(model, start.frozen)
            fine_tuning.train_low_rank(model, start, config.seed)
            if start.replay:
                former = open_atoms(start.replay, config.data.labels)
                data.present |= set(former.species())
                new = data.graphs["train"]
                replayed = fine_tuning.replayed(start, config.seed, model, source, former)
                data.graphs["train"] = fine_tuning.ReplayedGraphs(new, *replayed)
            if start.heads == "separate":
                data.network = TwoHeads(model, source)
        model.train()

    def task(self, config: PotentialConfig, opened: Opened, model: Potential) -> PotentialTask:
        """Return the errors of energies, forces and virials, of two readouts if there are two."""
        return PotentialTask(opened.data.network, config.loss, config.training.schedule)

    def loader(
        self, config: PotentialConfig, opened: Opened, part: str, model: Potential
    ) -> GraphLoader:
        """Return the graphs of a part, with those of the former training to train on."""
        processes, shuffle = world_size(), part == "train"
        return GraphLoader(
            opened.data.graphs[part],
            config.training.batch_size if shuffle else max(1, processes),
            seed=config.training.seed,
            shuffle=shuffle,
            rank=current_rank(),
            world_size=processes,
        )

    def describe(self, opened: Opened) -> Mapping[str, Any]:
        """Return species, sizes of the network and of neighbourhoods, and the origin of E0."""
        data = opened.data
        graphs = list(data.graphs["train"].spread(CHECKED_FRAMES))
        edges = sum(graph["edge_index"].shape[1] for graph in graphs)
        return {
            "type_map": list(data.type_map),
            **data.settings.summary(),
            "e0": data.e0_source,
            "edges_per_atom": edges / sum(len(graph["types"]) for graph in graphs),
        }

    def finalise(self, config: PotentialConfig, opened: Opened, model: Potential) -> None:
        """Merge low-rank changes, refit E0, and save the potential of the former readout."""
        data = opened.data
        merge_low_rank_changes(model)
        if data.source is not None:
            fine_tuning.keep_absent(model, data.settings, data.source, data.present)
        if config.refit_e0:
            refit = refit_energies if data.e0_is_fitted(config) else fit_interaction
            refit(model, data.sample(config))
        if isinstance(data.network, TwoHeads) and opened.directory is not None:
            former, settled = data.network.former_model(data.settings), opened.measured
            save_model(former, self.settled(config, settled), opened.directory / FORMER_MODEL)
        model.unpin()

    def calibrate(
        self, config: PotentialConfig, opened: Opened, model: Potential, folder: Path
    ) -> None:
        """Write the pair potential that a report compares with."""
        train, validation = (opened.data.graphs[part] for part in ("train", "validation"))
        species, cutoff = len(model.type_map), model.cutoff
        baseline = fit_pair_potential(train, validation, species, cutoff, config.loss)
        if baseline is not None:
            baseline.save(folder)

    def evaluate(
        self, config: PotentialConfig, model: Potential, data: Frames, rows: Rows | None
    ) -> Results:
        """Score energies, forces and virials of frames."""
        frames = data.all if rows is None else data.all.subset(_numbers(rows))
        return _scored(config, model, frames)

    def report(self, trained: Trained, data: Frames, rows: Rows | None) -> tuple[Results, None]:
        """Score the test part, or the validation part if there is none; compare with baselines."""
        config, model, folder = trained.config, trained.model, trained.folder
        frames, note, of_other_files = data.all, "", True
        if data.parts:
            tested = "test" in data.parts
            frames = data.part("test" if tested else "validation")
            note = "" if tested else UNSEEN
            of_other_files = tested or bool(config.data.validation)
        if of_other_files:
            shared = shared_with(data.trained_files, config.data.labels, frames)
            note = " ".join(filter(None, (note, shared)))
        baseline = PairPotential.load(folder.path, len(model.type_map))
        results = _scored(config, model, frames, note, baseline)
        if data.of_job:
            add_start(results, config, folder.directory, model, frames)
            teaching.add_rounds(results, config, folder.directory)
        return results, None

    def predict(
        self, config: PotentialConfig, model: Potential, data: Frames, output: Path
    ) -> None:
        """Write energies, forces and virials as .nc or .xyz; see `write_predictions`."""
        write_predictions(placed(model), data.all, output)


def _check_held_out(config: PotentialConfig, type_map: Sequence[str]) -> None:
    """Read the files of validation and test before the training, not at its end.

    Raises:
        DataError: a file without labels, or a species that the model does not have.
    """
    for paths in (config.data.validation, config.data.test):
        if paths:
            frames = open_atoms(paths, config.data.labels)
            frames.check(energy=False, forces=False)
            for frame in frames:
                type_indices(frame, type_map)
            shared_with(config.data.path, config.data.labels, frames)


def _check_inputs(settings: ModelConfig, graphs: Sequence[Batch]) -> None:
    """Log external parameters that the model does not read.

    Raises:
        ConfigError: no atom has a neighbour, so that there is nothing to learn.
    """
    if not any(graph["edge_index"].shape[1] for graph in graphs):
        raise ConfigError(
            f"no atom has a neighbour within the cutoff of {settings.cutoff:g} Å",
            where="model.cutoff",
            fix="a larger cutoff, or data.labels.length_unit",
        )
    for name in PARAMETERS:
        widths = {graph[name].shape[1] for graph in graphs if name in graph}
        if widths and not getattr(settings, name, 0):
            log.warning(
                "the frames have %s, which the model does not read. Fix: model.%s=%d of a Deep "
                "Potential",
                name.replace("_", " "),
                name,
                max(widths),
            )


def _numbers(rows: Rows) -> list[int]:
    return [row for row in rows if isinstance(row, int)]


def _scored(
    config: PotentialConfig,
    model: Potential,
    frames: AtomsCollection,
    note: str = "",
    baseline: PairPotential | None = None,
) -> Results:
    """Return the errors on labelled frames."""
    frames.check(energy=False, forces=False)
    title = f"{config.workflow}: {config.model.name} for {'-'.join(model.type_map)}"
    config_types: list[str] = []

    def graphs() -> Iterator[Batch]:
        for frame in frames:
            config_types.append(frame.config_type)
            yield configuration_graph(frame, model.type_map, model.cutoff)

    return evaluation.results(model, graphs(), title, note, baseline, config_types)


def predict_file(directory: Path, source: Path, output: Path) -> None:
    """Predict a file's configurations; continue if model and file are those of before."""
    stages = PotentialStages(labelled=False)
    trained = load(stages, PotentialConfig, directory)
    data = open_checked(stages, trained.config, source, trained.facts)
    about = {"model": trained.folder.digest(), "file": identity(source)}
    write_predictions(placed(trained.model), data.all, output, about)
