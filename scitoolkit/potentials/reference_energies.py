"""The energy E0 of each species, that a model's atoms start from: where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import Logger

import numpy as np
import torch

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.atoms import AtomsCollection
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.statistics import composition, composition_rank, energy_shifts

log: Logger = get_logger(__name__)
SAME_ENERGY = 1e-3  # eV, by which frames of one lone atom may differ without a word


@dataclass(frozen=True)
class TrainingFrames:
    """The frames to learn from, and the energies of lone atoms that were among the files.

    Attributes:
        frames: without those of `isolated`, where these are E0.
        isolated: eV by species, None where E0 comes from elsewhere.
    """

    frames: AtomsCollection
    isolated: dict[str, float] | None = None


def training_frames(
    frames: AtomsCollection, wanted: str | Mapping[str, float], type_map: Sequence[str] | None
) -> TrainingFrames:
    """Return the frames without those of single atoms, where their energies are to be E0.

    Args:
        frames: of the training files.
        wanted: the configuration's `e0`.
        type_map: species that need an energy; those of the frames unless given.

    Raises:
        DataError: `isolated` is wanted, and a species has no such frame.
    """
    if wanted not in ("auto", "isolated"):
        return TrainingFrames(frames)
    alone = [i for i in range(len(frames)) if frames.num_atoms(i) == 1]
    energies = _lone_energies(frames, alone) if alone else {}
    if not alone and wanted == "auto":
        return TrainingFrames(frames)
    missing = sorted(set(type_map or frames.species()) - set(energies))
    if missing and wanted == "isolated":
        raise DataError(
            f"no frame of an isolated atom of {', '.join(missing)} with an energy",
            where="data.path", fix="e0=least_squares, or e0: {H: -13.6, ...}",
        )  # fmt: skip
    if missing:
        log.info("no isolated atom of %s: E0 by least squares", ", ".join(missing))
        return TrainingFrames(frames)
    left = np.setdiff1d(np.arange(len(frames)), alone).tolist()
    if not left:
        raise DataError("only isolated atoms, nothing to train on", where="data.path")
    return TrainingFrames(frames.subset(left), energies)


def _lone_energies(frames: AtomsCollection, alone: Sequence[int]) -> dict[str, float]:
    """Return the least energy of each species among frames of one atom."""
    found: dict[str, float] = {}
    for index in alone:
        frame = frames[index]
        if frame.energy is None:
            continue
        name = str(frame.species[0])
        other = found.get(name, frame.energy)
        if abs(other - frame.energy) > SAME_ENERGY:
            log.warning("isolated %s: %.4f and %.4f eV; the lower one is taken", name, other,
                        frame.energy)  # fmt: skip
        found[name] = min(other, frame.energy)
    return found


def set_reference_energies(
    model: Potential, wanted: str | Mapping[str, float], isolated: Mapping[str, float] | None,
    graphs: Sequence[Batch],
) -> str:  # fmt: skip
    """Put given or isolated energies in the place of the least-squares ones; return the source.

    Args:
        model: its statistics are set already.
        wanted: the configuration's `e0`.
        isolated: of `TrainingFrames`.
        graphs: training frames, whose compositions say which energies they determine.

    Raises:
        ConfigError: given energies leave out a species, or name one that the model does not know.
    """
    source = "least squares over the energies of training frames"
    given = isolated
    if not isinstance(wanted, str):
        given, source = wanted, "the configuration"
    elif isolated is not None:
        source = "isolated atoms in the data"
    if given is not None:
        if not isinstance(wanted, str):
            _check_names(given, model.type_map)
        with torch.no_grad():
            values = [given[name] for name in model.type_map]
            model.get_buffer("shift").copy_(torch.tensor(values, dtype=torch.float64))
    else:
        source += _undetermined(model.type_map, graphs)
    values = model.get_buffer("shift").tolist()
    each = ", ".join(f"{n} {v:.6g}" for n, v in zip(model.type_map, values, strict=True))
    log.info("E0 in eV from %s: %s", source, each)
    return source


def _undetermined(type_map: Sequence[str], graphs: Sequence[Batch]) -> str:
    """Return what is to be said where compositions do not tell the species apart, or ""."""
    rank = composition_rank(graphs, len(type_map))
    if rank == len(type_map):
        return ""
    log.warning(
        "the frames' compositions determine %d of %d energies E0: energies of other compositions "
        "and of fragments mean nothing. Fix: e0: {%s}, or frames of isolated atoms",
        rank, len(type_map), ", ".join(f"{name}: ..." for name in type_map),
    )  # fmt: skip
    return f", which determine {rank} of {len(type_map)}: energies of fragments mean nothing"


@torch.no_grad()
def refit_energies(model: Potential, graphs: Sequence[Batch]) -> None:
    """Add to E0 what explains the energy errors that are left on training frames best.

    Least squares over frames, so that a training that was stopped early, or weighted forces
    alone, leaves no constant error; forces do not change.

    Args:
        model: trained.
        graphs: labelled training frames.
    """
    model.eval()
    counts, labels = composition(graphs, len(model.type_map))
    predicted = [energy for graph in graphs for energy in model(graph)["energy"].tolist()]
    errors = labels - np.array(predicted)
    change = energy_shifts(counts, errors)
    shift = model.get_buffer("shift")
    shift += torch.from_numpy(change).to(shift)
    log.info(
        "E0 refitted after training: rms energy error %.3g -> %.3g eV on %d training frames",
        np.sqrt(np.mean(errors**2)), np.sqrt(np.mean((errors - counts @ change) ** 2)), len(labels),
    )  # fmt: skip


def _check_names(given: Mapping[str, float], type_map: Sequence[str]) -> None:
    missing = [name for name in type_map if name not in given]
    unknown = [name for name in given if name not in type_map]
    if missing or unknown:
        name = (unknown or missing)[0]
        raise ConfigError(
            f"e0 {'names ' + ', '.join(unknown) if unknown else 'lacks ' + ', '.join(missing)}",
            where="e0", allowed=", ".join(type_map),
            fix=nearest_name(name, list(type_map)) or f"e0: {{{name}: ...}}",
        )  # fmt: skip
