"""Registered torch operators of both kinds of attention, with kernels in C and in Triton."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from scitoolkit.ops.attention import additive as additive_cpu
from scitoolkit.ops.attention import cpu, triton_kernels
from scitoolkit.ops.codegen import differentiable


def _save(ctx, inputs, output) -> None:
    *tensors, ctx.slope = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def _fake(pointer, column, t_pointer, t_column, left, right, x, slope):
    out = x.new_empty(left.shape[0], *x.shape[1:])
    return out, torch.empty_like(left), torch.empty_like(out), torch.empty_like(left)


def _fake_backward(t_pointer, t_column, left, right, x, out, norm, positive, share, grad, slope):
    return torch.empty_like(left), torch.empty_like(right), torch.empty_like(x)


def _graph_attention(suffix: str, run: Callable, run_backward: Callable) -> Callable:
    @differentiable(f"graph_attention{suffix}_backward", fake=_fake_backward)
    def attention_backward(
        t_pointer: Tensor,
        t_column: Tensor,
        left: Tensor,
        right: Tensor,
        x: Tensor,
        out: Tensor,
        norm: Tensor,
        positive: Tensor,
        share: Tensor,
        grad: Tensor,
        slope: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients with respect to left, right and x."""
        return run_backward(
            t_pointer, t_column, left, right, x, out, norm, positive, share, grad, slope
        )

    def backward(ctx, grad, *_):
        if grad is None:
            return (None,) * 8
        of_inputs = attention_backward(*ctx.saved_tensors[2:], grad.contiguous(), ctx.slope)
        return (None, None, None, None, *of_inputs, None)

    @differentiable(f"graph_attention{suffix}", fake=_fake, setup_context=_save, backward=backward)
    def attention(
        pointer: Tensor,
        column: Tensor,
        t_pointer: Tensor,
        t_column: Tensor,
        left: Tensor,
        right: Tensor,
        x: Tensor,
        slope: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the output, log(sum of exp(score)), and both sums over positive scores."""
        return run(pointer, column, left, right, x, slope)

    return attention


def _fake_additive(pointer, column, t_pointer, t_column, left, x, vector, slope):
    return torch.empty_like(left), left.new_empty(left.shape[:2])


def _fake_additive_backward(
    pointer, column, t_pointer, t_column, left, x, vector, out, norm, grad, slope
):
    return torch.empty_like(left), torch.empty_like(x), torch.empty_like(vector)


def _additive_attention(suffix: str, run: Callable, run_backward: Callable) -> Callable:
    @differentiable(f"additive_attention{suffix}_backward", fake=_fake_additive_backward)
    def attention_backward(
        pointer: Tensor,
        column: Tensor,
        t_pointer: Tensor,
        t_column: Tensor,
        left: Tensor,
        x: Tensor,
        vector: Tensor,
        out: Tensor,
        norm: Tensor,
        grad: Tensor,
        slope: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients with respect to left, x and vector."""
        return run_backward(
            pointer, column, t_pointer, t_column, left, x, vector, out, norm, grad, slope
        )

    def backward(ctx, grad, _):
        if grad is None:
            return (None,) * 8
        of_inputs = attention_backward(*ctx.saved_tensors, grad.contiguous(), ctx.slope)
        return (None, None, None, None, *of_inputs, None)

    @differentiable(
        f"additive_attention{suffix}", fake=_fake_additive, setup_context=_save, backward=backward
    )
    def attention(
        pointer: Tensor,
        column: Tensor,
        t_pointer: Tensor,
        t_column: Tensor,
        left: Tensor,
        x: Tensor,
        vector: Tensor,
        slope: float,
    ) -> tuple[Tensor, Tensor]:
        """Return the output, and the logarithm of each row's sum of exp(score)."""
        return run(pointer, column, left, x, vector, slope)

    return attention


attention = _graph_attention("", cpu.run_attention, cpu.run_attention_backward)
gpu_attention = _graph_attention(
    "_triton", triton_kernels.run_attention, triton_kernels.run_attention_backward
)
additive = _additive_attention("", additive_cpu.run_attention, additive_cpu.run_attention_backward)
gpu_additive = _additive_attention(
    "_triton", triton_kernels.run_additive, triton_kernels.run_additive_backward
)
