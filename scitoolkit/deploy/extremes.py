"""Extreme inputs inside a box, which change a compressed surrogate more than samples do.

Errors of n rounded weights of an output add to about sqrt(n) of one error where inputs are random,
and to n of them where the signs of the inputs are those of the errors. Such inputs are a corner of
the box, to which the gradient of the change points (FGSM: Goodfellow, Shlens, Szegedy 2015,
arXiv:1412.6572; further steps as by Frank and Wolfe). The search is local: it gives a change that
occurs inside the box, not a bound.

    d(x)    largest change of an output's elements
    c       corner: the upper limit where d'(x) > 0, the lower one where d'(x) < 0, otherwise x
    x'      of x, x + s (c - x), and x with a share s of its elements at random limits, the one of
            the largest change by the C code
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy.agreement import in_order, rows_of

CORNERS = 16
"""Random corners of a kind: by input, by index of the first dim, and by element."""
PEAKS = 16
"""Fields that are zero but for one element."""
STARTS, STEPS = 6, 8
"""Elements of an output whose changes ascend, those with the largest ones, and their steps."""
SHARES = (1.0, 0.4, 0.1)

Arrays = list[np.ndarray]


def largest_changes(
    before: TracedFunction,
    after: TracedFunction,
    samples: Arrays,
    change: Callable[[Arrays], Arrays],
) -> list[float]:
    """Return the largest change of each output on constant, corner and peaked inputs and by ascent.

    Args:
        before: function as trained.
        after: compressed function, with the limits of all inputs.
        samples: typical inputs; arrays that all samples share stay as they are.
        change: changes (samples, elements) of each output by the C code.
    """
    generator = np.random.default_rng(6)
    limits = [_limits(spec) for spec in after.inputs]
    first = [
        x if spec.shared else np.concatenate([_fields(*own, generator), x]).astype(x.dtype)
        for spec, own, x in zip(after.inputs, limits, samples, strict=True)
    ]
    changes = change(first)
    largest = [float(own.max(initial=0)) for own in changes]
    for output, own in enumerate(changes):
        elements = np.argsort(-own.max(0, initial=0), kind="stable")[:STARTS]
        rows = rows_of(after, first, own[:, elements].argmax(0))
        for _ in range(STEPS if len(elements) else 0):
            slopes = _slopes(before, after, rows, output, elements)
            tried = _moved(after, rows, slopes, limits, generator)
            made = change(tried)
            largest = [max(a, float(b.max(initial=0))) for a, b in zip(largest, made, strict=True)]
            by_step = made[output].reshape(-1, len(elements), made[output].shape[1])
            best = by_step.max(2).argmax(0) * len(elements) + np.arange(len(elements))
            rows, elements = rows_of(after, tried, best), made[output][best].argmax(1)
    return largest


def _limits(spec: ArraySpec) -> tuple[np.ndarray, np.ndarray]:
    low, high = (
        np.nan_to_num(np.broadcast_to(np.asarray(b, np.float64), spec.shape))
        for b in (spec.low, spec.high)
    )
    return low, high


def _fields(low: np.ndarray, high: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return extreme fields between limits, (fields, *shape)."""
    alternating = np.indices(low.shape).sum(0) % 2 if low.ndim else np.zeros(())
    upper = [np.zeros(low.shape), np.ones(low.shape), alternating, 1 - alternating]
    for dims in (0, 1, low.ndim):
        shape = (*low.shape[:dims], *(1,) * len(low.shape[dims:]))
        draws = (generator.integers(0, 2, shape) for _ in range(CORNERS))
        upper += [np.broadcast_to(corner, low.shape) for corner in draws]
    peaked = np.repeat(np.clip(0.0, low, high)[None], PEAKS + 1, 0)
    for row, place in enumerate(generator.integers(low.size, size=PEAKS) if low.size else ()):
        peaked[row].flat[place] = (low, high)[row % 2].flat[place]
    return np.concatenate([np.where(np.stack(upper), high, low), (low + high)[None] / 2, peaked])


def _slopes(
    before: TracedFunction, after: TracedFunction, inputs: Arrays, output: int, elements: np.ndarray
) -> Arrays:
    """Return derivatives of the change of an element in each sample; 0 where torch has none."""
    tensors = [torch.tensor(x, requires_grad=True) for x in inputs]
    try:
        first, second = (
            in_order(f.module(*(x * 1 for x in tensors)), f.outputs, f.name)[output]
            for f in (before, after)
        )  # products, which the modules may change in place
        changes = (second - first).abs().reshape(len(elements), -1)[range(len(elements)), elements]
        slopes = torch.autograd.grad(changes.sum(), tensors, allow_unused=True)
    except RuntimeError:
        return [np.zeros(x.shape) for x in inputs]
    pairs = zip(inputs, slopes, strict=True)
    return [np.zeros(x.shape) if slope is None else slope.numpy() for x, slope in pairs]


def _moved(
    function: TracedFunction,
    inputs: Arrays,
    slopes: Arrays,
    limits: Sequence[tuple[np.ndarray, np.ndarray]],
    generator: np.random.Generator,
) -> Arrays:
    """Return inputs ((1 + 2 SHARES) samples, *shape): as they are, and changed by each share.

    Changed are all elements, by a share of the way to the corner of the slopes, or a share of the
    elements, to a limit at random: slopes are those of torch, without the rounding of inputs in C.
    """
    out = []
    for spec, x, slope, (low, high) in zip(function.inputs, inputs, slopes, limits, strict=True):
        corner = np.where(slope > 0, high, np.where(slope < 0, low, x))
        tried = [x, *((1 - share) * x + share * corner for share in SHARES)]
        for share in SHARES:
            limit = np.where(generator.integers(0, 2, x.shape), high, low)
            tried.append(np.where(generator.random(x.shape) < share, limit, x))
        out.append(x if spec.shared else np.concatenate(tried).astype(x.dtype))
    return out
