"""Derivatives of exported functions, for implicit solvers and adjoints.

With y = f(x), the Jacobian-vector product maps x and a tangent of x to J dx, and the
vector-Jacobian product maps x and a cotangent of y to J^T dy. Both are functions of the same
samples as f, and become C functions beside it. Shared inputs are constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy.agreement import in_order

Way = Literal["jvp", "vjp"]


class Derivative(nn.Module):
    """Jacobian-vector or vector-Jacobian product of a function.

    Args:
        function: the function.
        way: `jvp` or `vjp`.
    """

    def __init__(self, function: TracedFunction, way: Way) -> None:
        super().__init__()
        self.module = function.module
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
            return tuple(in_order(result, self._function.outputs, self._function.name))

        # Fused attention has a derivative that is not written with other operators.
        with sdpa_kernel([SDPBackend.MATH]):
            if self._way == "jvp":
                return torch.func.jvp(values, tuple(free), tuple(seeds))[1]
            return torch.func.vjp(values, *free)[1](tuple(seeds))

    def at(self, examples: Sequence[Tensor]) -> nn.Module:
        """Return the derivative for inputs of one shape as a graph of operators.

        torch.export traces no derivatives, but the graph of one.
        """
        with torch.no_grad():
            return make_fx(self)(*examples)


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
    examples: list[Any] = []
    if function.examples:
        pairs = zip(function.examples, function.inputs, strict=True)
        samples = next(len(e) for e, spec in pairs if not spec.shared)
        generator = np.random.default_rng(11)
        examples = [
            *function.examples,
            *(generator.normal(size=(samples, *spec.shape)) for spec in tangents),
        ]
    return TracedFunction(
        Derivative(function, way),
        [*function.inputs, *tangents],
        ends,
        examples,
        f"{function.name}_{way}" if function.name else way,
        dtype=function.dtype,
    )


def _change(spec: ArraySpec, kind: str) -> ArraySpec:
    return replace(spec, name=f"{spec.name} {kind}", units="", low=None, high=None)
