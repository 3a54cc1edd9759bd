"""Enhancer networks trained on one file of a series and used for all of its files.

Training dominates the time of compression with networks, and neighbouring snapshots differ little.
The networks of the first file are stored in a folder, one file per variable, and applied to later
files without training. Streams still contain the weights (a few hundred bytes), so that each can be
read separately, and networks that do not gain on a file are not used for it.

Source: Jia et al. 2024, arXiv:2404.13470 (group-wise enhancers).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from scitoolkit.compression.container import unpack
from scitoolkit.compression.enhancers.network import Network
from scitoolkit.compression.stored import Stored
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.files import write_atomic

SUFFIX = ".network"
ACCOUNT = "series.json"


@dataclass
class Account:
    """Training cost of the networks of a series.

    Args:
        trained_on: name of the training file.
        training_seconds: additional time (s) for its compression compared with other files; None
            if there was no other file.
        files: number of files compressed with the networks, including the first.
    """

    trained_on: str
    training_seconds: float | None = None
    files: int = 1

    @property
    def sentence(self) -> str:
        """The cost as a sentence for reports."""
        if self.training_seconds is None:
            return f"Networks trained on {self.trained_on}, used for {self.files} files."
        return (
            f"Networks trained on {self.trained_on} in {self.training_seconds:.3g} s, used for "
            f"{self.files} files: {self.training_seconds / self.files:.3g} s per file."
        )


class NetworkSeries:
    """Folder of trained networks.

    Args:
        folder: contains one file per variable and the account.
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Path = Path(folder)

    @classmethod
    def open(cls, folder: Path) -> NetworkSeries:
        """Return the existing series of a folder.

        Raises:
            ConfigError: the folder has no networks.
        """
        series = cls(folder)
        if not series.exists:
            raise ConfigError(
                "the folder has no networks",
                where=str(folder),
                allowed="a folder written by --train-once",
            )
        return series

    @property
    def exists(self) -> bool:
        """Whether the folder has networks."""
        return (self.folder / ACCOUNT).is_file()

    def enhancer(self, variable: str) -> Network | None:
        """Return the trained network of a variable; None if there is none."""
        path = self._path(variable)
        return Network(weights=path) if path.is_file() else None

    def keep(self, coded: list[Stored], trained_on: str) -> list[str]:
        """Store the networks in the streams of one file; return the names of their variables.

        The series exists afterwards only if there was a network to store.

        Args:
            coded: variables of a compressed file.
            trained_on: the name of its original.

        Raises:
            ConfigError: the folder cannot be written.
        """
        stored = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for one in coded:
                name, data = one.enhancer or ("", None)
                if one.stream is not None:
                    weights = network_of(one.stream)
                else:
                    weights = data if name == Network().name else None
                if weights is not None:
                    write_atomic(self._path(one.name), weights)
                    stored.append(one.name)
        except OSError as error:
            what = f"cannot be written ({error.strerror})"
            raise ConfigError(what, where=str(self.folder)) from None
        if stored:
            self._write(Account(trained_on))
        return stored

    def account(self, files: int = 0, training_seconds: float | None = None) -> Account:
        """Update and return the training cost.

        Args:
            files: number of files compressed with the networks since the last call.
            training_seconds: new training time (s), if known.

        Raises:
            DataError: the account cannot be read.
        """
        path = self.folder / ACCOUNT
        try:
            account = Account(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise DataError(f"cannot be read ({error})", where=str(path)) from None
        account.files += files
        if training_seconds is not None:
            account.training_seconds = training_seconds
        if files or training_seconds is not None:
            self._write(account)
        return account

    def _write(self, account: Account) -> None:
        write_atomic(self.folder / ACCOUNT, json.dumps(asdict(account), indent=1) + "\n")

    def _path(self, variable: str) -> Path:
        return self.folder / (quote(variable, safe="") + SUFFIX)


def network_of(stream: bytes | memoryview) -> bytes | None:
    """Return the trained weights in a stream (in its first slab); None if it has none."""
    header, sections = unpack(stream)
    if "slabs" in header:
        return network_of(next(iter(sections.values())))
    if header.get("enhancer", {}).get("name") != Network().name:
        return None
    return bytes(sections["enhancer"])
