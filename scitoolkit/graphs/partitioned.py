"""Partitioned graphs on disk, of which each process reads only its part.

    FOLDER/graph.json          header of the whole graph; files of each part with SHA-256
    FOLDER/part-0000/nodes.npy     numbers of local nodes, ascending, (n_own,), int64
                     pointer.npy   first edge of each local node, (n_own + 1,), int64
                     column.npy    source of each edge, (E_own,), int32: index of a local node
                                   (below n_own), or n_own + index of a halo row
                     first.npy     global number of each node's first edge, (n_own,), int64
                     halo.npy      numbers of halo nodes, by owner, then ascending, int64
                     send.npy      indices of local nodes to send, by receiver, int64
                     edge_weight.npy, edge_attr.npy, edge_type.npy, x.npy, y.npy, train.npy, ...
                     if given

Edges are numbered by target, then source, so edge numbers do not depend on the partition.
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
    """Return whether a path is the folder of a partitioned graph, complete or not."""
    return Path(path).is_dir() and any(Path(path).glob("part-*"))


@dataclass(frozen=True)
class PartitionedGraph:
    """A partitioned graph written by `partition_edges`.

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
            DataError: not a partitioned graph, an unfinished one, or another version.
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
                f"version {header.get('version')}",
                where=str(path / HEADER),
                allowed=str(VERSION),
                fix="partition the graph again",
            )
        return cls(path, header)

    @property
    def num_parts(self) -> int:
        """Number of parts, which is the number of processes of a training."""
        return len(self.header["parts"])

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the whole graph."""
        return int(self.header["num_nodes"])

    def part(self, number: int, *, verify: bool = True) -> PartFiles:
        """Open a part.

        Args:
            number: number of the part.
            verify: check the SHA-256 of every file.

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
        record: sizes, exchange and files of the part, from the header.
    """

    path: Path
    record: dict[str, Any]

    def __contains__(self, name: str) -> bool:
        """Return whether the part has an array of that name."""
        return f"{name}.npy" in self.record["files"]

    def map(self, name: str) -> Array:
        """Return a memory-mapped array."""
        return load_array(self.path / f"{name}.npy", mapped=True)

    def read(self, name: str) -> Array:
        """Return an array in memory."""
        return load_array(self.path / f"{name}.npy")

    def check(self, *, verify: bool) -> None:
        """Check the files against the header.

        Raises:
            DataError: a file is missing, truncated or of another partition.
        """
        for name, stated in self.record["files"].items():
            path = self.path / name
            if not path.exists():
                raise DataError("no such file", where=str(path), fix="partition the graph again")
            # The size first: it finds a truncated file at once, and says how it is damaged.
            size = path.stat().st_size
            if size != stated["bytes"]:
                what = "truncated" if size < stated["bytes"] else "longer than it was written"
                raise DataError(
                    f"{what}: {size} of {stated['bytes']} bytes",
                    where=str(path),
                    fix="partition the graph again",
                )
            if verify and _sha256(path) != stated["sha256"]:
                raise DataError(
                    "contents that are not those of graph.json",
                    where=str(path),
                    fix="partition the graph again",
                )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
