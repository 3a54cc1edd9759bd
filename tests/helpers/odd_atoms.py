"""Seeded files of atomic configurations in three formats, valid and damaged, with their truth.

`outcome(number, folder)` writes file `number`, reads it as a training does, and compares every
frame with what was meant: species, positions, cell, periodicity, labels in eV and Å, neighbours
within a cutoff (brute force over images), and the first loss of a small model.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.io.atoms import ENERGIES, FORCES, LENGTHS, LabelConfig, open_atoms

CUTOFF = 3.5
FORMATS = ("extxyz", "deepmd", "deepmd_mixed", "ase_db")
ELEMENTS = ("H", "C", "O", "Si", "Cu", "Au")
BONDS = {"H": 0.31, "C": 0.76, "O": 0.66, "Si": 1.11, "Cu": 1.32, "Au": 1.36}
"""Covalent radii, Å: atoms are placed at about their sum."""


@dataclass
class OddFrame:
    """One configuration in eV and Å, as it is meant; None marks a label that the frame lacks."""

    species: list[str]
    positions: np.ndarray
    cell: np.ndarray
    pbc: np.ndarray
    energy: float | None
    forces: np.ndarray | None
    virial: np.ndarray | None


@dataclass
class OddFile:
    """A file, its true frames and what is wrong with it.

    Attributes:
        format: one of FORMATS.
        frames: what the file means.
        labels: names and units that the user writes.
        names: of energy, forces and tensor in the file; the tensor may be a stress, in 6 numbers.
        fault: None for a valid file.
        place: frame of the fault, None for a fault of the whole file.
        extra: what the writers need to know beside the frames.
    """

    format: str
    frames: list[OddFrame]
    labels: LabelConfig
    names: dict[str, str]
    fault: str | None = None
    place: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def _structure(rng: np.random.Generator, count: int, species: list[str]) -> np.ndarray:
    """Return positions (N, 3) of a chain whose neighbours are bonded and whose others are apart."""
    positions = np.zeros((count, 3))
    for atom in range(1, count):
        for _ in range(200):
            base = int(rng.integers(atom))
            step = rng.normal(size=3)
            bond = BONDS[species[base]] + BONDS[species[atom]]
            positions[atom] = positions[base] + step / np.linalg.norm(step) * bond
            distances = np.linalg.norm(positions[:atom] - positions[atom], axis=1)
            nearest = np.array([BONDS[s] + BONDS[species[atom]] for s in species[:atom]])
            if (distances >= 0.9 * nearest).all():
                break
    return positions


def _cell(rng: np.random.Generator, kind: str, size: float) -> np.ndarray:
    cell = np.eye(3) * size
    if kind in ("skewed", "left"):
        cell = cell + np.tril(rng.uniform(-0.25, 0.25, (3, 3)) * size, -1)
    if kind == "left":
        cell = cell[[1, 0, 2]]
    if kind == "rotated":
        cell = cell @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return cell


def _frame(
    rng: np.random.Generator, elements: list[str], pbc: np.ndarray | None, least: int = 1
) -> OddFrame:
    """Return one valid configuration: a molecule, slab, wire or crystal of `least` to 8 atoms."""
    count = max(least, int(rng.choice([1, 1, 2, 3, 4, 6, 8])))
    species = [elements[int(i)] for i in rng.integers(len(elements), size=count)]
    pbc = rng.integers(2, size=3).astype(bool) if pbc is None else pbc
    positions = _structure(rng, count, species)
    span = float(np.ptp(positions, axis=0).max())
    wide = span + 2.9
    if count == 1:  # isolated, or a primitive cell whose images are neighbours
        wide = float(rng.choice([15.0, 2.2 * BONDS[species[0]] + 0.6]))
    cell = _cell(rng, str(rng.choice(["cubic", "skewed", "left", "rotated"])), wide)
    if not pbc.any():
        cell = np.zeros((3, 3)) if rng.integers(2) else cell
    elif not pbc.all() and rng.integers(2):
        cell = np.where(pbc[:, None], cell, 0.0)  # no vector in open directions
    if pbc.any():
        cells = rng.integers(-2, 3, (count, 3)) * pbc  # atoms outside the cell
        positions = positions + cells @ cell + rng.uniform(-1, 1, 3)
    forces = rng.normal(size=(count, 3)) * rng.choice([1e-3, 1.0, 50.0, 1e4])
    if count == 1:
        forces = np.zeros((1, 3))
    tensor = rng.normal(size=(3, 3))
    solid = bool(pbc.all())
    return OddFrame(
        species,
        positions,
        cell,
        pbc,
        float(-100.0 * count + rng.normal()),
        forces,
        tensor + tensor.T if solid else None,
    )


def odd_file(number: int) -> OddFile:
    """Return file `number`: formats in turn, four valid ones, then four with a fault."""
    rng = np.random.default_rng([number, 20])
    made = FORMATS[number % len(FORMATS)]
    elements = list(rng.choice(ELEMENTS, int(rng.integers(1, 4)), replace=False))
    one = rng.integers(2, size=1).astype(bool).repeat(3) if made.startswith("deepmd") else None
    frames = [_frame(rng, elements, one) for _ in range(int(rng.integers(1, 5)))]
    frames += [_frame(rng, elements, one, least=2) for _ in range(2)]
    frames = [frames[int(i)] for i in rng.permutation(len(frames))]
    if made == "deepmd":  # all frames of a system have the same atoms
        first = next(frame for frame in frames if len(frame.species) > 1)
        frames = [_moved(rng, first) for _ in frames]
    units: dict[str, Any] = {}
    if rng.integers(2):
        units["length_unit"] = str(rng.choice(list(LENGTHS)))
        units["energy_unit"] = str(rng.choice(list(ENERGIES)))
    if rng.integers(3) == 0:
        units["force_unit"] = str(rng.choice(list(FORCES)))
    names = {"energy": "energy", "forces": "forces", "tensor": "virial"}
    if made in ("extxyz", "ase_db"):
        prefix = str(rng.choice(["", "REF_", "dft_"]))
        tensor = str(rng.choice(["virial", "stress"]))
        names = {"energy": f"{prefix}energy", "forces": f"{prefix}forces"}
        names["tensor"] = f"{prefix}{tensor}"
        units |= {"energy_key": names["energy"], "forces_key": names["forces"]}
        if any(frame.virial is not None for frame in frames):
            units[f"{tensor}_key"] = names["tensor"]
    file = OddFile(made, frames, LabelConfig(**units), names)
    file.extra["voigt"] = bool(rng.integers(2))
    file.extra["dtype"] = str(rng.choice(["float64", "float32"])) if "deepmd" in made else ""
    if rng.integers(3) == 0 and made in ("extxyz", "ase_db"):
        _lose_labels(rng, file)
    faults = [name for name, (formats, _) in FAULTS.items() if made in formats]
    if (number // len(FORMATS)) % 2:
        fault = faults[(number // (2 * len(FORMATS))) % len(faults)]
        file.fault = fault
        FAULTS[fault][1](rng, file)
        if all(frame.virial is None for frame in file.frames):
            # A name that no frame has would be a second fault.
            usual = {"virial_key": "virial", "stress_key": "stress"}
            file.labels = file.labels.model_copy(update=usual)
    return file


def _moved(rng: np.random.Generator, frame: OddFrame) -> OddFrame:
    count = len(frame.species)
    return OddFrame(
        frame.species,
        frame.positions + rng.normal(size=(count, 3)) * 0.02,
        frame.cell,
        frame.pbc,
        float(-100.0 * count + rng.normal()),
        rng.normal(size=(count, 3)),
        frame.virial,
    )


def _lose_labels(rng: np.random.Generator, file: OddFile) -> None:
    """Remove one label from some frames, never from all of them."""
    label = str(rng.choice(["energy", "forces"]))
    has = [i for i, frame in enumerate(file.frames) if len(frame.species) > 1]
    for index in range(len(file.frames)):
        if index != has[0] and rng.integers(2):
            setattr(file.frames[index], label, None)


Damage = Callable[[np.random.Generator, OddFile], None]


def _place(rng: np.random.Generator, file: OddFile, least: int = 1) -> OddFrame:
    """Choose the frame of a fault, of at least `least` atoms."""
    places = [i for i, f in enumerate(file.frames) if len(f.species) >= least]
    file.place = int(rng.choice(places))
    return file.frames[file.place]


def _value(label: str, value: float) -> Damage:
    """Return the damage of one number of a label."""

    def damage(rng: np.random.Generator, file: OddFile) -> None:
        frame = _place(rng, file, 2)
        if label == "energy":
            frame.energy = value
            return
        if label == "forces" and frame.forces is None:
            frame.forces = np.ones((len(frame.species), 3))
        array = np.array(getattr(frame, label))
        array[int(rng.integers(len(array))), int(rng.integers(3))] = value
        setattr(frame, label, array)

    return damage


def _coincide(rng: np.random.Generator, file: OddFile) -> None:
    frame = _place(rng, file, 2)
    frame.positions = np.array(frame.positions)
    frame.positions[-1] = frame.positions[0]


def _coincide_by_image(rng: np.random.Generator, file: OddFile) -> None:
    frame = _place(rng, file, 2)
    for each in file.frames if "deepmd" in file.format else [frame]:
        each.pbc, each.cell, each.virial = np.ones(3, bool), np.eye(3) * 15.0, None
        each.positions = _structure(rng, len(each.species), each.species)
    frame.positions[-1] = frame.positions[0] + frame.cell[1]


def _without_lattice(rng: np.random.Generator, file: OddFile) -> None:
    frame = _place(rng, file)
    for each in file.frames if "deepmd" in file.format else [frame]:
        each.pbc = np.ones(3, bool)
        if each is not frame and not each.cell.any():
            each.cell = np.eye(3) * 30
    frame.cell, frame.virial = np.zeros((3, 3)), None


def _flat_cell(rng: np.random.Generator, file: OddFile) -> None:
    _without_lattice(rng, file)
    assert file.place is not None
    file.frames[file.place].cell = np.array([[5.0, 0, 0], [0, 5.0, 0], [5.0, 5.0, 0]])


def _ghost(rng: np.random.Generator, file: OddFile) -> None:
    frame = _place(rng, file, 2)
    frame.species = [*frame.species[:-1], "X"]


def _other_length_unit(rng: np.random.Generator, file: OddFile) -> None:
    """The positions are in bohr or nm, and the user does not say so."""
    if file.labels.length_unit in (None, "angstrom"):
        units = file.labels.model_dump() | {"length_unit": str(rng.choice(["bohr", "nm"]))}
        file.labels = LabelConfig(**units)
    file.extra["as_stated"] = LabelConfig(**{**file.labels.model_dump(), "length_unit": None})
    for frame in file.frames:
        frame.virial = None


def _name(key: str, name: str) -> Damage:
    """Return the damage of a file whose label has another name than the user wrote."""

    def damage(rng: np.random.Generator, file: OddFile) -> None:
        for frame in file.frames:
            frame.energy = -1.0 if frame.energy is None else frame.energy
            if frame.forces is None:
                frame.forces = np.ones((len(frame.species), 3))
        file.names[key] = name

    return damage


def _text(what: str) -> Damage:
    def damage(rng: np.random.Generator, file: OddFile) -> None:
        frame = _place(rng, file, 2)
        frame.energy = -1.0 if frame.energy is None else frame.energy
        file.extra["text"] = what

    return damage


def _contradict(rng: np.random.Generator, file: OddFile) -> None:
    frame = _place(rng, file)
    frame.pbc = np.ones(3, bool)
    frame.cell = frame.cell if abs(np.linalg.det(frame.cell)) > 1 else np.eye(3) * 9
    frame.virial = np.diag([1.0, 2.0, 3.0])
    file.labels = file.labels.model_copy(
        update={"virial_key": "virial", "stress_key": "stress", "length_unit": None}
    )
    file.names["tensor"] = "virial"
    file.extra["stress_too"] = True


def _rows(name: str, change: int) -> Damage:
    def damage(rng: np.random.Generator, file: OddFile) -> None:
        molecular = not file.frames[0].pbc.any()
        file.extra["rows"] = ("energy" if name == "box" and molecular else name, change)

    return damage


def _dtype(kind: str) -> Damage:
    def damage(rng: np.random.Generator, file: OddFile) -> None:
        file.extra["label_dtype"] = kind

    return damage


def _type_beyond(rng: np.random.Generator, file: OddFile) -> None:
    file.extra["type_beyond"] = True


ANY = FORMATS
ASE = ("extxyz", "ase_db")
DEEPMD = ("deepmd", "deepmd_mixed")
# ASE stores an energy that is NaN as no energy.
FAULTS: dict[str, tuple[tuple[str, ...], Damage]] = {
    "energy NaN": (("extxyz", *DEEPMD), _value("energy", np.nan)),
    "energy infinite": (ANY, _value("energy", -np.inf)),
    "force NaN": (ANY, _value("forces", np.nan)),
    "force beyond float32": (ANY, _value("forces", 1e30)),
    "position NaN": (ANY, _value("positions", np.nan)),
    "position beyond any box": (ANY, _value("positions", 1e15)),
    "two atoms in one place": (ANY, _coincide),
    "an atom on an image of another": (ANY, _coincide_by_image),
    "periodic without a lattice": (ANY, _without_lattice),
    "periodic in a flat cell": (ANY, _flat_cell),
    "ghost atom": (ASE, _ghost),
    "length unit not stated": (ANY, _other_length_unit),
    "energy under another name": (ASE, _name("energy", "total_energy")),
    "forces under another name": (ASE, _name("forces", "my_forces")),
    "virial and stress differ": (("extxyz",), _contradict),
    "energy is text": (("extxyz",), _text("energy")),
    "a column less": (("extxyz",), _text("column")),
    "atoms cut off": (("extxyz",), _text("cut")),
    "element not known": (("extxyz",), _text("element")),
    "number of atoms is negative": (("extxyz",), _text("count")),
    "lattice of eight numbers": (("extxyz",), _text("lattice")),
    "energies of fewer frames": (DEEPMD, _rows("energy", -1)),
    "forces of more frames": (DEEPMD, _rows("force", 1)),
    "boxes of fewer frames": (DEEPMD, _rows("box", -1)),
    "boxes of more frames": (DEEPMD, _rows("box", 2)),
    "energies complex": (DEEPMD, _dtype("complex128")),
    "energies are text": (DEEPMD, _dtype("<U9")),
    "type without a name": (DEEPMD, _type_beyond),
}


def write_odd(file: OddFile, folder: Path) -> Path:
    """Write a file in its units and format; return its path."""
    if file.format == "extxyz":
        return _write_extxyz(file, folder / "odd.xyz")
    if file.format == "ase_db":
        return _write_database(file, folder / "odd.db")
    return _write_deepmd(file, folder / "odd")


def _in_units(file: OddFile, frame: OddFrame) -> OddFrame:
    """Return the frame in the units of the file."""
    length = LENGTHS[file.labels.length_unit or "angstrom"]
    energy = ENERGIES[file.labels.energy_unit]
    force = FORCES.get(file.labels.force_unit or "", energy / length)
    return OddFrame(
        frame.species,
        frame.positions / length,
        frame.cell / length,
        frame.pbc,
        None if frame.energy is None else frame.energy / energy,
        None if frame.forces is None else frame.forces / force,
        None if frame.virial is None else frame.virial / energy,
    )


def _tensor(file: OddFile, frame: OddFrame, name: str) -> np.ndarray | None:
    """Return the virial or stress of a frame, with 9 numbers or 6 in Voigt's order."""
    if frame.virial is None:
        return None
    tensor = frame.virial
    if "stress" in name:
        tensor = -tensor / abs(np.linalg.det(frame.cell))
    if file.extra["voigt"]:
        return tensor[[0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]]
    return tensor.reshape(9)


def _text_of(values: np.ndarray) -> str:
    return " ".join(f"{value:.17g}" for value in np.ravel(values))


def _write_extxyz(file: OddFile, path: Path) -> Path:
    blocks = []
    for index, meant in enumerate(file.frames):
        frame = _in_units(file, meant)
        damaged = file.extra.get("text") if index == file.place else None
        entries = []
        if frame.cell.any():
            lattice = frame.cell.reshape(9)[: 8 if damaged == "lattice" else 9]
            entries.append(f'Lattice="{_text_of(lattice)}"')
        columns = "species:S:1:pos:R:3"
        if frame.forces is not None:
            columns += f":{file.names['forces']}:R:3"
        entries.append(f"Properties={columns}")
        if damaged == "lattice" and not frame.cell.any():
            entries.append('Lattice="1 2 3 4 5 6 7 8"')
        if frame.energy is not None:
            value = "low" if damaged == "energy" else f"{frame.energy:.17g}"
            entries.append(f"{file.names['energy']}={value}")
        tensor = _tensor(file, frame, file.names["tensor"])
        if tensor is not None:
            entries.append(f'{file.names["tensor"]}="{_text_of(tensor)}"')
            if file.extra.get("stress_too") and index == file.place:
                entries.append(f'stress="{_text_of(_tensor(file, frame, "stress") * -1.0)}"')
        entries.append(f'pbc="{" ".join("FT"[int(p)] for p in frame.pbc)}"')
        rows = []
        for atom, name in enumerate(frame.species):
            values = [*frame.positions[atom]]
            values += [] if frame.forces is None else [*frame.forces[atom]]
            if damaged == "column" and atom == len(frame.species) - 1:
                values = values[:-1]
            unknown = damaged == "element" and atom == 0
            rows.append(f"{'Qq' if unknown else name} {_text_of(np.array(values))}")
        count = -3 if damaged == "count" else len(rows)
        if damaged == "cut":
            rows = rows[:-1]
        blocks.append("\n".join([str(count), " ".join(entries), *rows]) + "\n")
        if damaged == "cut":
            break
    path.write_text("".join(blocks), encoding="utf-8")
    return path


def _write_database(file: OddFile, path: Path) -> Path:
    import ase
    import ase.db
    from ase.calculators.singlepoint import SinglePointCalculator

    path.unlink(missing_ok=True)
    with ase.db.connect(path, append=False) as database:
        for meant in file.frames:
            frame = _in_units(file, meant)
            atoms = ase.Atoms(frame.species, frame.positions, cell=frame.cell, pbc=frame.pbc)
            tensor = _tensor(file, frame, file.names["tensor"])
            values: dict[str, Any] = {
                file.names["energy"]: frame.energy,
                file.names["forces"]: frame.forces,
                file.names["tensor"]: tensor,
            }
            values = {name: value for name, value in values.items() if value is not None}
            own = {k: v for k, v in values.items() if k in ("energy", "forces", "stress")}
            if "stress" in own and own["stress"].size == 9:
                own["stress"] = own["stress"].reshape(3, 3)
            if own:
                atoms.calc = SinglePointCalculator(atoms, **own)
            energy = {k: v for k, v in values.items() if k not in own and np.ndim(v) == 0}
            arrays = {k: v for k, v in values.items() if k not in own and np.ndim(v) > 0}
            database.write(atoms, key_value_pairs=energy, data=arrays)
    return path


def _write_deepmd(file: OddFile, path: Path) -> Path:
    """Write a system of the first frame's atoms, or a folder of one system for each frame."""
    mixed = file.format == "deepmd_mixed"
    count = max(len(frame.species) for frame in file.frames)
    names = [*sorted({name for frame in file.frames for name in frame.species}), "Zr"]
    folder = path / "set.000"
    folder.mkdir(parents=True)
    frames = [_in_units(file, frame) for frame in file.frames]
    dtype = file.extra["dtype"]

    def padded(values: np.ndarray) -> np.ndarray:
        rows = np.zeros((count, *np.shape(values)[1:]))
        rows[: len(values)] = values
        return rows.reshape(-1)

    kinds = [np.array([names.index(s) for s in frame.species]) for frame in frames]
    if file.extra.get("type_beyond"):
        kinds[0] = np.array([*kinds[0][:-1], len(names)])
    types = np.zeros(count, int) if mixed else kinds[0]
    np.savetxt(path / "type.raw", types, fmt="%d")
    (path / "type_map.raw").write_text("\n".join(names) + "\n", encoding="utf-8")
    arrays = {
        "coord": np.stack([padded(frame.positions) for frame in frames]),
        "box": np.stack([frame.cell.reshape(9) for frame in frames]),
        "energy": np.array([frame.energy for frame in frames], float),
        "force": np.stack([padded(frame.forces) for frame in frames]),
    }
    if mixed:
        real = np.full((len(frames), count), -1)
        for row, kind in zip(real, kinds, strict=True):
            row[: len(kind)] = kind
        np.save(folder / "real_atom_types.npy", real)
    if all(frame.virial is not None for frame in frames):
        arrays["virial"] = np.stack([frame.virial.reshape(9) for frame in frames])
    if not frames[0].pbc.any():
        (path / "nopbc").touch()
        del arrays["box"]
    for name, values in arrays.items():
        kind = file.extra.get("label_dtype", dtype) if name == "energy" else dtype
        changed, change = file.extra.get("rows", ("", 0))
        rows = np.arange(len(values) + (change if name == changed else 0)) % len(values)
        np.save(folder / f"{name}.npy", values[rows].astype(kind))
    return path


def neighbour_distances(frame: OddFrame) -> np.ndarray:
    """Return the sorted distances of all ordered pairs within CUTOFF, by brute force, Å."""
    images = [(0.0, 0.0, 0.0)]
    if frame.pbc.any():
        vectors = frame.cell[frame.pbc]
        heights = 1 / np.linalg.norm(np.linalg.pinv(vectors), axis=0)
        spread = np.abs(frame.positions @ np.linalg.pinv(vectors)).max(axis=0)
        reach = np.ceil(CUTOFF / heights + 2 * spread).astype(int) + 1
        steps = itertools.product(*(range(-n, n + 1) for n in reach))
        images = [tuple(np.array(step) @ vectors) for step in steps]
    out = []
    offsets = frame.positions[None] - frame.positions[:, None]
    for image in images:
        distances = np.linalg.norm(offsets + np.array(image), axis=-1)
        if not np.any(image):
            np.fill_diagonal(distances, np.inf)
        out.append(distances[distances < CUTOFF])
    return np.sort(np.concatenate(out))


def _differences(file: OddFile, path: Path) -> list[str]:
    """Return what differs between the file as read and what it means."""
    from scitoolkit.potentials.graph import configuration_graph, edge_vectors

    stated = file.extra.get("as_stated", file.labels)
    read = open_atoms(path, stated)
    read.check(virial=False)
    if len(read) != len(file.frames):
        return [f"{len(read)} frames of {len(file.frames)}"]
    tight = 1e-5 if file.extra["dtype"] == "float32" else 1e-9
    out: list[str] = []
    for index, (frame, meant) in enumerate(zip(read, file.frames, strict=True)):
        if frame.species.tolist() != meant.species:
            out.append(f"frame {index}: species")
        for name in ("positions", "cell", "pbc", "energy", "forces", "virial"):
            have, want = getattr(frame, name), getattr(meant, name)
            if name == "cell" and not meant.pbc.any():
                continue  # a molecule's box means nothing
            if name == "forces" and len(meant.species) == 1 and want is None:
                want = have  # those of a lone atom are zero
            if name == "virial" and file.format.startswith("deepmd") and have is None:
                want = None if any(f.virial is None for f in file.frames) else want
            if (have is None) != (want is None):
                out.append(f"frame {index}: {name} is {'lost' if have is None else 'invented'}")
            elif have is not None:
                size = float(np.abs(np.asarray(want, float)).max(initial=0.0))
                error = np.abs(np.asarray(have, float) - np.asarray(want, float)).max(initial=0.0)
                if not error <= tight * max(1.0, size):
                    out.append(f"frame {index}: {name} differs by {error:.3g}")
        if out:
            continue
        types = sorted(set(meant.species))
        graph = configuration_graph(frame, types, CUTOFF)
        found = np.sort(edge_vectors(graph).norm(dim=1).numpy())
        expected = neighbour_distances(meant)
        near = int((np.abs(np.concatenate([found, expected]) - CUTOFF) < 1e-4).sum())
        if abs(len(found) - len(expected)) > near:
            out.append(f"frame {index}: {len(found)} neighbours of {len(expected)}")
        elif not near and np.abs(found - expected).max(initial=0.0) > 10 * max(tight, 1e-7):
            out.append(f"frame {index}: distances")
    return out


def _first_loss(file: OddFile, path: Path) -> float:
    """Return the loss of the first batch of a training on the file."""
    from scitoolkit.potentials import PotentialConfig, PotentialJob

    stated = file.extra.get("as_stated", file.labels)
    settings = {"name": "se_e2_a", "sel": [9] * 4, "cutoff": CUTOFF, "embedding": [2]}
    settings |= {"axis_neurons": 2, "fitting": [2], "cutoff_smooth": 1.0, "sel": "auto"}
    config = PotentialConfig.model_validate(
        {
            "data": {"path": [str(path)], "labels": stated.model_dump(exclude_defaults=True)},
            "model": settings,
            "split": {"validation": 0.3},
            "training": {"batch_size": 2},
        }
    )
    return float(PotentialJob().check(config)["first_loss"])


def outcome(number: int, folder: Path) -> tuple[str, str]:
    """Return how file `number` ends, and details.

    `right`: every frame is what it means and a training can begin. `refused`: a DataError or
    ConfigError that names the file, and the frame if one is at fault. `valid refused`: the same
    for a file without a fault. `unnamed`: a refusal that names neither. `silent`: read as something
    else, or a fault that is not refused. `raw`: any other exception.
    """
    file = odd_file(number)
    path = write_odd(file, folder)
    about = f"{number} {file.format}, {file.fault or 'valid'}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            differences = _differences(file, path)
            loss = None if differences else _first_loss(file, path)
    except ScitoolkitError as error:
        text = str(error)
        at = file.place if file.place is None or file.format != "ase_db" else file.place + 1
        named = path.name in text and (at is None or f"frame {at}" in text or f"row {at}" in text)
        if file.fault is None:
            return "valid refused", f"{about}: {text}"
        return ("refused" if named else "unnamed"), f"{about}: {text}"
    except Exception as error:
        return "raw", f"{about}: {type(error).__name__}: {error}"
    if differences:
        return "silent", f"{about}: {'; '.join(differences[:3])}"
    if file.fault is not None:
        return "silent", f"{about}: not refused"
    if loss is None or not np.isfinite(loss):
        return "silent", f"{about}: the first loss is {loss}"
    return "right", about
