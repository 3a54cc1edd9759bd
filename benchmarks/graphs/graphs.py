"""Full-graph GNN training: equality, counted traffic, partitions, kernels, epochs, accuracy."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import tempfile
import time
import warnings
from pathlib import Path

import _graph_stored
import h5py
import numpy as np
import torch
from _graph_data import grid_mesh, rmat
from _graph_models import constructible, runs_plainly
from _graph_ranks import run_models
from _graph_stored import write_mesh, write_rmat
from _measure import alternate, machine, medians
from _places import importable

from scitoolkit import api
from scitoolkit.core.content import content_root
from scitoolkit.generators.mesh_tracer import MeshTracer, load_mesh
from scitoolkit.graphs.graph import Graph, read_graph
from scitoolkit.graphs.grid import ProcessGrid, all_grids, make_grid
from scitoolkit.graphs.models import GAT, GCN, SAGE
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.partition import partition
from scitoolkit.graphs.partitioner import partition_edges
from scitoolkit.graphs.plan import forecast
from scitoolkit.graphs.refine import received_rows
from scitoolkit.graphs.sharing import normalised_features
from scitoolkit.graphs.strategy import GraphTrainingConfig
from scitoolkit.graphs.task import NodeClassification, PartLoader
from scitoolkit.graphs.weighting import weighted_adjacency
from scitoolkit.ops.spmm import SparseMatrix, spmm
from scitoolkit.testing.ranks import run_ranks
from scitoolkit.training import Trainer
from scitoolkit.training.launch import launch
from scitoolkit.training.ranks.communicator import SingleProcess
from scitoolkit.training.traffic import Traffic

EPOCHS, SEEDS = 50, 10
EQUALITY_WIDTH = 64  # columns of Cora's features; all of its nodes and edges
WIDTHS = (128, 64, 16)
PROCESSES = (1, 2, 4)  # of the catalogue of models
MESH_SIDE = 1500  # nodes of a mesh's side
BASE_MIB = 300  # of a process without a graph
EXACT = 1e-10  # relative, float64


def run() -> dict:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Sparse")
    cora = read_graph(content_root("datasets") / "cora" / "cora.npz")
    out = {**_models(), **_equality(cora), **_traffic(cora)}
    power, mesh = rmat(16, 1_000_000, 4, 4), grid_mesh(361, 4, 4)
    out |= _partitions(power, mesh)
    large = rmat(17, 2_000_000, WIDTHS[0], WIDTHS[2])
    out |= _kernels(large)
    out |= _epochs(large)
    out |= _attention(large)
    out |= _scaling()
    out |= {**_stored_power_law(), **_stored_mesh(), **_training_peak()}
    out |= _cora(cora)
    out |= _rollout()
    out["machine"] = machine()
    return out


# --- equal on any number of ranks -------------------------------------------------------------


def _train(graph: Graph, model, owner, grid: ProcessGrid, epochs: int):
    """Losses and gradients of `epochs` Adam steps by the ranks of a grid, as one sees them."""
    x = torch.from_numpy(graph.features).double()
    train = graph.parts["train"]

    def work(ranks):
        part = GraphPart(graph, owner, grid, ranks)
        task = NodeClassification(copy.deepcopy(model), part, seed=1)
        optimizer = torch.optim.Adam(task.model.parameters(), lr=0.01)
        loader = PartLoader(x[part.nodes], part.nodes, graph.labels, train)
        steps = []
        for epoch in range(epochs):
            loader.set_epoch(epoch)
            batch = next(iter(loader))
            loss, _ = task.loss(batch)
            share = task.batch_size(batch) / len(train)
            optimizer.zero_grad()
            loss.backward(torch.tensor(share, dtype=loss.dtype))
            total = [loss.detach() * share, *(p.grad for p in task.model.parameters())]
            total = _sum(ranks, total)
            for parameter, gradient in zip(task.model.parameters(), total[1:], strict=True):
                parameter.grad = gradient
            optimizer.step()
            steps.append([t.clone() for t in total])
        return steps

    return run_ranks(grid.size, work, Traffic)[0]


def _sum(ranks, tensors):
    """All-reduce by the only exchange that ranks of threads have."""
    flat = torch.cat([t.reshape(-1) for t in tensors])
    receive = flat.new_empty(ranks.size * len(flat))
    counts = [len(flat)] * ranks.size
    before = copy.copy(ranks.traffic)
    ranks.start(flat.repeat(ranks.size), counts, receive, counts)()
    ranks.traffic = before
    parts = receive.view(ranks.size, -1).sum(0).split([t.numel() for t in tensors])
    return [p.view_as(t) for p, t in zip(parts, tensors, strict=True)]


def _models() -> dict:
    """Every layer of torch-geometric on 1, 2 and 4 processes over gloo, against plain training.

    A model is supported where the proof holds on each number of processes, and silently wrong
    where loss, a gradient or the input's gradient of three steps leaves plain training although
    the proof holds.
    """
    names = constructible()
    with tempfile.TemporaryDirectory() as folder:
        by_size = [run_models(names, size, Path(folder)) for size in PROCESSES]
    names = [n for n in names if all(runs_plainly(found[n]["verdict"]) for found in by_size)]
    verdicts = {name: [found[name]["verdict"] for found in by_size] for name in names}
    errors = {n: max(found[n].get("error", 0.0) for found in by_size) for n in names}
    equal = [n for n in names if set(verdicts[n]) == {"equal"} and errors[n] <= EXACT]
    wrong = [n for n in names if errors[n] > EXACT]
    crashes = [n for n in names if any(v.startswith("crash") for v in verdicts[n])]
    proof = [found[n]["proof_ms"] for found in by_size for n in equal]
    return {
        "models_tried": len(names),
        "supported_share": len(equal) / len(names),
        "silent_wrong": len(wrong),
        "silently_wrong": wrong,
        "raw_crashes": len(crashes),
        "crashed": crashes,
        "models_max_relative": max(errors[n] for n in equal),
        "proof_ms_per_layer": float(np.median(proof)),
        "refused": {n: sorted(set(verdicts[n]) - {"equal"}) for n in names if n not in equal},
    }


def _equality(graph: Graph) -> dict:
    """Largest relative difference of loss or gradient to one rank, in float64."""
    classes = graph.num_classes
    x = normalised_features(graph, "rows", np.arange(graph.num_nodes)).numpy()
    graph = dataclasses.replace(graph, features=x[:, :EQUALITY_WIDTH])
    by_case: dict[str, float] = {}
    for kind in (GCN(), SAGE(), GAT(dropout=0.0)):
        torch.manual_seed(0)
        model = kind.build(EQUALITY_WIDTH, classes).double()
        one = _train(graph, model, np.zeros(graph.num_nodes, np.int64), ProcessGrid(1), EPOCHS)
        for grid in _grids(attention=kind.name == "gat"):
            owner = partition(weighted_adjacency(graph, "sum"), grid.size, "metis")
            many = _train(graph, model, owner, grid, EPOCHS)
            errors = [
                float((a - b).abs().max() / b.abs().max().clamp(min=1e-12))
                for step, reference in zip(many, one, strict=True)
                for a, b in zip(step, reference, strict=True)
            ]
            by_case[f"{kind.name}, P={grid.size}, {grid}"] = max(errors)
    return {"equality_max_relative": max(by_case.values()), "equality": by_case}


def _grids(*, attention: bool) -> list[ProcessGrid]:
    grids = [make_grid("1d", size) for size in (2, 4, 8)]
    if attention:
        return grids
    grids += [make_grid("1d", 4, sparse=False), make_grid("1.5d", 4, 2), make_grid("1.5d", 8, 2)]
    return [*grids, make_grid("2d", 4), make_grid("3d", 8), make_grid("3d", 8, sparse=False)]


# --- what moves -------------------------------------------------------------------------------


def _traffic(graph: Graph) -> dict:
    """Words counted while a product and its gradient run, against plan and formulas."""
    worst, compared = 0, 0
    matrix = weighted_adjacency(graph, "gcn")
    nodes, width = graph.num_nodes - graph.num_nodes % 8, 24
    even = matrix[:nodes][:, :nodes]
    for size in (2, 4, 8):
        owner = np.arange(nodes) % size
        for grid in all_grids(size):
            counted = _counted(even, owner, grid, width)
            predicted = forecast(even, owner, grid, [width], 1).words
            worst = max(worst, int(np.abs(counted - predicted).max()))
            if not grid.sparse:
                own = nodes // size * width
                formula = own * (grid.rows - 1 + grid.columns - 1)
                formula += 2 * own * (grid.slices - 1) // grid.slices
                worst = max(worst, int(np.abs(counted - 2 * formula).max()))
            compared += 1
    return {"bytes_formula_error": 4 * worst, "grids_compared": compared}


def _counted(matrix, owner, grid, width) -> np.ndarray:
    from scitoolkit.graphs.layout import LayoutBuilder
    from scitoolkit.graphs.product import Product

    builder = LayoutBuilder(matrix, owner, grid)
    layouts = [builder.build(rank) for rank in range(grid.size)]

    def work(ranks):
        layout = layouts[ranks.rank]
        x = torch.randn(len(layout.nodes), width, requires_grad=True)
        Product(layout, ranks)(x).sum().backward()
        return ranks.traffic.words

    return np.array(run_ranks(grid.size, work, Traffic))


def _partitions(power: Graph, mesh: Graph, parts: int = 4) -> dict:
    """Rows that the busiest rank receives, as a share of the broadcast's."""
    out: dict = {"partitions": {}}
    imbalances = []
    for name, graph in (("mesh", mesh), ("rmat", power)):
        pattern = weighted_adjacency(graph, "gcn")
        everything = graph.num_nodes * (parts - 1) / parts
        for method, refined in (("random", False), ("metis", False), ("metis", True)):
            owner = partition(pattern, parts, method, refined=refined)
            share = received_rows(pattern, owner, parts).max() / everything
            nonzeros = np.bincount(owner, weights=np.diff(pattern.indptr), minlength=parts)
            label = f"{name}, {method}{', refined' if refined else ''}"
            out["partitions"][label] = {
                "words_share": float(share),
                "nnz_imbalance": float(nonzeros.max() / nonzeros.mean()),
            }
        out[f"{name}_words_share"] = float(share)
        imbalances.append(float(nonzeros.max() / nonzeros.mean()))
    return {**out, "nnz_imbalance": max(imbalances)}


# --- one process ------------------------------------------------------------------------------


def _kernels(graph: Graph) -> dict:
    """Sparse product against torch's CSR (MKL), and against the bytes it cannot avoid."""
    a = weighted_adjacency(graph, "gcn")
    ours = SparseMatrix.from_csr(a.indptr, a.indices, a.data, a.shape[1])
    theirs = _torch_csr(a)
    out: dict = {"nodes": graph.num_nodes, "nnz": int(a.nnz)}
    bandwidth = _copy_bandwidth()
    for width in (16, 64, 128):
        x = torch.randn(a.shape[0], width)
        difference = (spmm(ours, x) - theirs @ x).abs().max()
        if difference > 1e-4:
            raise AssertionError(f"width {width}: the products differ by {difference}")
        calls = {"ours": lambda x=x: spmm(ours, x), "torch": lambda x=x: theirs @ x}
        times = medians(alternate(calls, rounds=7))
        out[f"spmm_speedup_{width}"] = times["torch"] / times["ours"]
        # Without reuse in the cache: index, value and a row of x a nonzero, and the result.
        moved = a.nnz * (8 + 4 * width) + 4 * width * a.shape[0]
        out[f"spmm_ms_{width}"] = 1e3 * times["ours"]
        out[f"spmm_floor_ratio_{width}"] = times["ours"] * bandwidth / moved
    out["spmm_floor_ratio"] = max(out[f"spmm_floor_ratio_{w}"] for w in (16, 64, 128))
    return out


def _torch_csr(a) -> torch.Tensor:
    return torch.sparse_csr_tensor(
        torch.from_numpy(a.indptr.astype(np.int64)),
        torch.from_numpy(a.indices.astype(np.int64)),
        torch.from_numpy(a.data),
        a.shape,
        check_invariants=False,
    )


def _copy_bandwidth() -> float:
    """Bytes per second, read and written, of one thread."""
    source = torch.zeros(1 << 26)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(5):
        begin = time.process_time()
        target.copy_(source)
        seconds.append(time.process_time() - begin)
    return 2 * source.nbytes / float(np.median(seconds))


def _epochs(graph: Graph) -> dict:
    """An epoch of GCN 128-64-16: forward, backward, Adam; torch-geometric both of its ways."""
    from torch_geometric.nn import GCNConv

    class Plain(torch.nn.Module):
        def __init__(self, **how):
            super().__init__()
            self.first = GCNConv(WIDTHS[0], WIDTHS[1], **how)
            self.second = GCNConv(WIDTHS[1], WIDTHS[2], **how)

        def forward(self, x, edges):
            return self.second(self.first(x, edges).relu(), edges)

    x, label = torch.from_numpy(graph.features), torch.from_numpy(graph.labels)
    index = torch.from_numpy(np.stack([graph.source, graph.target]))
    torch.manual_seed(0)
    by_index = Plain(cached=True)
    by_csr, ours = Plain(normalize=False), copy.deepcopy(by_index)
    by_csr.load_state_dict(by_index.state_dict())
    adjacency = _torch_csr(weighted_adjacency(graph, "gcn"))
    part = GraphPart(graph, np.zeros(graph.num_nodes, np.int64), ProcessGrid(1), SingleProcess())
    task = NodeClassification(ours, part)
    own = x[part.nodes], label[part.nodes]  # once, when a graph is loaded
    calls = {
        "ours": (task.model, None, *own),
        "csr": (by_csr, adjacency, x, label),
        "edge_index": (by_index, index, x, label),
    }
    losses: dict[str, float] = {}

    def epoch(name, optimizers={}):  # noqa: B006 - one optimizer a model, kept between calls
        model, edges, x, label = calls[name]
        optimizer = optimizers.setdefault(name, torch.optim.Adam(model.parameters()))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, edges), label)
        loss.backward()
        optimizer.step()
        losses[name] = float(loss.detach())

    times = medians(alternate({name: lambda n=name: epoch(n) for name in calls}, rounds=5))
    if max(losses.values()) - min(losses.values()) > 1e-4:
        raise AssertionError(f"the losses differ: {losses}")
    return {
        "epoch_seconds": times,
        "epoch_speedup_edge_index": times["edge_index"] / times["ours"],
        "epoch_speedup_csr": times["csr"] / times["ours"],
        **_threads(ours, x),
    }


def _attention(graph: Graph) -> dict:
    """Loss and gradients of the built-in GAT (8 heads of 8, then classes), against the same layers.

    The largest difference of a gradient is relative to the largest number of that gradient.
    """
    torch.manual_seed(0)
    theirs = GAT(dropout=0.0).build(WIDTHS[0], WIDTHS[2])
    part = GraphPart(graph, np.zeros(graph.num_nodes, np.int64), ProcessGrid(1), SingleProcess())
    ours = NodeClassification(copy.deepcopy(theirs), part).model
    x, label = torch.from_numpy(graph.features), torch.from_numpy(graph.labels)
    index = torch.from_numpy(np.stack([graph.source, graph.target]))
    calls = {
        "ours": (ours, None, x[part.nodes], label[part.nodes]),
        "torch-geometric": (theirs, index, x, label),
    }

    def epoch(name):
        model, edges, x, label = calls[name]
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(x, edges), label).backward()

    times = medians(alternate({name: lambda n=name: epoch(n) for name in calls}, rounds=3))
    error = max(
        float((a.grad - b.grad).abs().max() / b.grad.abs().max())
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)
    )
    if error > 1e-4:
        raise AssertionError(f"the gradients differ by {error}")
    return {
        "gat_epoch_seconds": times,
        "gat_gradients_max_relative": error,
        "gat_epoch_speedup": times["torch-geometric"] / times["ours"],
    }


def _threads(model, x) -> dict:
    """Wall time of a forward pass on one and on two threads; needs an idle machine."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    with torch.no_grad():
        for _ in range(7):
            for threads, found in seconds.items():
                torch.set_num_threads(threads)
                begin = time.perf_counter()
                model(x, None)
                found.append(time.perf_counter() - begin)
    torch.set_num_threads(1)
    return {"two_thread_scaling": float(np.median(seconds[1]) / np.median(seconds[2]))}


def _scaling() -> dict:
    """Wall time of an epoch on one and on two processes, alternating; needs an idle machine."""
    importable()
    os.environ["OMP_NUM_THREADS"] = "1"
    seconds: dict[int, list[float]] = {1: [], 2: []}
    losses = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            for ranks, found in seconds.items():
                path = Path(folder) / "record.json"
                if launch(ranks, [str(path), "5"], module="_graph_epochs"):
                    raise AssertionError(f"{ranks} processes failed")
                record = json.loads(path.read_text())
                found.append(record["seconds"])
                losses.append(record["loss"])
    if max(losses) - min(losses) > 1e-4 * abs(losses[0]):
        raise AssertionError(f"losses differ: {losses}")
    return {
        "two_process_scaling": min(seconds[1]) / min(seconds[2]),
        "process_seconds": {str(k): v for k, v in seconds.items()},
    }


# --- larger than a process --------------------------------------------------------------------


def _stored(edges: Path, memory: int, method: str = "auto") -> dict:
    """Partition in a process apart, so that its memory and transfers are those of the work."""
    importable()
    with tempfile.TemporaryDirectory(dir=edges.parent) as folder:
        record = Path(folder) / "record.json"
        arguments = ["partition", edges, Path(folder) / "parts", memory, method, record]
        if launch(1, [str(a) for a in arguments], module="_graph_stored"):
            raise AssertionError(f"no partition of {edges.name}")
        return json.loads(record.read_text())


def _stored_power_law() -> dict:
    """An R-MAT of 100 million edges, partitioned within a GiB."""
    with tempfile.TemporaryDirectory() as folder:
        edges = Path(folder) / "rmat.npy"
        write_rmat(edges, 22, 100_000_000)
        found = _stored(edges, 1024)
    return {f"partition_{name}": value for name, value in found.items()}


def _stored_mesh() -> dict:
    """Meshes numbered by rows and at random, in too little memory for METIS, against METIS."""
    ratios, cuts = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for shuffled in (False, True):
            edges = Path(folder) / "mesh.npy"
            write_mesh(edges, MESH_SIDE, shuffled=shuffled)
            found = {m: _stored(edges, 64, m) for m in ("auto", "metis")}
            if found["auto"]["method"] == "metis":
                raise AssertionError("METIS fits: the mesh is too small")
            ratios.append(found["auto"]["cut"] / found["metis"]["cut"])
            name = "shuffled" if shuffled else "by rows"
            cuts[name] = {m: each["cut"] for m, each in found.items()}
    return {"mesh_cut_over_metis": max(ratios), "mesh_cuts": cuts}


def _training_peak() -> dict:
    """The largest of (peak - 300 MiB) / share over four processes that train from their parts."""
    importable()
    with tempfile.TemporaryDirectory() as folder:
        edges, parts = Path(folder) / "mesh.npy", Path(folder) / "parts"
        write_mesh(edges, MESH_SIDE, shuffled=False)
        r, nodes = np.random.default_rng(0), MESH_SIDE**2
        labels = r.integers(_graph_stored.WIDTHS[-1], size=nodes)
        x = r.standard_normal((nodes, _graph_stored.WIDTHS[0]), dtype=np.float32)
        np.savez(Path(folder) / "nodes.npz", x=x, y=labels, train=np.arange(nodes))
        partition_edges(edges, parts, _graph_stored.PARTS, nodes=Path(folder) / "nodes.npz")
        del x
        if launch(_graph_stored.PARTS, ["train", str(parts), folder], module="_graph_stored"):
            raise AssertionError("training from parts failed")
        found = [
            json.loads((Path(folder) / f"{rank}.json").read_text())
            for rank in range(_graph_stored.PARTS)
        ]
    ratio = max((each["peak_mib"] - BASE_MIB) / each["share_mib"] for each in found)
    return {"training_peak_over_share": ratio, "training_memory": found}


# --- accuracy ---------------------------------------------------------------------------------


def _cora(graph: Graph) -> dict:
    """Test accuracy of the workflow's GCN over seeds."""
    accuracies = []
    for seed in range(SEEDS):
        part = GraphPart(
            graph, np.zeros(graph.num_nodes, np.int64), ProcessGrid(1), SingleProcess()
        )
        x = normalised_features(graph, "rows", part.nodes.numpy())
        loaders = {
            name: PartLoader(x, part.nodes, graph.labels, nodes)
            for name, nodes in graph.parts.items()
        }
        torch.manual_seed(seed)
        model = GCN().build(x.shape[1], graph.num_classes)
        config = GraphTrainingConfig(
            epochs=200,
            seed=seed,
            progress=False,
            optimizer={"name": "adam", "lr": 0.01, "weight_decay": 5e-4},
        )
        trainer = Trainer(NodeClassification(model, part, seed), config)
        trainer.fit(loaders["train"], loaders["validation"])
        trainer.load_best()
        accuracies.append(trainer.validate(loaders["test"])["accuracy"])
    return {
        "cora_accuracy_mean": float(np.mean(accuracies)),
        "cora_accuracy_deviation": float(np.std(accuracies, ddof=1)),
        "cora_accuracies": accuracies,
    }


def _rollout() -> dict:
    """The shipped surrogate on newly generated trajectories, on seen and unseen meshes."""
    folder = content_root("datasets") / "mesh_diffusion"
    maker = MeshTracer(meshes=folder, trajectories=3)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "mesh.h5"
        with h5py.File(path, "w") as file:
            meshes = [*sorted(folder.glob("*.json")), *sorted(folder.glob("*.msh"))]
            for number, name in enumerate(meshes):
                arrays = maker.simulate(load_mesh(name), seed=1000 + number)[0]
                for key, values in arrays.items():
                    file.create_dataset(f"{name.stem}/{key}", data=values)
        metrics = api.evaluate("surrogates/mesh_diffusion", path).metrics
    return {key: value for key, value in metrics.items() if "ratio" in key}
