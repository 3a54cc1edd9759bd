"""Source text of a skeleton format of atomic configurations."""

from __future__ import annotations

_MODULE = '''\
"""The atoms format `{name}`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from scitoolkit.io.atoms import AtomsSource, Configuration, LabelConfig


class {cls}:
    """One line for `scitoolkit ls atoms_format`: the files of {name}."""

    described: ClassVar[str] = ".{name}"
    fixed_names: ClassVar[bool] = True  # data.labels cannot rename the labels
    requires: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def guess(cls, path: Path) -> bool:
        """Return whether an existing path is of this format."""
        return path.is_file() and path.suffix == ".{name}"

    @classmethod
    def sources(cls, path: Path, labels: LabelConfig | None) -> Iterator[AtomsSource]:
        """Yield the sources of a path; if `labels` is None, frames have no labels."""
        yield {cls}Frames(path, labels)


class {cls}Frames:
    """Frames of one file, which are read on access; damaged files raise DataError."""

    def __init__(self, path: Path, labels: LabelConfig | None) -> None:
        self.path, self.labels = path, labels

    def __len__(self) -> int:
        """Return the number of frames."""
        raise NotImplementedError("write this method")

    def __getitem__(self, index: int) -> Configuration:
        """Return one frame, in the units of the file."""
        raise NotImplementedError("write this method")

    def num_atoms(self, index: int) -> int:
        """Return the number of atoms of one frame, without reading the frame."""
        raise NotImplementedError("write this method")
'''

_TEST = """\
from __future__ import annotations

import pytest
from scitoolkit.testing import AtomsFormatContract

from scitoolkit_{name} import {cls}


class Test{cls}(AtomsFormatContract):
    labels = ("energy", "forces", "virial")  # that the files can contain
    periodic = (0, 2, 3)  # numbers of periodic directions that the files can contain

    @pytest.fixture
    def format(self):
        return {cls}

    def write(self, frames, names, folder):
        raise NotImplementedError("write the frames into a file and return its path")
"""


def atoms_format_skeleton(name: str, cls: str) -> tuple[str, str]:
    """Return module and test of a new format of atomic configurations.

    Example:
        >>> "class Mine:" in atoms_format_skeleton("mine", "Mine")[0]
        True
    """
    return _MODULE.format(name=name, cls=cls), _TEST.format(name=name, cls=cls)
