"""Contract suite of formats of atomic configurations, to inherit in tests.

Example:
    class TestMyFormat(AtomsFormatContract):
        @pytest.fixture
        def format(self):
            return MyFormat

        def write(self, frames, names, folder):
            path = folder / "frames.mine"
            ...  # without the labels that are None
            return path
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import (
    AtomsFormat,
    Configuration,
    LabelConfig,
    atoms_formats,
    in_standard_units,
    open_atoms,
    open_structures,
)
from scitoolkit.testing.atoms_format_skeleton import atoms_format_skeleton

RENAMED = LabelConfig(energy_key="REF_energy", forces_key="REF_forces", virial_key="REF_virial")


def sample_frame(species: Sequence[str], periodic: int, seed: int) -> Configuration:
    """Return a frame with all labels; numbers have 6 decimals, which text formats store exactly."""
    rng = np.random.default_rng(seed)
    atoms, cell = len(species), [[6.0, 0.0, 0.0], [1.0, 7.0, 0.0], [0.5, -1.0, 8.0]]
    virial = rng.normal(size=(3, 3)).round(6)
    return Configuration(
        np.array(species),
        rng.uniform(0, 5, (atoms, 3)).round(6),
        np.array(cell) if periodic else np.zeros((3, 3)),
        np.arange(3) < periodic,
        -1.5 - seed,
        rng.normal(size=(atoms, 3)).round(6),
        virial + virial.T if periodic else None,
    )


class AtomsFormatContract:
    """Contract suite of formats of atomic configurations; override `format` and `write`.

    Attributes:
        labels: labels that the files can contain.
        periodic: numbers of periodic directions that the files can contain.
    """

    labels: ClassVar[tuple[str, ...]] = ("energy", "forces", "virial")
    periodic: ClassVar[tuple[int, ...]] = (0, 2, 3)

    @staticmethod
    def skeleton(name: str, cls: str) -> tuple[str, str]:
        """Return module and test of a new format, for `scitoolkit new`."""
        return atoms_format_skeleton(name, cls)

    @pytest.fixture
    def format(self) -> type[AtomsFormat]:
        """Return the format under test."""
        raise NotImplementedError("override the fixture `format`")

    def write(self, frames: Sequence[Configuration], names: LabelConfig, folder: Path) -> Path:
        """Write frames of different compositions into `folder`; return the path.

        Args:
            frames: to write, in order; a label that is None is left out.
            names: of the labels, for a format without fixed names.
            folder: empty folder.
        """
        raise NotImplementedError("override `write`")

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Return a folder with spaces and non-ASCII letters in its name."""
        folder = tmp_path / "Wärme und ∂E"
        folder.mkdir()
        return folder

    def frames(self) -> list[Configuration]:
        """Return four frames of different size, composition and periodicity."""
        species = (["O", "H", "H"], ["Si", "O", "C", "O", "Si"], ["H"], ["H", "Cl"])
        frames = [
            sample_frame(symbols, self.periodic[k % len(self.periodic)], k)
            for k, symbols in enumerate(species)
        ]
        return [self._stored(frame) for frame in frames]

    def _stored(self, frame: Configuration) -> Configuration:
        lost: dict[str, Any] = dict.fromkeys({"energy", "forces", "virial"} - set(self.labels))
        return replace(frame, **lost)

    def written(self, folder: Path, atoms: int = 24) -> tuple[Path, Path]:
        """Write one frame of `atoms` atoms; return the path and the largest file below it."""
        frame = sample_frame(["O", "H"] * (atoms // 2), self.periodic[-1], 9)
        path = self.write([self._stored(frame)], LabelConfig(), folder)
        files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
        return path, max(files, key=lambda p: p.stat().st_size)

    def test_registered(self, format: type[AtomsFormat]) -> None:
        """The registry lists this class once, with its capabilities, and it is available."""
        (name,) = [name for name in atoms_formats if atoms_formats.get(name) is format]
        member = atoms_formats.member(name)
        assert member.summary
        assert not member.problem
        assert format.described
        assert isinstance(format.fixed_names, bool)
        assert isinstance(format.requires, tuple)

    def test_it_recognises_its_own_files_only(
        self, format: type[AtomsFormat], folder: Path, tmp_path: Path
    ) -> None:
        """Its files are read by this format; texts, noise, folders and other formats are not."""
        path = self.write(self.frames(), LabelConfig(), folder)
        assert atoms_formats.get(_readers(path)[0]) is format
        files = {
            "notes.txt": b"2\nH 0 0 0\n",
            "noise": bytes(range(256)),
            "empty": b"",
            "system/type.raw": b"0\n",
            "dimer.xyz": b"2\nenergy=-1.0\nH 0 0 0\nH 0 0 1\n",
        }
        (tmp_path / "system").mkdir()
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        readers = {"system": ["deepmd"], "dimer.xyz": ["extxyz"]}
        for name in ("notes.txt", "noise", "empty", "system", "dimer.xyz"):
            assert _readers(tmp_path / name) == readers.get(name, []), name

    def test_frames_are_read_in_any_order(self, format: type[AtomsFormat], folder: Path) -> None:
        """Every frame has its values, and a frame that is read again does not share them."""
        frames = self.frames()
        path = self.write(frames, LabelConfig(), folder)
        source = open_atoms(path)
        assert len(source) == len(frames)
        for index in (3, 1, 0, 2, 1, 3):
            stored = source[index]
            _assert_equal(stored, frames[index])
            assert isinstance(stored.energy, float) or "energy" not in self.labels
            assert path.name in stored.where
            stored.positions.fill(0.0)
            assert source.num_atoms(index) == len(frames[index].species)
        assert len({frame.where for frame in source}) == len(frames)

    def test_frames_are_not_read_until_they_are_used(
        self, format: type[AtomsFormat], folder: Path
    ) -> None:
        """Opening a file and counting atoms needs a fraction of the memory of the frames."""
        frames = [self._stored(sample_frame(["O", "H"] * 1000, 0, k)) for k in range(20)]
        path = self.write(frames, LabelConfig(), folder)
        open_atoms(path).num_atoms(0)  # imports packages
        tracemalloc.start()
        source = open_atoms(path)
        sizes = [source.num_atoms(index) for index in range(len(source))]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sizes == [2000] * 20
        assert peak < sum(frame.positions.nbytes for frame in frames)

    def test_units_are_left_to_the_caller(self, format: type[AtomsFormat], folder: Path) -> None:
        """Numbers of a file in other units are converted exactly once."""
        frames, units = self.frames(), LabelConfig(length_unit="bohr", energy_unit="hartree")
        source = open_atoms(self.write(frames, LabelConfig(), folder), units)
        for stored, frame in zip(source, frames, strict=True):
            _assert_equal(stored, in_standard_units(frame, units))

    def test_missing_labels_are_none(self, format: type[AtomsFormat], folder: Path) -> None:
        """A label that one frame lacks is None there, not zero; other labels are unaffected."""
        for label in self.labels:
            frames = self.frames()
            lost: dict[str, Any] = {label: None}
            frames[1] = replace(frames[1], **lost)
            (folder / label).mkdir()
            source = open_atoms(self.write(frames, LabelConfig(), folder / label))
            for stored, frame in zip(source, frames, strict=True):
                _assert_equal(stored, frame)

    def test_labels_have_the_configured_names(
        self, format: type[AtomsFormat], folder: Path
    ) -> None:
        """Labels are found under the names of `LabelConfig`; other names are refused by name."""
        frames = self.frames()
        path = self.write(frames, RENAMED, folder)
        for stored, frame in zip(open_atoms(path, RENAMED), frames, strict=True):
            _assert_equal(stored, frame)
        for stored, frame in zip(open_structures(path), frames, strict=True):
            _assert_equal(stored, replace(frame, energy=None, forces=None, virial=None))
        if not format.fixed_names:
            with pytest.raises(DataError, match=f"REF_{self.labels[0]}"):
                open_atoms(path)[0]

    @pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
    def test_truncated_files_are_refused(
        self, format: type[AtomsFormat], folder: Path, share: float
    ) -> None:
        """A frame that is cut short raises DataError with the path."""
        path, largest = self.written(folder)
        largest.write_bytes(largest.read_bytes()[: int(share * largest.stat().st_size)])
        with pytest.raises(DataError, match=path.name):
            list(open_atoms(path))

    def test_noise_is_refused(self, format: type[AtomsFormat], folder: Path) -> None:
        """A file of random bytes raises DataError with the path."""
        path, largest = self.written(folder)
        largest.write_bytes(np.random.default_rng(0).bytes(largest.stat().st_size))
        with pytest.raises(DataError, match=path.name):
            list(open_atoms(path))


def _readers(path: Path) -> list[str]:
    """Return the formats that recognise a path, in the order in which they are asked."""
    return [name for name in atoms_formats if atoms_formats.get(name).guess(path)]


def _assert_equal(actual: Configuration, expected: Configuration) -> None:
    """Compare all fields except `where`; arrays must be float64."""
    assert actual.species.tolist() == expected.species.tolist()
    assert np.asarray(actual.pbc).tolist() == expected.pbc.tolist()
    for name in ("positions", "cell", "energy", "forces", "virial"):
        value: Any = getattr(actual, name)
        wanted: Any = getattr(expected, name)
        assert (value is None) == (wanted is None), name
        if wanted is not None:
            assert np.asarray(value).dtype == np.float64, name
            np.testing.assert_allclose(value, wanted, rtol=1e-9, atol=1e-9, err_msg=name)
