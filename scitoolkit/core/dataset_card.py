"""`dataset.yaml`: what a dataset's files are, where they come from, and whether they are intact."""

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
    """A file of the dataset, and how to tell that it is the right one."""

    path: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(ge=1)
    """Bytes."""
    variables: dict[str, VariableEntry] = Field(default_factory=dict)
    shipped: bool = True
    """Whether the file lies in the folder; otherwise `make` says how to get it."""

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            raise ValueError(f"{path!r} is not a path inside the dataset's folder")
        return str(path)


class Provenance(Config):
    """Where the data come from."""

    source: str
    citation: str
    processing: str
    url: str = ""


class DatasetCard(Config):
    """The whole of a `dataset.yaml`."""

    name: str
    title: str
    licence: str
    provenance: Provenance
    make: str
    """How to get or make the files again, as a command or a sentence."""
    files: list[FileEntry] = Field(min_length=1)


def read_card(folder: Path | str) -> DatasetCard:
    """Read `dataset.yaml` of a folder.

    Raises:
        ConfigError: it is missing or does not fit the schema; every error at once.
    """
    return load_config(DatasetCard, Path(folder) / FILE_NAME)


def problems(folder: Path | str) -> Iterator[str]:
    """Yield what is wrong with the files of a dataset: missing, of another size, or changed."""
    folder = Path(folder)
    for entry in read_card(folder).files:
        path = folder / entry.path
        if not path.is_file():
            if entry.shipped:
                yield f"{entry.path}: missing"
        elif path.stat().st_size != entry.size:
            yield f"{entry.path}: {path.stat().st_size} bytes, not {entry.size}"
        elif (found := sha256(path)) != entry.sha256:
            yield f"{entry.path}: sha256 {found}, not {entry.sha256}"


def verify(folder: Path | str) -> DatasetCard:
    """Return the card of a dataset whose files are all as the card says.

    Raises:
        ConfigError: the card itself is missing or wrong.
        DataError: a file is missing or changed; all of them are named.
    """
    found = list(problems(folder))
    card = read_card(folder)
    if found:
        raise DataError("; ".join(found), where=str(folder), fix=card.make)
    return card


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
