"""Facts of the frames that a potential was trained on, and their comparison with other frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from logging import Logger

import numpy as np

from scitoolkit.core.data_differences import Accepts, Difference, compare, refuse
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.log import get_logger
from scitoolkit.io.atoms import CHECKED_FRAMES, AtomsCollection
from scitoolkit.io.bond_lengths import bond_ratio
from scitoolkit.io.facts import of_atoms

log: Logger = get_logger(__name__)
UNITS = {"energy": "eV", "forces": "eV/Å", "virial": "eV"}
NEAREST = "nearest distance over covalent radii"
ACCEPTS = Accepts(grid="any", optional=("space", NEAREST, *UNITS))
LENGTHS = {"bohr": 1 / 0.529177210903, "nm": 0.1, "Å (read as bohr)": 0.529177210903}
"""Factor of distances whose unit was taken for another one, by the true unit."""
ALLOWANCE = 1.25
"""Factor by which distances of other frames may differ from a wrong unit's and count as such."""


def frames_facts(
    frames: AtomsCollection, species: Sequence[str] = (), *, types: int = 0
) -> DataFacts:
    """Return the facts of frames: species, labels with units, periodicity, nearest distances.

    At most 64 frames are read, spread over the collection.

    Args:
        frames: in eV and Å.
        species: of the model; by default those of the frames that are read.
        types: number of species of the model that the frames are for: the types of a deepmd system
            may have numbers for names, which any model takes.
    """
    picks = np.unique(np.linspace(0, len(frames) - 1, CHECKED_FRAMES).astype(int))
    sample = [frames[int(index)] for index in picks] if len(frames) else []
    numbered = {f"Type_{number}" for number in range(types)}
    names = species or sorted({str(s) for frame in sample for s in frame.species} - numbered)
    labels = {
        label: unit
        for label, unit in UNITS.items()
        if any(getattr(frame, label) is not None for frame in sample)
    }
    periodic = [any(bool(frame.pbc[axis]) for frame in sample) for axis in range(3)]
    facts = of_atoms(names, labels, periodic)
    ratios = [r for frame in sample if (r := bond_ratio(frame)) is not None]
    if not ratios:
        return facts
    return replace(facts, parameters={NEAREST: (min(ratios), max(ratios), "")})


def require_trained(
    trained: DataFacts | None, frames: AtomsCollection, where: str, *, new_species: bool = False
) -> None:
    """Compare frames with those of the training.

    Args:
        trained: facts of the model; None for a folder older than facts, which is logged.
        frames: in eV and Å.
        where: of the frames, for messages.
        new_species: whether the frames may have species that the model lacks (fine-tuning).

    Raises:
        DataError: species that the model does not know, or distances in another unit.
    """
    if trained is None:
        log.info("%s: not compared with the training data, which the model has no facts of", where)
        return
    facts = frames_facts(frames, types=len(trained.species))
    accepts = replace(ACCEPTS, species="superset") if new_species else ACCEPTS
    refuse(compare(trained, facts, accepts) + another_unit(trained, facts), where)


def another_unit(trained: DataFacts, facts: DataFacts) -> list[Difference]:
    """Return an error if all distances are those of the training times the factor of a unit."""
    if NEAREST not in trained.parameters or NEAREST not in facts.parameters:
        return []
    (low, high, _), (first, last, _) = trained.parameters[NEAREST], facts.parameters[NEAREST]
    if first <= high and last >= low:
        return []
    for unit, factor in LENGTHS.items():
        if low * factor / ALLOWANCE <= first and last <= high * factor * ALLOWANCE:
            return [
                Difference(
                    "error",
                    "positions",
                    f"nearest distances of {low:.2f} to {high:.2f} covalent radii",
                    f"{first:.2f} to {last:.2f}, as if they were in {unit}",
                    "positions in the unit of the training files",
                )
            ]
    return []
