"""Torch functions of the environment matrix with second derivatives.

`moments` is differentiable in the embedding's weights, and `edge_gradients` in the cotangent and
the weights, so that a loss of energies and forces has gradients in all parameters.

In eager mode both share the activations and a single pass for the weights' gradients. The backward
of `edge_gradients` stores its contribution as the pending cotangent of the `Environment` for the
backward of `moments`; autograd runs them in this order because the input of `edge_gradients`
depends on the moments. Under torch.compile and torch.export registered operators run instead. They
share no state: each recomputes the activations, and the weights' gradients have two parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import differentiable, eager, is_eager, refusing
from scitoolkit.ops.environment_matrix.environment import Environment
from scitoolkit.ops.environment_matrix.gpu_environment import GpuEnvironment
from scitoolkit.ops.environment_matrix.spec import EnvironmentSpec


def flat_weights(layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the parameters of all networks in the order of the kernels.

    Args:
        layers: weight (networks, in, out) and bias (networks, out) of each layer.

    Returns:
        Shape (networks, parameters).
    """
    return torch.cat([part.flatten(1) for pair in layers for part in pair], dim=1)


def moments(weights: Tensor, environment: Environment) -> Tensor:
    """Return the moments, differentiable in the weights (networks, parameters)."""
    if is_eager(weights, environment.vectors):
        return _moments(weights, environment)
    return traced_moments(weights, *traced_arguments(environment))


def gpu_moments(weights: Tensor, environment: Environment) -> Tensor:
    """Return the moments, differentiable in the weights, by the kernels of GPUs."""
    return moments(weights, GpuEnvironment.of(environment))


def edge_gradients(cotangent: Tensor, weights: Tensor, environment: Environment) -> Tensor:
    """Return d<cotangent, moments>/d(vectors), (E, 3), after a call of `moments`.

    Differentiable in the cotangent. In eager mode the gradient with respect to the weights is
    computed by the backward of `moments`, so that both must be part of one loss.
    """
    if is_eager(cotangent, environment.vectors):
        return _edge_gradients(cotangent, environment)
    return traced_edge_gradients(cotangent, weights, *traced_arguments(environment))


def _save_moments(ctx, inputs, output) -> None:
    weights, ctx.environment = inputs
    ctx.save_for_backward(weights)


def _backward_of_moments(ctx, cotangent):
    (weights,) = ctx.saved_tensors
    environment = ctx.environment
    pending, environment.pending_cotangent = environment.pending_cotangent, None
    return _weight_gradients(weights, cotangent.contiguous(), environment, pending), None


def _save_edge_gradients(ctx, inputs, output) -> None:
    cotangent, ctx.environment = inputs
    ctx.save_for_backward(cotangent)


def _backward_of_edge_gradients(ctx, tangent):
    (cotangent,) = ctx.saved_tensors
    tangent = tangent.contiguous()
    # The gradient in the weights needs the same pass over the neighbours as that of `moments`,
    # whose backward runs later: it takes this along, and both cost one pass.
    ctx.environment.pending_cotangent = (cotangent.contiguous(), tangent)
    return _moments_jvp(tangent, ctx.environment), None


TWICE_IN_VECTORS = "environment_matrix with respect to its vectors, twice"
_weight_gradients = refusing(
    "environment_matrix with respect to its weights, twice",
    lambda weights, cotangent, environment, pending: environment.weight_gradients(
        weights, cotangent, pending
    ),
)
_moments_jvp = refusing(
    TWICE_IN_VECTORS, lambda tangent, environment: environment.moments_jvp(tangent)
)
_moments = eager(
    lambda weights, environment: environment.moments(weights), _save_moments, _backward_of_moments
)
_edge_gradients = eager(
    lambda cotangent, environment: environment.edge_gradients(
        cotangent.contiguous(), torch.empty_like(environment.vectors)
    ),
    _save_edge_gradients,
    _backward_of_edge_gradients,
)


# The signatures below repeat each other because torch makes the schemas of operators from them: a
# schema has neither objects nor variable arguments, so that an environment is passed as its parts,
# and `_filled` puts them together again.
def traced_arguments(environment: Environment) -> tuple[Any, ...]:
    """Return the arguments of the registered operators for an environment."""
    e, spec = environment, environment.spec
    tensors = (e.vectors, e.atoms, e.segments, e.types, e.mean, e.deviation)
    sizes = (list(spec.sel), list(spec.widths))
    return *tensors, spec.cutoff, spec.cutoff_smooth, *sizes, spec.type_one_side


def _filled(
    training: bool,
    weights: Tensor,
    vectors: Tensor,
    atoms: Tensor,
    segments: Tensor,
    types: Tensor,
    mean: Tensor,
    deviation: Tensor,
    cutoff: float,
    smooth: float,
    sel: list[int],
    widths: list[int],
    type_one_side: bool,
) -> tuple[Environment, Tensor]:
    """Return an environment with its activations, and the moments."""
    spec = EnvironmentSpec(cutoff, smooth, tuple(sel), tuple(widths), type_one_side)
    graph = (atoms, segments, types, vectors, mean, deviation)
    atoms, segments, types, vectors, mean, deviation = (tensor.contiguous() for tensor in graph)
    kind = GpuEnvironment if vectors.is_cuda else Environment
    environment = kind(spec, atoms, segments, types, vectors, mean, deviation, training)
    return environment, environment.moments(weights.contiguous())


def _fake_moments(
    weights,
    vectors,
    atoms,
    segments,
    types,
    mean,
    deviation,
    cutoff,
    smooth,
    sel,
    widths,
    type_one_side,
):
    return vectors.new_empty(atoms.shape[0], widths[-1], 4)


@differentiable("environment_matrix_jvp", fake=lambda tangent, *others: _fake_moments(*others))
def _traced_jvp(
    tangent: Tensor,
    weights: Tensor,
    vectors: Tensor,
    atoms: Tensor,
    segments: Tensor,
    types: Tensor,
    mean: Tensor,
    deviation: Tensor,
    cutoff: float,
    smooth: float,
    sel: list[int],
    widths: list[int],
    type_one_side: bool,
) -> Tensor:
    """Return the derivative of the moments along a tangent (E, 3) of the vectors."""
    environment, _ = _filled(
        False,
        weights,
        vectors,
        atoms,
        segments,
        types,
        mean,
        deviation,
        cutoff,
        smooth,
        sel,
        widths,
        type_one_side,
    )
    return environment.moments_jvp(tangent.contiguous())


@differentiable(
    "environment_matrix_weight_gradients",
    fake=lambda cotangent, tangent, weights, *others: torch.empty_like(weights),
)
def _traced_weight_gradients(
    cotangent: Tensor,
    tangent: Tensor | None,
    weights: Tensor,
    vectors: Tensor,
    atoms: Tensor,
    segments: Tensor,
    types: Tensor,
    mean: Tensor,
    deviation: Tensor,
    cutoff: float,
    smooth: float,
    sel: list[int],
    widths: list[int],
    type_one_side: bool,
) -> Tensor:
    """Return the gradient of <cotangent, moments>, or of their derivative along a tangent."""
    environment, _ = _filled(
        True,
        weights,
        vectors,
        atoms,
        segments,
        types,
        mean,
        deviation,
        cutoff,
        smooth,
        sel,
        widths,
        type_one_side,
    )
    weights, cotangent = weights.contiguous(), cotangent.contiguous()
    if tangent is None:
        return environment.weight_gradients(weights, cotangent, None)
    pending = (cotangent, tangent.contiguous())
    return environment.weight_gradients(weights, torch.zeros_like(cotangent), pending)


def _save(ctx, inputs, output) -> None:
    tensors = [argument for argument in inputs if isinstance(argument, Tensor)]
    ctx.options = inputs[len(tensors) :]
    ctx.save_for_backward(*tensors)


def _backward_of_traced_edge_gradients(ctx, tangent):
    cotangent, *tensors = ctx.saved_tensors
    # Only what is asked for: each derivative recomputes the activations.
    others = (*tensors, *ctx.options)
    wants_cotangent, wants_weights, wants_vectors = ctx.needs_input_grad[:3]
    by_cotangent = _traced_jvp(tangent, *others) if wants_cotangent else None
    by_weights = _traced_weight_gradients(cotangent, tangent, *others) if wants_weights else None
    if wants_vectors:
        raise BackendError(f"the kernels have no derivative of {TWICE_IN_VECTORS}")
    return by_cotangent, by_weights, *[None] * (len(others) - 1)


def _fake_edge_gradients(cotangent, weights, vectors, *others):
    return torch.empty_like(vectors)


@differentiable(
    "environment_matrix_edge_gradients",
    fake=_fake_edge_gradients,
    setup_context=_save,
    backward=_backward_of_traced_edge_gradients,
)
def traced_edge_gradients(
    cotangent: Tensor,
    weights: Tensor,
    vectors: Tensor,
    atoms: Tensor,
    segments: Tensor,
    types: Tensor,
    mean: Tensor,
    deviation: Tensor,
    cutoff: float,
    smooth: float,
    sel: list[int],
    widths: list[int],
    type_one_side: bool,
) -> Tensor:
    """Return the gradient of <cotangent, moments> in the vectors; see `edge_gradients`."""
    environment, _ = _filled(
        False,
        weights,
        vectors,
        atoms,
        segments,
        types,
        mean,
        deviation,
        cutoff,
        smooth,
        sel,
        widths,
        type_one_side,
    )
    return environment.edge_gradients(cotangent.contiguous(), torch.zeros_like(environment.vectors))


def _backward_of_traced_moments(ctx, cotangent):
    others = (*ctx.saved_tensors, *ctx.options)
    wants_weights, wants_vectors = ctx.needs_input_grad[:2]
    by_weights = _traced_weight_gradients(cotangent, None, *others) if wants_weights else None
    by_vectors = traced_edge_gradients(cotangent, *others) if wants_vectors else None
    return by_weights, by_vectors, *[None] * (len(others) - 2)


@differentiable(
    "environment_matrix",
    fake=_fake_moments,
    setup_context=_save,
    backward=_backward_of_traced_moments,
)
def traced_moments(
    weights: Tensor,
    vectors: Tensor,
    atoms: Tensor,
    segments: Tensor,
    types: Tensor,
    mean: Tensor,
    deviation: Tensor,
    cutoff: float,
    smooth: float,
    sel: list[int],
    widths: list[int],
    type_one_side: bool,
) -> Tensor:
    """Return the moments (n, widths[-1], 4) without the absent neighbours; see `moments`."""
    return _filled(
        False,
        weights,
        vectors,
        atoms,
        segments,
        types,
        mean,
        deviation,
        cutoff,
        smooth,
        sel,
        widths,
        type_one_side,
    )[1]
