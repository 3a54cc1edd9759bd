"""Models of the catalogue on several processes: `python -m _graph_ranks OUT NAME...`, by `launch`.

Rank 0 appends one JSON line per model to OUT: the result of the equivalence check, and the
differences of loss, gradients and the input's gradient from the plain model over three steps.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from _graph_models import WIDTH, Between, Called, catalogue, random_graph
from _graph_user_models import user_models
from _places import importable
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.adapter import detach, distribute, use_whole_graph
from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.proof import Proof, prove
from scitoolkit.graphs.random_rules import by_position
from scitoolkit.training.launch import launch, leave
from scitoolkit.training.ranks.collectives import SumOverRanks
from scitoolkit.training.ranks.communicator import Communicator, SingleProcess, join

STEPS = 3
PATIENCE = timedelta(seconds=60)  # a rank that waits longer for another has lost it
FLOOR = 1e-4  # of the largest number: what is zero but for rounding has no scale
SHARES = {1: [1.0], 2: [0.7, 0.3], 4: [0.4, 0.3, 0.2, 0.1]}
DROPOUT = ("dropout", "dropout_", "dropout1d", "alpha_dropout")


def run_models(names: list[str], size: int, folder: Path) -> dict[str, dict]:
    """Run models one after the other on `size` processes; an ended process counts as a crash."""
    importable()
    found: dict[str, dict] = {}
    out = folder / f"ranks{size}.jsonl"
    while left := [name for name in names if name not in found]:
        out.unlink(missing_ok=True)
        code = launch(size, [str(out), *left], module="_graph_ranks")
        lines = out.read_text().splitlines() if out.exists() else []
        found |= {record["name"]: record for record in map(json.loads, lines)}
        if code:
            lost = next(name for name in left if name not in found)
            found[lost] = {"name": lost, "verdict": f"crash: processes ended with {code}"}
    return found


def main() -> None:
    out, names = Path(sys.argv[1]), sys.argv[2:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    if int(os.environ["WORLD_SIZE"]) > 1:
        dist.init_process_group("gloo", timeout=PATIENCE)
    ranks = join()
    makers = {n: functools.partial(_called, make) for n, make in catalogue()} | user_models()
    for name in names:
        record = {"name": name, **_record(makers[name], ranks)}
        if ranks.rank == 0:
            with out.open("a") as file:
                file.write(json.dumps(record) + "\n")


def _called(make) -> nn.Module:
    """Return a layer of the catalogue, called with the inputs that it reads."""
    model = make()
    return model if isinstance(model, Between) else Called(model)


def _record(make, ranks: Communicator) -> dict:
    """Prove and train; an error on one rank alone ends the processes."""
    torch.manual_seed(0)
    model = make().double()
    graph = random_graph(model)
    shares = SHARES[ranks.size]
    owner = np.random.default_rng(5).choice(ranks.size, graph.num_nodes, p=shares)
    part = GraphPart(graph, owner, ProcessGrid(ranks.size), ranks)
    try:
        proof: Proof = prove(model, part)
    except ConfigError as error:
        return {"verdict": f"refused: {error}"}
    layers = sum(hasattr(m, "propagate") for m in model.modules())
    begin = {name: value.clone() for name, value in model.state_dict().items()}
    whole = GraphPart(graph, owner * 0, ProcessGrid(1), SingleProcess())
    if proof.unchanged:
        try:
            steps(_Plain(_OnWholeGraph(model, graph, whole)), whole)
        except Exception as error:  # whatever a layer of the library raises without being ours
            return {"verdict": f"{type(error).__name__}: {error}, not distributed"}
        model.load_state_dict(begin)
        ours = _Plain(use_whole_graph(model, part))
    else:
        ours = distribute(
            model, part, proof.fast, whole=proof.whole, check_seed=0, sites=proof.sites
        )
    recorded = steps(ours, part)
    error = 0.0
    if ranks.rank == 0:
        detach(model).load_state_dict(begin)
        error = _difference(recorded, steps(_Plain(_OnWholeGraph(model, graph, whole)), whole))
    return {"verdict": "equal", "error": error, "proof_ms": 1e3 * proof.seconds / max(1, layers)}


class _RowNumbers(TorchFunctionMode):
    """Random numbers by the position of their row and without dropout, as in the check."""

    def __init__(self) -> None:
        super().__init__()
        self._draws = itertools.count(1)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in DROPOUT:
            return args[0]
        return by_position(lambda: next(self._draws), func, name, args, kwargs or {})


class _Plain(nn.Module):
    """A model whose random numbers are those of `distribute` with `check_seed`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        with _RowNumbers():
            return self.model(x)


class _OnWholeGraph(nn.Module):
    """The model on the whole graph by torch-geometric alone, called as `distribute`'s is."""

    def __init__(self, model: nn.Module, graph: Graph, part: GraphPart) -> None:
        super().__init__()
        self.model = model
        self.back = torch.empty_like(part.nodes)
        self.back[part.nodes] = torch.arange(len(part.nodes))
        self.nodes = part.nodes
        self.pair = torch.from_numpy(np.stack([graph.source, graph.target]))
        names = ("edge_weight", "edge_attr")
        given = {name: getattr(graph, name) for name in names}
        self.given = {n: torch.from_numpy(a).double() for n, a in given.items() if a is not None}

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x[self.back], self.pair, **self.given)[self.nodes]


def steps(model: nn.Module, part: GraphPart) -> list[Tensor]:
    """Loss, the input's gradient and every parameter's of steps of gradient descent."""
    graph, ranks = part.graph, part.ranks
    weight = torch.sin(torch.arange(graph.num_nodes, dtype=torch.float64))[part.nodes]
    x = torch.from_numpy(graph.features)[part.nodes].double().requires_grad_()
    recorded: list[Tensor] = []
    torch.manual_seed(1)
    for _ in range(STEPS):
        model.zero_grad()
        x.grad = None
        out = model(x)
        loss = (out.reshape(len(x), -1).sin().sum(1) * weight).sum() / graph.num_nodes
        loss.backward()
        with torch.no_grad():
            rows = torch.zeros(graph.num_nodes, WIDTH, dtype=torch.float64)
            rows[part.nodes] = torch.zeros_like(x) if x.grad is None else x.grad
            recorded += [SumOverRanks.apply(t, ranks) for t in (loss.detach(), rows)]
            for p in model.parameters():
                grad = torch.zeros_like(p) if p.grad is None else p.grad
                recorded.append(SumOverRanks.apply(grad, ranks))
                p -= 0.01 * recorded[-1]
    return recorded


def _difference(ours: list[Tensor], plain: list[Tensor]) -> float:
    largest = max(float(t.abs().max()) for t in plain if t.numel())
    errors = []
    for a, b in zip(ours, plain, strict=True):
        if b.numel():
            scale = max(float(b.abs().max()), FLOOR * largest, 1e-300)
            errors.append(float((a - b).abs().max()) / scale)
    return max(e if np.isfinite(e) else float("inf") for e in errors)


if __name__ == "__main__":
    main()
    leave(0)
