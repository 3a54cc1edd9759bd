"""Exported potentials in LAMMPS: equal to ASE on any number of ranks, and refused by name."""

import contextlib
import os
import shutil
import signal
import subprocess
from dataclasses import replace

import ase
import ase.units
import numpy as np
import pytest
import torch
from lammps_runs import BAR, LammpsRuns, lammps_python, write_data

from scitoolkit.core.content import content_root
from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.potentials import MaceConfig, NequipConfig, SeE2AConfig
from scitoolkit.potentials.calculator import Calculator
from scitoolkit.potentials.deepmd.config import DeepPotentialConfig
from scitoolkit.potentials.equivariant import mace
from scitoolkit.potentials.equivariant.model import EquivariantPotential
from scitoolkit.potentials.export.lammps_source import find_lammps_source
from scitoolkit.potentials.export.pair_style import build_pair_style, find_lammps
from scitoolkit.potentials.export.write import export_library

# `make test` installs it into .venv-peers/lammps.
pytestmark = pytest.mark.skipif(
    lammps_python() is None, reason="no LAMMPS: make .venv-peers/lammps/.installed"
)

MACE = {"cutoff": 3.5, "channels": 4, "radial_widths": [8], "precision": "float64"}
SE_E2_A = {"cutoff": 4.0, "sel": [8, 16], "embedding": [4, 8], "axis_neurons": 4}
SE_ATTEN = {
    "name": "se_atten",
    "cutoff": 3.5,
    "cutoff_smooth": 1.0,
    "sel": 60,
    "embedding": [4, 8],
    "axis_neurons": 3,
    "type_width": 4,
    "attention_width": 6,
}
SE_E2_R = {"name": "se_e2_r", "cutoff": 3.0, "sel": [8, 16], "embedding": [4, 8]}
CONFIGS = {
    "mace": MaceConfig(lmax=2, lmax_hidden=1, correlation=2, **MACE),
    "mace_density": MaceConfig(lmax=1, correlation=2, density=True, first_density=True, **MACE),
    "nequip": NequipConfig(lmax=1, layers=3, **MACE),
    "nequip_parity": NequipConfig(
        lmax=1, layers=3, parity=True, species_scale=True, repulsion_envelope=6, **MACE
    ),
    "deep_potential": SeE2AConfig(fitting=[8], zbl={}, precision="float64", **SE_E2_A),
    "se_atten": DeepPotentialConfig(descriptors=[SE_ATTEN], fitting=[8]),
    "several_descriptors": DeepPotentialConfig(
        descriptors=[{"name": "se_e2_a", **SE_E2_A}, SE_E2_R, SE_ATTEN], fitting=[8]
    ),
}
EXAMPLES = pytest.mark.parametrize("potential", ["mace", "deep_potential"], indirect=True)
VOIGT = [0, 1, 2, 5, 4, 3]  # ASE's xx yy zz yz xz xy in LAMMPS' order


def grid_atoms(counts=(6, 4, 4), step=2.2, tilt=1.1, vacuum=0.0, seed=0):
    """Return a jittered grid of O and H in a triclinic cell."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), -1).reshape(-1, 3)
    cell = np.diag(np.array(counts) * step + [0, 0, vacuum])
    cell[1, 0], cell[2, 0], cell[2, 1] = tilt, -tilt / 2, tilt / 3
    x = (grid + 0.5 + rng.uniform(-0.15, 0.15, grid.shape)) * step
    return ase.Atoms(rng.choice(["O", "H"], len(x)), x, cell=cell, pbc=True)


@pytest.fixture(autouse=True)
def _layers_in_python(monkeypatch):
    """Compare with the layers in Python, not with the library that LAMMPS calls."""
    monkeypatch.setattr(mace, "STREAMED_ATOMS", 10**9)


@pytest.fixture(scope="module")
def lammps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugin")
    return LammpsRuns(build_pair_style(find_lammps(lammps_python()), folder), folder)


def exported(config, folder):
    """Return a model with some constants; export it into a folder."""
    model = config.build(["O", "H"]).eval()
    with torch.no_grad():
        model.shift.copy_(torch.tensor([-3.0, -1.0]))
        if isinstance(model, EquivariantPotential):
            model.average_neighbours.fill_(20.0)
    export_library(model, config, folder)
    return model


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def potential(request, tmp_path_factory):
    """Model, and the pair style with its exported folder."""
    folder = tmp_path_factory.mktemp(request.param)
    model = exported(CONFIGS[request.param], folder)
    return model, f"pair_style scitoolkit {folder}\npair_coeff * * O H", folder


def check(found, atoms, model, bound=1e-11):
    """Compare a run with ASE, relative to the largest value."""
    energy, forces, virial, atomic, stresses = found
    calculator = Calculator(model, skin=0)
    atoms.calc = calculator
    wanted_virial = -atoms.get_stress()[VOIGT] * atoms.get_volume()
    for ours, wanted in (
        (energy, atoms.get_potential_energy()),
        (forces, atoms.get_forces()),
        (virial, wanted_virial),
        (atomic, atoms.get_potential_energies()),
        (stresses.sum(0), wanted_virial),
    ):
        assert np.abs(ours - wanted).max() <= bound * np.abs(wanted).max()


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_equals_ase_on_any_number_of_ranks(potential, lammps, ranks):
    model, pair, _ = potential
    atoms = grid_atoms()
    check(lammps.measure(atoms, pair, ranks), atoms, model)


@EXAMPLES
def test_equals_ase_in_the_neighbouring_cases(potential, lammps):
    model, pair, _ = potential
    atoms = grid_atoms()
    check(lammps.measure(atoms, pair, 2, after="pair_modify nofdotr"), atoms, model)
    balanced = "comm_style tiled\nbalance 1.0 rcb"
    check(lammps.measure(atoms, pair, 4, after=balanced), atoms, model)
    slab = grid_atoms((4, 4, 2), tilt=0.0, vacuum=40.0)
    check(lammps.measure(slab, pair, 4, first="processors 1 1 4"), slab, model)
    tiny = grid_atoms((1, 1, 2), step=2.4, tilt=0.3)
    check(lammps.measure(tiny, pair, 1), tiny, model)
    check(lammps.measure(atoms, pair, 2, first="package omp 2"), atoms, model)


def test_hybrid_overlay_equals_ase(potential, lammps):
    model, _, folder = potential
    overlay = (
        f"pair_style hybrid/overlay scitoolkit {folder} zero 4.5\n"
        "pair_coeff * * scitoolkit O H\npair_coeff * * zero"
    )
    atoms = grid_atoms()
    check(lammps.measure(atoms, overlay, 2), atoms, model)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_float32_equals_ase_on_two_ranks(name, lammps, tmp_path):
    settings = {**CONFIGS[name].model_dump(), "precision": "float32"}
    model = exported(type(CONFIGS[name]).model_validate(settings), tmp_path)
    atoms = grid_atoms()
    check(
        lammps.measure(atoms, f"pair_style scitoolkit {tmp_path}\npair_coeff * * O H", 2),
        atoms,
        model,
        2e-5,
    )


@EXAMPLES
def test_a_restart_continues_the_run(potential, lammps):
    """Restart files hold no potential: the input names it again, on another number of ranks."""
    _, pair, _ = potential
    restart = lammps.folder / "restart"
    nve = "fix n all nve\ntimestep 0.0005\n"
    start = "velocity all create 300 7 loop geom\n" + nve
    end = (
        "thermo_style custom step pe etotal\nthermo_modify norm no format float %.14g\n"
        "thermo 10\nrun 10\n"
    )
    whole = lammps.output(grid_atoms(), pair, 2, f"{start}run 10\nwrite_restart {restart}\n{end}")
    command = lammps.command(grid_atoms(), pair, 4)
    (lammps.folder / "in").write_text(
        f"units metal\nnewton on\nread_restart {restart}\nplugin load {lammps.plugin}\n"
        f"{pair}\nneighbor 1.0 bin\n{nve}{end}"
    )
    again = subprocess.run(
        command, env=lammps.environment, capture_output=True, text=True, check=True
    )
    last = [
        next(r.split() for r in t.splitlines() if r.split()[:1] == ["20"] and len(r.split()) == 3)
        for t in (whole, again.stdout)
    ]
    energies = np.array(last, dtype=float)[:, 1:]
    assert np.abs(energies[0] - energies[1]).max() <= 1e-9 * np.abs(energies).max()


@EXAMPLES
def test_energy_is_conserved_on_two_ranks(potential, lammps):
    _, pair, _ = potential
    body = (
        "velocity all create 300 7 loop geom\nfix n all nve\ntimestep 0.0005\n"
        "thermo_style custom step pe etotal\nthermo_modify norm no format float %.12g\n"
        "thermo 20\nrun 40\n"
    )
    rows = [line.split() for line in lammps.output(grid_atoms(), pair, 2, body).splitlines()]
    rows = [list(map(float, row)) for row in rows if len(row) == 3 and row[0].isdigit()]
    potential_energy, total = np.array(rows)[:, 1], np.array(rows)[:, 2]
    assert np.ptp(potential_energy) > 1e-4
    assert np.ptp(total) < 0.02 * np.ptp(potential_energy)


def frames_of(dump):
    """Yield atoms and forces of each frame of a dump with x y z fx fy fz."""
    lines = dump.read_text().splitlines()
    for at in [k for k, line in enumerate(lines) if line == "ITEM: TIMESTEP"]:
        number = int(lines[at + 3])
        bounds = np.array([line.split() for line in lines[at + 5 : at + 8]], dtype=float)
        rows = [line.split() for line in lines[at + 9 : at + 9 + number]]
        table = np.array([row[2:] for row in rows], dtype=float)
        cell = np.diag(bounds[:, 1] - bounds[:, 0])
        symbols = [row[1] for row in rows]
        yield ase.Atoms(symbols, table[:, :3] - bounds[:, 0], cell=cell, pbc=True), table[:, 3:]


def test_constant_pressure_has_the_stress_of_python(lammps, tmp_path):
    """The shipped input: the stress of every frame while the box changes, and the invariant."""
    script = content_root("workflows") / "water_deepmd" / "lammps" / "in.npt"
    model = CONFIGS["deep_potential"].build(["O", "H"]).eval()
    export_library(model, CONFIGS["deep_potential"], tmp_path / "library")
    atoms = grid_atoms((5, 4, 4), tilt=0.0)
    write_data(tmp_path / "data", atoms, ["O", "H"])
    variables = {
        "library": tmp_path / "library",
        "plugin": lammps.plugin,
        "data": "data",
        "steps": 40,
        "every": 10,
    }
    command = [lammps.bin / "mpiexec", "-n", "2", lammps.bin / "lmp", "-in", script, "-log", "none"]
    for name, value in variables.items():
        command += ["-var", name, str(value)]
    done = subprocess.run(
        command, cwd=tmp_path, env=lammps.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-1500:]
    rows = [line.split() for line in done.stdout.splitlines()]
    thermo = np.array([row for row in rows if len(row) == 12 and row[0].isdigit()], dtype=float)
    frames = list(frames_of(tmp_path / "npt.dump"))
    assert len(thermo) == len(frames) == 5
    volumes = [frame.get_volume() for frame, _ in frames]
    assert np.ptp(volumes) > 1e-3 * volumes[0]
    assert np.allclose(volumes, thermo[:, 4], rtol=1e-12)
    for row, (frame, forces) in zip(thermo, frames, strict=True):
        frame.calc = Calculator(model, skin=0)
        wanted = -frame.get_stress()[VOIGT] * BAR
        assert np.abs(row[6:] - wanted).max() <= 1e-10 * np.abs(wanted).max()
        assert abs(row[2] - frame.get_potential_energy()) <= 1e-10 * abs(row[2])
        assert np.abs(forces - frame.get_forces()).max() <= 1e-10 * np.abs(forces).max()
        # The pressure is that of the virial and of the atoms' motion.
        ideal = len(frame) * ase.units.kB * row[1] / row[4] * BAR
        assert row[3] == pytest.approx(row[6:9].mean() + ideal, rel=2e-2, abs=50)
    kinetic = 1.5 * (len(atoms) - 1) * ase.units.kB * thermo[:, 1]
    assert np.ptp(thermo[:, 5]) < 0.02 * np.ptp(kinetic), (thermo[:, 5], kinetic)


@EXAMPLES
def test_wrong_inputs_are_refused_with_the_fix(potential, lammps, tmp_path):
    _, pair, folder = potential
    atoms = grid_atoms((3, 3, 3))
    error = lammps.error
    assert "newton on" in error(atoms, pair, newton="off")
    assert "units metal" in error(atoms, pair, units="real")
    assert "no element Xe; it has O H" in error(atoms, pair.replace("O H", "O Xe"))
    assert "one element for each of 2" in error(atoms, pair.replace("O H", "O"))
    assert "special_bonds lj/coul 1.0 1.0 1.0" in error(atoms, pair, style="bond")
    assert "scitoolkit export RUN" in error(atoms, pair.replace(str(folder), str(tmp_path)))
    shutil.copytree(folder, tmp_path / "copy")
    weights = tmp_path / "copy" / "weights.stk"
    weights.write_bytes(weights.read_bytes()[:-8])
    assert "truncated" in error(atoms, pair.replace(str(folder), str(tmp_path / "copy")))
    atoms.positions[1] = atoms.positions[0]
    assert "are less than 0.001 Angstrom apart" in error(atoms, pair, 2)


@EXAMPLES
def test_another_lammps_is_refused(lammps, potential, tmp_path):
    other = replace(find_lammps(lammps_python()), commit="another_commit")
    runs = LammpsRuns(build_pair_style(other, tmp_path), tmp_path)
    text = runs.error(grid_atoms((3, 3, 3)), potential[1])
    assert "built for LAMMPS another_commit" in text
    assert "scitoolkit lammps build" in text


@EXAMPLES
def test_a_killed_rank_ends_the_run(lammps, potential):
    command = lammps.command(
        grid_atoms(), potential[1], 2, "fix n all nve\ntimestep 0.00001\nrun 1000000\n"
    )
    process = subprocess.Popen(
        command,
        env=lammps.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        # Its first line of numbers: a rank that ends before MPI has begun is no fault to mpiexec.
        for line in process.stdout:
            if line.split()[:1] == [b"0"]:
                break
        pattern = ["pgrep", "-f", str(lammps.folder / "in")]
        running = subprocess.run(pattern, capture_output=True, text=True).stdout.split()
        ranks = [int(pid) for pid in running if b"/lmp" in _command_line(pid)[:400]]
        os.kill(ranks[-1], signal.SIGKILL)
        process.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode != 0


def _command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_environment_without_lammps_is_refused(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ModuleNotFoundError: lammps' >&2; exit 1\n")
    python.chmod(0o755)
    with pytest.raises(BackendError, match="no LAMMPS in this environment"):
        find_lammps(python)


def pretended_source(folder, **entries):
    """Return a source tree as cmake leaves it, made of the headers of the installed LAMMPS."""
    installed = find_lammps(lammps_python())
    shutil.copytree(installed.headers, folder / "src")
    (folder / "src" / "version.h").write_text('#define LAMMPS_VERSION "22 Jul 2025"\n')
    styles = folder / "build" / "styles"
    styles.mkdir(parents=True)
    (styles / "lmpgitversion.h").write_text(
        f'const char *LAMMPS_NS::LAMMPS::git_descriptor() {{ return "{installed.commit}"; }}\n'
    )
    stated = {
        "PKG_PLUGIN:BOOL": "ON",
        "BUILD_MPI:BOOL": "ON",
        "LAMMPS_SIZES:STRING": installed.integers.lower(),
        "MPI_CXX_HEADER_DIR:PATH": str(installed.mpi),
        **entries,
    }
    text = "".join(f"{key}={value}\n" for key, value in stated.items())
    (folder / "build" / "CMakeCache.txt").write_text(f"# This is the CMakeCache file.\n{text}")
    return folder


@pytest.mark.parametrize("potential", ["nequip"], indirect=True)
def test_plugin_of_a_source_tree_runs(potential, tmp_path):
    """The tree is pretended: no LAMMPS is compiled, but its headers and layouts are real."""
    model, pair, _ = potential
    tree = pretended_source(tmp_path / "lammps")
    plugin = build_pair_style(find_lammps_source(tree), tmp_path)
    atoms = grid_atoms()
    check(LammpsRuns(plugin, tmp_path).measure(atoms, pair, 2), atoms, model)


def test_source_trees_that_do_not_serve_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no src/pair\.h"):
        find_lammps_source(tmp_path)
    tree = pretended_source(tmp_path / "off", **{"PKG_PLUGIN:BOOL": "OFF"})
    with pytest.raises(BackendError, match="without the package PLUGIN"):
        find_lammps_source(tree)
    with pytest.raises(ConfigError, match=r"no CMakeCache\.txt.*-D PKG_PLUGIN=on"):
        find_lammps_source(tree, tmp_path)
    tree = pretended_source(tmp_path / "mpi", **{"MPI_CXX_HEADER_DIR:PATH": str(tmp_path)})
    with pytest.raises(BackendError, match=r"mpi\.h of this build not found"):
        find_lammps_source(tree)
    serial = pretended_source(tmp_path / "serial", **{"BUILD_MPI:BOOL": "OFF"})
    (serial / "build" / "styles" / "lmpgitversion.h").write_text(
        'const char *LAMMPS_NS::LAMMPS::git_descriptor() { return "(unknown)"; }\n'
    )
    lammps = find_lammps_source(serial)
    assert lammps.commit == "22 Jul 2025"  # a release: no repository
    assert lammps.mpi == serial / "src" / "STUBS"
    (serial / "build" / "styles" / "lmpgitversion.h").unlink()
    with pytest.raises(BackendError, match="has not been compiled"):
        find_lammps_source(serial)
