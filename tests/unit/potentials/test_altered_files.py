"""Generated files of frames in three formats, altered in many ways: read right, or refused.

A refusal names the file and the frame; no other exception leaves the package.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import ase
import ase.db
import ase.io
import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator

from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.io.atoms import open_atoms
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.graph import configuration_graph
from scitoolkit.potentials.job import PotentialJob
from scitoolkit.potentials.mean_interaction import MeanInteraction
from scitoolkit.potentials.model_config import models

MODEL = {
    "name": "mace",
    "cutoff": 3.5,
    "channels": 2,
    "lmax": 1,
    "layers": 1,
    "correlation": 1,
    "radial_widths": [4],
    "precision": "float64",
}


@dataclasses.dataclass
class Frame:
    """One frame and its labels; None for a missing label."""

    species: list[str]
    positions: np.ndarray
    cell: np.ndarray
    pbc: list[bool]
    energy: float | None
    forces: np.ndarray | None
    stress: np.ndarray | None


def crystal(generator) -> Frame:
    cell = np.diag(generator.uniform(4.5, 6.0, 3)) + generator.normal(0, 0.2, (3, 3))
    number = int(generator.integers(2, 5))
    grid = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])[:number]
    stress = generator.normal(0, 0.01, (3, 3))
    return Frame(
        list(generator.choice(["Cu", "Au"], number)),
        grid @ cell + generator.normal(0, 0.05, (number, 3)),
        cell,
        [True] * 3,
        float(generator.normal(-3 * number, 0.1)),
        generator.normal(0, 0.3, (number, 3)),
        stress + stress.T,
    )


def without(name):
    def alter(frame, generator):
        setattr(frame, name, None)

    return alter


def molecule(frame, generator):
    frame.cell, frame.pbc, frame.stress = np.zeros((3, 3)), [False] * 3, None


def molecule_with_stress(frame, generator):
    frame.cell, frame.pbc, frame.stress = np.zeros((3, 3)), [False] * 3, np.zeros((3, 3))


def slab(frame, generator):
    frame.pbc, frame.stress = [True, True, False], None


def wire(frame, generator):
    frame.pbc, frame.stress = [False, False, True], None
    frame.cell[2] = [0, 0, 5.0]


def lone_atom(frame, generator):
    one_atom_cell(frame, generator)
    frame.cell, frame.pbc, frame.stress = np.zeros((3, 3)), [False] * 3, None


def one_atom_cell(frame, generator):
    frame.species, frame.positions = frame.species[:1], frame.positions[:1]
    frame.forces, frame.energy = np.zeros((1, 3)), -3.5
    frame.cell = 2.5 * np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]) / np.sqrt(2)


def left_handed(frame, generator):
    frame.cell = frame.cell[[1, 0, 2]]


def outside_of_the_cell(frame, generator):
    images = generator.integers(-3, 4, frame.positions.shape)
    frame.positions = frame.positions + images @ frame.cell


def sheared(frame, generator):
    frame.cell[1] += 4 * frame.cell[0]


def large_box(frame, generator):
    frame.cell = 500.0 * np.eye(3)


def large_energy(frame, generator):
    frame.energy = -29942.123456


def huge_force(frame, generator):
    frame.forces[0, 1] = 1e30


def huge_energy(frame, generator):
    frame.energy = 1e200


def not_a_number(name):
    def alter(frame, generator):
        if name == "energy":
            frame.energy = float("nan")
        else:
            getattr(frame, name)[-1, 0] = np.nan

    return alter


def infinite_position(frame, generator):
    frame.positions[0, 2] = np.inf


def duplicate_atom(frame, generator):
    frame.positions[1] = frame.positions[0]


def image_of_another_atom(frame, generator):
    frame.positions[1] = frame.positions[0] + frame.cell[2]


def flat_cell(frame, generator):
    frame.cell[2] = frame.cell[0]


def no_cell(frame, generator):
    frame.cell = np.zeros((3, 3))


READ = {
    "as it is": lambda frame, generator: None,
    "no energy": without("energy"),
    "no forces": without("forces"),
    "no stress": without("stress"),
    "molecule": molecule,
    "molecule with a stress of zeros": molecule_with_stress,
    "slab": slab,
    "wire": wire,
    "lone atom": lone_atom,
    "cell of one atom": one_atom_cell,
    "left-handed cell": left_handed,
    "atoms outside of the cell": outside_of_the_cell,
    "sheared cell": sheared,
    "large box": large_box,
    "large energy": large_energy,
}
REFUSED = {
    "huge force": huge_force,
    "huge energy": huge_energy,
    "NaN energy": not_a_number("energy"),
    "NaN force": not_a_number("forces"),
    "NaN position": not_a_number("positions"),
    "infinite position": infinite_position,
    "duplicate atom": duplicate_atom,
    "image of another atom": image_of_another_atom,
    "flat cell": flat_cell,
    "no cell": no_cell,
}


def to_ase(frame: Frame) -> ase.Atoms:
    atoms = ase.Atoms(frame.species, frame.positions, cell=frame.cell, pbc=frame.pbc)
    labels = {
        name: getattr(frame, name)
        for name in ("energy", "forces", "stress")
        if getattr(frame, name) is not None
    }
    if "stress" in labels:
        labels["stress"] = labels["stress"].ravel()[[0, 4, 8, 5, 2, 1]]
    atoms.calc = SinglePointCalculator(atoms, **labels)
    return atoms


def write_extxyz(path, frames):
    path = path.with_suffix(".xyz")
    ase.io.write(path, [to_ase(frame) for frame in frames], format="extxyz")
    return path


def write_database(path, frames):
    path = path.with_suffix(".db")
    with ase.db.connect(path) as database:
        for frame in frames:
            database.write(to_ase(frame))
    return path


def write_deepmd(path, frames):
    names = ["Au", "Cu"]
    for number, frame in enumerate(frames):
        folder = path / f"system{number}"
        (folder / "set.000").mkdir(parents=True)
        types = [names.index(name) for name in frame.species]
        (folder / "type.raw").write_text("\n".join(map(str, types)) + "\n")
        (folder / "type_map.raw").write_text("\n".join(names) + "\n")
        arrays = {"coord": frame.positions.reshape(1, -1), "box": frame.cell.reshape(1, 9)}
        if frame.energy is not None:
            arrays["energy"] = np.array([frame.energy])
        if frame.forces is not None:
            arrays["force"] = frame.forces.reshape(1, -1)
        if frame.stress is not None and any(frame.pbc):
            arrays["virial"] = -abs(np.linalg.det(frame.cell)) * frame.stress.reshape(1, 9)
        if not any(frame.pbc):
            (folder / "nopbc").touch()
        for name, array in arrays.items():
            np.save(folder / "set.000" / f"{name}.npy", array)
    return path


WRITERS: dict[str, Callable] = {
    "extxyz": write_extxyz,
    "database": write_database,
    "deepmd": write_deepmd,
}


def altered(names, alterations, seed):
    """Return good frames, with altered ones at random places, and the altered places."""
    generator = np.random.default_rng(seed)
    frames = [crystal(generator) for _ in range(6)]
    places = generator.choice(6, len(names), replace=False)
    for place, name in zip(places, names, strict=True):
        alterations[name](frames[place], generator)
    return frames, places


def config(path):
    return PotentialConfig.model_validate(
        {
            "data": {"path": [str(path)]},
            "model": {**MODEL, "cutoff": 5.0},  # few frames may have no neighbour within 3.5 Å
            "loss": {"start_pref_v": 1.0},
            "training": {"steps": 1, "batch_size": 3},
        }
    )


def require_read(path, frames):
    """Compare all frames with those that were written, and evaluate them."""
    source = open_atoms([path])
    model = models.get("mace")(**MODEL).build(["Au", "Cu"]).eval()
    assert len(source) == len(frames)
    for number, written in enumerate(frames):
        frame = source[number]
        assert frame.species.tolist() == written.species
        np.testing.assert_allclose(frame.positions, written.positions, atol=1e-7)
        assert frame.pbc.tolist() == written.pbc
        for name in ("energy", "forces"):
            value, expected = getattr(frame, name), getattr(written, name)
            assert (value is None) == (expected is None)
            if expected is not None:
                np.testing.assert_allclose(value, expected, atol=1e-7, rtol=1e-7)
        if written.stress is not None and all(written.pbc):
            volume = abs(np.linalg.det(written.cell))
            np.testing.assert_allclose(frame.virial, -volume * written.stress, atol=1e-5)
        else:
            assert frame.virial is None
        results = model(configuration_graph(frame, ["Au", "Cu"], model.cutoff))
        assert all(bool(value.isfinite().all()) for value in results.values())
        atoms = to_ase(written)
        atoms.calc = None
        require_same_energy(model, atoms, float(results["energy"][0]))


def require_same_energy(model, atoms, energy):
    """Compare with atoms within the cell, and with lattice vectors in another order."""
    from scitoolkit.potentials import Calculator

    for order in ([0, 1, 2], [1, 0, 2], [1, 2, 0]):
        other = ase.Atoms(
            atoms.get_chemical_symbols(),
            atoms.positions,
            cell=atoms.cell.array[order],
            pbc=atoms.pbc[order],
        )
        if atoms.pbc.all():
            other.wrap()
        other.calc = Calculator(model)
        assert other.get_potential_energy() == pytest.approx(energy, abs=1e-8)


@pytest.mark.parametrize("file_format", WRITERS)
@pytest.mark.parametrize("name", READ)
def test_an_unusual_frame_is_read(tmp_path, file_format, name):
    seed = list(READ).index(name)
    frames, _ = altered([name], READ, seed)
    if file_format == "deepmd" and name in ("slab", "wire"):
        pytest.skip("deepmd systems are periodic in all directions or in none")
    path = WRITERS[file_format](tmp_path / "frames", frames)
    require_read(path, frames)
    assert np.isfinite(PotentialJob().check(config(path))["first_loss"])


@pytest.mark.parametrize("file_format", WRITERS)
@pytest.mark.parametrize("name", REFUSED)
def test_a_damaged_frame_is_refused_with_file_and_frame(tmp_path, file_format, name):
    frames, places = altered([name], REFUSED, list(REFUSED).index(name))
    path = WRITERS[file_format](tmp_path / "frames", frames)
    if (file_format, name) == ("database", "NaN energy"):  # sqlite stores NaN as no value
        assert open_atoms([path])[int(places[0])].energy is None
        return
    message = refusal(path, len(frames))
    assert "frames" in message
    (place,) = places
    numbers = {"extxyz": f"frame {place}", "database": f"row {place + 1}"}
    assert numbers.get(file_format, f"system{place}") in message, message


def refusal(path, number):
    """Return the message of the error of reading the frames of a file, which `check` raises too."""
    with pytest.raises(ScitoolkitError) as caught:
        read_all(path, number)
    with pytest.raises(ScitoolkitError):
        PotentialJob().check(config(path))
    return str(caught.value)


def read_all(path, number):
    source = open_atoms([path])
    for index in range(number):
        configuration_graph(source[index], ["Au", "Cu"], MODEL["cutoff"])


TEXTS = {
    "count too large": lambda lines: ["9", *lines[1:]],
    "count is text": lambda lines: ["two", *lines[1:]],
    "negative count": lambda lines: ["-2", *lines[1:]],
    "no atoms": lambda lines: ["0", lines[1], *lines[int(lines[0]) + 2 :]],
    "cut short": lambda lines: lines[:-1],
    "position is text": lambda lines: [*lines[:2], "Cu a b c 0 0 0", *lines[3:]],
    "row too short": lambda lines: [*lines[:2], "Cu 0.0 0.0", *lines[3:]],
    "not an element": lambda lines: [*lines[:2], "Qq" + lines[2][2:], *lines[3:]],
    "energy is text": lambda lines: [lines[0], swapped(lines[1], "energy", "low"), *lines[2:]],
    "two energies": lambda lines: [lines[0], swapped(lines[1], "energy", '"1 2"'), *lines[2:]],
    "stress of five numbers": lambda lines: [
        lines[0],
        swapped(lines[1], "stress", '"1 2 3 4 5"'),
        *lines[2:],
    ],
    "lattice of eight numbers": lambda lines: [
        lines[0],
        swapped(lines[1], "Lattice", '"4 0 0 0 4 0 0 0"'),
        *lines[2:],
    ],
    "forces of two components": lambda lines: [
        lines[0],
        lines[1].replace("forces:R:3", "forces:R:2"),
        *lines[2:],
    ],
    "a thousand columns": lambda lines: [
        lines[0],
        lines[1].replace("forces:R:3", "forces:R:1000"),
        *lines[2:],
    ],
    "pbc of two letters": lambda lines: [lines[0], swapped(lines[1], "pbc", '"T F"'), *lines[2:]],
    "bytes": lambda lines: [lines[0], lines[1] + ' note="\x00\x01"', *lines[2:]],
    "blank line": lambda lines: [lines[0], "", *lines[1:]],
}


def swapped(comment, key, value):
    """Return a comment line with another value of a key."""
    import re

    return re.sub(rf'\b{key}=("[^"]*"|\S+)', f"{key}={value}", comment)


@pytest.mark.parametrize("name", TEXTS)
def test_damaged_text_is_refused_or_read(tmp_path, name):
    """Errors of ASE and of numbers in text are errors of the file."""
    frames, _ = altered([], READ, 3)
    path = write_extxyz(tmp_path / "frames", frames)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(TEXTS[name](lines)) + "\n", encoding="utf-8")
    if name == "bytes":
        assert np.isfinite(PotentialJob().check(config(path))["first_loss"])
        return
    with pytest.raises(ScitoolkitError, match=r"frames\.xyz"):
        PotentialJob().check(config(path))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_several_alterations(tmp_path, seed):
    generator = np.random.default_rng(1000 + seed)
    file_format = str(generator.choice(list(WRITERS)))
    names = [n for n in READ if file_format != "deepmd" or n not in ("slab", "wire")]
    chosen = generator.choice(names, 4, replace=False).tolist()
    frames, _ = altered(chosen, READ, seed)
    path = WRITERS[file_format](tmp_path / "frames", frames)
    require_read(path, frames)
    assert np.isfinite(PotentialJob().check(config(path))["first_loss"])


@pytest.mark.parametrize("seed", range(5))
def test_the_mean_interaction_is_the_gradient_of_its_energy(seed):
    import torch

    generator = np.random.default_rng(seed)
    frame = crystal(generator)
    source = ase.Atoms(frame.species, frame.positions, cell=frame.cell, pbc=True)
    from scitoolkit.io.atoms_formats import from_ase

    graph = configuration_graph(from_ase(source), ["Au", "Cu"], 3.5)
    term = MeanInteraction(2, 3.5)
    term.energy.copy_(torch.tensor([-3.0, 2.0]))
    term.density.fill_(float(generator.uniform(0.5, 3.0)))
    from scitoolkit.potentials.graph import edge_vectors

    vectors = edge_vectors(graph).requires_grad_()
    energies, gradient = term(graph, vectors)
    (expected,) = torch.autograd.grad(energies.sum(), vectors)
    np.testing.assert_allclose(gradient.detach(), expected, atol=1e-12)
