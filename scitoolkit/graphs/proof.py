"""Equivalence check at start: the distributed model equals the plain model on a small graph.

The graph has unequal parts, self-loops, duplicate edges, directed edges and an isolated node. The
distributed model runs on simulated ranks, which execute the code of real ranks as threads, so a
failing rank ends the others at once, and every process gets the same result.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from logging import Logger
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.log import get_logger
from scitoolkit.graphs.adapter import detach, distribute, edge_inputs
from scitoolkit.graphs.fast_layers import fast_forward
from scitoolkit.graphs.graph import Graph, GraphInputs
from scitoolkit.graphs.grid import Grid
from scitoolkit.graphs.part import GraphPart, Part
from scitoolkit.training.ranks.collectives import gather_counts
from scitoolkit.training.ranks.communicator import Communicator, SingleProcess
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic

log: Logger = get_logger(__name__)

NODES, EDGES = 41, 160
LIMIT = 1e-10  # relative error in float64
FLOOR = 1e-4  # of the largest number: a gradient that is zero up to rounding has no scale
_EXCLUSIVE = threading.Lock()  # the default dtype and generator belong to the whole process


@dataclass
class Trace:
    """Recorded results of one run of a model.

    Attributes:
        outputs: (module name, output) in the order in which modules return.
        tensors: loss and gradients of parameters by name, summed over ranks.
        rows: outputs and the input's gradient, by node.
        buffers: running statistics and other buffers, equal on all ranks.
        inside: stack of the running modules, innermost last.
        error: the exception that the run raised, or None.
    """

    outputs: list[tuple[str, Tensor]] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    rows: dict[str, Tensor] = field(default_factory=dict)
    buffers: dict[str, Tensor] = field(default_factory=dict)
    inside: list[str] = field(default_factory=list)
    error: Exception | None = None


@dataclass(frozen=True)
class Proof:
    """Result of a successful check.

    Attributes:
        fast: names of the layers that may run as sparse products.
        ranks: number of simulated ranks.
        error: largest relative difference in float64.
        seconds: duration of the check.
    """

    fast: tuple[str, ...]
    ranks: int
    error: float
    seconds: float


def prove(model: nn.Module, part: Part) -> Proof:
    """Compare a model on simulated ranks with the plain model: loss, gradients, outputs, buffers.

    Args:
        model: called with (x, edge_index), returns one row per node; not modified.
        part: part of the real graph; a grid of the same kind, at most as large, is simulated.

    Returns:
        The result, equal on all ranks.

    Raises:
        ConfigError: the distributed model differs; names the first module that does. Raised on all
            ranks.
    """
    begin = time.perf_counter()
    failure: ConfigError | None = None
    with _EXCLUSIVE, _float64():
        try:
            fast, size, off = _prove(model, part)
        except ConfigError as refusal:
            failure = refusal
    if any(gather_counts(part.ranks, int(failure is not None))) and failure is None:
        failure = ConfigError("the model differs on another process", where="model")
    if failure is None:
        failure = _without_edges(model, part, fast)
    if failure is not None:
        raise failure
    seconds = time.perf_counter() - begin
    log.info("model checked on %d rank(s): largest difference %.1e, %.2f s", size, off, seconds)
    return Proof(fast, size, off, seconds)


def _without_edges(model: nn.Module, part: Part, fast: tuple[str, ...]) -> ConfigError | None:
    """Return an error if a rank has no edges: layers derive the number of nodes from edge_index."""
    edges = gather_counts(part.ranks, part.num_edges)
    layers = [n for n, m in model.named_modules() if hasattr(m, "propagate") and n not in fast]
    if part.ranks.size == 1 or min(edges) > 0 or not layers:
        return None
    return ConfigError(
        f"process {edges.index(0)} has no edges, and {layers[0]} is not a sparse product",
        where="graph.partition",
        allowed="edges on every process",
        fix="fewer processes",
    )


def attach(model: nn.Module, part: Part) -> nn.Module:
    """Make a model run on this process's part of the graph, after checking its equivalence.

    Call the model with the features of local nodes; it uses the edges of the part and ignores the
    given ones.

    Args:
        model: any torch-geometric model; modified in place, and restored by `detach`.
        part: this process's part.

    Raises:
        ConfigError: the model differs from the plain one on several processes.
    """
    return distribute(model, part, prove(model, part).fast)


def _prove(model: nn.Module, part: Part) -> tuple[tuple[str, ...], int, float]:
    graph = proof_graph(part.inputs)
    grid = _small(part.grid)
    plain = detach(_double(model))
    reference, fast = _plain(plain, graph)
    if reference.error is not None:
        raise _refused(reference.inside, reference.error, 1)
    owner = _owners(grid.size)
    # First with sparse products; if these differ, without any.
    problem, off = _compare(model, graph, owner, grid, fast, reference)
    if problem is not None and fast and part.has_whole_rows:
        fast = ()
        problem, off = _compare(model, graph, owner, grid, fast, reference)
    if problem is not None:
        raise problem
    return fast, grid.size, off


def _small(grid: Grid) -> Grid:
    """Return a smaller grid of the same kind, for the simulation."""
    rows = grid.rows if grid.size <= 4 else min(grid.rows, 3 if grid.size == grid.rows else 2)
    return Grid(rows, min(grid.columns, 3), min(grid.slices, 2), grid.sparse)


def _owners(size: int) -> np.ndarray:
    """Return a random partition in which the size of part r is proportional to r + 1."""
    share = np.arange(1, size + 1) / (size * (size + 1) / 2)
    owner = np.searchsorted(np.cumsum(share), (np.arange(NODES) + 0.5) / NODES)
    return np.random.default_rng(3).permutation(np.minimum(owner, size - 1))


def proof_graph(inputs: GraphInputs) -> Graph:
    """Return the small graph of the check, with inputs of the given shapes."""
    r = np.random.default_rng(1)
    # The last node is isolated, one node has two self-loops, one edge is duplicated.
    source, target = r.integers(NODES - 1, size=(2, EDGES))
    source[:2], target[:2] = 5, 5
    source[2:4], target[2:4] = 7, 9
    order = np.lexsort((source, target))
    graph = Graph(
        source[order],
        target[order],
        NODES,
        np.zeros((NODES, 1), np.float32),
    )
    graph.features = r.normal(size=(NODES, inputs.num_features))
    if inputs.edge_weight:
        graph.edge_weight = r.uniform(0.5, 1.5, EDGES)
    if inputs.edge_attr is not None:
        graph.edge_attr = r.normal(size=(EDGES, *inputs.edge_attr))
    return graph


def _double(model: nn.Module) -> nn.Module:
    attached = model.__dict__.pop("forward", None)
    try:
        return copy.deepcopy(model).to("cpu", torch.float64).train()
    finally:
        if attached is not None:
            model.forward = attached


class _NoDropout(TorchFunctionMode):
    """Mode that disables dropout."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name in ("dropout", "dropout_"):
            return args[0] if args else kwargs["input"]
        if "dropout_p" in kwargs:
            kwargs["dropout_p"] = 0.0
        elif name == "multi_head_attention_forward":
            args = (*args[:10], 0.0, *args[11:])
        elif name == "scaled_dot_product_attention" and len(args) > 4:
            args = (*args[:4], 0.0, *args[5:])
        return func(*args, **kwargs)


def _plain(model: nn.Module, graph: Graph) -> tuple[Trace, tuple[str, ...]]:
    """Run the plain model, and determine which layers equal their sparse form."""
    calls: dict[str, tuple[Any, ...]] = {}
    for name, module in model.named_modules():
        if fast_forward(module) is not None:
            module.register_forward_hook(_recorder(calls, name))
    pair = torch.from_numpy(np.stack([graph.source, graph.target]))
    given = {n: torch.from_numpy(getattr(graph, n)) for n in edge_inputs(model, graph.inputs)}
    nodes = torch.arange(graph.num_nodes)

    def call(x: Tensor) -> Any:
        with _NoDropout():
            return model(x, pair, **given)

    trace = _trace(model, call, graph, nodes)
    part = GraphPart(graph, np.zeros(NODES, np.int64), Grid(1), SingleProcess())
    fast = tuple(name for name in calls if _is_exact(model, name, calls[name], part))
    return trace, fast


def _recorder(calls: dict[str, tuple[Any, ...]], name: str) -> Any:
    def record(module: nn.Module, args: Any, out: Any) -> None:
        calls.setdefault(name, (args, out))

    return record


def _is_exact(model: nn.Module, name: str, call: tuple[Any, ...], part: GraphPart) -> bool:
    """Return whether a layer's sparse form reproduces the recorded output."""
    (args, out), layer = call, model.get_submodule(name)
    x = args[0] if args else None
    form = fast_forward(layer)
    if form is None or not isinstance(x, Tensor) or any(a is not None for a in args[2:]):
        return False
    try:
        with torch.no_grad():
            ours = form(layer, part, x[part.nodes])
            return _error(ours, out[part.nodes], float(out.abs().max())) < LIMIT
    except (RuntimeError, AttributeError, ValueError):
        return False


def _trace(model: nn.Module, call: Any, graph: Graph, nodes: Tensor) -> Trace:
    """Run a model with a loss, and record the results."""
    trace = Trace()
    names = {module: name or "(the model itself)" for name, module in model.named_modules()}

    def enter(module: nn.Module, args: Any) -> None:
        trace.inside.append(f"{names[module]} ({type(module).__name__})")

    def leave(module: nn.Module, args: Any, out: Any) -> None:
        name = trace.inside.pop()
        if isinstance(out, Tensor):
            trace.outputs.append((name, out.detach().clone()))

    for module in names:
        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)
    x = torch.from_numpy(graph.features)[nodes].requires_grad_()
    try:
        torch.manual_seed(0)
        out = call(x)
        _need_rows(out, len(nodes))
        weight = torch.randn(NODES, out[0].numel(), generator=torch.Generator().manual_seed(2))
        loss = (out.reshape(len(nodes), -1) * weight[nodes]).sum()
        loss.backward()
        model.eval()
        with torch.no_grad():
            evaluated = call(x)
    except threading.BrokenBarrierError:
        raise
    except Exception as error:  # a user's model may raise anything; reported with the module
        trace.error = error
        return trace
    trace.tensors["loss"] = loss.detach()
    for name, p in model.named_parameters():
        trace.tensors[f"gradient of {name}"] = torch.zeros_like(p) if p.grad is None else p.grad
    trace.rows = {
        "output": out.detach(),
        "gradient of the input": _grad(x),
        "output in eval": evaluated.detach(),
    }
    trace.buffers = {n: b.clone() for n, b in model.named_buffers() if b.is_floating_point()}
    return trace


def _grad(x: Tensor) -> Tensor:
    return torch.zeros_like(x) if x.grad is None else x.grad


def _need_rows(out: Any, rows: int) -> None:
    if not isinstance(out, Tensor) or out.dim() == 0 or len(out) != rows:
        found = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ConfigError(
            f"the model returns {found}", where="model", allowed=f"{rows} rows, one per node"
        )
    if not out.is_floating_point():
        raise ConfigError(f"the model returns {out.dtype}", where="model", allowed="real numbers")


def _compare(
    model: nn.Module, graph: Graph, owner: np.ndarray, grid: Grid, fast: Any, reference: Trace
) -> tuple[ConfigError | None, float]:
    """Run on simulated ranks; return an error or None, and the largest difference."""
    failed: list[tuple[Trace, Exception]] = []

    def work(ranks: Communicator) -> tuple[Trace, Tensor]:
        part = GraphPart(graph, owner, grid, ranks)
        distributed = distribute(_double(model), part, fast, dropout=False)
        trace = _trace(distributed, distributed, graph, part.nodes)
        if trace.error is not None:
            failed.append((trace, trace.error))
            raise trace.error
        return trace, part.nodes

    try:
        done = run_ranks(grid.size, work, Traffic)
    except threading.BrokenBarrierError:
        return _refusal([], "the ranks deadlock", grid.size), np.inf
    except Exception:
        if not failed:
            raise
        trace, error = failed[0]
        return _refused(trace.inside, error, grid.size), np.inf
    errors = _errors(done, reference)
    worst = max(errors, key=lambda name: errors[name])
    if errors[worst] < LIMIT:
        return None, errors[worst]
    what = f"{worst} is {errors[worst]:.1e} off that of the plain model"
    return _refusal([_first_difference(done, reference)], what, grid.size), errors[worst]


def _errors(done: list[tuple[Trace, Tensor]], reference: Trace) -> dict[str, float]:
    """Return relative differences of sums over ranks, of rows by node and of buffers."""
    largest = max(
        float(t.abs().max())
        for t in (*reference.tensors.values(), reference.rows["output"])
        if t.numel()
    )
    errors = {}
    for name, wanted in reference.tensors.items():
        total = torch.stack([trace.tensors[name] for trace, _ in done]).sum(0)
        errors[name] = _error(total, wanted, largest)
    for name, wanted in reference.rows.items():
        errors[name] = max(
            _error(trace.rows[name], wanted[nodes], largest) for trace, nodes in done
        )
    for name, wanted in reference.buffers.items():
        errors[f"buffer {name}"] = max(
            _error(trace.buffers[name], wanted, largest) for trace, _ in done
        )
    return errors


def _error(found: Tensor, wanted: Tensor, largest: float) -> float:
    if found.shape != wanted.shape:
        return np.inf
    if not wanted.numel():
        return 0.0
    scale = max(float(wanted.abs().max()), FLOOR * largest, 1e-300)
    difference = float((found - wanted).abs().max()) / scale
    return difference if np.isfinite(difference) else np.inf


def _first_difference(done: list[tuple[Trace, Tensor]], reference: Trace) -> str:
    for number, (name, wanted) in enumerate(reference.outputs):
        for trace, nodes in done:
            if number >= len(trace.outputs) or trace.outputs[number][0] != name:
                return name
            own = trace.outputs[number][1]
            here = wanted[nodes] if len(wanted) == NODES else wanted
            if own.shape == here.shape and _error(own, here, float(wanted.abs().max())) >= LIMIT:
                return name
    return ""


def _refused(inside: list[str], error: Exception, ranks: int) -> ConfigError:
    """Return the error for a model that raises on the small graph."""
    if isinstance(error, ConfigError):
        return _refusal(inside, error.what, ranks, error.allowed, error.fix)
    message = str(error).splitlines()[0][:200] if str(error) else ""
    what = f"{type(error).__name__}: {message}"
    if ranks > 1:
        return _refusal(inside, what, ranks)
    graph = f"on a graph of {NODES} nodes and {EDGES} edges, not distributed"
    return _refusal(inside, f"{what}, {graph}", 1, fix="a model that runs on a graph of any size")


def _refusal(
    inside: list[str], what: str, ranks: int, allowed: str = "", fix: str = "train on one process"
) -> ConfigError:
    module = f"module {inside[-1]}: " if inside and inside[-1] else ""
    on = f", on {ranks} simulated ranks" if ranks > 1 else ""
    return ConfigError(f"{module}{what}{on}", where="model", allowed=allowed, fix=fix)


@contextmanager
def _float64() -> Iterator[None]:
    """Return a context with default dtype float64 and gradients; restores the random state."""
    dtype, state = torch.get_default_dtype(), torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_rng_state(state)
