"""Equivalence check at start: the distributed model equals the plain model on a small graph.

The graph has unequal parts, self-loops, duplicate edges, directed edges and an isolated node. The
distributed model runs on simulated ranks, which execute the code of real ranks as threads, so a
failing rank ends the others at once, and every process gets the same result.

A model may take another path on the real graph than on the small one. Where the real graph is small
enough, rank 0 therefore compares the models on it as well, with its partition.
"""

from __future__ import annotations

import copy
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from logging import Logger
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.log import get_logger
from scitoolkit.core.seeds import rng_state, seed_everything, set_rng_state
from scitoolkit.graphs.adapter import detach, distribute, named_inputs, use_whole_graph
from scitoolkit.graphs.call_sites import CallSites
from scitoolkit.graphs.fast_layers import fast_forward
from scitoolkit.graphs.graph import Graph, GraphInputs
from scitoolkit.graphs.grid import Grid
from scitoolkit.graphs.part import GraphPart, Part
from scitoolkit.graphs.random_rules import by_position
from scitoolkit.graphs.recomputation import repeated_by
from scitoolkit.training.ranks.collectives import gather_counts
from scitoolkit.training.ranks.communicator import Communicator, SingleProcess
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic

log: Logger = get_logger(__name__)

NODES, EDGES = 41, 160
LIMIT = 1e-10  # relative error in float64
OTHER_SEEDS = 3  # with which a model that draws random numbers is compared again
REAL_GRAPH = 400_000  # nodes and edges up to which the real graph is compared as well
_EXCLUSIVE = threading.Lock()  # the default dtype and generator belong to the whole process


@dataclass(frozen=True)
class _Precision:
    """Precision of the comparison.

    Attributes:
        dtype: floating-point type of parameters and inputs.
        limit: largest allowed relative difference.
        floor: share of the largest number below which a number has no scale, such as a gradient
            that is zero up to rounding.
    """

    dtype: torch.dtype
    limit: float
    floor: float

    @contextmanager
    def as_default(self) -> Iterator[None]:
        """Return a context in which it is torch's default."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


_DOUBLE = _Precision(torch.float64, LIMIT, 1e-4)
_SINGLE = _Precision(torch.float32, 1e-3, 1e-2)  # for models that compute in float32 in any case


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
        drew: whether the run changed the state of a random generator.
    """

    outputs: list[tuple[str, Tensor]] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    rows: dict[str, Tensor] = field(default_factory=dict)
    buffers: dict[str, Tensor] = field(default_factory=dict)
    inside: list[str] = field(default_factory=list)
    error: Exception | None = None
    drew: bool = False


@dataclass(frozen=True)
class Proof:
    """Result of a successful check.

    Attributes:
        fast: names of the layers that may run as sparse products.
        ranks: number of simulated ranks.
        error: largest relative difference, in float64 if the model runs in it.
        seconds: duration of the check.
        unchanged: whether the model runs on the whole graph without any change, on one process,
            because it could not be checked.
        sites: places in the user's code that the check reached, to which the model is held; None
            if it was compared on the real graph.
    """

    fast: tuple[str, ...]
    ranks: int
    error: float
    seconds: float
    unchanged: bool = False
    sites: CallSites | None = None

    def attach(self, model: nn.Module, part: Part) -> nn.Module:
        """Make the model run on this process's part; return it."""
        if self.unchanged:
            return use_whole_graph(model, part)
        return distribute(model, part, self.fast, sites=self.sites)


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
    _materialise(model, part.inputs)
    with _EXCLUSIVE, _random_state_restored():
        try:
            proof = _prove(model, part)
        except ConfigError as error:
            failure = error
    if any(gather_counts(part.ranks, int(failure is not None))) and failure is None:
        failure = ConfigError("the model differs on another process", where="model")
    if failure is None:
        failure = _without_edges(model, part, proof.fast)
    seconds = time.perf_counter() - begin
    if failure is not None:
        if part.grid.size > 1 or not isinstance(failure, _Unproven):
            raise failure
        log.warning("the model runs on one process only: %s", failure.what)
        return Proof((), 1, 0.0, seconds, unchanged=True)
    off, size = proof.error, proof.ranks
    log.info("model checked on %d rank(s): largest difference %.1e, %.2f s", size, off, seconds)
    return replace(proof, seconds=seconds)


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
    return prove(model, part).attach(model, part)


def _materialise(model: nn.Module, inputs: GraphInputs) -> None:
    """Create parameters whose shape follows from the first input, before the model is copied."""
    if not any(is_lazy(p) for p in (*model.parameters(), *model.buffers())):
        return
    modes = [(module, module.training) for module in model.modules()]
    graph = proof_graph(inputs)
    pair = torch.from_numpy(np.stack([graph.source, graph.target]))
    dtype = torch.get_default_dtype()
    rest = {n: _tensor(getattr(graph, n), dtype) for n in named_inputs(model, graph.inputs)}
    with torch.no_grad():
        model.eval()(torch.from_numpy(graph.features).to(dtype), pair, **rest)
    for module, training in modes:
        module.training = training


def _prove(model: nn.Module, part: Part) -> Proof:
    grid = _small(part.grid)
    owner = _owners(grid.size)
    model = _copied(model)
    refusal: ConfigError | None = None
    for precision, graph in _attempts(part):
        with precision.as_default():
            check = _Check(model, precision)
            reference, fast = check.plain(graph)
            if reference.error is not None:
                refusal = refusal or _refused(reference.inside, reference.error, 1)
                continue
            # First with sparse products; if these differ, without any.
            problem, off = check.compare(graph, owner, grid, fast, reference)
            if problem is not None and fast and part.has_whole_rows:
                fast = ()
                problem, off = check.compare(graph, owner, grid, fast, reference)
            # Random numbers may choose another path in each pass.
            for seed in range(1, OTHER_SEEDS + 1) if reference.drew else ():
                if problem is None:
                    other, _ = check.plain(graph, seed=seed)
                    problem, _ = check.compare(graph, owner, grid, fast, other, seed=seed)
            real = check.real_graph(part)
            if problem is None and part.ranks.rank == 0 and real is not None:
                assert isinstance(part, GraphPart)
                problem = check.compare_on_real_graph(part, real, fast)
        if problem is not None:
            raise problem
        check.sites.closed = True
        held = part.ranks.size > 1 and real is None
        return Proof(fast, grid.size, off, 0.0, sites=check.sites if held else None)
    assert refusal is not None
    raise refusal


def _attempts(part: Part) -> Iterator[tuple[_Precision, Graph]]:
    """Yield precisions and small graphs for the check; the first with which the model runs counts.

    A model may compute in float32 in any case, or read its features as numbers of classes.
    """
    graphs = [proof_graph(part.inputs)]
    if isinstance(part, GraphPart) and part.num_nodes:
        rows = np.linspace(0, part.num_nodes - 1, NODES).astype(np.int64)
        graphs.append(proof_graph(part.inputs, part.graph.dense_features(rows)))
    for graph in graphs:
        yield _DOUBLE, graph
        yield _SINGLE, graph


def _small(grid: Grid) -> Grid:
    """Return a smaller grid of the same kind, for the simulation."""
    rows = grid.rows if grid.size <= 4 else min(grid.rows, 3 if grid.size == grid.rows else 2)
    return Grid(rows, min(grid.columns, 3), min(grid.slices, 2), grid.sparse)


def _owners(size: int) -> np.ndarray:
    """Return a random partition in which the size of part r is proportional to r + 1."""
    share = np.arange(1, size + 1) / (size * (size + 1) / 2)
    owner = np.searchsorted(np.cumsum(share), (np.arange(NODES) + 0.5) / NODES)
    return np.random.default_rng(3).permutation(np.minimum(owner, size - 1))


def proof_graph(inputs: GraphInputs, features: np.ndarray | None = None) -> Graph:
    """Return the small graph of the check, with inputs of the given shapes.

    Args:
        inputs: shapes of node and edge inputs.
        features: features of its nodes, shape (NODES, F); None for normal random numbers.
    """
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
    if features is not None:
        graph.features = features
    if inputs.edge_weight:
        graph.edge_weight = r.uniform(0.5, 1.5, EDGES)
    if inputs.edge_attr is not None:
        graph.edge_attr = r.normal(size=(EDGES, *inputs.edge_attr))
    if inputs.edge_types:
        graph.edge_type = r.permutation(np.arange(EDGES) % inputs.edge_types)
        graph.edge_type[-1] = inputs.edge_types - 1
    if inputs.node_types:
        graph.node_type = r.permutation(np.arange(NODES) % inputs.node_types)
        graph.node_type[-1] = inputs.node_types - 1
        graph.types_in_features = inputs.types_in_features
    if inputs.dimensions:
        graph.pos = r.normal(size=(NODES, inputs.dimensions))
    return graph


def _copied(model: nn.Module) -> nn.Module:
    """Return a copy on the CPU, without the forward method of `distribute`."""
    attached = model.__dict__.pop("forward", None)
    # Tensors computed from parameters, as by weight_norm, cannot be deep-copied.
    computed = {
        id(value): value.detach().clone()
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    try:
        return copy.deepcopy(model, computed).to("cpu")
    finally:
        if attached is not None:
            model.forward = attached


class _NoDropout(TorchFunctionMode):
    """Mode that disables dropout; other random numbers are those of the position of their row."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed, self.draws = seed, 0

    def _next_draw(self) -> int:
        self.draws += 1
        return self._seed * 1_000_003 + self.draws

    def repeat(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs another one in this mode, in the backward pass."""

        draws = self.draws

        def again(*args: Any, **kwargs: Any) -> Any:
            before, self.draws = self.draws, draws
            try:
                with self:
                    return function(*args, **kwargs)
            finally:
                self.draws = before

        return again

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name in ("dropout", "dropout_", "dropout1d", "alpha_dropout"):
            return args[0] if args else kwargs["input"]
        if "dropout_p" in kwargs:
            kwargs["dropout_p"] = 0.0
        elif name == "multi_head_attention_forward":
            args = (*args[:10], 0.0, *args[11:])
        elif name == "scaled_dot_product_attention" and len(args) > 4:
            args = (*args[:4], 0.0, *args[5:])
        return by_position(self._next_draw, func, name, args, kwargs)


def _plain(
    model: nn.Module,
    graph: Graph,
    precision: _Precision,
    *,
    gradients: bool = True,
    seed: int = 0,
) -> tuple[Trace, tuple[str, ...]]:
    """Run the plain model, and determine which layers equal their sparse form."""
    calls: dict[str, tuple[Any, Any]] = {}
    for name, module in model.named_modules():
        if fast_forward(module) is not None:
            module.register_forward_hook(_recorder(calls, name))
    pair = torch.from_numpy(np.stack([graph.source, graph.target]))
    given = {
        n: _tensor(getattr(graph, n), precision.dtype) for n in named_inputs(model, graph.inputs)
    }
    nodes = torch.arange(graph.num_nodes)

    def call(x: Tensor) -> Any:
        with _NoDropout(seed) as mode, repeated_by(mode.repeat):
            out = model(x, pair, **given)
        drawn.append(mode.draws)
        return out

    drawn: list[int] = []

    trace = _trace(model, call, graph, nodes, precision, gradients=gradients, seed=seed)
    trace.drew |= any(drawn)
    part = GraphPart(graph, np.zeros(graph.num_nodes, np.int64), Grid(1), SingleProcess())
    limit = precision.limit
    fast = [n for n, call in calls.items() if _is_exact(model.get_submodule(n), *call, part, limit)]
    return trace, tuple(fast)


def _tensor(array: np.ndarray, dtype: torch.dtype) -> Tensor:
    tensor = torch.from_numpy(array)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _recorder(calls: dict[str, tuple[Any, Any]], name: str) -> Any:
    """Return a hook that records the first call of a layer: copies of its arguments and output.

    An invertible layer frees them after the call.
    """

    def record(module: nn.Module, args: Any, out: Any) -> None:
        if name not in calls:
            copies = (a.detach().clone() if isinstance(a, Tensor) else a for a in (*args, out))
            *inputs, output = copies
            calls[name] = tuple(inputs), output

    return record


def _is_exact(layer: nn.Module, args: Any, out: Any, part: GraphPart, limit: float) -> bool:
    """Return whether a layer's sparse form reproduces an output."""
    x = args[0] if args else None
    form = fast_forward(layer)
    if form is None or not isinstance(x, Tensor) or any(a is not None for a in args[2:]):
        return False
    try:
        with torch.no_grad():
            ours = form(layer, part, x[part.nodes])
            return _error(ours, out[part.nodes], float(out.abs().max())) < limit
    except (RuntimeError, AttributeError, ValueError):
        return False


def _trace(
    model: nn.Module,
    call: Any,
    graph: Graph,
    nodes: Tensor,
    precision: _Precision,
    *,
    gradients: bool = True,
    seed: int = 0,
) -> Trace:
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
    x = torch.from_numpy(graph.features).to(precision.dtype)[nodes].requires_grad_(gradients)
    try:
        seed_everything(seed)
        state = rng_state()
        with torch.set_grad_enabled(gradients):
            out = call(x)
        _need_rows(out, len(nodes))
        output = out.detach().clone()  # an invertible layer frees its output in the backward pass
        width = out.numel() // max(1, len(out))
        generator = torch.Generator().manual_seed(2)
        weight = torch.randn(graph.num_nodes, width, generator=generator)
        loss = (out.reshape(len(nodes), -1) * weight[nodes]).sum()
        if gradients:
            loss.backward()
        model.eval()
        with torch.no_grad():
            evaluated = call(x)
    except threading.BrokenBarrierError:
        raise
    except Exception as error:  # a user's model may raise anything; reported with the module
        trace.error = error
        return trace
    trace.drew = _differ(state, rng_state())
    trace.tensors["loss"] = loss.detach()
    trace.rows = {"output": output, "output in eval": evaluated.detach()}
    if gradients:
        trace.rows["gradient of the input"] = _grad(x)
        for name, p in model.named_parameters():
            trace.tensors[f"gradient of {name}"] = _grad(p)
    trace.buffers = {n: b.clone() for n, b in model.named_buffers() if b.is_floating_point()}
    return trace


def _grad(x: Tensor) -> Tensor:
    return torch.zeros_like(x) if x.grad is None else x.grad


class _NoRows(ConfigError):
    """Error for a model that does not return a row of real numbers for each node."""


def _need_rows(out: Any, rows: int) -> None:
    if not isinstance(out, Tensor) or out.dim() == 0 or len(out) != rows:
        found = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise _NoRows(
            f"the model returns {found}", where="model", allowed=f"{rows} rows, one per node"
        )
    if not out.is_floating_point():
        raise _NoRows(f"the model returns {out.dtype}", where="model", allowed="real numbers")


class _Check:
    """Comparison of a model on simulated ranks with the plain model.

    Args:
        model: not modified.
        precision: of the comparison.

    Attributes:
        sites: places in the user's code that the distributed model has reached.
    """

    def __init__(self, model: nn.Module, precision: _Precision) -> None:
        self._model, self._precision = model, precision
        self.sites: CallSites = CallSites()

    def plain(
        self, graph: Graph, *, gradients: bool = True, seed: int = 0
    ) -> tuple[Trace, tuple[str, ...]]:
        """Run the plain model; return its trace and the layers that equal their sparse form."""
        copied = detach(_copied(self._model)).to(self._precision.dtype).train()
        return _plain(copied, graph, self._precision, gradients=gradients, seed=seed)

    def compare(
        self,
        graph: Graph,
        owner: np.ndarray,
        grid: Grid,
        fast: Any,
        reference: Trace,
        *,
        seed: int = 0,
    ) -> tuple[ConfigError | None, float]:
        """Run on simulated ranks; return an error or None, and the largest difference."""
        failed: list[tuple[Trace, Exception]] = []
        gradients = "gradient of the input" in reference.rows

        # A single rank may hold its nodes in another order, too.
        order = np.random.default_rng(4).permutation(len(owner)) if grid.size == 1 else None

        def work(ranks: Communicator) -> tuple[Trace, Tensor]:
            part = GraphPart(graph, owner, grid, ranks, order)
            copied = _copied(self._model).to(self._precision.dtype).train()
            distributed = distribute(copied, part, fast, check_seed=seed, sites=self.sites)
            nodes = part.nodes
            trace = _trace(
                distributed,
                distributed,
                graph,
                nodes,
                self._precision,
                gradients=gradients,
                seed=seed,
            )
            if trace.error is not None:
                failed.append((trace, trace.error))
                raise trace.error
            return trace, nodes

        try:
            done = run_ranks(grid.size, work, Traffic)
        except threading.BrokenBarrierError:
            return _refusal([], "the ranks deadlock", grid.size), np.inf
        except Exception:
            if not failed:
                raise
            trace, error = failed[0]
            return _refused(trace.inside, error, grid.size), np.inf
        errors = self._errors(done, reference)
        worst = max(errors, key=lambda name: errors[name])
        if errors[worst] < self._precision.limit:
            return None, errors[worst]
        what = f"{worst} is {errors[worst]:.1e} off that of the plain model"
        module = self._first_difference(done, reference)
        fix = "x.size(0) instead of len(x), the number of local rows; or train on one process"
        fix = fix if self.sites.counts_rows else "train on one process"
        return _refusal([module], what, grid.size, fix=fix), errors[worst]

    def real_graph(self, part: Part) -> Graph | None:
        """Return the real graph if it is small and in memory, on every process of several."""
        if not isinstance(part, GraphPart) or part.ranks.size == 1:
            return None
        real = part.graph
        if max(real.num_nodes + real.num_edges, real.features.size // 32) > REAL_GRAPH:
            return None
        if not np.bincount(part.owner[real.target], minlength=part.ranks.size).all():
            return None  # `_without_edges` decides
        features = real.dense_features(np.arange(real.num_nodes))
        return replace(real, features=features, labels=None, parts={})

    def compare_on_real_graph(self, part: GraphPart, real: Graph, fast: Any) -> ConfigError | None:
        """Compare outputs on the real graph, with its partition."""
        reference, _ = self.plain(real, gradients=False)
        if reference.error is not None:
            return _refused(reference.inside, reference.error, 1)
        problem, _ = self.compare(real, part.owner, part.grid, fast, reference)
        if problem is None:
            return None
        return _Unproven(f"{problem.what}, on the real graph", where="model", fix=problem.fix)

    def _errors(self, done: list[tuple[Trace, Tensor]], reference: Trace) -> dict[str, float]:
        """Return relative differences of sums over ranks, of rows by node and of buffers."""
        tensors = (*reference.tensors.values(), reference.rows["output"])
        floor = self._precision.floor * max(float(t.abs().max()) for t in tensors if t.numel())
        errors = {}
        for name, wanted in reference.tensors.items():
            total = torch.stack([trace.tensors[name] for trace, _ in done]).sum(0)
            errors[name] = _error(total, wanted, floor)
        for name, wanted in reference.rows.items():
            errors[name] = max(
                _error(trace.rows[name], wanted[nodes], floor) for trace, nodes in done
            )
        for name, wanted in reference.buffers.items():
            errors[f"buffer {name}"] = max(
                _error(trace.buffers[name], wanted, floor) for trace, _ in done
            )
        return errors

    def _first_difference(self, done: list[tuple[Trace, Tensor]], reference: Trace) -> str:
        num_nodes = len(reference.rows["output"])
        for number, (name, wanted) in enumerate(reference.outputs):
            for trace, nodes in done:
                if number >= len(trace.outputs) or trace.outputs[number][0] != name:
                    return name
                own = trace.outputs[number][1]
                here = wanted[nodes] if len(wanted) == num_nodes else wanted
                floor = self._precision.floor * float(wanted.abs().max())
                if own.shape == here.shape and _error(own, here, floor) >= self._precision.limit:
                    return name
        return ""


def _error(found: Tensor, wanted: Tensor, floor: float) -> float:
    if found.shape != wanted.shape:
        return np.inf
    if not wanted.numel():
        return 0.0
    scale = max(float(wanted.abs().max()), floor, 1e-300)
    difference = float((found - wanted).abs().max()) / scale
    return difference if np.isfinite(difference) else np.inf


class _Unproven(ConfigError):
    """Error for a model that is not shown to be equal to the plain one on several ranks."""


def _refused(inside: list[str], error: Exception, ranks: int) -> ConfigError:
    """Return the error for a model that raises on the small graph."""
    if isinstance(error, _NoRows):
        return error
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
) -> _Unproven:
    module = f"module {inside[-1]}: " if inside and inside[-1] else ""
    on = f", on {ranks} simulated ranks" if ranks > 1 else ""
    return _Unproven(f"{module}{what}{on}", where="model", allowed=allowed, fix=fix)


def _differ(before: dict[str, Any], after: dict[str, Any]) -> bool:
    numbers = any(before[name] != after[name] for name in ("python", "numpy"))
    return numbers or not torch.equal(before["torch"], after["torch"])


@contextmanager
def _random_state_restored() -> Iterator[None]:
    """Return a context with gradients that restores the random states at its end."""
    state = rng_state()
    try:
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the training gives them
            yield
    finally:
        set_rng_state(state)
