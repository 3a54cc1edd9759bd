"""A graph in parts on disk: equal to the whole one, restartable, and refused when damaged."""

import dataclasses
import json
import multiprocessing
import os
import signal
import sys

import h5py
import numpy as np
import pytest
import torch

from scitoolkit.core.errors import BackendError, ConfigError, DataError
from scitoolkit.graphs import partitioner, scattered_files
from scitoolkit.graphs.arrays_on_disk import write_array
from scitoolkit.graphs.graph import Graph, read_graph, write_graph
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.partitioned import PartitionedGraph
from scitoolkit.graphs.partitioner import partition_edges
from scitoolkit.graphs.stored_part import StoredPart, whole_graph
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic


@pytest.fixture
def file(graph, tmp_path):
    path = tmp_path / "graph.npz"
    write_graph(graph, path)
    return path


def sorted_edges(graph):
    order = np.lexsort((graph.source, graph.target))
    return np.stack([graph.source, graph.target])[:, order]


@pytest.mark.parametrize("method", ["auto", "clusters", "greedy", "block"])
def test_the_parts_are_the_graph(graph, file, tmp_path, method):
    stored = partition_edges(file, tmp_path / "parts", 3, method=method, memory=1 << 25)
    again = whole_graph(stored)
    np.testing.assert_array_equal(np.stack([again.source, again.target]), sorted_edges(graph))
    np.testing.assert_array_equal(again.features, graph.features)
    np.testing.assert_array_equal(again.labels, graph.labels)
    for name, nodes in graph.parts.items():
        np.testing.assert_array_equal(again.parts[name], np.sort(nodes))
    loops = (graph.source == graph.target).sum()
    duplicates = graph.num_edges - len(set(zip(graph.source, graph.target, strict=True)))
    header = stored.header
    assert (header["self_loops"], header["duplicate_edges"]) == (loops, duplicates)
    assert header["isolated_nodes"] >= 2
    assert not (tmp_path / "parts" / "work").exists()


@pytest.mark.parametrize("weighting", ["sum", "mean", "gcn", "symmetric"])
def test_products_of_stored_parts_equal_those_of_the_graph(graph, file, tmp_path, weighting):
    stored = partition_edges(file, tmp_path / "parts", 3, method="greedy")
    x = torch.randn(graph.num_nodes, 4, dtype=torch.float64)
    upstream = torch.randn(graph.num_nodes, 4, dtype=torch.float64)

    def work(ranks, make):
        part = make(ranks)
        own = x[part.nodes].requires_grad_()
        out = part.aggregate(own, weighting)
        out.backward(upstream[part.nodes])
        return part.nodes, out.detach(), own.grad

    def collected(size, make):
        found = [torch.empty_like(x), torch.empty_like(x)]
        for nodes, *rows in run_ranks(size, lambda ranks: work(ranks, make), Traffic):
            for whole, part in zip(found, rows, strict=True):
                whole[nodes] = part
        return found

    one = np.zeros(graph.num_nodes, np.int64)
    plain = collected(1, lambda ranks: GraphPart(graph, one, ProcessGrid(1), ranks))
    for ours, wanted in zip(collected(3, lambda r: StoredPart(stored, r)), plain, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-12, atol=1e-12)


def test_edge_numbers_do_not_depend_on_the_parts(file, tmp_path):
    found = []
    for size in (2, 3):
        stored = partition_edges(file, tmp_path / f"{size}", size, method="greedy")
        parts = run_ranks(size, lambda r, s=stored: StoredPart(s, r), Traffic)
        pairs = {}
        for part in parts:
            known = np.concatenate([part.nodes.numpy(), part.files.read("halo")])
            for number, (s, t) in zip(part.edge_numbers.tolist(), part.edges.T, strict=True):
                pairs[number] = (known[s], known[t])
        found.append(pairs)
    assert found[0] == found[1]


def interrupted(partitioner):
    raise KeyboardInterrupt


def test_an_interrupted_partition_is_continued(file, tmp_path, monkeypatch):
    wanted = partition_edges(file, tmp_path / "at once", 3, method="clusters").header
    for stage in ("_sort", "_place", "_emit", "_finish"):
        folder = tmp_path / stage
        with monkeypatch.context() as patch:
            patch.setattr(partitioner._Partitioner, stage, interrupted)
            with pytest.raises(KeyboardInterrupt):
                partition_edges(file, folder, 3, method="clusters")
        with pytest.raises(DataError, match=r"not finished|no such graph"):
            PartitionedGraph.open(folder)
        with monkeypatch.context() as patch:
            patch.setattr(partitioner._Partitioner, "_count", None)
            assert partition_edges(file, folder, 3, method="clusters").header == wanted


def test_a_partition_that_was_killed_is_continued(file, tmp_path, monkeypatch):
    wanted = partition_edges(file, tmp_path / "at once", 3).header
    written = iter(range(9))

    def write(path, array):
        if next(written) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return write_array(path, array)

    with monkeypatch.context() as patch:
        patch.setattr(partitioner, "write_array", write)
        child = multiprocessing.get_context("fork").Process(
            target=partition_edges, args=(file, tmp_path / "parts", 3)
        )
        child.start()
        child.join(60)
    assert child.exitcode == -signal.SIGKILL
    with pytest.raises(DataError, match="not finished"):
        PartitionedGraph.open(tmp_path / "parts")
    assert partition_edges(file, tmp_path / "parts", 3).header == wanted


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"y": np.r_[np.zeros(49), -2]}, "labels include -2"),
        ({"y": np.r_[np.zeros(49), 0.5]}, "labels include 0.5"),
        ({"y": np.zeros(50), "train": [1, 2], "test": [2]}, "share 1 nodes, such as 2"),
        ({"y": np.zeros(50), "train": [50]}, "names node 50"),
    ],
)
def test_data_of_nodes_that_do_not_fit_are_refused(graph, tmp_path, nodes, message):
    np.savez(tmp_path / "n.npz", x=np.zeros((50, 2)), **nodes)
    with pytest.raises(DataError, match=message):
        partition_edges(as_npy(graph, tmp_path), tmp_path / "p", 2, nodes=tmp_path / "n.npz")


def test_an_unfinished_partition_of_another_call_is_refused(file, tmp_path, monkeypatch):
    monkeypatch.setattr(partitioner._Partitioner, "_emit", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        partition_edges(file, tmp_path / "parts", 3)
    with pytest.raises(ConfigError, match="unfinished partition of other parts"):
        partition_edges(file, tmp_path / "parts", 2)


@pytest.fixture
def stored(file, tmp_path):
    return partition_edges(file, tmp_path / "parts", 2)


def test_damaged_files_are_refused(stored):
    column = stored.path / "part-0001" / "column.npy"
    whole = column.read_bytes()
    column.write_bytes(whole[:-4])
    with pytest.raises(DataError, match="truncated"):
        stored.part(1, verify=False)
    column.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    stored.part(1, verify=False)
    with pytest.raises(DataError, match=r"not those of graph\.json"):
        stored.part(1)
    column.unlink()
    with pytest.raises(DataError, match="no such file"):
        stored.part(1)


def test_other_versions_and_numbers_of_processes_are_refused(stored):
    run = [lambda ranks: StoredPart(stored, ranks)]
    with pytest.raises(ConfigError, match="3 processes for a graph of 2 parts"):
        run_ranks(3, run[0], Traffic)
    with pytest.raises(ConfigError, match="holds a partitioned graph"):
        partition_edges(stored.path.parent / "graph.npz", stored.path, 2)
    header = stored.path / "graph.json"
    header.write_text(json.dumps({**stored.header, "version": 2}))
    with pytest.raises(DataError, match="version 2"):
        PartitionedGraph.open(stored.path)


def weighted(graph):
    r = np.random.default_rng(0)
    return dataclasses.replace(
        graph,
        edge_weight=r.random(graph.num_edges),
        edge_attr=r.random((graph.num_edges, 2)),
        edge_type=r.integers(5, size=graph.num_edges),
    )


def as_npy(graph, folder):
    np.save(folder / "edges.npy", np.stack([graph.source, graph.target], 1).astype(np.int32))
    return folder / "edges.npy"


def as_rows(graph, folder):
    (folder / "csr").mkdir()
    order = np.argsort(graph.target, kind="stable")
    np.save(folder / "csr" / "indices.npy", graph.source[order])
    np.save(folder / "csr" / "indptr.npy", np.r_[0, np.cumsum(graph.in_degrees())])
    np.save(folder / "csr" / "edge_weight.npy", graph.edge_weight[order])
    np.save(folder / "csr" / "edge_attr.npy", graph.edge_attr[order])
    np.save(folder / "csr" / "edge_type.npy", graph.edge_type[order].astype(np.int16))
    return folder / "csr"


def as_hdf5(graph, folder):
    with h5py.File(folder / "g.h5", "w") as file:
        file["edge_index"] = np.stack([graph.source, graph.target])
        file["edge_weight"], file["edge_attr"] = graph.edge_weight, graph.edge_attr
        file["edge_type"] = graph.edge_type
    return folder / "g.h5"


def as_csv(graph, folder):
    rows = zip(graph.source, graph.target, graph.edge_weight, strict=True)
    lines = ["source,target,weight", *(f"{s},{t},{float(w)!r}" for s, t, w in rows)]
    (folder / "g.csv").write_text("\n".join(lines))
    return folder / "g.csv"


@pytest.mark.parametrize("write", [as_npy, as_rows, as_hdf5, as_csv])
def test_every_edge_file_gives_the_same_parts(graph, file, tmp_path, write, monkeypatch):
    monkeypatch.setattr("scitoolkit.graphs.edge_files.BLOCK", 64)
    graph = weighted(graph)
    path = write(graph, tmp_path)
    again = whole_graph(partition_edges(path, tmp_path / "parts", 2, nodes=file))
    np.testing.assert_array_equal(np.stack([again.source, again.target]), sorted_edges(graph))
    order = np.lexsort((graph.source, graph.target))
    for name in ("edge_weight", "edge_attr", "edge_type"):
        if getattr(again, name) is not None:
            kept = getattr(graph, name)[order]
            # Equal edges keep the order of the file.
            np.testing.assert_allclose(getattr(again, name), kept, rtol=1e-6)
    assert (again.edge_weight is None) == (write is as_npy)
    assert (again.edge_type is None) == (write in (as_npy, as_csv))


def test_parquet_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "g.parquet").write_bytes(b"PAR1")
    with pytest.raises(BackendError, match="pip install pyarrow"):
        partition_edges(tmp_path / "g.parquet", tmp_path / "p", 2, num_nodes=50)


def test_parquet(graph, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    table = pa.table({"source": graph.source, "target": graph.target})
    parquet.write_table(table, tmp_path / "g.parquet")
    again = whole_graph(partition_edges(tmp_path / "g.parquet", tmp_path / "p", 2, num_nodes=50))
    np.testing.assert_array_equal(np.stack([again.source, again.target]), sorted_edges(graph))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([[0, 1], [-1, 2]], "edge 1 ends at node -1"),
        ([[0, 1], [1, 9]], "edge 1 ends at node 9"),
        ([[0.0, 1.5], [1.0, 2.0]], "float64"),
    ],
)
def test_ends_that_are_no_nodes_are_refused(tmp_path, pairs, message):
    np.save(tmp_path / "e.npy", np.array([*pairs, [0, 1]]))
    with pytest.raises(DataError, match=message):
        partition_edges(tmp_path / "e.npy", tmp_path / "p", 2, num_nodes=4)


def test_values_that_are_not_finite_are_refused(graph, tmp_path):
    graph = weighted(graph)
    graph.edge_weight[7] = np.nan
    with pytest.raises(DataError, match="edge_weight of edge 7 is NaN"):
        partition_edges(as_hdf5(graph, tmp_path), tmp_path / "p", 2)
    np.savez(tmp_path / "c.npz", edge_index=np.eye(2, dtype=int), edge_weight=["1", "2"])
    with pytest.raises(DataError, match="edge_weight of <U1, such as 1"):
        partition_edges(tmp_path / "c.npz", tmp_path / "p", 1, num_nodes=2)
    np.savez(tmp_path / "x.npz", x=np.full((50, 2), np.inf))
    path = as_npy(graph, tmp_path)
    with pytest.raises(DataError, match="50 nodes, such as 0"):
        partition_edges(path, tmp_path / "q", 2, nodes=tmp_path / "x.npz")


def test_few_files_are_open_whatever_the_number_of_parts(graph, tmp_path, monkeypatch):
    """Each part is that of a run which holds all its files open."""
    path = as_npy(weighted(graph), tmp_path)
    np.savez(tmp_path / "x.npz", x=graph.features)
    folders = [tmp_path / "all", tmp_path / "few"]
    many = []
    for folder, limit in zip(folders, (200, 3), strict=True):
        monkeypatch.setattr(scattered_files, "MOST_OPEN", limit)
        monkeypatch.setattr(partitioner, "MOST_OPEN", limit)
        opened = scattered_files.ScatteredFiles._file
        counts = []

        def counted(files, kind, number, opened=opened, counts=counts):
            file = opened(files, kind, number)
            counts.append(len(files._open))
            return file

        with monkeypatch.context() as patch:
            patch.setattr(scattered_files.ScatteredFiles, "_file", counted)
            stored = partition_edges(path, folder, 8, nodes=tmp_path / "x.npz")
        many.append((max(counts), stored.header["parts"]))
    assert many[1][0] == 3 < many[0][0]
    assert many[0][1] == many[1][1]  # sizes and digests of all files


def test_the_first_edge_with_a_negative_end_is_named(tmp_path):
    pairs = np.array([[0, 1, 2, 3], [1, -1, -7, 0]])
    np.savez(tmp_path / "e.npz", edge_index=pairs)
    with pytest.raises(DataError, match=r"edge 1 ends at node -1.*numbers from 0"):
        partition_edges(tmp_path / "e.npz", tmp_path / "p", 2, num_nodes=6)


def test_parts_that_do_not_fit_are_refused(graph, file, tmp_path):
    with pytest.raises(ConfigError, match="51 parts of a graph of 50 nodes"):
        partition_edges(file, tmp_path / "p", 51)
    with pytest.raises(ConfigError, match=r"65537 parts.*1 to 65536"):
        partition_edges(file, tmp_path / "p", 65_537)
    with pytest.raises(ConfigError, match="method 'best'"):
        partition_edges(file, tmp_path / "p", 2, method="best")
    np.save(tmp_path / "owner.npy", np.zeros(50, int))
    with pytest.raises(ConfigError, match="part 1 has no node"):
        partition_edges(file, tmp_path / "q", 2, owner=tmp_path / "owner.npy")
    small = Graph([0], [1], 2, np.zeros((2, 1)))
    write_graph(small, tmp_path / "small.npz")
    with pytest.raises(DataError, match="one number"):
        partition_edges(file, tmp_path / "r", 2, nodes=tmp_path / "small.npz")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"edge_weight": np.ones((20, 2))}, r"edge_weight of shape \(20, 2\).*\(20,\)"),
        ({"edge_weight": np.ones(25)}, r"edge_weight of shape \(25,\)"),
        ({"edge_attr": np.ones((20, 2, 3))}, r"edge_attr of shape \(20, 2, 3\)"),
        ({"edge_attr": np.ones((19, 2))}, r"edge_attr of shape \(19, 2\).*\(20, D\)"),
        ({"edge_type": np.ones((20, 1), int)}, r"edge_type of shape \(20, 1\).*\(20,\)"),
        ({"edge_type": np.arange(20) - 1}, "edge_type -1 of edge 0.*numbers from 0"),
        ({"edge_type": np.arange(20) / 2}, r"edge_type include 0\.5"),
        ({"edge_type": np.full(20, 2**31)}, "edge_type 2147483648 of edge 0"),
    ],
)
def test_inputs_of_edges_that_do_not_fit_are_refused(tmp_path, more, message):
    pairs = np.random.default_rng(0).integers(6, size=(2, 20))
    np.savez(tmp_path / "e.npz", edge_index=pairs, **more)
    with pytest.raises(DataError, match=message):
        partition_edges(tmp_path / "e.npz", tmp_path / "p", 2, num_nodes=6)


def test_values_of_a_csr_matrix_are_weights_unless_all_are_one(graph, tmp_path):
    order = np.lexsort((graph.source, graph.target))
    pointer = np.concatenate([[0], np.cumsum(graph.in_degrees())])
    for name, data in (("w", np.arange(1.0, graph.num_edges + 1)), ("one", np.ones(len(order)))):
        np.savez(
            tmp_path / f"{name}.npz",
            adj_indptr=pointer,
            adj_indices=graph.source[order],
            adj_data=data,
            x=np.zeros((graph.num_nodes, 1)),
        )
        expected = read_graph(tmp_path / f"{name}.npz")
        found = whole_graph(partition_edges(tmp_path / f"{name}.npz", tmp_path / name, 2))
        np.testing.assert_array_equal(found.source, expected.source)
        if name == "one":
            assert found.edge_weight is expected.edge_weight is None
        else:
            np.testing.assert_array_equal(found.edge_weight, expected.edge_weight)


def test_suffixes_in_capitals_are_read(graph, tmp_path):
    path = as_hdf5(weighted(graph), tmp_path)
    path = path.rename(path.with_suffix(".H5"))
    again = whole_graph(partition_edges(path, tmp_path / "p", 2, num_nodes=50))
    np.testing.assert_array_equal(np.stack([again.source, again.target]), sorted_edges(graph))


def test_unsigned_edges_and_a_table_with_a_byte_order_mark_are_read(graph, tmp_path):
    pairs = np.stack([graph.source, graph.target])
    np.save(tmp_path / "e.npy", pairs.astype(np.uint64))
    lines = [f"{a},{b}" for a, b in pairs.T]
    (tmp_path / "e.csv").write_text("\n".join(["source,target", *lines]), encoding="utf-8-sig")
    for name in ("e.npy", "e.csv"):
        parts = partition_edges(tmp_path / name, tmp_path / f"{name}.parts", 2, num_nodes=50)
        again = whole_graph(parts)
        np.testing.assert_array_equal(np.stack([again.source, again.target]), sorted_edges(graph))


def test_another_number_of_nodes_than_in_the_file_is_refused(file, tmp_path):
    with pytest.raises(DataError, match="num_nodes is 60, but the file of nodes has 50"):
        partition_edges(file, tmp_path / "p", 2, num_nodes=60)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"x_indices": np.array([0, 7])}, "x_indices run from 0 to 7.*3 columns"),
        ({"x_indices": np.array([0, -1])}, "x_indices run from -1 to 0"),
        ({"x_indptr": np.array([0, 2, 1, 2])}, "x_indptr does not rise from 0 to the 2 entries"),
    ],
)
def test_sparse_features_that_are_no_matrix_are_refused(tmp_path, more, message):
    arrays = {
        "edge_index": np.array([[0, 1], [1, 2]]),
        "x_indptr": np.array([0, 1, 2, 2]),
        "x_indices": np.array([0, 1]),
        "x_data": np.ones(2),
        "n_feat": np.int64(3),
    }
    np.savez(tmp_path / "x.npz", **(arrays | more))
    with pytest.raises(DataError, match=message):
        partition_edges(tmp_path / "x.npz", tmp_path / "p", 2, method="block")


@pytest.mark.parametrize("method", ["metis", "greedy", "clusters", "block"])
def test_the_weight_of_a_node_balances_nodes_instead_of_edges(tmp_path, method):
    """Of 2,000 nodes the first 100 have most of the edges."""
    r = np.random.default_rng(0)
    pairs = np.concatenate([r.integers(100, size=(2, 8000)), r.integers(2000, size=(2, 2000))], 1)
    np.savez(tmp_path / "e.npz", edge_index=pairs)
    most = {}
    for weight in (1, 1000):
        header = partition_edges(
            tmp_path / "e.npz",
            tmp_path / f"{method}-{weight}",
            4,
            num_nodes=2000,
            method=method,
            node_weight=weight,
        ).header
        most[weight] = max(part["nodes"] for part in header["parts"])
    assert most[1000] <= 550 < most[1]


@pytest.mark.parametrize("weight", [0, -1, 10**6])
def test_a_weight_that_no_balance_can_have_is_refused(file, tmp_path, weight):
    with pytest.raises(ConfigError, match="node_weight"):
        partition_edges(file, tmp_path / "p", 2, node_weight=weight)
