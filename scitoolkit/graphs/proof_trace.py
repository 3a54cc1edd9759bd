"""One run of a model with a loss, recorded: outputs of modules, gradients, buffers.

Dropout is off, and other random numbers follow from the position of their row, so that runs on
different ranks can be compared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.seeds import rng_state, seed_everything
from scitoolkit.graphs.adapter import named_inputs
from scitoolkit.graphs.fast_layers import fast_forward, further_inputs
from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.part import GraphPart
from scitoolkit.graphs.random_rules import by_position
from scitoolkit.graphs.recomputation import repeated_by
from scitoolkit.training.ranks.communicator import SingleProcess

LIMIT = 1e-10  # relative error in float64


@dataclass(frozen=True)
class Precision:
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


DOUBLE = Precision(torch.float64, LIMIT, 1e-4)


SINGLE = Precision(torch.float32, 1e-3, 1e-2)  # for models that compute in float32 in any case


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


def plain_trace(
    model: nn.Module, graph: Graph, precision: Precision, *, gradients: bool = True, seed: int = 0
) -> tuple[Trace, tuple[str, ...]]:
    """Run the plain model, and determine which layers equal their sparse form."""
    calls: dict[str, tuple[Any, Any]] = {}
    for name, module in model.named_modules():
        if fast_forward(module) is not None:
            module.register_forward_hook(_recorder(calls, name), with_kwargs=True)
    pair = torch.from_numpy(np.stack([graph.source, graph.target]))
    inputs = {
        n: as_tensor(getattr(graph, n), precision.dtype) for n in named_inputs(model, graph.inputs)
    }
    nodes = torch.arange(graph.num_nodes)

    def call(x: Tensor) -> Any:
        with _NoDropout(seed) as mode, repeated_by(mode.repeat):
            out = model(x, pair, **inputs)
        drawn.append(mode.draws)
        return out

    drawn: list[int] = []

    trace = traced(model, call, graph, nodes, precision, gradients=gradients, seed=seed)
    trace.drew |= any(drawn)
    part = GraphPart(graph, np.zeros(graph.num_nodes, np.int64), ProcessGrid(1), SingleProcess())
    limit = precision.limit
    fast = [n for n, call in calls.items() if _is_exact(model.get_submodule(n), *call, part, limit)]
    return trace, tuple(fast)


def as_tensor(array: np.ndarray, dtype: torch.dtype) -> Tensor:
    """Return an array as a tensor, real numbers with the given dtype."""
    tensor = torch.from_numpy(array)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _recorder(calls: dict[str, tuple[Any, Any]], name: str) -> Any:
    """Return a hook that records the first call of a layer: copies of its arguments and output.

    An invertible layer frees them after the call.
    """

    def record(module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        if name not in calls:
            every = (*args, *kwargs.values(), out)
            copies = (a.detach().clone() if isinstance(a, Tensor) else a for a in every)
            *inputs, output = copies
            calls[name] = tuple(inputs), output

    return record


def _is_exact(layer: nn.Module, args: Any, out: Any, part: GraphPart, limit: float) -> bool:
    """Return whether a layer's sparse form reproduces an output."""
    x = args[0] if args else None
    form = fast_forward(layer)
    rest = further_inputs(layer, args[2:])
    if form is None or rest is None or not isinstance(x, Tensor):
        return False
    try:
        with torch.no_grad():
            ours = form(layer, part, x[part.nodes], *(a[part.edge_ids] for a in rest))
            return relative_error(ours, out[part.nodes], float(out.abs().max())) < limit
    except (RuntimeError, AttributeError, ValueError, IndexError):
        return False


def traced(
    model: nn.Module,
    call: Any,
    graph: Graph,
    nodes: Tensor,
    precision: Precision,
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
        # A random linear functional of the output: its gradient reaches every component, and errors
        # of different signs do not cancel as in a plain sum.
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


class NoRows(ConfigError):
    """Error for a model that does not return a row of real numbers for each node."""


def _need_rows(out: Any, rows: int) -> None:
    if not isinstance(out, Tensor) or out.dim() == 0 or len(out) != rows:
        returned = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise NoRows(
            f"the model returns {returned}", where="model", allowed=f"{rows} rows, one per node"
        )
    if not out.is_floating_point():
        raise NoRows(f"the model returns {out.dtype}", where="model", allowed="real numbers")


def relative_error(ours: Tensor, wanted: Tensor, floor: float) -> float:
    """Return the largest difference relative to the largest number, at least `floor`.

    Other shapes and numbers that are not finite are infinitely far.
    """
    if ours.shape != wanted.shape:
        return np.inf
    if not wanted.numel():
        return 0.0
    scale = max(float(wanted.abs().max()), floor, 1e-300)
    difference = float((ours - wanted).abs().max()) / scale
    return difference if np.isfinite(difference) else np.inf


def _differ(before: dict[str, Any], after: dict[str, Any]) -> bool:
    numbers = any(before[name] != after[name] for name in ("python", "numpy"))
    return numbers or not torch.equal(before["torch"], after["torch"])
