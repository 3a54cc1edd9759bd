"""Derivatives of exported functions, for implicit solvers and adjoints.

With y = f(x), the Jacobian-vector product maps x and a tangent of x to J dx, and the
vector-Jacobian product maps x and a cotangent of y to J^T dy. Both are functions of the same
samples as f, and become C functions beside it. Shared inputs are constants.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy.agreement import examples, in_order

Way = Literal["jvp", "vjp"]
POINTS = 16
"""Samples of the comparison with differences."""
STEPS = {"float32": (1e-3, 3e-2), "float64": (1e-6, 1e-3)}
"""Distances of the differences: without rounding errors, and for modules that round inside."""
DIFFERENT = 0.03
MOST_KINKS = 0.3
"""Largest share of samples whose difference spans a kink."""


class Derivative(nn.Module):
    """Jacobian-vector or vector-Jacobian product of a function.

    Args:
        function: the function.
        way: `jvp` or `vjp`.
    """

    def __init__(self, function: TracedFunction, way: Way) -> None:
        super().__init__()
        self.module: nn.Module = function.module
        self._function, self._way = function, way

    def forward(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        """Return the tangents of the outputs, or the cotangents of the inputs."""
        inputs = self._function.inputs
        own, seeds = arrays[: len(inputs)], arrays[len(inputs) :]
        free = [x for x, spec in zip(own, inputs, strict=True) if not spec.shared]

        def values(*changed: Tensor) -> tuple[Tensor, ...]:
            following = iter(changed)
            pairs = zip(own, inputs, strict=True)
            result = self.module(*(x if spec.shared else next(following) for x, spec in pairs))
            ordered = in_order(result, self._function.outputs, self._function.name)
            for y, spec in zip(ordered, self._function.outputs, strict=True):
                if not y.is_floating_point():
                    raise ConfigError(
                        f"output {spec.name} of {y.dtype} has no derivative",
                        where=f"function {self._function.name!r}",
                        fix="leave derivatives out",
                    )
            return tuple(ordered)

        with _in_plain_operators(), warnings.catch_warnings():
            # The first use of torch.func.jvp in a process scripts its rules, which is deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            if self._way == "jvp":
                return torch.func.jvp(values, tuple(free), tuple(seeds))[1]
            return torch.func.vjp(values, *free)[1](tuple(seeds))

    def require_differences(self, own: TracedFunction) -> None:
        """Raise ConfigError unless the derivative is that by differences, in most samples."""
        inputs = [torch.tensor(a) for a in examples(own, POINTS)]
        function, count = self._function, len(self._function.inputs)
        generator = torch.Generator().manual_seed(12)
        free = [not spec.shared for spec in function.inputs]
        v = [torch.randn(x.shape, generator=generator).to(x) for x in inputs[:count]]
        v = [direction * is_free for direction, is_free in zip(v, free, strict=True)]

        def at(distance: float) -> list[Tensor]:
            size = (x + distance * direction for x, direction in zip(inputs, v, strict=False))
            return in_order(function.module(*size), function.outputs, function.name)

        def by(seeds: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:
            result = self(*inputs[:count], *seeds)
            pairs = zip(result, others, strict=True)
            return torch.stack([(a * b).flatten(1).sum(1) for a, b in pairs]).sum(0)

        with torch.no_grad(), _in_plain_operators():
            w = [torch.randn(y.shape, generator=generator).to(y) for y in at(0.0)]
            tangents = [direction for direction, is_free in zip(v, free, strict=True) if is_free]
            product = by(tangents, w) if self._way == "jvp" else by(w, tangents)
            worst = 1.0
            for step in STEPS[own.dtype]:
                changes = [(b - a) / (2 * step) for a, b in zip(at(-step), at(step), strict=True)]
                terms = [(c * d).flatten(1).sum(1) for c, d in zip(changes, w, strict=True)]
                wanted = torch.stack(terms).sum(0)
                # A sample whose difference is finite has a derivative: one of NaN is wrong there.
                usable = torch.isfinite(wanted)
                both = usable & torch.isfinite(product)
                largest = torch.where(both, wanted.abs() + product.abs(), 0.0).max()
                right = (wanted - product).abs() <= DIFFERENT * largest
                if usable.any():
                    worst = min(worst, float((~right)[usable].double().mean()))
        if not worst <= MOST_KINKS:
            raise ConfigError(
                f"the {self._way} of torch is not the derivative by differences in {worst:.0%} of "
                f"{POINTS} samples",
                where=f"function {function.name!r}",
                fix="leave derivatives out, or the detach and the backward that the module defines",
            )

    @property
    def arrays(self) -> int:
        """Number of inputs of the function, before the tangents or cotangents."""
        return len(self._function.inputs)

    def graph(self, module: nn.Module, shaped: Sequence[Tensor]) -> nn.Module:
        """Return the derivative of the function's graph for inputs of one shape as a graph.

        torch.export traces no derivatives, but the graph of one.
        """
        aten = torch.ops.aten
        # The backward passes of norms read statistics, which these have in C as no result.
        apart: Any = get_decompositions(
            [aten.native_layer_norm, aten.native_group_norm, aten.silu_backward]
        )
        with torch.no_grad():
            return make_fx(
                Derivative(replace(self._function, module=module), self._way),
                decomposition_table=apart,
            )(*shaped)


def _with_slice(
    x: Tensor,
    part: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """Return x with a slice replaced, by an operator that has derivatives of complex numbers."""
    places = range(x.shape[dim])[start:end:step]
    part = part.expand([*x.shape[: dim % x.ndim], len(places), *x.shape[dim % x.ndim + 1 :]])
    pieces, last = [], 0
    for count, place in enumerate(places):
        if step == 1:
            pieces, last = [x.narrow(dim, 0, place), part], places[-1] + 1
            break
        pieces += [x.narrow(dim, last, place - last), part.narrow(dim, count, 1)]
        last = place + 1
    return torch.cat([*pieces, x.narrow(dim, last, x.shape[dim] - last)], dim)


def _with_entry(x: Tensor, part: Tensor, dim: int, index: int) -> Tensor:
    index %= x.shape[dim]
    return _with_slice(x, part.unsqueeze(dim), dim, index, index + 1)


def _copied(x: Tensor, other: Tensor, non_blocking: bool = False) -> Tensor:
    return other.to(x.dtype).expand_as(x)


def _windows(x: Tensor, size: Sequence[int], step: Sequence[int]) -> Tensor:
    """Return the windows of the last two dims, flat in the last dim."""
    return x.unfold(-2, size[0], step[0]).unfold(-2, size[-1], step[-1]).flatten(-2)


def _largest_of_windows(
    x: Tensor,
    size: Sequence[int],
    step: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    if ceil_mode or max(dilation) > 1:
        raise NotImplementedError("derivatives of pooling with ceil_mode or dilation")
    over = [padding[-1]] * 2 + [padding[0]] * 2
    x = torch.constant_pad_nd(x, over, -torch.inf)
    return torch.max(_windows(x, size, step or size), -1)


def _mean_of_windows(
    x: Tensor,
    size: Sequence[int],
    step: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    if ceil_mode:
        raise NotImplementedError("derivatives of pooling with ceil_mode")
    over = [padding[-1]] * 2 + [padding[0]] * 2
    step = step or size
    total = _windows(torch.constant_pad_nd(x, over), size, step).sum(-1)
    if divisor_override is not None or count_include_pad:
        return total / (divisor_override or size[0] * size[-1])
    return total / _windows(torch.constant_pad_nd(torch.ones_like(x), over), size, step).sum(-1)


_UPSAMPLING = ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "trilinear3d")
DIFFERENTIABLE: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten.slice_scatter.default: _with_slice,
    torch.ops.aten.select_scatter.default: _with_entry,
    torch.ops.aten.copy.default: _copied,
    torch.ops.aten.max_pool2d_with_indices.default: _largest_of_windows,
    torch.ops.aten.avg_pool2d.default: _mean_of_windows,
    **get_decompositions([getattr(torch.ops.aten, f"upsample_{kind}") for kind in _UPSAMPLING]),
}
"""Operators of functional graphs without a derivative, written with others."""


@contextlib.contextmanager
def _in_plain_operators() -> Iterator[None]:
    """Compute attention with operators that have derivatives, instead of fused ones."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel([SDPBackend.MATH]):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def require_derivatives(functions: Sequence[TracedFunction]) -> None:
    """Raise ConfigError where a derivative is not that of its function by differences.

    Detached tensors, and functions of one's own with another derivative, are told so. Compared is
    w J v of each sample with a tangent v and a cotangent w; kinks may be between two points.
    """
    for function in functions:
        if isinstance(function.module, Derivative):
            try:
                function.module.require_differences(function)
            except (RuntimeError, IndexError) as error:  # as torch tells an index out of range
                raise ConfigError(
                    f"the function cannot be differentiated ({' '.join(str(error).split())[:200]})",
                    where=f"function {function.name!r}",
                    fix="examples or a box of inputs that the module can be called with, or leave "
                    "derivatives out",
                ) from error


def with_derivatives(
    functions: Sequence[TracedFunction], ways: Sequence[Way]
) -> Sequence[TracedFunction]:
    """Return functions and, after each, its derivatives under the names `jvp` and `vjp`."""
    out = []
    for function in functions:
        out += [function, *(_derivative(function, way) for way in ways)]
    return out


def _derivative(function: TracedFunction, way: Way) -> TracedFunction:
    free = [spec for spec in function.inputs if not spec.shared]
    tangents = [_change(spec, "tangent") for spec in free]
    ends = [_change(spec, "tangent") for spec in function.outputs]
    if way == "vjp":
        tangents = [_change(spec, "cotangent") for spec in function.outputs]
        ends = [_change(spec, "cotangent") for spec in free]
    typical: list[Any] = []
    if function.examples:
        pairs = zip(function.examples, function.inputs, strict=True)
        samples = next(len(e) for e, spec in pairs if not spec.shared)
        generator = np.random.default_rng(11)
        typical = [
            *function.examples,
            *(generator.normal(size=(samples, *spec.shape)) for spec in tangents),
        ]
    return TracedFunction(
        Derivative(function, way),
        [*function.inputs, *tangents],
        ends,
        typical,
        f"{function.name}_{way}" if function.name else way,
        dtype=function.dtype,
    )


def _change(spec: ArraySpec, kind: str) -> ArraySpec:
    return replace(spec, name=f"{spec.name} {kind}", units="", low=None, high=None)
