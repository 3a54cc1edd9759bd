"""Configurations that data have more than once: a copy in another part of a split is a leak."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from logging import Logger
from pathlib import Path

import numpy as np

from scitoolkit.core.log import get_logger
from scitoolkit.io.atoms import AtomsCollection, Configuration, LabelConfig, open_atoms

log: Logger = get_logger(__name__)
MOST_COMPARED = 20_000
"""Configurations; more are not searched for copies, as each has to be read."""
DECIMALS = 6  # of Å
SAME_ENERGY = 1e-3  # eV; larger differences between copies are logged


def fingerprint(frame: Configuration) -> bytes:
    """Return 16 bytes that copies of a configuration share, in whatever order their atoms are.

    Labels do not count, parameters of the frame and of the atoms do.
    """
    columns = [frame.positions]
    if frame.atom_parameters is not None:
        columns.append(frame.atom_parameters)
    # The sum with 0 makes -0 of a rounded value 0.
    rows = np.round(np.hstack(columns), DECIMALS) + 0.0
    atoms = sorted(
        str(s).encode() + row.tobytes() for s, row in zip(frame.species, rows, strict=True)
    )
    periodic = np.asarray(frame.pbc, bool)
    cell = np.round(np.asarray(frame.cell, np.float64)[periodic], DECIMALS) + 0.0
    digest = hashlib.blake2b(periodic.tobytes() + cell.tobytes(), digest_size=16)
    if frame.frame_parameters is not None:
        digest.update(frame.frame_parameters.tobytes())
    for atom in atoms:
        digest.update(atom)
    return digest.digest()


def originals(frames: AtomsCollection) -> np.ndarray:
    """Return the number of the first copy of each configuration, (F,); its own if it has none.

    Copies with different energies are logged: no model has both.
    """
    numbers = np.arange(len(frames))
    if len(frames) > MOST_COMPARED:
        return numbers
    first: dict[bytes, tuple[int, str, float | None]] = {}
    differing = []
    for number, frame in enumerate(frames):
        own = (number, frame.where, frame.energy)
        numbers[number], where, energy = first.setdefault(fingerprint(frame), own)
        if energy is not None and frame.energy is not None:
            if not abs(frame.energy - energy) <= SAME_ENERGY:
                differing.append((where, frame.where, energy, frame.energy))
    if differing:
        log.warning(
            "%s and %s are the same configuration with energies %.6g and %.6g eV (%d such pairs)",
            *differing[0],
            len(differing),
        )
    return numbers


def shared_with(paths: Sequence[Path], labels: LabelConfig, held_out: AtomsCollection) -> str:
    """Return a sentence on held-out frames that are also in the training files, or ""."""
    if not all(path.exists() for path in paths):
        return ""
    frames = open_atoms(paths, labels)
    if len(frames) + len(held_out) > MOST_COMPARED:
        return ""
    trained = {fingerprint(frame) for frame in frames}
    number = sum(fingerprint(frame) in trained for frame in held_out)
    if not number:
        return ""
    log.warning(
        "%d of %d held-out configurations are also in the training files: their errors are those "
        "of the training",
        number,
        len(held_out),
    )
    return f"{number} of these configurations are also in the training files."
