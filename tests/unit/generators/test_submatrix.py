from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from frame_campaigns import made_frames

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.generators.submatrix.chebyshev import ChebyshevSubmatrices, step_series
from scitoolkit.generators.submatrix.density import Levels, occupations
from scitoolkit.generators.submatrix.functions import Submatrices
from scitoolkit.generators.submatrix.pattern import compact_blocks, in_blocks, powers, within
from scitoolkit.generators.submatrix.shares import shares
from scitoolkit.testing import GeneratorContract

ase = pytest.importorskip("ase")


def two_bands(n: int = 80, gap: float = 4.0, seed: int = 0) -> sp.csr_array:
    """A chain with levels at -gap/2 and gap/2, disordered hops to the next two sites."""
    rng = np.random.default_rng(seed)
    on = np.where(np.arange(n) % 2 == 0, -gap / 2, gap / 2) + 0.05 * rng.standard_normal(n)
    hops = [0.3 * rng.standard_normal(n - k) for k in (1, 2)]
    h = sp.diags_array([on, hops[0], hops[0], hops[1], hops[1]], offsets=[0, 1, -1, 2, -2])
    return sp.csr_array(h)


def exact(h: sp.csr_array, electrons: int) -> tuple[np.ndarray, np.ndarray]:
    w, q = np.linalg.eigh(h.toarray())
    return w, q[:, :electrons] @ q[:, :electrons].T


@pytest.mark.parametrize("method", ["sign", "inverse", "inverse_root"])
def test_functions_of_the_whole_matrix_are_exact(method):
    h = two_bands()
    if method == "inverse_root":
        h = sp.csr_array(h + 5 * sp.eye_array(h.shape[0]))
    full = np.ones(h.shape)
    parts = Submatrices(h, in_blocks(range(80), 16), full)
    w, q = np.linalg.eigh(h.toarray())
    f = {"sign": np.sign, "inverse": lambda w: 1 / w, "inverse_root": lambda w: w**-0.5}[method]
    assert np.abs(getattr(parts, method)().toarray() - (q * f(w)) @ q.T).max() < 1e-12


def test_errors_fall_with_the_pattern_and_the_estimate_follows():
    h = two_bands()
    w, d = exact(h, 40)
    mask = h.toarray() != 0
    errors = []
    for hops in (1, 2, 3, 4):
        parts = Submatrices(h, in_blocks(range(80), 2), powers(h, hops))
        found = parts.density(40.0)
        errors.append(np.abs(found.matrix.toarray() - d)[mask].max())
        assert errors[-1] / 3 < found.error < 3 * errors[-1]
        assert abs(found.electrons - 40) < 3 * errors[-1]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-2 * errors[0]
    assert found.energy == pytest.approx(w[:40].sum(), rel=1e-4)


def test_a_chemical_potential_at_a_temperature():
    h, temperature = two_bands(gap=0.5), 0.2
    parts = Submatrices(h, [np.arange(80)], np.ones(h.shape))
    found = parts.density(37.0, temperature)
    w = np.linalg.eigvalsh(h.toarray())
    assert (1 / (1 + np.exp((w - found.mu) / temperature))).sum() == pytest.approx(37.0, abs=1e-9)
    assert np.isnan(found.error)


def test_a_metal_is_refused_without_a_temperature():
    h = sp.csr_array(sp.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(2000, 2000)))
    parts = Submatrices(h, in_blocks(range(2000), 200), powers(h, 100))
    with pytest.raises(NumericalError, match="of a metal"):
        parts.density(1000.0)
    assert abs(parts.density(1000.0, 0.1).electrons - 1000) < 1e-8


def test_large_submatrices_are_diagonalised_again_instead_of_kept(monkeypatch):
    h = two_bands()
    kept = Submatrices(h, in_blocks(range(80), 4), powers(h, 3)).density(40.0).matrix
    monkeypatch.setattr("scitoolkit.generators.submatrix.functions.KEPT_BYTES", 0)
    again = Submatrices(h, in_blocks(range(80), 4), powers(h, 3)).density(40.0).matrix
    assert np.array_equal(kept.toarray(), again.toarray())


def test_groups_are_compact_and_cut_between_the_layers_of_a_crystal():
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*[np.arange(6)] * 3, indexing="ij"), -1).reshape(-1, 3)
    points = grid + 0.08 * rng.standard_normal(grid.shape)
    groups = compact_blocks(points, 8)
    assert sorted(np.concatenate(groups)) == list(range(216))
    assert all(g.size == 8 and np.ptp(points[g], axis=0).max() < 1.6 for g in groups)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_any_points_are_grouped_once_and_compactly(dims):
    points = np.random.default_rng(dims).random((203, dims)) * np.array([1, 3, 0])[:dims]
    groups = compact_blocks(points, 8, width=2)
    assert sorted(np.concatenate(groups)) == list(range(406))
    assert np.mean([g.size for g in groups]) == pytest.approx(16, rel=0.2)
    assert np.median([np.ptp(points[g[::2] // 2], axis=0).max() for g in groups]) < 0.8


def test_a_pattern_by_distance_has_the_neighbours_of_a_periodic_box():
    positions = np.random.default_rng(0).random((40, 3)) * 5
    far = positions[:, None] - positions[None]
    far -= 5 * np.round(far / 5)
    near = np.linalg.norm(far, axis=-1) <= 1.7
    assert np.array_equal(within(positions, 1.7, cell=[5.0] * 3).toarray() > 0, near)


@pytest.mark.parametrize("size", [1, 5, 20])
def test_polynomials_give_the_density_of_the_diagonalised_submatrices(size):
    h = two_bands(160)
    groups, pattern = in_blocks(range(160), size), powers(h, 3)
    whole = Submatrices(h, groups, pattern).density(80.0)
    found = ChebyshevSubmatrices(h, groups, pattern).density(80.0)
    assert abs(found.matrix - whole.matrix).max() < 1e-6
    assert found.energy == pytest.approx(whole.energy, abs=1e-5)
    assert found.gap == pytest.approx(whole.gap, rel=0.1)
    assert found.error == pytest.approx(whole.error, rel=1e-2)


def test_polynomials_give_the_fermi_occupations_of_the_diagonalised_submatrices():
    h = two_bands(160, gap=0.5)
    groups, pattern = in_blocks(range(160), 16), powers(h, 5)
    whole = Submatrices(h, groups, pattern).density(77.0, 0.1)
    found = ChebyshevSubmatrices(h, groups, pattern).density(77.0, 0.1)
    assert abs(found.matrix - whole.matrix).max() < 1e-6
    assert found.mu == pytest.approx(whole.mu, abs=1e-6)
    assert found.electrons == pytest.approx(77.0, abs=1e-5)


def test_more_steps_are_made_until_the_gap_is_resolved():
    levels = np.where(np.arange(400) % 2, 0.3, -0.3)
    h = sp.csr_array(sp.diags_array([levels, np.ones(399), np.ones(399)], offsets=[0, 1, -1]))
    groups, pattern = in_blocks(range(400), 16), powers(h, 30)
    parts = ChebyshevSubmatrices(h, groups, pattern, tolerance=1e-4)
    found = parts.density(200.0)
    assert abs(found.matrix - Submatrices(h, groups, pattern).density(200.0).matrix).max() < 2e-4
    assert abs(found.electrons - 200) < 1e-2


def test_a_gap_or_temperature_too_small_for_polynomials_is_refused_with_what_can_do_it():
    chain = sp.csr_array(sp.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(200, 200)))
    parts = ChebyshevSubmatrices(chain, [np.arange(200)], np.ones((200, 200)))
    with pytest.raises(NumericalError, match=r"do not resolve the gap.* Fix: Submatrices"):
        parts.density(100.0)
    with pytest.raises(NumericalError, match=r"do not resolve the temperature.* Fix: Submatrices"):
        parts.density(100.0, 1e-4)
    with pytest.raises(NumericalError, match="degree"):
        step_series(0.0, 1e-3, 1e-7)
    with pytest.raises(ConfigError, match="1e-12 to"):
        ChebyshevSubmatrices(chain, [np.arange(200)], chain, tolerance=0.5)


SHARED = """
import sys
import numpy as np
import scipy.sparse as sp
from scitoolkit.generators.submatrix.chebyshev import ChebyshevSubmatrices
from scitoolkit.generators.submatrix.functions import Submatrices
from scitoolkit.generators.submatrix.pattern import in_blocks, powers
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.processes import process_group

h = sp.csr_array(sp.load_npz(sys.argv[1]))
groups = [*in_blocks(range(100), 20), *in_blocks(range(100, 160), 6)]
with process_group(TrainingConfig()):
    for kind in (Submatrices, ChebyshevSubmatrices):
        made = kind(h, groups, powers(h, 3))
        d = made.density(80.0)
        numbers = np.array([d.mu, d.energy, d.gap, d.error])
        np.savez(f"{sys.argv[2]}_{kind.__name__}.npz", d=d.matrix.toarray(), numbers=numbers)
        work = len(made._parts) if kind is Submatrices else -1
        print("parts", work)
"""


@pytest.mark.slow
@pytest.mark.multiproc
def test_ranks_share_the_submatrices_and_find_the_bits_of_one(tmp_path):
    sp.save_npz(tmp_path / "h.npz", two_bands(160))
    (tmp_path / "shared.py").write_text(SHARED)
    command = [sys.executable, str(tmp_path / "shared.py"), str(tmp_path / "h.npz")]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*command, str(tmp_path / "one")], check=True, timeout=120)
    done = subprocess.run(
        [*torchrun, *command[1:], str(tmp_path / "two")],
        check=True,
        timeout=120,
        capture_output=True,
        text=True,
    )
    parts = [int(line.split()[1]) for line in done.stdout.splitlines() if line[:5] == "parts"]
    assert sum(parts) == 15 - 2
    assert parts.count(-1) == 2  # those of polynomials keep nothing
    assert 0 not in parts
    for kind in ("Submatrices", "ChebyshevSubmatrices"):
        one, two = (np.load(tmp_path / f"{name}_{kind}.npz") for name in ("one", "two"))
        assert all(np.array_equal(one[key], two[key]) for key in ("d", "numbers"))


@pytest.mark.parametrize("kind", [Submatrices, ChebyshevSubmatrices])
def test_parts_of_any_number_of_ranks_give_the_bits_of_one(kind, monkeypatch):
    h = two_bands(120)
    groups = [*in_blocks(range(60), 20), *in_blocks(range(60, 120), 6)]
    one = kind(h, groups, powers(h, 3)).density(60.0)
    monkeypatch.setattr(
        "scitoolkit.training.processes.share_work", lambda work: [work(r, 3) for r in range(3)]
    )
    three = kind(h, groups, powers(h, 3)).density(60.0)
    assert np.array_equal(one.matrix.toarray(), three.matrix.toarray())
    assert (one.mu, one.energy, one.error) == (three.mu, three.energy, three.error)


def test_shares_cost_the_same_where_they_can():
    costs = np.random.default_rng(0).random(60)
    for ranks in (1, 3, 7):
        parts = shares(costs.tolist(), ranks)
        assert sorted(i for part in parts for i in part) == list(range(60))
        loads = [costs[part].sum() for part in parts]
        assert max(loads) - min(loads) <= costs.max()


def test_counts_of_levels_are_those_of_their_sum():
    rng = np.random.default_rng(0)
    values, weights = rng.standard_normal(50), rng.random(50)
    levels = Levels(values, weights)
    for mu in (-0.3, 0.0, values[7]):
        for temperature in (0.0, 0.2):
            direct = weights @ occupations(values, mu, temperature)
            assert levels.count(mu, temperature) == pytest.approx(direct, abs=1e-12)


def test_the_error_estimate_is_the_largest_entry_of_the_defect_where_h_has_entries():
    h = two_bands(60)
    parts = Submatrices(h, in_blocks(range(60), 4), powers(h, 2))
    found = parts.density(30.0)
    d = found.matrix.toarray()
    defect = np.abs(d @ d - d)[h.toarray() != 0].max()
    assert found.error == pytest.approx(2 * defect, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h[:, :40], "a square matrix"),
        (lambda h: h + sp.csr_array(([1.0], ([0], [5])), h.shape), "not symmetric"),
        (lambda h: h * np.nan, "not finite"),
    ],
)
def test_unusable_matrices_are_refused(change, message):
    with pytest.raises((ConfigError, NumericalError), match=message):
        Submatrices(sp.csr_array(change(two_bands())), [np.arange(80)], np.ones((80, 80)))


def test_unusable_groups_and_patterns_are_refused():
    h = two_bands()
    with pytest.raises(ConfigError, match="not a partition"):
        Submatrices(h, [np.arange(79)], powers(h, 1))
    with pytest.raises(ConfigError, match="lacks entries"):
        Submatrices(h, [np.arange(80)], sp.eye_array(80))
    with pytest.raises(NumericalError, match="not positive definite"):
        Submatrices(h, [np.arange(80)], powers(h, 1)).inverse_root()
    with pytest.raises(NumericalError, match="0 to 80"):
        Submatrices(h, [np.arange(80)], powers(h, 1)).density(81.0)


LATTICE = {"C": 3.56, "Si": 5.43}


def diamond(displacement: float = 0.08, repeats: int = 1, a: float | None = None, symbol="C"):
    from ase.build import bulk

    atoms = bulk(symbol, "diamond", a=a or LATTICE[symbol], cubic=True) * ((repeats,) * 3)
    rng = np.random.default_rng(0)
    atoms.positions += displacement * rng.standard_normal(atoms.positions.shape)
    return atoms


def energy(atoms, **settings) -> float:
    from scitoolkit.generators.submatrix.calculator import TightBinding

    atoms.calc = TightBinding(**{"method": "dense", **settings})
    return atoms.get_potential_energy()


@pytest.mark.parametrize("symbol", ["C", "Si"])
def test_functions_of_distance_join_smoothly(symbol):
    from scitoolkit.generators.submatrix.calculator import ELEMENTS

    model = ELEMENTS[symbol]
    hoppings = (model.ss, model.sp, model.pp_sigma, model.pp_pi)
    for decay in (model.repulsion, *(decay for _, decay in hoppings)):
        assert decay.end == model.cutoff
        for where in (decay.join, decay.end):
            below, above = (decay(np.array([where + s])) for s in (-1e-9, 1e-9))
            assert np.allclose(below, above, atol=1e-7)
    for _, decay in hoppings:
        assert decay(np.array([decay.r0]))[0] == pytest.approx(1.0)


@pytest.mark.parametrize("symbol", ["C", "Si"])
def test_forces_and_stress_are_derivatives_of_the_energy(symbol):
    atoms, h = diamond(symbol=symbol), 1e-4
    energy(atoms)
    forces, stress = atoms.get_forces(), atoms.get_stress()
    for atom, axis in ((0, 0), (5, 2)):
        ends = []
        for side in (1, -1):
            moved = atoms.copy()
            moved.positions[atom, axis] += side * h
            ends.append(energy(moved))
        assert forces[atom, axis] == pytest.approx((ends[1] - ends[0]) / (2 * h), abs=1e-6)
    ends = []
    for side in (1, -1):
        strained, strain = atoms.copy(), np.eye(3)
        strain[0, 1] = strain[1, 0] = side * h / 2
        strained.set_cell(atoms.cell @ strain, scale_atoms=True)
        ends.append(energy(strained))
    assert stress[5] == pytest.approx((ends[0] - ends[1]) / (2 * h) / atoms.get_volume(), abs=1e-7)
    assert np.abs(forces.sum(0)).max() < 1e-12


@pytest.mark.parametrize(("symbol", "expected"), [("C", 3.555), ("Si", 5.45)])
def test_crystals_have_their_lattice_constants(symbol, expected):
    lattice = expected * np.array([0.99, 1.0, 1.01])
    energies = [energy(diamond(0.0, 2, a, symbol)) for a in lattice]
    a, b, _ = np.polyfit(lattice, energies, 2)
    assert -b / (2 * a) == pytest.approx(expected, abs=0.01)


def clusters():
    """Geometries of the clusters that Kwon et al. published, Å, and energies to separate, eV."""
    angle, half, slant = np.radians(74.7), 2.59 / np.sqrt(8), np.sqrt(2.48**2 - 1.28**2)
    wing = 2.42 * np.array([np.cos(angle / 2), np.sin(angle / 2), 0])
    radius = 3.59 / np.sqrt(3)
    turns = 2 * np.pi * np.arange(3) / 3
    ring = radius * np.stack([np.cos(turns), np.sin(turns), 0 * turns], 1)
    base = 1.28 * np.array([[-1, -1, 0], [1, -1, 0], [-1, 1, 0], [1, 1, 0]])
    return {
        "dimer": ([[0, 0, 0], [2.45, 0, 0]], 1.60),
        "triangle": ([[0, 0, 0], wing, wing * [1, -1, 1]], 2.51),
        "chain": ([[-2.41, 0, 0], [0, 0, 0], [2.41, 0, 0]], 2.21),
        "rhombus": ([[-slant, 0, 0], [0, 1.28, 0], [0, -1.28, 0], [slant, 0, 0]], 3.21),
        "tetrahedron": (
            half * np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]),
            2.83,
        ),
        "bipyramid": ([*ring, [0, 0, 1.37], [0, 0, -1.37]], 3.18),
        "pyramid": ([*base, [0, 0, 2.56 / np.sqrt(2)]], 3.13),
    }


@pytest.mark.parametrize("name", clusters())
def test_clusters_of_silicon_have_the_published_energies(name):
    positions, expected = clusters()[name]
    atoms = ase.Atoms(f"Si{len(positions)}", positions)
    # Some have half-filled levels, which a small temperature fills evenly.
    assert -energy(atoms, temperature=1e-3) / len(atoms) == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(("method", "tolerance"), [("submatrix", 1e-9), ("chebyshev", 1e-4)])
@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_submatrices_of_the_whole_cell_are_the_dense_result(method, tolerance, temperature):
    dense, parts = diamond(), diamond()
    energy(dense, temperature=temperature)
    energy(parts, method=method, hops=4, temperature=temperature)
    for key in ("energy", "free_energy"):
        assert parts.calc.results[key] == pytest.approx(dense.calc.results[key], abs=tolerance)
    assert np.abs(parts.get_forces() - dense.get_forces()).max() < tolerance


@pytest.mark.parametrize(("symbol", "near"), [("C", 0.6), ("Si", 1.2)])
def test_atoms_closer_than_the_repulsion_is_fitted_are_refused(symbol, near):
    spread = [
        energy(ase.Atoms(f"{symbol}2", [[0, 0, 0], [d, 0, 0]]), temperature=0.01)
        for d in (2.0 * near, 1.7 * near, 1.5 * near)
    ]
    assert spread == sorted(spread)
    with pytest.raises(NumericalError, match=f"{symbol} atoms {near:.2f} Å apart"):
        energy(ase.Atoms(f"{symbol}2", [[0, 0, 0], [near, 0, 0]]), temperature=0.01)


def test_too_small_a_pattern_and_other_elements_are_refused():
    with pytest.raises(NumericalError, match="hops=3"):
        energy(diamond(), method="submatrix", hops=2, error=0.0)  # rounding is beyond it
    for number, found in ((14, "C, Si"), (32, "C, Ge")):
        atoms = diamond()
        atoms.numbers[0] = number
        with pytest.raises(ConfigError, match=f"for {found}.* C alone, or Si alone"):
            energy(atoms)


class TestTightBindingCarbon(GeneratorContract):
    @pytest.fixture
    def generator(self):
        from scitoolkit.generators.submatrix.member import TightBindingCarbonFrames

        return TightBindingCarbonFrames(repeats=1, frames=2)


class TestTightBindingSilicon(GeneratorContract):
    @pytest.fixture
    def generator(self):
        from scitoolkit.generators.submatrix.member import TightBindingSiliconFrames

        return TightBindingSiliconFrames(repeats=1, frames=2)


@pytest.mark.parametrize("name", ["tight_binding_carbon", "tight_binding_silicon"])
def test_a_campaign_of_frames_trains_potentials(name, tmp_path):
    frames = made_frames(tmp_path, name=name, repeats=1, frames=2)
    assert len(frames) == 4
    assert frames[0].energy < 0
    assert np.isfinite(frames[0].forces).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_a_rattled_molecule_has_forces_of_its_energy(seed):
    from ase.build import molecule

    from scitoolkit.generators.submatrix.calculator import TightBinding

    atoms = molecule("C60")
    atoms.rattle(0.08, seed=seed)
    atoms.calc = TightBinding()
    forces = atoms.get_forces()
    assert abs(atoms.calc.results["electrons"] - 240) < 1e-6
    energies = []
    for step in (1e-4, -1e-4):
        moved = atoms.copy()
        moved.positions[7, 1] += step
        moved.calc = TightBinding()
        energies.append(moved.get_potential_energy())
    assert abs(forces[7, 1] + (energies[0] - energies[1]) / 2e-4) < 1e-4
