"""Atomic configurations with reference energies, forces and virials, read frame by frame.

Formats: deepmd systems (`type.raw` with `set.*/` npy, also mixed_type and HDF5), extxyz, ASE
databases and trajectories, and outputs of VASP.
Internal units are eV, Å and eV/Å; the virial is W = -sum r ⊗ dE/dr in eV, which is -volume x stress
with ASE's sign. A source indexes its frames and reads them on access, so data may exceed memory.
Data that would silently spoil a training raise DataError: labels that are missing or all zero, NaN,
periodic directions without a lattice vector, positions whose distances contradict their unit.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from pydantic import Field

from scitoolkit.core.config import Config
from scitoolkit.core.content import shipped_path
from scitoolkit.core.errors import ConfigError, DataError, missing_extra
from scitoolkit.core.log import get_logger
from scitoolkit.core.plugins import Kind
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.bond_lengths import check_lengths

log = get_logger(__name__)


Array = np.ndarray[Any, Any]


# CODATA 2018; the calorie is the thermochemical one, 4.184 J.
LENGTHS = {"angstrom": 1.0, "bohr": 0.529177210903, "nm": 10.0}


ENERGIES = {
    "eV": 1.0,
    "hartree": 27.211386245988,
    "kcal/mol": 0.0433641042,
    "kJ/mol": 0.0103642697,
}


FORCES = {
    "eV/angstrom": 1.0,
    "eV/bohr": 1 / LENGTHS["bohr"],
    "hartree/bohr": ENERGIES["hartree"] / LENGTHS["bohr"],
    "hartree/angstrom": ENERGIES["hartree"],
    "kcal/mol/angstrom": ENERGIES["kcal/mol"],
    "kJ/mol/nm": ENERGIES["kJ/mol"] / LENGTHS["nm"],
}
"""eV/Å of units of force."""


CHECKED_FRAMES = 64


SYMMETRIC = 0.1
"""Largest difference of transposed elements of a virial, in units of its largest element; smaller
ones are rounding and noise of a reference. An energy that rotations leave as it is has none."""


CONSISTENT = 1e-4
"""eV/atom; larger differences of energy and free energy are no rounding."""


LARGEST = 1e10
"""eV, Å or eV/Å; larger values are damaged, and their squares exceed float32."""


class LabelConfig(Config):
    """Names of labels in the files, and units.

    Attributes:
        energy_key: key of the total energy, in all formats but deepmd's.
        forces_key: name of the forces column, likewise.
        virial_key: key of a virial in energy units, -volume * stress.
        stress_key: key of a stress with ASE's sign, 3 x 3 or the six numbers xx yy zz yz xz xy, in
            energy per volume of the units below.
        length_unit: of positions and cell; if set, distances are not checked against it.
        energy_unit: of energies and virials.
        force_unit: by default `energy_unit` per `length_unit`; programs may mix them (CP2K writes
            positions in Å and forces in hartree/bohr).
    """

    energy_key: str = "energy"
    forces_key: str = "forces"
    virial_key: str = "virial"
    stress_key: str = "stress"
    length_unit: Literal["angstrom", "bohr", "nm"] | None = Field(default=None)
    energy_unit: Literal["eV", "hartree", "kcal/mol", "kJ/mol"] = "eV"
    force_unit: (
        Literal[
            "eV/angstrom",
            "eV/bohr",
            "hartree/bohr",
            "hartree/angstrom",
            "kcal/mol/angstrom",
            "kJ/mol/nm",
        ]
        | None
    ) = None


@dataclass(frozen=True)
class Configuration:
    """One atomic configuration (frame) with its labels.

    Attributes:
        species: (N,) element symbols, or names of a deepmd type map.
        positions: (N, 3) Å.
        cell: (3, 3) Å, rows are the lattice vectors; zeros without a lattice.
        pbc: (3,) whether each lattice direction is periodic.
        energy: eV, or None.
        forces: (N, 3) eV/Å, or None.
        virial: (3, 3) eV, or None.
        where: file and frame, for messages.
        frame_parameters: (F,) parameters of the frame (fparam), or None.
        atom_parameters: (N, A) parameters of the atoms (aparam), or None.
        config_type: kind of configuration that the file states, such as `bulk`; "" if none.
        weights: of the frame's energy, forces and virial in a loss, (3,).
        unread: names of charges, magnetic moments and fields that are not zero: no model reads
            them, although the energy may depend on them.
        free_energy: of the electrons, eV, whose derivatives the forces are, if it is stated beside
            the energy.
    """

    species: Array
    positions: Array
    cell: Array
    pbc: Array
    energy: float | None = None
    forces: Array | None = None
    virial: Array | None = None
    where: str = ""
    frame_parameters: Array | None = None
    atom_parameters: Array | None = None
    config_type: str = ""
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    unread: frozenset[str] = frozenset()
    free_energy: float | None = None


class AtomsSource(Protocol):
    """Sequence of frames that are read on access."""

    def __len__(self) -> int:
        """Return the number of frames."""

    def __getitem__(self, index: int) -> Configuration:
        """Return one frame."""

    def num_atoms(self, index: int) -> int:
        """Return the number of atoms of one frame, without reading the frame."""


class AtomsFormat(Protocol):
    """File format of atomic configurations; members are classes without settings.

    Attributes:
        described: description of its files, for messages.
        fixed_names: whether the names of labels are fixed, so that `LabelConfig` cannot set them.
        requires: importable packages.
    """

    described: ClassVar[str]
    fixed_names: ClassVar[bool] = False
    requires: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def guess(cls, path: Path) -> bool:
        """Return whether an existing path is of this format."""

    @classmethod
    def sources(cls, path: Path, labels: LabelConfig | None) -> Iterator[AtomsSource]:
        """Yield the sources of a path; if `labels` is None, frames have no labels."""


atoms_formats: Kind[type[AtomsFormat]] = Kind(
    "atoms format",
    "reads atomic configurations",
    contract="scitoolkit.testing:AtomsFormatContract",
)


class AtomsCollection:
    """Concatenation of sources; frames are validated and converted to eV and Å on access.

    Args:
        sources: of the files.
        labels: names and units.
    """

    def __init__(self, sources: Sequence[AtomsSource], labels: LabelConfig | None = None) -> None:
        self._sources, self._labels = list(sources), labels or LabelConfig()
        self._ends = np.cumsum([len(s) for s in self._sources]).tolist()

    def __len__(self) -> int:
        """Return the number of frames."""
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Configuration:
        """Return one frame in eV and Å.

        Raises:
            DataError: NaN, wrong shapes, a periodic direction without a lattice vector.
            IndexError: no such frame.
        """
        source, place = self._place(index)
        return checked(in_standard_units(source[place], self._labels))

    def _place(self, index: int) -> tuple[AtomsSource, int]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        # `right`: an end is the first index of the next source, and empty sources are skipped.
        number = bisect.bisect_right(self._ends, index)
        return self._sources[number], index - (self._ends[number - 1] if number else 0)

    def num_atoms(self, index: int) -> int:
        """Return the number of atoms of one frame, without reading the frame."""
        source, place = self._place(index)
        return source.num_atoms(place)

    def __iter__(self) -> Iterator[Configuration]:
        """Iterate over the frames."""
        return (self[i] for i in range(len(self)))

    def subset(self, indices: Sequence[int]) -> AtomsCollection:
        """Return a collection of some of the frames, in this order."""
        # Keep checking distances if the user did not set the unit explicitly.
        unit: Any = self._labels.length_unit and "angstrom"
        return AtomsCollection([_Subset(self, list(indices))], LabelConfig(length_unit=unit))

    def species(self) -> list[str]:
        """Return the species of all frames, sorted; reads each frame once."""
        return sorted({str(s) for frame in self for s in np.unique(frame.species)})

    def check(self, *, energy: bool = True, forces: bool = True, virial: bool = False) -> None:
        """Validate the labels of frames sampled over the whole collection.

        A label that only some frames have is logged: the others have weight 0 in the loss.

        Args:
            energy: whether energies are required.
            forces: whether forces are required; existing labels are always checked.
            virial: whether virials are required.

        Raises:
            DataError: no frame has a required label, none has energies or forces, energy or forces
                are all zero, or distances contradict the unit.
        """
        if not len(self):
            raise DataError("no frame found", where="data")
        # Spread over the collection, because files are sorted by composition or by run.
        picks = np.unique(np.linspace(0, len(self) - 1, CHECKED_FRAMES).astype(int))
        frames = [self[int(i)] for i in picks]
        for label, is_required in (("energy", energy), ("forces", forces), ("virial", virial)):
            if is_required:
                self._require(label, frames)
        # The sample first: all frames are read only if it shows no label.
        if not energy and all(_unlabelled(f) for f in frames) and all(_unlabelled(f) for f in self):
            raise DataError(
                "no frame has energies or forces", where=frames[0].where, fix="data.labels"
            )
        where = f"{frames[0].where} and {len(frames) - 1} more frames"
        energies = [frame.energy for frame in frames if frame.energy is not None]
        if energies and all(energy == 0.0 for energy in energies):
            raise DataError("all energies are zero", where=where, fix="data.labels.energy_key=NAME")
        # By symmetry the force on the only atom of a frame is zero, also in a crystal.
        moved = [f.forces for f in frames if f.forces is not None and len(f.species) > 1]
        if moved and not any(f.any() for f in moved):
            raise DataError("all forces are zero", where=where, fix="data.labels.forces_key=NAME")
        unread = sorted(set[str]().union(*(frame.unread for frame in frames)))
        if unread:
            log.warning(
                "%s: not read: %s; frames that differ in these alone contradict each other",
                where,
                ", ".join(unread),
            )
        _compare_free_energies(frames, where)
        if self._labels.length_unit is None:
            check_lengths(frames, where)

    def _require(self, label: str, sample: Sequence[Configuration]) -> None:
        """Log how many frames of a sample lack a label; raise if no frame at all has it."""
        lacking = [frame for frame in sample if getattr(frame, label) is None]
        if not lacking:
            return
        if len(lacking) == len(sample) and all(getattr(f, label) is None for f in self):
            letter = label[0]
            fixes = {
                "energy": "data.labels.energy_key=NAME",
                "forces": "data.labels.forces_key=NAME",
                "virial": "data.labels.stress_key=NAME or virial_key=NAME",
            }
            skip = f", or loss.start_pref_{letter}=0 loss.limit_pref_{letter}=0"
            raise DataError(
                f"a frame without {label}, as are all others",
                where=lacking[0].where,
                fix=fixes[label] + ("" if label == "energy" else skip),
            )
        log.warning(
            "%s: no %s, as in %d of %d frames read; it has weight 0 there",
            lacking[0].where,
            label,
            len(lacking),
            len(sample),
        )


def _compare_free_energies(frames: Sequence[Configuration], where: str) -> None:
    """Warn if the energies are not those to which the forces belong, as with smeared electrons."""
    differences = [
        abs(frame.free_energy - frame.energy) / len(frame.species)
        for frame in frames
        if frame.free_energy is not None and frame.energy is not None and frame.forces is not None
    ]
    if (largest := max(differences, default=0.0)) > CONSISTENT:
        log.warning(
            "%s: energy and free_energy differ by up to %.2g meV/atom; forces are derivatives of "
            "free_energy. Fix: data.labels.energy_key=free_energy",
            where,
            1e3 * largest,
        )


def _unlabelled(frame: Configuration) -> bool:
    return frame.energy is None and frame.forces is None


class _Subset:
    """Source of some frames of a collection, which are already in eV and Å."""

    def __init__(self, frames: AtomsCollection, indices: list[int]) -> None:
        self._frames, self._indices = frames, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Configuration:
        return self._frames[self._indices[index]]

    def num_atoms(self, index: int) -> int:
        return self._frames.num_atoms(self._indices[index])


def open_atoms(paths: Path | Sequence[Path], labels: LabelConfig | None = None) -> AtomsCollection:
    """Open files of atomic configurations without reading their frames.

    Args:
        paths: deepmd system folders (or a folder of them) or HDF5 files, extxyz files, ASE
            databases and trajectories, outputs of VASP; a path that begins with `datasets/` and
            does not exist is searched in the shipped data.
        labels: names and units of the labels.

    Raises:
        DataError: a path is missing or in an unknown format.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "dimer.xyz"
        >>> _ = path.write_text("2\\nenergy=-1.0\\nH 0 0 0\\nH 0 0 1\\n")
        >>> frame = open_atoms(path)[0]
        >>> frame.energy, frame.species.tolist(), frame.forces
        (-1.0, ['H', 'H'], None)
    """
    labels = labels or LabelConfig()
    return AtomsCollection(_sources(paths, labels), labels)


def open_structures(
    paths: Path | Sequence[Path], units: LabelConfig | None = None
) -> AtomsCollection:
    """Open files as `open_atoms` does, without labels.

    Args:
        paths: as for `open_atoms`; labels in extxyz files and ASE databases are ignored.
        units: of the positions; the names of labels are not used.

    Raises:
        DataError: a path is missing or in an unknown format.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "dimer.xyz"
        >>> _ = path.write_text("2\\nREF_energy=-1.0\\nH 0 0 0\\nH 0 0 1\\n")
        >>> frame = open_structures(path)[0]
        >>> frame.energy, frame.species.tolist()
        (None, ['H', 'H'])
    """
    return AtomsCollection(_sources(paths, None), units)


def _sources(paths: Path | Sequence[Path], labels: LabelConfig | None) -> list[AtomsSource]:
    paths = [paths] if isinstance(paths, (str, Path)) else list(paths)
    existing = [_existing(Path(path)) for path in paths]
    return [s for path in existing for s in _format_of(path).sources(path, labels)]


def check_label_names(paths: Sequence[Path], labels: LabelConfig) -> None:
    """Raise if label names are set although all formats have fixed names.

    Raises:
        DataError: a path is missing or in an unknown format.
        ConfigError: a name differs from its default, and all formats have fixed names.
    """
    formats = [_format_of(_existing(Path(path))) for path in paths]
    if not all(format_class.fixed_names for format_class in formats):
        return
    described = ", ".join(dict.fromkeys(format_class.described for format_class in formats))
    for key in ("energy_key", "forces_key", "virial_key", "stress_key"):
        name = getattr(labels, key)
        if name != LabelConfig.model_fields[key].default:
            raise ConfigError(
                f"{key}={name!r} is not read from {described}, whose labels have fixed names",
                where=f"data.labels.{key}",
                fix="leave it out",
            )


def labels_in(path: Path, labels: LabelConfig) -> LabelConfig:
    """Return the names of labels in a file: those of `labels`, or the only similar ones.

    Args:
        path: the file.
        labels: names and units of the training files; the units stay.

    Raises:
        DataError: several names are similar, or none is.
    """
    while True:
        try:
            open_atoms(path, labels)[0]
            return labels
        except MissingLabel as missing:
            if len(missing.similar) != 1 or missing.similar[0] == missing.name:
                raise
            log.warning("%s: %s is %s here", path, missing.name, missing.similar[0])
            labels = labels.model_copy(update={missing.key: missing.similar[0]})
        except IndexError:
            return labels


def packages_for(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the packages required to read the files; missing files are ignored."""
    formats = [_format_of(path) for path in paths if path.exists()]
    return tuple(dict.fromkeys(package for member in formats for package in member.requires))


def _existing(path: Path) -> Path:
    """Return an existing path, which may be one of the shipped data."""
    path = shipped_path(path)
    if not path.exists():
        # deepmd-kit names a system of an HDF5 file so.
        file, mark, _ = str(path).partition("#")
        fix = file if mark and Path(file).exists() else ""
        raise DataError("no such file", where=str(path), fix=fix and f"{file}, for all its systems")
    return path


def is_atoms(path: Path) -> bool:
    """Return whether an existing path is in one of the formats of atomic configurations."""
    return path.exists() and _guessed(path) is not None


def _guessed(path: Path) -> type[AtomsFormat] | None:
    members = [atoms_formats.get(name) for name in atoms_formats]
    return next((member for member in members if member.guess(path)), None)


def _format_of(path: Path) -> type[AtomsFormat]:
    """Return the format of an existing path."""
    format_class = _guessed(path)
    if format_class is None:
        members = [atoms_formats.get(name) for name in atoms_formats]
        kind = "no deepmd system (type.raw) in this folder"
        raise DataError(
            kind if path.is_dir() else f"format {path.suffix!r} not known",
            where=str(path),
            allowed=", ".join(member.described for member in members),
            fix="" if path.is_dir() else _CONVERSION.format(path.name),
        )
    return format_class


_CONVERSION = (
    "ase convert {0} frames.xyz, or dpdata {0} -i cp2k/output -o deepmd/npy -O frames for CP2K "
    "(-i cp2k/aimd_output for the folder of a dynamics)"
)


def in_standard_units(frame: Configuration, labels: LabelConfig) -> Configuration:
    """Return the frame in eV and Å."""
    length = LENGTHS[labels.length_unit or "angstrom"]
    energy = ENERGIES[labels.energy_unit]
    force = energy / length if labels.force_unit is None else FORCES[labels.force_unit]
    if length == energy == force == 1.0:
        return frame
    return replace(
        frame,
        positions=frame.positions * length,
        cell=frame.cell * length,
        energy=None if frame.energy is None else frame.energy * energy,
        free_energy=None if frame.free_energy is None else frame.free_energy * energy,
        forces=None if frame.forces is None else frame.forces * force,
        virial=None if frame.virial is None else frame.virial * energy,
    )


def checked(frame: Configuration) -> Configuration:
    """Return the frame after validating it.

    Raises:
        DataError: NaN, Inf or values of 1e10 and more, inconsistent shapes, or a periodic direction
            without lattice vector.
    """
    atoms = len(frame.species)
    fparam, aparam = frame.frame_parameters, frame.atom_parameters
    named: dict[str, tuple[Any, tuple[int, ...]]] = {
        "positions": (frame.positions, (atoms, 3)),
        "cell": (frame.cell, (3, 3)),
        "forces": (frame.forces, (atoms, 3)),
        "virial": (frame.virial, (3, 3)),
        "energy": (frame.energy, ()),
        "fparam": (fparam, () if fparam is None else fparam.shape[:1]),
        "aparam": (aparam, () if aparam is None else (atoms, *aparam.shape[1:2])),
    }
    if not atoms:
        raise DataError("a frame without atoms", where=frame.where)
    for name, (value, shape) in named.items():
        if value is None:
            continue
        if np.shape(value) != shape:
            raise DataError(
                f"{name} has shape {np.shape(value)}", where=frame.where, allowed=str(shape)
            )
        if not np.isfinite(value).all():
            raise DataError(
                f"{name} has NaN or Inf{_first_atom(name, value)}",
                where=frame.where,
                fix="drop the frame",
            )
        if not np.abs(value).max(initial=0.0) < LARGEST:
            atom, largest = _first_atom(name, value, LARGEST), np.abs(value).max()
            raise DataError(
                f"{name} has a value of {largest:.3g}{atom}",
                where=frame.where,
                allowed=f"eV, Å and eV/Å below {LARGEST:g}",
                fix="drop the frame",
            )
    if frame.virial is not None:
        largest, twist = np.abs(frame.virial).max(), np.abs(frame.virial - frame.virial.T).max()
        if twist > SYMMETRIC * largest:
            raise DataError(
                f"the virial is not symmetric: elements differ by {twist:.3g} eV",
                where=frame.where,
                allowed="nine numbers row by row, or xx yy zz yz xz xy",
            )
    periodic = np.asarray(frame.pbc, dtype=bool)
    rows = np.asarray(frame.cell)[periodic]
    # The rank, because parallel vectors span no lattice either.
    if len(rows) and np.linalg.matrix_rank(rows) < len(rows):
        raise DataError(
            f"pbc is {periodic.tolist()} but the cell has no such lattice vectors: "
            f"{np.asarray(frame.cell).tolist()}",
            where=frame.where,
            fix="give the cell, or pbc=F for that direction",
        )
    return frame


def _first_atom(name: str, value: Any, limit: float = np.inf) -> str:
    """Return the number of the first atom whose values are not below the limit, for messages."""
    if name not in ("positions", "forces", "aparam"):
        return ""
    # Negated, so that NaN is not below the limit.
    rows = ~(np.abs(np.asarray(value)) < limit).reshape(len(value), -1).all(axis=1)
    return f" at atom {int(rows.argmax())}"


class MissingLabel(DataError):
    """A label that a file does not have under the configured name, but perhaps under another.

    Attributes:
        key: the key of `LabelConfig`, such as energy_key.
        name: the configured name.
        similar: names in the file that contain the kind of the label.
    """

    def __init__(self, kind: str, name: str, found: Sequence[str], where: str) -> None:
        self.key: str = f"{kind}_key"
        self.name: str = name
        # In the singular, so that `forces` also finds `REF_force`.
        self.similar: list[str] = sorted(n for n in found if kind.rstrip("s") in n.lower())
        names = sorted(found)
        near = nearest_name(name, found) or (names[0] if names else "NAME")
        super().__init__(
            f"no {kind} called {name!r}",
            where=where,
            allowed=", ".join(names) or "nothing",
            fix=f"data.labels.{self.key}={near}",
        )


def ase(purpose: str) -> Any:
    """Return the package ase.

    Raises:
        BackendError: ase is not installed.
    """
    try:
        import ase
        import ase.data
        import ase.db
        import ase.io
    except ImportError:
        raise missing_extra("ase", "potentials", purpose) from None
    return ase
