"""Potentials as C libraries: equal to the model, and refused where they are damaged."""

import itertools
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ase
import ase.io
import ase.units
import numpy as np
import pytest
import torch
from ase.md.verlet import VelocityVerlet

from scitoolkit.core.content import content_root
from scitoolkit.core.errors import CheckpointError, ConfigError, DataError, NumericalError
from scitoolkit.io.atoms import Configuration
from scitoolkit.ops.codegen.compile import find_compiler
from scitoolkit.potentials import MaceConfig, NequipConfig, PotentialConfig, SeE2AConfig
from scitoolkit.potentials.calculator import Calculator
from scitoolkit.potentials.deepmd.config import DeepPotentialConfig
from scitoolkit.potentials.deepmd.descriptors.environment import PairDescriptor
from scitoolkit.potentials.export.calculator import LibraryCalculator
from scitoolkit.potentials.export.folder import LIBRARY, VARIANTS, WEIGHTS, compile_folder
from scitoolkit.potentials.export.library import PotentialLibrary
from scitoolkit.potentials.export.streaming import edge_gradients
from scitoolkit.potentials.export.write import export_library, largest_difference, library_source
from scitoolkit.potentials.graph import configuration_graph
from scitoolkit.potentials.saved import save_model

SMALL = {
    "sel": [6, 12],
    "embedding": [5, 10, 20],
    "axis_neurons": 4,
    "fitting": [14, 14],
    "cutoff": 5.0,
    "precision": "float64",
}


def deep_potential(**settings):
    config = SeE2AConfig(**{**SMALL, **settings})
    model = config.build(["O", "H"]).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        model.shift.copy_(torch.tensor([-3.0, -1.0]))
        (descriptor,) = model.descriptors
        descriptor.mean.normal_(0, 0.1, generator=generator)
        descriptor.deviation.uniform_(0.2, 0.5, generator=generator)
    return model, config


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A Deep Potential with repulsion and excluded pairs, and its folder."""
    folder = tmp_path_factory.mktemp("deep_potential")
    model, config = deep_potential(zbl={}, exclude_types=[(0, 0)])
    assert export_library(model, config, folder)["largest_difference"] <= 1e-12
    return model, folder


@pytest.fixture(params=["selected", pytest.param("all", marks=pytest.mark.slow)])
def variants(request, exported, monkeypatch):
    """Compile the code of the instructions that this processor selects, the only ones that run."""
    if request.param == "selected":
        name = PotentialLibrary(exported[1]).instructions
        monkeypatch.setattr(f"{compile_folder.__module__}.VARIANTS", {name: VARIANTS[name]})


@pytest.mark.parametrize(
    ("settings", "bound"),
    [({"precision": "float32", "type_one_side": False}, 1e-5), ({"embedding": [10]}, 1e-12)],
)
def test_equals_the_model(settings, bound, variants, tmp_path):
    model, config = deep_potential(**settings)
    assert export_library(model, config, tmp_path)["largest_difference"] <= bound


MACE = {
    "cutoff": 4.0,
    "channels": 4,
    "lmax": 2,
    "lmax_hidden": 1,
    "correlation": 2,
    "radial_widths": [8],
    "precision": "float64",
}


def mace(**settings):
    config = MaceConfig(**{**MACE, **settings})
    return random_constants(config.build(["O", "H"])), config


@torch.no_grad()
def random_constants(model):
    model.shift.copy_(torch.tensor([-3.0, -1.0]))
    model.scale.copy_(torch.tensor([1.7, 0.6]) if model.scale.ndim else torch.tensor(1.7))
    model.average_neighbours.fill_(20.0)
    return model.eval()


@pytest.mark.parametrize(
    ("settings", "bound"),
    [
        (
            {
                "layers": 3,
                "lmax_hidden": 2,
                "residual": False,
                "first_residual": False,
                "gate": "tanh",
                "distance_transform": "agnesi",
                "pair_repulsion": True,
                "apply_cutoff": False,
            },
            1e-10,
        ),
        ({"channels": 12, "zbl": {}, "precision": "float32"}, 1e-5),
        ({"layers": 1, "lmax": 1, "radial_type": "gaussian"}, 1e-10),
        ({"density": True, "first_density": True}, 1e-11),
        (
            {
                "density": True,
                "residual": False,
                "first_residual": False,
                "apply_cutoff": False,
                "precision": "float32",
            },
            1e-5,
        ),
    ],
)
def test_mace_equals_the_model(settings, bound, variants, tmp_path):
    check_export(*mace(**settings), bound, tmp_path)


@pytest.mark.parametrize(
    ("settings", "bound"),
    [
        ({"layers": 3, "channels": 20, "lmax": 1, "zbl": {}}, 1e-11),
        ({"layers": 1}, 1e-11),
        ({"lmax": 0}, 1e-11),
        ({"precision": "float32"}, 1e-5),
        ({"parity": True, "layers": 6, "lmax": 1, "species_scale": True}, 1e-11),
        ({"parity": True, "layers": 3, "repulsion_envelope": 6}, 1e-11),
    ],
)
def test_nequip_equals_the_model(settings, bound, variants, tmp_path):
    config = NequipConfig(**{**NequipConfig.example, **settings})
    model = random_constants(config.build(["O", "H"]))
    if config.parity:  # strong messages, so that features of both parities count in the forces
        for layer in model.layers:
            layer.convolution.radial.weight[-1].data *= 20
    check_export(model, config, bound, tmp_path)


SE_ATTEN = {
    "name": "se_atten",
    "cutoff": 4.5,
    "cutoff_smooth": 1.0,
    "sel": 80,
    "embedding": [4, 8],
    "axis_neurons": 3,
    "type_width": 4,
    "attention_width": 6,
}
SE_E2_A = {
    "name": "se_e2_a",
    "sel": [6, 12],
    "embedding": [5, 10],
    "axis_neurons": 4,
    "cutoff": 5.0,
}
SE_E2_R = {"name": "se_e2_r", "sel": [6, 12], "embedding": [5, 10], "cutoff": 4.0}
STRIPPED = {
    **SE_ATTEN,
    "type_input": "strip",
    "type_one_side": True,
    "type_output": False,
    "attention_layers": 1,
}


@pytest.mark.parametrize(
    ("descriptors", "settings", "bound"),
    [
        ([SE_E2_R], {"zbl": {}}, 1e-13),
        (
            [{**SE_E2_R, "type_one_side": False, "exclude_types": [(0, 1)]}],
            {"fitting": [14, 28]},
            1e-13,
        ),
        ([SE_ATTEN], {}, 1e-13),
        ([STRIPPED], {}, 1e-13),
        ([{**SE_ATTEN, "attention_layers": 0, "exclude_types": [(0, 0)]}], {}, 1e-13),
        ([SE_E2_A, SE_E2_R, SE_ATTEN, {**STRIPPED, "cutoff": 3.0, "embedding": [6]}], {}, 1e-13),
        ([SE_E2_A, SE_E2_R, SE_ATTEN], {"precision": "float32"}, 1e-5),
        ([{**SE_E2_A, "embedding": [5, 5, 10], "embedding_resnet_dt": "all"}], {}, 1e-13),
        ([SE_E2_A], {"fitting": [40, 80]}, 1e-13),
    ],
)
def test_all_descriptors_equal_the_model(descriptors, settings, bound, variants, tmp_path):
    config = DeepPotentialConfig(descriptors=descriptors, **{"fitting": [14, 14], **settings})
    model = config.build(["O", "H"]).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        model.shift.copy_(torch.tensor([-3.0, -1.0]))
        for each in model.descriptors:
            each.deviation.uniform_(0.2, 0.5, generator=generator)
            if isinstance(each, PairDescriptor):
                each.mean.normal_(0, 0.1, generator=generator)
    check_export(model, config, bound, tmp_path)


def test_several_descriptors_are_exported_without_tables_only():
    config = DeepPotentialConfig(descriptors=[SE_E2_A, SE_E2_R], fitting=[4])
    with pytest.raises(ConfigError, match="and tables, cannot be exported"):
        library_source(config.build(["O", "H"]).eval().compress(), config)


def check_export(model, config, bound, tmp_path):
    """Export a model that equals its library within a bound, whatever the number of threads."""
    assert export_library(model, config, tmp_path)["largest_difference"] <= bound
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*[np.arange(5)] * 3, indexing="ij"), -1).reshape(-1, 3) * 2.0
    positions, species = grid + rng.uniform(-0.2, 0.2, grid.shape), rng.integers(0, 2, len(grid))
    system = (positions, species, 10.0 * np.eye(3), np.ones(3, bool))
    one, two = (PotentialLibrary(tmp_path, threads=n).compute(*system) for n in (1, 2))
    assert all(np.array_equal(one[key], two[key]) for key in one)


def test_tables_of_a_compressed_model_are_exported(variants, tmp_path):
    model, config = deep_potential()
    found = export_library(model.compress(), config, tmp_path)
    assert found["largest_difference"] <= 1e-12
    assert "#define STK_TABLE 0" not in (tmp_path / "settings.h").read_text()


def test_molecules_slabs_and_small_cells(exported):
    model, folder = exported
    library = PotentialLibrary(folder)
    positions = np.array([[0.1, 0.2, 0.3], [0.9, 0.7, 0.2], [-0.5, 0.6, 0.9]])
    for pbc, size in ((False, 0), ([True, True, False], 4.0), (True, 3.1)):
        frame = Configuration(
            np.array(["O", "H", "H"]), positions, size * np.eye(3), np.array(pbc) & np.ones(3, bool)
        )
        graph = configuration_graph(frame, model.type_map, model.cutoff)
        wanted = model(graph)
        found = library.compute(positions, graph["types"].numpy(), frame.cell, frame.pbc)
        for key in ("energy", "forces", "virial"):
            value = wanted[key].numpy().reshape(np.shape(found[key]))
            assert np.abs(value - found[key]).max() <= 1e-11 * max(1, np.abs(value).max())


def test_threads_change_no_bit(exported):
    _, folder = exported
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*[np.arange(7)] * 3, indexing="ij"), -1).reshape(-1, 3) * 2.0
    positions, species = grid + rng.uniform(-0.2, 0.2, grid.shape), rng.integers(0, 2, len(grid))
    system = (positions, species, 14.0 * np.eye(3), np.ones(3, bool))
    one, two = (PotentialLibrary(folder, threads=n).compute(*system) for n in (1, 2))
    assert all(np.array_equal(one[key], two[key]) for key in one)


def test_threads_of_python_may_evaluate_with_one_library(exported):
    model, folder = exported
    rng, library = np.random.default_rng(3), PotentialLibrary(folder)
    grid = np.stack(np.meshgrid(*[np.arange(5)] * 3, indexing="ij"), -1).reshape(-1, 3) * 2.0
    graphs = []
    for _ in range(6):
        frame = Configuration(
            rng.choice(["O", "H"], len(grid)),
            grid + rng.uniform(-0.2, 0.2, grid.shape),
            10.0 * np.eye(3),
            np.ones(3, bool),
        )
        graphs.append(configuration_graph(frame, model.type_map, model.cutoff))
    wanted = [edge_gradients(library, graph) for graph in graphs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda graph: edge_gradients(library, graph), graphs * 5))
    for one, other in zip(found, wanted * 5, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
def test_cmake_builds_the_same_library(exported, tmp_path):
    model, folder = exported
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=lambda *_: [LIBRARY])
    for command in (["cmake", "-B", "build"], ["cmake", "--build", "build"]):
        subprocess.run(command, cwd=copy, check=True, capture_output=True)
    assert largest_difference(model, PotentialLibrary(copy)) <= 1e-12


@pytest.mark.parametrize(
    ("language", "suffix"),
    [
        ("c", "c"),
        pytest.param(
            "fortran",
            "f90",
            marks=pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran"),
        ),
    ],
)
def test_callers_of_the_documentation(language, suffix, exported, tmp_path):
    _, folder = exported
    page = Path(__file__).parents[3] / "docs" / "how-to" / "potentials-in-lammps.md"
    text = page.read_text().split(f"```{language}\n")[1].split("```")[0]
    (tmp_path / f"call.{suffix}").write_text(text)
    compiler = find_compiler().split() if language == "c" else ["gfortran"]
    command = [
        *compiler,
        f"call.{suffix}",
        f"-I{folder}",
        folder / LIBRARY,
        f"-Wl,-rpath,{folder}",
        "-o",
        "call",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        [tmp_path / "call", folder / WEIGHTS], capture_output=True, text=True, check=True
    )
    positions = [[0.0, 0.0, 0.0], [0.96, 0.0, 0.0], [-0.24, 0.93, 0.0]]
    calculator = LibraryCalculator(folder)
    molecule = ase.Atoms("OHH", positions, calculator=calculator)
    wanted = [molecule.get_potential_energy(), molecule.get_forces()[0, 0]]
    assert np.allclose([float(each) for each in done.stdout.split()], wanted, rtol=0, atol=1e-11)
    with pytest.raises(DataError, match="no element 'He'"):
        ase.Atoms("He", calculator=calculator).get_potential_energy()


def test_many_systems_at_once_equal_one_by_one(exported):
    library = PotentialLibrary(exported[1], threads=2)
    rng = np.random.default_rng(2)
    sizes = [3, 1, 5, 4, 2]
    first = np.concatenate([[0], np.cumsum(sizes)])
    positions = rng.uniform(0, 4, (first[-1], 3))
    species = rng.integers(0, 2, first[-1])
    cells = np.eye(3) * rng.uniform(4, 6, (len(sizes), 1, 1))
    pbc = rng.integers(0, 2, (len(sizes), 3)).astype(bool)
    found = library.compute_many(first, positions, species, cells, pbc)
    for k, (start, stop) in enumerate(itertools.pairwise(first)):
        one = library.compute(positions[start:stop], species[start:stop], cells[k], pbc[k])
        assert one["energy"] == found["energy"][k]
        assert np.array_equal(one["forces"], found["forces"][start:stop])
        assert np.array_equal(one["virial"], found["virial"][k])
        assert np.array_equal(one["atomic_energy"], found["atomic_energy"][start:stop])
    with pytest.raises(DataError, match="first is not ascending from 0 to 15"):
        library.compute_many(first, positions[:-1], species, cells, pbc)
    positions[2] = np.nan
    with pytest.raises(NumericalError, match="not finite"):
        library.compute_many(first, positions, species, cells, pbc)


def test_calculator_over_the_library_equals_ours(exported):
    model, folder = exported
    rng = np.random.default_rng(1)
    atoms = ase.Atoms("OHHOHH", rng.uniform(0, 5, (6, 3)), cell=[5.2, 5.3, 6], pbc=[1, 1, 0])
    values = []
    for calculator in (Calculator(model, skin=0), LibraryCalculator(folder)):
        atoms.calc = calculator
        values.append([atoms.get_potential_energy(), atoms.get_forces(), atoms.get_stress()])
    for one, other in zip(*values, strict=True):
        assert np.abs(one - other).max() <= 1e-11 * max(1, np.abs(one).max())


def test_kept_list_is_renewed_by_what_moves_and_gives_the_results_of_a_new_one(exported):
    library, rng = PotentialLibrary(exported[1], threads=2), np.random.default_rng(5)
    grid = np.stack(np.meshgrid(*[np.arange(6)] * 3, indexing="ij"), -1).reshape(-1, 3) * 2.0
    positions, species = grid + rng.uniform(-0.2, 0.2, grid.shape), rng.integers(0, 2, len(grid))
    cell, pbc = 12.0 * np.eye(3) + np.diag([1.0, 0.5], k=-1), np.array([True, True, False])
    system = library.moving(0.6)

    def lists_after(positions, species, cell, pbc):
        wanted = library.compute(positions, species, cell, pbc)
        found = system.compute(positions, species, cell, pbc)
        for name, value in wanted.items():
            assert np.abs(found[name] - value).max() <= 1e-12 * max(1, np.abs(value).max()), name
        return system.lists_made

    moved = positions + rng.uniform(-0.17, 0.17, positions.shape)  # at most .295 Å of .3
    assert lists_after(positions, species, cell, pbc) == 1
    assert lists_after(moved, species, cell, pbc) == 1
    assert lists_after(positions + np.array([0.29, 0, 0]), species, cell, pbc) == 1
    moved[7, 2] = positions[7, 2] + 0.31
    assert lists_after(moved, species, cell, pbc) == 2
    assert lists_after(moved, species, 1.001 * cell, pbc) == 3
    assert lists_after(moved, species[::-1], 1.001 * cell, pbc) == 4
    assert lists_after(moved, species[::-1], 1.001 * cell, np.ones(3, bool)) == 5
    assert lists_after(moved[:-1], species[:-1], cell, pbc) == 6
    assert system.lists_made == lists_after(moved[:-1], species[:-1], cell, pbc)
    with pytest.raises(NumericalError, match="not finite"):
        system.compute(moved[:-1] * np.nan, species[:-1], cell, pbc)
    assert lists_after(moved[:-1], species[:-1], cell, pbc) == 7
    fresh = library.moving(0.0)
    for times in (1, 2):
        fresh.compute(moved, species, cell, pbc)
        assert fresh.lists_made == times
    for skin in (-0.1, np.nan):
        with pytest.raises(ConfigError, match="a skin of"):
            library.moving(skin)


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_dynamics_in_cpp_follow_those_of_ase(exported, tmp_path):
    """The example program: the same trajectory as ASE's velocity Verlet, and a refused element."""
    _, folder = exported
    source = content_root("workflows") / "water_deepmd" / "cpp" / "molecular_dynamics.cpp"
    program = tmp_path / "molecular_dynamics"
    subprocess.run(
        [
            "c++",
            "-std=c++17",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            source,
            f"-I{folder}",
            folder / LIBRARY,
            f"-Wl,-rpath,{folder}",
            "-o",
            program,
        ],
        check=True,
    )
    rng = np.random.default_rng(7)
    grid = np.stack(np.meshgrid(*[np.arange(4)] * 3, indexing="ij"), -1).reshape(-1, 3) * 2.0
    atoms = ase.Atoms(
        rng.choice(["O", "H"], len(grid)),
        grid + rng.uniform(-0.2, 0.2, grid.shape),
        cell=8.0 * np.eye(3) + np.diag([0.4, 0.2], k=-1),
        pbc=[True, True, False],
    )
    spread = np.sqrt(atoms.get_masses() * 300 * ase.units.kB)[:, None]
    atoms.set_momenta(spread * rng.normal(size=(len(atoms), 3)))
    atoms.set_array("masses", atoms.get_masses())
    columns = ["symbols", "positions", "masses", "momenta"]
    ase.io.write(
        tmp_path / "start.xyz", atoms, format="extxyz", columns=columns, write_results=False
    )
    done = subprocess.run(
        [program, folder / WEIGHTS, "start.xyz", "end.xyz", "40", "0.5", "10", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    start = ase.io.read(tmp_path / "start.xyz")  # its positions are rounded
    start.calc = LibraryCalculator(folder)
    dynamics = VelocityVerlet(start, timestep=0.5 * ase.units.fs)
    totals = []
    for _ in range(5):
        totals.append(start.get_total_energy())
        if len(totals) < 5:
            dynamics.run(10)
    table = np.array([line.split() for line in done.stdout.splitlines()[1:-1]], dtype=float)
    assert table[:, 0].tolist() == [0, 10, 20, 30, 40]
    assert np.abs(table[:, 4] - totals).max() < 1e-6
    end = ase.io.read(tmp_path / "end.xyz")
    assert np.abs(end.positions - start.positions).max() < 1e-7
    assert np.abs(end.get_momenta() - start.get_momenta()).max() < 1e-6
    assert 1 <= int(done.stdout.split()[-1]) < 20
    (tmp_path / "other.xyz").write_text(
        (tmp_path / "start.xyz").read_text().replace("O ", "Xe ", 1)
    )
    refused = subprocess.run(
        [program, folder / WEIGHTS, "other.xyz", "end.xyz", "1", "0.5"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert "the potential has no element Xe" in refused.stderr


def test_library_needs_neither_python_nor_torch(exported):
    _, folder = exported
    needed = subprocess.run(["ldd", folder / LIBRARY], capture_output=True, text=True, check=True)
    names = {line.split()[0].split(".so")[0] for line in needed.stdout.splitlines()}
    assert not [name for name in names if "python" in name or "torch" in name or "c10" in name]


def _copy(folder, target):
    shutil.copytree(folder, target)
    return target


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (0, "no weights file"),
        (8, "another version"),
        (70, "checksum is wrong"),
        (110, "checksum is wrong"),
        (-3, "checksum is wrong"),
    ],
)
def test_damaged_weights_are_refused(place, message, exported, tmp_path):
    folder = _copy(exported[1], tmp_path / "copy")
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[place] ^= 0x40
    (folder / WEIGHTS).write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        PotentialLibrary(folder)


def test_truncated_or_missing_files_are_refused(exported, tmp_path):
    for number, (name, message) in enumerate(
        [(WEIGHTS, "truncated"), (LIBRARY, "truncated library")]
    ):
        folder = _copy(exported[1], tmp_path / str(number))
        (folder / name).write_bytes((folder / name).read_bytes()[:-200])
        with pytest.raises(CheckpointError, match=message):
            PotentialLibrary(folder)
        (folder / name).unlink()
        with pytest.raises(CheckpointError, match=r"cannot be read|No such file"):
            PotentialLibrary(folder)


def test_weights_of_another_model_are_refused(exported, tmp_path):
    folder = _copy(exported[1], tmp_path / "copy")
    model, config = deep_potential(fitting=[14, 10])
    export_library(model, config, tmp_path / "other")
    shutil.copy(tmp_path / "other" / WEIGHTS, folder / WEIGHTS)
    with pytest.raises(CheckpointError, match="another model"):
        PotentialLibrary(folder)


def test_another_abi_is_refused(exported, tmp_path):
    folder = _copy(exported[1], tmp_path / "copy")
    (tmp_path / "old.c").write_text("int stk_abi(void) { return 7; }")
    command = [*find_compiler().split(), "-shared", "-fPIC", tmp_path / "old.c"]
    subprocess.run([*command, "-o", folder / LIBRARY], check=True)
    with pytest.raises(CheckpointError, match="ABI 7; this version of scitoolkit supports 2"):
        PotentialLibrary(folder)


def test_bad_atoms_are_refused(exported):
    library = PotentialLibrary(exported[1])
    positions, pbc = np.array([[0.0, 0, 0], [0, 0, 1]]), np.ones(3, bool)
    with pytest.raises(DataError, match="invalid atoms"):
        library.compute(positions, np.array([0, 2]), np.eye(3) * 9, pbc)
    with pytest.raises(DataError, match="invalid atoms"):
        library.compute(positions, np.array([0, 1]), np.zeros((3, 3)), pbc)
    with pytest.raises(NumericalError, match="not finite"):
        library.compute(positions * np.nan, np.array([0, 1]), np.eye(3) * 9, pbc)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (SeE2AConfig(**{**SMALL, "frame_parameters": 1}), "frame_parameters"),
        (SeE2AConfig(**{**SMALL, "atom_parameters": 2}), "atom_parameters"),
        (
            DeepPotentialConfig(
                descriptors=[{**SE_ATTEN, "embedding_resnet_dt": "all"}], fitting=[4]
            ),
            "no kernel for embedding layers with a time step",
        ),
    ],
)
def test_what_cannot_be_exported_is_refused_by_name(config, reason):
    with pytest.raises(ConfigError, match=reason):
        library_source(config.build(["O", "H"]), config)


def test_export_of_a_run_on_the_command_line(tmp_path):
    model, config = deep_potential()
    run = PotentialConfig.model_validate(
        {"data": {"path": ["none"]}, "type_map": ["O", "H"], "model": config.model_dump()}
    )
    (tmp_path / "run").mkdir()
    save_model(model, run, tmp_path / "run" / "model")
    (tmp_path / "run" / "config.yaml").write_text(
        (tmp_path / "run" / "model" / "config.yaml").read_text()
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "scitoolkit",
            "export",
            str(tmp_path / "run"),
            "-o",
            str(tmp_path / "library"),
            "precision=float32",
            "--json",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["precision"] == "float32"
    assert found["largest_difference"] <= 1e-5
    assert PotentialLibrary(found["path"]).real_bytes == 4
