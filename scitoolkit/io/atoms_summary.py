"""Summary of files of atomic configurations: frames, composition, and names of the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import CHECKED_FRAMES, LabelConfig, MissingLabel, open_atoms


@dataclass(frozen=True)
class AtomsSummary:
    """Contents of files of atomic configurations.

    Attributes:
        frames: number of frames.
        read: number of frames, spread over the files, from which the following was read.
        atoms: least and largest number of atoms of a frame.
        species: element symbols, or names of a deepmd type map, sorted.
        periodic: numbers of periodic directions that occur, sorted.
        energy: least and largest energy in eV per atom, None if a frame has none.
        forces: root mean square of the components in eV/Å, None if a frame has none.
        virial: whether all frames have a virial.
        labels: names of the labels in the files.
    """

    frames: int
    read: int
    atoms: tuple[int, int]
    species: list[str]
    periodic: list[int]
    energy: tuple[float, float] | None
    forces: float | None
    virial: bool
    labels: LabelConfig


def summarize_atoms(paths: Sequence[Path]) -> AtomsSummary:
    """Return the summary of files; up to 64 frames are read.

    Labels are searched under their usual names, then under the only name that contains "energy" or
    "force", such as REF_energy.

    Raises:
        DataError: a path is missing or in an unknown format, or a frame is damaged.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "dimer.xyz"
        >>> _ = path.write_text("2\\nREF_energy=-1.0\\nH 0 0 0\\nO 0 0 1\\n")
        >>> found = summarize_atoms([path])
        >>> found.frames, found.species, found.energy, found.labels.energy_key
        (1, ['H', 'O'], (-0.5, -0.5), 'REF_energy')
    """
    labels = LabelConfig()
    while True:
        try:
            return _summary(paths, labels)
        except MissingLabel as missing:
            usual = LabelConfig.model_fields[missing.key].default
            if missing.name != usual or len(missing.similar) != 1:  # the user has to choose
                raise
            labels = labels.model_copy(update={missing.key: missing.similar[0]})


def _summary(paths: Sequence[Path], labels: LabelConfig) -> AtomsSummary:
    collection = open_atoms(paths, labels)
    count = len(collection)
    if not count:
        raise DataError("no frame found", where=", ".join(map(str, paths)))
    picks = np.unique(np.linspace(0, count - 1, CHECKED_FRAMES).astype(int)).tolist()
    frames = [collection[i] for i in picks]
    sizes = [collection.num_atoms(i) for i in range(count)]
    energies = [f.energy / len(f.species) for f in frames if f.energy is not None]
    forces = [f.forces.ravel() for f in frames if f.forces is not None]
    return AtomsSummary(
        frames=count,
        read=len(frames),
        atoms=(min(sizes), max(sizes)),
        species=sorted({str(s) for f in frames for s in f.species}),
        periodic=sorted({int(np.sum(f.pbc)) for f in frames}),
        energy=(min(energies), max(energies)) if len(energies) == len(frames) else None,
        forces=float(np.sqrt(np.mean(np.concatenate(forces) ** 2)))
        if len(forces) == len(frames)
        else None,
        virial=all(f.virial is not None for f in frames),
        labels=labels,
    )
