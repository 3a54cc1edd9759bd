"""Schema of `dataset.yaml`: the files of a dataset, their provenance and their checksums."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pydantic import Field, field_validator

from scitoolkit.core.config import Config, load_config
from scitoolkit.core.errors import DataError

FILE_NAME = "dataset.yaml"
_BLOCK = 2**20


class VariableEntry(Config):
    """A variable of a file: dims by name, their lengths, dtype and unit."""

    dims: list[str]
    shape: list[int]
    dtype: str
    units: str


class FileEntry(Config):
    """A file of the dataset, with its size and SHA-256."""

    path: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(ge=1)
    """Bytes."""
    variables: dict[str, VariableEntry] = Field(default_factory=dict)
    shipped: bool = True
    """Whether the file is in the folder; if not, `make` explains how to obtain it."""

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            raise ValueError(f"{path!r} is not a path inside the dataset's folder")
        return str(path)


class Provenance(Config):
    """Provenance of the data."""

    source: str
    citation: str
    processing: str
    url: str = ""


class DatasetCard(Config):
    """Top level of a `dataset.yaml`."""

    name: str
    title: str
    licence: str
    provenance: Provenance
    make: str
    """How to obtain or regenerate the files: a command or a sentence."""
    files: list[FileEntry] = Field(min_length=1)


def read_card(folder: Path | str) -> DatasetCard:
    """Read `dataset.yaml` of a folder.

    Raises:
        ConfigError: the file is missing or violates the schema; all errors are reported at once.
    """
    return load_config(DatasetCard, Path(folder) / FILE_NAME)


def problems(folder: Path | str) -> Iterator[str]:
    """Yield a message for every file of a dataset that is missing or differs from the card."""
    folder = Path(folder)
    for entry in read_card(folder).files:
        path = folder / entry.path
        if not path.is_file():
            if entry.shipped:
                yield f"{entry.path}: missing"
        elif path.stat().st_size != entry.size:
            yield f"{entry.path}: {path.stat().st_size} bytes, not {entry.size}"
        elif (actual := sha256(path)) != entry.sha256:
            yield f"{entry.path}: sha256 {actual}, not {entry.sha256}"


def verify(folder: Path | str) -> DatasetCard:
    """Verify all files of a dataset against its card and return the card.

    Raises:
        ConfigError: the card itself is missing or invalid.
        DataError: files are missing or changed; the message lists all of them.
    """
    messages = list(problems(folder))
    card = read_card(folder)
    if messages:
        raise DataError("; ".join(messages), where=str(folder), fix=card.make)
    return card


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
