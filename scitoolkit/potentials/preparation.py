"""Preparation of a training: data sets, type map, model, statistics and E0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import AtomsCollection, check_label_names, open_atoms
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.data import GraphSet
from scitoolkit.potentials.facts import frames_facts, require_trained
from scitoolkit.potentials.fine_tuning import (
    ReplayedGraphs,
    adopt,
    drawn_replay,
    merged_species,
    source_facts,
    source_model,
    started_settings,
    train_low_rank,
)
from scitoolkit.potentials.former_head import TwoHeads
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.reference_energies import (
    refit_energies,
    set_reference_energies,
    training_frames,
)
from scitoolkit.surrogate.fine_tuning import freeze


@dataclass
class Prepared:
    """An untrained model with its data.

    Attributes:
        config: with the type map and `sel` filled in.
        model: with its statistics and E0.
        network: what is trained: the model, or it with the readout of a former training.
        source: in fine-tuning, the model of the start.
        present: in fine-tuning, the elements of the training frames, replayed ones included.
        train: training graphs, with replayed ones if configured.
        validation: validation graphs.
        e0_source: origin of E0, for the log and `validate`.
        e0_fitted: whether E0 is from least squares, not from isolated atoms or the configuration.
        facts: of the training frames.
    """

    config: PotentialConfig
    model: Potential
    train: GraphSet
    validation: GraphSet
    e0_source: str
    e0_fitted: bool
    facts: DataFacts
    network: Potential | TwoHeads
    source: Potential | None = None
    present: frozenset[str] = frozenset()


def prepare(config: PotentialConfig) -> Prepared:
    """Open and check the data, build the model and set its statistics and E0."""
    check_label_names(config.data.files, config.data.labels)
    start = None if config.start is None else source_model(config.start)
    wanted = config.model if start is None else started_settings(config.model, start[1])
    cutoff = wanted.cutoff
    files = open_atoms(config.data.path, config.data.labels)
    found = training_frames(files, config.e0, config.type_map, cutoff)
    frames = found.frames
    required = {name: config.loss.uses(name) for name in ("forces", "virial")}
    frames.check(**required)
    if config.data.validation:
        others = open_atoms(config.data.validation, config.data.labels)
        others.check(energy=False, forces=False)
        train, source, held_out = np.arange(len(frames)), others, np.arange(len(others))
    else:
        train, held_out = held_out_share(config, len(frames))
        source = frames
    type_map = config.type_map or frames.species()
    if config.start is not None and start is not None:
        require_trained(source_facts(config.start), frames, "data.path", new_species=True)
        type_map = merged_species(start[0].type_map, type_map, config.start)
    graphs = GraphSet(frames, train.tolist(), type_map, cutoff)
    sample = list(graphs.spread(config.statistics_frames))
    settings = wanted.resolve_auto_sel(sample, type_map)
    model = settings.build(type_map)
    if start is None:
        model.fit_statistics([model.residual_labels(graph) for graph in sample])
    else:
        adopt(model, start[0])
        refit_energies(model, sample)
    known = () if start is None else start[0].type_map
    e0_source = set_reference_energies(model, config.e0, found.isolated, sample, trained=known)
    network: Potential | TwoHeads = model
    present = frozenset(frames.species() if start is not None else ())
    if config.start is not None and start is not None:
        freeze(model, config.start.frozen)
        train_low_rank(model, config.start, config.seed)
        if config.start.replay:
            former = open_atoms(config.start.replay, config.data.labels)
            graphs = _with_replay(config, model, start[0], graphs, former)
            present |= set(former.species())
        if config.start.heads == "separate":
            network = TwoHeads(model, start[0])
    held_graphs = GraphSet(source, held_out.tolist(), type_map, cutoff)
    resolved = config.model_copy(update={"type_map": list(type_map), "model": settings})
    fitted = isinstance(config.e0, str) and found.isolated is None
    facts = frames_facts(frames, type_map)
    source_potential = None if start is None else start[0]
    return Prepared(
        resolved,
        model,
        graphs,
        held_graphs,
        e0_source,
        fitted,
        facts,
        network,
        source_potential,
        present,
    )


def _with_replay(
    config: PotentialConfig,
    model: Potential,
    source: Potential,
    graphs: GraphSet,
    frames: AtomsCollection,
) -> GraphSet:
    """Return the training graphs with those of `frames`, the files of `start.replay`."""
    start = config.start
    assert start is not None
    frames.check(energy=False, forces=False)
    require_trained(source_facts(start), frames, "start.replay")
    change = None
    if start.heads == "shared":
        change = _constants(model).double()
        change[: len(source.type_map)] -= _constants(source)
    chosen = drawn_replay(frames, start.replay_frames, config.seed)
    former = GraphSet(frames, chosen, model.type_map, model.cutoff)
    return ReplayedGraphs(graphs, former, change)


def _constants(model: Potential) -> Tensor:
    """Return the constant part of the energy of an atom with neighbours by species, eV, (T,)."""
    constants = model.get_buffer("shift").detach().cpu().clone()
    if model.is_pinned:
        constants -= model.lone_network_energies().cpu()
    if model.interaction is not None:
        constants += model.interaction.means.detach().cpu()
    return constants


def held_out_share(config: PotentialConfig, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the training and of the held-out configurations among `count`.

    Raises:
        DataError: none are left to train on.
    """
    held = max(1, round(count * config.split.validation))
    if held >= count:
        raise DataError(f"{count} configurations leave none to train on", where="data")
    order = np.random.default_rng(config.seed).permutation(count)
    return np.sort(order[held:]), np.sort(order[:held])
