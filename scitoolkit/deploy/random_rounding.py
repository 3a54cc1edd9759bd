"""Which results of a module are decided by rounding: Monte Carlo arithmetic on its operators.

Two correct programs differ where an operator depends on the rounding of an earlier one: `fmod` by
a number that is 0 but for rounding, the sign of a difference that vanishes, a comparison of equal
sums. The module is computed several times in float64, and every operator's result is rounded at
random to one of the two neighbours of fewer bits (stochastic rounding: Parker, Monte Carlo
Arithmetic, UCLA CSD-970002, 1997; Vignes, Math. Comput. Simul. 35 (1993) 233, CESTAC). The spread
of the results is that of all programs that compute the same operators in the same precision.

    y       result of an operator in float64
    s       y; for an operator that adds, the same operator of absolute values, sum |a_i b_i|
    ulp(s)  2^(exponent of s - t), distance of neighbours with t bits
    y'      ulp(s) (floor(y / ulp(s)) + b),  b = 1 with probability frac(y / ulp(s)), otherwise 0
    n       terms of a sum, whose partial sums round n times: b + a normal number of variance
            n / 16, rounded to an integer, where frac(y / ulp(s)) is not 0

A result without bits below ulp(s), as of comparisons, copies and small integers, stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.export.graph_signature import OutputKind

from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy.agreement import evaluating, in_dtype, in_order
from scitoolkit.deploy.trace import constants_of, program

RUNS = 32
"""Random roundings of a judgement: an event of probability 1/4 is missed once in 10,000 times."""
BITS = {"float32": 24, "float64": 44}
"""Bits t of a number. Float64 has no wider type for the reference: 9 bits fewer are rounded."""
DECIDED = 0.1
"""Largest spread, relative to an output's largest number, of a result that rounding leaves."""
JUMPS = frozenset(
    "fmod remainder floor ceil round trunc sign gt ge lt le eq ne argmax argmin argsort sort "
    "topk cummax cummin floor_divide bucketize".split()
)
"""Operators that make a number of order one from a rounding error."""
_ADDING = (
    *("addmm", "mm", "bmm", "baddbmm", "convolution", "sum", "mean", "cumsum", "scatter_add"),
    *("scatter_reduce", "index_add", "index_put", "avg_pool", "upsample", "grid_sampler"),
)
"""Beginnings of names of operators whose rounding errors are relative to a sum of magnitudes."""
_COMPOSED = ("var", "native_", "linalg", "_linalg", "inverse", "cholesky", "triangular")
"""Beginnings of names of operators that round within: exact for inputs an ulp away (backward
stability; Higham, Accuracy and Stability of Numerical Algorithms, 2002)."""


def outcomes_of_rounding(
    function: TracedFunction, inputs: Sequence[np.ndarray], runs: int = RUNS
) -> list[np.ndarray]:
    """Return every output of a function for all samples, float64 (runs, samples, *shape).

    Args:
        function: in float32 or float64; its module is in evaluation mode.
        inputs: arrays (samples, *shape), or (*shape) of shared ones.
        runs: number of random roundings.

    Raises:
        ConfigError: torch cannot trace the module.
    """
    (double,) = in_dtype([function], "float64")
    generator = torch.Generator().manual_seed(0)
    with evaluating([double]), torch.no_grad():
        # A number of float64 is rounded once, so that all uses of it see the same one.
        own = torch.Generator().manual_seed(1)
        bits, largest = BITS[function.dtype], float(np.finfo(function.dtype).max)
        rounding = _Rounding(bits, largest, own)
        tensors = [rounding.value(torch.tensor(np.asarray(a, np.float64))) for a in inputs]
        traced = program(double.module, tensors)
        constants = constants_of(traced)
        following = iter(tensors)
        users = set(traced.graph_signature.user_inputs)
        arguments = [
            constants.get(node.name, next(following) if node.name in users else None)
            for node in traced.graph.nodes
            if node.op == "placeholder"
        ]
        kinds = [output.kind for output in traced.graph_signature.output_specs]
        # Inputs that the module changes are outputs of the graph, too.
        own_places = [k for k, kind in enumerate(kinds) if kind == OutputKind.USER_OUTPUT]
        results = []
        for _ in range(runs):
            interpreter = _Interpreter(traced.graph_module, _Rounding(bits, largest, generator))
            flat = interpreter.run(*arguments)
            spec = traced.call_spec.out_spec
            assert spec is not None
            tree = torch.utils._pytree.tree_unflatten([flat[place] for place in own_places], spec)
            results.append(in_order(tree, function.outputs, function.name))
    return [torch.stack(part).double().numpy() for part in zip(*results, strict=True)]


def undecided(rounded: np.ndarray) -> np.ndarray:
    """Return where random roundings change a result by order one, or whether it is a number.

    Args:
        rounded: (runs, ...) from `outcomes_of_rounding`.

    Returns:
        bool (...).

    Example:
        >>> undecided(np.array([[1.0, 1.0, np.nan], [1.0, -1.0, 0.0]])).tolist()
        [False, True, True]
    """
    finite = np.isfinite(rounded)
    steady = finite.all(0) | (np.isnan(rounded) == np.isnan(rounded[0])).all(0) & ~finite.any(0)
    largest = max(float(np.abs(rounded[finite]).max(initial=0)), np.finfo(np.float64).tiny)
    return ~steady | (spread(rounded) > DECIDED * largest)


def left_to_rounding(
    function: TracedFunction, sets: Sequence[Sequence[np.ndarray]], runs: int = RUNS
) -> tuple[float, float]:
    """Return what random roundings change, the largest of all sets of inputs and outputs.

    Returns:
        The share of the results that they change by order one, and the change of the others
        relative to an output's largest number.
    """
    shares, changes = [0.0], [0.0]
    for inputs in sets:
        try:
            results = outcomes_of_rounding(function, inputs, runs)
        except (RuntimeError, IndexError):  # integers that torch refuses, which are NaN in C
            continue
        for outcomes in results:
            if not outcomes[0].size:
                continue
            lost = undecided(outcomes)
            shares.append(float(lost.mean()))
            others = outcomes[:, ~lost & np.isfinite(outcomes).all(0)]
            largest = max(float(np.abs(others).max(initial=0)), np.finfo(np.float64).tiny)
            changes.append(float(spread(others).max(initial=0)) / largest if others.size else 0.0)
    return max(shares), max(changes)


def spread(rounded: np.ndarray) -> np.ndarray:
    """Return the largest minus the least result of random roundings; 0 where all are infinite."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(rounded.max(0) - rounded.min(0), nan=0.0, posinf=np.inf)


class _Rounding:
    """Stochastic rounding of tensors to a number of bits, within the range of a dtype."""

    def __init__(self, bits: int, largest: float, generator: torch.Generator) -> None:
        self.bits, self.largest, self.generator = bits, largest, generator

    def value(self, y: Any, scale: Tensor | None = None, terms: float = 1) -> Any:
        """Return a tensor rounded relative to a scale, itself by default, as a sum of terms."""
        if not isinstance(y, Tensor) or not (y.is_floating_point() or y.is_complex()):
            return y
        if y.is_complex():
            scale = scale if scale is None else scale.abs().unsqueeze(-1)
            return torch.view_as_complex(self.value(torch.view_as_real(y).clone(), scale, terms))
        size = y.abs() if scale is None else torch.maximum(scale.abs().to(y.dtype), y.abs())
        size = torch.where(torch.isfinite(size), size, 0.0)
        # Numbers below the smallest normal one share its distance.
        least = -125 if self.largest < 1e300 else -1000
        ulp = torch.ldexp(torch.ones_like(size), size.frexp().exponent.clamp(min=least) - self.bits)
        count = y / ulp
        low = count.floor()
        up = (torch.rand(y.shape, generator=self.generator, dtype=y.dtype) < count - low).to(
            y.dtype
        )
        if terms > 1:
            errors = torch.randn(y.shape, generator=self.generator, dtype=y.dtype)
            up = up + (errors * terms**0.5 / 4).round() * (count != low)
        rounded = torch.where(torch.isfinite(y), (low + up) * ulp, y)
        return torch.where(rounded.abs() > self.largest, rounded.sign() * torch.inf, rounded)

    def moved(self, x: Any) -> Any:
        """Return a tensor moved by -1, 0 or 1 ulp of each number."""
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return x
        step = torch.randint(-1, 2, x.shape, generator=self.generator)
        return self.value(x * (1 + step * 2.0**-self.bits))


class _Interpreter(fx.Interpreter):
    """A traced program whose operators round at random."""

    def __init__(self, module: fx.GraphModule, rounding: _Rounding) -> None:
        super().__init__(module)
        self._rounding = rounding

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Return the rounded result of an operator."""
        name = str(target).removeprefix("aten.").partition(".")[0]
        if name == "view":  # rounded tensors have not the strides that the view was traced with
            target = torch.ops.aten.reshape.default
        if name.startswith(_COMPOSED):
            args = fx.node.map_aggregate(args, self._rounding.moved)
        run = super().call_function
        result = run(target, args, kwargs)
        adds, transforms = name.startswith(_ADDING), name.startswith("_fft")
        scale, terms = None, 1.0
        if (adds or transforms) and isinstance(result, Tensor) and not _integer(result):

            def of(change: Callable[[Any], Any]) -> Tensor:
                own, named = (fx.node.map_aggregate(a, change) for a in (args, kwargs))
                return run(target, own, named).abs()

            scale = of(_magnitude)
            sizes = args[0].numel() / max(1, result.numel())
            terms = max(float(of(_one).max()) if scale.numel() else 1.0, sizes)
            if transforms:  # errors are relative to the largest number of a transform
                scale = scale.amax(args[1], keepdim=True)
                terms = float(np.prod([max(args[0].shape[d], result.shape[d]) for d in args[1]]))
        if isinstance(result, list | tuple):
            return type(result)(self._rounding.value(part) for part in result)
        return self._rounding.value(result, scale, terms)


def _integer(x: Tensor) -> bool:
    return not (x.is_floating_point() or x.is_complex())


def _magnitude(x: Any) -> Any:
    """Return absolute values of numbers that enter a sum; complex ones stay complex."""
    if not isinstance(x, Tensor) or _integer(x):
        return x
    return x.abs().to(x.dtype)


def _one(x: Tensor) -> Any:
    return x if not isinstance(x, Tensor) or _integer(x) else torch.ones_like(x)
