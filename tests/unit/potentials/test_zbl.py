from __future__ import annotations

import ase
import ase.units
import numpy as np
import pytest
import torch

from scitoolkit.core.errors import ConfigError
from scitoolkit.io.atoms_formats import from_ase
from scitoolkit.potentials import SeE2AConfig
from scitoolkit.potentials.calculator import Calculator
from scitoolkit.potentials.equivariant.mace_config import MaceConfig
from scitoolkit.potentials.graph import configuration_graph
from scitoolkit.potentials.zbl import Zbl, screened
from scitoolkit.potentials.zbl_config import ZblConfig

TYPES = ["O", "H"]
ATOMS = ase.Atoms("OHH", positions=[[0, 0, 0], [0.5, 0.1, 0], [-0.2, 0.45, 0.3]])


def model(family, zbl):
    if family == "mace":
        settings = MaceConfig(
            cutoff=4.0,
            channels=4,
            lmax=2,
            layers=1,
            radial_widths=[8],
            precision="float64",
            zbl=zbl,
        )
    else:
        settings = SeE2AConfig(
            cutoff=4.0,
            sel=[4, 8],
            embedding=[4, 8],
            axis_neurons=4,
            fitting=[8],
            zbl=zbl,
            precision="float32" if family == "float32" else "float64",
        )
    return settings.build(TYPES).eval()


def vectors_of(graph):
    centre, neighbour = graph["edge_index"]
    return graph["positions"][neighbour] - graph["positions"][centre]


def textbook(charge, other, r):
    """eV at r Å, from the formula in units of Bohr radii, by another way of writing it."""
    screening = 0.8854 * ase.units.Bohr / (charge**0.23 + other**0.23)
    phi = sum(
        c * np.exp(-d * r / screening)
        for c, d in zip(
            (0.18175, 0.50986, 0.28022, 0.02817), (3.1998, 0.94229, 0.4029, 0.20162), strict=True
        )
    )
    return ase.units.Hartree * ase.units.Bohr * charge * other / r * phi


def test_the_repulsion_is_the_textbooks_inside_the_switch():
    term = Zbl(ZblConfig(inner=1.0, outer=1.4), ["O", "Si"], 4.0)
    for r in (0.05, 0.3, 0.7, 0.99):
        pair = ase.Atoms("OSi", positions=[[0, 0, 0], [0, 0, r]])
        graph = configuration_graph(from_ase(pair), ["O", "Si"], 4.0)
        energies, _ = term(graph, vectors_of(graph))
        # 0.8854 Bohr is .46853 Å, the length in use is .46850
        assert float(energies.sum()) == pytest.approx(textbook(8, 14, r), rel=5e-4)
        assert float(energies[0]) == float(energies[1])


# mpmath, 30 digits: Si-Si at 1 Å and 0.5 Å from the published constants
GOLDEN = [50.97436368482624, 470.49311380427964]


def test_numbers_of_the_universal_potential():
    r = torch.tensor([1.0, 0.5], dtype=torch.float64)
    charge = torch.full_like(r, 14.399645478425668 * 196)
    scale = torch.full_like(r, 2 * 14**0.23 / 0.46850)
    energy, slope = screened(r, charge, scale)
    h = 1e-6
    rise = [screened(r + sign * h, charge, scale)[0] for sign in (1, -1)]
    assert torch.allclose(slope, (rise[0] - rise[1]) / (2 * h), rtol=1e-8)
    assert energy.tolist() == pytest.approx(GOLDEN, rel=1e-13)


@pytest.mark.parametrize("family", ["mace", "float64", "float32"])
def test_it_is_added_to_both_families_with_its_forces(family):
    without, term = model(family, None), model(family, ZblConfig(outer=1.5))
    term.load_state_dict(without.state_dict())
    atoms, step = ATOMS.copy(), 1e-4
    found = []
    for each in (without, term):
        atoms.calc = Calculator(each, skin=0)
        found.append((atoms.get_potential_energy(), atoms.get_forces()))
    pair = Zbl(ZblConfig(outer=1.5), TYPES, 4.0)

    def repulsion(moved):
        graph = configuration_graph(from_ase(moved), TYPES, 4.0)
        return float(pair(graph, vectors_of(graph))[0].sum())

    assert repulsion(atoms) > 5
    assert found[1][0] - found[0][0] == pytest.approx(repulsion(ATOMS), rel=1e-6)
    for atom, axis in np.ndindex(3, 3):
        energies = []
        for sign in (1, -1):
            moved = ATOMS.copy()
            moved.positions[atom, axis] += sign * step
            energies.append(repulsion(moved))
        slope = -(energies[0] - energies[1]) / (2 * step)
        assert (found[1][1] - found[0][1])[atom, axis] == pytest.approx(slope, abs=1e-4)


def test_it_ends_smoothly_where_covalent_radii_meet():
    from ase.data import covalent_radii

    end = float(covalent_radii[8] + covalent_radii[1])
    term = Zbl(ZblConfig(), TYPES, 4.0)

    def at(r):
        pair = ase.Atoms("OH", positions=[[0, 0, 0], [0, 0, r]])
        graph = configuration_graph(from_ase(pair), TYPES, 4.0)
        energies, slopes = term(graph, vectors_of(graph))
        return float(energies.sum()), float(slopes[0, 2])

    assert at(end + 1e-9) == (0.0, 0.0)
    assert 0 < at(end - 0.01)[0] < 1e-3
    assert abs(at(end - 1e-4)[1]) < 0.02 * abs(at(end - 1e-3)[1]) < 1e-4
    assert at(0.5 * end - 1e-9)[0] == pytest.approx(at(0.5 * end + 1e-9)[0], rel=1e-7)


def test_what_remains_to_learn_is_the_label_without_it():
    term = model("float64", ZblConfig(outer=1.5))
    graph = configuration_graph(from_ase(ATOMS), TYPES, 4.0)
    with torch.no_grad():
        labels = term(graph)
    labelled = {**graph, **{k: labels[k] for k in ("energy", "forces", "virial")}}
    rest = term.residual_labels(labelled)
    plain = model("float64", None)
    plain.load_state_dict(term.state_dict())
    with torch.no_grad():
        wanted = plain(graph)
    for name in ("energy", "forces", "virial"):
        assert torch.allclose(rest[name], wanted[name], atol=1e-10)


def test_the_errors_of_forces_that_training_lowers_contain_it():
    gradients = []
    for zbl in (None, ZblConfig()):
        term = model("float64", zbl).train()
        term(configuration_graph(from_ase(ATOMS), TYPES, 4.0))["forces"].square().sum().backward()
        gradients.append(term.fitting.weight[0].grad)
    assert not torch.allclose(*gradients)


def test_what_has_no_charge_is_refused():
    with pytest.raises(ConfigError, match="not a chemical element"):
        Zbl(ZblConfig(), ["O", "Type_0"], 4.0)
    with pytest.raises(ConfigError, match="cutoff"):
        Zbl(ZblConfig(outer=5.0), ["O"], 4.0)
    with pytest.raises(ConfigError, match="below outer"):
        ZblConfig(inner=2.0, outer=1.0)
