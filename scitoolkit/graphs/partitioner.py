"""Out-of-core graph partitioner with bounded memory: external sort, placement, output of parts.

Stages; a restarted run skips those that are complete:

1. count     degrees and a hash of the edges, in one pass
2. sort      edges into files by range of targets (and of sources, if neighbours are needed)
3. place     part of each node (`placement.py`)
4. emit      edges of each part, sorted by target
5. finish    local indices, exchange lists, node data, hashes
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.content import shipped_path
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.graphs.arrays_on_disk import ArrayWriter, write_array
from scitoolkit.graphs.edge_files import EdgeFile, open_edges
from scitoolkit.graphs.node_files import NodeFile, has_node_data, num_nodes_of
from scitoolkit.graphs.partition import check_owner
from scitoolkit.graphs.partitioned import FORMAT, HEADER, VERSION, PartitionedGraph
from scitoolkit.graphs.placement import METHODS, NodeRows, blocks, choose_method, group_pairs, place
from scitoolkit.graphs.scattered_files import MOST_NUMBERS, MOST_OPEN, ScatteredFiles
from scitoolkit.graphs.targets import TARGETS, TargetName
from scitoolkit.io.numpy_file import load_array, save_array

Array = np.ndarray
log: Logger = get_logger(__name__)

MEMORY = 1 << 30
MOST_FILES = 400
MOST_WEIGHT = 10_000  # of a node: weights are 32-bit numbers
NODE_BYTES = 1 << 25  # of features read at a time


def partition_edges(
    edges: Path,
    out: Path,
    parts: int,
    *,
    nodes: Path | None = None,
    num_nodes: int | None = None,
    method: str = "auto",
    owner: Path | None = None,
    memory: int = MEMORY,
    target: TargetName = "classes",
    node_weight: int = 1,
) -> PartitionedGraph:
    """Partition an edge list and write the parts, reading the edges in blocks.

    Calling it again with the same arguments continues an interrupted call.

    Args:
        edges: an edge list for `open_edges`.
        out: the folder to create.
        parts: number of parts, one per process.
        nodes: file with features, labels and splits; by default `edges`, if it contains them.
        num_nodes: number of nodes, if no file determines it.
        method: one of `placement.METHODS`.
        owner: an .npy file with the part of each node, instead of `method`.
        memory: approximate memory limit in bytes.
        target: meaning of `y`: classes, labels or values.
        node_weight: ends of edges that a node counts for when the parts are balanced. Networks
            that store many rows of a node, such as one for each type of edges, hold less on their
            largest process with their bytes of a node over those of an end of an edge.

    Raises:
        ConfigError: fewer nodes than parts, an unknown method, no positive weight, or a folder of
            another call.
        DataError: unreadable files or inconsistent contents.
    """
    if method not in METHODS:
        raise ConfigError(f"method {method!r}", allowed=", ".join(METHODS))
    if target not in TARGETS:
        raise ConfigError(f"target {target!r}", allowed=", ".join(TARGETS))
    if parts > MOST_NUMBERS:
        raise ConfigError(
            f"{parts} parts", where="parts", allowed=f"1 to {MOST_NUMBERS}", fix="fewer parts"
        )
    if not 1 <= node_weight <= MOST_WEIGHT:
        raise ConfigError(f"node_weight {node_weight}", allowed=f"1 to {MOST_WEIGHT}")
    edges = shipped_path(edges)
    nodes = None if nodes is None else shipped_path(nodes)
    if nodes is None and has_node_data(edges):
        nodes = edges
    return _Partitioner(
        edges, Path(out), parts, nodes, num_nodes, method, owner, memory, target, node_weight
    ).run()


class _Partitioner:
    """State and stages of one partitioning run."""

    def __init__(
        self,
        edges: Path,
        out: Path,
        parts: int,
        nodes: Path | None,
        num_nodes: int | None,
        method: str,
        owner: Path | None,
        memory: int,
        target: TargetName,
        node_weight: int,
    ) -> None:
        self.out, self.parts, self.memory, self.owner_file = out, parts, memory, owner
        self.work = out / "work"
        self.edges: EdgeFile = open_edges(edges)
        self.nodes_file, self.target = nodes, target
        stated = num_nodes if nodes is None else num_nodes_of(nodes)
        if num_nodes not in (None, stated):
            raise DataError(
                f"num_nodes is {num_nodes}, but the file of nodes has {stated}",
                where=str(nodes),
                allowed="one number",
                fix="leave num_nodes out",
            )
        if stated is not None:
            if self.edges.num_nodes not in (None, stated):
                raise DataError(
                    f"{self.edges.num_nodes} nodes in the edges' file, {stated} in the nodes'",
                    where=str(nodes or edges),
                    allowed="one number",
                )
            self.edges.num_nodes = stated
        self.settings = {
            "edges": _identity(edges),
            "nodes": None if nodes is None else _identity(nodes),
            "parts": parts,
            "num_nodes": num_nodes,
            "method": method,
            "memory": memory,
            "owner": None if owner is None else _identity(owner),
            "version": VERSION,
            "target": target,
        }
        if node_weight != 1:  # not in the settings of calls that earlier versions began
            self.settings["node_weight"] = node_weight
        self.method, self.node_weight = method, node_weight
        self.state: dict[str, Any] = {"settings": self.settings, "done": [], "facts": {}}

    # --- stages ---------------------------------------------------------------------------------

    def run(self) -> PartitionedGraph:
        """Run the stages that are not complete."""
        self._open()
        stages = {
            "count": self._count,
            "sort": self._sort,
            "place": self._place,
            "emit": self._emit,
            "finish": self._finish,
        }
        for name, stage in stages.items():
            if name not in self.state["done"]:
                log.info("partition: %s", name)
                stage()
                self.state["done"].append(name)
                self._save()
        shutil.rmtree(self.work)
        return PartitionedGraph.open(self.out)

    def _open(self) -> None:
        # The header is written before the scratch folder is removed. Both exist if a run was
        # interrupted between the two, which continues; the header alone is a finished graph.
        if (self.out / HEADER).exists() and not self.work.exists():
            raise ConfigError(
                "the folder holds a partitioned graph",
                where=str(self.out),
                fix="remove it, or give another folder",
            )
        self.work.mkdir(parents=True, exist_ok=True)
        path = self.work / "state.json"
        if not path.exists():
            return
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["settings"] != self.settings:
            changed = [k for k, v in self.settings.items() if state["settings"].get(k) != v]
            raise ConfigError(
                f"the folder holds an unfinished partition of other {', '.join(changed)}",
                where=str(self.out),
                fix="remove it, or give another folder",
            )
        self.state = state
        log.info("partition: resuming after %s", ", ".join(state["done"]) or "no stage")

    def _save(self) -> None:
        scratch = self.work / "state.tmp"
        scratch.write_text(json.dumps(self.state), encoding="utf-8")
        # A rename is atomic: an interrupted call leaves the former state or the new one, never half
        # of it.
        os.replace(scratch, self.work / "state.json")

    def _count(self) -> None:
        stated = self.edges.num_nodes or 0
        inward, outward = np.zeros(stated, np.int64), np.zeros(stated, np.int64)
        # The number of nodes may be known only at the end, so that the counts grow with the
        # largest number seen. The digest is of the edges in the order of the file: equal for the
        # same edges in another format.
        digest, edges, loops = hashlib.sha256(), 0, 0
        for block in self.edges.blocks():
            inward = _add(inward, np.bincount(block.target, minlength=len(inward)))
            outward = _add(outward, np.bincount(block.source, minlength=len(outward)))
            digest.update(np.stack([block.source, block.target], 1).astype("<i8").tobytes())
            edges, loops = (
                edges + len(block.source),
                loops + int((block.source == block.target).sum()),
            )
        size = max(len(inward), len(outward))
        inward, outward = (_add(np.zeros(size, np.int64), a) for a in (inward, outward))
        self._check_size(size)
        save_array(self.work / "inward.npy", inward.astype(np.int32))
        save_array(self.work / "outward.npy", outward.astype(np.int32))
        degrees = inward + outward
        self.state["facts"] = {
            "num_nodes": size,
            "num_edges": edges,
            "self_loops": loops,
            "isolated_nodes": int((degrees == 0).sum()),
            "edges_sha256": digest.hexdigest(),
            "method": self._chosen(degrees),
        }

    def _chosen(self, degrees: Array) -> str:
        if self.owner_file is not None:
            return "owner"
        return choose_method(degrees, self.memory) if self.method == "auto" else self.method

    def _check_size(self, nodes: int) -> None:
        if not 1 <= self.parts <= nodes:
            raise ConfigError(
                f"{self.parts} parts of a graph of {nodes} nodes", allowed=f"1 to {nodes} parts"
            )
        if nodes > np.iinfo(np.int32).max:
            raise DataError(
                f"{nodes} nodes", where=str(self.edges.path), allowed="at most 2^31 - 1"
            )

    @property
    def _facts(self) -> dict[str, Any]:
        return self.state["facts"]

    def _degrees(self) -> tuple[Array, Array]:
        return np.load(self.work / "inward.npy"), np.load(self.work / "outward.npy")

    @property
    def _needs_neighbours(self) -> bool:
        return self.parts > 1 and self._facts["method"] in ("metis", "greedy", "clusters")

    def _sort(self) -> None:
        """Write edges to the file of their target's range, and to that of their source's range."""
        inward, outward = self._degrees()
        degrees = inward.astype(np.int64) + outward
        total = int(degrees.sum())
        # The sort of a range in `_sorted` needs about 32 bytes for each end of an edge: pairs, keys
        # and indices. It gets an eighth of the limit.
        ranges = min(MOST_FILES, max(1, total * 8 * 32 // self.memory))
        of_node = blocks(degrees, ranges).astype(np.uint16)
        self._facts["bounds"] = np.searchsorted(of_node, np.arange(ranges + 1)).tolist()
        # The cut of consecutive blocks of nodes, which costs nothing, is the figure that a
        # placement has to beat.
        halves = blocks(degrees, self.parts).astype(np.uint16)
        cut = 0
        paths = {(k, r): self._bucket(k, r) for k in self._kinds() for r in range(ranges)}
        with ScatteredFiles(paths) as files:
            for block in self.edges.blocks():
                source, target = block.source, block.target
                # A first pass of a radix sort: each file is small enough to be sorted in memory,
                # and the ranges ascend, so that their concatenation is sorted.
                files.append("in", of_node[target], _pairs(target, source))
                if block.type is not None and len(block.type):
                    self._facts["edge_types"] = max(
                        self._facts.get("edge_types", 0), int(block.type.max()) + 1
                    )
                for kind in self._inputs():
                    values = getattr(block, kind)
                    if values is not None:
                        values = values.astype(np.int32) if kind == "type" else _real(values)
                        self._facts[f"{kind}_dtype"] = values.dtype.str
                        files.append(kind, of_node[target], values)
                if self._needs_neighbours:
                    files.append("out", of_node[source], _pairs(source, target))
                cut += int((halves[source] != halves[target]).sum())
        self._facts["cut_of_blocks"] = cut

    def _kinds(self) -> list[str]:
        return ["in", *(["out"] if self._needs_neighbours else []), *self._inputs()]

    def _inputs(self) -> list[str]:
        """Return what edges have besides their ends: `weight`, `attr`, `type`."""
        stored = {
            "weight": self.edges.weighted,
            "attr": self.edges.attr_shape is not None,
            "type": self.edges.typed,
        }
        return [kind for kind, present in stored.items() if present]

    def _bucket(self, kind: str, number: int) -> Path:
        return self.work / f"{kind}-{number:04d}.bin"

    def _ranges(self) -> Iterator[tuple[int, int, int]]:
        bounds = self._facts["bounds"]
        for number, (begin, end) in enumerate(itertools.pairwise(bounds)):
            yield number, begin, end

    def _place(self) -> None:
        inward, outward = self._degrees()
        degrees = inward + outward
        if self.owner_file is not None:
            stored = load_array(self.owner_file)
            owner = check_owner(stored, len(degrees), self.parts).astype(np.int32)
        else:
            owner = place(
                self._neighbours, degrees, self.parts, self._facts["method"], self.node_weight
            )
        # A process without nodes would take part in collectives with nothing, and layers that count
        # nodes by their edges would fail on it alone.
        empty = np.flatnonzero(np.bincount(owner, minlength=self.parts) == 0)
        if len(empty):
            raise ConfigError(
                f"part {empty[0]} has no node", where=str(self.out), fix="fewer parts"
            )
        save_array(self.work / "owner.npy", owner)

    def _neighbours(self) -> Iterator[NodeRows]:
        inward, outward = self._degrees()
        for number, begin, end in self._ranges():
            pairs = [np.fromfile(self._bucket(kind, number), np.int32) for kind in ("in", "out")]
            # Neighbours along in- and out-edges: a cut edge costs an exchange whichever way it
            # points. An edge in both directions gives two entries and weighs twice, as it is read
            # twice.
            counts = inward[begin:end].astype(np.int64) + outward[begin:end]
            yield group_pairs(np.concatenate(pairs).reshape(-1, 2), begin, counts)

    def _emit(self) -> None:
        """Write the edges of each part, and record the halo nodes that each part needs."""
        inward, owner = self._degrees()[0], np.load(self.work / "owner.npy")
        needed = _Needed(self.parts, len(owner))
        cut = duplicates = 0
        far = np.zeros(self.parts, np.int64)
        paths = {
            (kind, p): self.work / f"{kind}-of-{p:04d}.bin"
            for kind in self._kinds()
            if kind != "out"
            for p in range(self.parts)
        }
        with ScatteredFiles(paths) as files:
            for number, begin, end in self._ranges():
                rows, source, order = self._sorted(number, begin, inward[begin:end], len(owner))
                # Within a range edges are sorted by (target, source), so that copies are
                # neighbours; a target is in one range only.
                same = (source[1:] == source[:-1]) & (rows[1:] == rows[:-1])
                duplicates += int(same.sum())
                part = owner[begin + rows]
                foreign = owner[source] != part
                cut += int(foreign.sum())
                far += np.bincount(part[foreign], minlength=self.parts)
                needed.add(part[foreign], source[foreign])
                files.append("in", part, source)
                for kind in self._inputs():
                    files.append(kind, part, self._values(kind, number)[order])
        needed.save(self.work / "needed.npy")
        self._facts.update(cut=cut, duplicate_edges=duplicates, far=far.tolist())

    def _sorted(
        self, number: int, begin: int, counts: Array, nodes: int
    ) -> tuple[Array, Array, Array | None]:
        """Return row and source of the edges of a range, sorted by target, then source."""
        pairs = np.fromfile(self._bucket("in", number), np.int32).reshape(-1, 2)
        # One 64-bit key instead of a sort by two columns: (2^31)^2 < 2^63.
        key = (pairs[:, 0].astype(np.int64) - begin) * nodes + pairs[:, 1]
        order = None
        if self._inputs():
            order = np.argsort(key, kind="stable")
            key = key[order]
        else:
            key.sort()
        # After the sort the rows follow from the in-degrees; the key then gives the sources, and
        # the pairs need not be gathered, which would cost a third copy.
        rows = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        return rows, (key - rows.astype(np.int64) * nodes).astype(np.int32), order

    def _values(self, kind: str, number: int) -> Array:
        shape = self.edges.attr_shape or () if kind == "attr" else ()
        dtype = np.dtype(self._facts[f"{kind}_dtype"])
        return np.fromfile(self._bucket(kind, number), dtype).reshape(-1, *shape)

    def _finish(self) -> None:
        inward, owner = self._degrees()[0], np.load(self.work / "owner.npy")
        needed = _Needed.load(self.work / "needed.npy")
        nodes = (
            None if self.nodes_file is None else NodeFile(self.nodes_file, len(owner), self.target)
        )
        place = np.empty(len(owner), np.int32)
        for p in range(self.parts):
            # Local numbers ascend with the global ones; the halo's places below rely on it.
            own = owner == p
            place[own] = np.arange(int(own.sum()))
        records = []
        for p in range(self.parts):
            folder = self.out / f"part-{p:04d}"
            folder.mkdir(exist_ok=True)
            records.append(self._write_part(p, folder, inward, owner, place, needed))
            if nodes is not None:
                self._write_labels(folder, records[-1], nodes, owner == p, place)
        if nodes is not None and nodes.width:
            self._write_features(nodes, owner, records)
        self._write_header(records, nodes)

    def _write_part(
        self, p: int, folder: Path, inward: Array, owner: Array, place: Array, needed: _Needed
    ) -> dict[str, Any]:
        own, halo = np.flatnonzero(owner == p), needed.of(p)
        # Grouped by owner and ascending within one, the order in which the owners send: what is
        # received is stored without a permutation.
        halo = halo[np.argsort(owner[halo], kind="stable")]
        # Number of a node's first edge in the whole graph: random numbers of edges are drawn by
        # it, so that they do not depend on the number of parts.
        first = np.cumsum(inward, dtype=np.int64) - inward
        pointer = np.concatenate([[0], np.cumsum(inward[own], dtype=np.int64)])
        # What part q needs of this one, ascending: the same set in the same order as q derives for
        # its halo, so that the two sides agree without a message.
        sends = [ids[owner[ids] == p] for ids in map(needed.of, range(self.parts))]
        lookup = place.copy()
        # Columns count this part's nodes first, then its halo. Entries of `lookup` for other
        # nodes are wrong, but no edge of this part has such a source.
        lookup[halo] = len(own) + np.arange(len(halo))
        files = {
            f"{name}.npy": write_array(folder / f"{name}.npy", array)
            for name, array in {
                "nodes": own,
                "pointer": pointer,
                "first": first[own],
                "halo": halo,
                "send": place[np.concatenate(sends)].astype(np.int64),
            }.items()
        }
        edges = int(pointer[-1])
        files["column.npy"] = self._copy("in", p, folder / "column.npy", edges, lookup)
        for kind in self._inputs():
            name = f"edge_{kind}.npy"
            files[name] = self._copy(kind, p, folder / name, edges, None)
        return {
            "nodes": len(own),
            "edges": edges,
            "halo": len(halo),
            "far_edges": self._facts["far"][p],
            "received": np.bincount(owner[halo], minlength=self.parts).tolist(),
            "sent": [len(ids) for ids in sends],
            "files": files,
        }

    def _copy(
        self, kind: str, p: int, path: Path, edges: int, lookup: Array | None
    ) -> dict[str, Any]:
        """Copy a part's array from the scratch file; `lookup` maps node numbers to indices."""
        shape = () if kind != "attr" else self.edges.attr_shape or ()
        dtype = np.dtype(np.int32 if kind == "in" else self._facts[f"{kind}_dtype"])
        count = (1 << 20) * int(np.prod(shape)) * dtype.itemsize
        scratch = self.work / f"{kind}-of-{p:04d}.bin"
        with ArrayWriter(path, dtype, (edges, *shape)) as writer, scratch.open("rb") as file:
            while len(block := np.frombuffer(file.read(count), dtype)):
                writer.write(block if lookup is None else lookup[block])
            return writer.finish()

    def _write_labels(
        self, folder: Path, record: dict[str, Any], nodes: NodeFile, own: Array, place: Array
    ) -> None:
        arrays = {} if nodes.labels is None else {"y": nodes.labels[own]}
        arrays |= {s: place[ids[own[ids]]].astype(np.int64) for s, ids in nodes.splits.items()}
        for name, array in arrays.items():
            record["files"][f"{name}.npy"] = write_array(folder / f"{name}.npy", array)

    def _write_features(self, nodes: NodeFile, owner: Array, records: list[dict[str, Any]]) -> None:
        # The features are read once, in order, and dealt to all parts at the same time. Nodes of a
        # part ascend, so that each block is appended.
        first, rows = 0, max(1, NODE_BYTES // (nodes.width * nodes.dtype.itemsize))
        with ExitStack() as stack:
            writers = [
                stack.enter_context(
                    ArrayWriter(
                        self.out / f"part-{p:04d}" / "x.npy",
                        nodes.dtype,
                        (record["nodes"], nodes.width),
                        stays_open=len(records) <= MOST_OPEN,
                    )
                )
                for p, record in enumerate(records)
            ]
            for block in nodes.features(rows):
                of_rows = owner[first : first + len(block)]
                for p, writer in enumerate(writers):
                    writer.write(block[of_rows == p])
                first += len(block)
            for record, writer in zip(records, writers, strict=True):
                record["files"]["x.npy"] = writer.finish()

    def _write_header(self, records: list[dict[str, Any]], nodes: NodeFile | None) -> None:
        facts = {k: v for k, v in self._facts.items() if k not in ("bounds", "far")}
        # Expected cut if nodes were placed at random, to judge `cut` by.
        facts["random_cut"] = self._facts["num_edges"] * (1 - 1 / self.parts)
        header = {
            "format": FORMAT,
            "version": VERSION,
            **facts,
            "num_features": 0 if nodes is None else nodes.width,
            "target": self.target,
            "num_outputs": 0 if nodes is None else nodes.num_outputs,
            "splits": {} if nodes is None else {s: len(ids) for s, ids in nodes.splits.items()},
            "edge_weight": self.edges.weighted,
            "edge_attr": None if self.edges.attr_shape is None else list(self.edges.attr_shape),
            "parts": records,
        }
        scratch = self.work / HEADER
        scratch.write_text(json.dumps(header), encoding="utf-8")
        os.replace(scratch, self.out / HEADER)


class _Needed:
    """Bit set of the halo nodes of each part, one bit per part and node."""

    def __init__(self, parts: int, nodes: int) -> None:
        # Bits instead of lists: N x P / 8 bytes whatever the cut is, and a node that many edges
        # need is counted once.
        self.bits: Array = np.zeros(((parts + 7) // 8, nodes), np.uint8)

    def add(self, part: Array, nodes: Array) -> None:
        for p in np.unique(part):
            # `|=` with an index array writes each place once even if `here` repeats a node, which
            # is right for a bit and would not be for a sum.
            here = nodes[part == p]
            self.bits[p // 8, here] |= np.uint8(1 << (p % 8))

    def of(self, part: int) -> Array:
        """Return the halo nodes of a part, ascending."""
        return np.flatnonzero(self.bits[part // 8] & np.uint8(1 << (part % 8)))

    def save(self, path: Path) -> None:
        save_array(path, self.bits)

    @classmethod
    def load(cls, path: Path) -> _Needed:
        needed = cls(0, 0)
        needed.bits = np.load(path)
        return needed


def _identity(path: Path) -> list[Any]:
    """Return path, size and modification time, which identify a version of a file."""
    path = Path(path).resolve()
    files = sorted(path.glob("*.npy")) if path.is_dir() else [path]
    return [[str(p), p.stat().st_size, p.stat().st_mtime_ns] for p in files]


def _add(total: Array, more: Array) -> Array:
    if len(more) <= len(total):
        total[: len(more)] += more
        return total
    more[: len(total)] += total
    return more


def _pairs(first: Array, second: Array) -> Array:
    return np.stack([first, second], 1).astype(np.int32)


def _real(values: Array) -> Array:
    return values.astype(np.float64 if values.dtype == np.float64 else np.float32)
