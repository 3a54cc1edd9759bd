"""A graph on disk in parts: each process maps its own one and reads nothing of the others.

    FOLDER/graph.json          what holds for the whole graph, and each part's files with SHA-256
    FOLDER/part-0000/nodes.npy     numbers of own nodes, rising, (n_own,), int64
                     pointer.npy   first edge of each own node, (n_own + 1,), int64
                     column.npy    where edges come from, (E_own,), int32: below n_own the place of
                                   an own node, from n_own on that of a row of the halo
                     first.npy     number of a node's first edge in the whole graph, (n_own,), int64
                     halo.npy      numbers of the halo's nodes, by owner, then rising, int64
                     send.npy      places of own nodes whose rows others need, by receiver, int64
                     edge_weight.npy, edge_attr.npy, x.npy, y.npy, train.npy, ... where given

Edges are numbered by target, then source, so their numbers do not depend on the parts.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.numpy_file import load_array

Array = np.ndarray
FORMAT, VERSION = "scitoolkit partitioned graph", 1
HEADER = "graph.json"


def is_partitioned(path: Path) -> bool:
    """Return whether a path is a folder that holds a partitioned graph, whole or not."""
    return Path(path).is_dir() and any(Path(path).glob("part-*"))


@dataclass(frozen=True)
class PartitionedGraph:
    """A graph that `partition_edges` wrote.

    Args:
        path: the folder.
        header: contents of graph.json.

    Example:
        >>> PartitionedGraph(Path("g"), {"num_nodes": 3, "parts": [{}, {}]}).num_parts
        2
    """

    path: Path
    header: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> PartitionedGraph:
        """Read the header.

        Raises:
            DataError: no partitioned graph, one that was not finished, or another version.
        """
        path = Path(path)
        try:
            header = json.loads((path / HEADER).read_text(encoding="utf-8"))
        except FileNotFoundError:
            what = "the partition was not finished" if is_partitioned(path) else "no such graph"
            raise DataError(
                what, where=str(path), fix="scitoolkit graphs partition, which continues"
            ) from None
        except (OSError, ValueError) as error:
            raise DataError(f"not readable ({error})", where=str(path / HEADER)) from None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise DataError("not a partitioned graph", where=str(path / HEADER))
        if header.get("version") != VERSION:
            raise DataError(
                f"version {header.get('version')}", where=str(path / HEADER),
                allowed=str(VERSION), fix="partition the graph again",
            )  # fmt: skip
        return cls(path, header)

    @property
    def num_parts(self) -> int:
        """Number of parts, and of the processes that train on them."""
        return len(self.header["parts"])

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the whole graph."""
        return int(self.header["num_nodes"])

    def part(self, number: int, *, verify: bool = True) -> PartFiles:
        """Open a part.

        Args:
            number: of the part.
            verify: compare every file's SHA-256.

        Raises:
            DataError: a file is missing, truncated or of another partition.
        """
        files = PartFiles(self.path / f"part-{number:04d}", self.header["parts"][number])
        files.check(verify=verify)
        return files


@dataclass(frozen=True)
class PartFiles:
    """The arrays of a part.

    Attributes:
        path: the folder.
        record: sizes, exchange and files of the part, as the header has them.
    """

    path: Path
    record: dict[str, Any]

    def __contains__(self, name: str) -> bool:
        """Return whether the part has an array of that name."""
        return f"{name}.npy" in self.record["files"]

    def map(self, name: str) -> Array:
        """Return an array that stays on disk until it is read."""
        return load_array(self.path / f"{name}.npy", mapped=True)

    def read(self, name: str) -> Array:
        """Return an array in memory."""
        return load_array(self.path / f"{name}.npy")

    def check(self, *, verify: bool) -> None:
        """Compare the files with the header.

        Raises:
            DataError: a file is missing, truncated or of another partition.
        """
        for name, known in self.record["files"].items():
            path = self.path / name
            if not path.exists():
                raise DataError("no such file", where=str(path), fix="partition the graph again")
            size = path.stat().st_size
            if size != known["bytes"]:
                what = "truncated" if size < known["bytes"] else "longer than it was written"
                raise DataError(
                    f"{what}: {size} of {known['bytes']} bytes", where=str(path),
                    fix="partition the graph again",
                )  # fmt: skip
            if verify and _sha256(path) != known["sha256"]:
                raise DataError(
                    "contents that are not those of graph.json", where=str(path),
                    fix="partition the graph again",
                )  # fmt: skip


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
