"""The pair potential that trained potentials are compared with: recovery, physics and its file."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials import pair_baseline, pair_potential
from scitoolkit.potentials.data import GraphSet
from scitoolkit.potentials.graph import configuration_graph
from scitoolkit.potentials.loss_config import LossConfig
from scitoolkit.potentials.pair_baseline import fit_pair_potential
from scitoolkit.potentials.pair_potential import FILE, PairPotential

TYPES = ["O", "H"]
CUTOFF = 4.0
TRICLINIC = np.array([[6.2, 0, 0], [1.1, 5.9, 0], [-0.7, 0.8, 6.4]])
SLAB, PERIODIC, MOLECULE = (True, True, False), (True, True, True), (False, False, False)
E0 = {"O": -3.0, "H": -1.0}


def lennard_jones(r, one, other):
    """Return energy and slope of a Lennard-Jones-like pair that vanishes smoothly at the cutoff."""
    depth, sigma = {"OO": (0.05, 2.0), "HO": (0.03, 1.8), "HH": (0.02, 1.6)}[
        min(one + other, other + one)
    ]
    x6 = (sigma / r) ** 6
    energy, slope = 4 * depth * (x6**2 - x6), -4 * depth * (12 * x6**2 - 6 * x6) / r
    u = 1 - (r / CUTOFF) ** 2
    return energy * u**3, slope * u**3 - energy * 3 * u**2 * 2 * r / CUTOFF**2


def labelled(frame):
    """Label a frame with the Lennard-Jones sum over all images, without a neighbour list."""
    reach = [range(-2, 3) if periodic else (0,) for periodic in frame.pbc]
    shifts = [
        np.array([i, j, k]) @ frame.cell for i in reach[0] for j in reach[1] for k in reach[2]
    ]
    energy, forces = sum(E0[name] for name in frame.species), np.zeros_like(frame.positions)
    for i, one in enumerate(frame.species):
        for j, other in enumerate(frame.species):
            for shift in shifts:
                vector = frame.positions[j] + shift - frame.positions[i]
                r = np.linalg.norm(vector)
                if 1e-9 < r < CUTOFF:
                    value, slope = lennard_jones(r, one, other)
                    energy += 0.5 * value
                    forces[i] += slope * vector / r
    return replace(frame, energy=float(energy), forces=forces)


def drawn(seed, pbc=PERIODIC, sites=3):
    """Return a jittered grid of atoms, 2 Å apart, of random elements."""
    rng = np.random.default_rng(seed)
    grid = np.array([[i, j, k] for i in range(sites) for j in range(sites) for k in range(sites)])
    chosen = grid[np.sort(rng.choice(len(grid), 14, replace=False))] / 3 + 0.05
    positions = chosen @ TRICLINIC + rng.uniform(-0.15, 0.15, (14, 3))
    species = np.where(rng.random(14) < 0.5, "O", "H")
    return Configuration(species, positions, TRICLINIC, np.array(pbc))


def graphs(frames):
    return GraphSet(frames, range(len(frames)), TYPES, CUTOFF)


def fitted(train, validation=(), loss=None, functions=32):
    return fit_pair_potential(
        graphs(train), graphs(validation), 2, CUTOFF, loss or LossConfig(), functions
    )


def values(potential, frame):
    return potential.predict(configuration_graph(frame, TYPES, CUTOFF))


def dimers(distance):
    positions = np.array([[0.0, 0, 0], [distance, 0, 0]])
    for species in ("OO", "OH", "HH"):
        yield labelled(
            Configuration(np.array(list(species)), positions, np.zeros((3, 3)), np.array(MOLECULE))
        )


@pytest.fixture(scope="module")
def frames():
    """Crystals, slabs and molecules, of which the first have the shortest distances."""
    drawn_frames = [labelled(drawn(s, (PERIODIC, SLAB, MOLECULE)[s % 3])) for s in range(24)]
    return [*dimers(1.6), *dimers(1.65), *dimers(1.7), *drawn_frames]


@pytest.fixture(scope="module")
def potential(frames):
    return fitted(frames[:27], frames[27:])


def test_the_fit_recovers_a_known_pair_potential(frames):
    found = fitted(frames[:27], frames[27:], functions=64)
    for seed, pbc in ((100, PERIODIC), (101, SLAB), (102, MOLECULE)):
        unseen = labelled(drawn(seed, pbc))
        energy, forces = values(found, unseen)
        assert energy == pytest.approx(unseen.energy, abs=1e-3)
        assert np.abs(forces - unseen.forces).max() < 1e-3 * np.abs(unseen.forces).max()
    assert found.energies == pytest.approx([E0["O"], E0["H"]], abs=1e-3)
    assert found.pairs == [[0, 0], [0, 1], [1, 1]]


def test_forces_are_the_slopes_of_the_energy_also_below_the_shortest_distance(potential):
    close = np.array([[0.0, 0, 0], [0.8, 0.3, 0], [0.5, -1.1, 0.9]])
    short = Configuration(np.array(list("OHH")), close, np.zeros((3, 3)), np.array(MOLECULE))
    assert np.linalg.norm(close[1]) < min(potential.starts)
    for frame in (short, drawn(7), drawn(8, SLAB)):
        forces, step = values(potential, frame)[1], 1e-4
        for atom, axis in ((0, 0), (1, 1), (2, 2)):
            energies = []
            for sign in (1, -1):
                moved = frame.positions.copy()
                moved[atom, axis] += sign * step
                energies.append(values(potential, replace(frame, positions=moved))[0])
            slope = -(energies[0] - energies[1]) / (2 * step)
            assert forces[atom, axis] == pytest.approx(slope, abs=1e-6)


def test_energy_and_slope_vanish_at_the_cutoff(potential):
    for species in ("OO", "OH", "HH"):
        for gap, bound in ((1e-2, 1e-4), (1e-4, 1e-8)):
            pair = np.array([[0.0, 0, 0], [0, 0, CUTOFF - gap]])
            frame = Configuration(np.array(list(species)), pair, np.eye(3), np.array(MOLECULE))
            energy, forces = values(potential, frame)
            alone = sum(potential.energies[TYPES.index(name)] for name in species)
            assert abs(energy - alone) < bound
            assert np.abs(forces).max() < 10 * bound


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**31))
def test_symmetries(potential, seed):
    rng = np.random.default_rng(seed)
    frame = drawn(seed)
    energy, forces = values(potential, frame)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    turned = replace(
        frame, positions=frame.positions @ turn + rng.normal(size=3), cell=frame.cell @ turn
    )
    order = rng.permutation(len(forces))
    shuffled = replace(frame, positions=frame.positions[order], species=frame.species[order])
    images = rng.integers(-2, 3, (len(forces), 3)) @ frame.cell
    wrapped = replace(frame, positions=frame.positions + images)
    for other, expected in ((turned, forces @ turn), (shuffled, forces[order]), (wrapped, forces)):
        found = values(potential, other)
        assert found[0] == pytest.approx(energy, abs=1e-9)
        assert np.allclose(found[1], expected, rtol=0, atol=1e-9)
    assert np.allclose(forces.sum(0), 0, atol=1e-9)


def test_a_supercell_has_the_energy_of_its_cells(potential):
    frame = drawn(3)
    doubled = replace(
        frame,
        species=np.tile(frame.species, 2),
        cell=frame.cell * [[2], [1], [1]],
        positions=np.concatenate([frame.positions, frame.positions + frame.cell[0]]),
    )
    energy, forces = values(potential, frame)
    found = values(potential, doubled)
    assert found[0] == pytest.approx(2 * energy, abs=1e-9)
    assert np.allclose(found[1], np.tile(forces, (2, 1)), atol=1e-9)


def test_a_cell_smaller_than_the_cutoff_is_fitted():
    def cell(length):
        one = Configuration(
            np.array(["O"]), np.zeros((1, 3)), length * np.eye(3), np.array(PERIODIC)
        )
        return labelled(one)

    lengths = np.linspace(1.9, 2.4, 21)
    found = fitted([cell(a) for a in lengths[::2]], [cell(a) for a in lengths[1::2]])
    assert values(found, cell(2.11))[0] == pytest.approx(cell(2.11).energy, abs=2e-3)
    assert np.allclose(values(found, cell(2.11))[1], 0, atol=1e-9)


def test_blocks_of_atoms_change_nothing(frames, monkeypatch, potential):
    expected = values(potential, frames[-1])
    monkeypatch.setattr(pair_potential, "ATOMS", 3)
    monkeypatch.setattr(pair_baseline, "BLOCK", 1)
    found = values(potential, frames[-1])
    assert found[0] == pytest.approx(expected[0], abs=1e-10)
    assert np.allclose(found[1], expected[1], atol=1e-12)
    again = fitted(frames[:27], frames[27:])
    assert again.ridge == potential.ridge
    assert np.allclose(values(again, frames[-1])[1], expected[1], atol=1e-7)


@pytest.mark.parametrize("validation", ["none", "unlabelled"])
def test_without_validation_labels_the_ridge_is_chosen_on_the_training_frames(frames, validation):
    held = [] if validation == "none" else [drawn(50)]
    found, unseen = fitted(frames[:27], held), labelled(drawn(101, SLAB))
    error = values(found, unseen)[1] - unseen.forces
    assert np.sqrt((error**2).mean()) < 0.05 * np.sqrt((unseen.forces**2).mean())


def test_each_frame_contributes_the_labels_that_it_has(frames):
    """Forces of some frames and energies of others; a frame of one atom gives its energy."""
    mixed = [
        replace(f, energy=None) if i % 2 else replace(f, forces=None) for i, f in enumerate(frames)
    ]
    alone = Configuration(
        np.array(["O"]),
        np.zeros((1, 3)),
        np.zeros((3, 3)),
        np.array(MOLECULE),
        E0["O"],
        np.zeros((1, 3)),
    )
    found, unseen = fitted([alone, *mixed]), labelled(drawn(102, MOLECULE))
    energy, forces = values(found, unseen)
    assert np.abs(forces - unseen.forces).max() < 0.05 * np.abs(unseen.forces).max()
    assert energy == pytest.approx(unseen.energy, abs=0.02)
    assert values(found, alone)[0] == pytest.approx(E0["O"], abs=0.01)
    assert np.array_equal(values(found, alone)[1], np.zeros((1, 3)))


def test_forces_alone_leave_the_energies_at_zero(frames):
    found = fitted([replace(f, energy=None) for f in frames])
    assert found.energies == found.mean_energies == [0.0, 0.0]
    without = [replace(f, energy=None) for f in frames]
    assert fitted(without[:27], without[27:]) == fitted(without[:27], frames[27:])
    unseen = labelled(drawn(102, MOLECULE))
    assert np.allclose(values(found, unseen)[1], unseen.forces, atol=0.02)


def test_the_weights_are_those_at_the_end_of_the_training(frames):
    """Labels that are not used by the loss do not change the fit."""
    wrong = [replace(f, forces=f.forces + 1.0) for f in frames]
    energies = LossConfig(start_pref_f=0, limit_pref_f=0)
    assert fitted(frames, loss=energies) == fitted(wrong, loss=energies)
    at_start = LossConfig(start_pref_f=1000, limit_pref_f=0)
    assert fitted(frames, loss=at_start) == fitted(wrong, loss=at_start)
    constant = LossConfig(start_pref_e=1, limit_pref_e=1, start_pref_f=0, limit_pref_f=0)
    only_start = LossConfig(start_pref_e=1, limit_pref_e=0, start_pref_f=0, limit_pref_f=0)
    assert fitted(frames, loss=constant) == fitted(frames, loss=only_start)


def test_a_loss_of_forces_alone_still_determines_the_energies(frames):
    found = fitted(frames, loss=LossConfig(start_pref_e=0, limit_pref_e=0))
    unseen = labelled(drawn(101, SLAB))
    assert values(found, unseen)[0] == pytest.approx(unseen.energy, abs=0.05)


def test_large_sets_are_thinned_evenly(frames, monkeypatch, potential):
    monkeypatch.setattr(pair_baseline, "FRAMES", 10)
    found = fitted(frames[9:])
    assert found.frames == 10
    monkeypatch.setattr(pair_baseline, "EDGES", 1)
    assert fitted(frames[9:]).frames == 8


def test_mean_energies_are_the_fit_without_pairs(frames, potential):
    counts = np.array([[(f.species == name).sum() for name in TYPES] for f in frames[:27]])
    expected = np.linalg.lstsq(counts, [f.energy for f in frames[:27]], rcond=None)[0]
    assert potential.mean_energies == pytest.approx(expected)
    graph = configuration_graph(frames[-1], TYPES, CUTOFF)
    (number,) = [[(frames[-1].species == name).sum() for name in TYPES]]
    assert potential.mean_energy(graph) == pytest.approx(expected @ number)


def test_no_pairs_no_labels_and_too_many_pairs_have_no_baseline(frames, monkeypatch):
    alone = Configuration(
        np.array(["O"]),
        np.zeros((1, 3)),
        np.zeros((3, 3)),
        np.array(MOLECULE),
        -3.0,
        np.zeros((1, 3)),
    )
    assert fitted([alone]) is None
    assert fitted([drawn(1)]) is None
    monkeypatch.setattr(pair_baseline, "LARGEST", 30)
    assert len(fitted(frames).coefficients[0]) == 10
    monkeypatch.setattr(pair_baseline, "LARGEST", 20)
    assert fitted(frames) is None


def test_pairs_that_the_training_lacks_do_not_interact(frames):
    oxygen = [labelled(replace(drawn(s), species=np.full(14, "O"))) for s in range(6)]
    found = fitted(oxygen)
    assert found.pairs == [[0, 0]]
    mixed = drawn(9)
    only = mixed.species == "O"
    rest = replace(mixed, species=mixed.species[only], positions=mixed.positions[only])
    assert np.allclose(values(found, mixed)[1][only], values(found, rest)[1], atol=1e-12)
    assert np.array_equal(values(found, mixed)[1][~only], np.zeros((int((~only).sum()), 3)))


def test_the_saved_potential_is_the_fitted_one(potential, tmp_path):
    assert PairPotential.load(tmp_path, 2) is None
    potential.save(tmp_path)
    assert PairPotential.load(tmp_path, 2) == potential


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: "{", "damaged"),
        (lambda table: json.dumps([1]), "damaged"),
        (lambda table: json.dumps({**table, "unknown": 1}), "damaged"),
        (lambda table: json.dumps({k: v for k, v in table.items() if k != "starts"}), "damaged"),
        (lambda table: json.dumps({**table, "coefficients": [[1.0], [1.0, 2.0]]}), "damaged"),
        (lambda table: json.dumps({**table, "starts": [1.0]}), "another model"),
        (lambda table: json.dumps({**table, "pairs": [[0, 0], [0, 1], [1, 2]]}), "another model"),
        (lambda table: json.dumps({**table, "energies": [1.0]}), "another model"),
    ],
)
def test_a_damaged_file_is_refused(potential, tmp_path, change, message):
    potential.save(tmp_path)
    path = tmp_path / FILE
    path.write_text(change(json.loads(path.read_text())))
    with pytest.raises(DataError, match=message):
        PairPotential.load(tmp_path, 2)


def test_the_potential_of_other_elements_is_refused(potential, tmp_path):
    potential.save(tmp_path)
    with pytest.raises(DataError, match="3 elements"):
        PairPotential.load(tmp_path, 3)
