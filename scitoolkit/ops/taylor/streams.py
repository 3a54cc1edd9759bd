"""Propagation of derivative streams through layers: (streams, ..., channels), the value first.

All rules are forward rules. A loss of derivatives therefore needs a single backward pass, over a
forward pass that is wider by the number of streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from scitoolkit.ops.taylor.activations import derivatives
from scitoolkit.ops.taylor.plan import Plan


def seed(x: Tensor, plan: Plan, scales: Sequence[Tensor | float] | None = None) -> Tensor:
    """Return the streams of the coordinates themselves.

    Args:
        x: (..., dims), the input coordinates of a network.
        plan: the streams.
        scales: derivative of each input coordinate with respect to the physical one: scalars, or
            tensors of the shape of x without its last dim.

    Returns:
        (streams, ..., dims).
    """
    out = x.new_zeros((len(plan), *x.shape))
    out[0] = x
    for stream, coordinate, coefficient in plan.first:
        scale = 1.0 if scales is None else scales[coordinate]
        out[stream, ..., coordinate] = coefficient * scale
    return out


def linear(streams: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the streams of W x + b; the bias is added only to the value."""
    out = functional.linear(streams, weight)
    return out if bias is None else add_to_value(out, bias)


def add_to_value(streams: Tensor, constant: Tensor) -> Tensor:
    """Return the streams of a + constant, whose derivatives are those of a."""
    return _AddToValue.apply(streams, constant)


class _AddToValue(torch.autograd.Function):
    """Addition to the value without the copies of a concatenation of streams."""

    @staticmethod
    def forward(ctx: Any, streams: Tensor, constant: Tensor) -> Tensor:
        ctx.shape = constant.shape
        out = streams.clone()
        out[0] += constant
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, grad[0].sum_to_size(ctx.shape)


def activation(streams: Tensor, name: str, plan: Plan) -> Tensor:
    """Return the streams of g(a), by Faa di Bruno's formula."""
    return _Activation.apply(streams, name, plan)


def multiply(a: Tensor, b: Tensor, plan: Plan) -> Tensor:
    """Return the streams of the elementwise product a b by the Leibniz rule."""
    out = [a[0] * b[0]]
    for stream in range(1, len(plan)):
        total = a[0] * b[stream] + a[stream] * b[0]
        for term in plan.leibniz[stream]:
            # Terms in which either factor is the value are those above; the plan lists them as
            # well.
            if any(term.weight) and term.factor:
                total = total + term.coefficient * a[plan.index(term.weight)] * b[term.factor]
        out.append(total)
    return torch.stack(out)


def layer_norm(
    streams: Tensor, weight: Tensor, bias: Tensor, plan: Plan, epsilon: float = 1e-5
) -> Tensor:
    """Return the streams of torch's layer norm over the last dim."""
    centred = streams - streams.mean(-1, keepdim=True)
    variance = multiply(centred, centred, plan).mean(-1, keepdim=True)
    # A constant has no derivatives: epsilon and bias are added to the value alone.
    variance = torch.cat([variance[:1] + epsilon, variance[1:]])
    out = multiply(centred, activation(variance, "rsqrt", plan), plan) * weight
    return torch.cat([out[:1] + bias, out[1:]])


class _Activation(torch.autograd.Function):
    """Faa di Bruno's formula; saves only its input and recomputes derivatives of g backward."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, name: str, plan: Plan) -> Tensor:
        ctx.save_for_backward(a)
        ctx.name, ctx.plan = name, plan
        if len(plan) == 1:
            return derivatives(name, a, 0)[0]
        # g' times every stream is the whole rule for first derivatives, and the one-block term of
        # all higher ones; what the partitions into several blocks add follows.
        g = derivatives(name, a[0], plan.order)
        out = torch.mul(a, g[1])
        out[0] = g[0]
        for stream, terms in enumerate(plan.products):
            for order, inner in _by_order(terms):
                out[stream].addcmul_(g[order], _sum(a, inner))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (a,) = ctx.saved_tensors
        plan: Plan = ctx.plan
        if len(plan) == 1:
            return grad * derivatives(ctx.name, a, 1)[1], None, None
        g = derivatives(ctx.name, a[0], plan.order + 1)
        # One order higher than forward: the value enters every stream through a derivative of g.
        out = grad * g[1]
        out[0].addcmul_(g[2], (grad[1:] * a[1:]).sum(0))
        for stream, terms in enumerate(plan.products):
            for order, inner in _by_order(terms):
                out[0].addcmul_(g[order + 1], grad[stream] * _sum(a, inner))
                carried = grad[stream] * g[order]
                for term in inner:
                    _spread(out, a, carried, term)
        return out, None, None


def _by_order(terms):
    orders = sorted({term.order for term in terms})
    return [(order, [t for t in terms if t.order == order]) for order in orders]


def _sum(a: Tensor, terms) -> Tensor:
    total: Tensor | None = None
    for term in terms:
        first, *rest = term.factors
        product = a[first]
        for factor in rest:
            product = product * a[factor]
        if total is None:
            total = product * term.coefficient if term.coefficient != 1 else product
        else:
            total = total.add(product, alpha=term.coefficient)
    assert total is not None
    return total


def _spread(out: Tensor, a: Tensor, carried: Tensor, term) -> None:
    """Add the gradient of one product of streams to each of its factors."""
    for factor in sorted(set(term.factors)):
        rest = list(term.factors)
        rest.remove(factor)
        product = a[rest[0]]
        for other in rest[1:]:
            product = product * a[other]
        # A stream squared appears twice among the factors, and once in the loop.
        times = term.factors.count(factor) * term.coefficient
        out[factor].addcmul_(carried, product, value=times)
