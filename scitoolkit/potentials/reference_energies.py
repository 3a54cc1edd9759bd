"""Reference energy E0 of each species: isolated atoms, least squares or given values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from logging import Logger

import numpy as np
import torch

from scitoolkit.core.contracts import Batch
from scitoolkit.core.devices import apply, device_of, to_device
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.atoms import AtomsCollection, Configuration
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.statistics import composition, composition_rank, energy_shifts

log: Logger = get_logger(__name__)
DISTANT = 6.0
"""Å; the cutoff of most models, where the model's own is not known."""
_MOST_IMAGES = 50
SAME_FORCE = 0.05  # eV/Å; a grid of a plane-wave code pulls a lone atom by less
SAME_ENERGY = 1e-3  # eV; larger differences between frames of one isolated atom are logged


@dataclass(frozen=True)
class TrainingFrames:
    """Training frames and the energies of isolated atoms in the files.

    Attributes:
        frames: without the isolated atoms, if these give E0.
        isolated: eV by species; None if E0 is from another source.
    """

    frames: AtomsCollection
    isolated: dict[str, float] | None = None


def training_frames(
    frames: AtomsCollection,
    wanted: str | Mapping[str, float],
    type_map: Sequence[str] | None,
    cutoff: float = DISTANT,
) -> TrainingFrames:
    """Return the training frames, with isolated atoms separated if their energies give E0.

    Args:
        frames: of the training files.
        wanted: the configuration's `e0`.
        type_map: species that need an energy; by default those of the frames.
        cutoff: Å, of the model; an isolated atom has no neighbour within it, itself included.

    Raises:
        DataError: `wanted` is `isolated`, and a species has no frame of an isolated atom; or all
            frames are isolated atoms.
    """
    if wanted not in ("auto", "isolated"):
        return TrainingFrames(frames)
    single = [i for i in range(len(frames)) if frames.num_atoms(i) == 1]
    alone = [i for i in single if is_isolated(frames[i], cutoff)]
    energies = _lone_energies(frames, alone) if alone else {}
    if not alone and wanted == "auto":
        return TrainingFrames(frames)
    missing = sorted(set(type_map or frames.species()) - set(energies))
    if missing and wanted == "isolated":
        raise DataError(
            f"no frame of an isolated atom of {', '.join(missing)} with an energy",
            where="data.path",
            fix="e0=least_squares, or e0: {H: -13.6, ...}",
        )
    if missing:
        log.info("no isolated atom of %s: E0 by least squares", ", ".join(missing))
        return TrainingFrames(frames)
    left = np.setdiff1d(np.arange(len(frames)), alone).tolist()
    if not left:
        raise DataError("only isolated atoms, nothing to train on", where="data.path")
    return TrainingFrames(frames.subset(left), energies)


def is_isolated(frame: Configuration, cutoff: float) -> bool:
    """Return whether a frame is one atom without a neighbour within the cutoff.

    A periodic cell of one atom is a crystal of its images.

    Args:
        frame: any number of atoms.
        cutoff: Å.
    """
    if len(frame.species) != 1:
        return False
    vectors = np.asarray(frame.cell, np.float64)[np.asarray(frame.pbc, bool)]
    if not len(vectors):
        return True
    # Heights bound how many cells a sphere of the cutoff reaches in each direction.
    inverse = np.linalg.norm(np.linalg.pinv(vectors), axis=0)
    if not (inverse > 0).all():
        return False  # a periodic direction without a length
    heights = 1 / inverse
    reach = np.ceil(cutoff / heights).astype(int)
    if reach.max() > _MOST_IMAGES:
        return False  # a very thin cell: its images are near
    ranges = [np.arange(-n, n + 1) for n in reach]
    images = np.stack(np.meshgrid(*ranges, indexing="ij"), -1).reshape(-1, len(vectors))
    distances = np.linalg.norm(images[images.any(axis=1)] @ vectors, axis=1)
    return not bool((distances < cutoff).any())


def _lone_energies(frames: AtomsCollection, alone: Sequence[int]) -> dict[str, float]:
    """Return the lowest energy of each species among frames of one atom."""
    energies: dict[str, float] = {}
    for index in alone:
        frame = frames[index]
        if frame.energy is None:
            continue
        name = str(frame.species[0])
        if frame.forces is not None and not (pull := np.abs(frame.forces).max()) < SAME_FORCE:
            raise DataError(
                f"a lone atom of {name} with a force of {pull:.3g} eV/Å, which is zero by symmetry",
                where=frame.where,
                fix="remove the frame, or write e0: {" + name + ": ...}",
            )
        other = energies.get(name, frame.energy)
        if abs(other - frame.energy) > SAME_ENERGY:
            log.warning(
                "isolated %s: %.4f and %.4f eV; the lower one is taken", name, other, frame.energy
            )
        energies[name] = min(other, frame.energy)
    return energies


def set_reference_energies(
    model: Potential,
    wanted: str | Mapping[str, float],
    isolated: Mapping[str, float] | None,
    graphs: Sequence[Batch],
    *,
    trained: Sequence[str] = (),
) -> str:
    """Replace the least-squares E0 by given or isolated energies; return the source of E0.

    Given and isolated energies are those of lone atoms: the model is pinned to them, and its mean
    interaction energies are fitted to the frames.

    Args:
        model: with its statistics set.
        wanted: the configuration's `e0`.
        isolated: of `TrainingFrames`.
        graphs: training frames, whose compositions determine the least-squares energies.
        trained: species of the weights in fine-tuning; those without an energy keep their own.

    Raises:
        ConfigError: given energies lack a species, or have one that the model does not have.
    """
    source = "least squares over the energies of training frames"
    energies = isolated
    if not isinstance(wanted, str):
        energies, source = wanted, "the configuration"
        present = _present(model.type_map, graphs)
        _check_names(wanted, model.type_map, {*trained} - present)
    elif isolated is not None:
        source = "isolated atoms in the data"
    if energies is not None:
        _pin(model, energies, graphs)
    else:
        source += _undetermined(model.type_map, graphs)
    values = model.get_buffer("shift").tolist()
    listed = ", ".join(f"{n} {v:.6g}" for n, v in zip(model.type_map, values, strict=True))
    log.info("E0 in eV from %s: %s", source, listed)
    return source


def _present(type_map: Sequence[str], graphs: Sequence[Batch]) -> set[str]:
    """Return the species of the frames."""
    return {type_map[number] for graph in graphs for number in graph["types"].unique().tolist()}


@torch.no_grad()
def _pin(model: Potential, energies: Mapping[str, float], graphs: Sequence[Batch]) -> None:
    """Pin lone atoms to energies, eV by species, and fit the mean interaction energies."""
    before = model.lone_energies().tolist()
    values = [energies.get(n, e) for n, e in zip(model.type_map, before, strict=True)]
    shift, is_new = model.get_buffer("shift"), model.interaction is None
    shift.copy_(torch.tensor(values, dtype=torch.float64))
    model.pin()
    if is_new:
        model.add_interaction().fit_density(graphs)
    fit_interaction(model, graphs)


@torch.no_grad()
def fit_interaction(model: Potential, graphs: Sequence[Batch]) -> None:
    """Add the least-squares fit of the energy errors to the mean interaction energies.

    Energies of lone atoms do not change.

    Args:
        model: with an interaction.
        graphs: labelled training frames.
    """
    interaction, training = model.add_interaction(), model.training
    model.eval()
    counts, errors = [], []
    for graph in graphs:
        if "energy" not in graph:
            continue
        number = len(graph["num_atoms"])
        shares = interaction.shares(to_device(graph, device_of(model))).cpu()
        weights = shares.new_zeros(number, len(model.type_map))
        weights.index_put_((graph["frame"], graph["types"]), shares, accumulate=True)
        counts.append(weights)
        errors.append(graph["energy"] - apply(model, graph)["energy"])
    model.train(training)
    if not counts:
        return
    table, error = torch.cat(counts).numpy(), torch.cat(errors).numpy()
    change = energy_shifts(table, error)
    interaction.energy += torch.from_numpy(change).to(interaction.energy)
    log.info(
        "mean interaction energies fitted: rms energy error %.3g -> %.3g eV on %d training frames",
        np.sqrt(np.mean(error**2)),
        np.sqrt(np.mean((error - table @ change) ** 2)),
        len(error),
    )


def _undetermined(type_map: Sequence[str], graphs: Sequence[Batch]) -> str:
    """Return a note, and warn, if the compositions do not determine all E0; else ""."""
    rank = composition_rank(graphs, len(type_map))
    if rank == len(type_map):
        return ""
    log.warning(
        "the frames' compositions determine %d of %d energies E0: energies of other compositions "
        "and of fragments are meaningless. Fix: e0: {%s}, or frames of isolated atoms",
        rank,
        len(type_map),
        ", ".join(f"{name}: ..." for name in type_map),
    )
    return f", which determine {rank} of {len(type_map)}: energies of fragments are meaningless"


@torch.no_grad()
def refit_energies(model: Potential, graphs: Sequence[Batch]) -> None:
    """Add the least-squares fit of the energy errors on training frames to E0.

    This removes the constant errors of a training that was stopped early or weighted forces only;
    forces do not change.

    Args:
        model: trained.
        graphs: labelled training frames.
    """
    model.eval()
    graphs = [graph for graph in graphs if "energy" in graph]
    counts, labels = composition(graphs, len(model.type_map))
    predicted = [energy for graph in graphs for energy in apply(model, graph)["energy"].tolist()]
    errors = labels - np.array(predicted)
    change = energy_shifts(counts, errors)
    shift = model.get_buffer("shift")
    shift += torch.from_numpy(change).to(shift)
    log.info(
        "E0 refitted: rms energy error %.3g -> %.3g eV on %d training frames",
        np.sqrt(np.mean(errors**2)),
        np.sqrt(np.mean((errors - counts @ change) ** 2)),
        len(labels),
    )


def _check_names(
    given: Mapping[str, float], type_map: Sequence[str], optional: Collection[str]
) -> None:
    missing = [name for name in type_map if name not in given and name not in optional]
    unknown = [name for name in given if name not in type_map]
    if missing or unknown:
        name = (unknown or missing)[0]
        raise ConfigError(
            f"e0 {'names ' + ', '.join(unknown) if unknown else 'lacks ' + ', '.join(missing)}",
            where="e0",
            allowed=", ".join(type_map),
            fix=(nearest_name(name, list(type_map)) or f"leave {name} out")
            if unknown
            else f"e0: {{{name}: ...}}",
        )
