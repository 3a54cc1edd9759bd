"""Contract suite of interatomic potentials: symmetries, derivatives and files."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.core.devices import to_device
from scitoolkit.core.errors import ConfigError
from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.graph import collate, configuration_graph, within_cutoff
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.model_config import ModelConfig, models
from scitoolkit.potentials.prediction import to_ase
from scitoolkit.potentials.saved import load_model, save_model
from scitoolkit.testing.device import check_module, device_part, require_gpu

Array = NDArray[Any]
STEP = 1e-4  # Å, of finite differences
_TEST = """\
from __future__ import annotations

from scitoolkit.testing import PotentialContract


class Test{cls}(PotentialContract):
    settings = {settings}
"""


class PotentialContract:
    """Contract suite of potentials, and of descriptors in a `deep_potential`; set `settings`.

    Derivatives are compared with finite differences; energies are invariant under translation,
    rotation, inversion and permutation; periodic images, batches, the cutoff, isolated atoms,
    files, the ASE calculator, tables and float32 are covered. Arithmetic is float64 unless a
    test states otherwise.

    Attributes:
        settings: a small `model` section of a configuration; for several, override `cases`.
        type_map: two species.

    Example:
        The test module of a package with the descriptor `mine` needs only

            class TestMine(PotentialContract):
                settings = {"name": "deep_potential", "descriptors": [{"name": "mine"}]}
    """

    settings: ClassVar[Mapping[str, Any]] = {}
    type_map: ClassVar[Sequence[str]] = ("O", "H")

    @staticmethod
    def skeleton_test(kind: str, name: str, cls: str) -> str:
        """Return the test of a new potential or descriptor, which is found by its entry point."""
        model = {"name": name}
        settings = (
            model if kind == "potential" else {"name": "deep_potential", "descriptors": [model]}
        )
        return _TEST.format(cls=cls, settings=json.dumps(settings))

    @classmethod
    def cases(cls) -> Mapping[str, Mapping[str, Any]]:
        """Return the models to test: settings by the name of the case."""
        return {str(cls.settings["name"]): cls.settings}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run every test for every case."""
        if "case" in metafunc.fixturenames:
            cases = self.cases()
            metafunc.parametrize("case", list(cases.values()), ids=list(cases), scope="class")

    @classmethod
    def make(cls, case: Mapping[str, Any], **more: Any) -> Potential:
        """Return a model with random weights and the statistics of random labels."""
        settings = {"precision": "float64", **case, **more}
        config: ModelConfig = models.get(str(case["name"])).model_validate(settings)
        model, rng, graphs = config.build(cls.type_map), np.random.default_rng(0), []
        for seed in range(2):
            frame = cls.frame(seed)
            energy, forces = float(rng.normal(-20)), rng.normal(size=(6, 3))
            graphs.append(cls.graph(model, replace(frame, energy=energy, forces=forces)))
        model.fit_statistics(graphs)
        return model.eval()

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, case: Mapping[str, Any]) -> Potential:
        """The model of the case, in float64, for evaluation."""
        return cls.make(case)

    @classmethod
    def frame(cls, seed: int = 0, molecules: int = 2, length: float = 5.2) -> Configuration:
        """Return bent molecules of one atom of the first and two of the second species."""
        rng = np.random.default_rng(seed)
        shape = np.array([[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
        sites = np.array([[0, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1]])[:molecules] * length / 2
        turns = [np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in sites]
        parts = [site + shape @ turn for site, turn in zip(sites, turns, strict=True)]
        positions = np.concatenate(parts) + 0.1 * rng.normal(size=(3 * molecules, 3))
        cell = length * np.eye(3) + rng.uniform(-0.1, 0.1, (3, 3))
        first, second = cls.type_map
        species = np.array([first, second, second] * molecules)
        return Configuration(species, positions, cell, np.ones(3, bool))

    @classmethod
    def cluster(cls, species: Sequence[str], positions: Any) -> Configuration:
        """Return atoms without a cell."""
        where = np.array(positions, dtype=np.float64).reshape(-1, 3)
        return Configuration(np.array(species), where, np.zeros((3, 3)), np.zeros(3, bool))

    @classmethod
    def graph(cls, model: Potential, frame: Configuration) -> Batch:
        """Return the graph of a configuration for a model."""
        return configuration_graph(frame, model.type_map, model.cutoff)

    @classmethod
    def evaluate(cls, model: Potential, *frames: Configuration) -> dict[str, Array]:
        """Return the outputs of the model for all frames, in one batch."""
        with torch.no_grad():
            out = model(collate([cls.graph(model, frame) for frame in frames]))
        return {name: value.double().numpy() for name, value in out.items()}

    def test_forces_are_the_negative_gradient_of_the_energy(self, model: Potential) -> None:
        """By central differences along some coordinates."""
        frame = self.frame()
        forces = self.evaluate(model, frame)["forces"]
        assert np.abs(forces).max() > 1e-6, "the model has no forces to test"
        places = [(0, 0), (1, 2), (len(frame.species) - 1, 1)]
        moved = []
        for atom, axis in places:
            for sign in (1, -1):
                positions = frame.positions.copy()
                positions[atom, axis] += sign * STEP
                moved.append(replace(frame, positions=positions))
        energies = self.evaluate(model, *moved)["energy"].reshape(-1, 2)
        slopes = -(energies[:, 0] - energies[:, 1]) / (2 * STEP)
        expected = [forces[place] for place in places]
        np.testing.assert_allclose(slopes, expected, atol=1e-6 * max(1.0, np.abs(forces).max()))

    def test_virial_is_the_negative_strain_derivative_of_the_energy(self, model: Potential) -> None:
        """By central differences over three stretches and a shear; the virial is symmetric."""
        frame = self.frame(1)
        virial = self.evaluate(model, frame)["virial"][0]
        np.testing.assert_allclose(virial, virial.T, atol=1e-9 * max(1.0, np.abs(virial).max()))
        places, strained = [(0, 0), (1, 1), (2, 2), (0, 1)], []
        for place in places:
            for sign in (1, -1):
                strain = np.eye(3)
                strain[place] += sign * STEP
                positions, cell = frame.positions @ strain, frame.cell @ strain
                strained.append(replace(frame, positions=positions, cell=cell))
        energies = self.evaluate(model, *strained)["energy"].reshape(-1, 2)
        slopes = -(energies[:, 0] - energies[:, 1]) / (2 * STEP)
        expected = [virial[place] for place in places]
        np.testing.assert_allclose(slopes, expected, atol=2e-6 * max(1.0, np.abs(virial).max()))

    def test_translation_rotation_inversion_and_permutation(self, model: Potential) -> None:
        """Energies are invariant; forces and virials rotate with the atoms."""
        frame = self.frame()
        plain = self.evaluate(model, frame)
        for seed in range(2):
            rng = np.random.default_rng(seed)
            turn = np.linalg.qr(rng.normal(size=(3, 3)))[0] * (-1) ** seed
            order = rng.permutation(len(frame.species))
            moved = replace(
                frame,
                species=frame.species[order],
                cell=frame.cell @ turn,
                positions=(frame.positions[order] + rng.normal(size=3)) @ turn,
            )
            result = self.evaluate(model, moved)
            assert result["energy"] == pytest.approx(plain["energy"], rel=1e-11)
            np.testing.assert_allclose(result["forces"], plain["forces"][order] @ turn, atol=1e-9)
            virial = turn.T @ plain["virial"][0] @ turn
            np.testing.assert_allclose(result["virial"][0], virial, atol=1e-8)

    def test_a_small_cell_equals_its_supercell(self, model: Potential) -> None:
        """Every atom interacts with several of its periodic images."""
        frame = self.frame(molecules=1, length=2.7)
        copies = [frame.positions, frame.positions + frame.cell[0]]
        double = replace(
            frame,
            species=np.tile(frame.species, 2),
            positions=np.concatenate(copies),
            cell=frame.cell * np.array([[2], [1], [1]]),
        )
        one, two = self.evaluate(model, frame), self.evaluate(model, double)
        assert two["energy"] == pytest.approx(2 * one["energy"], rel=1e-10)
        scale = max(1.0, np.abs(one["forces"]).max())
        np.testing.assert_allclose(two["forces"], np.tile(one["forces"], (2, 1)), atol=1e-9 * scale)

    def test_a_batch_equals_its_configurations_one_by_one(self, model: Potential) -> None:
        """Also for configurations of different sizes, including an isolated atom."""
        alone = self.cluster(self.type_map[:1], [0, 0, 0])
        frames = [self.frame(2), alone, self.frame(3, molecules=1)]
        together = self.evaluate(model, *frames)
        single = [self.evaluate(model, frame) for frame in frames]
        for name in ("energy", "forces", "virial", "atomic_energy"):
            expected = np.concatenate([part[name] for part in single])
            np.testing.assert_allclose(together[name], expected, rtol=1e-10, atol=1e-9)

    def test_an_atom_passes_the_cutoff_smoothly(self, model: Potential) -> None:
        """Energies and forces are continuous at the cutoff of every descriptor."""
        first, second = self.type_map
        for cutoff in self.cutoffs(model):
            for pair in ((first, second), (second, second)):
                frames = [
                    self.cluster([*pair, first], [[0, 0, 0], [distance, 0, 0], [0, 1.5, 0]])
                    for distance in cutoff + np.linspace(-2e-3, 2e-3, 9)
                ]
                result = self.evaluate(model, *frames)
                forces = result["forces"].reshape(9, 3, 3)[:, 1, 0]
                # Second differences of the energy are small where its slope, the force, has no
                # jump.
                assert np.abs(np.diff(result["energy"], 2)).max() < 1e-6
                assert np.abs(np.diff(forces)).max() < 1e-3

    def cutoffs(self, model: Potential) -> set[float]:
        """Return the cutoff distances in Å."""
        return {model.cutoff}

    def test_isolated_atoms_have_an_energy_and_no_forces(self, model: Potential) -> None:
        """Atoms beyond the cutoff do not interact, and a single atom is valid."""
        first, second = self.type_map
        one, other = (self.evaluate(model, self.cluster([s], [0, 0, 0])) for s in (first, second))
        apart = self.cluster([first, second], [[0, 0, 0], [model.cutoff + 1, 0, 0]])
        result = self.evaluate(model, apart)
        assert result["energy"][0] == pytest.approx(one["energy"][0] + other["energy"][0])
        assert np.abs(result["forces"]).max() == 0
        assert np.isfinite(one["energy"]).all()

    def test_gradients_of_a_force_loss(self, case: Mapping[str, Any]) -> None:
        """The derivative of a loss of energies and forces along a random direction."""
        model = self.make(case).train()
        graph = self.graph(model, self.frame(4, molecules=1, length=4.0))
        parameters = [p for p in model.parameters() if p.requires_grad]
        generator = torch.Generator().manual_seed(0)
        directions = [torch.randn(p.shape, generator=generator).to(p) for p in parameters]

        def loss() -> Tensor:
            out = model(graph)
            return out["forces"].square().sum() + 0.01 * out["energy"].square().sum()

        loss().backward()
        pairs = [(p, d) for p, d in zip(parameters, directions, strict=True) if p.grad is not None]
        slope = sum(float((p.grad * d).sum()) for p, d in pairs if p.grad is not None)
        values = []
        # Steps of +1 and then -2 lead to both sides of the weights, for a central difference.
        for sign in (1, -2):
            with torch.no_grad():
                for p, d in pairs:
                    p += sign * 1e-6 * d  # type: ignore[misc]
            values.append(float(loss().detach()))
        assert slope == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4, abs=1e-4)

    def test_a_saved_model_is_loaded_bit_for_bit(
        self, case: Mapping[str, Any], model: Potential, tmp_path: Path
    ) -> None:
        """Weights and the resolved configuration restore the model."""
        raw = {"data": {"path": ["none"]}, "model": {"precision": "float64", **case}}
        config = PotentialConfig.model_validate({**raw, "type_map": list(self.type_map)})
        save_model(model, config, tmp_path / "model")
        again, resolved, _ = load_model(tmp_path)
        assert resolved.model == config.model
        expected, actual = self.evaluate(model, self.frame()), self.evaluate(again, self.frame())
        for name, value in expected.items():
            np.testing.assert_array_equal(actual[name], value)

    def test_a_copy_is_the_same_model(self, model: Potential) -> None:
        """Also after an evaluation, because cached constants are not copied."""
        expected = self.evaluate(model, self.frame())
        actual = self.evaluate(copy.deepcopy(model), self.frame())
        np.testing.assert_array_equal(actual["forces"], expected["forces"])

    @device_part
    def test_a_gpu_gives_the_same_numbers(self, case: Mapping[str, Any]) -> None:
        """Energies, forces and the gradients of a force loss are those of the CPU."""
        model = self.make(case)
        graph = collate([self.graph(model, self.frame(seed)) for seed in range(2)])
        for is_training in (False, True):
            model.train(is_training)
            check_module(model, lambda device: tuple(model(to_device(graph, device)).values()))

    def test_edges_beyond_the_cutoff_contribute_nothing(self, model: Potential) -> None:
        """Neighbour lists with a skin are passed to the model as they are where that is cheaper."""
        frame = self.frame()
        wide = configuration_graph(frame, model.type_map, model.cutoff + 0.7)
        near = within_cutoff(wide, model.cutoff)
        assert near["edge_index"].shape[1] < wide["edge_index"].shape[1]
        expected, computed = model(near), model(wide)
        for name, value in expected.items():
            np.testing.assert_allclose(
                computed[name].detach(), value.detach(), rtol=1e-12, atol=1e-12
            )

    @device_part
    def test_the_calculator_runs_on_a_gpu(self, model: Potential) -> None:
        """It leaves the model of its user alone, and gives the CPU's numbers as NumPy arrays."""
        from scitoolkit.potentials.calculator import Calculator

        require_gpu()
        frame = self.frame()
        on_cpu, on_gpu = (
            Calculator(copy.deepcopy(model), device=device) for device in ("cpu", "cuda")
        )
        atoms = to_ase(frame)
        for step in range(4):  # the third call is the first that may be replayed
            atoms.positions[step] += 0.02
            for calculator in (on_cpu, on_gpu):
                calculator.calculate(atoms)
            for name, value in on_cpu.results.items():
                np.testing.assert_allclose(on_gpu.results[name], value, atol=1e-8)

    def test_the_ase_calculator_agrees_with_the_model(self, model: Potential) -> None:
        """Energy, forces and stress in ASE's sign, with and without a reused neighbour list."""
        ase = pytest.importorskip("ase")
        from scitoolkit.potentials.calculator import Calculator

        frame = self.frame()
        expected = self.evaluate(model, frame)
        for skin in (0.0, 0.5):
            atoms = ase.Atoms(list(frame.species), frame.positions, cell=frame.cell, pbc=True)
            atoms.calc = Calculator(model, skin=skin)
            assert atoms.get_potential_energy() == pytest.approx(expected["energy"][0], rel=1e-10)
            np.testing.assert_allclose(atoms.get_forces(), expected["forces"], atol=1e-9)
            stress = -expected["virial"][0] / atoms.get_volume()
            np.testing.assert_allclose(atoms.get_stress(voigt=False), stress, atol=1e-9)

    def test_tables_agree_with_the_networks_or_are_refused(self, case: Mapping[str, Any]) -> None:
        """`compress` preserves energies and forces, or lists the models that have tables."""
        model, frame = self.make(case), self.frame()
        expected = self.evaluate(model, frame)
        if not model.has_tables:
            with pytest.raises(ConfigError, match=r"no networks to tabulate.*Allowed: .*Fix: "):
                model.compress()
            return
        model.compress(shortest=0.5, tolerance=1e-10)
        result = self.evaluate(model, frame)
        assert result["energy"] == pytest.approx(expected["energy"], rel=1e-8)
        np.testing.assert_allclose(result["forces"], expected["forces"], rtol=1e-6, atol=1e-8)

    def test_float32_is_near_float64(self, case: Mapping[str, Any], model: Potential) -> None:
        """With the same weights rounded to float32; energies are summed in float64."""
        lower = self.make(case, precision="float32")
        expected, actual = self.evaluate(model, self.frame()), self.evaluate(lower, self.frame())
        forces = expected["forces"]
        assert actual["energy"] == pytest.approx(expected["energy"], rel=1e-4)
        assert np.abs(actual["forces"] - forces).max() < 2e-3 * max(0.1, np.abs(forces).max())
